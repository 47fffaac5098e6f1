/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/postgres_methods.h"
#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg_processes.h"
#include "tests/support/postgres_fixture.h"

static struct postgres_fixture *fixture;

static void up(void)
{
    fixture = postgres_fixture_new(1);
}

static void down(void)
{
    postgres_fixture_free(fixture);
}

static json_t *call(const char *method, json_t *params)
{
    return postgres_fixture_call(fixture, 0, method, params);
}

static struct pg_processes processes(void)
{
    struct pg_processes found = {0};
    struct error err = {0};

    ck_assert_int_eq(pg_processes_list(fixture->arena, fixture->servers[0].data, &found, &err),
                     STATUS_OK);
    return found;
}

static void start(void)
{
    OWNED_JSON json_t *result = call("postgres.start", NULL);

    ck_assert_int_gt(json_number(result, "started_ns", 0), 0);
    ck_assert_str_eq(postgres_fixture_query(fixture, 0, "SELECT 42"), "42");
}

START_TEST(test_start_is_idempotent)
{
    OWNED_JSON json_t *first = call("postgres.start", NULL);
    pid_t postmaster = processes().items[0].id.pid;
    OWNED_JSON json_t *second = call("postgres.start", NULL);

    ck_assert(json_flag(second, "already", false));
    ck_assert_int_eq(processes().items[0].id.pid, postmaster);
}
END_TEST

static void stop_and_start(const char *mode)
{
    OWNED_JSON json_t *stopped = call("postgres.stop", json_pack("{s:s}", "mode", mode));

    ck_assert(!json_flag(stopped, "already", true));
    ck_assert_uint_eq(processes().count, 0);
    OWNED_JSON json_t *again = call("postgres.stop", json_pack("{s:s}", "mode", mode));
    ck_assert(json_flag(again, "already", false));
    OWNED_JSON json_t *state = call("postgres.state", NULL);
    ck_assert_str_eq(json_text(state, "control_state", ""),
                     strcmp(mode, "immediate") == 0 ? "in production" : "shut down");
    start();
    /* what we start outlives us: a session of its own, and no part of ours */
    ck_assert_int_ne(getsid(processes().items[0].id.pid), getsid(0));
}

START_TEST(test_stop_fast)
{
    stop_and_start("fast");
}
END_TEST

START_TEST(test_stop_smart)
{
    stop_and_start("smart");
}
END_TEST

START_TEST(test_stop_immediate)
{
    stop_and_start("immediate");
}
END_TEST

START_TEST(test_smart_stop_waits_for_sessions)
{
    OWNED_PG PGconn *connection = postgres_fixture_connect(fixture, 0);
    struct error err = {0};
    json_t *result = NULL;
    enum status status = postgres_fixture_try(
        fixture, 0, "postgres.stop", json_pack("{s:s, s:i}", "mode", "smart", "timeout_ms", 300),
        &result, &err);

    ck_assert_int_eq(status, STATUS_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(err.message, "still runs: postmaster"));
    PQfinish(connection);
    connection = NULL;
    OWNED_JSON json_t *stopped = call("postgres.stop", json_pack("{s:s}", "mode", "fast"));
    ck_assert_uint_eq(processes().count, 0);
    start();
}
END_TEST

START_TEST(test_unknown_mode)
{
    struct error err = {0};
    json_t *result = NULL;

    ck_assert_int_eq(postgres_fixture_try(fixture, 0, "postgres.stop",
                                          json_pack("{s:s}", "mode", "gentle"), &result, &err),
                     STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "gentle"));
}
END_TEST

START_TEST(test_fence_kills_everything)
{
    OWNED_PG PGconn *connection = postgres_fixture_connect(fixture, 0);
    struct pg_processes before = processes();
    OWNED_JSON json_t *result = call("postgres.fence", NULL);

    ck_assert_uint_gt(before.count, 4);
    ck_assert_int_ge(json_number(result, "killed", 0), (int64_t) before.count);
    for (size_t i = 0; i < before.count; i++)
        ck_assert(!process_alive(before.items[i].id));
    struct pg_target target = postgres_fixture_target(fixture, 0, "ordeal_admin", "postgres");
    PGconn *none = NULL;
    ck_assert_int_eq(pg_connect(&target, deadline_in_ms(1000), &none, NULL), STATUS_UNREACHABLE);
    OWNED_JSON json_t *again = call("postgres.fence", NULL);
    ck_assert_int_eq(json_number(again, "killed", -1), 0);
    start();
}
END_TEST

