/* SPDX-License-Identifier: MIT */
/* Outage, failover time, expectations, and everything that makes the measurement worthless. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "tests/support/run_judge.h"
#include "tests/support/suite.h"

static json_t *bound(const char *max)
{
    json_t *value = NULL;
    struct error err = {0};

    ck_assert_int_eq(
        param_parse(param_find(check_find("failover-time")->params, "max"), max, &value, &err),
        STATUS_OK);
    return json_pack("{s:o}", "max", value);
}

static void expect(struct run_builder *run, json_t *params, enum verdict verdict, const char *part)
{
    expect_verdict(run, "failover-time", params, verdict, part);
}

static double detail(const struct judged *judged, const char *name)
{
    return json_number_value(json_object_get(judged->result.details, name));
}

/* Last acknowledgement at 4999 ms or before, first one on timeline 2 at 6803 ms. */
START_TEST(outage_and_failover_time)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});
    struct judged judged = run_judge(run, "failover-time", bound("30s"));
    const json_t *phases = json_object_get(judged.result.details, "phases");

    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_double_eq_tol(detail(&judged, "outage_ms"), 1804, 5);
    ck_assert_double_eq_tol(detail(&judged, "time_ms"), 1804, 5);
    ck_assert_double_eq_tol(detail(&judged, "resolution_ms"), 5, 1);
    ck_assert_double_eq_tol(detail(&judged, "clock_error_ms"), 0.4, 0.01);
    ck_assert_double_eq_tol(json_number_value(json_object_get(phases, "detect")), 1001, 1);
    ck_assert_double_eq_tol(json_number_value(json_object_get(phases, "route")), 90, 1);
    const json_t *clients = json_object_get(judged.result.details, "clients");
    ck_assert_int_eq(json_number(clients, "count", -1), 4);
    ck_assert_int_eq(json_number(clients, "never_back", -1), 0);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(over_the_bound)
{
    expect(run_standard(&(struct run_plan){0}), bound("1700ms"), VERDICT_FAIL, "over the bound");
}
END_TEST

/* 1.804 s +- 5 ms against 1.803 s: nobody can tell. */
START_TEST(error_reaches_across_the_bound)
{
    expect(run_standard(&(struct run_plan){0}), bound("1803ms"), VERDICT_INCONCLUSIVE,
           "reaches across the bound");
}
END_TEST

START_TEST(bound_of_the_topology)
{
    expect(run_standard(&(struct run_plan){0}), NULL, VERDICT_PASS, "bound 30s");
    expect(run_standard(&(struct run_plan){.outage_ms = 4000}), NULL, VERDICT_PASS, NULL);
}
END_TEST

START_TEST(failover_never_comes)
{
    expect(run_standard(&(struct run_plan){.never_back = true}), NULL, VERDICT_FAIL,
           "the expected failover did not happen");
}
END_TEST

START_TEST(failover_never_comes_and_the_bound_has_passed)
{
    expect(run_standard(&(struct run_plan){.never_back = true,
                                           .expect = json_pack("{s:s}", "failover", "any")}),
           bound("2s"), VERDICT_FAIL, "at least");
}
END_TEST

START_TEST(load_ended_before_the_bound)
{
    expect(run_standard(&(struct run_plan){.never_back = true,
                                           .expect = json_pack("{s:s}", "failover", "any")}),
           NULL, VERDICT_INCONCLUSIVE, "did not come back");
}
END_TEST

START_TEST(unwanted_failover)
{
    expect(run_standard(&(struct run_plan){.expect = json_pack("{s:b}", "failover", 0)}), NULL,
           VERDICT_FAIL, "should not");
}
END_TEST

