/* SPDX-License-Identifier: MIT */
/* Load workers against a real PostgreSQL: what the ledger says is what the table holds. */
#include <check.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agents/load/worker.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "tests/support/throwaway_postgres.h"

static struct throwaway server;
static struct arena *arena;
static struct load_plan plan;
static struct load_shared *shared;
static struct process processes[LOAD_WORKERS_MAX];
static struct worker_order orders[LOAD_WORKERS_MAX];
static PGconn *admin;
static char spool[64];

/* --- the server ------------------------------------------------------------------------------ */

static int64_t query_number(const char *sql)
{
    OWNED_PG_RESULT PGresult *result = PQexec(admin, sql);

    if (PQresultStatus(result) == PGRES_COMMAND_OK)
        return 0;
    if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
        ck_abort_msg("%s: %s", sql, PQerrorMessage(admin));
    return strtoll(PQgetvalue(result, 0, 0), NULL, 10);
}

static void execute(const char *sql)
{
    OWNED_PG_RESULT PGresult *result = PQexec(admin, sql);

    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        ck_abort_msg("%s: %s", sql, PQerrorMessage(admin));
}

/* Once for all tests; a test that failed may have left it in any state. */
static void start_server(void)
{
    throwaway_start(&server);
    admin = throwaway_connect(&server);
    execute("CREATE SCHEMA ordeal");
    execute("CREATE TABLE ordeal.journal(client bigint, seq bigint, row smallint, rows smallint,"
            " digest bigint, payload text)");
    execute("CREATE INDEX ON ordeal.journal(client, seq)");
    PQfinish(admin);
}

static void stop_server(void)
{
    throwaway_stop(&server);
}

static void setup(void)
{
    if (!throwaway_wait_ready(&server, 100))
        throwaway_restart(&server);
    admin = throwaway_connect(&server);
    execute("SET client_min_messages = warning");
    execute("ALTER SYSTEM RESET synchronous_standby_names");
    execute("ALTER SYSTEM RESET synchronous_commit");
    execute("ALTER SYSTEM RESET default_transaction_read_only");
    execute("SELECT pg_reload_conf()");
    execute("SET default_transaction_read_only = off");
    execute("DROP FUNCTION IF EXISTS ordeal.meddle() CASCADE");
    execute("TRUNCATE ordeal.journal");
    arena = arena_new();
    snprintf(spool, sizeof(spool), "/tmp/ordeal-load-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(spool));
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
}

static void teardown(void)
{
    for (size_t i = 0; i < plan.worker_count; i++)
        process_kill(&processes[i]);
    PQfinish(admin);
    const char *argv[] = {"rm", "-rf", spool, NULL};
    ck_assert_int_eq(
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = 10000}, NULL, NULL),
        STATUS_OK);
    arena_free(arena);
}

/* --- the load -------------------------------------------------------------------------------- */

