/* SPDX-License-Identifier: MIT */
/*
 * What a ledger costs: writing it, and carrying a load with it.
 *
 * Ledger load and pgbench run in turns, with the same statements, the same number of clients and a
 * server that syncs its WAL to the same disk, and the ratio of each pair is printed. Then the
 * ledger load runs in open loop at 0.85 of its saturation: does it keep its schedule?
 *
 * usage: bench_ledger [ROUNDS [SECONDS [CLIENTS]]]
 */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "agents/load/worker.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "tests/support/throwaway_postgres.h"

enum { RECORDS = 1000000, PAYLOAD = 64 };

static struct throwaway server;
static char folder[64];
static int rounds = 10, seconds = 5, clients = 16;

static void must(enum status status, const struct error *err)
{
    if (status == STATUS_OK)
        return;
    fprintf(stderr, "%s\n", err->message);
    throwaway_stop(&server);
    exit(1);
}

static double seconds_since(int64_t begun_ns)
{
    return (double) (clock_boot_ns() - begun_ns) / (double) NS_PER_SECOND;
}

/* --- the file --------------------------------------------------------------------------------- */

static void append_all(struct ledger_writer *writer)
{
    for (uint64_t seq = 1; seq <= RECORDS; seq++) {
        struct ledger_record record = {.kind = LEDGER_INTENT, .client = 1, .seq = seq};
        while (!ledger_writer_durable(writer, ledger_writer_position(writer)) && seq % 10000 == 0)
            poll(NULL, 0, 1); /* room comes from the flusher */
        if (!ledger_append(writer, record)) {
            fprintf(stderr, "no room for record %llu\n", (unsigned long long) seq);
            exit(1);
        }
    }
}

static void bench_file(void)
{
    struct ledger_header header = {.magic = {"ordeal-ledger-1"},
                                   .version = LEDGER_VERSION,
                                   .record_size = sizeof(struct ledger_record),
                                   .node_count = 1};
    struct ledger_writer *writer = NULL;
    struct error err = {0};
    char path[128];

    header.magic[15] = '\n';
    snprintf(path, sizeof(path), "%s/file.ledger", folder);
    must(ledger_writer_open(path, &header, &writer, &err), &err);
    int64_t begun_ns = clock_boot_ns();
    append_all(writer);
    must(ledger_writer_close(writer, deadline_in_ms(60000), &err), &err);
    printf("write    %d records, all durable: %.2f million a second\n", RECORDS,
           RECORDS / seconds_since(begun_ns) / 1e6);
    unlink(path);
}

/* --- load ------------------------------------------------------------------------------------- */

static void execute(PGconn *admin, const char *sql)
{
    OWNED_PG_RESULT PGresult *result = PQexec(admin, sql);

    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK) {
        fprintf(stderr, "%s: %s\n", sql, PQerrorMessage(admin));
        exit(1);
    }
}

static void start_server(void)
{
    throwaway_start(&server);
    PGconn *admin = throwaway_connect(&server);
    execute(admin, "ALTER SYSTEM SET fsync = on");
    execute(admin, "SELECT pg_reload_conf()");
    execute(admin, "CREATE SCHEMA ordeal");
    execute(admin, "CREATE TABLE ordeal.journal(client bigint, seq bigint, row smallint,"
                   " rows smallint, digest bigint, payload text)");
    execute(admin, "CREATE INDEX ON ordeal.journal(client, seq)");
    PQfinish(admin);
}

static uint64_t acked(struct load_shared *shared)
{
    return atomic_load(&shared->workers[0].acked);
}

static void pause_until(int64_t instant_ns)
{
    while (!deadline_passed(instant_ns))
        poll(NULL, 0, deadline_left_ms(instant_ns));
}

/* rate 0: as fast as it goes; latency: of all acknowledged since the first one, or NULL. */
static double run_ledger(int round, double rate, struct histogram *latency)
{
    static struct load_plan plan;
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *workload =
        json_pack("{s:i, s:i, s:f, s:i}", "clients", clients, "payload", PAYLOAD, "rate", rate,
                  "first_client", 1 + 1000 * round);
    struct load_request request = {.workload = workload, .seed = 1};
    struct error err = {0};
    struct process process;

    plan = (struct load_plan){
        .run = "bench", .client_node = "c1", .node_count = 1, .endpoint_count = 1};
    plan.nodes[0] = (struct load_node){
        "n1",
        {.host = "127.0.0.1", .port = THROWAWAY_PORT, .database = "postgres", .user = "postgres"}};
    must(load_plan_fill(&plan, arena, &request, folder, &err), &err);
    struct load_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct worker_order order = {.plan = &plan, .shared = shared, .control = eventfd(0, 0)};
    must(process_fork(worker_main, &order, &process, &err), &err);
    while (acked(shared) < 100)
        poll(NULL, 0, 5);
    uint64_t before = acked(shared);
    int64_t begun_ns = clock_boot_ns();
    pause_until(begun_ns + seconds * NS_PER_SECOND);
    double reached = (double) (acked(shared) - before) / seconds_since(begun_ns);
    if (latency != NULL)
        histogram_snapshot(&shared->workers[0].latency, latency);
    atomic_store(&shared->stop_ns, deadline_in_ms(5000));
    eventfd_write(order.control, 1);
    must(process_reap(&process, deadline_in_ms(20000), NULL, &err), &err);
    close(order.control);
    munmap(shared, sizeof(*shared));
    unlink(plan.workers[0].path);
    return reached;
}

