/* SPDX-License-Identifier: MIT */
/* Each defect that the check must find, beside the harmless neighbour that it must not. */
#include <check.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "tests/support/run_judge.h"
#include "tests/support/suite.h"

static struct run_builder *standard(void)
{
    return run_standard(&(struct run_plan){0});
}

static void expect(struct run_builder *run, enum verdict verdict, const char *part)
{
    expect_verdict(run, "durability", NULL, verdict, part);
}

/* The counts that decide, in one row. */
static void expect_counts(struct run_builder *run, const char *member, int64_t count)
{
    static const char *const members[] = {"lost", "vanished",  "resurrected",
                                          "torn", "duplicate", "garbage"};
    struct judged judged = run_judge(run, "durability", NULL);

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        int64_t expected = strcmp(members[i], member) == 0 ? count : 0;
        ck_assert_msg(judged_number(&judged, "ledger", members[i]) == expected, "%s: %lld: %s",
                      members[i], (long long) judged_number(&judged, "ledger", members[i]),
                      judged.result.text);
    }
    ck_assert_msg(judged.result.verdict == (count > 0 ? VERDICT_FAIL : VERDICT_PASS), "%s",
                  judged.result.text);
    judged_free(&judged);
    run_free(run);
}

START_TEST(whole_run_passes)
{
    struct run_builder *run = standard();
    struct judged judged = run_judge(run, "durability", NULL);

    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_int_eq(json_integer_value(judged.result.value), 0);
    ck_assert_int_gt(judged_number(&judged, "ledger", "acked"), 5000);
    ck_assert_int_gt(judged_number(&judged, "ledger", "in_doubt"), 0);
    ck_assert_int_gt(judged_number(&judged, "ledger", "unsent"), 0);
    ck_assert_int_gt(judged_number(&judged, "ledger", "aborted"), 0);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(lost_tail)
{
    struct run_builder *run = standard();
    uint64_t seq = run_last_before(run, 2, LEDGER_ACKED, RUN_FAULT_MS);

    run_outcome(run, 2, seq)->lsn = run_lsn(RUN_FAULT_MS) + 64; /* behind the fork */
    run_absent(run, NULL, 2, seq);
    expect(run, VERDICT_FAIL, "exactly the tail");
}
END_TEST

START_TEST(lost_is_counted_exactly)
{
    struct run_builder *run = standard();

    for (uint64_t seq = 100; seq < 107; seq++)
        run_absent(run, NULL, 3, seq);
    expect_counts(run, "lost", 7);
}
END_TEST

START_TEST(lost_before_the_fork_is_corruption)
{
    struct run_builder *run = standard();

    run_absent(run, NULL, 1, 100);
    expect(run, VERDICT_FAIL, "CORRUPTION");
}
END_TEST

START_TEST(lost_on_the_final_timeline_is_corruption)
{
    struct run_builder *run = standard();

    run_absent(run, NULL, 1, run_last(run, 1, LEDGER_ACKED));
    expect(run, VERDICT_FAIL, "CORRUPTION");
}
END_TEST

START_TEST(in_doubt_may_be_there_or_not)
{
    struct run_builder *run = standard();
    uint64_t seq = run_first(run, RUN_OLD_PROBE, LEDGER_IN_DOUBT);

    ck_assert_int_gt((int64_t) seq, 0);
    run_present(run, NULL, RUN_OLD_PROBE, seq);
    expect_counts(run, "none", 0);
}
END_TEST

START_TEST(intent_without_outcome_is_in_doubt)
{
    struct run_builder *run = standard();
    struct ledger_record *record = run_outcome(run, 1, 200);

    record->kind = LEDGER_BEAT; /* the outcome is not there */
    record->client = 0;
    run_absent(run, NULL, 1, 200);
    expect_counts(run, "none", 0);
}
END_TEST

START_TEST(aborted_and_present_is_resurrected)
{
    struct run_builder *run = standard();

    run_outcome(run, 1, 300)->class = LEDGER_ABORTED;
    expect_counts(run, "resurrected", 1);
}
END_TEST

START_TEST(unsent_and_present_is_resurrected)
{
    struct run_builder *run = standard();

    run_present(run, NULL, 1, run_first(run, 1, LEDGER_UNSENT));
    expect_counts(run, "resurrected", 1);
}
END_TEST

START_TEST(duplicate)
{
    struct run_builder *run = standard();

    run_odd(run, NULL, 1, 50, 2, 1, 0);
    expect_counts(run, "duplicate", 1);
}
END_TEST

START_TEST(torn)
{
    struct run_builder *run = standard();

    run_odd(run, NULL, 1, 50, 2, 3, 0);
    expect_counts(run, "torn", 1);
}
END_TEST

START_TEST(wrong_content_is_garbage)
{
    struct run_builder *run = standard();

    run_odd(run, NULL, 1, 50, 1, 1, 1);
    expect_counts(run, "garbage", 1);
}
END_TEST

START_TEST(unknown_token_is_garbage)
{
    struct run_builder *run = standard();

    run_present(run, NULL, 1, 90000);
    run_present(run, NULL, 77, 1);
    expect_counts(run, "garbage", 2);
}
END_TEST

START_TEST(weak_loss_is_no_acked_loss)
{
    struct run_builder *run = standard();
    uint64_t seq = run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS);

    run_outcome(run, 1, seq)->class = LEDGER_WEAK;
    run_absent(run, NULL, 1, seq);
    struct judged judged = run_judge(run, "durability", NULL);
    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_int_eq(judged_number(&judged, "ledger", "weak_lost"), 1);
    ck_assert_int_eq(judged_number(&judged, "ledger", "lost"), 0);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* All sessions run with less than the promise; the tail behind the fork is gone. */
START_TEST(below_the_promise_names_its_cause)
{
    struct run_builder *run = run_standard(&(struct run_plan){.level = LEDGER_LOCAL});
    uint64_t seq = run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS);

    run_outcome(run, 1, seq)->lsn = run_lsn(RUN_FAULT_MS) + 64;
    run_absent(run, NULL, 1, seq);
    struct judged judged = run_judge(run, "durability", NULL);
    ck_assert_int_eq(judged.result.verdict, VERDICT_FAIL);
    ck_assert_msg(strstr(judged.result.text, "synchronous_commit = local") != NULL, "%s",
                  judged.result.text);
    ck_assert_int_eq(judged_number(&judged, "ledger", "below_promise_lost"), 1);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* Nothing lost, but nothing was at stake at the promised level either. */
START_TEST(below_the_promise_is_no_exposure)
{
    expect(run_standard(&(struct run_plan){.level = LEDGER_LOCAL}), VERDICT_INCONCLUSIVE,
           "too little was at stake");
}
END_TEST

START_TEST(local_promise_allows_the_tail)
{
    struct run_builder *run =
        run_standard(&(struct run_plan){.level = LEDGER_LOCAL, .promise = "local"});
    uint64_t seq = run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS);

    run_outcome(run, 1, seq)->lsn = run_lsn(RUN_FAULT_MS) + 64;
    run_absent(run, NULL, 1, seq);
    expect(run, VERDICT_PASS, "lost 1");
}
END_TEST

