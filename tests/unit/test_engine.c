/* SPDX-License-Identifier: MIT */
/*
 * What a run decides by itself, without a cluster: whether a scenario could not be done here, which
 * failover it still waits for, which faults of a run that died may be active, and that a step ends
 * of which one node is not permitted.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults/fault.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/command.h"
#include "orchestrator/engine_state.h"
#include "orchestrator/record.h"
#include "tests/support/pki.h"
#include "tests/support/suite.h"

enum { WAIT_MS = 5000, NOBODY_PORT = 1 };

/* ---- could it be done here? ---- */

START_TEST(refused_for_want_of_power)
{
    struct engine engine = {.outcome = "refused", .refused_power = true};

    ck_assert(engine_unsupported(&engine, EXIT_REFUSED));
    ck_assert(!engine_unsupported(&engine, EXIT_NOT_RECOVERED));
    engine.refused_power = false;
    ck_assert(!engine_unsupported(&engine, EXIT_REFUSED));
}
END_TEST

START_TEST(only_inconclusive_is_skipped)
{
    static const int others[] = {EXIT_PASS, EXIT_FAIL, EXIT_REFUSED, EXIT_ABORTED,
                                 EXIT_NOT_RECOVERED};
    struct engine engine = {.outcome = "completed", .skipped = true};

    ck_assert(engine_unsupported(&engine, EXIT_INCONCLUSIVE));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ck_assert_msg(!engine_unsupported(&engine, others[i]), "exit code %d", others[i]);
}
END_TEST

START_TEST(something_was_done_or_failed)
{
    struct injection second = {0}, first = {.next = &second};
    struct engine engine = {.outcome = "completed", .skipped = true, .injections = &first};

    ck_assert(engine_unsupported(&engine, EXIT_INCONCLUSIVE));
    second.failed = true; /* the other one was skipped */
    ck_assert(!engine_unsupported(&engine, EXIT_INCONCLUSIVE));
    second = (struct injection){.sent = true};
    ck_assert(!engine_unsupported(&engine, EXIT_INCONCLUSIVE));
    second = (struct injection){0};
    engine.outcome = "aborted";
    ck_assert(!engine_unsupported(&engine, EXIT_INCONCLUSIVE));
    engine.outcome = "completed";
    engine.skipped = false; /* inconclusive for another reason */
    ck_assert(!engine_unsupported(&engine, EXIT_INCONCLUSIVE));
}
END_TEST

/* ---- which failover is waited for? ---- */

START_TEST(the_last_failover_is_waited_for)
{
    struct load_node loads[2] = {{.timeline = 1, .last_ack_ns = 1},
                                 {.timeline = 1, .last_ack_ns = 1}};
    struct engine engine = {.loads = loads, .load_count = 2, .left_timeline = 1};

    load_expect_move(&engine, 1);
    ck_assert(!load_moved(&engine));
    loads[1].timeline = 2;
    ck_assert_msg(load_moved(&engine), "the first failover");
    load_expect_move(&engine, 2);
    ck_assert_msg(!load_moved(&engine), "the first failover is not the second");
    loads[0].timeline = 2;
    ck_assert_msg(!load_moved(&engine), "a client that comes late to the first one");
    loads[0].timeline = 3;
    ck_assert_msg(load_moved(&engine), "the second failover");
}
END_TEST

/* The load may tell it late, and there may be no primary to look at. */
START_TEST(the_newest_timeline_counts)
{
    struct load_node load = {.timeline = 1, .last_ack_ns = 1};
    struct engine engine = {.loads = &load, .load_count = 1, .left_timeline = 1};

    load_expect_move(&engine, 2); /* the look is newer */
    load.timeline = 2;
    ck_assert(!load_moved(&engine));
    load.timeline = 3;
    ck_assert(load_moved(&engine));
    load_expect_move(&engine, 0); /* nobody writes: what the load said last */
    ck_assert(!load_moved(&engine));
    load.timeline = 4;
    ck_assert(load_moved(&engine));
}
END_TEST

/* ---- what of a run that died may be active? ---- */

START_TEST(only_an_undo_ends_a_fault)
{
    OWNED_JSON json_t *events =
        json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "event", "fault.inject",
                  "uid", "u-1", "event", "fault.failed", "uid", "u-1", "event", "fault.failed",
                  "uid", "u-2", "event", "fault.undone", "uid", "u-2");
    const struct record record = {.events = events};

    ck_assert_msg(engine_may_be_active(&record, "u-1"), "it failed, but may have begun");
    ck_assert(!engine_may_be_active(&record, "u-2"));
    ck_assert(engine_may_be_active(&record, "u-3"));
}
END_TEST

