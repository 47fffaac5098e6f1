/* SPDX-License-Identifier: MIT */
/*
 * Faults through a real agent on a real PostgreSQL: injected, seen, undone; and what happens when
 * orchestrator, agent or guardian are gone before that.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg_processes.h"
#include "tests/support/agent_fixture.h"
#include "tests/support/suite.h"
#include "tests/support/throwaway_postgres.h"

enum { LEASE_MS = 1000, HOLD_MS = 60000, PATIENCE_MS = 10000 };

static struct throwaway server;
static struct agent_peer *peer;

static void open_session(const char *run)
{
    json_decref(agent_call(peer, "session.open", agent_session(run, LEASE_MS, server.data)));
}

static void setup(void)
{
    throwaway_start(&server);
    agent_fixture_start();
    peer = agent_peer_new("control");
    open_session("run-1");
}

static void teardown(void)
{
    agent_peer_free(peer);
    agent_fixture_stop();
    throwaway_stop(&server);
}

static json_t *order(const char *uid, const char *fault, const char *process, int hold_ms)
{
    return json_pack("{s:s, s:s, s:s, s:{s:s}, s:i}", "run", "run-1", "uid", uid, "fault", fault,
                     "params", "process", process, "hold_ms", hold_ms);
}

static json_t *named(const char *uid)
{
    return json_pack("{s:s, s:s}", "run", "run-1", "uid", uid);
}

static json_t *freeze(const char *uid)
{
    return agent_call(peer, "fault.inject", order(uid, "process.freeze", "everything", HOLD_MS));
}

static const char *effect_of(const json_t *result)
{
    return json_text(json_object_get(result, "effect"), "state", "");
}

/* Stopped processes of the server, from the kernel. */
static size_t stopped(size_t *ret_all)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes list = {0};
    struct error err;
    size_t count = 0;

    ck_assert_int_eq(pg_processes_list(arena, server.data, &list, &err), STATUS_OK);
    for (size_t i = 0; i < list.count; i++)
        count += process_state(list.items[i].id) == 'T';
    if (ret_all != NULL)
        *ret_all = list.count;
    return count;
}

static void expect_frozen(void)
{
    size_t all = 0;

    ck_assert_uint_eq(stopped(&all), all);
    ck_assert_uint_gt(all, 3);
}

static void await_thawed(void)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);

    while (stopped(NULL) > 0) {
        ck_assert_msg(!deadline_passed(deadline_ns), "%zu processes are still stopped\n%s",
                      stopped(NULL), agent_fixture_log());
        poll(NULL, 0, 5);
    }
}

static size_t open_faults(void)
{
    OWNED_JSON json_t *list = agent_call(peer, "fault.list", NULL);

    return json_array_size(json_object_get(list, "faults"));
}

static void come_back(void)
{
    agent_peer_free(peer);
    peer = agent_peer_new("control");
    open_session("run-1");
}

/* --- the usual life -------------------------------------------------------------------------- */

START_TEST(a_freeze_is_seen_and_undone)
{
    int64_t before_ns = clock_boot_ns();
    OWNED_JSON json_t *injected = freeze("f-1");

    expect_frozen();
    ck_assert_str_eq(effect_of(injected), "active");
    int64_t f0_ns = json_number(injected, "f0_ns", 0), f1_ns = json_number(injected, "f1_ns", 0);
    ck_assert(before_ns < f0_ns && f0_ns < f1_ns && f1_ns < clock_boot_ns());
    ck_assert(json_is_object(json_object_get(injected, "record")));
    OWNED_JSON json_t *seen = agent_call(peer, "fault.observe", json_pack("{s:s}", "uid", "f-1"));
    ck_assert_str_eq(json_text(seen, "state", ""), "active");
    OWNED_JSON json_t *beat = agent_call(peer, "heartbeat", json_pack("{s:s}", "run", "run-1"));
    const json_t *fault = json_array_get(json_object_get(beat, "faults"), 0);
    ck_assert_str_eq(json_text(fault, "uid", ""), "f-1");
    ck_assert_str_eq(json_text(fault, "fault", ""), "process.freeze");
    ck_assert_str_eq(json_text(fault, "state", ""), "injected");
    OWNED_JSON json_t *undone = agent_call(peer, "fault.undo", named("f-1"));
    ck_assert_uint_eq(stopped(NULL), 0);
    ck_assert_str_eq(json_text(undone, "state", ""), "absent");
    ck_assert_str_eq(json_text(undone, "by", ""), "agent");
    ck_assert_int_gt(json_number(undone, "undone_ns", 0), f1_ns);
    ck_assert_uint_eq(open_faults(), 0);
}
END_TEST

