/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "tests/support/postgres_fixture.h"

enum { PAGE = 8192 };

static struct postgres_fixture *fixture;

static void up(void)
{
    fixture = postgres_fixture_new(2);
    postgres_fixture_query(fixture, 0,
                           "CREATE TABLE public.things AS SELECT n, repeat('x', 200) AS text"
                           " FROM generate_series(1, 1000) AS n");
    postgres_fixture_query(fixture, 0, "CREATE INDEX things_n ON public.things(n)");
}

static void down(void)
{
    postgres_fixture_free(fixture);
}

static json_t *call(size_t server, const char *method, json_t *params)
{
    return postgres_fixture_call(fixture, server, method, params);
}

static enum status try(size_t server, const char *method, json_t *params, struct error *err)
{
    json_t *result = NULL;
    enum status status = postgres_fixture_try(fixture, server, method, params, &result, err);

    json_decref(result);
    return status;
}

static const char *query(size_t server, const char *sql)
{
    return postgres_fixture_query(fixture, server, sql);
}

static void wait_replayed(void)
{
    const char *lsn = query(0, "SELECT pg_current_wal_lsn()");

    postgres_fixture_wait(
        fixture, 1, arena_printf(fixture->arena, "SELECT pg_last_wal_replay_lsn() >= '%s'", lsn),
        "t");
}

/* --- preflight -------------------------------------------------------------------------------- */

static const json_t *find(const json_t *list, const char *key, const char *value)
{
    size_t i;
    const json_t *item;

    json_array_foreach(list, i, item)
    {
        if (strcmp(json_text(item, key, ""), value) == 0)
            return item;
    }
    return NULL;
}

START_TEST(test_preflight_of_a_clean_primary)
{
    OWNED_JSON json_t *facts = call(0, "postgres.preflight", NULL);
    const json_t *settings = json_object_get(facts, "settings");
    const json_t *sources = json_object_get(facts, "setting_sources");
    const json_t *volume = json_array_get(json_object_get(facts, "volumes"), 0);
    const json_t *logins = json_object_get(facts, "logins");
    const json_t *workload = json_object_get(facts, "workload");

    ck_assert_str_eq(json_text(settings, "fsync", ""), "off");
    ck_assert_str_eq(json_text(sources, "fsync", ""), "configuration file");
    ck_assert_str_eq(json_text(settings, "full_page_writes", ""), "on");
    ck_assert_str_eq(json_text(settings, "data_checksums", ""), "on");
    ck_assert_str_eq(json_text(settings, "synchronous_commit", ""), "on");
    ck_assert_str_eq(json_text(sources, "synchronous_commit", ""), "default");
    ck_assert_str_eq(json_text(settings, "synchronous_standby_names", "none"), "");
    ck_assert_str_eq(json_text(settings, "max_connections", ""), "40");
    ck_assert(json_flag(facts, "superuser", false));
    ck_assert_int_ge(json_number(facts, "version_number", 0), 130000);
    ck_assert_uint_eq(json_array_size(json_object_get(facts, "own_settings")), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(facts, "prepared_transactions")), 0);
    ck_assert(json_is_null(json_object_get(facts, "leftover")));
    ck_assert_int_gt(json_number(volume, "free_bytes", 0), 0);
    ck_assert_int_ge(json_number(volume, "total_bytes", 0), json_number(volume, "free_bytes", 0));
    ck_assert_int_gt(json_number(facts, "data_bytes", 0), 0);
    ck_assert_uint_eq(json_array_size(logins), 2);
    ck_assert_str_eq(json_text(json_array_get(logins, 0), "user", ""), "ordeal_load");
    ck_assert(json_flag(json_array_get(logins, 0), "ok", false));
    ck_assert_str_eq(json_text(json_array_get(logins, 1), "user", ""), "ordeal_replication");
    ck_assert(json_flag(json_array_get(logins, 1), "ok", false));
    ck_assert_str_eq(json_text(workload, "synchronous_commit", ""), "on");
    ck_assert(json_flag(workload, "may_create", false));
    ck_assert(json_is_null(json_object_get(facts, "replay_pause")));
}
END_TEST

