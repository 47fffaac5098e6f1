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
#include "orchestrator/checks/incidents.h"
#include "orchestrator/checks/workload.h"

struct failover {
    const struct record *record;
    struct arena *arena;
    struct check_result *result;
    int64_t max_ns, continue_max_ns, blind_ns;
    struct evidence_faults faults;
    struct evidence_history history;
    struct incidents incidents;
    struct workload workload;
    const struct incident *longest;      /* the headline; NULL: nothing was acknowledged */
    const struct incident *failover;     /* the slowest one, NULL without one */
    bool below_resolution;               /* the longest gap is none */
    bool stall;                          /* some step expects writes to stall */
    int64_t hold_from_ns, hold_until_ns; /* in which writes are expected to stall */
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

static bool expects_stall(const struct failover *f, const struct evidence_fault *fault)
{
    return expects(evidence_expectation(f->record, fault->step, "writes"), "stall");
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
        if (!expects_stall(f, fault))
            continue;
        f->stall = true;
        if (!fault->placed)
            continue;
        if (fault->f1_ns + fault->error_ns > f->hold_from_ns)
            f->hold_from_ns = fault->f1_ns + fault->error_ns;
        if (fault->undone_ns != 0 && fault->undone_ns < f->hold_until_ns)
            f->hold_until_ns = fault->undone_ns;
    }
}

/* --- measuring -------------------------------------------------------------------------------- */

static int64_t length_of(const struct incident *incident)
{
    return incident->gap.end_ns - incident->gap.begin_ns;
}

static int64_t error_of(const struct incident *incident)
{
    int64_t clock_ns = incident->fault == NULL ? 0 : incident->fault->error_ns;

    return incident->gap.resolution_ns + clock_ns;
}

/* Were writes expected to stall in it? */
static bool is_stall(const struct failover *f, const struct incident *incident)
{
    return f->stall && f->hold_until_ns != INT64_MAX && f->hold_from_ns != 0 &&
           incident->gap.begin_ns < f->hold_until_ns && incident->gap.end_ns > f->hold_from_ns;
}

/* What is held against the bound; of a stall what lies before and behind the hold. */
static int64_t judged_ns(const struct failover *f, const struct incident *incident)
{
    int64_t length_ns = length_of(incident);

    if (is_stall(f, incident)) {
        int64_t before_ns = f->hold_from_ns - incident->gap.begin_ns;
        int64_t behind_ns = incident->gap.end_ns - f->hold_until_ns;
        return behind_ns > before_ns ? behind_ns : before_ns;
    }
    return incident->time_ns > length_ns ? incident->time_ns : length_ns;
}

static void measure(struct failover *f)
{
    struct incidents *incidents = &f->incidents;
    int64_t floor_ns = f->blind_ns < f->continue_max_ns ? f->blind_ns : f->continue_max_ns;

    if (f->max_ns != 0 && f->max_ns < floor_ns)
        floor_ns = f->max_ns;
    incidents_find(incidents, f->record, &f->faults, &f->history, floor_ns, f->arena);
    workload_read(&f->workload, &incidents->outage);
    f->longest = incidents->longest;
    if (f->longest == NULL)
        return;
    f->below_resolution =
        !f->longest->gap.open && length_of(f->longest) <= 3 * incidents->outage.spacing_ns;
    for (size_t i = 0; i < incidents->count; i++) {
        const struct incident *item = &incidents->items[i];
        if (item->failover && (f->failover == NULL || item->time_ns > f->failover->time_ns))
            f->failover = item;
    }
}

static bool timed(const struct failover *f)
{
    return f->failover != NULL && f->failover->time_ns >= 0;
}

