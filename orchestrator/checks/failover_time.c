/* SPDX-License-Identifier: MIT */
/*
 * How long writes stood still, and how long a failover took, with the error of both.
 *
 * All instants are on the client node's clock. A verdict against a bound takes the error into
 * account: a value whose error reaches across the bound decides nothing.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/units.h"
#include "orchestrator/checks/blind.h"
#include "orchestrator/checks/evidence.h"
#include "orchestrator/checks/outage.h"

struct failover {
    const struct record *record;
    struct arena *arena;
    struct check_result *result;
    int64_t max_ns, continue_max_ns, blind_ns;
    struct evidence_faults faults;
    const struct evidence_fault *fault; /* the one that times count from, NULL: none */
    struct evidence_history history;
    struct outage outage;
    uint32_t old_timeline, timeline; /* before the fault; of the surviving writer */
    bool happened;                   /* the timeline changed */
    bool below_resolution;
    int64_t time_ns; /* of the failover, -1 without one */
    const char *expect_failover, *expect_writes;
    int64_t hold_from_ns, hold_until_ns; /* in which writes are expected to stall */
    int64_t judged_ns;                   /* what is held against the bound */
    struct reasons wrong, doubtful;
};

/* --- what is asked ---------------------------------------------------------------------------- */

/* "30s", or ms; 0 when the topology promises nothing. */
static int64_t promised_ms(const struct record *record)
{
    const json_t *topology = json_object_get(record->start, "topology");
    const json_t *promise = json_object_get(topology, "promise");
    const char *text = json_text(promise, "failover", NULL);
    int64_t ms = 0;

    if (text != NULL)
        return units_duration(text, &ms, NULL) == STATUS_OK ? ms : 0;
    return json_number(promise, "failover_ms", json_number(promise, "failover", 0));
}

static bool expects(const char *expectation, const char *value)
{
    return expectation != NULL && strcmp(expectation, value) == 0;
}

static void read_expectations(struct failover *f)
{
    for (size_t i = 0; i < f->faults.count; i++) {
        const char *step = f->faults.items[i].step;
        const char *failover = evidence_expectation(f->record, step, "failover");
        const char *writes = evidence_expectation(f->record, step, "writes");
        if (failover != NULL && strcmp(failover, "any") != 0 &&
            (f->expect_failover == NULL || strcmp(failover, "yes") == 0))
            f->expect_failover = failover;
        if (expects(writes, "stall") || (expects(writes, "continue") && f->expect_writes == NULL))
            f->expect_writes = writes;
    }
}

/* INT64_MAX when it did not begin. */
static int64_t recovery_begin_ns(const struct failover *f)
{
    size_t index = 0;
    int64_t at_ns = INT64_MAX;

    for (const json_t *event; (event = record_next(f->record, "phase", &index)) != NULL;)
        if (strcmp(json_text(event, "phase", ""), "recovery") == 0 &&
            evidence_instant(f->record, event, &at_ns))
            return at_ns;
    return INT64_MAX;
}

/*
 * From when the last of the faults that shall stall writes holds until the first one is undone;
 * what happened at an instant lasts until the recovery begins.
 */
static void find_hold(struct failover *f)
{
    f->hold_until_ns = recovery_begin_ns(f);
    for (size_t i = 0; i < f->faults.count; i++) {
        const struct evidence_fault *fault = &f->faults.items[i];
        const char *writes = evidence_expectation(f->record, fault->step, "writes");
        if (!fault->placed || !expects(writes, "stall"))
            continue;
        if (fault->f1_ns + fault->error_ns > f->hold_from_ns)
            f->hold_from_ns = fault->f1_ns + fault->error_ns;
        if (fault->undone_ns != 0 && fault->undone_ns < f->hold_until_ns)
            f->hold_until_ns = fault->undone_ns;
    }
}

/*
 * The fault that times count from: of a step that expects a failover if there is one, else the
 * last one that began before writes stopped (or shortly after: its interval is not a point).
 */
static const struct evidence_fault *choose_fault(const struct failover *f)
{
    const struct evidence_fault *chosen = NULL;

    for (size_t i = 0; i < f->faults.count; i++) {
        const struct evidence_fault *fault = &f->faults.items[i];
        if (!fault->placed)
            continue;
        if (expects(evidence_expectation(f->record, fault->step, "failover"), "yes"))
            return fault;
        if (fault->f0_ns <= f->outage.begin_ns + NS_PER_SECOND &&
            (chosen == NULL || fault->f0_ns > chosen->f0_ns))
            chosen = fault;
    }
    return chosen == NULL ? evidence_first_fault(&f->faults) : chosen;
}

/* --- measuring -------------------------------------------------------------------------------- */

