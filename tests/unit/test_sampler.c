/* SPDX-License-Identifier: MIT */
/* The sampler of a real agent beside a real PostgreSQL: rate, classes, gaps, and what it leaves. */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/sampler/worker.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "lib/pg_processes.h"
#include "lib/process.h"
#include "tests/support/agent_fixture.h"
#include "tests/support/throwaway_postgres.h"

enum { LEASE_MS = 5000, WAIT_MS = 10000, CLIENTS = 5, VIEWS_MS = 200 };

static struct throwaway server;
static struct agent_peer *peer;
static json_t *kernel, *views; /* lines of the files, as last read */

static void up(void)
{
    throwaway_start(&server);
    OWNED_PG PGconn *admin = throwaway_connect(&server);
    PQclear(PQexec(admin, "CREATE ROLE ordeal_admin SUPERUSER LOGIN"));
}

static void down(void)
{
    throwaway_stop(&server);
}

static void setup(void)
{
    agent_fixture_start();
    peer = agent_peer_new("control");
    json_decref(agent_call(peer, "session.open", agent_session("run-1", LEASE_MS, server.data)));
}

static void teardown(void)
{
    json_decref(kernel);
    json_decref(views);
    kernel = views = NULL;
    agent_peer_free(peer);
    agent_fixture_stop();
}

/* --- driving ---------------------------------------------------------------------------------- */

static void start(void)
{
    json_decref(agent_call(
        peer, "sample.start",
        json_pack("{s:s, s:i, s:i}", "run", "run-1", "period_ms", 100, "views_ms", VIEWS_MS)));
}

/* Asked until nothing runs any more, as the engine does. */
static void stop(void)
{
    int64_t deadline_ns = deadline_in_ms(WAIT_MS);

    for (;;) {
        OWNED_JSON json_t *result =
            agent_call(peer, "sample.stop", json_pack("{s:s}", "run", "run-1"));
        if (!json_flag(result, "running", true))
            return;
        ck_assert_msg(!deadline_passed(deadline_ns), "the sampler does not end");
        poll(NULL, 0, 10);
    }
}

/* The agent's only child while no job runs; 0: there is none. */
static pid_t worker_now(void)
{
    char path[64];
    int agent = agent_fixture_agent(0), pid = 0;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", agent, agent);
    OWNED_FILE FILE *file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%d", &pid) != 1)
        return 0;
    return pid;
}

static pid_t await_worker(pid_t other_than)
{
    int64_t deadline_ns = deadline_in_ms(WAIT_MS);

    for (;;) {
        pid_t pid = worker_now();
        if (pid != 0 && pid != other_than)
            return pid;
        ck_assert_msg(!deadline_passed(deadline_ns), "no sampler runs");
        poll(NULL, 0, 10);
    }
}

static json_t *read_lines(const char *stream)
{
    char path[256];
    OWNED_MEMORY char *text = NULL;
    size_t size = 0;
    json_t *lines = json_array();

    snprintf(path, sizeof path, "%s/runs/run-1/n1-%s.ndjson", agent_fixture_state(), stream);
    OWNED_FILE FILE *file = fopen(path, "re");
    while (file != NULL && getline(&text, &size, file) > 0 && strchr(text, '\n') != NULL) {
        struct error err = {0};
        json_t *line = NULL;
        ck_assert_msg(json_parse_text(text, strlen(text), &line, &err) == STATUS_OK, "%s: %s",
                      err.message, text);
        json_array_append_new(lines, line);
    }
    return lines;
}

static void reread(void)
{
    json_decref(kernel);
    json_decref(views);
    kernel = read_lines("kernel");
    views = read_lines("postgres");
}

static size_t count_of(const json_t *lines, const char *member)
{
    size_t count = 0, index;
    const json_t *line;

    json_array_foreach(lines, index, line) count += json_object_get(line, member) != NULL;
    return count;
}

/* The first gap for that reason, NULL when there is none. */
static const json_t *gap_of(const json_t *lines, const char *why)
{
    size_t index;
    const json_t *line;

    json_array_foreach(lines, index, line)
    {
        const json_t *gap = json_object_get(line, "gap");
        if (gap != NULL && strcmp(json_text(gap, "why", ""), why) == 0)
            return gap;
    }
    return NULL;
}