static json_t *phases_json(const struct failover *f, const struct incident *failover)
{
    static const struct {
        const char *event, *phase;
    } steps[] = {{"ha.detect", "detect"},
                 {"ha.fence", "fence"},
                 {"ha.elect", "elect"},
                 {"ha.promote", "promote"},
                 {"ha.route", "route"}};
    json_t *phases = json_object();
    int64_t last_ns = failover->fault->f0_ns;
    int64_t back_ns = last_ns + failover->time_ns;

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        size_t index = 0;
        int64_t at_ns;
        for (const json_t *event;
             (event = record_next(f->record, steps[i].event, &index)) != NULL;) {
            if (!evidence_instant(f->record, event, &at_ns) || at_ns < last_ns ||
                at_ns > back_ns + NS_PER_SECOND)
                continue;
            json_object_set_new(phases, steps[i].phase, evidence_json_ms(at_ns - last_ns));
            last_ns = at_ns;
            break;
        }
    }
    if (json_object_size(phases) > 0)
        json_object_set_new(phases, "reconnect",
                            evidence_json_ms(back_ns > last_ns ? back_ns - last_ns : 0));
    return phases;
}

static json_t *clients_json(const struct failover *f, const struct incident *incident)
{
    struct outage_clients clients = outage_clients(
        &f->incidents.outage, incident->failover ? incident->gap.to : 0, incident->fault->f0_ns);

    return json_pack("{s:o, s:o, s:o, s:I, s:I}", "p50_ms", evidence_json_ms(clients.p50_ns),
                     "p95_ms", evidence_json_ms(clients.p95_ns), "max_ms",
                     evidence_json_ms(clients.max_ns), "count", (json_int_t) clients.count,
                     "never_back", (json_int_t) clients.never_back);
}

/* Each interruption by itself: its fault, its outage, its failover. */
static json_t *incident_json(const struct failover *f, const struct incident *incident)
{
    json_t *item = json_pack("{s:o, s:b, s:o, s:o}", "outage_ms",
                             evidence_json_ms(length_of(incident)), "open", incident->gap.open,
                             "resolution_ms", evidence_json_ms(incident->gap.resolution_ns),
                             "judged_ms", evidence_json_ms(judged_ns(f, incident)));

    if (incident->fault != NULL) {
        json_object_set_new(item, "uid", json_string(incident->fault->uid));
        json_object_set_new(item, "step", json_string(incident->fault->step));
        json_object_set_new(item, "clock_error_ms", evidence_json_ms(incident->fault->error_ns));
    }
    if (incident->failover) {
        json_object_set_new(item, "old_timeline", json_integer(incident->gap.from));
        json_object_set_new(item, "timeline", json_integer(incident->gap.to));
    }
    if (incident->time_ns >= 0)
        json_object_set_new(item, "time_ms", evidence_json_ms(incident->time_ns));
    return item;
}

static json_t *incidents_json(const struct failover *f)
{
    enum { SHOWN = 100 };
    json_t *list = json_array();

    for (size_t i = 0; i < f->incidents.count && i < SHOWN; i++)
        json_array_append_new(list, incident_json(f, &f->incidents.items[i]));
    return list;
}

static void describe_outage(struct failover *f)
{
    struct check_result *result = f->result;
    const struct outage *outage = &f->incidents.outage;
    const struct gap *gap = &f->longest->gap;

    result->value = evidence_json_ms(length_of(f->longest));
    result->resolution = evidence_json_ms(gap->resolution_ns);
    evidence_detail(result, "outage_ms", json_incref(result->value));
    evidence_detail(result, "outage_union_ms", evidence_json_ms(outage->union_ns));
    evidence_detail(result, "outage_open", json_boolean(gap->open));
    evidence_detail(result, "below_resolution", json_boolean(f->below_resolution));
    evidence_detail(result, "resolution_ms", json_incref(result->resolution));
    evidence_detail(result, "probe_spacing_ms",
                    json_pack("{s:o, s:o, s:o, s:o, s:o}", "median",
                              evidence_json_ms(outage->spacing_ns), "edges",
                              evidence_json_ms(gap->edge_ns), "begin_edge",
                              evidence_json_ms(gap->begin_edge_ns), "end_edge",
                              evidence_json_ms(gap->end_edge_ns), "longest",
                              evidence_json_ms(gap->longest_ns)));
    evidence_detail(result, "missed_starts", json_integer((json_int_t) outage->missed));
    evidence_detail(result, "happened", json_boolean(f->failover != NULL));
    evidence_detail(result, "incidents", incidents_json(f));
}

