/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults/fault.h"
#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg_processes.h"
#include "tests/support/fault_drive.h"
#include "tests/support/throwaway_postgres.h"

extern const struct fault fault_process_freeze;

static const struct fault *const fault = &fault_process_freeze;
static const struct fault_peer peers[] = {{"n1", "127.0.0.1"}};
static struct throwaway server;
static struct fault_context context = {.node = "n1",
                                       .uid = "test-freeze",
                                       .database_port = THROWAWAY_PORT,
                                       .peer_count = 1,
                                       .peers = peers};
static const struct fault_context client = {.node = "c1", .uid = "test-freeze"};
static const char *const methods[] = {"signal", "cgroup"};

static void setup(void)
{
    throwaway_start(&server);
    context.data_directory = server.data;
    context.deadline_ns = deadline_in_ms(30000);
}

static void teardown(void)
{
    drive_done();
    throwaway_stop(&server);
}

static json_t *prepare(const char *process, const char *method)
{
    char params[96];

    snprintf(params, sizeof params, "{'process': '%s', 'method': '%s'}", process, method);
    return drive_prepare(fault, &context, params);
}

static struct pg_processes list(struct arena *arena)
{
    struct pg_processes found = {0};

    ck_assert_int_eq(pg_processes_list(arena, server.data, &found, NULL), STATUS_OK);
    return found;
}

static size_t count_stopped(void)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes found = list(arena);
    size_t stopped = 0;

    for (size_t i = 0; i < found.count; i++)
        stopped += process_state(found.items[i].id) == 'T';
    return stopped;
}

static bool group_exists(const json_t *record)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *group = json_text(record, "group", NULL);
    pid_t *pids = NULL;
    size_t count = 0;

    return group != NULL && cgroup_freezer_members(arena, group, &pids, &count, NULL) == STATUS_OK;
}

START_TEST(wrong_parameters_are_refused)
{
    static const char *const wrong[] = {"{}", "{\"process\": \"archivist\"}",
                                        "{\"process\": \"everything\", \"method\": \"magic\"}",
                                        "{\"process\": \"everything\", \"count\": 1}"};
    struct error err = {0};

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        OWNED_JSON json_t *params = json_loads(wrong[i], 0, NULL);
        ck_assert_int_eq(fault_validate(fault, params, &err), STATUS_INVALID);
    }
}
END_TEST

/* Frozen and thawed, seen from inside by a session and from outside by the witness. */
START_TEST(everything_stands_still_and_goes_on)
{
    PGconn *connection = throwaway_connect(&server);
    OWNED_JSON json_t *record = prepare("everything", methods[_i]);

    drive_expect(fault, &context, record, EFFECT_ABSENT);
    drive_expect_witness(fault, &client, record, EFFECT_ABSENT);
    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    ck_assert_int_eq(drive_number("frozen"), drive_number("alive"));
    ck_assert_int_ge(drive_number("frozen"), 6);
    drive_expect_witness(fault, &client, record, EFFECT_ACTIVE);
    ck_assert_int_eq(PQsendQuery(connection, "SELECT 1"), 1);
    drive_undo(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
    drive_expect_witness(fault, &client, record, EFFECT_ABSENT);
    PGresult *result = PQgetResult(connection);
    ck_assert_int_eq(PQresultStatus(result), PGRES_TUPLES_OK);
    PQclear(result);
    PQfinish(connection);
    ck_assert(!group_exists(record));
    ck_assert_uint_eq(count_stopped(), 0);
    drive_undo(fault, &context, record);
}
END_TEST

START_TEST(undo_without_inject_changes_nothing)
{
    OWNED_JSON json_t *record = prepare("everything", methods[_i]);

    drive_undo(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
    ck_assert(!group_exists(record));
    PQfinish(throwaway_connect(&server));
}
END_TEST

/* Everybody was in one group before and is again afterwards, who was born meanwhile, too. */
START_TEST(everybody_returns_to_the_old_group)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *before = NULL, *after = NULL;
    OWNED_JSON json_t *record = prepare("children", "cgroup");

    ck_assert_int_eq(cgroup_of(arena, list(arena).items[0].id.pid, &before, NULL), STATUS_OK);
    drive_inject(fault, &context, record);
    drive_undo(fault, &context, record);
    struct pg_processes now = list(arena);
    for (size_t i = 0; i < now.count; i++) {
        ck_assert_int_eq(cgroup_of(arena, now.items[i].id.pid, &after, NULL), STATUS_OK);
        ck_assert_str_eq(after, before);
    }
}
END_TEST

START_TEST(one_class_alone)
{
    PGconn *connection = throwaway_connect(&server);
    OWNED_JSON json_t *record = prepare("walwriter", methods[_i]);

    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    ck_assert_int_eq(drive_number("frozen"), 1);
    drive_expect_witness(fault, &client, record, EFFECT_UNKNOWN);
    PGresult *result = PQexec(connection, "SELECT 1");
    ck_assert_int_eq(PQresultStatus(result), PGRES_TUPLES_OK);
    PQclear(result);
    drive_undo(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
    PQfinish(connection);
}
END_TEST

START_TEST(one_that_runs_again_is_partial)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *record = prepare("everything", "signal");

    drive_inject(fault, &context, record);
    struct pg_processes found = list(arena);
    ck_assert_int_eq(process_signal(found.items[1].id, SIGCONT, NULL), STATUS_OK);
    drive_expect(fault, &context, record, EFFECT_PARTIAL);
    ck_assert_int_eq(drive_number("frozen"), drive_number("alive") - 1);
    drive_undo(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
}
END_TEST

/* Who keeps asking for sessions, so that the postmaster forks all the time. */
static pid_t start_connecting(void)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid != 0)
        return pid;
    for (;;) {
        char target[192];
        snprintf(target, sizeof target, "host=%s port=%d user=postgres dbname=postgres",
                 server.folder, THROWAWAY_PORT);
        PQfinish(PQconnectdb(target));
    }
}