START_TEST(restart_in_place)
{
    struct run_builder *run = run_standard(&(struct run_plan){.no_failover = true});
    struct judged judged = run_judge(run, "failover-time", NULL);

    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_ptr_null(json_object_get(judged.result.details, "time_ms"));
    ck_assert_double_eq_tol(detail(&judged, "outage_ms"), 1804, 5);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(baseline_has_no_outage)
{
    expect(run_standard(&(struct run_plan){.no_fault = true}), NULL, VERDICT_PASS,
           "below the resolution");
}
END_TEST

START_TEST(workload_stopped_before_the_fault)
{
    expect(run_standard(&(struct run_plan){.load_until_ms = 4000}), NULL, VERDICT_INCONCLUSIVE,
           "no work was scheduled after the fault");
}
END_TEST

START_TEST(load_began_after_the_fault)
{
    expect(run_standard(&(struct run_plan){.load_from_ms = 7000}), NULL, VERDICT_INCONCLUSIVE,
           "nothing was acknowledged before the fault");
}
END_TEST

START_TEST(blind_across_the_outage)
{
    expect(run_standard(&(struct run_plan){.blind_from = 6600, .blind_until = 7000}), NULL,
           VERDICT_INCONCLUSIVE, "stood still");
}
END_TEST

START_TEST(blind_elsewhere)
{
    expect(run_standard(&(struct run_plan){.blind_from = 8600, .blind_until = 9000}), NULL,
           VERDICT_PASS, NULL);
}
END_TEST

/* Beats go on, but for 400 ms before the end of the outage nobody tried. */
START_TEST(probes_missing_at_the_edge)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (record->kind == LEDGER_OUTCOME && record->scheduled_ns > run_client_ns(6400) &&
            record->scheduled_ns < run_client_ns(6800))
            *record = (struct ledger_record){.kind = LEDGER_MISSED,
                                             .client = record->client,
                                             .seq = 1,
                                             .done_ns = record->done_ns};
    }
    expect(run, NULL, VERDICT_INCONCLUSIVE, "no probe began for");
}
END_TEST

/* A direct probe that never connected is no endpoint probe: its failures say nothing here. */
START_TEST(direct_probes_are_left_out)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});
    struct ledger_record record = {.kind = LEDGER_OUTCOME,
                                   .class = LEDGER_UNSENT,
                                   .flags = LEDGER_DIRECT,
                                   .client = RUN_DIRECT_N3 + 7,
                                   .seq = 1,
                                   .scheduled_ns = run_client_ns(RUN_END_MS * 3),
                                   .done_ns = run_client_ns(6803)};

    run_record(run, 1, record);
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_double_eq_tol(detail(&judged, "outage_ms"), 1804, 5);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(no_clock_estimate)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    run_drop(run, "clock");
    expect(run, NULL, VERDICT_INCONCLUSIVE, "could be placed");
}
END_TEST

static struct run_plan stalling(void)
{
    return (struct run_plan){.no_failover = true,
                             .stall = true,
                             .expect =
                                 json_pack("{s:s, s:s}", "failover", "no", "writes", "stall")};
}

START_TEST(writes_stall_and_go_on)
{
    struct run_plan plan = stalling();

    expect(run_standard(&plan), NULL, VERDICT_PASS, NULL);
}
END_TEST

/* What a kill took away comes back with the recovery: until then writes must stall. */
static struct run_builder *stalled_by_kills(int recovery_ms)
{
    struct run_plan plan = stalling();
    struct run_builder *run = run_standard(&plan);
    json_t *end = json_incref(run_find(run, "run.end"));

    run_drop(run, "fault.undone");
    run_drop(run, "phase");
    run_drop(run, "run.end");
    run_event(run, recovery_ms, "phase", json_pack("{s:s}", "phase", "recovery"));
    json_array_append_new(run->journal, end);
    return run;
}

START_TEST(writes_stall_until_the_recovery)
{
    expect(stalled_by_kills(RUN_FAULT_MS + 1700), NULL, VERDICT_PASS, NULL);
    expect(stalled_by_kills(RUN_FAULT_MS + 2500), NULL, VERDICT_FAIL, "writes should stall");
}
END_TEST