static int64_t gap_ms(const json_t *gap)
{
    return (json_number(gap, "to", 0) - json_number(gap, "from", 0)) / NS_PER_MS;
}

/* Wait until `lines` (kernel or views) hold what is asked for. */
static void await(bool (*there)(void), const char *what)
{
    int64_t deadline_ns = deadline_in_ms(WAIT_MS);

    for (reread(); !there(); reread()) {
        ck_assert_msg(!deadline_passed(deadline_ns), "no %s after %d ms; log: %s", what, WAIT_MS,
                      agent_fixture_log());
        poll(NULL, 0, 20);
    }
}

static bool some_samples(void)
{
    return count_of(kernel, "mem") >= 10 && count_of(views, "views") >= 3;
}

static bool late_gap(void)
{
    return gap_of(kernel, "late") != NULL;
}

static bool down_said(void)
{
    return count_of(views, "down") > 0;
}

static bool down_gap(void)
{
    return gap_of(views, "down") != NULL;
}

static bool restart_gaps(void)
{
    return gap_of(kernel, "restart") != NULL && gap_of(views, "restart") != NULL;
}

/* --- rate, classes, gap ----------------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *) left, b = *(const int64_t *) right;

    return (a > b) - (a < b);
}

/* Median distance of the samples: a busy machine delays some, not half of them. */
static int64_t median_ms(const json_t *lines, const char *member)
{
    static int64_t distances[4096];
    size_t count = 0, index;
    int64_t before_ns = 0;
    const json_t *line;

    json_array_foreach(lines, index, line)
    {
        int64_t t_ns = json_number(line, "t", 0);
        if (json_object_get(line, member) == NULL)
            continue;
        if (before_ns != 0 && count < 4096)
            distances[count++] = (t_ns - before_ns) / NS_PER_MS;
        before_ns = t_ns;
    }
    ck_assert_uint_gt(count, 2);
    qsort(distances, count, sizeof distances[0], compare);
    return distances[count / 2];
}

/* Processes of a class in the last sample. */
static int64_t processes_of(const char *class)
{
    for (size_t i = json_array_size(kernel); i > 0; i--) {
        const json_t *classes = json_object_get(json_array_get(kernel, i - 1), "pg");
        if (classes != NULL)
            return json_integer_value(json_array_get(json_object_get(classes, class), 0));
    }
    return -1;
}

static bool classes_seen(void)
{
    /* the sampler's own session is a backend, too */
    return processes_of("backend") == CLIENTS + 1 && processes_of("postmaster") == 1 &&
           processes_of("checkpointer") == 1 && processes_of("walwriter") == 1 &&
           processes_of("bgwriter") == 1 && processes_of("archiver") == 1;
}

/* Sessions of clients that are idle, as the last sample of the views counts them. */
static int64_t idle_clients(void)
{
    const json_t *row, *activity = NULL;
    size_t index;

    json_array_foreach(views, index, row)
    {
        if (json_object_get(row, "views") != NULL)
            activity = json_object_get(json_object_get(row, "views"), "activity");
    }
    json_array_foreach(activity, index, row)
    {
        const char *kind = json_string_value(json_array_get(row, 0));
        const char *state = json_string_value(json_array_get(row, 1));
        if (kind != NULL && state != NULL && strcmp(kind, "client backend") == 0 &&
            strcmp(state, "idle") == 0)
            return json_integer_value(json_array_get(row, 3));
    }
    return 0;
}

static bool views_seen(void)
{
    return idle_clients() == CLIENTS;
}

static const json_t *last_sample(const json_t *lines, const char *member)
{
    for (size_t i = json_array_size(lines); i > 0; i--)
        if (json_object_get(json_array_get(lines, i - 1), member) != NULL)
            return json_array_get(lines, i - 1);
    return NULL;
}

static void check_members(void)
{
    const json_t *sample = last_sample(kernel, "mem");
    const json_t *database = json_object_get(last_sample(views, "views"), "views");

    ck_assert_int_gt(json_number(json_object_get(sample, "mem"), "available", 0), 0);
    ck_assert_int_gt(json_number(json_object_get(sample, "vm"), "pgfault", 0), 0);
    ck_assert(json_is_object(json_object_get(sample, "disk")));
    ck_assert(json_is_object(json_object_get(sample, "net")));
    ck_assert(json_is_false(json_object_get(json_object_get(database, "server"), "recovery")));
    ck_assert_ptr_nonnull(json_object_get(json_object_get(database, "databases"), "postgres"));
    ck_assert(json_is_object(json_object_get(database, "archiver")));
    ck_assert(json_is_object(json_object_get(database, "wal")));
    ck_assert(json_is_object(json_object_get(database, "bgwriter")));
}

