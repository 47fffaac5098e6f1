/* SPDX-License-Identifier: MIT */
/* Runs in which writes were interrupted more than once: each time is measured and judged. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "tests/support/run_judge.h"
#include "tests/support/suite.h"

enum { SECOND_MS = 8000 };

static json_t *bound(int64_t max_ms)
{
    return json_pack("{s:I}", "max", (json_int_t) max_ms);
}

static double number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static const json_t *incident(const struct judged *judged, size_t index)
{
    return json_array_get(json_object_get(judged->result.details, "incidents"), index);
}

static struct run_plan twice(void)
{
    return (struct run_plan){.second_ms = SECOND_MS};
}

/* n1 to n2 in 1804 ms, n2 to n3 in 904 ms. */
START_TEST(two_failovers_have_their_own_times)
{
    struct run_plan plan = twice();
    struct run_builder *run = run_standard(&plan);
    struct judged judged = run_judge(run, "failover-time", bound(2000));
    const json_t *details = judged.result.details;

    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_ptr_nonnull(strstr(judged.result.text, "slowest of 2 failover 1.80"));
    ck_assert_double_eq_tol(number(details, "outage_ms"), 1804, 5);
    ck_assert_double_eq_tol(number(details, "time_ms"), 1804, 5);
    ck_assert_double_eq_tol(number(details, "outage_union_ms"), 1804 + 904, 10);
    ck_assert_uint_eq(json_array_size(json_object_get(details, "incidents")), 2);
    ck_assert_str_eq(json_text(incident(&judged, 0), "uid", ""), "kill-n1");
    ck_assert_double_eq_tol(number(incident(&judged, 0), "time_ms"), 1804, 5);
    ck_assert_double_eq_tol(number(incident(&judged, 0), "outage_ms"), 1804, 5);
    ck_assert_str_eq(json_text(incident(&judged, 1), "uid", ""), "again-n2");
    ck_assert_double_eq_tol(number(incident(&judged, 1), "time_ms"), 904, 5);
    ck_assert_double_eq_tol(number(incident(&judged, 1), "outage_ms"), 904, 5);
    ck_assert_int_eq(json_number(incident(&judged, 1), "timeline", 0), 3);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(the_worst_of_two_decides)
{
    struct run_plan plan = twice();

    expect_verdict(run_standard(&plan), "failover-time", bound(1500), VERDICT_FAIL,
                   "over the bound");
    plan.outage_ms = 700;
    expect_verdict(run_standard(&plan), "failover-time", bound(1500), VERDICT_PASS, NULL);
    plan.second_outage_ms = 1600;
    expect_verdict(run_standard(&plan), "failover-time", bound(1500), VERDICT_FAIL,
                   "over the bound");
}
END_TEST

START_TEST(each_expected_failover_must_come)
{
    struct run_plan plan = twice();

    plan.second_never = true;
    expect_verdict(run_standard(&plan), "failover-time", NULL, VERDICT_FAIL,
                   "did not happen after again");
}
END_TEST

START_TEST(the_second_failover_is_unwanted)
{
    struct run_plan plan = twice();

    plan.second_expect = json_pack("{s:s}", "failover", "no");
    expect_verdict(run_standard(&plan), "failover-time", NULL, VERDICT_FAIL, "2 to 3");
}
END_TEST

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

/* One kill, two failovers: n2 gave up by itself. */
START_TEST(a_failover_without_a_fault)
{
    struct run_plan plan = twice();
    struct run_builder *run = run_standard(&plan);

    drop_fault(run, "again-n2");
    expect_verdict(run, "failover-time", NULL, VERDICT_FAIL, "that no fault explains");
}
END_TEST

/* The same, with `any` or without a word about failovers: one is allowed, not two. */
START_TEST(a_second_failover_of_one_fault)
{
    struct run_plan plan = twice();

    plan.expect = json_pack("{s:s}", "failover", "any");
    struct run_builder *run = run_standard(&plan);
    drop_fault(run, "again-n2");
    expect_verdict(run, "failover-time", NULL, VERDICT_FAIL, "explains (timeline 2 to 3)");
    plan.expect = json_object();
    run = run_standard(&plan);
    drop_fault(run, "again-n2");
    expect_verdict(run, "failover-time", NULL, VERDICT_FAIL, "explains (timeline 2 to 3)");
}
END_TEST

/* Their neighbour: each has its own fault. */
START_TEST(any_failover_of_each_fault)
{
    struct run_plan plan = twice();

    plan.expect = json_pack("{s:s}", "failover", "any");
    plan.second_expect = json_object();
    expect_verdict(run_standard(&plan), "failover-time", NULL, VERDICT_PASS, "slowest of 2");
}
END_TEST

/* n2 was hit while it was elected, and fell only when it had answered for a second. */
START_TEST(a_fault_in_the_first_outage_explains_the_second)
{
    struct run_plan plan = twice();
    struct run_builder *run = run_standard(&plan);
    json_t *event = run_find_where(run, "fault.injected", "uid", "again-n2");

    json_object_set_new(event, "f0_ns", json_integer((json_int_t) run_node_ns("n2", 6500)));
    json_object_set_new(event, "f1_ns", json_integer((json_int_t) run_node_ns("n2", 6501)));
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_str_eq(json_text(incident(&judged, 1), "uid", ""), "again-n2");
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* Nothing was done to the cluster, or nothing yet. */
START_TEST(a_failover_in_a_baseline)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    drop_fault(run, "kill-n1");
    expect_verdict(run, "failover-time", NULL, VERDICT_FAIL, "explains (timeline 1 to 2)");
}
END_TEST

static void fault_was_sent(struct run_builder *run, const char *uid)
{
    json_t *end = json_incref(run_find(run, "run.end"));

    run_drop(run, "run.end");
    run_event(run, 4900, "fault.inject", json_pack("{s:s, s:s}", "uid", uid, "step", "kill"));
    json_array_append_new(run->journal, end);
}

/* It was sent, and failed or was cut off: it may have bitten. Its neighbour is known to have. */
START_TEST(a_fault_that_was_sent_may_explain_a_failover)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    drop_fault(run, "kill-n1");
    fault_was_sent(run, "kill-n1");
    expect_verdict(run, "failover-time", NULL, VERDICT_INCONCLUSIVE, "what it did is not known");
    struct run_plan plan = twice();
    run = run_standard(&plan);
    drop_fault(run, "again-n2");
    fault_was_sent(run, "kill-n1");
    expect_verdict(run, "failover-time", NULL, VERDICT_FAIL, "that no fault explains");
}
END_TEST