START_TEST(local_promise_forbids_a_hole)
{
    struct run_builder *run =
        run_standard(&(struct run_plan){.level = LEDGER_LOCAL, .promise = "local"});

    run_absent(run, NULL, 1, 100);
    expect(run, VERDICT_FAIL, "CORRUPTION");
}
END_TEST

START_TEST(level_not_recorded)
{
    struct run_builder *run = standard();

    for (size_t i = 0; i < run->ledgers[0].count; i++)
        if (run->ledgers[0].records[i].kind == LEDGER_SESSION)
            run->ledgers[0].records[i].class = LEDGER_LEVEL_UNKNOWN;
    expect(run, VERDICT_INCONCLUSIVE, "durability in force");
}
END_TEST

/* Its loss is nobody's fault, and what else was weak in truth is not known. */
START_TEST(hidden_warnings_prove_nothing)
{
    struct run_builder *run = standard();
    uint64_t seq = run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS);

    for (size_t i = 0; i < run->ledgers[0].count; i++)
        if (run->ledgers[0].records[i].kind == LEDGER_SESSION &&
            run->ledgers[0].records[i].client == 1)
            run->ledgers[0].records[i].class = LEDGER_LEVEL_UNKNOWN;
    for (size_t i = 0; i < run->ledgers[0].count; i++)
        if (run->ledgers[0].records[i].kind == LEDGER_OUTCOME &&
            run->ledgers[0].records[i].client == 1 &&
            run->ledgers[0].records[i].class == LEDGER_ACKED)
            run->ledgers[0].records[i].class = LEDGER_WEAK;
    run_absent(run, NULL, 1, seq);
    struct judged judged = run_judge(run, "durability", NULL);
    ck_assert_msg(judged.result.verdict == VERDICT_INCONCLUSIVE, "%s", judged.result.text);
    ck_assert_ptr_nonnull(strstr(judged.result.text, "durability in force is not known"));
    ck_assert_int_eq(judged_number(&judged, "ledger", "weak_lost"), 1);
    ck_assert_int_eq(judged_number(&judged, "ledger", "lost"), 0);
    judged_free(&judged);
    run_free(run);
}
END_TEST

