/* SPDX-License-Identifier: MIT */
#include "orchestrator/scenario.h"

#include <libgen.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/command.h"
#include "orchestrator/plan.h"

enum {
    BASELINE_MS = 5000,
    SETTLE_MS = 3000,
    RECOVERY_MS = 60000,
    SPREAD_MS = 2000,
    REPEAT_MAX = 1000,
    SCENARIOS_MAX = 100
};

#define HOUR_MS 3600000

static const char *const scenario_schema = "ordeal/scenario-1";
static const char *const profile_schema = "ordeal/profile-1";

static void release_json(void *json)
{
    json_decref(json);
}

json_t *scenario_own(struct arena *arena, json_t *json)
{
    arena_adopt(arena, json, release_json);
    return json;
}

/* ---- sections ---- */

struct sections {
    const char *schema, *title, *description;
    int64_t seed, minimum_exposure;
    const struct yaml_node *repeat, *workload, *probes, *steady, *baseline, *method, *recovery,
        *stops, *ha, *checks;
};

#define SECTION(key, kind, member, ...)                                                            \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(struct sections, member), __VA_ARGS__        \
    }

static const struct yaml_field section_fields[] = {
    SECTION("schema", YAML_TEXT, schema, .required = true),
    SECTION("title", YAML_TEXT, title, .required = true),
    SECTION("description", YAML_TEXT, description),
    SECTION("seed", YAML_INTEGER, seed),
    SECTION("repeat", YAML_NODE, repeat),
    SECTION("workload", YAML_NODE, workload),
    SECTION("probes", YAML_NODE, probes),
    SECTION("steady-state", YAML_NODE, steady),
    SECTION("baseline", YAML_NODE, baseline),
    SECTION("method", YAML_NODE, method, .required = true),
    SECTION("recovery", YAML_NODE, recovery),
    SECTION("stop-conditions", YAML_NODE, stops),
    SECTION("minimum-exposure", YAML_INTEGER, minimum_exposure),
    SECTION("ha", YAML_NODE, ha),
    SECTION("checks", YAML_NODE, checks),
    {.type = YAML_END},
};

#define MEMBER(key, kind, member, ...)                                                             \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(struct scenario, member), __VA_ARGS__        \
    }

static const struct yaml_field repeat_fields[] = {
    MEMBER("times", YAML_INTEGER, repeat, .required = true, .minimum = 1, .maximum = REPEAT_MAX),
    MEMBER("spread", YAML_DURATION, spread_ms, .minimum = 0, .maximum = HOUR_MS),
    {.type = YAML_END},
};

static const struct yaml_field baseline_fields[] = {
    MEMBER("for", YAML_DURATION, baseline_ms, .minimum = 1000, .maximum = HOUR_MS),
    {.type = YAML_END},
};

static const struct yaml_field recovery_fields[] = {
    MEMBER("timeout", YAML_DURATION, recovery_ms, .minimum = 1000, .maximum = 24 * HOUR_MS),
    MEMBER("settle", YAML_DURATION, settle_ms, .minimum = 0, .maximum = HOUR_MS),
    {.type = YAML_END},
};

static void read_repeat(struct scenario_reading *reading, const struct yaml_node *node)
{
    static const struct yaml_field times = {.name = "repeat",
                                            .type = YAML_INTEGER,
                                            .offset = offsetof(struct scenario, repeat),
                                            .minimum = 1,
                                            .maximum = REPEAT_MAX};

    if (node == NULL)
        return;
    if (node->kind == YAML_MAPPING) {
        yaml_read(node, repeat_fields, reading->scenario, reading->errors);
        return;
    }
    /* `repeat: 5` is short for `repeat: { times: 5 }` */
    struct yaml_node key = {
        .kind = YAML_SCALAR, .line = node->line, .column = node->column, .text = times.name};
    struct yaml_node value = *node, *keys = &key, *values = &value;
    struct yaml_node mapping = {.kind = YAML_MAPPING,
                                .line = node->line,
                                .column = node->column,
                                .count = 1,
                                .items = &values,
                                .keys = &keys};
    const struct yaml_field fields[] = {times, {.type = YAML_END}};
    yaml_read(&mapping, fields, reading->scenario, reading->errors);
}

static void read_part(struct scenario_reading *reading, const struct yaml_node *node,
                      const struct yaml_field *fields)
{
    if (node != NULL)
        yaml_read(node, fields, reading->scenario, reading->errors);
}

struct ha_fields {
    bool acts;
};

