/* SPDX-License-Identifier: MIT */
/* Who took writes and when: two writers, outages, failovers, and everything that blinds the view.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "tests/support/calibration.h"

/* --- two writers ------------------------------------------------------------------------------ */

/* A standby opened for writing on the same timeline, while the primary went on. */
static void standby_takes_writes(struct run_builder *run)
{
    for (int64_t at_ms = 3000; at_ms < 3100; at_ms += 10)
        run_attempt(run, RUN_DIRECT_N3, LEDGER_ACKED, 2, 1, at_ms);
    for (size_t i = 0; i < run->ledgers[1].count; i++) /* their session was on that node */
        if (run->ledgers[1].records[i].client == RUN_DIRECT_N3)
            run->ledgers[1].records[i].node = 2;
}

/* The old primary took its last writes with a warning: writes all the same. */
static void old_writer_warns(struct run_builder *run)
{
    for (size_t i = 0; i < run->ledgers[1].count; i++) {
        struct ledger_record *record = &run->ledgers[1].records[i];
        if (record->kind == LEDGER_OUTCOME && record->client == RUN_DIRECT_N1 &&
            record->class == LEDGER_ACKED && record->done_ns > run_client_ns(RUN_FAULT_MS))
            record->class = LEDGER_WEAK;
    }
}

/* Sent before the freeze, answered after the thaw. */
static void late_answer(struct run_builder *run)
{
    uint64_t seq = run_last_before(run, RUN_DIRECT_N1, LEDGER_ACKED, RUN_FAULT_MS);

    run_outcome(run, RUN_DIRECT_N1, seq)->done_ns = run_client_ns(7500);
}

static void cut_ledger(struct run_builder *run, size_t ledger, int64_t at_ms)
{
    for (size_t i = 0; i < run->ledgers[ledger].count; i++)
        if (run->ledgers[ledger].records[i].done_ns > run_client_ns(at_ms)) {
            run->ledgers[ledger].count = i;
            return;
        }
}

static void direct_worker_died(struct run_builder *run)
{
    cut_ledger(run, 1, 6000);
}

static void node_never_probed(struct run_builder *run)
{
    for (size_t i = 0; i < run->ledgers[1].count; i++)
        if (run->ledgers[1].records[i].client == RUN_DIRECT_N3)
            run->ledgers[1].records[i] = (struct ledger_record){
                .kind = LEDGER_BEAT, .done_ns = run->ledgers[1].records[i].done_ns};
}

static void skip_probes(struct run_builder *run, int64_t from_ms, int64_t until_ms)
{
    for (size_t i = 0; i < run->ledgers[1].count; i++) {
        struct ledger_record *record = &run->ledgers[1].records[i];
        if (record->client == RUN_DIRECT_N1 && record->done_ns > run_client_ns(from_ms) &&
            record->done_ns < run_client_ns(until_ms))
            *record = (struct ledger_record){.kind = LEDGER_BEAT, .done_ns = record->done_ns};
    }
}

static void old_primary_not_probed(struct run_builder *run)
{
    skip_probes(run, 6000, 8000);
}

static void old_primary_not_probed_for_a_moment(struct run_builder *run)
{
    skip_probes(run, 6000, 7000);
}

/* --- failovers -------------------------------------------------------------------------------- */

static void bound_by(struct run_builder *run, int64_t max_ms)
{
    run_param(run, "failover-time", "max", max_ms);
}

static void bound_of_5_ms(struct run_builder *run)
{
    bound_by(run, 5);
}

static void bound_of_1500_ms(struct run_builder *run)
{
    bound_by(run, 1500);
}

static void bound_of_2000_ms(struct run_builder *run)
{
    bound_by(run, 2000);
}

static void any_expected(struct run_builder *run)
{
    run_expect(run, "failover", "any");
}

static void any_within_2000_ms(struct run_builder *run)
{
    any_expected(run);
    bound_by(run, 2000);
}

static void none_expected(struct run_builder *run)
{
    run_expect(run, "failover", "no");
}

static void continue_expected(struct run_builder *run)
{
    run_expect(run, "writes", "continue");
}