static void plant_read(struct run_builder *run, uint64_t seq, uint32_t timeline, uint16_t node,
                       int64_t at_ms)
{
    run_record(run, 0,
               (struct ledger_record){.kind = LEDGER_READ,
                                      .client = 1,
                                      .lsn = RUN_OLD_PROBE,
                                      .seq = seq,
                                      .timeline = timeline,
                                      .node = node,
                                      .done_ns = run_client_ns(at_ms)});
}

/* In doubt, read on the old primary, gone with it: shown before it was replicated. */
START_TEST(exposed_is_counted_apart)
{
    struct run_builder *run = standard();
    uint64_t seq = run_first(run, RUN_OLD_PROBE, LEDGER_IN_DOUBT);

    run_outcome(run, RUN_OLD_PROBE, seq)->lsn = run_lsn(RUN_FAULT_MS) + 64;
    plant_read(run, seq, 1, 0, RUN_FAULT_MS);
    struct judged judged = run_judge(run, "durability", NULL);
    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_int_eq(judged_number(&judged, "ledger", "exposed"), 1);
    ck_assert_int_eq(judged_number(&judged, "ledger", "vanished"), 0);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(read_on_the_final_primary_and_gone)
{
    struct run_builder *run = standard();

    plant_read(run, run_first(run, RUN_OLD_PROBE, LEDGER_IN_DOUBT), 2, 1, 9000);
    expect_counts(run, "vanished", 1);
}
END_TEST

START_TEST(read_on_a_deposed_node_does_not_count)
{
    struct run_builder *run = standard();

    plant_read(run, run_first(run, RUN_OLD_PROBE, LEDGER_IN_DOUBT), 1, 0, 9000);
    struct judged judged = run_judge(run, "durability", NULL);
    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    ck_assert_int_eq(judged_number(&judged, "ledger", "exposed"), 0);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(aborted_and_read)
{
    struct run_builder *run = standard();

    run_outcome(run, RUN_OLD_PROBE, 100)->class = LEDGER_ABORTED;
    run_absent(run, NULL, RUN_OLD_PROBE, 100);
    plant_read(run, 100, 1, 0, 3000);
    expect_counts(run, "vanished", 1);
}
END_TEST

START_TEST(read_of_a_token_that_nobody_wrote)
{
    struct run_builder *run = standard();

    plant_read(run, 77777, 1, 0, 3000);
    expect(run, VERDICT_FAIL, "nobody wrote");
}
END_TEST

START_TEST(idle_cluster)
{
    expect(run_standard(&(struct run_plan){.load_from_ms = 9999}), VERDICT_INCONCLUSIVE,
           "too little was at stake");
}
END_TEST

START_TEST(more_exposure_is_asked_for)
{
    expect_verdict(standard(), "durability", json_pack("{s:i}", "minimum-exposure", 100000),
                   VERDICT_INCONCLUSIVE, "needed 100000");
}
END_TEST

START_TEST(no_fault_needs_no_exposure)
{
    expect(run_standard(&(struct run_plan){.no_fault = true}), VERDICT_PASS, "lost 0");
}
END_TEST

/* Doubled and in doubt: it counts as doubled, and not as present too. */
START_TEST(an_odd_row_counts_once)
{
    struct run_builder *run = standard();

    run_odd(run, NULL, RUN_OLD_PROBE, run_first(run, RUN_OLD_PROBE, LEDGER_IN_DOUBT), 2, 1, 0);
    struct judged judged = run_judge(run, "durability", NULL);
    ck_assert_int_eq(judged_number(&judged, "ledger", "duplicate"), 1);
    ck_assert_int_eq(judged_number(&judged, "ledger", "in_doubt_present"), 0);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* As many rows as it wrote, and one of them twice. */
START_TEST(the_right_number_of_wrong_rows)
{
    struct run_builder *run = standard();

    run_odd(run, NULL, 1, 100, 2, 2, 0);
    expect_counts(run, "torn", 1);
}
END_TEST

/* The client's next position is the very end of the old timeline: it was copied. */
START_TEST(lost_at_the_fork_is_corruption)
{
    struct run_builder *run = standard();
    uint64_t seq = run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS);

    run_outcome(run, 1, seq)->lsn = run_lsn(RUN_FAULT_MS);
    run_absent(run, NULL, 1, seq - 1);
    expect(run, VERDICT_FAIL, "CORRUPTION");
}
END_TEST

/* A position on another timeline bounds nothing, also when it is a lower one. */
START_TEST(a_position_of_another_timeline)
{
    struct run_builder *run = standard();
    uint64_t seq = run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS);
    uint64_t next = seq + 1;

    run_outcome(run, 1, seq)->lsn = run_lsn(RUN_FAULT_MS) + 64;
    run_absent(run, NULL, 1, seq);
    while (run_outcome(run, 1, next)->lsn == 0)
        next++;
    run_outcome(run, 1, next)->lsn = run_lsn(1000);
    expect(run, VERDICT_FAIL, "exactly the tail");
}
END_TEST

/* Without a flush at commit a crash restart loses the end of the same timeline. */
START_TEST(asynchronous_tail_of_a_restart)
{
    struct run_builder *run = run_standard(
        &(struct run_plan){.level = LEDGER_OFF, .promise = "none", .no_failover = true});

    run_absent(run, NULL, 1, run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS));
    expect(run, VERDICT_PASS, "lost 1");
    run = run_standard(
        &(struct run_plan){.level = LEDGER_LOCAL, .promise = "none", .no_failover = true});
    run_absent(run, NULL, 1, run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS));
    expect(run, VERDICT_FAIL, "CORRUPTION");
}
END_TEST