static void read_ha(struct scenario_reading *reading, const struct yaml_node *node)
{
    static const struct yaml_field fields[] = {
        {.name = "acts", .type = YAML_BOOLEAN, .offset = offsetof(struct ha_fields, acts)},
        {.type = YAML_END},
    };
    struct ha_fields ha = {.acts = true};

    if (node != NULL)
        yaml_read(node, fields, &ha, reading->errors);
    reading->scenario->manager_must = !ha.acts;
}

/* ---- workload and probes of the load ---- */

const struct param scenario_workload_params[] = {
    {.name = "kind",
     .type = PARAM_CHOICE,
     .choices = "ledger",
     .fallback = "ledger",
     .help = "what the clients do"},
    {.name = "clients",
     .type = PARAM_INTEGER,
     .fallback = "8",
     .minimum = 1,
     .maximum = 10000,
     .help = "connections that write"},
    {.name = "rate",
     .type = PARAM_STRING,
     .fallback = "300/s",
     .help = "transactions a second of all clients together, or max"},
    {.name = "rows",
     .type = PARAM_INTEGER,
     .fallback = "2",
     .minimum = 1,
     .maximum = 1000,
     .help = "rows of a transaction"},
    {.name = "payload",
     .type = PARAM_SIZE,
     .fallback = "64B",
     .minimum = 0,
     .maximum = 1048576,
     .help = "bytes of text in a row"},
    {.name = "drain",
     .type = PARAM_DURATION,
     .fallback = "5s",
     .minimum = 0,
     .maximum = 600000,
     .help = "at the end, how long to wait for what is in flight"},
    {.name = NULL},
};

static const struct param load_probe_params[] = {
    {.name = "interval",
     .type = PARAM_DURATION,
     .fallback = "4ms",
     .minimum = 1,
     .maximum = 60000,
     .help = "between two writes through the endpoint"},
    {.name = "connections",
     .type = PARAM_INTEGER,
     .fallback = "8",
     .minimum = 1,
     .maximum = 64,
     .help = "warm connections to each host, which share these writes"},
    {.name = "direct-interval",
     .type = PARAM_DURATION,
     .fallback = "20ms",
     .minimum = 1,
     .maximum = 60000,
     .help = "between two writes to each database node directly"},
    {.name = NULL},
};

static const struct yaml_node *or_empty(struct arena *arena, const struct yaml_node *node,
                                        const struct yaml_node *at)
{
    if (node != NULL)
        return node;
    struct yaml_node *empty = arena_alloc(arena, sizeof *empty);
    *empty = (struct yaml_node){
        .kind = YAML_MAPPING, .line = at->line, .column = at->column, .text = ""};
    return empty;
}

/* "500/s", or "max": as many as the cluster takes, which the agent knows as 0. */
static void set_rate(struct scenario_reading *reading, const struct yaml_node *at, json_t *workload)
{
    const char *text = json_text(workload, "rate", "max");
    struct param rate = {.name = "rate", .type = PARAM_RATE, .minimum = 0, .maximum = 1000000};
    struct error error = {0};
    json_t *value = NULL;

    reading->scenario->rate_text = arena_strdup(reading->arena, text);
    if (strcmp(text, "max") == 0)
        value = json_real(0);
    else if (param_parse(&rate, text, &value, &error) != STATUS_OK)
        yaml_complain(reading->errors, at, "rate: %s is neither a rate as 300/s nor max", text);
    if (value != NULL)
        json_object_set_new(workload, "rate", value);
}

static void read_workload(struct scenario_reading *reading, const struct yaml_node *node,
                          const struct yaml_node *root)
{
    const struct yaml_node *mapping = or_empty(reading->arena, node, root);
    const struct yaml_node *rate = yaml_get(mapping, "rate");
    json_t *workload = yaml_read_params(mapping, scenario_workload_params, reading->errors);

    scenario_own(reading->arena, workload);
    set_rate(reading, rate != NULL ? rate : mapping, workload);
    json_object_del(workload, "kind");
    reading->scenario->workload = workload;
}

static void read_load_probes(struct scenario_reading *reading, const struct yaml_node *node,
                             const struct yaml_node *root)
{
    OWNED_JSON json_t *given =
        yaml_read_params(or_empty(reading->arena, node, root), load_probe_params, reading->errors);
    json_t *probes =
        json_pack("{s:I, s:I, s:I}", "interval_ms", (json_int_t) json_number(given, "interval", 4),
                  "connections", (json_int_t) json_number(given, "connections", 8),
                  "direct_interval_ms", (json_int_t) json_number(given, "direct-interval", 20));

    reading->scenario->probes = scenario_own(reading->arena, probes);
}

