/* SPDX-License-Identifier: MIT */
/*
 * A recorded scenario as a file again. JSON is YAML in its flow style, so that what is built here
 * as JSON is a scenario file when it is written down.
 */
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/checks/check.h"
#include "orchestrator/scenario.h"

static json_t *text_of(const struct param *param, const json_t *value)
{
    OWNED_BUFFER struct buffer text = BUFFER(64 * 1024);

    param_text(param, value, &text);
    return json_string(buffer_text(&text));
}

static json_t *duration(int64_t ms)
{
    return json_sprintf("%lldms", (long long) ms);
}

/* Every value by its table; what the table does not know stays as it is, for the reader to refuse.
 */
static json_t *params_file(const struct param *params, const json_t *values)
{
    json_t *file = json_object();
    const char *name;
    json_t *value;

    json_object_foreach((json_t *) (uintptr_t) values, name, value)
    {
        const struct param *param = param_find(params, name);

        json_object_set_new(file, name,
                            param == NULL ? json_deep_copy(value) : text_of(param, value));
    }
    return file;
}

static json_t *workload_file(const json_t *workload)
{
    static const struct param rate = {.name = "rate", .type = PARAM_RATE};
    json_t *file = params_file(scenario_workload_params, workload);
    const json_t *value = json_object_get(workload, "rate");

    json_object_set_new(file, "rate",
                        json_number_value(value) > 0 ? text_of(&rate, value) : json_string("max"));
    return file;
}

static json_t *load_probes_file(const json_t *probes)
{
    return json_pack("{s:o, s:I, s:o}", "interval", duration(json_number(probes, "interval_ms", 5)),
                     "connections", (json_int_t) json_number(probes, "connections", 8),
                     "direct-interval", duration(json_number(probes, "direct_interval_ms", 20)));
}

/* A probe that is yes or no takes no bound in a file, but one is recorded. */
static void add_bound(json_t *file, const json_t *use, const char *key)
{
    const struct probe *probe = probe_find(json_text(use, "probe", ""));
    const json_t *value = json_object_get(use, key);

    if (value == NULL || probe == NULL || probe->bound == PARAM_BOOLEAN)
        return;
    OWNED_JSON json_t *whole = json_integer((json_int_t) json_number_value(value));
    bool real = probe->bound == PARAM_RATE || probe->bound == PARAM_PERCENTAGE;
    struct param param = {.name = key, .type = probe->bound};
    json_object_set_new(file, key, text_of(&param, real ? value : whole));
}

static json_t *uses_file(const json_t *uses)
{
    json_t *list = json_array();
    const json_t *use;
    size_t index;

    json_array_foreach(uses, index, use)
    {
        json_t *file = json_pack("{s:s}", "probe", json_text(use, "probe", ""));

        add_bound(file, use, "at-least");
        add_bound(file, use, "at-most");
        if (json_object_get(use, "false-for") != NULL)
            json_object_set_new(file, "false-for", duration(json_number(use, "false-for", 0)));
        json_array_append_new(list, file);
    }
    return list;
}

static json_t *checks_file(const json_t *checks)
{
    json_t *file = json_object();
    const char *name;
    json_t *params;

    json_object_foreach((json_t *) (uintptr_t) checks, name, params)
    {
        const struct check *check = check_find(name);

        json_object_set_new(file, name,
                            check == NULL ? json_deep_copy(params)
                                          : params_file(check->params, params));
    }
    return file;
}

static void add_lists(json_t *file, const json_t *recorded)
{
    static const char *const lists[] = {"steady-state", "stop-conditions"};

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (json_array_size(json_object_get(recorded, lists[i])) > 0)
            json_object_set_new(file, lists[i], uses_file(json_object_get(recorded, lists[i])));
    if (json_object_get(recorded, "minimum-exposure") != NULL)
        json_object_set(file, "minimum-exposure", json_object_get(recorded, "minimum-exposure"));
    if (json_flag(recorded, "manager-must", false))
        json_object_set_new(file, "ha", json_pack("{s:s}", "acts", "no"));
}

json_t *scenario_file_json(const json_t *recorded)
{
    const json_t *baseline = json_object_get(recorded, "baseline");
    const json_t *recovery = json_object_get(recorded, "recovery");
    json_t *file = json_pack("{s:s, s:s, s:o, s:o, s:{s:o}, s:{s:o, s:o}, s:o}", "schema",
                             "ordeal/scenario-1", "title", json_text(recorded, "title", ""),
                             "workload", workload_file(json_object_get(recorded, "workload")),
                             "probes", load_probes_file(json_object_get(recorded, "probes")),
                             "baseline", "for", duration(json_number(baseline, "for", 0)),
                             "recovery", "timeout", duration(json_number(recovery, "timeout", 0)),
                             "settle", duration(json_number(recovery, "settle", 0)), "checks",
                             checks_file(json_object_get(recorded, "checks")));

    if (json_object_get(recorded, "description") != NULL)
        json_object_set(file, "description", json_object_get(recorded, "description"));
    add_lists(file, recorded);
    return file;
}