START_TEST(test_preflight_finds_what_was_planted)
{
    static const char *const plants[] = {
        "ALTER ROLE ordeal_load SET synchronous_commit = local",
        "ALTER ROLE ordeal_load IN DATABASE ordeal SET client_min_messages = error",
        "ALTER DATABASE ordeal SET synchronous_commit = off",
        "CREATE FUNCTION public.careless() RETURNS int LANGUAGE sql SET synchronous_commit = off"
        " AS 'SELECT 1'",
        "CREATE SCHEMA ordeal",
        "COMMENT ON SCHEMA ordeal IS 'ordeal run long-ago'",
    };
    static const char *const removals[] = {
        "ROLLBACK PREPARED 'forgotten'",
        "DROP SCHEMA ordeal",
        "DROP FUNCTION public.careless",
        "ALTER DATABASE ordeal RESET synchronous_commit",
        "ALTER ROLE ordeal_load IN DATABASE ordeal RESET client_min_messages",
        "ALTER ROLE ordeal_load RESET synchronous_commit",
    };
    OWNED_PG PGconn *connection = postgres_fixture_connect(fixture, 0);

    for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++)
        query(0, plants[i]);
    PQclear(PQexec(connection, "BEGIN; SELECT txid_current()"));
    PQclear(PQexec(connection, "PREPARE TRANSACTION 'forgotten'"));
    OWNED_JSON json_t *facts = call(0, "postgres.preflight", NULL);
    for (size_t i = 0; i < sizeof removals / sizeof removals[0]; i++)
        query(0, removals[i]);

    const json_t *own = json_object_get(facts, "own_settings");
    ck_assert_uint_eq(json_array_size(own), 4);
    const json_t *role = find(own, "scope", "role");
    ck_assert_str_eq(json_text(role, "name", ""), "ordeal_load");
    ck_assert_str_eq(json_text(role, "setting", ""), "synchronous_commit");
    ck_assert_str_eq(json_text(role, "value", ""), "local");
    const json_t *both = find(own, "scope", "role-in-database");
    ck_assert_str_eq(json_text(both, "name", ""), "ordeal_load in ordeal");
    ck_assert_str_eq(json_text(both, "setting", ""), "client_min_messages");
    const json_t *database = find(own, "scope", "database");
    ck_assert_str_eq(json_text(database, "value", ""), "off");
    const json_t *function = find(own, "scope", "function");
    ck_assert_str_eq(json_text(function, "name", ""), "public.careless()");
    ck_assert_str_eq(json_text(function, "value", ""), "off");
    const json_t *workload = json_object_get(facts, "workload");
    ck_assert_str_eq(json_text(workload, "synchronous_commit", ""), "local");
    ck_assert_str_eq(json_text(json_object_get(facts, "leftover"), "comment", ""),
                     "ordeal run long-ago");
    ck_assert_ptr_nonnull(
        find(json_object_get(facts, "prepared_transactions"), "gid", "forgotten"));
}
END_TEST

START_TEST(test_preflight_of_a_paused_standby)
{
    query(1, "SELECT pg_wal_replay_pause()");
    postgres_fixture_wait(fixture, 1, "SELECT pg_get_wal_replay_pause_state()", "paused");
    OWNED_JSON json_t *facts = call(1, "postgres.preflight", NULL);
    query(1, "SELECT pg_wal_replay_resume()");

    ck_assert(json_flag(facts, "in_recovery", false));
    ck_assert_str_eq(json_text(facts, "replay_pause", ""), "paused");
}
END_TEST