/* ---- steady state and stop conditions ---- */

struct use_fields {
    const char *probe, *least, *most;
    int64_t false_for_ms;
};

#define USE(key, kind, member, ...)                                                                \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(struct use_fields, member), __VA_ARGS__      \
    }

static const struct yaml_field steady_fields[] = {
    USE("probe", YAML_TEXT, probe, .required = true),
    USE("at-least", YAML_TEXT, least),
    USE("at-most", YAML_TEXT, most),
    {.type = YAML_END},
};

static const struct yaml_field stop_fields[] = {
    USE("probe", YAML_TEXT, probe, .required = true),
    USE("at-least", YAML_TEXT, least),
    USE("at-most", YAML_TEXT, most),
    USE("false-for", YAML_DURATION, false_for_ms, .required = true, .minimum = 200,
        .maximum = HOUR_MS),
    {.type = YAML_END},
};

static const struct probe *find_probe(struct scenario_reading *reading, const struct yaml_node *at,
                                      const char *name)
{
    const struct probe *const *list = probe_list();
    const char *words[32] = {NULL};
    const struct probe *probe = probe_find(name);

    if (probe != NULL)
        return probe;
    for (size_t i = 0; i < 31 && list[i] != NULL; i++)
        words[i] = list[i]->name;
    const char *near = nearest_word(name, words);
    yaml_complain(reading->errors, at, "unknown probe %s%s%s%s", name,
                  near != NULL ? ", did you mean " : "", near != NULL ? near : "",
                  near != NULL ? "?" : "");
    return NULL;
}

static bool read_bound(struct scenario_reading *reading, const struct yaml_node *mapping,
                       const char *key, const struct probe *probe, double *ret_bound)
{
    const struct yaml_node *at = yaml_get(mapping, key);
    struct param param = {.name = key, .type = probe->bound};
    struct error error = {0};
    json_t *value = NULL;

    if (at == NULL || at->kind != YAML_SCALAR)
        return false;
    if (probe->bound == PARAM_BOOLEAN) {
        yaml_complain(reading->errors, at, "probe %s is yes or no and takes no bound", probe->name);
        return false;
    }
    if (param_parse(&param, at->text, &value, &error) != STATUS_OK) {
        yaml_complain(reading->errors, at, "%s", error.message);
        return false;
    }
    *ret_bound = json_number_value(value);
    json_decref(value);
    return true;
}

static void read_use(struct scenario_reading *reading, const struct yaml_node *node, bool stop,
                     struct probe_use *use)
{
    struct use_fields fields = {0};

    yaml_read(node, stop ? stop_fields : steady_fields, &fields, reading->errors);
    if (fields.probe == NULL)
        return;
    const struct probe *probe = find_probe(reading, yaml_get(node, "probe"), fields.probe);
    if (probe == NULL)
        return;
    use->probe = probe;
    use->false_for_ms = fields.false_for_ms;
    use->has_least = read_bound(reading, node, "at-least", probe, &use->least);
    use->has_most = read_bound(reading, node, "at-most", probe, &use->most);
    if (!use->has_least && !use->has_most && probe->least == 0)
        yaml_complain(reading->errors, node, "probe %s needs a bound: at-least or at-most",
                      probe->name);
    if (!use->has_least && !use->has_most) {
        use->has_least = true;
        use->least = probe->least;
    }
    if (stop && probe->needs_state)
        yaml_complain(reading->errors, node,
                      "probe %s asks every node and is too slow for a stop condition", probe->name);
}

static struct probe_use *read_uses(struct scenario_reading *reading, const struct yaml_node *list,
                                   bool stop, size_t *ret_count)
{
    *ret_count = 0;
    if (list == NULL)
        return NULL;
    if (list->kind != YAML_SEQUENCE) {
        yaml_complain(reading->errors, list, "%s must be a list",
                      stop ? "stop-conditions" : "steady-state");
        return NULL;
    }
    struct probe_use *uses = arena_array(reading->arena, list->count + 1, sizeof *uses);
    for (size_t i = 0; i < list->count; i++)
        read_use(reading, list->items[i], stop, &uses[i]);
    *ret_count = list->count;
    return uses;
}

/* ---- a scenario ---- */

static const char *name_of(struct arena *arena, const char *path)
{
    const char *base = basename(arena_strdup(arena, path));
    const char *dot = strrchr(base, '.');

    return dot != NULL ? arena_strndup(arena, base, (size_t) (dot - base)) : base;
}