/* Both standbys froze, and writes were to stall. */
static void stall_expected(struct run_builder *run)
{
    run_expect(run, "writes", "stall");
    bound_by(run, 1000);
}

static void stall_is_broken(struct run_builder *run)
{
    stall_expected(run);
    run_attempt(run, 1, LEDGER_ACKED, 0, 1, 5900);
}

/* In the middle of the outage the old primary acknowledges writes that lie behind the fork. */
static void branch_answers(struct run_builder *run)
{
    run_attempt(run, 1, LEDGER_ACKED, 0, 1, 5900);
    run_attempt(run, 1, LEDGER_ACKED, 0, 1, 5905);
    bound_by(run, 1500);
}

/* Its neighbour: writes that the new primary has. */
static void history_answers(struct run_builder *run)
{
    for (int64_t at_ms = 5900; at_ms <= 5910; at_ms += 5) {
        uint64_t seq = run_attempt(run, 1, LEDGER_ACKED, 0, 1, at_ms);
        run_outcome(run, 1, seq)->lsn = run_lsn(RUN_FAULT_MS) - 100 + (uint64_t) (at_ms - 5900);
    }
    any_expected(run);
}

static void no_history(struct run_builder *run)
{
    run_drop(run, "timeline");
    bound_by(run, 30000);
}

/* --- without a fault ---------------------------------------------------------------------------
 */

static void drop_fault(struct run_builder *run, const char *uid)
{
    size_t index;
    json_t *event;

    json_array_foreach(run->journal, index, event)
    {
        if (strcmp(json_text(event, "uid", ""), uid) == 0 &&
            strcmp(json_text(event, "event", ""), "fault.injected") == 0)
            json_array_remove(run->journal, index--);
    }
}

static void nothing_was_done(struct run_builder *run)
{
    drop_fault(run, "kill-n1");
}

static void second_by_itself(struct run_builder *run)
{
    drop_fault(run, "again-n2");
    any_expected(run);
}

static void second_has_no_place(struct run_builder *run)
{
    json_object_set_new(run_find_where(run, "fault.injected", "uid", "again-n2"), "clock",
                        json_string("nowhere"));
}

/* --- the workload's return ---------------------------------------------------------------------
 */

static void one_client_stays_away(struct run_builder *run)
{
    run_stays_away(run, 1, RUN_FAULT_MS);
}

static void all_clients_stay_away(struct run_builder *run)
{
    for (uint32_t client = 1; client <= RUN_WORKLOAD; client++)
        run_stays_away(run, client, RUN_FAULT_MS);
}

/* --- blindness -------------------------------------------------------------------------------- */

/* Beats go on, and nobody tried for 400 ms before writes were back. */
static void endpoint_probes_blind(struct run_builder *run)
{
    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (record->kind == LEDGER_OUTCOME && record->scheduled_ns > run_client_ns(6400) &&
            record->scheduled_ns < run_client_ns(6800))
            *record = (struct ledger_record){.kind = LEDGER_MISSED,
                                             .client = record->client,
                                             .seq = 1,
                                             .done_ns = record->done_ns};
    }
}

/* The client node had no CPU: nothing ran for 600 ms, and what was due then began late. */
static void client_starved(struct run_builder *run)
{
    for (size_t ledger = 0; ledger < 2; ledger++)
        for (size_t i = 0; i < run->ledgers[ledger].count; i++) {
            struct ledger_record *record = &run->ledgers[ledger].records[i];
            if (record->done_ns <= run_client_ns(6500) || record->done_ns >= run_client_ns(7100))
                continue;
            record->done_ns = run_client_ns(7100);
            if (record->kind == LEDGER_OUTCOME && record->sent_ns != 0)
                record->sent_ns = run_client_ns(7099);
        }
}

static void workers_died_in_the_outage(struct run_builder *run)
{
    cut_ledger(run, 0, 6000);
}

static void workers_died_before_the_fault(struct run_builder *run)
{
    cut_ledger(run, 0, 4000);
}

/* --- clocks ----------------------------------------------------------------------------------- */

