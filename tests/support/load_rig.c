/* SPDX-License-Identifier: MIT */
#include "tests/support/load_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "lib/json.h"
#include "lib/owned.h"

struct throwaway load_rig_server;
static struct arena *load_rig_arena;
struct load_plan load_rig_plan;
struct load_shared *load_rig_shared;
struct process load_rig_processes[LOAD_WORKERS_MAX];
static struct worker_order load_rig_orders[LOAD_WORKERS_MAX];
PGconn *load_rig_admin;
static char load_rig_spool[64];

/* --- the server ------------------------------------------------------------------------------ */

int64_t load_rig_number(const char *sql)
{
    OWNED_PG_RESULT PGresult *result = PQexec(load_rig_admin, sql);

    if (PQresultStatus(result) == PGRES_COMMAND_OK)
        return 0;
    if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
        ck_abort_msg("%s: %s", sql, PQerrorMessage(load_rig_admin));
    return strtoll(PQgetvalue(result, 0, 0), NULL, 10);
}

void load_rig_execute(const char *sql)
{
    OWNED_PG_RESULT PGresult *result = PQexec(load_rig_admin, sql);

    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        ck_abort_msg("%s: %s", sql, PQerrorMessage(load_rig_admin));
}

/* Once for all tests; a test that failed may have left it in any state. */
void load_rig_start_server(void)
{
    throwaway_start(&load_rig_server);
    load_rig_admin = throwaway_connect(&load_rig_server);
    load_rig_execute("CREATE SCHEMA ordeal");
    load_rig_execute(
        "CREATE TABLE ordeal.journal(client bigint, seq bigint, row smallint, rows smallint,"
        " digest bigint, payload text)");
    load_rig_execute("CREATE INDEX ON ordeal.journal(client, seq)");
    PQfinish(load_rig_admin);
}

void load_rig_stop_server(void)
{
    throwaway_stop(&load_rig_server);
}

void load_rig_setup(void)
{
    if (!throwaway_wait_ready(&load_rig_server, 100))
        throwaway_restart(&load_rig_server);
    load_rig_admin = throwaway_connect(&load_rig_server);
    load_rig_execute("SET client_min_messages = warning");
    load_rig_execute("ALTER SYSTEM RESET synchronous_standby_names");
    load_rig_execute("ALTER SYSTEM RESET synchronous_commit");
    load_rig_execute("ALTER SYSTEM RESET default_transaction_read_only");
    load_rig_execute("SELECT pg_reload_conf()");
    load_rig_execute("SET default_transaction_read_only = off");
    load_rig_execute("DROP FUNCTION IF EXISTS ordeal.meddle() CASCADE");
    load_rig_execute("TRUNCATE ordeal.journal");
    load_rig_arena = arena_new();
    snprintf(load_rig_spool, sizeof(load_rig_spool), "/tmp/ordeal-load-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(load_rig_spool));
    load_rig_shared = mmap(NULL, sizeof(*load_rig_shared), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(load_rig_shared, MAP_FAILED);
}

void load_rig_teardown(void)
{
    for (size_t i = 0; i < load_rig_plan.worker_count; i++)
        process_kill(&load_rig_processes[i]);
    PQfinish(load_rig_admin);
    const char *argv[] = {"rm", "-rf", load_rig_spool, NULL};
    ck_assert_int_eq(
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = 10000}, NULL, NULL),
        STATUS_OK);
    arena_free(load_rig_arena);
}

/* --- the load -------------------------------------------------------------------------------- */