static void read_sections(struct scenario_reading *reading, const struct yaml_node *root)
{
    struct scenario *scenario = reading->scenario;
    struct sections sections = {.seed = -1, .minimum_exposure = -1};

    yaml_read(root, section_fields, &sections, reading->errors);
    scenario->title = sections.title;
    scenario->description = sections.description;
    scenario->has_seed = sections.seed >= 0;
    scenario->seed = sections.seed;
    scenario->has_minimum_exposure = sections.minimum_exposure >= 0;
    scenario->minimum_exposure = sections.minimum_exposure;
    read_repeat(reading, sections.repeat);
    read_workload(reading, sections.workload, root);
    read_load_probes(reading, sections.probes, root);
    scenario->steady = read_uses(reading, sections.steady, false, &scenario->steady_count);
    scenario->stops = read_uses(reading, sections.stops, true, &scenario->stop_count);
    read_part(reading, sections.baseline, baseline_fields);
    read_part(reading, sections.recovery, recovery_fields);
    read_ha(reading, sections.ha);
    if (sections.method != NULL)
        scenario_read_steps(reading, sections.method);
    scenario_read_checks(reading, sections.checks);
}

static struct scenario *read_scenario(struct arena *arena, const char *path,
                                      const struct yaml_node *root, const struct topology *topology,
                                      struct yaml_errors *errors)
{
    struct scenario *scenario = arena_alloc(arena, sizeof *scenario);
    struct scenario_reading reading = {
        .arena = arena, .errors = errors, .topology = topology, .scenario = scenario};
    size_t before = errors->count;

    *scenario = (struct scenario){.file = arena_strdup(arena, path),
                                  .name = name_of(arena, path),
                                  .repeat = 1,
                                  .spread_ms = SPREAD_MS,
                                  .baseline_ms = BASELINE_MS,
                                  .settle_ms = SETTLE_MS,
                                  .recovery_ms = RECOVERY_MS};
    read_sections(&reading, root);
    if (errors->count == before)
        plan_check(arena, scenario, errors);
    return scenario;
}

/* ---- a profile ---- */

struct profile_fields {
    const char *schema, *title;
    const char *const *scenarios, *const *optional;
    const struct yaml_node *checks;
};

#define PROFILE(key, kind, member, ...)                                                            \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(struct profile_fields, member), __VA_ARGS__  \
    }

static const struct yaml_field profile_fields[] = {
    PROFILE("schema", YAML_TEXT, schema, .required = true),
    PROFILE("title", YAML_TEXT, title, .required = true),
    PROFILE("scenarios", YAML_TEXTS, scenarios, .required = true),
    PROFILE("optional", YAML_TEXTS, optional),
    PROFILE("checks", YAML_NODE, checks),
    {.type = YAML_END},
};

/* The bounds of a profile go over those of its scenarios. */
static void put_over(json_t *checks, const json_t *bounds, const struct yaml_node *given)
{
    const char *name;
    json_t *params;

    json_object_foreach((json_t *) (uintptr_t) bounds, name, params)
    {
        json_t *mine = json_object_get(checks, name);
        const struct yaml_node *written = yaml_get(given, name);

        if (mine == NULL)
            continue; /* a check that the scenario does not ask for stays out */
        for (size_t i = 0; written != NULL && i < written->count; i++) {
            const char *key = written->keys[i]->text;
            json_object_set(mine, key, json_object_get(params, key));
        }
    }
}

/* "primary-kill" or "primary-kill.yaml", beside the profile. */
static const char *beside(struct arena *arena, const char *profile, const char *name)
{
    const char *slash = strrchr(profile, '/');
    size_t length = strlen(name);
    bool whole = length > 5 && strcmp(name + length - 5, ".yaml") == 0;

    if (name[0] == '/' || slash == NULL)
        return arena_printf(arena, "%s%s", name, whole ? "" : ".yaml");
    return arena_printf(arena, "%.*s/%s%s", (int) (slash - profile), profile, name,
                        whole ? "" : ".yaml");
}

static struct scenario *load_part(struct arena *arena, const char *path,
                                  const struct topology *topology, struct yaml_errors *errors)
{
    struct scenario_file file = {0};
    struct error error = {0};

    if (scenario_load(arena, path, topology, &file, errors, &error) != STATUS_OK) {
        if (error.code != STATUS_INVALID)
            yaml_complain(errors, NULL, "%s", error.message);
        return NULL;
    }
    if (file.scenario == NULL)
        yaml_complain(errors, NULL, "a profile cannot contain another profile");
    return file.scenario;
}

