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

START_TEST(standby_lacks_a_token)
{
    struct run_builder *run = standard();

    run_absent(run, "n3", 1, 100);
    expect(run, VERDICT_FAIL, "n3 lacks 1 tokens of the primary, 1 acknowledged");
}
END_TEST

START_TEST(standby_holds_more)
{
    struct run_builder *run = standard();

    run_present(run, "n1", RUN_OLD_PROBE, run_first(run, RUN_OLD_PROBE, LEDGER_IN_DOUBT));
    expect(run, VERDICT_FAIL, "n1 holds 1 tokens that the primary does not hold");
}
END_TEST

START_TEST(standby_present_set_is_cut)
{
    struct run_builder *run = standard();

    run->present[2].cut = true;
    expect(run, VERDICT_INCONCLUSIVE, "cut off");
}
END_TEST

START_TEST(primary_present_set_is_cut)
{
    struct run_builder *run = standard();

    run->present[1].cut = true;
    expect(run, VERDICT_INCONCLUSIVE, "cut off");
}
END_TEST

START_TEST(primary_present_set_is_missing)
{
    struct run_builder *run = standard();

    run_drop(run, "present");
    expect(run, VERDICT_INCONCLUSIVE, "not read");
}
END_TEST

START_TEST(standby_was_not_read)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "present", "node", "n3"), "node", json_string("n9"));
    expect(run, VERDICT_INCONCLUSIVE, "n3");
}
END_TEST

START_TEST(present_event_contradicts_its_file)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "present", "node", "n2"), "tokens", json_integer(3));
    expect(run, VERDICT_INCONCLUSIVE, "its event says 3");
}
END_TEST

START_TEST(scans_disagree)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "present", "node", "n2"), "agree", json_false());
    expect(run, VERDICT_FAIL, "sequential and index scan");
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

START_TEST(ledger_is_missing)
{
    struct run_builder *run = standard();

    run->ledgers[1].missing = true;
    expect(run, VERDICT_INCONCLUSIVE, "2 workers ran and 1 ledgers");
}
END_TEST

START_TEST(ledger_is_torn)
{
    struct run_builder *run = standard();

    run->ledgers[0].torn = true;
    expect(run, VERDICT_INCONCLUSIVE, "cut off at record");
}
END_TEST

START_TEST(ledger_has_no_end)
{
    struct run_builder *run = standard();

    run->ledgers[0].count--;
    expect(run, VERDICT_INCONCLUSIVE, "has no end");
}
END_TEST

/* The worker was killed and that was reported: what its file says still counts. */
START_TEST(dead_worker_is_no_hole)
{
    struct run_builder *run = standard();

    run->ledgers[0].count--;
    run->ledgers[0].torn = true;
    json_object_set_new(run_find(run, "load.end"), "complete", json_false());
    expect(run, VERDICT_PASS, NULL);
}
END_TEST

static void report_ledgers(struct run_builder *run, bool first_complete, bool second_complete)
{
    json_t *end = run_find(run, "load.end");

    json_object_set_new(end, "complete", json_boolean(first_complete && second_complete));
    json_object_set_new(end, "ledgers",
                        json_pack("[{s:s, s:s, s:b}, {s:s, s:s, s:b}]", "node", "c1", "file",
                                  "c1-worker-0.ledger", "complete", first_complete, "node", "c1",
                                  "file", "c1-worker-1.ledger", "complete", second_complete));
}

/* One worker died: the ledgers of the others must end in order all the same. */
START_TEST(another_worker_died)
{
    struct run_builder *run = standard();

    run->ledgers[0].count--;
    report_ledgers(run, false, true);
    expect(run, VERDICT_PASS, NULL);
    run = standard();
    run->ledgers[0].count--;
    report_ledgers(run, true, false);
    expect(run, VERDICT_INCONCLUSIVE, "c1-worker-0.ledger has no end");
    run = standard();
    run->ledgers[0].torn = true;
    report_ledgers(run, true, false);
    expect(run, VERDICT_INCONCLUSIVE, "c1-worker-0.ledger is cut off");
}
END_TEST

/* As many files as workers, but not the ones that were written. */
START_TEST(a_ledger_of_the_list_is_missing)
{
    struct run_builder *run = standard();
    json_t *end = run_find(run, "load.end");

    report_ledgers(run, true, true);
    json_object_set_new(json_array_get(json_object_get(end, "ledgers"), 1), "file",
                        json_string("c2-worker-0.ledger"));
    expect(run, VERDICT_INCONCLUSIVE, "c2-worker-0.ledger is not here");
}
END_TEST

START_TEST(dead_worker_may_have_sent_what_it_reserved)
{
    struct run_builder *run = standard();
    uint64_t seq = run->sequences[1] + 3;

    run->ledgers[0].records[run->ledgers[0].count - 1] = (struct ledger_record){
        .kind = LEDGER_RESERVE, .client = 1, .seq = seq - 2, .lsn = seq + 100};
    run_present(run, NULL, 1, seq);
    json_object_set_new(run_find(run, "load.end"), "complete", json_false());
    expect(run, VERDICT_PASS, NULL);
}
END_TEST

START_TEST(gap_between_tokens)
{
    struct run_builder *run = standard();

    for (size_t i = 0; i < run->ledgers[0].count; i++)
        if (run->ledgers[0].records[i].client == 1 && run->ledgers[0].records[i].seq == 42)
            run->ledgers[0].records[i].client = 0;
    expect(run, VERDICT_INCONCLUSIVE, "client 1: 1 tokens from 42 on have no record");
}
END_TEST

START_TEST(two_outcomes_of_one_token)
{
    struct run_builder *run = standard();

    run_outcome(run, 1, 43)->seq = 42;
    expect(run, VERDICT_INCONCLUSIVE, "contradict");
}
END_TEST

START_TEST(impossible_sequence_takes_no_memory)
{
    struct run_builder *run = standard();

    run_outcome(run, 1, 43)->seq = UINT64_C(1) << 60;
    expect(run, VERDICT_INCONCLUSIVE, "impossible");
}
END_TEST

START_TEST(ledger_of_another_run)
{
    struct run_builder *run = standard();

    strcpy(run->ledgers[1].header.run, "run-2");
    expect(run, VERDICT_INCONCLUSIVE, "belongs to run run-2");
}
END_TEST

START_TEST(orchestrator_died)
{
    struct run_builder *run = standard();

    run_drop(run, "run.end");
    expect(run, VERDICT_INCONCLUSIVE, "no end");
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
          aborted_and_read, read_of_a_token_that_nobody_wrote, standby_lacks_a_token,
          standby_holds_more, standby_present_set_is_cut, primary_present_set_is_cut,
          primary_present_set_is_missing, standby_was_not_read, present_event_contradicts_its_file,
          scans_disagree, idle_cluster, more_exposure_is_asked_for, no_fault_needs_no_exposure,
          ledger_is_missing, ledger_is_torn, ledger_has_no_end, dead_worker_is_no_hole,
          another_worker_died, a_ledger_of_the_list_is_missing,
          dead_worker_may_have_sent_what_it_reserved, gap_between_tokens, two_outcomes_of_one_token,
          impossible_sequence_takes_no_memory, ledger_of_another_run, orchestrator_died)