START_TEST(asking_twice_changes_nothing)
{
    OWNED_JSON json_t *first = freeze("f-1");
    OWNED_JSON json_t *second = freeze("f-1");

    ck_assert(json_equal(first, second));
    ck_assert_uint_eq(open_faults(), 1);
    OWNED_JSON json_t *undone = agent_call(peer, "fault.undo", named("f-1"));
    OWNED_JSON json_t *again = agent_call(peer, "fault.undo", named("f-1"));
    ck_assert_int_eq(json_number(undone, "undone_ns", 0), json_number(again, "undone_ns", 1));
    ck_assert_str_eq(json_text(again, "state", ""), "absent");
    OWNED_JSON json_t *third = freeze("f-1"); /* the old answer, no new fault */
    ck_assert(json_equal(first, third));
    ck_assert_uint_eq(stopped(NULL), 0);
}
END_TEST

START_TEST(faults_that_exclude_each_other_are_refused)
{
    json_decref(freeze("f-1"));
    ck_assert_str_eq(
        agent_refusal(peer, "fault.inject", order("f-2", "process.freeze", "walwriter", HOLD_MS)),
        "conflict: guardian: process.freeze excludes process.freeze, which is injected (f-1)");
    ck_assert_uint_eq(open_faults(), 1);
    json_decref(agent_call(peer, "fault.undo", named("f-1")));
}
END_TEST

START_TEST(what_holds_needs_an_end)
{
    ck_assert_str_eq(
        agent_refusal(peer, "fault.inject", order("f-1", "process.freeze", "walwriter", 0)),
        "invalid: process.freeze holds until it is undone and needs hold_ms");
    const char *refusal =
        agent_refusal(peer, "fault.inject", order("f-1", "process.freeze", "kernel", HOLD_MS));
    ck_assert_msg(strncmp(refusal, "invalid: fault process.freeze: ", 31) == 0, "%s", refusal);
    ck_assert_uint_eq(stopped(NULL), 0);
}
END_TEST

START_TEST(a_kill_is_over_at_once)
{
    OWNED_JSON json_t *killed =
        agent_call(peer, "fault.inject", order("f-1", "process.kill", "everything", 0));
    size_t all = 0;

    stopped(&all);
    ck_assert_uint_eq(all, 0);
    ck_assert_str_eq(effect_of(killed), "active");
    ck_assert_uint_eq(open_faults(), 0);
    OWNED_JSON json_t *undone = agent_call(peer, "fault.undo", named("f-1"));
    ck_assert_str_eq(json_text(undone, "by", ""), "agent");
    ck_assert_str_eq(json_text(undone, "state", ""), "active"); /* the dead stay dead */
}
END_TEST

START_TEST(recover_undoes_everything)
{
    json_decref(freeze("f-1"));
    OWNED_JSON json_t *result = agent_call(peer, "recover", json_pack("{s:n}", "run"));
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(result, "undone"), 0)),
                     "f-1");
    ck_assert_uint_eq(json_array_size(json_object_get(result, "failed")), 0);
    ck_assert_uint_eq(stopped(NULL), 0);
}
END_TEST

START_TEST(a_fault_begins_at_its_instant)
{
    json_t *params = order("f-1", "process.freeze", "everything", HOLD_MS);
    int64_t at_ns = deadline_in_ms(400);

    json_object_set_new(params, "at_ns", json_integer(at_ns));
    agent_post(peer, "fault.inject", params);
    while (open_faults() == 0 && !deadline_passed(at_ns))
        continue; /* recorded before */
    ck_assert(!deadline_passed(at_ns));
    ck_assert_uint_eq(stopped(NULL), 0);
    const json_t *done = agent_notification(peer, "job.done");
    int64_t late_ns = json_number(json_object_get(done, "result"), "f0_ns", 0) - at_ns;
    printf("began %.2f ms after its instant\n", (double) late_ns / NS_PER_MS);
    ck_assert_int_ge(late_ns, 0);
    expect_frozen();
    json_decref(agent_call(peer, "fault.undo", named("f-1")));
    params = order("f-2", "process.freeze", "everything", HOLD_MS);
    json_object_set_new(params, "at_ns", json_integer(deadline_in_ms(60000)));
    ck_assert_str_eq(agent_refusal(peer, "fault.inject", params),
                     "invalid: at_ns is more than 2000 ms ahead");
}
END_TEST