static void measure_baseline(struct failover *f)
{
    outage_find(&f->outage, INT64_MIN, 0);
    f->timeline = f->outage.count == 0 ? 0 : f->outage.acks[f->outage.count - 1].timeline;
    f->old_timeline = f->outage.count == 0 ? 0 : f->outage.acks[0].timeline;
}

static void measure(struct failover *f)
{
    const struct evidence_fault *first = evidence_first_fault(&f->faults);

    f->time_ns = -1;
    if (first == NULL) {
        measure_baseline(f);
    } else {
        f->old_timeline = outage_timeline_at(&f->outage, first->f0_ns);
        f->timeline =
            f->history.known ? f->history.timeline : outage_timeline_at(&f->outage, INT64_MAX);
        outage_find(&f->outage, first->f0_ns, f->timeline);
        f->fault = choose_fault(f);
    }
    f->happened = f->old_timeline != 0 && f->timeline > f->old_timeline;
    if (f->fault != NULL && f->happened) {
        const struct ack *ack = outage_first(&f->outage, f->timeline, f->fault->f0_ns);
        f->time_ns = ack == NULL ? -1 : ack->done_ns - f->fault->f0_ns;
    }
    int64_t gap_ns = f->outage.end_ns - f->outage.begin_ns;
    f->below_resolution = !f->outage.open && gap_ns <= 3 * f->outage.spacing_ns;
    f->judged_ns = f->time_ns > gap_ns ? f->time_ns : gap_ns;
    if (expects(f->expect_writes, "stall") && f->hold_until_ns != INT64_MAX)
        f->judged_ns = f->outage.end_ns - f->hold_until_ns;
}

static json_t *phases_json(const struct failover *f)
{
    static const struct {
        const char *event, *phase;
    } steps[] = {{"ha.detect", "detect"},
                 {"ha.fence", "fence"},
                 {"ha.elect", "elect"},
                 {"ha.promote", "promote"},
                 {"ha.route", "route"}};
    json_t *phases = json_object();
    int64_t last_ns = f->fault->f0_ns;

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        size_t index = 0;
        int64_t at_ns;
        for (const json_t *event;
             (event = record_next(f->record, steps[i].event, &index)) != NULL;) {
            if (!evidence_instant(f->record, event, &at_ns) || at_ns < last_ns)
                continue;
            json_object_set_new(phases, steps[i].phase, evidence_json_ms(at_ns - last_ns));
            last_ns = at_ns;
            break;
        }
    }
    int64_t back_ns = f->fault->f0_ns + f->time_ns;
    if (json_object_size(phases) > 0)
        json_object_set_new(phases, "reconnect",
                            evidence_json_ms(back_ns > last_ns ? back_ns - last_ns : 0));
    return phases;
}

static json_t *clients_json(const struct failover *f)
{
    struct outage_clients clients =
        outage_clients(&f->outage, f->happened ? f->timeline : 0, f->fault->f0_ns);

    return json_pack("{s:o, s:o, s:o, s:I, s:I}", "p50_ms", evidence_json_ms(clients.p50_ns),
                     "p95_ms", evidence_json_ms(clients.p95_ns), "max_ms",
                     evidence_json_ms(clients.max_ns), "count", (json_int_t) clients.count,
                     "never_back", (json_int_t) clients.never_back);
}

static void describe(struct failover *f)
{
    struct check_result *result = f->result;
    const struct outage *outage = &f->outage;

    if (!outage->found)
        return;
    result->value = evidence_json_ms(outage->end_ns - outage->begin_ns);
    result->resolution = evidence_json_ms(outage->resolution_ns);
    evidence_detail(result, "outage_ms", json_incref(result->value));
    evidence_detail(result, "outage_union_ms", evidence_json_ms(outage->union_ns));
    evidence_detail(result, "outage_open", json_boolean(outage->open));
    evidence_detail(result, "below_resolution", json_boolean(f->below_resolution));
    evidence_detail(result, "resolution_ms", json_incref(result->resolution));
    evidence_detail(result, "probe_spacing_ms",
                    json_pack("{s:o, s:o, s:o}", "median", evidence_json_ms(outage->spacing_ns),
                              "edges", evidence_json_ms(outage->edge_ns), "longest",
                              evidence_json_ms(outage->longest_ns)));
    evidence_detail(result, "missed_starts", json_integer((json_int_t) outage->missed));
    evidence_detail(result, "happened", json_boolean(f->happened));
    if (f->fault == NULL)
        return;
    evidence_detail(result, "clock_error_ms", evidence_json_ms(f->fault->error_ns));
    evidence_detail(result, "fault_interval_ms",
                    evidence_json_ms(f->fault->f1_ns - f->fault->f0_ns));
    evidence_detail(result, "clients", clients_json(f));
    if (f->time_ns >= 0) {
        evidence_detail(result, "time_ms", evidence_json_ms(f->time_ns));
        evidence_detail(result, "phases", phases_json(f));
    }
}

