/* SPDX-License-Identifier: MIT */
/* Every member is back: streaming on the final timeline, slots active, within the bound. */
#include <inttypes.h>

#include "lib/json.h"
#include "lib/units.h"
#include "orchestrator/checks/evidence.h"

/* "n2, n3": items are texts, or objects with a node and what is wrong with it. */
static const char *names_of(const json_t *list, struct arena *arena)
{
    const char *names = "";

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *name =
            json_is_string(item) ? json_string_value(item) : json_text(item, "node", "?");
        const char *why = json_text(item, "text", "");
        names = arena_printf(arena, "%s%s%s%s%s%s", names, i == 0 ? "" : ", ", name,
                             why[0] == '\0' ? "" : " (", why, why[0] == '\0' ? "" : ")");
    }
    return names[0] == '\0' ? "members not named" : names;
}

static void judge_time(const json_t *recovered, int64_t max_ms, struct check_result *result)
{
    int64_t ms = json_number(recovered, "ms", -1);
    int64_t resolution_ms = json_number(recovered, "resolution_ms", -1);
    char bound[32];

    if (ms < 0) {
        check_conclude(result, VERDICT_INCONCLUSIVE, "the time of recovery was not recorded");
        return;
    }
    result->value = json_integer(ms);
    if (resolution_ms >= 0)
        result->resolution = json_integer(resolution_ms);
    check_conclude(result, ms <= max_ms ? VERDICT_PASS : VERDICT_FAIL,
                   "every member was back %.3f s after recovery began%s, bound %s",
                   (double) ms / 1000.0, ms <= max_ms ? "" : ", too late",
                   units_duration_text(max_ms, bound, sizeof bound));
}

static enum status judge(const struct record *record, const json_t *params, struct arena *arena,
                         struct check_result *ret_result, struct error *err)
{
    const json_t *recovered = record_last(record, "recovered");
    const json_t *timeout = record_last(record, "recovery.timeout");
    const char *whose = json_text(timeout, "whose", "");
    int64_t max_ms = json_number(params, "max", 120000);

    (void) err;
    ret_result->bound = json_integer(max_ms);
    ret_result->unit = "ms";
    ret_result->evidence = "journal.ndjson";
    if (timeout != NULL)
        check_conclude(ret_result, VERDICT_FAIL, "not back in time: %s%s%s",
                       names_of(json_object_get(timeout, "missing"), arena),
                       whose[0] == '\0' ? "" : "; to repair that was the work of ", whose);
    else if (recovered == NULL)
        check_conclude(ret_result, VERDICT_INCONCLUSIVE,
                       "neither recovery nor its failure was recorded");
    else
        judge_time(recovered, max_ms, ret_result);
    return STATUS_OK;
}

static const struct param params[] = {
    {.name = "max",
     .type = PARAM_DURATION,
     .fallback = "120s",
     .minimum = 1,
     .maximum = INT64_C(86400000),
     .help = "longest time from the begin of recovery until every member is back"},
    {.name = NULL},
};

const struct check check_recovery = {
    .name = "recovery",
    .summary = "every member is back in its place within the bound",
    .negative_control = "tests/calibration/test_calibration_state.c: a member does not come back",
    .params = params,
    .judges_faults = true,
    .judge = judge,
};