START_TEST(test_fence_of_a_frozen_server)
{
    struct pg_processes before = processes();

    for (size_t i = 0; i < before.count; i++)
        if (process_signal(before.items[i].id, SIGSTOP, NULL) != STATUS_OK)
            ck_assert(
                !process_alive(before.items[i].id)); /* some children live for a moment only */
    before = processes();
    OWNED_JSON json_t *result = call("postgres.fence", NULL);
    ck_assert_int_eq(json_number(result, "killed", 0), (int64_t) before.count);
    for (size_t i = 0; i < before.count; i++)
        ck_assert(!process_alive(before.items[i].id));
    start();
}
END_TEST

/* A frozen group holds back even SIGKILL on version 1. */
START_TEST(test_fence_of_a_frozen_group)
{
    char group[64];
    struct error err = {0};
    struct pg_processes before = processes();

    if (!cgroup_has("freezer"))
        return;
    snprintf(group, sizeof group, "ordeal-test-%d", (int) getpid());
    ck_assert_msg(cgroup_create(group, &err) == STATUS_OK, "%s", err.message);
    for (size_t i = 0; i < before.count; i++)
        if (cgroup_join(group, before.items[i].id.pid, &err) != STATUS_OK)
            ck_assert_msg(!process_alive(before.items[i].id), "%s", err.message);
    ck_assert_msg(cgroup_freeze(group, true, deadline_in_ms(5000), &err) == STATUS_OK, "%s",
                  err.message);
    before = processes();
    OWNED_JSON json_t *state = call("postgres.state", NULL);
    ck_assert(json_flag(state, "running", false));
    ck_assert(json_flag(state, "frozen", false));
    OWNED_JSON json_t *result = call("postgres.fence", NULL);
    ck_assert_int_eq(json_number(result, "killed", 0), (int64_t) before.count);
    ck_assert_msg(cgroup_remove(group, deadline_in_ms(5000), &err) == STATUS_OK, "%s", err.message);
    start();
}
END_TEST

START_TEST(test_fence_of_orphans)
{
    struct pg_processes before = processes();
    struct process_id checkpointer = {0};

    for (size_t i = 0; i < before.count; i++)
        if (before.items[i].class == PG_CHECKPOINTER)
            checkpointer = before.items[i].id;
    /* a stopped child does not see that its postmaster died */
    ck_assert_int_eq(process_signal(checkpointer, SIGSTOP, NULL), STATUS_OK);
    ck_assert_int_eq(process_signal(before.items[0].id, SIGKILL, NULL), STATUS_OK);
    ck_assert_int_eq(process_wait_gone(before.items[0].id, deadline_in_ms(5000), NULL), STATUS_OK);
    OWNED_JSON json_t *state = call("postgres.state", NULL);
    ck_assert(!json_flag(state, "running", true));
    ck_assert_int_ge(json_number(state, "orphans", 0), 1);
    OWNED_JSON json_t *result = call("postgres.fence", NULL);
    ck_assert_int_ge(json_number(result, "killed", 0), 1);
    ck_assert(!process_alive(checkpointer));
    start();
}
END_TEST

START_TEST(test_start_that_fails_says_why)
{
    char path[256];
    struct error err = {0};
    json_t *result = NULL;
    OWNED_JSON json_t *stopped = call("postgres.stop", NULL);

    snprintf(path, sizeof path, "%s/postgresql.auto.conf", fixture->servers[0].data);
    OWNED_FILE FILE *file = fopen(path, "ae");
    ck_assert_int_gt(fprintf(file, "no_such_setting = on\n"), 0);
    ck_assert_int_eq(fflush(file), 0);
    enum status status = postgres_fixture_try(fixture, 0, "postgres.start", NULL, &result, &err);
    ck_assert_int_eq(truncate(path, 0), 0);
    ck_assert_int_eq(status, STATUS_FAILED);
    ck_assert_ptr_nonnull(strstr(err.detail, "contains errors"));
    start();
}
END_TEST