/* --- called off ------------------------------------------------------------------------------ */

/*
 * A pipe in the place of postmaster.pid, which preparing a freeze reads: it stands still there,
 * until the pipe is written to. PostgreSQL looks at the file once a minute.
 */
struct obstacle {
    char path[256], aside[272];
    int fd;
};

static void await_preparation(struct obstacle *obstacle)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);

    while ((obstacle->fd = open(obstacle->path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) {
        ck_assert_int_eq(errno, ENXIO); /* nobody reads yet */
        ck_assert_msg(!deadline_passed(deadline_ns), "nothing reads %s", obstacle->path);
        poll(NULL, 0, 5);
    }
}

static void begin_and_stand_still(struct obstacle *obstacle)
{
    snprintf(obstacle->path, sizeof obstacle->path, "%s/postmaster.pid", server.data);
    snprintf(obstacle->aside, sizeof obstacle->aside, "%s.aside", obstacle->path);
    ck_assert_int_eq(rename(obstacle->path, obstacle->aside), 0);
    ck_assert_int_eq(mkfifo(obstacle->path, 0600), 0);
    agent_post(peer, "fault.inject", order("f-1", "process.freeze", "everything", HOLD_MS));
    await_preparation(obstacle);
}

/* What was to be read is there now: whoever still stands there goes on. */
static void let_go(struct obstacle *obstacle)
{
    char text[512];
    OWNED_FD int fd = open(obstacle->aside, O_RDONLY | O_CLOEXEC);
    ssize_t length = read(fd, text, sizeof text);

    ck_assert_int_gt(length, 0);
    signal(SIGPIPE, SIG_IGN);
    ssize_t written =
        write(obstacle->fd, text, (size_t) length); /* EPIPE: it is dead, as it should */
    ck_assert(written == length || errno == EPIPE);
    close(obstacle->fd);
    ck_assert_int_eq(rename(obstacle->aside, obstacle->path), 0);
}

static void expect_nothing_begins(void)
{
    const json_t *done = agent_notification(peer, "job.done");

    ck_assert_str_eq(json_text(json_object_get(done, "error"), "message", ""),
                     "fault.inject was called off by an undo");
    ck_assert_uint_eq(stopped(NULL), 0);
    ck_assert_uint_eq(open_faults(), 0);
}

START_TEST(an_undo_calls_off_what_is_still_being_prepared)
{
    struct obstacle obstacle;

    begin_and_stand_still(&obstacle);
    const char *answer = agent_refusal(peer, "fault.undo", named("f-1"));
    ck_assert_msg(strncmp(answer, "not-found: ", 11) == 0, "%s", answer);
    let_go(&obstacle);
    expect_nothing_begins();
}
END_TEST

START_TEST(recovery_calls_off_what_is_still_being_prepared)
{
    struct obstacle obstacle;

    begin_and_stand_still(&obstacle);
    json_decref(agent_call(peer, "recover", json_pack("{s:s}", "run", "run-1")));
    let_go(&obstacle);
    expect_nothing_begins();
}
END_TEST

/* --- nobody renews --------------------------------------------------------------------------- */

START_TEST(heartbeats_hold_a_fault_and_silence_ends_it)
{
    int64_t start_ns = clock_boot_ns(), last_ns = 0;

    json_decref(freeze("f-1"));
    while (clock_boot_ns() - start_ns < 3 * LEASE_MS * NS_PER_MS) {
        json_decref(agent_call(peer, "heartbeat", json_pack("{s:s}", "run", "run-1")));
        last_ns = clock_boot_ns();
        expect_frozen();
        poll(NULL, 0, LEASE_MS / 4);
    }
    const json_t *params = agent_notification(peer, "fault.undone");
    ck_assert_str_eq(json_text(params, "uid", ""), "f-1");
    ck_assert_str_eq(json_text(params, "by", ""), "lease");
    ck_assert_str_eq(json_text(params, "state", ""), "absent");
    int64_t late_ms = (json_number(params, "at_ns", 0) - last_ns) / NS_PER_MS - LEASE_MS;
    printf("thawed %lld ms after the lease lapsed\n", (long long) late_ms);
    ck_assert_int_ge(late_ms, -20); /* renewed while the heartbeat was answered */
    ck_assert_int_lt(late_ms, 1000);
    ck_assert_uint_eq(stopped(NULL), 0);
    OWNED_JSON json_t *undone = agent_call(peer, "fault.undo", named("f-1"));
    ck_assert_str_eq(json_text(undone, "by", ""), "lease");
}
END_TEST

START_TEST(a_lost_connection_changes_nothing_until_the_lease_lapses)
{
    int64_t start_ns = clock_boot_ns();

    json_decref(freeze("f-1"));
    agent_peer_free(peer);
    peer = NULL;
    while (clock_boot_ns() - start_ns < LEASE_MS / 2 * NS_PER_MS)
        expect_frozen();
    await_thawed();
    ck_assert_int_ge(clock_boot_ns() - start_ns, LEASE_MS * NS_PER_MS);
}
END_TEST

START_TEST(another_run_waits_for_the_faults_of_the_first)
{
    json_decref(freeze("f-1"));
    agent_peer_free(peer);
    peer = agent_peer_new("control");
    struct error err = {0};
    json_t *result = NULL;
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    bool refused = false;
    while (agent_try(peer, "session.open", agent_session("run-2", LEASE_MS, NULL), &result, &err) !=
           STATUS_OK) {
        ck_assert_int_eq(err.code, STATUS_CONFLICT);
        refused = true;
        ck_assert_msg(!deadline_passed(deadline_ns), "%s", err.message);
    }
    json_decref(result);
    ck_assert(refused);
    ck_assert_uint_eq(stopped(NULL), 0);
}
END_TEST

/* --- death ----------------------------------------------------------------------------------- */

START_TEST(the_agents_death_undoes)
{
    pid_t agent = agent_fixture_agent(0);

    json_decref(freeze("f-1"));
    ck_assert_int_eq(kill(agent, SIGKILL), 0);
    await_thawed();
    agent_fixture_agent(agent);
    come_back();
    OWNED_JSON json_t *undone = agent_call(peer, "fault.undo", named("f-1"));
    ck_assert_str_eq(json_text(undone, "by", ""), "death");
    ck_assert_str_eq(json_text(undone, "state", ""), "absent");
}
END_TEST

START_TEST(the_guardians_death_undoes_at_its_restart)
{
    json_decref(freeze("f-1"));
    agent_fixture_restart();
    come_back();
    ck_assert_uint_eq(stopped(NULL), 0); /* before the agent listened */
    OWNED_JSON json_t *undone = agent_call(peer, "fault.undo", named("f-1"));
    ck_assert_str_eq(json_text(undone, "by", ""), "restart");
}
END_TEST

/* The agent is killed at a random moment of an injection; whatever was done is undone. */
START_TEST(death_at_any_moment_leaves_nothing)
{
    unsigned seed = 20261130u + (unsigned) _i;
    pid_t agent = agent_fixture_agent(0);
    struct error err;

    printf("seed %u\n", seed);
    srand(seed);
    pid_t killer = fork();
    ck_assert_int_ge(killer, 0);
    if (killer == 0) {
        poll(NULL, 0, rand() % 40);
        kill(agent, SIGKILL);
        _exit(0);
    }
    json_t *result = NULL;
    enum status status = agent_try(
        peer, "fault.inject", order("f-1", "process.freeze", "everything", HOLD_MS), &result, &err);
    if (status == STATUS_OK)
        json_decref(result);
    agent_fixture_agent(agent);
    await_thawed();
    come_back();
    ck_assert_uint_eq(open_faults(), 0);
    ck_assert_uint_eq(stopped(NULL), 0);
}
END_TEST

int main(void)
{
    const char *why = throwaway_isolate();
    const TTest *const tests[] = {a_freeze_is_seen_and_undone,
                                  asking_twice_changes_nothing,
                                  faults_that_exclude_each_other_are_refused,
                                  what_holds_needs_an_end,
                                  a_kill_is_over_at_once,
                                  recover_undoes_everything,
                                  a_fault_begins_at_its_instant,
                                  an_undo_calls_off_what_is_still_being_prepared,
                                  recovery_calls_off_what_is_still_being_prepared,
                                  heartbeats_hold_a_fault_and_silence_ends_it,
                                  a_lost_connection_changes_nothing_until_the_lease_lapses,
                                  another_run_waits_for_the_faults_of_the_first,
                                  the_agents_death_undoes,
                                  the_guardians_death_undoes_at_its_restart};
    Suite *suite = suite_create("agent faults");
    TCase *cases = tcase_create("agent faults");

    if (why != NULL) {
        printf("skipped: %s\n100%%: Checks: 0, Failures: 0, Errors: 0\n", why);
        return 0;
    }
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        tcase_add_test(cases, tests[i]);
    tcase_add_loop_test(cases, death_at_any_moment_leaves_nothing, 0, 6);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