static void describe(struct failover *f)
{
    struct check_result *result = f->result;

    if (f->longest == NULL)
        return;
    describe_outage(f);
    const struct incident *incident = timed(f) ? f->failover : f->longest;
    if (incident->fault == NULL)
        return;
    evidence_detail(result, "clock_error_ms", evidence_json_ms(incident->fault->error_ns));
    evidence_detail(result, "fault_interval_ms",
                    evidence_json_ms(incident->fault->f1_ns - incident->fault->f0_ns));
    evidence_detail(result, "clients", clients_json(f, incident));
    if (timed(f)) {
        evidence_detail(result, "time_ms", evidence_json_ms(f->failover->time_ns));
        evidence_detail(result, "time_error_ms", evidence_json_ms(error_of(f->failover)));
        evidence_detail(result, "phases", phases_json(f, f->failover));
    }
}

/* --- judging ---------------------------------------------------------------------------------- */

static size_t unplaced_faults(const struct failover *f)
{
    size_t count = 0;

    for (size_t i = 0; i < f->faults.count; i++)
        count += !f->faults.items[i].placed;
    return count;
}

static void judge_missing_failovers(struct failover *f)
{
    for (size_t i = 0; i < f->faults.count; i++) {
        const struct evidence_fault *fault = &f->faults.items[i];
        if (!fault->placed || incidents_followed(&f->incidents, fault) ||
            !expects(evidence_expectation(f->record, fault->step, "failover"), "yes"))
            continue;
        reasons_add(&f->wrong, "the expected failover did not happen after %s (timeline still %u)",
                    fault->step, outage_timeline_at(&f->incidents.outage, INT64_MAX));
    }
}

/* May a fault have begun before this failover, when it was placed behind it? */
static bool clocks_may_explain(const struct failover *f, const struct incident *incident)
{
    for (size_t i = 0; i < f->faults.count; i++) {
        const struct evidence_fault *fault = &f->faults.items[i];
        if (fault->f0_ns > incident->gap.end_ns &&
            fault->f0_ns - fault->error_ns <= incident->gap.end_ns)
            return true;
    }
    return false;
}

/* It was sent and never recorded as injected: it may have bitten all the same. */
static bool fault_of_unknown_effect(const struct failover *f)
{
    size_t index = 0;

    for (const json_t *event; (event = record_next(f->record, "fault.inject", &index)) != NULL;) {
        bool known = false;
        for (size_t i = 0; i < f->faults.count; i++)
            known = known || strcmp(f->faults.items[i].uid, json_text(event, "uid", "")) == 0;
        if (!known)
            return true;
    }
    return false;
}

static void judge_spontaneous(struct failover *f, const struct incident *incident)
{
    if (clocks_may_explain(f, incident))
        reasons_add(&f->doubtful,
                    "the clocks do not tell if a fault came before a failover (timeline %u to %u)",
                    incident->gap.from, incident->gap.to);
    else if (fault_of_unknown_effect(f))
        reasons_add(&f->doubtful,
                    "a fault was sent, what it did is not known, and a failover has no other cause "
                    "(timeline %u to %u)",
                    incident->gap.from, incident->gap.to);
    else
        reasons_add(&f->wrong, "a failover happened that no fault explains (timeline %u to %u)",
                    incident->gap.from, incident->gap.to);
}

static void judge_unwanted_failover(struct failover *f, const struct incident *incident)
{
    const char *expectation =
        incident->fault == NULL
            ? NULL
            : evidence_expectation(f->record, incident->fault->step, "failover");

    if (expects(expectation, "no"))
        reasons_add(&f->wrong, "a failover happened that should not (timeline %u to %u)",
                    incident->gap.from, incident->gap.to);
    else if (incident->fault == NULL || incident->again)
        judge_spontaneous(f, incident);
    else if (!incident->gap.ended)
        reasons_add(&f->doubtful, "no write was acknowledged on timeline %u", incident->gap.to);
}