static void check_locked(pid_t worker)
{
    char path[64], row[256];
    long locked_kb = -1;

    snprintf(path, sizeof path, "/proc/%d/status", (int) worker);
    OWNED_FILE FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(row, sizeof row, file) != NULL)
        sscanf(row, "VmLck: %ld", &locked_kb);
#ifndef __SANITIZE_ADDRESS__ /* which makes mlockall() do nothing */
    ck_assert_int_gt(locked_kb, 1024);
#else
    ck_assert_int_ge(locked_kb, 0);
#endif
}

/*
 * Its rate and classes; and stopped for half a second it marks that as a gap, neither less nor (but
 * for a period before and what the machine is late) more.
 */
START_TEST(samples_with_a_gap)
{
    PGconn *clients[CLIENTS];

    for (int i = 0; i < CLIENTS; i++)
        clients[i] = throwaway_connect(&server);
    start();
    pid_t worker = await_worker(0);
    await(classes_seen, "classes of processes");
    await(views_seen, "sessions in the views");
    await(some_samples, "samples");
    check_locked(worker);

    int64_t stopped_ns = clock_boot_ns();
    ck_assert_int_eq(kill(worker, SIGSTOP), 0);
    while (!deadline_passed(stopped_ns + 500 * NS_PER_MS))
        poll(NULL, 0, deadline_left_ms(stopped_ns + 500 * NS_PER_MS));
    int64_t woken_ns = clock_boot_ns();
    ck_assert_int_eq(kill(worker, SIGCONT), 0);
    await(late_gap, "gap");
    stop();
    reread();

    const json_t *gap = NULL, *row;
    size_t index;
    json_array_foreach(kernel, index, row)
    { /* there may be others on a busy machine */
        const json_t *one = json_object_get(row, "gap");
        if (one != NULL && json_number(one, "to", 0) >= woken_ns &&
            json_number(one, "from", 0) <= stopped_ns)
            gap = one;
    }
    ck_assert_msg(gap != NULL, "the gap is another one");
    ck_assert_str_eq(json_text(gap, "why", ""), "late");
    ck_assert_int_ge(gap_ms(gap), 500);
    ck_assert_int_le(gap_ms(gap), (woken_ns - stopped_ns) / NS_PER_MS + 400);
    ck_assert_int_ge(median_ms(kernel, "mem"), 95);
    ck_assert_int_le(median_ms(kernel, "mem"), 110);
    ck_assert_int_ge(median_ms(views, "views"), VIEWS_MS - 20);
    ck_assert_int_le(median_ms(views, "views"), VIEWS_MS + 50);
    ck_assert_uint_eq(count_of(kernel, "end"), 1);
    ck_assert_uint_eq(count_of(views, "end"), 1);
    check_members();
    ck_assert_int_eq(worker_now(), 0);
    for (int i = 0; i < CLIENTS; i++)
        PQfinish(clients[i]);
}
END_TEST

/* --- what happens around it ------------------------------------------------------------------- */

static void kill_server(void)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes all = {0};

    ck_assert_int_eq(pg_processes_list(arena, server.data, &all, NULL), STATUS_OK);
    for (size_t i = 0; i < all.count; i++)
        if (process_signal(all.items[i].id, SIGKILL, NULL) == STATUS_OK)
            ck_assert_int_eq(process_wait_gone(all.items[i].id, deadline_in_ms(WAIT_MS), NULL),
                             STATUS_OK);
}

static bool nobody_left(void)
{
    return processes_of("backend") == 0 && processes_of("postmaster") == 0;
}

static bool somebody_back(void)
{
    return processes_of("postmaster") == 1 && processes_of("checkpointer") == 1;
}

/* The server dies and is started again: samples of the kernel go on, those of the views come back
 * by themselves. */
