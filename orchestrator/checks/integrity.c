/* SPDX-License-Identifier: MIT */
/*
 * Pages, backups and indexes are sound: pg_checksums on every stopped standby, a verified base
 * backup of the primary, pg_amcheck on the declared scope. The run did the work within its budget;
 * this judges what it recorded, and misses what it did not.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/json.h"
#include "orchestrator/checks/evidence.h"

struct integrity {
    const struct record *record;
    struct reasons bad, doubtful;
    int64_t examined, problems;
    size_t done;
};

static void take(struct integrity *all, const json_t *event, struct check_result *result)
{
    const char *skipped = json_text(event, "skipped", NULL);
    const char *node = json_text(event, "node", "?");
    const char *method = json_text(event, "method", "?");
    const json_t *problems = json_object_get(event, "problems");
    const json_t *error = json_object_get(event, "error");

    if (skipped != NULL) {
        evidence_unjudged(result, "%s on %s: %s", method, node, skipped);
    } else if (json_is_object(error) || json_is_string(error)) {
        reasons_add(&all->doubtful, "%s on %s did not finish: %s", method, node,
                    json_is_string(error) ? json_string_value(error)
                                          : json_text(error, "message", "no message"));
    } else if (!json_flag(event, "ok", false) || json_array_size(problems) > 0) {
        const char *first = json_string_value(json_array_get(problems, 0));
        all->problems += (int64_t) json_array_size(problems);
        reasons_add(&all->bad, "%s on %s: %zu problems%s%s", method, node,
                    json_array_size(problems),
                    first == NULL ? "" : ", first: ", first == NULL ? "" : first);
    } else if (json_number(event, "examined", 0) <= 0) {
        reasons_add(&all->doubtful, "%s on %s examined nothing", method, node);
    } else {
        all->examined += json_number(event, "examined", 0);
        all->done++;
    }
}

static bool happened(const struct record *record, const char *method, const char *node)
{
    size_t index = 0;

    for (const json_t *event; (event = record_next(record, "integrity", &index)) != NULL;)
        if (strcmp(json_text(event, "method", ""), method) == 0 &&
            (node == NULL || strcmp(json_text(event, "node", ""), node) == 0))
            return true;
    return false;
}

static void require(struct integrity *all, const json_t *params, const char *primary,
                    const char *const *nodes)
{
    if (json_flag(params, "verify", true) && !happened(all->record, "verify", primary))
        reasons_add(&all->doubtful, "no base backup of %s was verified", primary);
    if (json_flag(params, "amcheck", true) && !happened(all->record, "amcheck", NULL))
        reasons_add(&all->doubtful, "amcheck did not run");
    for (size_t i = 0; json_flag(params, "checksums", true) && nodes[i] != NULL; i++)
        if (strcmp(nodes[i], primary) != 0 && !happened(all->record, "checksums", nodes[i]))
            reasons_add(&all->doubtful, "the pages of %s were not checked", nodes[i]);
}

static bool nothing_required(const json_t *params)
{
    return !json_flag(params, "verify", true) && !json_flag(params, "amcheck", true) &&
           !json_flag(params, "checksums", true);
}

static void conclude(struct integrity *all, struct check_result *result)
{
    if (all->bad.count > 0)
        check_conclude(result, VERDICT_FAIL, "%s", reasons_text(&all->bad));
    else if (all->doubtful.count > 0)
        check_conclude(result, VERDICT_INCONCLUSIVE, "%s", reasons_text(&all->doubtful));
    else if (all->done == 0)
        check_conclude(result, VERDICT_INCONCLUSIVE, "nothing was examined");
    else
        check_conclude(result, VERDICT_PASS,
                       "%zu examinations, %" PRId64 " blocks, files and relations, no problem",
                       all->done, all->examined);
}

static enum status judge(const struct record *record, const json_t *params, struct arena *arena,
                         struct check_result *ret_result, struct error *err)
{
    struct integrity all = {.record = record, .bad.arena = arena, .doubtful.arena = arena};
    const char *primary = json_text(record_last(record, "timeline"), "node", NULL);
    const char *const *nodes = evidence_database_nodes(record, arena);
    size_t index = 0;

    (void) err;
    ret_result->unit = "problems";
    ret_result->bound = json_integer(0);
    ret_result->evidence = "journal.ndjson";
    if (nothing_required(params)) {
        check_conclude(ret_result, VERDICT_SKIPPED, "the scenario asks for no examination");
        return STATUS_OK;
    }
    for (const json_t *event; (event = record_next(record, "integrity", &index)) != NULL;)
        take(&all, event, ret_result);
    if (primary == NULL || nodes[0] == NULL)
        reasons_add(&all.doubtful, "the final primary was not recorded");
    else
        require(&all, params, primary, nodes);
    ret_result->value = json_integer(all.problems);
    evidence_unjudged(ret_result,
                      "pages that were lost whole or are stale: no checksum shows them");
    conclude(&all, ret_result);
    return STATUS_OK;
}

static const struct param params[] = {
    {.name = "checksums",
     .type = PARAM_BOOLEAN,
     .fallback = "yes",
     .help = "pg_checksums on every standby, stopped one after the other"},
    {.name = "verify",
     .type = PARAM_BOOLEAN,
     .fallback = "yes",
     .help = "base backup of the primary, verified against its manifest"},
    {.name = "amcheck",
     .type = PARAM_BOOLEAN,
     .fallback = "yes",
     .help = "pg_amcheck with heap against index on the primary"},
    {.name = "scope",
     .type = PARAM_STRING,
     .help = "database for pg_amcheck; the workload's when absent"},
    {.name = "budget",
     .type = PARAM_DURATION,
     .fallback = "120s",
     .minimum = 1000,
     .maximum = INT64_C(604800000),
     .help = "longest time for each examination; beyond it the check is inconclusive"},
    {.name = NULL},
};

const struct check check_integrity = {
    .name = "integrity",
    .summary = "pages, backups and indexes are sound on every node",
    .negative_control = "tests/calibration/test_calibration_state.c: a block with a wrong checksum",
    .params = params,
    .judge = judge,
};