START_TEST(test_preflight_when_the_workload_cannot_log_in)
{
    query(0, "ALTER ROLE ordeal_load NOLOGIN");
    OWNED_JSON json_t *facts = call(0, "postgres.preflight", NULL);
    query(0, "ALTER ROLE ordeal_load LOGIN");

    const json_t *login = json_array_get(json_object_get(facts, "logins"), 0);
    ck_assert(json_is_null(json_object_get(facts, "workload")));
    ck_assert(!json_flag(login, "ok", true));
    ck_assert_ptr_nonnull(strstr(json_text(login, "error", ""), "28000"));
    ck_assert_ptr_null(strstr(json_text(login, "error", ""), "secret"));
}
END_TEST

/* --- amcheck and verify ----------------------------------------------------------------------- */

static json_t *amcheck(size_t server)
{
    return call(server, "postgres.amcheck", json_pack("{s:s}", "database", "ordeal"));
}

static const char *extensions(void)
{
    return query(0, "SELECT count(*) FROM pg_extension WHERE extname = 'amcheck'");
}

START_TEST(test_amcheck_of_sound_data)
{
    struct error err = {0};
    OWNED_JSON json_t *result = amcheck(0);

    ck_assert_int_gt(json_number(result, "relations", 0), 10);
    ck_assert_uint_eq(json_array_size(json_object_get(result, "problems")), 0);
    ck_assert_str_eq(extensions(), "0");
    ck_assert_ptr_null(query(0, "SELECT 1 FROM pg_namespace WHERE nspname = 'ordeal_amcheck'"));
    wait_replayed();
    ck_assert_int_eq(try(1, "postgres.amcheck", json_pack("{s:s}", "database", "ordeal"), &err),
                     STATUS_UNSUPPORTED);
    ck_assert_int_eq(try(0, "postgres.amcheck", json_pack("{s:s}", "database", "nowhere"), &err),
                     STATUS_DATABASE);
}
END_TEST

START_TEST(test_amcheck_of_an_index_that_misses_rows)
{
    query(0,
          "UPDATE pg_index SET indisready = false WHERE indexrelid = 'public.things_n'::regclass");
    query(0, "INSERT INTO public.things SELECT 5000, 'unseen'");
    query(0,
          "UPDATE pg_index SET indisready = true WHERE indexrelid = 'public.things_n'::regclass");
    query(0, "CREATE EXTENSION amcheck SCHEMA public");
    wait_replayed();
    OWNED_JSON json_t *result = amcheck(0);
    OWNED_JSON json_t *standby = amcheck(1);
    ck_assert_str_eq(extensions(), "1"); /* it is not ours to drop */
    query(0, "DROP EXTENSION amcheck");
    query(0, "REINDEX INDEX public.things_n");

    const json_t *problems = json_object_get(result, "problems");
    ck_assert_uint_gt(json_array_size(problems), 0);
    ck_assert_ptr_nonnull(strstr(json_string_value(json_array_get(problems, 0)), "things_n"));
    ck_assert_uint_gt(json_array_size(json_object_get(standby, "problems")), 0);
}
END_TEST

static bool left_behind(size_t server)
{
    return access(arena_printf(fixture->arena, "%s/ordeal-%s.verify", fixture->servers[server].home,
                               fixture->servers[server].name),
                  F_OK) == 0;
}

START_TEST(test_verify_of_sound_data)
{
    for (size_t server = 0; server < 2; server++) {
        OWNED_JSON json_t *result = call(server, "postgres.verify", NULL);
        ck_assert(json_flag(result, "ok", false));
        ck_assert_int_gt(json_number(result, "files", 0), 100);
        ck_assert(!left_behind(server));
    }
}
END_TEST

/* --- a page that rotted ----------------------------------------------------------------------- */

