/* SPDX-License-Identifier: MIT */
/*
 * Every class of residue in PostgreSQL, planted in real servers: the audit names it with the
 * command that removes it, and after that command, run as it is printed, it is clean. And what a
 * failover changes by nature is none.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/fingerprint.h"
#include "agents/postgres_methods.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "tests/support/postgres_fixture.h"
#include "tests/support/residue_case.h"

static struct postgres_fixture *fixture;
static struct topology topology;
static struct topology_node nodes[] = {{.name = "n1"}, {.name = "n2"}};
static struct residue_question question;

static json_t *take(void *server)
{
    size_t index = *(const size_t *) server;
    const struct method_call call = {.session = postgres_fixture_session(fixture, index),
                                     .state_folder = "/nowhere",
                                     .deadline_ns = deadline_in_ms(20000)};
    json_t *fingerprint = json_object();
    struct error err = {0};

    if (fingerprint_postgres(&call, fingerprint, &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
    return fingerprint;
}

/* psql and the remedies find the server by what a person would have set. */
static void speak_to(size_t server)
{
    setenv("PGHOST", fixture->servers[server].address, 1);
    setenv("DATA", fixture->servers[server].data, 1);
}

static void up(void)
{
    char password[256], port[16];
    struct error err = {0};

    fixture = postgres_fixture_new(2);
    topology = (struct topology){.nodes = nodes, .node_count = 2};
    topology.database.port = fixture->port;
    topology.database.data = fixture->servers[0].data;
    topology.database.bin = fixture->bin;
    topology.database.superuser.user = "ordeal_admin";
    question = (struct residue_question){.topology = &topology, .manager = "manual"};
    if (pg_password(fixture->superuser_file, password, sizeof password, &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
    snprintf(port, sizeof port, "%d", fixture->port);
    setenv("PGPASSWORD", password, 1);
    setenv("PGPORT", port, 1);
    setenv("PGUSER", "ordeal_admin", 1);
    setenv("PGDATABASE", "postgres", 1);
    speak_to(0);
}

static void down(void)
{
    postgres_fixture_free(fixture);
}

#define PSQL(statement) "psql -XAtq -v ON_ERROR_STOP=1 -c \"" statement "\" >/dev/null;"
#define RELOAD PSQL("SELECT pg_reload_conf()")
/* A reload has worked when a new session sees it. */
#define UNTIL(setting, value)                                                                      \
    "until [ \"$(psql -XAtc 'SHOW " setting "')\" = '" value "' ]; do :; done;"

/* All at once: each has a setting, slot, role or database of its own. */
static const struct residue_case cases[] = {
    {"a setting of a role", NULL, PSQL("ALTER ROLE ordeal_load SET lock_timeout = '1h'"),
     "role_settings", "lock_timeout of ROLE ordeal_load: was not there before", "psql -X -p ", 0,
     NULL},
    {"a setting of a database that was another",
     PSQL("ALTER DATABASE ordeal SET statement_timeout = '1h'"),
     PSQL("ALTER DATABASE ordeal SET statement_timeout = '2h'"), "role_settings",
     "statement_timeout of DATABASE \"ordeal\": was 1h, is 2h", "psql -X ", 0, NULL},
    {"a list of a role in a database that is gone",
     PSQL("ALTER ROLE ordeal_load IN DATABASE ordeal SET search_path = \\\"\\$user\\\", public"),
     PSQL("ALTER ROLE ordeal_load IN DATABASE ordeal RESET search_path"), "role_settings",
     "search_path of ROLE ordeal_load IN DATABASE \"ordeal\": was there before", "psql -X ", 0,
     NULL},
    {"a setting of everybody", NULL, PSQL("ALTER ROLE ALL SET temp_buffers = '5MB'"),
     "role_settings", "temp_buffers of ROLE ALL", "psql -X ", 0, NULL},
    {"ALTER SYSTEM", NULL,
     PSQL("ALTER SYSTEM SET work_mem = '5MB'") RELOAD UNTIL("work_mem", "5MB"), "file_settings",
     "setting work_mem in ", "psql -X ", 0, NULL},
    {"ALTER SYSTEM of what was another",
     PSQL("ALTER SYSTEM SET log_line_prefix = '%m it''s '")
         RELOAD UNTIL("log_line_prefix", "%m it'\\''s "),
     PSQL("ALTER SYSTEM RESET log_line_prefix") RELOAD, "file_settings",
     "setting log_line_prefix in ", "psql -X ", 0, NULL},
    {"a line in a file", NULL, "echo \"seq_page_cost = 2\" >>$DATA/postgresql.conf;" RELOAD,
     "file_settings", "setting seq_page_cost in ", "sed -i ", 0, NULL},
    {"a line in a file that is gone", "echo \"cpu_tuple_cost = 2\" >>$DATA/postgresql.conf;" RELOAD,
     "sed -i /^cpu_tuple_cost/d $DATA/postgresql.conf;" RELOAD, "file_settings",
     "setting cpu_tuple_cost in ", "printf '%s\\n' 'cpu_tuple_cost = '\\''2'\\''' >>", 0, NULL},
    {"a slot", NULL, PSQL("SELECT pg_create_physical_replication_slot('ordeal_left', true)"),
     "slots", "replication slot ordeal_left (physical, inactive, keeps WAL from 0/", "psql -X ", 0,
     NULL},
    {"a slot that is gone", PSQL("SELECT pg_create_physical_replication_slot('backup', true)"),
     PSQL("SELECT pg_drop_replication_slot('backup')"), "slots",
     "replication slot backup (physical): was there before", "psql -X ", 0,
     PSQL("SELECT pg_drop_replication_slot('backup')")},
    {"a role", NULL, PSQL("CREATE ROLE \\\"ordeal x\\\""), "roles", "role ordeal x: left by Ordeal",
     "psql -X ", 0, NULL},
    {"what a role may", NULL, PSQL("ALTER ROLE ordeal_load NOLOGIN CONNECTION LIMIT 3"), "roles",
     "role ordeal_load: was {", "psql -X ", 0, NULL},
    {"a database that is closed", PSQL("CREATE DATABASE closed"),
     PSQL("ALTER DATABASE closed ALLOW_CONNECTIONS false"), "databases", "database closed: was {",
     "psql -X ", 0, PSQL("DROP DATABASE closed")},
    {"a schema of ours", NULL,
     "psql -XAtqd ordeal -c 'CREATE SCHEMA ordeal' -c 'CREATE TABLE ordeal.journal()'", "schemas",
     "schema ordeal in database ordeal: left by Ordeal", "psql -X ", 0, NULL},
    {"a publication", NULL, "psql -XAtqd ordeal -c 'CREATE PUBLICATION p FOR ALL TABLES'",
     "publications", "publication p in ordeal: was not there before; by whom is not known",
     "psql -X ", 0, NULL},
    {"a prepared transaction", NULL,
     "psql -XAtqd ordeal -c 'BEGIN; CREATE TABLE t(); PREPARE TRANSACTION $$it'\\''s$$'",
     "prepared", "prepared transaction it's in database ordeal", "psql -X ", 0, NULL},
    {"a subscription", NULL,
     PSQL("SET client_min_messages = error; CREATE SUBSCRIPTION ordeal_s CONNECTION 'host=/none'"
          " PUBLICATION p WITH (connect = false, slot_name = NONE)"),
     "subscriptions", "subscription ordeal_s in postgres: left by Ordeal", "psql -X ", 0, NULL},
    /* the last, since a reload ends it */
    {"a setting in force that no file has", NULL,
     PSQL("ALTER SYSTEM SET hash_mem_multiplier = 3") RELOAD UNTIL("hash_mem_multiplier", "3")
         PSQL("ALTER SYSTEM RESET hash_mem_multiplier"),
     "settings", "setting hash_mem_multiplier in force: was 2, is 3", "psql -X ", 0, NULL},
};

START_TEST(planted_named_removed)
{
    size_t primary = 0;

    residue_cases_run(cases, sizeof cases / sizeof cases[0], take, &primary, question);
}
END_TEST

START_TEST(a_replay_that_is_paused)
{
    static const struct residue_case paused = {
        "a paused replay",
        NULL,
        PSQL("SELECT pg_wal_replay_pause()") "until [ \"$(psql -XAtc 'SELECT "
                                             "pg_get_wal_replay_pause_state()')\" = paused ]; do "
                                             ":; done",
        "replay",
        "paused replay",
        "psql -X ",
        0,
        NULL};
    size_t standby = 1;

    speak_to(1);
    residue_case_run(&paused, take, &standby, question);
    speak_to(0);
}
END_TEST

static void expect_none(const json_t *before, const json_t *cluster_before, size_t server)
{
    OWNED_JSON json_t *after = take(&server);
    struct residue_question asked = question;

    asked.before = before;
    asked.cluster_before = cluster_before;
    asked.after = after;
    OWNED_JSON json_t *found = residue_differences(&asked);
    OWNED_MEMORY char *all = json_dumps(found, JSON_INDENT(1));
    ck_assert_msg(json_array_size(found) == 0, "%s", all);
}

/* Last, since the servers are others afterwards. */
START_TEST(what_a_failover_changes_is_none)
{
    size_t first = 0, second = 1;
    OWNED_JSON json_t *primary = take(&first);
    OWNED_JSON json_t *standby = take(&second);

    ck_assert(residue_tells_cluster(primary));
    ck_assert(!residue_tells_cluster(standby));
    postgres_fixture_stop(fixture, 0, "fast");
    OWNED_JSON json_t *down_now = take(&first);
    OWNED_JSON json_t *found = residue_compared(question, primary, down_now);
    ck_assert_uint_eq(json_array_size(found), 1);
    ck_assert_str_eq(json_text(json_array_get(found, 0), "class", ""), "postgres");
    ck_assert(residue_is_blind(found));
    /* promoted, another source, the slots where the primary is now */
    postgres_fixture_query(fixture, 1, "SELECT pg_promote()");
    postgres_fixture_query(fixture, 1, "SELECT pg_create_physical_replication_slot('n1', true)");
    speak_to(1);
    residue_sh(PSQL("ALTER SYSTEM SET primary_conninfo = ''") RELOAD);
    expect_none(standby, primary, 1);
    /* the deposed one comes back, its slots are dropped */
    postgres_fixture_start(fixture, 0);
    postgres_fixture_query(fixture, 0, "SELECT pg_drop_replication_slot('n2')");
    expect_none(primary, primary, 0);
}
END_TEST

int main(void)
{
    const char *why = NULL;

    postgres_fixture_reap();
    Suite *suite = suite_create("fingerprint of PostgreSQL");
    if (postgres_fixture_possible(&why)) {
        TCase *cases_of_all = tcase_create("residue");
        tcase_set_timeout(cases_of_all, 120);
        tcase_add_unchecked_fixture(cases_of_all, up, down);
        tcase_add_test(cases_of_all, planted_named_removed);
        tcase_add_test(cases_of_all, a_replay_that_is_paused);
        tcase_add_test(cases_of_all, what_a_failover_changes_is_none);
        suite_add_tcase(suite, cases_of_all);
    } else {
        printf("not run: %s\n", why);
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
