/* SPDX-License-Identifier: MIT */
/*
 * The verdict on the run: not recovered, else aborted or refused, else the worst of its checks.
 * A fault that did not bite is never a pass (docs/verdicts.md).
 */
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "orchestrator/command.h"
#include "orchestrator/reports/report.h"
#include "orchestrator/residue.h"

static const struct {
    const char *name;
    int exit_code;
} verdicts[] = {
    [RUN_PASS] = {"pass", EXIT_PASS},
    [RUN_FAIL] = {"fail", EXIT_FAIL},
    [RUN_INCONCLUSIVE] = {"inconclusive", EXIT_INCONCLUSIVE},
    [RUN_ABORTED] = {"aborted", EXIT_ABORTED},
    [RUN_REFUSED] = {"refused", EXIT_REFUSED},
    [RUN_NOT_RECOVERED] = {"not-recovered", EXIT_NOT_RECOVERED},
};

const char *run_verdict_name(enum run_verdict verdict)
{
    return verdicts[verdict].name;
}

/* --- clean? ----------------------------------------------------------------------------------- */

static void judge_residue(struct report *report, struct reasons *dirty)
{
    const json_t *topology = json_object_get(report->record->start, "topology");
    const json_t *nodes = json_object_get(topology, "nodes");

    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const char *node = json_text(json_array_get(nodes, i), "name", "?");
        const json_t *residue = report_residue(report, node);
        const json_t *differences = json_object_get(residue, "differences");
        const json_t *first = json_array_get(differences, 0);
        if (residue == NULL)
            reasons_add(dirty, "%s was not confirmed clean", node);
        else if (!json_flag(residue, "clean", false))
            reasons_add(dirty, "%s is not clean: %zu differences%s%s", node,
                        json_array_size(differences), first == NULL ? "" : ", first: ",
                        first == NULL ? "" : residue_text(report->arena, first));
    }
}

static const json_t *of_uid(const struct record *record, const char *name, const char *uid)
{
    const json_t *found = NULL;
    size_t index = 0;

    for (const json_t *event; (event = record_next(record, name, &index)) != NULL;)
        if (strcmp(json_text(event, "uid", ""), uid) == 0)
            found = event;
    return found;
}

static void judge_undo(struct report *report, struct reasons *dirty)
{
    for (size_t i = 0; i < report->faults.count; i++) {
        const struct evidence_fault *fault = &report->faults.items[i];
        const json_t *undo = of_uid(report->record, "fault.undone", fault->uid);
        const char *state = json_text(undo, "state", "absent");
        if (fault->holds && undo == NULL)
            reasons_add(dirty, "%s on %s was not seen undone", fault->fault, fault->node);
        else if (fault->holds && (strcmp(state, "active") == 0 || strcmp(state, "partial") == 0))
            reasons_add(dirty, "%s on %s is %s after its undo", fault->fault, fault->node, state);
    }
}

/* What was sent and of which nothing more is known: the orchestrator died, or its disk was full. */
static void judge_sent(struct report *report, struct reasons *dirty)
{
    static const char *const outcomes[] = {"fault.injected", "fault.failed", "fault.undone"};
    size_t index = 0;

    for (const json_t *event;
         (event = record_next(report->record, "fault.inject", &index)) != NULL;) {
        const char *uid = json_text(event, "uid", "");
        bool known = false;

        for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++)
            known = known || of_uid(report->record, outcomes[i], uid) != NULL;
        if (!known)
            reasons_add(dirty, "whether %s on %s was injected is not recorded",
                        json_text(event, "fault", "?"), json_text(event, "node", "?"));
    }
}

/* A cluster that is not back: what is missing, and whose work it was. */
static void name_repair(const json_t *missing, struct reasons *dirty)
{
    const char *whose = json_text(missing, "whose", "");

    reasons_add(dirty, "the cluster is not back: %s%s%s", json_text(missing, "text", "?"),
                whose[0] == '\0' ? "" : "; to repair that was the work of ", whose);
}