static void judge_expected_failover(struct failover *f)
{
    if (f->incidents.branches_unknown)
        reasons_add(&f->doubtful, "which timelines lead to the final primary was not recorded");
    if (f->incidents.old_timeline == 0 && f->faults.count > 0) {
        reasons_add(&f->doubtful, "nothing was acknowledged before the fault");
        return;
    }
    judge_missing_failovers(f);
    if (unplaced_faults(f) > 0) /* any failover may be that of such a fault */
        return;
    for (size_t i = 0; i < f->incidents.count; i++)
        if (f->incidents.items[i].failover)
            judge_unwanted_failover(f, &f->incidents.items[i]);
}

static bool breaks_continue(const struct failover *f, const struct incident *incident)
{
    return incident->fault != NULL && length_of(incident) > f->continue_max_ns &&
           expects(evidence_expectation(f->record, incident->fault->step, "writes"), "continue");
}

static void judge_continue(struct failover *f, const struct incident *incident)
{
    if (breaks_continue(f, incident))
        reasons_add(&f->wrong, "writes should go on and stood still for %.0f ms",
                    evidence_ms(length_of(incident)));
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
    for (size_t i = 0; i < f->incidents.outage.count; i++) {
        const struct ack *ack = &f->incidents.outage.acks[i];
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
    if (!back) /* too late is what the bound says */
        reasons_add(&f->doubtful, "writes did not go on after the stall");
}

static void judge_bound(struct failover *f, const struct incident *incident)
{
    int64_t value_ns = judged_ns(f, incident);
    int64_t error_ns = error_of(incident);
    bool over = f->max_ns != 0 && value_ns - error_ns > f->max_ns;

    if (over)
        reasons_add(&f->wrong, "%.3f s \u00b1 %.3f s is over the bound",
                    evidence_ms(value_ns) / 1000, evidence_ms(error_ns) / 1000);
    else if (incident->gap.open)
        reasons_add(&f->doubtful, "writes did not come back in the %.3f s that the load went on",
                    evidence_ms(length_of(incident)) / 1000);
    else if (f->max_ns != 0 && value_ns + error_ns > f->max_ns)
        reasons_add(&f->doubtful, "the error (%.3f s) reaches across the bound",
                    evidence_ms(error_ns) / 1000);
}

/* An outage is over when the workload is served too; what is no outage took nobody away. */
static void judge_workload(struct failover *f, const struct incident *incident)
{
    struct workload_return workload = workload_return(&f->workload, &incident->gap);

    if (incident->fault == NULL || !incident->gap.ended || workload.back == workload.before ||
        (!incident->failover && length_of(incident) <= f->blind_ns))
        return;
    if (workload.back == 0 && workload.looked)
        reasons_add(&f->wrong,
                    "writes through the endpoint are back for connections of the probes, and no "
                    "workload client came back (of %zu)",
                    workload.before);
    else if (workload.back == 0)
        reasons_add(&f->doubtful,
                    "the load ended before any of %zu workload clients was seen to come back",
                    workload.before);
    else if (workload.looked)
        reasons_add(&f->doubtful, "%zu of %zu workload clients never came back",
                    workload.before - workload.back, workload.before);
}

/* Was anybody looking when it mattered? */
static void judge_sight(struct failover *f, const struct gap *gap)
{
    const unsigned roles =
        1U << LEDGER_WORKLOAD | 1U << LEDGER_ENDPOINT_OLD | 1U << LEDGER_ENDPOINT_NEW;
    struct blind blind = blind_find(f->record, roles, gap->begin_ns, gap->end_ns, f->blind_ns);
    int64_t tenth_ns = (gap->end_ns - gap->begin_ns) / 10;

    if (blind.count > 0)
        reasons_add(&f->doubtful, "the load stood still for %.0f ms across the outage (%s)",
                    evidence_ms(blind.longest_ns), blind.path);
    if (gap->edge_ns > f->blind_ns && gap->edge_ns > tenth_ns && !gap->open)
        reasons_add(&f->doubtful,
                    "no probe began for %.0f ms at the edge of the outage (%" PRIu64 " starts were "
                    "missed)",
                    evidence_ms(gap->edge_ns), f->incidents.outage.missed);
}

/* A short gap beside the outage decides nothing, seen or not. */
static bool decides(const struct failover *f, const struct incident *incident)
{
    return incident == f->longest || incident->failover || breaks_continue(f, incident) ||
           (f->max_ns != 0 && judged_ns(f, incident) + error_of(incident) > f->max_ns);
}

static void judge_evidence(struct failover *f)
{
    for (size_t i = 0; i < f->incidents.count; i++)
        if (decides(f, &f->incidents.items[i]))
            judge_sight(f, &f->incidents.items[i].gap);
    for (size_t i = 0; i < f->record->ledger_count; i++)
        if (f->record->ledgers[i].problem != NULL)
            reasons_add(&f->doubtful, "%s cannot be read", f->record->ledgers[i].path);
    if (f->incidents.outage.unplaced > 0)
        reasons_add(&f->doubtful,
                    "%" PRIu64 " acknowledgements on an older timeline have no position",
                    f->incidents.outage.unplaced);
}

/* The load must go on after every fault, or nobody saw what that one did. */
static bool workload_stopped(const struct failover *f)
{
    for (size_t i = 0; i < f->faults.count; i++)
        if (f->faults.items[i].placed &&
            f->incidents.outage.work_until_ns < f->faults.items[i].f0_ns)
            return true;
    return false;
}

static void judge_all(struct failover *f)
{
    if (f->longest == NULL) {
        reasons_add(&f->doubtful, "no write through the endpoint was acknowledged");
        return;
    }
    if (f->faults.count > 0 && evidence_first_fault(&f->faults) == NULL) {
        reasons_add(&f->doubtful, "no fault could be placed on the client's clock");
        return;
    }
    if (unplaced_faults(f) > 0)
        reasons_add(&f->doubtful, "%zu of %zu faults could not be placed on the client's clock",
                    unplaced_faults(f), f->faults.count);
    judge_expected_failover(f);
    if (workload_stopped(f)) {
        reasons_add(&f->doubtful, "no work was scheduled after the fault");
        return;
    }
    judge_evidence(f);
    if (f->doubtful.count > 0) /* what was not seen cannot be held against the cluster */
        return;
    if (f->stall)
        judge_stall(f);
    for (size_t i = 0; i < f->incidents.count; i++) {
        judge_continue(f, &f->incidents.items[i]);
        judge_workload(f, &f->incidents.items[i]);
        judge_bound(f, &f->incidents.items[i]);
    }
}

/* --- the sentence ----------------------------------------------------------------------------- */

static const char *failover_text(const struct failover *f)
{
    const struct incident *failover = f->failover;
    size_t count = 0;

    for (size_t i = 0; i < f->incidents.count; i++)
        count += f->incidents.items[i].time_ns >= 0;
    if (!timed(f))
        return "";
    return arena_printf(f->arena, ", %sfailover %.3f s \u00b1 %.3f s (timeline %u to %u)",
                        count > 1 ? arena_printf(f->arena, "slowest of %zu ", count) : "",
                        evidence_ms(failover->time_ns) / 1000,
                        evidence_ms(error_of(failover)) / 1000, failover->gap.from,
                        failover->gap.to);
}

static const char *sentence(const struct failover *f)
{
    char bound[32];
    const char *text;

    if (f->longest == NULL)
        return "nothing to measure";
    double gap_ms = evidence_ms(length_of(f->longest));
    if (f->below_resolution)
        text =
            arena_printf(f->arena,
                         "no outage: the longest gap, %.1f ms, is below the resolution (3 x %.1f "
                         "ms)",
                         gap_ms, evidence_ms(f->incidents.outage.spacing_ns));
    else
        text = arena_printf(f->arena, "write outage %s%.3f s \u00b1 %.3f s",
                            f->longest->gap.open ? "at least " : "", gap_ms / 1000,
                            evidence_ms(f->longest->gap.resolution_ns) / 1000);
    text = arena_printf(f->arena, "%s%s", text, failover_text(f));
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
    find_hold(f);
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
    .negative_control = "tests/calibration/test_calibration_writes.c: failover never comes",
    .params = params,
    .judges_expectations = true,
    .judge = judge,
};