/* ---- a step of several nodes ---- */

static char folder[64];
static struct topology_node nodes[] = {
    {.name = "n1", .address = "127.0.0.1", .agent_port = NOBODY_PORT, .roles = ROLE_DATABASE},
    {.name = "n2", .address = "127.0.0.1", .agent_port = NOBODY_PORT, .roles = ROLE_DATABASE},
    {.name = "p1", .address = "127.0.0.1", .agent_port = NOBODY_PORT, .roles = ROLE_POWER}};
static const char *const command[] = {"true", NULL};
static struct topology topology = {
    .name = "t", .node_count = 3, .nodes = nodes, .power = {command, command, command}};
static const struct engine_options options;
static const struct scenario scenario;
static struct engine engine;

static void setup(void)
{
    const struct cluster_options own = {.run = "r-1"};
    struct error err = {0};

    signal(SIGPIPE, SIG_IGN);
    test_pki_new();
    topology.control.ca = test_pki_path("ca.crt");
    topology.control.certificate = test_pki_path("control.crt");
    topology.control.key = test_pki_path("control.key");
    strcpy(folder, "/tmp/ordeal-engine-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    engine = (struct engine){.options = &options,
                             .topology = &topology,
                             .scenario = &scenario,
                             .arena = arena_new(),
                             .run = "r-1",
                             .prefix = "e"};
    ck_assert_msg(journal_open(folder, NULL, NULL, &engine.journal, &err) == STATUS_OK, "%s",
                  err.message);
    ck_assert_msg(cluster_new(&topology, &own, &engine.cluster, &err) == STATUS_OK, "%s",
                  err.message);
}

static void teardown(void)
{
    char path[128];

    journal_leave_loop(engine.journal);
    cluster_free(engine.cluster);
    for (struct injection *each = engine.injections; each != NULL; each = each->next) {
        json_decref(each->params);
        json_decref(each->witness);
        json_decref(each->standbys);
    }
    journal_close(engine.journal);
    arena_free(engine.arena);
    snprintf(path, sizeof path, "%s/journal.ndjson", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/schedule.txt", folder);
    unlink(path);
    rmdir(folder);
    test_pki_remove();
}

static bool has_ended(void *argument)
{
    const struct step_run *run = argument;

    return run->state == STEP_ENDED;
}

/* n1 has said yes; nobody answers for n2, which is the last answer that the step waits for. */
START_TEST(one_node_is_not_permitted)
{
    const struct step step = {
        .name = "crash", .fault = fault_find("node.crash"), .expect_failover = "yes"};
    struct step_run run = {
        .engine = &engine, .step = &step, .state = STEP_RUNNING, .open = 2, .asking = 1};
    struct injection able = {.run = &run,
                             .uid = "e-s1-1",
                             .node = &nodes[0],
                             .agent = &nodes[2],
                             .params = json_object(),
                             .witness = json_array(),
                             .standbys = json_array(),
                             .timeline = 7,
                             .able = true};
    const struct ha_state state = {0};
    struct error err = {0};

    ck_assert_ptr_nonnull(step.fault);
    engine.injections = &able;
    injection_start(&run, &nodes[1], json_object(), &state);
    ck_assert_msg(cluster_wait(engine.cluster, has_ended, &run, deadline_in_ms(WAIT_MS), &err) ==
                      STATUS_OK,
                  "%zu open, %zu asking: %s", run.open, run.asking, err.message);
    ck_assert_uint_eq(run.asking, 0);
    ck_assert_msg(able.sent, "the node that can do it was left out");
    ck_assert_uint_eq(engine.left_timeline, 7);
    ck_assert(engine.injections != &able && engine.injections->failed);
    engine.injections->next = NULL; /* that one is not on the heap */
    json_decref(able.params);
    json_decref(able.witness);
    json_decref(able.standbys);
}
END_TEST

/* ---- all ---- */

int main(void)
{
    const TTest *const plain[] = {refused_for_want_of_power,    only_inconclusive_is_skipped,
                                  something_was_done_or_failed, the_last_failover_is_waited_for,
                                  the_newest_timeline_counts,   only_an_undo_ends_a_fault};
    Suite *suite = suite_create("engine");
    TCase *decisions = tcase_create("decisions"), *steps = tcase_create("steps");

    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        tcase_add_test(decisions, plain[i]);
    tcase_add_checked_fixture(steps, setup, teardown);
    tcase_set_timeout(steps, 30);
    tcase_add_test(steps, one_node_is_not_permitted);
    suite_add_tcase(suite, decisions);
    suite_add_tcase(suite, steps);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
