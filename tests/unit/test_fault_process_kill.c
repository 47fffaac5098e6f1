/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults/fault.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg_processes.h"
#include "tests/support/fault_drive.h"
#include "tests/support/throwaway_postgres.h"

extern const struct fault fault_process_kill;

static const struct fault *const fault = &fault_process_kill;
static const struct fault_peer peers[] = {{"n1", "127.0.0.1"}};
static struct throwaway server;
static struct fault_context context = {.node = "n1",
                                       .uid = "test-kill",
                                       .database_port = THROWAWAY_PORT,
                                       .peer_count = 1,
                                       .peers = peers};

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

static const struct {
    const char *params, *complaint;
} wrong[] = {
    {"{}", "process"},
    {"{'process': 'postmastre'}", "postmastre"},
    {"{'process': 'postmaster', 'count': 2}", "count"},
    {"{'process': 'everything', 'choose': 2}", "choose"},
    {"{'process': 'backend', 'count': 0}", "count"},
    {"{'process': 'backend', 'signal': 'int'}", "int"},
    {"{'process': 'backend', 'signal': 'hup'}", "hup"},
    {"{'process': 'backend', 'pid': 1}", "pid"},
};

START_TEST(wrong_parameters_are_refused)
{
    struct error err = {0};
    char text[128];

    drive_quotes(wrong[_i].params, text);
    OWNED_JSON json_t *params = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(params);
    ck_assert_int_eq(fault_validate(fault, params, &err), STATUS_INVALID);
    ck_assert_msg(strstr(err.message, wrong[_i].complaint) != NULL, "%s", err.message);
}
END_TEST

START_TEST(a_node_without_a_database_is_unsupported)
{
    OWNED_JSON json_t *params = drive_params(fault, "{'process': 'postmaster'}");
    struct fault_context none = {.node = "c1", .uid = "test"};
    struct error err = {0};

    ck_assert_int_eq(fault->supported(&none, params, &err), STATUS_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.message, "c1"));
    ck_assert_int_ne(err.hint[0], '\0');
}
END_TEST

static size_t count_of(enum pg_class class)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes found = {0};
    size_t count = 0;

    ck_assert_int_eq(pg_processes_list(arena, server.data, &found, NULL), STATUS_OK);
    for (size_t i = 0; i < found.count; i++)
        count += found.items[i].class == class;
    return count;
}

static size_t count_all(void)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes found = {0};

    ck_assert_int_eq(pg_processes_list(arena, server.data, &found, NULL), STATUS_OK);
    return found.count;
}

/* The postmaster notices the death a moment later and ends all sessions. */
static void wait_lost(PGconn *connection)
{
    int64_t deadline_ns = deadline_in_ms(20000);

    while (PQstatus(connection) == CONNECTION_OK && !deadline_passed(deadline_ns))
        PQclear(PQexec(connection, "SELECT pg_sleep(0.01)"));
    ck_assert_int_eq(PQstatus(connection), CONNECTION_BAD);
    PQfinish(connection);
}

/* The child whose death makes the postmaster restart all others. */
START_TEST(one_child_alone)
{
    PGconn *connection = throwaway_connect(&server);
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'process': 'checkpointer'}");

    drive_expect(fault, &context, record, EFFECT_ABSENT);
    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    ck_assert_int_eq(drive_number("signalled"), 1);
    ck_assert_int_eq(drive_number("gone"), 1);
    ck_assert_int_eq(drive_number("restarted"), 0);
    wait_lost(connection);
    ck_assert(throwaway_wait_ready(&server, 20000));
    ck_assert_uint_eq(count_of(PG_POSTMASTER), 1);
    /* the new checkpointer is not the one of the record */
    ck_assert_uint_eq(count_of(PG_CHECKPOINTER), 1);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    drive_undo(fault, &context, record);
    drive_undo(fault, &context, record);
}
END_TEST

START_TEST(the_oldest_backends)
{
    PGconn *sessions[4];
    OWNED_JSON json_t *record = NULL;

    for (size_t i = 0; i < 4; i++)
        sessions[i] = throwaway_connect(&server);
    record = drive_prepare(fault, &context, "{'process': 'backend', 'count': 2, 'signal': 'term'}");
    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    ck_assert_int_eq(drive_number("gone"), 2);
    for (size_t i = 0; i < 4; i++) {
        PQclear(PQexec(sessions[i], "SELECT 1"));
        ck_assert_int_eq(PQstatus(sessions[i]), i < 2 ? CONNECTION_BAD : CONNECTION_OK);
        PQfinish(sessions[i]);
    }
}
END_TEST

static void drawn_pids(const char *params, int pids[3])
{
    OWNED_JSON json_t *record = drive_prepare(fault, &context, params);
    const json_t *list = json_object_get(record, "processes");

    ck_assert_uint_eq(json_array_size(list), 3);
    for (size_t i = 0; i < 3; i++)
        pids[i] = (int) json_number(json_array_get(list, i), "pid", 0);
    ck_assert(pids[0] != pids[1] && pids[0] != pids[2] && pids[1] != pids[2]);
}

START_TEST(a_seed_draws_the_same_backends)
{
    PGconn *sessions[8];
    bool differs = false;
    int first[3], again[3], other[3];

    for (size_t i = 0; i < 8; i++)
        sessions[i] = throwaway_connect(&server);
    drawn_pids("{'process': 'backend', 'count': 3, 'choose': 42}", first);
    drawn_pids("{'process': 'backend', 'count': 3, 'choose': 42}", again);
    ck_assert_mem_eq(first, again, sizeof first);
    for (int seed = 0; seed < 8; seed++) {
        char params[96];
        snprintf(params, sizeof params, "{'process': 'backend', 'count': 3, 'choose': %d}", seed);
        drawn_pids(params, other);
        differs = differs || memcmp(first, other, sizeof first) != 0;
    }
    ck_assert_msg(differs, "eight seeds draw the same backends");
    for (size_t i = 0; i < 8; i++)
        PQfinish(sessions[i]);
}
END_TEST

