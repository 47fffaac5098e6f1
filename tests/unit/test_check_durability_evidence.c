/* SPDX-License-Identifier: MIT */
/* What durability needs to know: whole ledgers, and present sets of every node that fit them. */
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

/* A worker that ended in order sent nothing beyond its last record. */
START_TEST(reserved_by_a_worker_that_ended)
{
    struct run_builder *run = standard();
    uint64_t seq = run->sequences[1] + 3;

    run_record(run, 0,
               (struct ledger_record){
                   .kind = LEDGER_RESERVE, .client = 1, .seq = seq - 2, .lsn = seq + 100});
    run_present(run, NULL, 1, seq);
    expect(run, VERDICT_FAIL, "1 garbage");
}
END_TEST

static void present_member(struct run_builder *run, const char *node, const char *member,
                           json_t *value)
{
    json_object_set_new(run_find_where(run, "present", "node", node), member, value);
}

/* A present set that is not what its event says proves nothing. */
START_TEST(present_set_of_something_else)
{
    struct run_builder *run = standard();

    run->present[2].run = "run-0";
    expect(run, VERDICT_INCONCLUSIVE, "the present set of n3 belongs to run run-0");
    run = standard();
    present_member(run, "n3", "file", json_string("present-n1.tokens"));
    expect(run, VERDICT_INCONCLUSIVE, "the present set of n3 was read on n1");
    run = standard();
    run->present[2].timeline = 1;
    expect(run, VERDICT_INCONCLUSIVE, "the present set of n3 was read on timeline 1");
    run = standard();
    present_member(run, "n2", "role", json_string("standby"));
    present_member(run, "n3", "role", json_string("primary"));
    expect(run, VERDICT_INCONCLUSIVE, "was read in recovery, its role was primary");
}
END_TEST

/* The primary was read before its last promotion. */
START_TEST(primary_read_on_an_older_timeline)
{
    struct run_builder *run = standard();

    run->present[1].timeline = 1;
    present_member(run, "n2", "timeline", json_integer(1));
    expect(run, VERDICT_INCONCLUSIVE, "timeline 1, and the final primary is n2, timeline 2");
}
END_TEST

START_TEST(standby_is_torn_in_another_way)
{
    struct run_builder *run = standard();

    run_odd(run, NULL, 1, 100, 2, 3, 0);
    struct judged judged = run_judge(run, "durability", NULL);
    ck_assert_int_eq(judged_number(&judged, "ledger", "standby_differences"), 0);
    judged_free(&judged);
    run_free(run);
    run = standard();
    run_odd(run, NULL, 1, 100, 2, 3, 0);
    run_odd(run, "n3", 1, 100, 1, 3, 0);
    judged = run_judge(run, "durability", NULL);
    ck_assert_int_eq(judged_number(&judged, "ledger", "standby_differences"), 1);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(a_client_of_two_ledgers)
{
    struct run_builder *run = standard();

    run_record(run, 1, (struct ledger_record){.kind = LEDGER_MISSED, .client = 1, .seq = 1});
    expect(run, VERDICT_INCONCLUSIVE, "stands in two ledgers");
}
END_TEST

TEST_MAIN("check durability, evidence", 60, NULL, NULL, standby_lacks_a_token, standby_holds_more,
          standby_present_set_is_cut, primary_present_set_is_cut, primary_present_set_is_missing,
          standby_was_not_read, present_event_contradicts_its_file, scans_disagree,
          ledger_is_missing, ledger_is_torn, ledger_has_no_end, dead_worker_is_no_hole,
          another_worker_died, a_ledger_of_the_list_is_missing,
          dead_worker_may_have_sent_what_it_reserved, gap_between_tokens, two_outcomes_of_one_token,
          impossible_sequence_takes_no_memory, ledger_of_another_run, orchestrator_died,
          reserved_by_a_worker_that_ended, present_set_of_something_else,
          primary_read_on_an_older_timeline, standby_is_torn_in_another_way,
          a_client_of_two_ledgers)