/* Flips a byte of the second page of "things" on one server; the same call flips it back. */
static void bend(size_t server, const char *relation)
{
    unsigned char byte;
    const char *path =
        arena_printf(fixture->arena, "%s/%s", fixture->servers[server].data, relation);
    OWNED_FD int fd = open(path, O_RDWR | O_CLOEXEC);

    ck_assert_int_eq(pread(fd, &byte, 1, PAGE + 4000), 1);
    byte ^= 0x40;
    ck_assert_int_eq(pwrite(fd, &byte, 1, PAGE + 4000), 1);
}

START_TEST(test_verify_finds_a_rotten_page)
{
    const char *relation = query(0, "SELECT pg_relation_filepath('public.things')");

    query(0, "CHECKPOINT");
    bend(0, relation);
    OWNED_JSON json_t *result = call(0, "postgres.verify", NULL);
    bend(0, relation);
    ck_assert(!json_flag(result, "ok", true));
    ck_assert_uint_gt(json_array_size(json_object_get(result, "problems")), 0);
    ck_assert(!left_behind(0));
}
END_TEST

static json_t *checksums(const char *scope)
{
    return call(1, "postgres.checksums", json_pack("{s:s}", "scope", scope));
}

static void check_checksums(int64_t bad)
{
    static const char *const scopes[] = {"all", "ordeal"};
    int64_t blocks[2] = {0};

    for (size_t i = 0; i < 2; i++) {
        OWNED_JSON json_t *result = checksums(scopes[i]);
        blocks[i] = json_number(result, "blocks", 0);
        const json_t *problems = json_object_get(result, "problems");
        ck_assert_int_eq(json_number(result, "bad", -1), bad);
        ck_assert_uint_eq(json_array_size(problems), (size_t) bad);
    }
    ck_assert_int_gt(blocks[1], 500);
    ck_assert_int_gt(blocks[0], 2 * blocks[1]); /* four databases and the shared relations */
}

START_TEST(test_checksums_of_a_stopped_standby)
{
    struct error err = {0};
    const char *relation = query(0, "SELECT pg_relation_filepath('public.things')");
    OWNED_JSON json_t *facts = call(1, "postgres.preflight", NULL);

    ck_assert_int_eq(try(1, "postgres.checksums", json_pack("{s:s}", "scope", "all"), &err),
                     STATUS_REFUSED);
    wait_replayed();
    query(1, "CHECKPOINT");
    OWNED_JSON json_t *stopped = call(1, "postgres.stop", NULL);
    check_checksums(0);
    bend(1, relation);
    check_checksums(1);
    OWNED_JSON json_t *result = checksums("ordeal");
    const char *problem = json_string_value(json_array_get(json_object_get(result, "problems"), 0));
    ck_assert_ptr_nonnull(strstr(problem, "block 1"));
    ck_assert_ptr_nonnull(strstr(problem, strrchr(relation, '/') + 1));
    bend(1, relation);
    ck_assert_int_eq(try(1, "postgres.checksums", json_pack("{s:s}", "scope", "nowhere"), &err),
                     STATUS_NOT_FOUND);
    OWNED_JSON json_t *started = call(1, "postgres.start", NULL);
}
END_TEST

int main(void)
{
    postgres_fixture_reap();
    Suite *suite = suite_create("postgres checks");
    TCase *servers = tcase_create("servers");

    tcase_add_unchecked_fixture(servers, up, down);
    tcase_set_timeout(servers, 60);
    tcase_add_test(servers, test_preflight_of_a_clean_primary);
    tcase_add_test(servers, test_preflight_finds_what_was_planted);
    tcase_add_test(servers, test_preflight_of_a_paused_standby);
    tcase_add_test(servers, test_preflight_when_the_workload_cannot_log_in);
    tcase_add_test(servers, test_amcheck_of_sound_data);
    tcase_add_test(servers, test_amcheck_of_an_index_that_misses_rows);
    tcase_add_test(servers, test_verify_of_sound_data);
    tcase_add_test(servers, test_verify_finds_a_rotten_page);
    tcase_add_test(servers, test_checksums_of_a_stopped_standby);
    suite_add_tcase(suite, servers);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