/* A postmaster that forks all the time; the record is old when the fault comes. */
START_TEST(children_born_meanwhile_are_frozen_and_thawed)
{
    OWNED_JSON json_t *record = prepare("everything", methods[_i]);
    pid_t pid = start_connecting();

    PGconn *later = throwaway_connect(&server);
    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    ck_assert_int_gt(drive_number("frozen"),
                     (int64_t) json_array_size(json_object_get(record, "processes")));
    drive_undo(fault, &context, record);
    ck_assert_uint_eq(count_stopped(), 0);
    PGresult *result = PQexec(later, "SELECT 1");
    ck_assert_int_eq(PQresultStatus(result), PGRES_TUPLES_OK);
    PQclear(result);
    PQfinish(later);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
END_TEST

/* Fencing: the frozen server is killed. Nothing is left to thaw, and that is fine. */
START_TEST(undo_after_the_server_was_killed)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *record = prepare("everything", "signal");

    drive_inject(fault, &context, record);
    struct pg_processes found = list(arena);
    for (size_t i = 0; i < found.count; i++)
        ck_assert_int_eq(process_signal(found.items[i].id, SIGKILL, NULL), STATUS_OK);
    for (size_t i = 0; i < found.count; i++)
        ck_assert_int_eq(process_wait_gone(found.items[i].id, context.deadline_ns, NULL),
                         STATUS_OK);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
    drive_expect_witness(fault, &client, record, EFFECT_UNKNOWN);
    drive_undo(fault, &context, record);
    /* and a server that was started since is not touched */
    throwaway_restart(&server);
    struct pg_processes fresh = list(arena);
    ck_assert_int_eq(process_signal(fresh.items[1].id, SIGSTOP, NULL), STATUS_OK);
    while (process_state(fresh.items[1].id) != 'T')
        ck_assert(!deadline_passed(context.deadline_ns));
    drive_undo(fault, &context, record);
    ck_assert_uint_eq(count_stopped(), 1);
}
END_TEST

/* Orphans whose postmaster died while they were stopped, one of them not in the record. */
START_TEST(orphans_are_woken_too)
{
    OWNED_JSON json_t *record = prepare("everything", "signal");
    PGconn *later = throwaway_connect(&server);
    OWNED_ARENA struct arena *arena = arena_new();

    drive_inject(fault, &context, record);
    struct pg_processes found = list(arena);
    ck_assert_int_eq(process_signal(found.items[0].id, SIGKILL, NULL), STATUS_OK);
    ck_assert_int_eq(process_wait_gone(found.items[0].id, context.deadline_ns, NULL), STATUS_OK);
    ck_assert_uint_eq(count_stopped(), found.count - 1);
    drive_undo(fault, &context, record);
    ck_assert_uint_eq(count_stopped(), 0);
    PQfinish(later);
}
END_TEST

START_TEST(a_broken_record_is_refused)
{
    OWNED_JSON json_t *record = prepare("everything", "cgroup");
    struct error err = {0};

    json_object_del(record, "home");
    ck_assert_int_eq(fault->undo(&context, record, &err), STATUS_INVALID);
    json_object_del(record, "data_directory");
    ck_assert_int_eq(fault->undo(&context, record, &err), STATUS_INVALID);
}
END_TEST

static Suite *suite(const char *skip_reason)
{
    Suite *result = suite_create("fault process.freeze");
    TCase *pure = tcase_create("parameters");
    TCase *real = tcase_create("real server");
    int ways = cgroup_has("freezer") ? 2 : 1;

    tcase_add_test(pure, wrong_parameters_are_refused);
    suite_add_tcase(result, pure);
    tcase_add_checked_fixture(real, setup, teardown);
    tcase_set_timeout(real, 60);
    tcase_add_loop_test(real, everything_stands_still_and_goes_on, 0, ways);
    tcase_add_loop_test(real, undo_without_inject_changes_nothing, 0, ways);
    tcase_add_loop_test(real, one_class_alone, 0, ways);
    tcase_add_loop_test(real, children_born_meanwhile_are_frozen_and_thawed, 0, ways);
    tcase_add_test(real, one_that_runs_again_is_partial);
    tcase_add_test(real, undo_after_the_server_was_killed);
    tcase_add_test(real, orphans_are_woken_too);
    if (ways == 2) {
        tcase_add_test(real, everybody_returns_to_the_old_group);
        tcase_add_test(real, a_broken_record_is_refused);
    }
    if (skip_reason == NULL)
        suite_add_tcase(result, real);
    else
        printf("not run with a real server: %s\n", skip_reason);
    return result;
}

int main(void)
{
    SRunner *runner = srunner_create(suite(throwaway_isolate()));

    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