/* --- judging ---------------------------------------------------------------------------------- */

static void judge_expected_failover(struct failover *f)
{
    if (f->old_timeline == 0 && f->fault != NULL)
        reasons_add(&f->doubtful, "nothing was acknowledged before the fault");
    else if (expects(f->expect_failover, "yes") && !f->happened)
        reasons_add(&f->wrong, "the expected failover did not happen (timeline still %u)",
                    f->timeline);
    else if (expects(f->expect_failover, "no") && f->happened)
        reasons_add(&f->wrong, "a failover happened that should not (timeline %u to %u)",
                    f->old_timeline, f->timeline);
}

static void judge_continue(struct failover *f)
{
    int64_t gap_ns = f->outage.end_ns - f->outage.begin_ns;

    if (gap_ns > f->continue_max_ns)
        reasons_add(&f->wrong, "writes should go on and stood still for %.0f ms",
                    evidence_ms(gap_ns));
}

static void judge_stall(struct failover *f)
{
    enum { GRACE_MS = 100 };
    uint64_t acknowledged = 0;
    bool back = false;

    if (f->hold_from_ns == 0 || f->hold_until_ns == INT64_MAX) {
        reasons_add(&f->doubtful, "the time in which writes should stall was not recorded");
        return;
    }
    for (size_t i = 0; i < f->outage.count; i++) {
        const struct ack *ack = &f->outage.acks[i];
        if (ack->sent_ns > f->hold_from_ns + GRACE_MS * NS_PER_MS &&
            ack->done_ns < f->hold_until_ns)
            acknowledged++;
        back = back || ack->done_ns > f->hold_until_ns;
    }
    if (acknowledged > 0)
        reasons_add(&f->wrong, "writes should stall, and %" PRIu64 " were acknowledged",
                    acknowledged);
    if (f->hold_until_ns - f->hold_from_ns < 3 * GRACE_MS * NS_PER_MS)
        reasons_add(&f->doubtful, "the fault held for %.0f ms only: too short to see a stall",
                    evidence_ms(f->hold_until_ns - f->hold_from_ns));
    if (!back)
        reasons_add(&f->wrong, "writes did not go on after the stall");
}

static int64_t error_of(const struct failover *f)
{
    int64_t clock_ns = f->fault == NULL ? 0 : f->fault->error_ns;

    return f->outage.resolution_ns + clock_ns;
}

static void judge_bound(struct failover *f)
{
    int64_t error_ns = error_of(f);

    if (f->max_ns == 0 && f->outage.open)
        reasons_add(&f->doubtful, "writes did not come back in the %.3f s that the load went on",
                    evidence_ms(f->outage.end_ns - f->outage.begin_ns) / 1000);
    if (f->max_ns == 0)
        return;
    if (f->judged_ns - error_ns > f->max_ns)
        reasons_add(&f->wrong, "%.3f s \u00b1 %.3f s is over the bound",
                    evidence_ms(f->judged_ns) / 1000, evidence_ms(error_ns) / 1000);
    else if (f->outage.open)
        reasons_add(&f->doubtful, "writes did not come back in the %.3f s that the load went on",
                    evidence_ms(f->outage.end_ns - f->outage.begin_ns) / 1000);
    else if (f->judged_ns + error_ns > f->max_ns)
        reasons_add(&f->doubtful, "the error (%.3f s) reaches across the bound",
                    evidence_ms(error_ns) / 1000);
}

/* Was anybody looking when it mattered? */
static void judge_sight(struct failover *f)
{
    const unsigned roles =
        1U << LEDGER_WORKLOAD | 1U << LEDGER_ENDPOINT_OLD | 1U << LEDGER_ENDPOINT_NEW;
    const struct outage *outage = &f->outage;
    struct blind blind =
        blind_find(f->record, roles, outage->begin_ns, outage->end_ns, f->blind_ns);
    int64_t tenth_ns = (outage->end_ns - outage->begin_ns) / 10;

    if (blind.count > 0)
        reasons_add(&f->doubtful, "the load stood still for %.0f ms across the outage (%s)",
                    evidence_ms(blind.longest_ns), blind.path);
    if (outage->edge_ns > f->blind_ns && outage->edge_ns > tenth_ns && !outage->open)
        reasons_add(&f->doubtful,
                    "no probe began for %.0f ms at the edge of the outage (%" PRIu64 " starts were "
                    "missed)",
                    evidence_ms(outage->edge_ns), outage->missed);
    for (size_t i = 0; i < f->record->ledger_count; i++)
        if (f->record->ledgers[i].problem != NULL)
            reasons_add(&f->doubtful, "%s cannot be read", f->record->ledgers[i].path);
}

static bool workload_stopped(const struct failover *f)
{
    return f->fault != NULL && f->outage.work_until_ns < f->fault->f0_ns;
}