static double ledger_rate(int round)
{
    return run_ledger(round, 0, NULL);
}

static void write_script(const char *path, int round)
{
    FILE *file = fopen(path, "we");
    char payload[PAYLOAD + 1];

    memset(payload, 'p', PAYLOAD);
    payload[PAYLOAD] = '\0';
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "\\set token random(1, 1000000000)\n"
            "BEGIN\\;INSERT INTO ordeal.journal(client,seq,row,rows,digest,payload)VALUES"
            "(%d+:client_id,:token,1,1,-7046029254386353131,'%s')\\;"
            "SET CONSTRAINTS ALL IMMEDIATE\\;SELECT pg_catalog.pg_current_wal_insert_lsn(),"
            "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()),"
            "pg_catalog.current_setting('synchronous_commit'),"
            "pg_catalog.current_setting('client_min_messages');\n"
            "COMMIT;\n",
            500 + 1000 * round, payload);
    fclose(file);
}

static double pgbench_rate(int round)
{
    OWNED_RESULT struct process_result result = {0};
    struct error err = {0};
    char script[128], clients_text[16], seconds_text[16];

    snprintf(script, sizeof(script), "%s/script.sql", folder);
    snprintf(clients_text, sizeof(clients_text), "%d", clients);
    snprintf(seconds_text, sizeof(seconds_text), "%d", seconds);
    write_script(script, round);
    const char *argv[] = {"pgbench",    "--no-vacuum", "--client", clients_text, "--time",
                          seconds_text, "--file",      script,     "--host",     "127.0.0.1",
                          "--username", "postgres",    "postgres", NULL};
    must(process_run(&(struct process_spec){.argv = argv, .timeout_ms = 600000}, &result, &err),
         &err);
    unlink(script);
    const char *tps = strstr(buffer_text(&result.output), "tps = ");
    return tps != NULL ? strtod(tps + 6, NULL) : 0;
}

/* Processor time of the children that have ended so far: the load's own cost, which is steady also
 * on a machine that others use. */
static double children_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_CHILDREN, &usage);
    return (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

struct side {
    double rate, cpu_us; /* transactions a second; processor time of the client for each */
};

static struct side run_side(double (*run)(int round), int round)
{
    double before = children_seconds();
    double rate = run(round);

    return (struct side){rate, (children_seconds() - before) / (rate * seconds) * 1e6};
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *) left;
    double b = *(const double *) right;

    return (a > b) - (a < b);
}

static double median(double *values)
{
    qsort(values, (size_t) rounds, sizeof *values, compare);
    return values[rounds / 2];
}

static void bench_open_loop(double saturation)
{
    static struct histogram latency;
    double asked = 0.85 * saturation;
    double reached = run_ledger(rounds + 1, asked, &latency);

    printf(
        "open     0.85 of saturation: %.0f/s asked, %.0f/s reached (%.3f), p50 %.1f ms, p99 %.1f "
        "ms from the scheduled start\n",
        asked, reached, reached / asked, (double) histogram_percentile(&latency, 50) / 1000,
        (double) histogram_percentile(&latency, 99) / 1000);
}

static void bench_load(void)
{
    double *ratios = calloc((size_t) rounds, sizeof(double));
    double *rates = calloc((size_t) rounds, sizeof(double));

    for (int round = 0; round < rounds; round++) {
        struct side ledger = {0}, pgbench = {0};
        for (int half = 0; half < 2; half++) { /* who goes first changes */
            if ((round + half) % 2 == 0)
                ledger = run_side(ledger_rate, round);
            else
                pgbench = run_side(pgbench_rate, round);
        }
        ratios[round] = ledger.rate / pgbench.rate;
        rates[round] = ledger.rate;
        printf("load     %d clients: ledger %.0f/s (client %.0f us each), pgbench %.0f/s (%.0f us),"
               " ratio %.3f\n",
               clients, ledger.rate, ledger.cpu_us, pgbench.rate, pgbench.cpu_us, ratios[round]);
        fflush(stdout);
    }
    printf("load     median ratio of %d pairs %.3f\n", rounds, median(ratios));
    bench_open_loop(median(rates));
    free(ratios);
    free(rates);
}

/* The fixture's assertions want a Check test around them. */
START_TEST(bench_all)
{
    snprintf(folder, sizeof(folder), "/tmp/ordeal-bench-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    bench_file();
    start_server();
    bench_load();
    throwaway_stop(&server);
    rmdir(folder);
}
END_TEST

int main(int argc, char **argv)
{
    int *const numbers[] = {&rounds, &seconds, &clients};
    const char *why = throwaway_isolate();

    if (why != NULL) {
        printf("skipped: %s\n", why);
        return 77;
    }
    for (int i = 1; i < argc && i <= 3; i++)
        if ((*numbers[i - 1] = atoi(argv[i])) < 1)
            *numbers[i - 1] = 1;
    Suite *suite = suite_create("ledger");
    TCase *cases = tcase_create("bench");
    tcase_add_test(cases, bench_all);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