START_TEST(the_postmaster_alone)
{
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'process': 'postmaster'}");
    struct fault_context client = {.node = "c1", .uid = "test"};

    drive_expect_witness(fault, &client, record, EFFECT_UNKNOWN);
    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    ck_assert_int_eq(drive_number("signalled"), 1);
    drive_expect_witness(fault, &client, record, EFFECT_ACTIVE);
}
END_TEST

/* SIGKILL at once leaves nobody who could tidy up: the pid file stays. */
START_TEST(everything_at_once)
{
    PGconn *connection = throwaway_connect(&server);
    char path[128];

    snprintf(path, sizeof path, "%s/postmaster.pid", server.data);
    size_t before = count_all();
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'process': 'everything'}");
    ck_assert_uint_eq(json_array_size(json_object_get(record, "processes")), before);
    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    ck_assert_int_eq(drive_number("gone"), (int64_t) before);
    ck_assert_uint_eq(count_all(), 0);
    ck_assert_int_eq(access(path, F_OK), 0);
    throwaway_restart(&server);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    ck_assert_int_eq(drive_number("restarted"), 1);
    PQfinish(connection);
}
END_TEST

/* Who keeps asking for sessions, so that the postmaster forks between the look and the signals. */
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

START_TEST(children_born_meanwhile_die_too)
{
    pid_t client = start_connecting();
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'process': 'everything'}");

    /* the record is old by then: hundreds of backends came and went */
    PGconn *later = throwaway_connect(&server);
    ck_assert_uint_ge(count_of(PG_BACKEND), 1);
    drive_inject(fault, &context, record);
    ck_assert_uint_eq(count_all(), 0);
    kill(client, SIGKILL);
    waitpid(client, NULL, 0);
    PQfinish(later);
}
END_TEST

START_TEST(all_children_but_not_the_postmaster)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes before = {0}, after = {0};

    ck_assert_int_eq(pg_processes_list(arena, server.data, &before, NULL), STATUS_OK);
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'process': 'children'}");
    ck_assert_uint_eq(json_array_size(json_object_get(record, "processes")), before.count - 1);
    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    ck_assert(throwaway_wait_ready(&server, 20000));
    ck_assert_int_eq(pg_processes_list(arena, server.data, &after, NULL), STATUS_OK);
    ck_assert_int_eq(after.items[0].id.pid, before.items[0].id.pid);
}
END_TEST

START_TEST(none_of_that_kind_is_an_error)
{
    OWNED_JSON json_t *params = drive_params(fault, "{'process': 'walreceiver'}");
    struct error err = {0};
    json_t *record = NULL;

    ck_assert_int_eq(fault->prepare(&context, params, &record, &err), STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.message, "walreceiver"));
    ck_assert_ptr_null(record);
}
END_TEST

/* The pids of a record are in use again by somebody else: nobody is hit. */
START_TEST(a_reused_pid_is_not_hit)
{
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'process': 'checkpointer'}");
    json_t *victim = json_array_get(json_object_get(record, "processes"), 0);
    struct error err = {0};

    json_object_set_new(victim, "start_ticks",
                        json_integer(json_number(victim, "start_ticks", 0) - 1));
    ck_assert_int_eq(fault->inject(&context, record, &err), STATUS_NOT_FOUND);
    ck_assert_uint_eq(count_of(PG_CHECKPOINTER), 1);
}
END_TEST

START_TEST(ordeal_itself_is_refused)
{
    struct process_id self;
    struct error err = {0};

    ck_assert_int_eq(process_identify(getppid(), &self, NULL), STATUS_OK);
    OWNED_JSON json_t *record =
        json_pack("{s:s, s:s, s:s, s:[{s:i, s:I, s:s}]}", "process", "backend", "signal", "kill",
                  "data_directory", server.data, "processes", "pid", (int) self.pid, "start_ticks",
                  (json_int_t) self.start_ticks, "class", "backend");
    ck_assert_int_eq(fault->inject(&context, record, &err), STATUS_REFUSED);
}
END_TEST

static Suite *suite(const char *skip_reason)
{
    Suite *result = suite_create("fault process.kill");
    TCase *pure = tcase_create("parameters");
    TCase *real = tcase_create("real server");

    tcase_add_loop_test(pure, wrong_parameters_are_refused, 0,
                        (int) (sizeof wrong / sizeof wrong[0]));
    tcase_add_test(pure, a_node_without_a_database_is_unsupported);
    suite_add_tcase(result, pure);
    tcase_add_checked_fixture(real, setup, teardown);
    tcase_set_timeout(real, 60);
    tcase_add_test(real, one_child_alone);
    tcase_add_test(real, the_oldest_backends);
    tcase_add_test(real, a_seed_draws_the_same_backends);
    tcase_add_test(real, the_postmaster_alone);
    tcase_add_test(real, everything_at_once);
    tcase_add_test(real, children_born_meanwhile_die_too);
    tcase_add_test(real, all_children_but_not_the_postmaster);
    tcase_add_test(real, none_of_that_kind_is_an_error);
    tcase_add_test(real, a_reused_pid_is_not_hit);
    tcase_add_test(real, ordeal_itself_is_refused);
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