/* Whoever ends a run early is promised that everything is as it was. */
static void judge_cluster(struct report *report, const json_t *end, struct reasons *dirty)
{
    const json_t *missing = record_last(report->record, "recovery.timeout");

    if (strcmp(json_text(end, "outcome", ""), "aborted") == 0 && missing != NULL)
        name_repair(missing, dirty);
}

/* Without a primary nothing can be cleaned up or confirmed; that reason is worth telling, too. */
static void explain(const struct report *report, const json_t *end, struct reasons *dirty)
{
    const json_t *missing = record_last(report->record, "recovery.timeout");

    if (missing != NULL && strcmp(json_text(end, "outcome", ""), "aborted") != 0)
        name_repair(missing, dirty);
}

static bool not_recovered(struct report *report)
{
    const json_t *end = record_last(report->record, "run.end");
    struct reasons dirty = {.arena = report->arena};

    if (!report->record->complete)
        reasons_add(&dirty, "the journal has no end: the orchestrator died, no node is confirmed "
                            "clean");
    else if (!json_flag(end, "clean", false))
        reasons_add(&dirty, "the run ended without every node confirmed clean");
    judge_cluster(report, end, &dirty);
    judge_residue(report, &dirty);
    judge_undo(report, &dirty);
    judge_sent(report, &dirty);
    if (dirty.count == 0)
        return false;
    explain(report, end, &dirty);
    report->reasons = dirty;
    return true;
}

/* --- did it bite? ----------------------------------------------------------------------------- */

static const json_t *contradicting_witness(const json_t *event)
{
    const json_t *list = json_object_get(event, "witness");

    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_text(json_array_get(list, i), "state", ""), "absent") == 0)
            return json_array_get(list, i);
    return NULL;
}

static void judge_effects(struct report *report)
{
    for (size_t i = 0; i < report->faults.count; i++) {
        const struct evidence_fault *fault = &report->faults.items[i];
        const json_t *witness = contradicting_witness(fault->event);
        const char *state =
            json_text(json_object_get(fault->event, "effect"), "state", "not recorded");
        if (fault->effective)
            continue;
        if (witness != NULL)
            reasons_add(&report->reasons, "fault %s on %s did not bite: %s does not see it (%s)",
                        fault->fault, fault->node, json_text(witness, "node", "?"),
                        json_text(witness, "text", ""));
        else
            reasons_add(&report->reasons, "fault %s on %s did not bite: its effect is %s (%s)",
                        fault->fault, fault->node, state, fault->effect_text);
    }
}

/* Somebody else's undo, or a lease that lapsed: the cluster was tested for less than was asked. */
static void judge_holds(struct report *report)
{
    enum { TOLERANCE_MS = 500 };

    for (size_t i = 0; i < report->faults.count; i++) {
        const struct evidence_fault *fault = &report->faults.items[i];
        int64_t hold_ms = json_number(fault->event, "hold_ms", 0);
        int64_t held_ms = (fault->undone_ns - fault->f0_ns) / NS_PER_MS;
        if (fault->holds && fault->placed && fault->undone_ns != 0 &&
            held_ms < hold_ms - TOLERANCE_MS)
            reasons_add(&report->reasons, "fault %s on %s was undone after %.1f s of %.1f s",
                        fault->fault, fault->node, (double) held_ms / 1000,
                        (double) hold_ms / 1000);
    }
}

static void judge_failed_faults(struct report *report)
{
    size_t index = 0;

    for (const json_t *event;
         (event = record_next(report->record, "fault.failed", &index)) != NULL;)
        reasons_add(&report->reasons, "fault %s on %s was not injected: %s",
                    json_text(event, "fault", "?"), json_text(event, "node", "?"),
                    json_text(json_object_get(event, "error"), "message", "no message"));
}