START_TEST(a_failover_before_the_first_fault)
{
    struct run_plan plan = twice();
    struct run_builder *run = run_standard(&plan);

    drop_fault(run, "kill-n1");
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_int_eq(judged.result.verdict, VERDICT_FAIL);
    ck_assert_ptr_nonnull(strstr(judged.result.text, "explains (timeline 1 to 2)"));
    ck_assert_ptr_null(strstr(judged.result.text, "timeline 2 to 3) that"));
    /* The headline is that of the fault. */
    ck_assert_double_eq_tol(number(judged.result.details, "outage_ms"), 904, 5);
    ck_assert_double_eq_tol(number(judged.result.details, "outage_union_ms"), 904, 5);
    ck_assert_uint_eq(json_array_size(json_object_get(judged.result.details, "incidents")), 2);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* The clock of the fault's node is known to 2 s: it may have come before that failover. */
START_TEST(clocks_do_not_tell_if_a_failover_was_spontaneous)
{
    struct run_plan plan = twice();
    struct run_builder *run = run_standard(&plan);

    drop_fault(run, "kill-n1");
    json_object_set_new(run_find_where(run, "clock", "node", "n2"), "error_ns",
                        json_integer(2 * NS_PER_SECOND));
    expect_verdict(run, "failover-time", NULL, VERDICT_INCONCLUSIVE, "clocks do not tell");
}
END_TEST

/* --- faults without a place ------------------------------------------------------------------- */

/* Its failover never came, and nobody can tell: the other fault's is whole. */
START_TEST(one_fault_has_no_place)
{
    struct run_plan plan = twice();

    plan.second_never = true;
    struct run_builder *run = run_standard(&plan);
    json_object_set_new(run_find_where(run, "fault.injected", "uid", "again-n2"), "clock",
                        json_string("nowhere"));
    expect_verdict(run, "failover-time", NULL, VERDICT_INCONCLUSIVE, "1 of 2 faults could not");
}
END_TEST

/* Whose a failover is cannot be told then, and so not that it is unwanted. */
START_TEST(a_failover_may_be_that_of_a_fault_without_a_place)
{
    struct run_plan plan = twice();

    plan.second_never = true;
    plan.expect = json_pack("{s:s}", "failover", "no");
    struct run_builder *run = run_standard(&plan);
    json_object_set_new(run_find_where(run, "fault.injected", "uid", "again-n2"), "clock",
                        json_string("nowhere"));
    expect_verdict(run, "failover-time", NULL, VERDICT_INCONCLUSIVE, "1 of 2 faults could not");
}
END_TEST

static struct run_plan stall_then_kill(void)
{
    return (struct run_plan){.no_failover = true,
                             .stall = true,
                             .second_ms = SECOND_MS,
                             .expect =
                                 json_pack("{s:s, s:s}", "failover", "no", "writes", "stall")};
}

/* The stall is expected to last until the thaw; the failover behind it has its own time. */
START_TEST(a_stall_then_a_failover)
{
    struct run_plan plan = stall_then_kill();
    struct run_builder *run = run_standard(&plan);
    struct judged judged = run_judge(run, "failover-time", bound(1000));

    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_double_eq_tol(number(judged.result.details, "outage_ms"), 1804, 5);
    ck_assert_double_eq_tol(number(judged.result.details, "time_ms"), 904, 5);
    judged_free(&judged);
    run_free(run);
    plan = stall_then_kill();
    expect_verdict(run_standard(&plan), "failover-time", bound(800), VERDICT_FAIL,
                   "over the bound");
}
END_TEST

/* Thawed at 5500 ms, acknowledged at 6803 ms. */
START_TEST(writes_come_back_late_after_a_stall)
{
    struct run_plan plan = stall_then_kill();
    struct run_builder *run = run_standard(&plan);

    for (size_t i = 0; i < json_array_size(run->journal); i++) {
        json_t *event = json_array_get(run->journal, i);
        if (strcmp(json_text(event, "event", ""), "fault.undone") == 0 &&
            strncmp(json_text(event, "uid", ""), "kill", 4) == 0)
            json_object_set_new(
                event, "undone_ns",
                json_integer((json_int_t) run_node_ns(json_text(event, "node", ""), 5500)));
    }
    expect_verdict(run, "failover-time", bound(1000), VERDICT_FAIL, "1.303 s");
}
END_TEST

/* Writes went on through the first fault as they should, and stopped at the second. */
START_TEST(what_one_step_expects_is_not_held_against_another)
{
    struct run_plan plan = {.no_failover = true,
                            .outage_ms = 300,
                            .second_ms = SECOND_MS,
                            .second_outage_ms = 1500,
                            .expect = json_pack("{s:s}", "writes", "continue")};

    expect_verdict(run_standard(&plan), "failover-time", NULL, VERDICT_PASS, NULL);
    plan.expect = json_pack("{s:s}", "writes", "continue");
    plan.outage_ms = 1200;
    expect_verdict(run_standard(&plan), "failover-time", NULL, VERDICT_FAIL, "should go on");
}
END_TEST

/* --- abandoned branches ----------------------------------------------------------------------- */

/* Client 1 is told of a commit that the old primary took at an instant and a position. */
static void old_primary_answers(struct run_builder *run, int64_t at_ms, uint32_t timeline,
                                uint64_t lsn)
{
    struct ledger_record record = {.kind = LEDGER_OUTCOME,
                                   .class = LEDGER_ACKED,
                                   .phase = LEDGER_COMMITTING,
                                   .client = 1,
                                   .seq = 90000 + (uint64_t) at_ms,
                                   .scheduled_ns = run_client_ns(at_ms),
                                   .sent_ns = run_client_ns(at_ms),
                                   .done_ns = run_client_ns(at_ms + 1),
                                   .lsn = lsn,
                                   .timeline = timeline};

    run_record(run, 0, record);
}

/* The old primary answers once in the outage: what it takes is not in the final history. */
static void answer_of_a_branch(struct run_builder *run, int64_t at_ms, uint32_t timeline)
{
    old_primary_answers(run, at_ms, timeline, run_lsn(at_ms));
    old_primary_answers(run, at_ms + 5, timeline, run_lsn(at_ms + 5));
}

START_TEST(an_abandoned_branch_never_ends_an_outage)
{
    struct run_plan plan = twice();
    struct run_builder *run = run_standard(&plan);

    answer_of_a_branch(run, 5900, 1);
    answer_of_a_branch(run, 8450, 2);
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_double_eq_tol(number(incident(&judged, 0), "outage_ms"), 1804, 5);
    ck_assert_double_eq_tol(number(incident(&judged, 0), "time_ms"), 1804, 5);
    ck_assert_double_eq_tol(number(incident(&judged, 1), "outage_ms"), 904, 5);
    ck_assert_double_eq_tol(number(incident(&judged, 1), "time_ms"), 904, 5);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* Its neighbour: the same answers from before the fork do, since that work is in the history. */
START_TEST(what_the_history_holds_ends_an_outage)
{
    struct run_plan plan = {0};
    struct run_builder *run = run_standard(&plan);

    old_primary_answers(run, 5900, 1, run_lsn(RUN_FAULT_MS) - 20);
    old_primary_answers(run, 5905, 1, run_lsn(RUN_FAULT_MS) - 10);
    old_primary_answers(run, 5910, 1, run_lsn(RUN_FAULT_MS));
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_double_eq_tol(number(judged.result.details, "outage_ms"), 903, 12);
    ck_assert_double_eq_tol(number(judged.result.details, "time_ms"), 1804, 5);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* --- what is not known ------------------------------------------------------------------------ */

START_TEST(branches_unknown)
{
    struct run_plan plan = twice();
    struct run_builder *run = run_standard(&plan);

    run_drop(run, "timeline");
    expect_verdict(run, "failover-time", NULL, VERDICT_INCONCLUSIVE,
                   "lead to the final primary was not recorded");
}
END_TEST

START_TEST(positions_unknown)
{
    struct run_plan plan = twice();
    struct run_builder *run = run_standard(&plan);

    for (size_t i = 0; i < run->ledgers[0].count; i++)
        if (run->ledgers[0].records[i].timeline == 2)
            run->ledgers[0].records[i].lsn = 0;
    expect_verdict(run, "failover-time", NULL, VERDICT_INCONCLUSIVE, "have no position");
}
END_TEST

/* The last primary took over when the load had ended. */
START_TEST(nobody_was_told_of_the_last_timeline)
{
    struct run_builder *run = run_standard(
        &(struct run_plan){.no_failover = true, .expect = json_pack("{s:s}", "failover", "any")});
    json_t *event = run_find(run, "timeline");

    json_object_set_new(event, "timeline", json_integer(2));
    json_object_set_new(event, "node", json_string("n2"));
    json_object_set_new(event, "history",
                        json_pack("[{s:i, s:s}]", "timeline", 1, "lsn", "0/4000000"));
    expect_verdict(run, "failover-time", NULL, VERDICT_INCONCLUSIVE,
                   "no write was acknowledged on timeline 2");
}
END_TEST

/* --- which fault ------------------------------------------------------------------------------ */

/* A fault of a step that expects nothing, on n3. */
static void another_fault(struct run_builder *run, int64_t at_ms)
{
    json_t *event = json_deep_copy(run_find_where(run, "fault.injected", "uid", "kill-n1"));

    json_object_set_new(event, "uid", json_string("other-n3"));
    json_object_set_new(event, "step", json_string("other"));
    json_object_set_new(event, "node", json_string("n3"));
    json_object_set_new(event, "clock", json_string("n3"));
    json_object_set_new(event, "f0_ns", json_integer((json_int_t) run_node_ns("n3", at_ms)));
    json_object_set_new(event, "f1_ns", json_integer((json_int_t) run_node_ns("n3", at_ms)));
    json_array_insert_new(run->journal, json_array_size(run->journal) - 1, event);
}

static void expect_time(struct run_builder *run, double time_ms, const char *uid)
{
    struct judged judged = run_judge(run, "failover-time", NULL);

    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_double_eq_tol(number(judged.result.details, "time_ms"), time_ms, 5);
    ck_assert_str_eq(json_text(incident(&judged, 0), "uid", ""), uid);
    judged_free(&judged);
    run_free(run);
}

/* The failover counts from the fault that was to bring it. */
START_TEST(a_neighbour_that_expects_nothing)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    another_fault(run, 5300);
    expect_time(run, 1804, "kill-n1");
}
END_TEST

/* None was to bring it: the last one before writes stopped, and none from within the outage. */
START_TEST(a_fault_within_the_outage)
{
    struct run_builder *run =
        run_standard(&(struct run_plan){.expect = json_pack("{s:s}", "failover", "any")});

    another_fault(run, 6500);
    expect_time(run, 1804, "kill-n1");
    run = run_standard(&(struct run_plan){.expect = json_pack("{s:s}", "failover", "any")});
    another_fault(run, 3000);
    expect_time(run, 1804, "kill-n1");
}
END_TEST

/* A fault to come is not the cause, whatever it expects. */
START_TEST(the_second_fault_did_not_bring_the_first_failover)
{
    struct run_plan plan = twice();

    plan.expect = json_pack("{s:s}", "failover", "any");
    struct run_builder *run = run_standard(&plan);
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_str_eq(json_text(incident(&judged, 0), "uid", ""), "kill-n1");
    ck_assert_str_eq(json_text(incident(&judged, 1), "uid", ""), "again-n2");
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* n1 came back in place, though a failover was to come; the next kill brought one. */
START_TEST(a_failover_of_the_second_fault_is_none_of_the_first)
{
    struct run_plan plan = {.no_failover = true,
                            .second_ms = SECOND_MS,
                            .expect = json_pack("{s:s}", "failover", "yes")};
    struct run_builder *run = run_standard(&plan);
    struct judged judged = run_judge(run, "failover-time", NULL);

    ck_assert_msg(judged.result.verdict == VERDICT_FAIL, "%s", judged.result.text);
    ck_assert_msg(strstr(judged.result.text, "did not happen after kill") != NULL, "%s",
                  judged.result.text);
    ck_assert_double_eq_tol(number(judged.result.details, "time_ms"), 904, 5);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* The candidate was killed while it was elected: one failover, and both were to bring it. */
START_TEST(two_faults_share_a_failover)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});
    json_t *method = json_object_get(run_scenario(run), "method");

    another_fault(run, 6300);
    json_array_append_new(method, json_pack("{s:s, s:s, s:{s:s}}", "name", "other", "fault",
                                            "process.kill", "expect", "failover", "yes"));
    expect_time(run, 1804, "kill-n1");
}
END_TEST

/* n2 was promoted and took writes, and the final primary does not descend from it. */
START_TEST(an_abandoned_promotion)
{
    struct run_plan plan = twice();
    struct run_builder *run = run_standard(&plan);

    json_array_remove(json_object_get(run_find(run, "timeline"), "history"), 1);
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_double_eq_tol(number(judged.result.details, "outage_ms"), 3904, 8);
    ck_assert_double_eq_tol(number(judged.result.details, "time_ms"), 3904, 8);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* The position was read before the fork, and the commit may lie behind it. */
START_TEST(an_answer_across_the_fork)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    old_primary_answers(run, 5900, 1, run_lsn(RUN_FAULT_MS) - 10);
    old_primary_answers(run, 5905, 1, run_lsn(RUN_FAULT_MS) + 100);
    struct judged judged = run_judge(run, "failover-time", NULL);
    ck_assert_double_eq_tol(number(judged.result.details, "outage_ms"), 1804, 8);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* n3 was promoted first, answered, and was given up: its timeline is the higher one. */
START_TEST(an_abandoned_promotion_answered_first)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    old_primary_answers(run, 5900, 9, run_lsn(5900));
    old_primary_answers(run, 5905, 9, run_lsn(5905));
    expect_time(run, 1804, "kill-n1");
}
END_TEST

/* Writes stopped by themselves, and two faults came later: the first one counts. */
START_TEST(faults_long_after_writes_stopped)
{
    struct run_builder *run =
        run_standard(&(struct run_plan){.expect = json_pack("{s:s}", "failover", "any")});
    json_t *event = run_find(run, "fault.injected");

    json_object_set_new(event, "f0_ns", json_integer((json_int_t) run_node_ns("n1", 6303)));
    json_object_set_new(event, "f1_ns", json_integer((json_int_t) run_node_ns("n1", 6304)));
    another_fault(run, 6500);
    expect_time(run, 500, "kill-n1");
}
END_TEST

/* Two faults of one step, the first without an effect for two seconds. */
START_TEST(faults_of_one_step_share_a_failover)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    another_fault(run, 3000);
    json_object_set_new(run_find_where(run, "fault.injected", "uid", "other-n3"), "step",
                        json_string("kill"));
    expect_time(run, 1804, "kill-n1");
}
END_TEST