static void clocks_not_measured(struct run_builder *run)
{
    run_drop(run, "clock");
}

/* f0 is on the clock of n1, which is known to 2 s only. */
static void clock_of_the_old_primary_vague(struct run_builder *run)
{
    json_object_set_new(run_find_where(run, "clock", "node", "n1"), "error_ns",
                        json_integer(2 * NS_PER_SECOND));
    bound_by(run, 2000);
}

static void clock_vague_and_bound_far(struct run_builder *run)
{
    clock_of_the_old_primary_vague(run);
    bound_by(run, 10000);
}

/* The old primary booted again, and its clock began anew; both clocks were measured. */
static void old_primary_booted(struct run_builder *run)
{
    run_event(run, 9000, "clock",
              json_pack("{s:s, s:I, s:I}", "node", "n1", "offset_ns",
                        (json_int_t) (-105 * NS_PER_SECOND), "error_ns", (json_int_t) 200000));
    json_t *end = json_incref(run_find(run, "run.end"));
    run_drop(run, "run.end");
    json_array_append_new(run->journal, end);
    bound_by(run, 2000);
}

/* Wall clocks are a day apart, and stepped in the middle of it. */
static void wall_clocks_apart(struct run_builder *run)
{
    size_t index;
    json_t *event;

    json_array_foreach(run->journal, index, event)
    {
        json_int_t day = index % 2 == 0 ? 86400 : -86400;
        json_object_set_new(event, "wall", json_string("1970-01-01T00:00:00.000Z"));
        json_object_set_new(event, "wall_ns", json_integer(day * NS_PER_SECOND));
    }
    bound_by(run, 2000);
}

/* --- the table -------------------------------------------------------------------------------- */

#define ONE_WRITER(words_) PASSES("single-writer", words_)
#define TWO_WRITERS(words_) FAILS("single-writer", words_)
#define WRITERS_UNCLEAR(words_) PROVES_NOTHING("single-writer", words_)
#define IN_TIME(words_) PASSES("failover-time", words_)
#define NOT_IN_TIME(words_) FAILS("failover-time", words_)
#define TIME_UNCLEAR(words_) PROVES_NOTHING("failover-time", words_)

