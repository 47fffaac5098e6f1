/* SPDX-License-Identifier: MIT */
/* A scenario as the journal records it: every default filled in, keys as in the file. */
#include <string.h>

#include "orchestrator/scenario.h"

static json_t *uses_json(const struct probe_use *uses, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++) {
        json_t *use = json_pack("{s:s}", "probe", uses[i].probe->name);

        if (uses[i].has_least)
            json_object_set_new(use, "at-least", json_real(uses[i].least));
        if (uses[i].has_most)
            json_object_set_new(use, "at-most", json_real(uses[i].most));
        if (uses[i].false_for_ms > 0)
            json_object_set_new(use, "false-for", json_integer(uses[i].false_for_ms));
        json_array_append_new(list, use);
    }
    return list;
}

static void add_timing(json_t *json, const struct scenario *scenario, const struct step *step)
{
    const char *other = scenario->steps[step->reference].name;

    if (step->timing == STEP_AT_START || step->timing == STEP_AT_STEP)
        json_object_set_new(json, "offset", json_integer(step->offset_ms));
    if (step->timing == STEP_AT_STEP)
        json_object_set_new(json, "at", json_string(other));
    if (step->timing == STEP_AFTER)
        json_object_set_new(json, "after", json_string(other));
}

static void add_fault(json_t *json, const struct step *step)
{
    json_t *with = json_deep_copy(step->params);

    for (size_t i = 0; i < step->node_count; i++)
        json_object_set_new(with, step->nodes[i].name, target_json(&step->nodes[i].target));
    json_object_set_new(json, "fault", json_string(step->fault->name));
    json_object_set_new(json, "with", with);
    if (step->hold_ms > 0)
        json_object_set_new(json, "for", json_integer(step->hold_ms));
}

static json_t *step_json(const struct scenario *scenario, const struct step *step)
{
    json_t *json =
        json_pack("{s:s, s:b, s:{s:s, s:s}}", "name", step->name, "optional", step->optional,
                  "expect", "failover", step->expect_failover, "writes", step->expect_writes);

    if (step->kind == STEP_FAULT)
        add_fault(json, step);
    else if (step->kind == STEP_POWER)
        json_object_set_new(json, "power", json_string("on"));
    else
        json_object_set_new(json, "pause", json_integer(step->pause_ms));
    if (step->kind != STEP_PAUSE)
        json_object_set_new(json, "target", target_json(&step->target));
    add_timing(json, scenario, step);
    return json;
}

static json_t *method_json(const struct scenario *scenario)
{
    json_t *method = json_array();

    for (size_t i = 0; i < scenario->step_count; i++)
        json_array_append_new(method, step_json(scenario, &scenario->steps[i]));
    return method;
}

json_t *scenario_json(const struct scenario *scenario)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:I, s:o, s:o, s:{s:I}, s:o, s:{s:I, s:I}, s:o, s:o, s:b, s:o}", "schema",
        "ordeal/scenario-1", "name", scenario->name, "title", scenario->title, "repeat",
        (json_int_t) scenario->repeat, "workload", json_deep_copy(scenario->workload), "probes",
        json_deep_copy(scenario->probes), "baseline", "for", (json_int_t) scenario->baseline_ms,
        "method", method_json(scenario), "recovery", "timeout", (json_int_t) scenario->recovery_ms,
        "settle", (json_int_t) scenario->settle_ms, "steady-state",
        uses_json(scenario->steady, scenario->steady_count), "stop-conditions",
        uses_json(scenario->stops, scenario->stop_count), "manager-must", scenario->manager_must,
        "checks", json_deep_copy(scenario->checks));

    if (scenario->description != NULL)
        json_object_set_new(json, "description", json_string(scenario->description));
    if (scenario->has_minimum_exposure)
        json_object_set_new(json, "minimum-exposure", json_integer(scenario->minimum_exposure));
    return json;
}

bool scenario_expects_failover(const struct scenario *scenario)
{
    for (size_t i = 0; i < scenario->step_count; i++)
        if (scenario->steps[i].expect_failover != NULL &&
            strcmp(scenario->steps[i].expect_failover, "yes") == 0)
            return true;
    return false;
}
