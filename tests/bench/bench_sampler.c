/* SPDX-License-Identifier: MIT */
/*
 * What an agent costs a database node that it samples ten times a second, beside a PostgreSQL with
 * many idle connections: processor time of agent and sampler together, and their memory.
 *
 * usage: bench_sampler [SECONDS [CONNECTIONS]]
 */
#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/sampler/parse.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "lib/pg_processes.h"
#include "lib/process.h"
#include "tests/support/agent_fixture.h"
#include "tests/support/throwaway_postgres.h"

enum { LEASE_MS = 60000, SETTLE_MS = 3000, WAIT_MS = 10000, CONNECTIONS_MAX = 2000 };

static int seconds = 30, connections = 200;
static struct throwaway server;
static PGconn *clients[CONNECTIONS_MAX];

static void execute(PGconn *admin, const char *sql)
{
    OWNED_PG_RESULT PGresult *result = PQexec(admin, sql);

    ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK, "%s: %s", sql, PQerrorMessage(admin));
}

static void start_server(void)
{
    char setting[64];

    throwaway_start(&server);
    PGconn *admin = throwaway_connect(&server);
    snprintf(setting, sizeof setting, "ALTER SYSTEM SET max_connections = %d", connections + 20);
    execute(admin, setting);
    execute(admin, "CREATE ROLE ordeal_admin SUPERUSER LOGIN");
    PQfinish(admin);
    const char *argv[] = {"/usr/lib/postgresql/15/bin/pg_ctl",
                          "stop",
                          "--mode=fast",
                          "--silent",
                          "--pgdata",
                          server.data,
                          NULL};
    struct process_spec spec = {.argv = argv, .user = "postgres", .timeout_ms = 60000};
    ck_assert_int_eq(process_run(&spec, NULL, NULL), STATUS_OK);
    throwaway_restart(&server);
    for (int i = 0; i < connections; i++)
        clients[i] = throwaway_connect(&server);
}

static void pause_ms(int64_t ms)
{
    int64_t deadline_ns = deadline_in_ms(ms);

    while (!deadline_passed(deadline_ns))
        poll(NULL, 0, deadline_left_ms(deadline_ns));
}

/* --- looking at processes --------------------------------------------------------------------- */

static bool read_text(pid_t pid, const char *name, char *text, size_t size)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int) pid, name);
    OWNED_FILE FILE *file = fopen(path, "re");
    size_t length = file == NULL ? 0 : fread(text, 1, size - 1, file);
    text[length] = '\0';
    return length > 0;
}

static int64_t ticks_of(pid_t pid)
{
    char text[4096];
    struct process_stat stat = {0};

    ck_assert(read_text(pid, "stat", text, sizeof text) && parse_stat(text, &stat));
    return stat.cpu_ticks;
}

static double mebibytes_of(pid_t pid, const char *file, const char *name)
{
    char text[8192];
    int64_t kib;

    ck_assert(read_text(pid, file, text, sizeof text));
    parse_named(text, &name, 1, &kib);
    return (double) kib / 1024.0;
}

/* What it does not share with the agent that it was forked from, or with anybody else. */
static double own_mebibytes(pid_t pid)
{
    return mebibytes_of(pid, "smaps_rollup", "Private_Clean") +
           mebibytes_of(pid, "smaps_rollup", "Private_Dirty");
}

/* The agent's child; waited for. */
static pid_t sampler_of(pid_t agent)
{
    char name[64], text[256];
    int64_t deadline_ns = deadline_in_ms(WAIT_MS);
    pid_t pid;

    snprintf(name, sizeof name, "task/%d/children", (int) agent);
    while (!read_text(agent, name, text, sizeof text) || parse_children(text, &pid, 1) == 0) {
        ck_assert_msg(!deadline_passed(deadline_ns), "no sampler runs");
        pause_ms(10);
    }
    return pid;
}

/* --- the bench -------------------------------------------------------------------------------- */

static void stop_sampler(struct agent_peer *peer)
{
    for (bool running = true; running; pause_ms(20)) {
        OWNED_JSON json_t *result =
            agent_call(peer, "sample.stop", json_pack("{s:s}", "run", "bench"));
        running = json_flag(result, "running", false);
    }
}

static void measure(struct agent_peer *peer, bool processes, double goal_percent)
{
    pid_t agent = agent_fixture_agent(0);

    json_decref(agent_call(peer, "sample.start",
                           json_pack("{s:s, s:b}", "run", "bench", "processes", processes)));
    pid_t sampler = sampler_of(agent);
    pause_ms(SETTLE_MS);
    int64_t begun_ns = clock_boot_ns();
    int64_t before = ticks_of(agent) + ticks_of(sampler);
    pause_ms(seconds * 1000);
    int64_t ticks = ticks_of(agent) + ticks_of(sampler) - before;
    double elapsed = (double) (clock_boot_ns() - begun_ns) / (double) NS_PER_SECOND;
    double percent = 100.0 * (double) ticks / (double) sysconf(_SC_CLK_TCK) / elapsed;

    double agent_mib = mebibytes_of(agent, "status", "VmRSS");
    printf("sampler  %s processes, %d connections, %.0f s: %.2f %% of a core (goal %.1f), agent "
           "%.1f MiB resident, sampler %.1f MiB, both together %.1f MiB (goal 24)\n",
           processes ? "with" : "without", connections, elapsed, percent, goal_percent, agent_mib,
           mebibytes_of(sampler, "status", "VmRSS"), agent_mib + own_mebibytes(sampler));
    fflush(stdout);
    stop_sampler(peer);
}

/* The fixtures' assertions want a Check test around them. */
START_TEST(bench)
{
    start_server();
    agent_fixture_start();
    struct agent_peer *peer = agent_peer_new("control");
    json_decref(agent_call(peer, "session.open", agent_session("bench", LEASE_MS, server.data)));
    measure(peer, false, 0.5);
    measure(peer, true, 1.5);
    agent_peer_free(peer);
    agent_fixture_stop();
    for (int i = 0; i < connections; i++)
        PQfinish(clients[i]);
    throwaway_stop(&server);
}
END_TEST

int main(int argc, char **argv)
{
    int *const numbers[] = {&seconds, &connections};
    const char *why = throwaway_isolate();

    if (why != NULL) {
        printf("skipped: %s\n", why);
        return 77;
    }
    for (int i = 1; i < argc && i <= 2; i++)
        if ((*numbers[i - 1] = atoi(argv[i])) < 1)
            *numbers[i - 1] = 1;
    if (connections > CONNECTIONS_MAX)
        connections = CONNECTIONS_MAX;
    Suite *suite = suite_create("sampler");
    TCase *cases = tcase_create("bench");
    tcase_add_test(cases, bench);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