static const struct calibration rows[] = {
    {.planted = "nothing (writers)", ONE_WRITER("n1 on timeline 1 from")},
    {.planted = "frozen, not fenced, thawed: two writers for 200 ms",
     .plan = {.old_writer_until = 7000},
     TWO_WRITERS("n1 (timeline 1) accepted 10 writes until +1986 ms, after n2 (timeline 2) had "
                 "begun at +1804 ms and accepted 157: overlap 182 ms")},
    {.planted = "two writers, one directly after the other",
     .plan = {.old_writer_until = 6800},
     ONE_WRITER("n2 on timeline 2")},
    {.planted = "old writer acknowledges with a warning",
     .plan = {.old_writer_until = 7000},
     .plant = old_writer_warns,
     TWO_WRITERS("overlap 182 ms")},
    {.planted = "answer to a commit from before the freeze",
     .plant = late_answer,
     ONE_WRITER("1 answers to earlier commits came late")},
    {.planted = "standby opened for writing on the same timeline",
     .plant = standby_takes_writes,
     TWO_WRITERS("n3 (timeline 1)")},
    {.planted = "direct probes stand still for 400 ms",
     .plan = {.blind_from = 8000, .blind_until = 8400},
     WRITERS_UNCLEAR("stood still")},
    {.planted = "direct probes stand still for 200 ms",
     .plan = {.blind_from = 8000, .blind_until = 8200},
     ONE_WRITER("n2 on timeline 2")},
    {.planted = "worker of the direct probes died",
     .plant = direct_worker_died,
     WRITERS_UNCLEAR("stood still")},
    {.planted = "one node never probed",
     .plant = node_never_probed,
     WRITERS_UNCLEAR("ever reached n3")},
    {.planted = "old primary not probed for 2 s",
     .plant = old_primary_not_probed,
     WRITERS_UNCLEAR("nobody probed n1 for 2")},
    {.planted = "old primary not probed for 1 s",
     .plant = old_primary_not_probed_for_a_moment,
     .verdict = RUN_INCONCLUSIVE, /* by durability: those tokens have no record */
     .check = "single-writer",
     .finding = VERDICT_PASS,
     .words = "n2 on timeline 2"},

    {.planted = "nothing (failover)", IN_TIME("failover 1.804 s")},
    {.planted = "failover within the bound",
     .plant = bound_of_2000_ms,
     IN_TIME("failover 1.804 s")},
    {.planted = "failover over the bound",
     .plant = bound_of_1500_ms,
     NOT_IN_TIME("over the bound")},
    {.planted = "failover never comes",
     .plan = {.never_back = true},
     NOT_IN_TIME("did not happen")},
    {.planted = "writes never come back, the bound has passed",
     .plan = {.never_back = true},
     .plant = any_within_2000_ms,
     NOT_IN_TIME("is over the bound")},
    {.planted = "load ended before the bound had passed",
     .plan = {.never_back = true},
     .plant = any_expected,
     TIME_UNCLEAR("did not come back in the")},
    {.planted = "restart in place", .plan = {.no_failover = true}, IN_TIME("write outage 1.8")},
    {.planted = "failover that nobody wanted", .plant = none_expected, NOT_IN_TIME("should not")},
    {.planted = "two failovers, both in time",
     .plan = {.second_ms = 8000},
     .plant = bound_of_2000_ms,
     IN_TIME("slowest of 2 failover 1.804 s")},
    {.planted = "two failovers, the first too late",
     .plan = {.second_ms = 8000},
     .plant = bound_of_1500_ms,
     NOT_IN_TIME("1.804 s")},
    {.planted = "two failovers, the second too late",
     .plan = {.outage_ms = 900, .second_ms = 8000, .second_outage_ms = 1700},
     .plant = bound_of_1500_ms,
     NOT_IN_TIME("1.704 s")},
    {.planted = "two failovers expected, the second never comes",
     .plan = {.second_ms = 8000, .second_never = true},
     NOT_IN_TIME("did not happen after again")},
    {.planted = "a second failover that no fault explains, any expected",
     .plan = {.second_ms = 8000},
     .plant = second_by_itself,
     NOT_IN_TIME("that no fault explains (timeline 2 to 3)")},
    {.planted = "two failovers of two faults, any expected",
     .plan = {.second_ms = 8000},
     .plant = any_expected,
     IN_TIME("slowest of 2 failover 1.804 s")},
    {.planted = "a failover before the first fault",
     .plan = {.second_ms = 8000},
     .plant = nothing_was_done,
     NOT_IN_TIME("that no fault explains (timeline 1 to 2)")},
    {.planted = "a failover in a baseline",
     .plant = nothing_was_done,
     NOT_IN_TIME("that no fault explains (timeline 1 to 2)")},
    {.planted = "a baseline without a failover",
     .plan = {.no_fault = true},
     IN_TIME("below the resolution")},
    {.planted = "second failover never comes, its fault has no place in time",
     .plan = {.second_ms = 8000, .second_never = true},
     .plant = second_has_no_place,
     TIME_UNCLEAR("1 of 2 faults could not be placed")},
    {.planted = "probes write again, no workload client does",
     .plan = {.outage_ms = 900},
     .plant = all_clients_stay_away,
     NOT_IN_TIME("no workload client came back (of 4)")},
    {.planted = "probes write again, the load ends before the workload could",
     .plant = all_clients_stay_away,
     TIME_UNCLEAR("the load ended before any of 4 workload clients")},
    {.planted = "one workload client of four never comes back",
     .plan = {.outage_ms = 900},
     .plant = one_client_stays_away,
     TIME_UNCLEAR("1 of 4 workload clients never came back")},
    {.planted = "all workload clients come back",
     .plan = {.outage_ms = 900},
     IN_TIME("failover 0.904 s")},
    {.planted = "abandoned branch answers in the outage",
     .plant = branch_answers,
     NOT_IN_TIME("1.80")},
    {.planted = "what is in the history answers in the outage",
     .plant = history_answers,
     .verdict = RUN_FAIL, /* by the other checks: those rows are nowhere */
     .check = "failover-time",
     .finding = VERDICT_PASS,
     .words = "write outage 0.9"},
    {.planted = "which timelines count is not known",
     .plant = no_history,
     TIME_UNCLEAR("lead to the final primary")},
    {.planted = "writes stall as they should",
     .plan = {.no_failover = true, .stall = true},
     .plant = stall_expected,
     IN_TIME("write outage 1.8")},
    {.planted = "a write acknowledged while they should stall",
     .plan = {.no_failover = true, .stall = true},
     .plant = stall_is_broken,
     NOT_IN_TIME("writes should stall, and 1 were acknowledged")},
    {.planted = "a stall, then a failover in time",
     .plan = {.no_failover = true, .stall = true, .second_ms = 8000},
     .plant = stall_expected,
     IN_TIME("failover 0.904 s")},
    {.planted = "a stall, then a failover too late",
     .plan = {.no_failover = true, .stall = true, .second_ms = 8000, .second_outage_ms = 1200},
     .plant = stall_expected,
     NOT_IN_TIME("over the bound")},
    {.planted = "writes that should go on stand still for 1.8 s",
     .plan = {.no_failover = true},
     .plant = continue_expected,
     NOT_IN_TIME("should go on and stood still")},
    {.planted = "writes that should go on pause for 300 ms",
     .plan = {.no_failover = true, .outage_ms = 300},
     .plant = continue_expected,
     IN_TIME("write outage 0.3")},
    {.planted = "outage shorter than the resolution",
     .plan = {.no_failover = true, .outage_ms = 4},
     IN_TIME("is below the resolution")},
    {.planted = "outage shorter than the resolution, bound too",
     .plan = {.no_failover = true, .outage_ms = 4},
     .plant = bound_of_5_ms,
     TIME_UNCLEAR("reaches across the bound")},

    {.planted = "no sample across the end of the outage",
     .plan = {.blind_from = 6600, .blind_until = 7000},
     TIME_UNCLEAR("across the outage")},
    {.planted = "no sample for 300 ms, elsewhere",
     .plan = {.blind_from = 9000, .blind_until = 9250},
     IN_TIME("failover 1.804 s")},
    {.planted = "endpoint probes blind while beats go on",
     .plant = endpoint_probes_blind,
     TIME_UNCLEAR("no probe began for")},
    {.planted = "client node starved of CPU (failover)",
     .plant = client_starved,
     TIME_UNCLEAR("across the outage")},
    {.planted = "client node starved of CPU (writers)",
     .plant = client_starved,
     WRITERS_UNCLEAR("stood still")},
    {.planted = "worker of the load died in the outage",
     .plant = workers_died_in_the_outage,
     TIME_UNCLEAR("no write was acknowledged on timeline 2")},
    {.planted = "worker of the load died before the fault",
     .plant = workers_died_before_the_fault,
     TIME_UNCLEAR("no work was scheduled after the fault")},
    {.planted = "workload stops by itself before the fault",
     .plan = {.load_until_ms = 4000},
     TIME_UNCLEAR("no work was scheduled after the fault")},

    {.planted = "boot clocks not measured",
     .plant = clocks_not_measured,
     TIME_UNCLEAR("could be placed")},
    {.planted = "old primary booted again, its clock anew",
     .plant = old_primary_booted,
     IN_TIME("failover 1.804 s")},
    {.planted = "clock known to 2 s, bound near",
     .plant = clock_of_the_old_primary_vague,
     TIME_UNCLEAR("reaches across the bound")},
    {.planted = "clock known to 2 s, bound far",
     .plant = clock_vague_and_bound_far,
     IN_TIME("failover 1.804 s")},
    {.planted = "wall clocks a day apart", .plant = wall_clocks_apart, IN_TIME("failover 1.804 s")},
};

int main(void)
{
    return calibrate("calibration: writes", rows, sizeof rows / sizeof rows[0]);
}