static void judge_skipped_steps(struct report *report)
{
    size_t index = 0;

    for (const json_t *event;
         (event = record_next(report->record, "step.skipped", &index)) != NULL;)
        if (!json_flag(event, "optional", false))
            reasons_add(&report->reasons, "step %s was skipped: %s", json_text(event, "step", "?"),
                        json_text(event, "reason", "no reason"));
}

/* With a worker fewer the cluster was not under the load that was asked for. */
static void judge_workers(struct report *report)
{
    const json_t *end = record_last(report->record, "load.end");
    const json_t *list = json_object_get(end, "ledgers");
    size_t dead = 0;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (json_flag(item, "complete", false))
            continue;
        dead++;
        reasons_add(&report->reasons, "the load worker of %s did not end in order: %s",
                    json_text(item, "file", "?"), json_text(item, "error", "no reason"));
    }
    if (end != NULL && dead == 0 && !json_flag(end, "complete", false))
        reasons_add(&report->reasons, "the load did not end in order");
}

/*
 * A method that declares faults, of which the journal knows none. Optional steps may be skipped
 * one by one; a run in which all of them were has tested nothing.
 */
static void judge_missing_faults(struct report *report)
{
    const json_t *scenario = json_object_get(report->record->start, "scenario");
    const json_t *method = json_object_get(scenario, "method");
    size_t index = 0;

    if (report->faults.count > 0 || report->reasons.count > 0)
        return;
    const json_t *skipped = record_next(report->record, "step.skipped", &index);
    for (size_t i = 0; i < json_array_size(method); i++) {
        if (json_text(json_array_get(method, i), "fault", NULL) == NULL)
            continue;
        if (skipped == NULL)
            reasons_add(&report->reasons, "no fault was injected");
        else
            reasons_add(&report->reasons, "no fault was injected: step %s was skipped, %s",
                        json_text(skipped, "step", "?"), json_text(skipped, "reason", "no reason"));
        return;
    }
}

static enum run_verdict worst_check(struct report *report)
{
    enum run_verdict worst = RUN_PASS;
    size_t judged = 0;

    for (size_t i = 0; i < report->count; i++) {
        const struct report_check *check = &report->checks[i];
        if (!check->counts || check->result.verdict == VERDICT_SKIPPED)
            continue;
        judged++;
        if (check->result.verdict == VERDICT_FAIL)
            worst = RUN_FAIL;
        else if (check->result.verdict == VERDICT_INCONCLUSIVE && worst == RUN_PASS)
            worst = RUN_INCONCLUSIVE;
    }
    if (judged == 0)
        reasons_add(&report->reasons, "no check judged anything");
    return worst;
}

static enum run_verdict decide(struct report *report)
{
    const json_t *end = record_last(report->record, "run.end");
    const char *outcome = json_text(end, "outcome", "");
    const char *reason = json_text(end, "reason", "no reason was recorded");

    if (strcmp(outcome, "refused") == 0) {
        reasons_add(&report->reasons, "%s", reason);
        return json_flag(end, "clean", true) ? RUN_REFUSED : RUN_NOT_RECOVERED;
    }
    if (strcmp(outcome, "aborted") == 0 && !json_flag(end, "changed", true)) {
        reasons_add(&report->reasons, "%s, before anything was changed", reason);
        return json_flag(end, "clean", true) ? RUN_ABORTED : RUN_NOT_RECOVERED;
    }
    if (not_recovered(report))
        return RUN_NOT_RECOVERED;
    if (strcmp(outcome, "aborted") == 0) {
        reasons_add(&report->reasons, "%s", reason);
        return RUN_ABORTED;
    }
    judge_effects(report);
    judge_holds(report);
    judge_failed_faults(report);
    judge_skipped_steps(report);
    judge_missing_faults(report);
    judge_workers(report);
    enum run_verdict worst = worst_check(report);
    return worst == RUN_PASS && report->reasons.count > 0 ? RUN_INCONCLUSIVE : worst;
}

void report_decide(struct report *report)
{
    report->verdict = decide(report);
    report->exit_code = verdicts[report->verdict].exit_code;
}
