/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <string.h>

#include "lib/json.h"
#include "tests/support/run_judge.h"
#include "tests/support/suite.h"

static void expect(struct run_builder *run, enum verdict verdict, const char *part)
{
    expect_verdict(run, "replication", NULL, verdict, part);
}

static struct run_builder *standard(void)
{
    return run_standard(&(struct run_plan){0});
}

static json_t *standby(struct run_builder *run, const char *node)
{
    json_t *list = json_object_get(run_find(run, "replication"), "standbys");

    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_text(json_array_get(list, i), "node", ""), node) == 0)
            return json_array_get(list, i);
    ck_abort_msg("no standby %s", node);
}

START_TEST(whole)
{
    struct run_builder *run = standard();
    struct judged judged = run_judge(run, "replication", NULL);

    ck_assert_msg(judged.result.verdict == VERDICT_PASS, "%s", judged.result.text);
    /* seen waiting at 6780 ms, before the first acknowledgement */
    ck_assert_double_eq_tol(
        json_number_value(json_object_get(judged.result.details, "degraded_ms")), 0, 0.001);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(degraded_until_the_quorum_is_back)
{
    struct run_builder *run = standard();
    json_t *events = run->journal;

    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *event = json_array_get(events, i);
        if (strcmp(json_text(event, "event", ""), "quorum-wait") == 0) {
            json_object_set_new(event, "ack_ns", json_integer(run_node_ns("n2", 9000)));
            break;
        }
    }
    struct judged judged = run_judge(run, "replication", NULL);
    ck_assert_double_eq_tol(
        json_number_value(json_object_get(judged.result.details, "degraded_ms")), 9000 - 6803, 3);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(a_receiver_that_does_not_stream)
{
    struct run_builder *run = standard();

    json_object_set_new(standby(run, "n3"), "streaming", json_false());
    expect(run, VERDICT_FAIL, "the receiver of n3 does not stream");
}
END_TEST

START_TEST(the_wrong_timeline)
{
    struct run_builder *run = standard();

    json_object_set_new(standby(run, "n1"), "timeline", json_integer(1));
    expect(run, VERDICT_FAIL, "n1 follows timeline 1");
}
END_TEST

START_TEST(behind_by_its_own_word)
{
    struct run_builder *run = standard();

    json_object_set_new(standby(run, "n3"), "own_receive_lsn", json_string("0/3FFFFF0"));
    json_object_set_new(standby(run, "n3"), "own_replay_lsn", json_string("0/3FFFFF0"));
    expect(run, VERDICT_FAIL, "n3 is 16 bytes behind");
}
END_TEST

/* A restarted standby forgets what it received, not what it replayed. */
START_TEST(received_goes_back_after_a_restart)
{
    struct run_builder *run = standard();

    json_object_set_new(standby(run, "n3"), "own_receive_lsn", json_string("0/3000000"));
    expect(run, VERDICT_PASS, NULL);
}
END_TEST

START_TEST(no_position_of_its_own)
{
    struct run_builder *run = standard();

    json_object_del(standby(run, "n3"), "own_receive_lsn");
    json_object_del(standby(run, "n3"), "own_replay_lsn");
    expect(run, VERDICT_INCONCLUSIVE, "no position");
}
END_TEST

START_TEST(a_standby_was_not_asked)
{
    struct run_builder *run = standard();

    json_object_set_new(standby(run, "n3"), "node", json_string("n9"));
    expect(run, VERDICT_INCONCLUSIVE, "n3 was not asked");
}
END_TEST

START_TEST(empty_sync_set)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find(run, "replication"), "sync_set", json_string(""));
    expect(run, VERDICT_FAIL, "waits for no standby");
}
END_TEST

START_TEST(too_few_synchronous_standbys)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find(run, "replication"), "sync_set", json_string("ANY 2 (n1, n3)"));
    json_object_set_new(standby(run, "n3"), "sync_state", json_string("async"));
    expect(run, VERDICT_FAIL, "1 of 2 synchronous standbys");
}
END_TEST

START_TEST(a_commit_that_did_not_wait)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find(run, "quorum-wait"), "waited", json_false());
    expect(run, VERDICT_FAIL, "did not wait for the quorum");
}
END_TEST

START_TEST(no_commit_was_watched)
{
    struct run_builder *run = standard();

    run_drop(run, "quorum-wait");
    expect(run, VERDICT_INCONCLUSIVE, "no commit was watched");
}
END_TEST

START_TEST(an_inactive_slot)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find(run, "replication"), "slots",
                        json_pack("[{s:s, s:b}]", "name", "n3", "active", 0));
    expect(run, VERDICT_FAIL, "slot n3 is not active");
}
END_TEST

START_TEST(a_slot_of_somebody_else)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find(run, "replication"), "slots",
                        json_pack("[{s:s, s:b}, {s:s, s:b}]", "name", "n3", "active", 1, "name",
                                  "reporting", "active", 0));
    expect(run, VERDICT_PASS, NULL);
}
END_TEST

START_TEST(no_promise_of_a_quorum)
{
    struct run_builder *run = run_standard(&(struct run_plan){.promise = "none"});

    json_object_set_new(run_find(run, "replication"), "sync_set", json_string(""));
    run_drop(run, "quorum-wait");
    expect(run, VERDICT_PASS, NULL);
}
END_TEST

START_TEST(not_recorded)
{
    struct run_builder *run = standard();

    run_drop(run, "replication");
    expect(run, VERDICT_INCONCLUSIVE, "not recorded");
}
END_TEST

START_TEST(another_node_was_watched)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find(run, "quorum-wait"), "node", json_string("n3"));
    expect(run, VERDICT_INCONCLUSIVE, "was on n3, the primary is n2");
}
END_TEST

/* 4 GiB of log are one unit of the upper half. */
START_TEST(positions_beyond_four_gibibytes)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find(run, "replication"), "lsn", json_string("1/0"));
    for (size_t i = 0; i < 2; i++) {
        const char *node = i == 0 ? "n1" : "n3";
        const char *lsn = i == 0 ? "1/0" : "0/FFFFFFFF";
        json_object_set_new(standby(run, node), "own_receive_lsn", json_string(lsn));
        json_object_set_new(standby(run, node), "own_replay_lsn", json_string(lsn));
    }
    expect(run, VERDICT_FAIL, "n3 is 1 bytes behind");
}
END_TEST

TEST_MAIN("check replication", 30, NULL, NULL, whole, degraded_until_the_quorum_is_back,
          a_receiver_that_does_not_stream, the_wrong_timeline, behind_by_its_own_word,
          received_goes_back_after_a_restart, no_position_of_its_own, a_standby_was_not_asked,
          empty_sync_set, too_few_synchronous_standbys, a_commit_that_did_not_wait,
          no_commit_was_watched, an_inactive_slot, a_slot_of_somebody_else, no_promise_of_a_quorum,
          not_recorded, another_node_was_watched, positions_beyond_four_gibibytes)