START_TEST(writes_that_should_stall_go_on)
{
    struct run_plan plan = stalling();
    struct run_builder *run = run_standard(&plan);
    uint64_t seq = run_first(run, 1, LEDGER_UNSENT);
    struct ledger_record *record = run_outcome(run, 1, seq + 20);

    record->class = LEDGER_ACKED;
    record->phase = LEDGER_COMMITTING;
    record->timeline = 1;
    record->sent_ns = record->scheduled_ns + NS_PER_MS;
    expect(run, NULL, VERDICT_FAIL, "writes should stall, and 1 were acknowledged");
}
END_TEST

START_TEST(a_stall_does_not_count_against_the_bound)
{
    struct run_plan plan = stalling();

    expect(run_standard(&plan), bound("1s"), VERDICT_PASS, NULL);
}
END_TEST

START_TEST(writes_should_continue)
{
    expect(run_standard(&(struct run_plan){.no_failover = true,
                                           .expect = json_pack("{s:s}", "writes", "continue")}),
           NULL, VERDICT_FAIL, "should go on and stood still");
    expect(run_standard(&(struct run_plan){.no_failover = true,
                                           .outage_ms = 300,
                                           .expect = json_pack("{s:s}", "writes", "continue")}),
           NULL, VERDICT_PASS, NULL);
}
END_TEST

/* Late answers of the old primary do not end the outage, and do not begin a failover. */
START_TEST(work_scheduled_before_the_fault_does_not_end_it)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});
    struct ledger_record *record =
        run_outcome(run, 1, run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS));

    record->done_ns = run_client_ns(6790);
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_double_eq_tol(detail(&judged, "time_ms"), 1804, 5);
    ck_assert_double_eq_tol(detail(&judged, "outage_ms"), 1804, 12);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* Only the direct probes stand still: they have no part in an outage of the endpoint. */
START_TEST(blind_direct_probes_are_left_out)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    for (size_t i = 0; i < run->ledgers[1].count; i++) {
        struct ledger_record *record = &run->ledgers[1].records[i];
        if (record->kind == LEDGER_BEAT && record->done_ns > run_client_ns(6000) &&
            record->done_ns < run_client_ns(7000))
            *record = (struct ledger_record){.kind = LEDGER_RESERVE, .client = RUN_DIRECT_N1};
    }
    expect(run, NULL, VERDICT_PASS, NULL);
}
END_TEST

START_TEST(blind_and_over_the_bound)
{
    expect(run_standard(&(struct run_plan){.blind_from = 6600, .blind_until = 7000}),
           bound("1500ms"), VERDICT_INCONCLUSIVE, "across the outage");
}
END_TEST

/* An acknowledgement that came with a warning is none that the outage ends with. */
START_TEST(weak_commits_do_not_end_it)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (record->kind == LEDGER_OUTCOME && record->class == LEDGER_ACKED &&
            record->timeline == 2 && record->done_ns < run_client_ns(7500))
            record->class = LEDGER_WEAK;
    }
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_double_eq_tol(detail(&judged, "outage_ms"), 2504, 8);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* Late answers in place: the same timeline, and still of work from before the fault. */
START_TEST(late_answers_in_place)
{
    struct run_builder *run = run_standard(&(struct run_plan){.no_failover = true});

    run_outcome(run, 1, run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS))->done_ns =
        run_client_ns(5900);
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_double_eq_tol(detail(&judged, "outage_ms"), 1804, 12);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* The new primary first answers what had waited since before the fault. */
START_TEST(old_work_on_the_new_timeline)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (record->timeline == 2 && record->scheduled_ns < run_client_ns(6900))
            record->scheduled_ns = run_client_ns(RUN_FAULT_MS - 100);
    }
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_double_eq_tol(detail(&judged, "time_ms"), 1904, 5);
    ck_assert_double_eq_tol(detail(&judged, "outage_ms"), 1904, 8);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(a_gap_before_the_fault_is_not_its_outage)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (record->kind == LEDGER_OUTCOME && record->done_ns > run_client_ns(1000) &&
            record->done_ns < run_client_ns(4000))
            record->class = LEDGER_IN_DOUBT;
    }
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_double_eq_tol(detail(&judged, "outage_ms"), 1804, 5);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* Writes went on for two seconds of the fault: the failover took longer than the outage. */
START_TEST(the_failover_is_longer_than_the_outage)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});
    json_t *event = run_find(run, "fault.injected");

    json_object_set_new(event, "f0_ns", json_integer((json_int_t) run_node_ns("n1", 3000)));
    json_object_set_new(event, "f1_ns", json_integer((json_int_t) run_node_ns("n1", 3001)));
    expect(run, bound("3s"), VERDICT_FAIL, "3.803 s");
}
END_TEST

