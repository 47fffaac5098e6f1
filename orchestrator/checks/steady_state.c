/* SPDX-License-Identifier: MIT */
/* What the scenario calls healthy was so before the method, and is so again after it. */
#include <string.h>

#include "lib/json.h"
#include "orchestrator/checks/evidence.h"

struct sides {
    size_t before, after;
    struct reasons before_bad, after_bad;
};

static void take(const json_t *event, struct sides *sides)
{
    const char *probe = json_text(event, "probe", "?");
    bool ok = json_flag(event, "ok", false);

    if (strcmp(json_text(event, "when", ""), "before") == 0) {
        sides->before++;
        if (!ok)
            reasons_add(&sides->before_bad, "%s", probe);
    } else {
        sides->after++;
        if (!ok)
            reasons_add(&sides->after_bad, "%s", probe);
    }
}

static bool declared(const struct record *record)
{
    const json_t *scenario = json_object_get(record->start, "scenario");

    return json_array_size(json_object_get(scenario, "steady-state")) > 0;
}

static enum status judge(const struct record *record, const json_t *params, struct arena *arena,
                         struct check_result *ret_result, struct error *err)
{
    struct sides sides = {.before_bad.arena = arena, .after_bad.arena = arena};
    size_t index = 0;

    (void) params;
    (void) err;
    for (const json_t *event; (event = record_next(record, "steady-state", &index)) != NULL;)
        take(event, &sides);
    ret_result->value = json_integer((json_int_t) sides.after_bad.count);
    ret_result->bound = json_integer(0);
    ret_result->unit = "probes";
    ret_result->evidence = "journal.ndjson";
    if (sides.before == 0 && sides.after == 0 && !declared(record))
        check_conclude(ret_result, VERDICT_SKIPPED, "the scenario declares no steady state");
    else if (sides.before_bad.count > 0)
        check_conclude(ret_result, VERDICT_INCONCLUSIVE, "not healthy before the method: %s",
                       reasons_text(&sides.before_bad));
    else if (sides.after_bad.count > 0)
        check_conclude(ret_result, VERDICT_FAIL, "not healthy after the method: %s",
                       reasons_text(&sides.after_bad));
    else if (sides.before == 0 || sides.after < sides.before)
        check_conclude(ret_result, VERDICT_INCONCLUSIVE,
                       "%zu probes were asked before the method and %zu after it", sides.before,
                       sides.after);
    else
        check_conclude(ret_result, VERDICT_PASS, "%zu probes healthy before and after",
                       sides.after);
    return STATUS_OK;
}

static const struct param params[] = {{.name = NULL}};

const struct check check_steady_state = {
    .name = "steady-state",
    .summary = "what the scenario calls healthy holds before and after the method",
    .negative_control = "tests/calibration/test_calibration_state.c: unhealthy after the method",
    .params = params,
    .judge = judge,
};