/* Node "n1" refuses, since nothing listens there; "n2" is the server. */
void load_rig_make_plan(bool managed, const char *workload, const char *probes)
{
    OWNED_JSON json_t *workload_json = NULL;
    OWNED_JSON json_t *probes_json = NULL;
    struct error err = {0};

    if (workload != NULL)
        ck_assert_int_eq(json_parse_text(workload, strlen(workload), &workload_json, NULL),
                         STATUS_OK);
    if (probes != NULL)
        ck_assert_int_eq(json_parse_text(probes, strlen(probes), &probes_json, NULL), STATUS_OK);
    load_rig_plan = (struct load_plan){.run = "run-1",
                                       .client_node = "c1",
                                       .node_count = 2,
                                       .endpoint_count = 2,
                                       .endpoint = {0, 1},
                                       .managed = managed};
    load_rig_plan.nodes[0] = (struct load_node){
        "n1", {.host = "127.0.0.1", .port = 1, .database = "postgres", .user = "postgres"}};
    load_rig_plan.nodes[1] = (struct load_node){
        "n2",
        {.host = "127.0.0.1", .port = THROWAWAY_PORT, .database = "postgres", .user = "postgres"}};
    struct load_request request = {.workload = workload_json, .probes = probes_json, .seed = 7};
    if (load_plan_fill(&load_rig_plan, load_rig_arena, &request, load_rig_spool, &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
    atomic_store(&load_rig_shared->route, load_rig_plan.route);
    atomic_store(&load_rig_shared->stop_ns, 0);
}

void load_rig_start_workers(void)
{
    for (size_t i = 0; i < load_rig_plan.worker_count; i++) {
        load_rig_orders[i] = (struct worker_order){.plan = &load_rig_plan,
                                                   .index = i,
                                                   .shared = load_rig_shared,
                                                   .control = eventfd(0, EFD_NONBLOCK)};
        ck_assert_int_eq(
            process_fork(worker_main, &load_rig_orders[i], &load_rig_processes[i], NULL),
            STATUS_OK);
    }
}

void load_rig_poke(void)
{
    for (size_t i = 0; i < load_rig_plan.worker_count; i++)
        eventfd_write(load_rig_orders[i].control, 1);
}

void load_rig_stop_workers(int64_t drain_ms)
{
    atomic_store(&load_rig_shared->stop_ns, deadline_in_ms(drain_ms));
    load_rig_poke();
    for (size_t i = 0; i < load_rig_plan.worker_count; i++) {
        int wait_status = -1;
        ck_assert_int_eq(
            process_reap(&load_rig_processes[i], deadline_in_ms(20000), &wait_status, NULL),
            STATUS_OK);
        ck_assert_msg(wait_status == 0, "worker %zu: %s", i, load_rig_shared->workers[i].error);
        ck_assert(atomic_load(&load_rig_shared->workers[i].complete));
    }
}

uint64_t load_rig_acked(size_t worker)
{
    return atomic_load(&load_rig_shared->workers[worker].acked);
}

/* --- the ledger, beside the table ------------------------------------------------------------ */

struct ledger load_rig_open_ledger(size_t worker)
{
    struct ledger ledger = {0};
    struct error err = {0};

    if (ledger_open(load_rig_plan.workers[worker].path, &ledger, &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
    ck_assert(!ledger.torn_tail || !ledger.ended); /* a killed worker may leave half a record */
    return ledger;
}

size_t load_rig_count_kind(const struct ledger *ledger, enum ledger_kind kind)
{
    size_t count = 0;

    for (size_t i = 0; i < ledger->count; i++)
        count += ledger->records[i].kind == kind;
    return count;
}

size_t load_rig_count_class(const struct ledger *ledger, enum ledger_class class)
{
    size_t count = 0;

    for (size_t i = 0; i < ledger->count; i++)
        count += ledger->records[i].kind == LEDGER_OUTCOME && ledger->records[i].class == class;
    return count;
}

const struct ledger_record *load_rig_find(const struct ledger *ledger, enum ledger_kind kind,
                                          uint32_t client, uint64_t seq)
{
    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->records[i].kind == kind && ledger->records[i].client == client &&
            ledger->records[i].seq == seq)
            return &ledger->records[i];
    return NULL;
}

bool load_rig_reserved(const struct ledger *ledger, uint32_t client, uint64_t seq)
{
    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->records[i].kind == LEDGER_RESERVE && ledger->records[i].client == client &&
            ledger->records[i].seq <= seq && seq <= ledger->records[i].lsn)
            return true;
    return false;
}

/* Copy the ledger's tokens into tables of the server, so that SQL compares the sets. */
void load_rig_load_outcomes(const struct ledger *ledger)
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
    load_rig_execute(buffer_text(&text));
}

/* All ledgers that were loaded hold what the table holds. */
void load_rig_compare_with_table(void)
{
    ck_assert_int_eq(load_rig_number(LOAD_RIG_LOST), 0);
    ck_assert_int_eq(load_rig_number(LOAD_RIG_UNKNOWN), 0);
    ck_assert_int_eq(
        load_rig_number("SELECT count(*) FROM outcome JOIN ordeal.journal USING (client,"
                        " seq) WHERE class IN (3, 4)"),
        0);
    ck_assert_int_eq(
        load_rig_number("SELECT count(*) FROM (SELECT FROM outcome WHERE client > 0 GROUP"
                        " BY client, seq HAVING count(*) > 1) twice"),
        0);
    ck_assert_int_eq(
        load_rig_number("SELECT count(*) FROM (SELECT FROM ordeal.journal GROUP BY client,"
                        " seq HAVING count(*) <> max(rows) OR count(DISTINCT row) <>"
                        " count(*)) odd"),
        0);
    /* tokens of a client are dense */
    ck_assert_int_eq(
        load_rig_number("SELECT count(*) FROM (SELECT FROM outcome WHERE client > 0 GROUP"
                        " BY client HAVING max(seq) <> count(*) OR min(seq) <> 1) gaps"),
        0);
}

void load_rig_check_against_table(const struct ledger *ledger)
{
    load_rig_load_outcomes(ledger);
    load_rig_compare_with_table();
}

void load_rig_check_digests(void)
{
    OWNED_PG_RESULT PGresult *result =
        PQexec(load_rig_admin, "SELECT client, seq, row, digest, payload FROM ordeal.journal");

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

TCase *load_rig_case(Suite *suite, const char *skip_reason)
{
    TCase *cases = tcase_create("against PostgreSQL");

    tcase_set_timeout(cases, 90);
    tcase_add_unchecked_fixture(cases, load_rig_start_server, load_rig_stop_server);
    tcase_add_checked_fixture(cases, load_rig_setup, load_rig_teardown);
    if (skip_reason == NULL)
        suite_add_tcase(suite, cases);
    else
        printf("not run: %s\n", skip_reason);
    return cases;
}