START_TEST(lost_on_a_branch)
{
    struct run_builder *run = standard();

    run_outcome(run, 1, 100)->timeline = 9;
    run_absent(run, NULL, 1, 100);
    expect(run, VERDICT_FAIL, "no ancestor of timeline 2: two writers");
}
END_TEST

START_TEST(lost_without_a_position)
{
    struct run_builder *run =
        run_standard(&(struct run_plan){.level = LEDGER_LOCAL, .promise = "local"});
    uint64_t seq = run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS);

    run_outcome(run, 1, seq)->lsn = 0;
    run_absent(run, NULL, 1, seq);
    expect(run, VERDICT_FAIL, "1 of them have no recorded position");
}
END_TEST

/* What is gone was committed up to 50 ms before the fault. */
START_TEST(recovery_point_is_that_of_the_oldest_loss)
{
    struct run_builder *run = standard();
    uint64_t seq = run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS);

    for (uint64_t back = 0; back < 5; back++) {
        run_outcome(run, 1, seq - back)->lsn = run_lsn(RUN_FAULT_MS) + 640 - back * 64;
        run_absent(run, NULL, 1, seq - back);
    }
    struct judged judged = run_judge(run, "durability", NULL);
    const json_t *rpo = json_object_get(judged.result.details, "rpo");
    ck_assert_double_eq_tol(json_number_value(json_object_get(rpo, "ms")), 46, 3);
    ck_assert_int_eq(json_number(rpo, "transactions", -1), 5);
    ck_assert_int_eq(json_number(rpo, "bytes", -1), 640);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* Under the promise "local", too, an acknowledgement may be worth less than promised. */