/* Node "n1" refuses, since nothing listens there; "n2" is the server. */
static void make_plan(bool managed, const char *workload, const char *probes)
{
    OWNED_JSON json_t *workload_json = NULL;
    OWNED_JSON json_t *probes_json = NULL;
    struct error err = {0};

    if (workload != NULL)
        ck_assert_int_eq(json_parse_text(workload, strlen(workload), &workload_json, NULL),
                         STATUS_OK);
    if (probes != NULL)
        ck_assert_int_eq(json_parse_text(probes, strlen(probes), &probes_json, NULL), STATUS_OK);
    plan = (struct load_plan){.run = "run-1",
                              .client_node = "c1",
                              .node_count = 2,
                              .endpoint_count = 2,
                              .endpoint = {0, 1},
                              .managed = managed};
    plan.nodes[0] = (struct load_node){
        "n1", {.host = "127.0.0.1", .port = 1, .database = "postgres", .user = "postgres"}};
    plan.nodes[1] = (struct load_node){
        "n2",
        {.host = "127.0.0.1", .port = THROWAWAY_PORT, .database = "postgres", .user = "postgres"}};
    struct load_request request = {.workload = workload_json, .probes = probes_json, .seed = 7};
    if (load_plan_fill(&plan, arena, &request, spool, &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
    atomic_store(&shared->route, plan.route);
    atomic_store(&shared->stop_ns, 0);
}

static void start_workers(void)
{
    for (size_t i = 0; i < plan.worker_count; i++) {
        orders[i] = (struct worker_order){
            .plan = &plan, .index = i, .shared = shared, .control = eventfd(0, EFD_NONBLOCK)};
        ck_assert_int_eq(process_fork(worker_main, &orders[i], &processes[i], NULL), STATUS_OK);
    }
}

static void poke(void)
{
    for (size_t i = 0; i < plan.worker_count; i++)
        eventfd_write(orders[i].control, 1);
}

static void stop_workers(int64_t drain_ms)
{
    atomic_store(&shared->stop_ns, deadline_in_ms(drain_ms));
    poke();
    for (size_t i = 0; i < plan.worker_count; i++) {
        int wait_status = -1;
        ck_assert_int_eq(process_reap(&processes[i], deadline_in_ms(20000), &wait_status, NULL),
                         STATUS_OK);
        ck_assert_msg(wait_status == 0, "worker %zu: %s", i, shared->workers[i].error);
        ck_assert(atomic_load(&shared->workers[i].complete));
    }
}

/* Wait until `condition` holds, at most so long; says what it was waiting for. */
#define await(condition, timeout_ms)                                                               \
    do {                                                                                           \
        int64_t await_until_ns = deadline_in_ms(timeout_ms);                                       \
        while (!(condition)) {                                                                     \
            ck_assert_msg(!deadline_passed(await_until_ns), "waited in vain for %s", #condition);  \
            usleep(5000);                                                                          \
        }                                                                                          \
    } while (0)

static uint64_t acked(size_t worker)
{
    return atomic_load(&shared->workers[worker].acked);
}

/* --- the ledger, beside the table ------------------------------------------------------------ */

static struct ledger open_ledger(size_t worker)
{
    struct ledger ledger = {0};
    struct error err = {0};

    if (ledger_open(plan.workers[worker].path, &ledger, &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
    ck_assert(!ledger.torn_tail || !ledger.ended); /* a killed worker may leave half a record */
    return ledger;
}

static size_t count_kind(const struct ledger *ledger, enum ledger_kind kind)
{
    size_t count = 0;

    for (size_t i = 0; i < ledger->count; i++)
        count += ledger->records[i].kind == kind;
    return count;
}

static size_t count_class(const struct ledger *ledger, enum ledger_class class)
{
    size_t count = 0;

    for (size_t i = 0; i < ledger->count; i++)
        count += ledger->records[i].kind == LEDGER_OUTCOME && ledger->records[i].class == class;
    return count;
}

static const struct ledger_record *find(const struct ledger *ledger, enum ledger_kind kind,
                                        uint32_t client, uint64_t seq)
{
    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->records[i].kind == kind && ledger->records[i].client == client &&
            ledger->records[i].seq == seq)
            return &ledger->records[i];
    return NULL;
}

static bool reserved(const struct ledger *ledger, uint32_t client, uint64_t seq)
{
    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->records[i].kind == LEDGER_RESERVE && ledger->records[i].client == client &&
            ledger->records[i].seq <= seq && seq <= ledger->records[i].lsn)
            return true;
    return false;
}

/* Copy the ledger's tokens into tables of the server, so that SQL compares the sets. */
static void load_outcomes(const struct ledger *ledger)
{
    OWNED_BUFFER struct buffer text = BUFFER(64 << 20);

    buffer_puts(&text, "CREATE TEMP TABLE IF NOT EXISTS outcome(client bigint, seq bigint, class"
                       " int); CREATE TEMP TABLE IF NOT EXISTS intent(client bigint, seq bigint);"
                       "INSERT INTO outcome VALUES (0, 0, -1)");
    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->records[i].kind == LEDGER_OUTCOME)
            buffer_printf(&text, ",(%u,%llu,%d)", ledger->records[i].client,
                          (unsigned long long) ledger->records[i].seq, ledger->records[i].class);
    buffer_puts(&text, "; INSERT INTO intent VALUES (0, 0)");
    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->records[i].kind == LEDGER_INTENT)
            buffer_printf(&text, ",(%u,%llu)", ledger->records[i].client,
                          (unsigned long long) ledger->records[i].seq);
    ck_assert(!text.overflow);
    execute(buffer_text(&text));
}

#define LOST                                                                                       \
    "SELECT count(*) FROM (SELECT client, seq FROM outcome WHERE class = 0"                        \
    " EXCEPT SELECT client, seq FROM ordeal.journal) lost"
#define UNKNOWN                                                                                    \
    "SELECT count(*) FROM (SELECT client, seq FROM ordeal.journal EXCEPT SELECT * FROM intent) u"

/* All ledgers that were loaded hold what the table holds. */
static void compare_with_table(void)
{
    ck_assert_int_eq(query_number(LOST), 0);
    ck_assert_int_eq(query_number(UNKNOWN), 0);
    ck_assert_int_eq(query_number("SELECT count(*) FROM outcome JOIN ordeal.journal USING (client,"
                                  " seq) WHERE class IN (3, 4)"),
                     0);
    ck_assert_int_eq(query_number("SELECT count(*) FROM (SELECT FROM outcome WHERE client > 0 GROUP"
                                  " BY client, seq HAVING count(*) > 1) twice"),
                     0);
    ck_assert_int_eq(
        query_number("SELECT count(*) FROM (SELECT FROM ordeal.journal GROUP BY client,"
                     " seq HAVING count(*) <> max(rows) OR count(DISTINCT row) <>"
                     " count(*)) odd"),
        0);
    /* tokens of a client are dense */
    ck_assert_int_eq(query_number("SELECT count(*) FROM (SELECT FROM outcome WHERE client > 0 GROUP"
                                  " BY client HAVING max(seq) <> count(*) OR min(seq) <> 1) gaps"),
                     0);
}

static void check_against_table(const struct ledger *ledger)
{
    load_outcomes(ledger);
    compare_with_table();
}

static void check_digests(void)
{
    OWNED_PG_RESULT PGresult *result =
        PQexec(admin, "SELECT client, seq, row, digest, payload FROM ordeal.journal");

    ck_assert_int_gt(PQntuples(result), 0);
    for (int i = 0; i < PQntuples(result); i++) {
        const char *payload = PQgetvalue(result, i, 4);
        int64_t digest =
            ledger_digest(strtoull(PQgetvalue(result, i, 0), NULL, 10),
                          strtoull(PQgetvalue(result, i, 1), NULL, 10),
                          (unsigned) atoi(PQgetvalue(result, i, 2)), payload, strlen(payload));
        ck_assert_int_eq(digest, strtoll(PQgetvalue(result, i, 3), NULL, 10));
    }
}

/* --- tests ----------------------------------------------------------------------------------- */

START_TEST(two_seconds_of_load)
{
    make_plan(false, "{\"clients\": 8, \"rate\": 200, \"rows\": 3, \"payload\": 100}", NULL);
    ck_assert_uint_eq(plan.worker_count, 1);
    start_workers();
    await(acked(0) >= 400, 10000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    ck_assert(ledger.ended);
    check_against_table(&ledger);
    check_digests();
    size_t good = count_class(&ledger, LEDGER_ACKED);
    ck_assert_uint_eq(good, acked(0));
    ck_assert_uint_eq(good, count_kind(&ledger, LEDGER_INTENT));
    ck_assert_uint_eq(good, count_kind(&ledger, LEDGER_OUTCOME));
    ck_assert_int_eq(query_number("SELECT count(*) FROM ordeal.journal"), (int64_t) good * 3);
    ck_assert_uint_eq(count_kind(&ledger, LEDGER_SESSION), 8);
    ck_assert_uint_eq(count_kind(&ledger, LEDGER_SESSION_END), 8);
    ck_assert_uint_ge(count_kind(&ledger, LEDGER_BEAT), 30);
    ck_assert_uint_ge(count_kind(&ledger, LEDGER_READ), 10);
    ck_assert_uint_eq(atomic_load(&shared->workers[0].in_flight), 0);
    ck_assert_uint_eq(atomic_load(&shared->workers[0].writer), UINT64_C(2) << 32 | 1);
    for (size_t i = 0; i < ledger.count; i++) {
        const struct ledger_record *record = &ledger.records[i];
        if (record->kind == LEDGER_SESSION) {
            ck_assert_int_eq(record->class, LEDGER_ON);
            ck_assert_uint_eq(record->timeline, 1);
            ck_assert_uint_eq(record->node, 1);
        } else if (record->kind == LEDGER_OUTCOME) {
            ck_assert_uint_ne(record->lsn, 0);
            ck_assert_int_ge(record->sent_ns, record->scheduled_ns);
            ck_assert_int_gt(record->done_ns, record->sent_ns);
            ck_assert(reserved(&ledger, record->client, record->seq));
        } else if (record->kind == LEDGER_READ)
            ck_assert_ptr_nonnull(
                find(&ledger, LEDGER_INTENT, (uint32_t) record->lsn, record->seq));
    }
    ledger_close(&ledger);
}
END_TEST

/* Starts are evenly spread over the schedule, whatever the answers take. */
START_TEST(open_loop_keeps_its_schedule)
{
    make_plan(false, "{\"clients\": 4, \"rate\": 100}", NULL);
    start_workers();
    await(acked(0) >= 100, 10000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    int64_t first = INT64_MAX, last = 0;
    for (size_t i = 0; i < ledger.count; i++) {
        const struct ledger_record *record = &ledger.records[i];
        if (record->kind != LEDGER_OUTCOME)
            continue;
        first = record->scheduled_ns < first ? record->scheduled_ns : first;
        last = record->scheduled_ns > last ? record->scheduled_ns : last;
    }
    int64_t step_ns = (last - first) / (int64_t) (count_kind(&ledger, LEDGER_OUTCOME) - 1);
    ck_assert_int_ge(step_ns, 10 * NS_PER_MS - 1000);
    ck_assert_int_le(step_ns, 10 * NS_PER_MS + 200000);
    ledger_close(&ledger);
}
END_TEST

/* The worker is killed in full flight, again and again: no hole. */
START_TEST(killed_worker_leaves_no_hole)
{
    for (int round = 0; round < 3; round++) {
        char workload[128];
        snprintf(workload, sizeof(workload), "{\"clients\": 8, \"rate\": 0, \"first_client\": %d}",
                 1 + round * 100);
        make_plan(false, workload, NULL);
        ck_assert_uint_eq(plan.workers[0].number, (unsigned) round + 1);
        start_workers();
        uint64_t before = acked(0);
        await(acked(0) >= before + 300, 10000);
        process_kill(&processes[0]);
        await(query_number("SELECT count(*) FROM pg_stat_activity WHERE application_name ="
                           " 'ordeal'") == 0,
              5000);

        struct ledger ledger = open_ledger(0);
        ck_assert(!ledger.ended);
        ck_assert_uint_ge(count_class(&ledger, LEDGER_ACKED), 300);
        load_outcomes(&ledger);
        ck_assert_int_eq(query_number(LOST), 0);
        ck_assert_int_eq(query_number(UNKNOWN), 0);
        for (size_t i = 0; i < ledger.count; i++)
            if (ledger.records[i].kind == LEDGER_INTENT)
                ck_assert(reserved(&ledger, ledger.records[i].client, ledger.records[i].seq));
        ledger_close(&ledger);
    }
}
END_TEST

static int64_t waiters(void)
{
    return query_number("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND"
                        " application_name = 'ordeal'");
}

/* Commits wait for a standby that does not exist. */
static void wait_for_nobody(bool on)
{
    execute(on ? "ALTER SYSTEM SET synchronous_standby_names = 'nobody'"
               : "ALTER SYSTEM RESET synchronous_standby_names");
    execute("SELECT pg_reload_conf()");
}

START_TEST(cancelled_wait_is_weak)
{
    make_plan(false, "{\"clients\": 4, \"rate\": 0}", NULL);
    start_workers();
    await(acked(0) >= 20, 10000);
    wait_for_nobody(true);
    await(waiters() == 4, 5000);
    execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    await(atomic_load(&shared->workers[0].errors) >= 4, 5000);
    wait_for_nobody(false);
    await(waiters() == 0, 5000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    ck_assert_uint_ge(count_class(&ledger, LEDGER_WEAK), 4);
    check_against_table(&ledger);
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_OUTCOME && ledger.records[i].class == LEDGER_WEAK)
            ck_assert_str_eq(ledger.records[i].sqlstate, "01000");
    ledger_close(&ledger);
}
END_TEST

START_TEST(terminated_wait_is_in_doubt)
{
    make_plan(false, "{\"clients\": 4, \"rate\": 0}", NULL);
    start_workers();
    await(acked(0) >= 20, 10000);
    wait_for_nobody(true);
    await(waiters() == 4, 5000);
    execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    await(atomic_load(&shared->workers[0].errors) >= 4, 5000);
    wait_for_nobody(false);
    await(waiters() == 0, 5000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    ck_assert_uint_ge(count_class(&ledger, LEDGER_IN_DOUBT), 4);
    check_against_table(&ledger);
    /* committed, though nobody was told */
    ck_assert_int_ge(query_number("SELECT count(DISTINCT (client, seq)) FROM outcome JOIN"
                                  " ordeal.journal USING (client, seq) WHERE class = 2"),
                     4);
    ledger_close(&ledger);
}
END_TEST

/* A commit that hangs is left without a cancel: the server goes on waiting. */
START_TEST(hanging_commit_is_left)
{
    make_plan(false, "{\"clients\": 2, \"rate\": 0, \"commit_timeout\": 300}", NULL);
    start_workers();
    await(acked(0) >= 20, 10000);
    wait_for_nobody(true);
    await(atomic_load(&shared->workers[0].errors) >= 4, 5000);
    ck_assert_int_ge(waiters(), 4);
    wait_for_nobody(false);
    await(waiters() == 0, 5000);
    uint64_t before = acked(0);
    await(acked(0) > before, 5000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    ck_assert_uint_ge(count_class(&ledger, LEDGER_IN_DOUBT), 4);
    ck_assert_uint_eq(count_class(&ledger, LEDGER_WEAK), 0);
    check_against_table(&ledger);
    ledger_close(&ledger);
}
END_TEST

START_TEST(drain_leaves_what_hangs)
{
    make_plan(false, "{\"clients\": 3, \"rate\": 0}", NULL);
    start_workers();
    await(acked(0) >= 20, 10000);
    wait_for_nobody(true);
    await(waiters() == 3, 5000);
    int64_t begun = clock_boot_ns();
    stop_workers(300);
    ck_assert_int_lt(clock_boot_ns() - begun, 2000 * NS_PER_MS);
    struct ledger ledger = open_ledger(0);
    ck_assert(ledger.ended);
    ck_assert_uint_eq(count_class(&ledger, LEDGER_IN_DOUBT), 3);
    ledger_close(&ledger);
    wait_for_nobody(false);
}
END_TEST

static void pg_ctl(const char *word, const char *mode)
{
    const char *argv[] = {
        "/usr/lib/postgresql/15/bin/pg_ctl", word, "--pgdata", server.data, "--wait",
        mode != NULL ? "--mode" : NULL,      mode, NULL};
    struct error err = {0};

    if (process_run(&(struct process_spec){.argv = argv, .user = "postgres", .timeout_ms = 30000},
                    NULL, &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
}

START_TEST(server_stops_and_comes_back)
{
    make_plan(false, "{\"clients\": 8, \"rate\": 0}", NULL);
    start_workers();
    await(acked(0) >= 200, 10000);
    PQfinish(admin);
    pg_ctl("stop", "immediate");
    await(atomic_load(&shared->workers[0].errors) >= 24, 5000); /* 8 lost, then refusals */
    throwaway_restart(&server);
    admin = throwaway_connect(&server);
    uint64_t before = acked(0);
    await(acked(0) >= before + 100, 10000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    check_against_table(&ledger);
    ck_assert_uint_ge(count_class(&ledger, LEDGER_UNSENT), 16);
    ck_assert_uint_eq(count_class(&ledger, LEDGER_WEAK), 0);
    ck_assert_uint_ge(count_kind(&ledger, LEDGER_SESSION), 9); /* some came back */
    ledger_close(&ledger);
}
END_TEST

START_TEST(managed_endpoint)
{
    make_plan(true, "{\"clients\": 4, \"rate\": 100}", NULL);
    ck_assert_int_eq(plan.route, LOAD_ROUTE_CLOSED);
    start_workers();
    await(atomic_load(&shared->workers[0].errors) >= 8, 5000);
    ck_assert_uint_eq(acked(0), 0);
    int64_t opened = clock_boot_ns();
    atomic_store(&shared->route, 1);
    poke();
    await(acked(0) >= 4, 5000);
    ck_assert_int_lt(atomic_load(&shared->workers[0].last_ack_ns) - opened, 1000 * NS_PER_MS);
    /* closing cuts nobody off */
    atomic_store(&shared->route, LOAD_ROUTE_CLOSED);
    poke();
    uint64_t before = acked(0);
    await(acked(0) >= before + 20, 5000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_OUTCOME && ledger.records[i].class == LEDGER_UNSENT) {
            ck_assert_int_eq(ledger.records[i].phase, LEDGER_CONNECTING);
            ck_assert_str_eq(ledger.records[i].sqlstate, "");
        }
    ck_assert_uint_ge(count_class(&ledger, LEDGER_UNSENT), 8);
    check_against_table(&ledger);
    ledger_close(&ledger);
}
END_TEST

/* What could not begin for a second is counted, not dropped and not caught up with. */
/* A host whose kernel answers and whose server says nothing: attempts hang until their deadline. */
static int mute_listener(int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *) &address, length), 0);
    ck_assert_int_eq(listen(fd, 64), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *) &address, &length), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

START_TEST(a_moved_endpoint_ends_attempts_at_the_old_host)
{
    make_plan(true, "{\"clients\": 4, \"rate\": 100}", NULL);
    int fd = mute_listener(&plan.nodes[0].target.port);
    atomic_store(&shared->route, 0);
    start_workers();
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(poll(&waiting, 1, 5000), 1); /* an attempt is under way */
    ck_assert_uint_eq(acked(0), 0);
    int64_t moved_ns = clock_boot_ns();
    atomic_store(&shared->route, 1);
    poke();
    await(acked(0) >= 4, 5000);
    int64_t first_ns = INT64_MAX;
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_SESSION && ledger.records[i].done_ns < first_ns)
            first_ns = ledger.records[i].done_ns;
    ck_assert_int_lt(first_ns - moved_ns, 500 * NS_PER_MS); /* an attempt hangs for 1 s */
    check_against_table(&ledger);
    ledger_close(&ledger);
    close(fd);
}
END_TEST

START_TEST(missed_starts)
{
    make_plan(false, "{\"clients\": 2, \"rate\": 200}", NULL);
    start_workers();
    await(acked(0) >= 20, 10000);
    wait_for_nobody(true);
    await(waiters() == 2, 5000);
    int64_t held = clock_boot_ns();
    await(clock_boot_ns() - held > 3000 * NS_PER_MS, 5000);
    wait_for_nobody(false);
    await(waiters() == 0, 5000);
    uint64_t before = acked(0);
    await(acked(0) >= before + 300, 10000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    uint64_t missed = 0, served = count_class(&ledger, LEDGER_ACKED);
    int64_t first = INT64_MAX, last = 0;
    for (size_t i = 0; i < ledger.count; i++) {
        const struct ledger_record *record = &ledger.records[i];
        if (record->kind == LEDGER_MISSED)
            missed += record->seq;
        if (record->kind == LEDGER_OUTCOME) {
            first = record->scheduled_ns < first ? record->scheduled_ns : first;
            last = record->scheduled_ns > last ? record->scheduled_ns : last;
        }
    }
    ck_assert_uint_ge(missed, 350); /* of the 600 of three seconds, but for the last one */
    ck_assert_uint_le(missed, 650);
    /* every scheduled start is either an outcome or missed */
    int64_t expected = (last - first) / (5 * NS_PER_MS) + 1;
    ck_assert_int_le(llabs((int64_t) (missed + served) - expected), 4);
    ledger_close(&ledger);
}
END_TEST

START_TEST(probes)
{
    make_plan(false, NULL, "{\"nodes\": [\"n1\", \"n2\"]}");
    ck_assert_uint_eq(plan.worker_count, 2);
    start_workers();
    await(acked(0) >= 400 && acked(1) >= 30, 20000);
    stop_workers(5000);

    struct ledger kept = open_ledger(0), made = open_ledger(1);
    load_outcomes(&kept);
    load_outcomes(&made);
    compare_with_table();
    size_t roles[LEDGER_DIRECT + 1] = {0};
    const struct ledger *ledgers[] = {&kept, &made};
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < ledgers[i]->count; j++) {
            const struct ledger_record *record = &ledgers[i]->records[j];
            if (record->kind != LEDGER_OUTCOME)
                continue;
            ck_assert_uint_ge(record->client, LOAD_FIRST_PROBE);
            roles[record->flags] += record->class == LEDGER_ACKED;
            if (record->flags == LEDGER_DIRECT && record->node == 0)
                ck_assert_int_eq(record->class, LEDGER_UNSENT);
        }
    ck_assert_uint_eq(roles[LEDGER_WORKLOAD], 0);
    ck_assert_uint_ge(roles[LEDGER_ENDPOINT_OLD], 300);
    ck_assert_uint_ge(roles[LEDGER_ENDPOINT_NEW], 15);
    ck_assert_uint_ge(roles[LEDGER_DIRECT], 50);
    /* a new connection for each write */
    ck_assert_uint_ge(count_kind(&made, LEDGER_SESSION), count_class(&made, LEDGER_ACKED));
    ledger_close(&kept);
    ledger_close(&made);
}
END_TEST

/* As on a standby: the insert fails, the commit is never sent, the connection goes on. */
START_TEST(read_only_node)
{
    execute("ALTER SYSTEM SET default_transaction_read_only = on");
    execute("SELECT pg_reload_conf()");
    make_plan(false, NULL, "{\"nodes\": [\"n2\"]}");
    start_workers();
    await(atomic_load(&shared->workers[0].errors) >= 100, 10000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    ck_assert_uint_eq(count_kind(&ledger, LEDGER_INTENT), 0);
    ck_assert_uint_eq(count_kind(&ledger, LEDGER_SESSION), 9);
    ck_assert_uint_ge(count_class(&ledger, LEDGER_ABORTED), 100);
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_OUTCOME)
            ck_assert_str_eq(ledger.records[i].sqlstate, "25006");
    ledger_close(&ledger);
}
END_TEST

/* The durability in force is read with every transaction: a reload begins a new session record. */
START_TEST(changed_durability_is_recorded)
{
    make_plan(false, "{\"clients\": 1, \"rate\": 100}", NULL);
    start_workers();
    await(acked(0) >= 20, 10000);
    execute("ALTER SYSTEM SET synchronous_commit = local");
    execute("SELECT pg_reload_conf()");
    uint64_t before = acked(0);
    await(acked(0) >= before + 50, 10000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    enum ledger_level seen[2];
    size_t count = 0;
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_SESSION && count++ < 2)
            seen[count - 1] = (enum ledger_level) ledger.records[i].class;
    ck_assert_uint_eq(count, 2);
    ck_assert_int_eq(seen[0], LEDGER_ON);
    ck_assert_int_eq(seen[1], LEDGER_LOCAL);
    ledger_close(&ledger);
}
END_TEST

/* A trigger may set something for its transaction alone, and as late as at the commit. */
static void plant_trigger(const char *set)
{
    char sql[512];

    snprintf(sql, sizeof(sql),
             "CREATE FUNCTION ordeal.meddle() RETURNS trigger LANGUAGE plpgsql AS"
             " $$BEGIN PERFORM set_config(%s, true); RETURN NULL; END$$",
             set);
    execute(sql);
    execute("CREATE CONSTRAINT TRIGGER meddle AFTER INSERT ON ordeal.journal DEFERRABLE"
            " INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ordeal.meddle()");
}

static enum ledger_level level_of_last_session(const struct ledger *ledger)
{
    enum ledger_level level = LEDGER_LEVEL_UNKNOWN;

    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->records[i].kind == LEDGER_SESSION)
            level = (enum ledger_level) ledger->records[i].class;
    return level;
}

START_TEST(a_deferred_trigger_weakens)
{
    plant_trigger("'synchronous_commit', 'local'");
    make_plan(false, "{\"clients\": 2, \"rate\": 100}", NULL);
    start_workers();
    await(acked(0) >= 20, 10000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    ck_assert_int_eq(level_of_last_session(&ledger), LEDGER_LOCAL);
    check_against_table(&ledger);
    ledger_close(&ledger);
}
END_TEST

START_TEST(hidden_warnings_are_no_plain_acknowledgement)
{
    plant_trigger("'client_min_messages', 'error'");
    make_plan(false, "{\"clients\": 2, \"rate\": 100}", NULL);
    start_workers();
    await(atomic_load(&shared->workers[0].errors) >= 20, 10000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    ck_assert_uint_ge(count_class(&ledger, LEDGER_WEAK), 20);
    ck_assert_uint_eq(count_class(&ledger, LEDGER_ACKED), 0);
    ck_assert_int_eq(level_of_last_session(&ledger), LEDGER_LEVEL_UNKNOWN);
    check_against_table(&ledger);
    ledger_close(&ledger);
}
END_TEST

/* A check must be able to tell a worker that did not run from a database that did not answer. */
START_TEST(stopped_worker_is_blind)
{
    make_plan(false, "{\"clients\": 2, \"rate\": 50}", NULL);
    start_workers();
    await(acked(0) >= 10, 10000);
    kill(processes[0].pid, SIGSTOP);
    usleep(400000);
    kill(processes[0].pid, SIGCONT);
    await(atomic_load(&shared->workers[0].blind_ns) >= 300 * NS_PER_MS, 5000);
    stop_workers(5000);

    struct ledger ledger = open_ledger(0);
    int64_t worst = 0;
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_BEAT) {
            int64_t late = ledger.records[i].done_ns - ledger.records[i].sent_ns;
            worst = late > worst ? late : worst;
        }
    ck_assert_int_ge(worst, 300 * NS_PER_MS);
    ledger_close(&ledger);
}
END_TEST

static Suite *suite(const char *skip_reason)
{
    Suite *result = suite_create("load worker");
    TCase *cases = tcase_create("against PostgreSQL");

    tcase_set_timeout(cases, 90);
    tcase_add_unchecked_fixture(cases, start_server, stop_server);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, two_seconds_of_load);
    tcase_add_test(cases, open_loop_keeps_its_schedule);
    tcase_add_test(cases, killed_worker_leaves_no_hole);
    tcase_add_test(cases, cancelled_wait_is_weak);
    tcase_add_test(cases, terminated_wait_is_in_doubt);
    tcase_add_test(cases, hanging_commit_is_left);
    tcase_add_test(cases, drain_leaves_what_hangs);
    tcase_add_test(cases, server_stops_and_comes_back);
    tcase_add_test(cases, managed_endpoint);
    tcase_add_test(cases, a_moved_endpoint_ends_attempts_at_the_old_host);
    tcase_add_test(cases, missed_starts);
    tcase_add_test(cases, probes);
    tcase_add_test(cases, read_only_node);
    tcase_add_test(cases, changed_durability_is_recorded);
    tcase_add_test(cases, a_deferred_trigger_weakens);
    tcase_add_test(cases, hidden_warnings_are_no_plain_acknowledgement);
    tcase_add_test(cases, stopped_worker_is_blind);
    if (skip_reason == NULL)
        suite_add_tcase(result, cases);
    else
        printf("not run: %s\n", skip_reason);
    return result;
}

int main(void)
{
    SRunner *runner = srunner_create(suite(throwaway_isolate()));

    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