static void judge_all(struct failover *f)
{
    if (!f->outage.found) {
        reasons_add(&f->doubtful, "no write through the endpoint was acknowledged");
        return;
    }
    if (f->faults.count > 0 && f->fault == NULL) {
        reasons_add(&f->doubtful, "no fault could be placed on the client's clock");
        return;
    }
    judge_expected_failover(f);
    if (workload_stopped(f)) {
        reasons_add(&f->doubtful, "no work was scheduled after the fault");
        return;
    }
    judge_sight(f);
    if (f->doubtful.count > 0) /* what was not seen cannot be held against the cluster */
        return;
    if (expects(f->expect_writes, "continue"))
        judge_continue(f);
    else if (expects(f->expect_writes, "stall"))
        judge_stall(f);
    judge_bound(f);
}

/* --- the sentence ----------------------------------------------------------------------------- */

static const char *sentence(const struct failover *f)
{
    const struct outage *outage = &f->outage;
    double gap_ms = evidence_ms(outage->end_ns - outage->begin_ns);
    char bound[32];
    const char *text;

    if (!outage->found)
        return "nothing to measure";
    if (f->below_resolution)
        text =
            arena_printf(f->arena,
                         "no outage: the longest gap, %.1f ms, is below the resolution (3 x %.1f "
                         "ms)",
                         gap_ms, evidence_ms(outage->spacing_ns));
    else
        text = arena_printf(f->arena, "write outage %s%.3f s \u00b1 %.3f s",
                            outage->open ? "at least " : "", gap_ms / 1000,
                            evidence_ms(outage->resolution_ns) / 1000);
    if (f->time_ns >= 0)
        text = arena_printf(f->arena, "%s, failover %.3f s \u00b1 %.3f s (timeline %u to %u)", text,
                            evidence_ms(f->time_ns) / 1000, evidence_ms(error_of(f)) / 1000,
                            f->old_timeline, f->timeline);
    if (f->max_ns > 0)
        text = arena_printf(f->arena, "%s, bound %s", text,
                            units_duration_text(f->max_ns / NS_PER_MS, bound, sizeof bound));
    return text;
}

static void conclude(struct failover *f)
{
    if (f->wrong.count > 0)
        check_conclude(f->result, VERDICT_FAIL, "%s; %s", reasons_text(&f->wrong), sentence(f));
    else if (f->doubtful.count > 0)
        check_conclude(f->result, VERDICT_INCONCLUSIVE, "%s; %s", reasons_text(&f->doubtful),
                       sentence(f));
    else
        check_conclude(f->result, VERDICT_PASS, "%s", sentence(f));
}

static enum status judge(const struct record *record, const json_t *params, struct arena *arena,
                         struct check_result *ret_result, struct error *err)
{
    struct failover *f = arena_alloc(arena, sizeof *f);

    (void) err;
    f->record = record;
    f->arena = arena;
    f->result = ret_result;
    f->wrong.arena = arena;
    f->doubtful.arena = arena;
    f->max_ns = json_number(params, "max", promised_ms(record)) * NS_PER_MS;
    f->continue_max_ns = json_number(params, "continue-max", 1000) * NS_PER_MS;
    f->blind_ns = json_number(params, "blind-after", 300) * NS_PER_MS;
    f->faults = evidence_faults(record, arena);
    f->history = evidence_history(record, arena);
    read_expectations(f);
    find_hold(f);
    outage_read(&f->outage, record, arena);
    measure(f);
    ret_result->unit = "ms";
    ret_result->evidence = "ledger/";
    if (f->max_ns > 0)
        ret_result->bound = json_integer(f->max_ns / NS_PER_MS);
    else
        evidence_unjudged(ret_result, "the length of the outage: no bound was promised");
    describe(f);
    judge_all(f);
    conclude(f);
    return STATUS_OK;
}

static const struct param params[] = {
    {.name = "max",
     .type = PARAM_DURATION,
     .minimum = 1,
     .maximum = INT64_C(86400000),
     .help = "longest write outage and failover; the topology's promise when absent"},
    {.name = "continue-max",
     .type = PARAM_DURATION,
     .fallback = "1s",
     .minimum = 1,
     .maximum = INT64_C(3600000),
     .help = "longest gap where a step expects writes to continue"},
    {.name = "blind-after",
     .type = PARAM_DURATION,
     .fallback = "300ms",
     .minimum = 1,
     .maximum = 60000,
     .help = "longest silence of the probes that still counts as looking (a beat is 50 ms)"},
    {.name = NULL},
};

const struct check check_failover_time = {
    .name = "failover-time",
    .summary = "writes are back within the bound, and a failover happens when it should",
    .negative_control = "tests/calibration/test_calibration.c: a failover that never comes",
    .params = params,
    .judges_expectations = true,
    .judge = judge,
};