TEST_MAIN("check failover-time, several faults", 60, NULL, NULL, two_failovers_have_their_own_times,
          the_worst_of_two_decides, each_expected_failover_must_come,
          the_second_failover_is_unwanted, a_failover_without_a_fault,
          a_second_failover_of_one_fault, any_failover_of_each_fault,
          a_fault_in_the_first_outage_explains_the_second, a_failover_in_a_baseline,
          a_fault_that_was_sent_may_explain_a_failover, a_failover_before_the_first_fault,
          clocks_do_not_tell_if_a_failover_was_spontaneous, one_fault_has_no_place,
          a_failover_may_be_that_of_a_fault_without_a_place, a_stall_then_a_failover,
          writes_come_back_late_after_a_stall, what_one_step_expects_is_not_held_against_another,
          an_abandoned_branch_never_ends_an_outage, what_the_history_holds_ends_an_outage,
          branches_unknown, positions_unknown, nobody_was_told_of_the_last_timeline,
          a_neighbour_that_expects_nothing, a_fault_within_the_outage,
          the_second_fault_did_not_bring_the_first_failover,
          a_failover_of_the_second_fault_is_none_of_the_first, two_faults_share_a_failover,
          an_abandoned_promotion, an_answer_across_the_fork, an_abandoned_promotion_answered_first,
          faults_long_after_writes_stopped, faults_of_one_step_share_a_failover)