START_TEST(clients_that_never_came_back)
{
    struct run_builder *run = run_standard(
        &(struct run_plan){.never_back = true, .expect = json_pack("{s:s}", "failover", "any")});
    struct judged judged = run_judge(run, "failover-time", NULL);
    const json_t *clients = json_object_get(judged.result.details, "clients");

    ck_assert_int_eq(json_number(clients, "count", -1), 4);
    ck_assert_int_eq(json_number(clients, "never_back", -1), 4);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* One timeline only: which of them count is no question. */
START_TEST(history_unknown_and_not_needed)
{
    struct run_builder *run = run_standard(&(struct run_plan){.no_failover = true});

    run_drop(run, "timeline");
    expect(run, NULL, VERDICT_PASS, NULL);
}
END_TEST

/* Nothing after the thaw: whether it is too late, the bound says. */
START_TEST(writes_do_not_go_on_after_a_stall)
{
    struct run_plan plan = stalling();

    plan.never_back = true;
    expect(run_standard(&plan), NULL, VERDICT_INCONCLUSIVE, "did not go on after the stall");
    plan = stalling();
    plan.never_back = true;
    expect(run_standard(&plan), bound("2s"), VERDICT_FAIL, "is over the bound");
}
END_TEST

/* An outcome without a timeline is of that of its session. */
START_TEST(timelines_of_sessions)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    for (size_t i = 0; i < run->ledgers[0].count; i++)
        if (run->ledgers[0].records[i].kind == LEDGER_OUTCOME)
            run->ledgers[0].records[i].timeline = 0;
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_double_eq_tol(detail(&judged, "time_ms"), 1804, 5);
    judged_free(&judged);
    run_free(run);
}
END_TEST

TEST_MAIN("check failover-time", 60, NULL, NULL, outage_and_failover_time, over_the_bound,
          error_reaches_across_the_bound, bound_of_the_topology, failover_never_comes,
          failover_never_comes_and_the_bound_has_passed, load_ended_before_the_bound,
          unwanted_failover, restart_in_place, baseline_has_no_outage,
          workload_stopped_before_the_fault, load_began_after_the_fault, blind_across_the_outage,
          blind_elsewhere, probes_missing_at_the_edge, direct_probes_are_left_out,
          no_clock_estimate, writes_stall_and_go_on, writes_stall_until_the_recovery,
          writes_that_should_stall_go_on, a_stall_does_not_count_against_the_bound,
          writes_should_continue, work_scheduled_before_the_fault_does_not_end_it,
          blind_direct_probes_are_left_out, blind_and_over_the_bound, weak_commits_do_not_end_it,
          late_answers_in_place, old_work_on_the_new_timeline,
          a_gap_before_the_fault_is_not_its_outage, the_failover_is_longer_than_the_outage,
          clients_that_never_came_back, history_unknown_and_not_needed,
          writes_do_not_go_on_after_a_stall, timelines_of_sessions)