START_TEST(below_a_local_promise)
{
    struct run_builder *run =
        run_standard(&(struct run_plan){.level = LEDGER_OFF, .promise = "local"});
    uint64_t seq = run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS);

    run_outcome(run, 1, seq)->lsn = run_lsn(RUN_FAULT_MS) + 64;
    run_absent(run, NULL, 1, seq);
    expect(run, VERDICT_FAIL, "synchronous_commit = off");
}
END_TEST

START_TEST(nothing_was_acknowledged)
{
    struct run_builder *run = run_standard(&(struct run_plan){.no_fault = true});

    for (size_t ledger = 0; ledger < 2; ledger++)
        for (size_t i = 0; i < run->ledgers[ledger].count; i++)
            if (run->ledgers[ledger].records[i].class == LEDGER_ACKED &&
                run->ledgers[ledger].records[i].kind == LEDGER_OUTCOME)
                run->ledgers[ledger].records[i].class = LEDGER_IN_DOUBT;
    expect(run, VERDICT_INCONCLUSIVE, "nothing was acknowledged");
}
END_TEST

/* As much as was asked for is enough, one less is not. */
START_TEST(exposure_at_the_minimum)
{
    struct run_builder *run = standard();
    struct judged judged = run_judge(run, "durability", NULL);
    const json_t *list = json_object_get(judged.result.details, "exposure");
    int64_t acked = json_number(json_array_get(list, 0), "acked_last_second", -1);

    ck_assert_int_gt(acked, 100);
    judged_free(&judged);
    run_free(run);
    expect_verdict(standard(), "durability",
                   json_pack("{s:I}", "minimum-exposure", (json_int_t) acked), VERDICT_PASS, NULL);
    expect_verdict(standard(), "durability",
                   json_pack("{s:I}", "minimum-exposure", (json_int_t) acked + 1),
                   VERDICT_INCONCLUSIVE, "too little was at stake");
}
END_TEST

TEST_MAIN("check durability", 60, NULL, NULL, whole_run_passes, lost_tail, lost_is_counted_exactly,
          lost_before_the_fork_is_corruption, lost_on_the_final_timeline_is_corruption,
          in_doubt_may_be_there_or_not, intent_without_outcome_is_in_doubt,
          aborted_and_present_is_resurrected, unsent_and_present_is_resurrected, duplicate, torn,
          wrong_content_is_garbage, unknown_token_is_garbage, weak_loss_is_no_acked_loss,
          below_the_promise_names_its_cause, below_the_promise_is_no_exposure,
          local_promise_allows_the_tail, local_promise_forbids_a_hole, level_not_recorded,
          hidden_warnings_prove_nothing, exposed_is_counted_apart,
          read_on_the_final_primary_and_gone, read_on_a_deposed_node_does_not_count,
          aborted_and_read, read_of_a_token_that_nobody_wrote, idle_cluster,
          more_exposure_is_asked_for, no_fault_needs_no_exposure, an_odd_row_counts_once,
          the_right_number_of_wrong_rows, lost_at_the_fork_is_corruption,
          a_position_of_another_timeline, asynchronous_tail_of_a_restart, lost_on_a_branch,
          lost_without_a_position, recovery_point_is_that_of_the_oldest_loss, below_a_local_promise,
          nothing_was_acknowledged, exposure_at_the_minimum)