START_TEST(test_commands_of_the_service)
{
    struct session session = *postgres_fixture_session(fixture, 0);
    char pg_ctl[128];
    OWNED_JSON json_t *params = json_object();
    OWNED_JSON json_t *stopped = NULL;
    OWNED_JSON json_t *started = NULL;
    struct error err = {0};

    snprintf(pg_ctl, sizeof pg_ctl, "%s/pg_ctl", fixture->bin);
    const char *const stop[] = {"setpriv",
                                "--reuid=postgres",
                                "--regid=postgres",
                                "--init-groups",
                                pg_ctl,
                                "stop",
                                "-m",
                                "fast",
                                "-D",
                                session.database.data,
                                NULL};
    const char *const begin[] = {"setpriv",
                                 "--reuid=postgres",
                                 "--regid=postgres",
                                 "--init-groups",
                                 pg_ctl,
                                 "start",
                                 "-o",
                                 "-c work_mem=7MB",
                                 "-D",
                                 session.database.data,
                                 NULL};
    session.database.stop = stop;
    session.database.start = begin;
    struct method_call method_call = {
        .session = &session, .params = params, .deadline_ns = deadline_in_ms(20000)};
    ck_assert_msg(postgres_stop(&method_call, &stopped, &err) == STATUS_OK, "%s", err.message);
    ck_assert_msg(postgres_start(&method_call, &started, &err) == STATUS_OK, "%s", err.message);
    ck_assert_str_eq(postgres_fixture_query(fixture, 0, "SHOW work_mem"), "7MB");
}
END_TEST

/* A service manager restarts what was killed, unless it is told that the server is to stay down. */
START_TEST(test_fence_tells_the_service)
{
    struct session session = *postgres_fixture_session(fixture, 0);
    const char *told = arena_printf(fixture->arena, "%s.told", session.database.data);
    const char *const stop[] = {"touch", told, NULL};
    OWNED_JSON json_t *params = json_object();
    OWNED_JSON json_t *fenced = NULL;
    struct error err = {0};

    session.database.stop = stop;
    struct method_call method_call = {
        .session = &session, .params = params, .deadline_ns = deadline_in_ms(20000)};
    start();
    ck_assert_msg(postgres_fence(&method_call, &fenced, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_gt(json_number(fenced, "killed", 0), 4);
    ck_assert_int_eq(unlink(told), 0);
    static const char *const fails[] = {"false", NULL};
    json_decref(fenced);
    session.database.stop = fails;
    ck_assert_msg(postgres_fence(&method_call, &fenced, &err) == STATUS_OK, "%s", err.message);
    start();
}
END_TEST

int main(void)
{
    postgres_fixture_reap();
    Suite *suite = suite_create("postgres service");
    TCase *servers = tcase_create("servers");

    tcase_add_unchecked_fixture(servers, up, down);
    tcase_set_timeout(servers, 60);
    tcase_add_test(servers, test_start_is_idempotent);
    tcase_add_test(servers, test_stop_fast);
    tcase_add_test(servers, test_stop_smart);
    tcase_add_test(servers, test_stop_immediate);
    tcase_add_test(servers, test_smart_stop_waits_for_sessions);
    tcase_add_test(servers, test_unknown_mode);
    tcase_add_test(servers, test_fence_kills_everything);
    tcase_add_test(servers, test_fence_of_a_frozen_server);
    tcase_add_test(servers, test_fence_of_a_frozen_group);
    tcase_add_test(servers, test_fence_of_orphans);
    tcase_add_test(servers, test_fence_tells_the_service);
    tcase_add_test(servers, test_start_that_fails_says_why);
    tcase_add_test(servers, test_commands_of_the_service);
    suite_add_tcase(suite, servers);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