START_TEST(the_server_dies_and_comes_back)
{
    start();
    await(some_samples, "samples");
    kill_server();
    await(down_said, "word of the server's end");
    await(nobody_left, "end of its processes");
    throwaway_restart(&server);
    await(down_gap, "gap of the views");
    await(somebody_back, "the new server's processes");
    stop();
    ck_assert_ptr_null(gap_of(kernel, "down"));
    /* a smart shutdown waits for every session */
    start();
    await(some_samples, "samples");
    const char *argv[] = {"/usr/lib/postgresql/15/bin/pg_ctl",
                          "stop",
                          "--mode=smart",
                          "--timeout=8",
                          "--silent",
                          "--pgdata",
                          server.data,
                          NULL};
    struct process_spec spec = {.argv = argv, .user = "postgres", .timeout_ms = WAIT_MS};
    struct error err = {0};
    ck_assert_msg(process_run(&spec, NULL, &err) == STATUS_OK, "%s", err.message);
    throwaway_restart(&server);
}
END_TEST

static void session_of_sampler(char pid[16])
{
    OWNED_PG PGconn *admin = throwaway_connect(&server);

    ck_assert_int_eq(pg_query_text(admin,
                                   "SELECT pid FROM pg_stat_activity WHERE application_name ="
                                   " 'ordeal-sampler'",
                                   deadline_in_ms(WAIT_MS), pid, 16, NULL),
                     STATUS_OK);
}

/* One backend is to be killed, the oldest, which is the sampler's: a client's is taken instead. */
START_TEST(who_looks_is_spared)
{
    char before[16], after[16];

    start();
    await(some_samples, "samples");
    OWNED_PG PGconn *client = throwaway_connect(&server);
    session_of_sampler(before);
    json_decref(agent_call(peer, "fault.inject",
                           json_pack("{s:s, s:s, s:s, s:{s:s, s:i, s:s}, s:i}", "run", "run-1",
                                     "uid", "kill-1", "fault", "process.kill", "params", "process",
                                     "backend", "count", 1, "signal", "term", "hold_ms", 1000)));
    session_of_sampler(after);
    ck_assert_str_eq(before, after);
    ck_assert_int_ne(pg_query(client, "SELECT 1", deadline_in_ms(WAIT_MS), NULL, NULL), STATUS_OK);
}
END_TEST

/* A worker that dies is started again and says what was missed; the end of the session is the end
 * of the sampler, and no session of ours stays in the database. */
START_TEST(a_worker_dies_and_the_session_ends)
{
    start();
    start(); /* told again, it only answers */
    pid_t first = await_worker(0);
    await(some_samples, "samples");
    ck_assert_int_eq(kill(first, SIGKILL), 0);
    pid_t second = await_worker(first);
    await(restart_gaps, "gap");
    ck_assert_int_ge(gap_ms(gap_of(kernel, "restart")), 900);
    ck_assert_uint_eq(count_of(kernel, "samples"), 2);

    struct process_id worker;
    ck_assert_int_eq(process_identify(second, &worker, NULL), STATUS_OK);
    json_decref(
        agent_call(peer, "session.close", json_pack("{s:s, s:b}", "run", "run-1", "purge", 1)));
    ck_assert_int_eq(process_wait_gone(worker, deadline_in_ms(WAIT_MS), NULL), STATUS_OK);
    OWNED_PG PGconn *admin = throwaway_connect(&server);
    int64_t deadline_ns = deadline_in_ms(WAIT_MS);
    for (char count[16] = "?"; strcmp(count, "0") != 0; poll(NULL, 0, 10)) {
        ck_assert_msg(!deadline_passed(deadline_ns), "%s sessions are left", count);
        ck_assert_int_eq(pg_query_text(admin,
                                       "SELECT count(*) FROM pg_stat_activity WHERE"
                                       " application_name = 'ordeal-sampler'",
                                       deadline_ns, count, sizeof count, NULL),
                         STATUS_OK);
    }
}
END_TEST

int main(void)
{
    const char *why = throwaway_isolate();
    Suite *suite = suite_create("sampler");
    TCase *cases = tcase_create("sampler");

    if (why == NULL) {
        tcase_set_timeout(cases, 60);
        tcase_add_unchecked_fixture(cases, up, down);
        tcase_add_checked_fixture(cases, setup, teardown);
        tcase_add_test(cases, samples_with_a_gap);
        tcase_add_test(cases, the_server_dies_and_comes_back);
        tcase_add_test(cases, who_looks_is_spared);
        tcase_add_test(cases, a_worker_dies_and_the_session_ends);
    } else {
        printf("skipped: %s\n", why);
    }
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