/* "kill.yaml" names the same scenario as "kill". */
static bool same_scenario(struct arena *arena, const char *left, const char *right)
{
    return strcmp(name_of(arena, left), name_of(arena, right)) == 0;
}

static bool is_named(struct arena *arena, const char *name, const char *const *names)
{
    for (; names != NULL && *names != NULL; names++)
        if (same_scenario(arena, name, *names))
            return true;
    return false;
}

/* A name that is not in the list of scenarios would make nothing optional, without a word. */
static void check_optional(struct arena *arena, const struct profile_fields *fields,
                           const struct yaml_node *root, struct yaml_errors *errors)
{
    for (size_t i = 0; fields->optional != NULL && fields->optional[i] != NULL; i++)
        if (!is_named(arena, fields->optional[i], fields->scenarios))
            yaml_complain(errors, yaml_get(root, "optional"),
                          "optional: %s is not among the scenarios", fields->optional[i]);
}

static struct profile *read_profile(struct arena *arena, const char *path,
                                    const struct yaml_node *root, const struct topology *topology,
                                    struct yaml_errors *errors)
{
    struct profile *profile = arena_alloc(arena, sizeof *profile);
    struct profile_fields fields = {0};
    struct scenario bounds = {.name = "profile"};
    struct scenario_reading reading = {.arena = arena, .errors = errors, .scenario = &bounds};

    yaml_read(root, profile_fields, &fields, errors);
    if (fields.checks != NULL)
        scenario_read_checks(&reading, fields.checks);
    profile->file = arena_strdup(arena, path);
    profile->name = name_of(arena, path);
    profile->title = fields.title;
    profile->scenarios = arena_array(arena, SCENARIOS_MAX, sizeof(struct scenario *));
    for (size_t i = 0; fields.scenarios != NULL && fields.scenarios[i] != NULL; i++) {
        const char *part = beside(arena, path, fields.scenarios[i]);

        if (profile->count == SCENARIOS_MAX) {
            yaml_complain(errors, root, "a profile has at most %d scenarios", SCENARIOS_MAX);
            break;
        }
        struct scenario *scenario = load_part(arena, part, topology, errors);
        if (scenario == NULL)
            continue;
        if (bounds.checks != NULL)
            put_over(scenario->checks, bounds.checks, fields.checks);
        scenario->optional = is_named(arena, fields.scenarios[i], fields.optional);
        profile->scenarios[profile->count++] = scenario;
    }
    check_optional(arena, &fields, root, errors);
    return profile;
}

/* ---- either ---- */

static void read_either(struct arena *arena, const char *path, const struct yaml_node *root,
                        const struct topology *topology, struct yaml_errors *errors,
                        struct scenario_file *file)
{
    const struct yaml_node *schema = yaml_get(root, "schema");
    const char *name = schema != NULL && schema->kind == YAML_SCALAR ? schema->text : "";

    if (strcmp(name, profile_schema) == 0)
        file->profile = read_profile(arena, path, root, topology, errors);
    else if (strcmp(name, scenario_schema) == 0)
        file->scenario = read_scenario(arena, path, root, topology, errors);
    else
        yaml_complain(errors, schema != NULL ? schema : root,
                      "schema %s is not known here, expected %s or %s",
                      name[0] != '\0' ? name : "(none)", scenario_schema, profile_schema);
}

enum status scenario_load(struct arena *arena, const char *path, const struct topology *topology,
                          struct scenario_file *ret_file, struct yaml_errors *errors,
                          struct error *err)
{
    struct scenario_file file = {0};
    size_t before = errors->count;
    const char *outer = errors->file;
    struct yaml_node *root;
    enum status status = yaml_load(arena, path, &root, errors, err);

    if (status == STATUS_OK) {
        read_either(arena, path, root, topology, errors, &file);
        if (errors->count != before)
            status = error_set(err, STATUS_INVALID, "%s is not valid: %zu error%s", path,
                               errors->count - before, errors->count - before == 1 ? "" : "s");
    }
    if (outer != NULL)
        errors->file = outer; /* a profile's own errors come after those of its parts */
    if (status == STATUS_OK)
        *ret_file = file;
    return status;
}

static bool readable(const char *path)
{
    return access(path, R_OK) == 0;
}

const char *scenario_find(struct arena *arena, const char *name)
{
    static const char *const shares[] = {"../scenarios", "../share/ordeal/scenarios"};

    if (readable(name) || strchr(name, '/') != NULL)
        return name;
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        const char *path = arena_printf(arena, "%s/%s/%s.yaml", program_folder(), shares[i], name);

        if (readable(path))
            return path;
    }
    return name;
}
