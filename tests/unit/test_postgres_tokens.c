/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agents/postgres_present.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/ledger.h"
#include "lib/owned.h"
#include "tests/support/postgres_fixture.h"

/* --- folding, without a server ---------------------------------------------------------------- */

static bool collect(void *argument, const char *text)
{
    buffer_puts(argument, text);
    return true;
}

static struct journal_row row(uint64_t client, uint64_t seq, int number, int rows)
{
    return (struct journal_row){
        client, seq, number, rows, ledger_digest(client, seq, (unsigned) number, "abc", 3),
        "abc",  3};
}

static void check_fold(const struct journal_row *rows, size_t count, const char *expected,
                       uint64_t tokens)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);
    struct present_fold *fold = present_fold_new(collect, &text);

    for (size_t i = 0; i < count; i++)
        ck_assert(present_fold_row(fold, &rows[i]));
    ck_assert(present_fold_end(fold));
    ck_assert_str_eq(buffer_text(&text), expected);
    ck_assert_uint_eq(present_fold_tokens(fold), tokens);
    ck_assert_uint_eq(present_fold_rows(fold), count);
    present_fold_free(fold);
}

START_TEST(test_fold_ranges)
{
    const struct journal_row rows[] = {row(1, 1, 1, 2), row(1, 1, 2, 2), row(1, 2, 2, 2),
                                       row(1, 2, 1, 2), row(1, 4, 1, 1), row(2, 5, 1, 1)};

    check_fold(rows, 6, "range 1 1 2\nrange 1 4 4\nrange 2 5 5\n", 4);
    check_fold(rows, 0, "", 0);
}
END_TEST

START_TEST(test_fold_odd_tokens)
{
    struct journal_row torn[] = {row(1, 1, 1, 1), row(1, 2, 1, 3), row(1, 2, 3, 3),
                                 row(1, 3, 1, 1)};
    struct journal_row twice[] = {row(1, 1, 1, 1), row(1, 1, 1, 1)};
    struct journal_row twice_and_torn[] = {row(1, 1, 2, 2), row(1, 1, 2, 2)};
    struct journal_row changed[] = {row(1, 1, 1, 1), row(1, 2, 1, 1)};
    struct journal_row moved[] = {row(1, 1, 1, 1), row(1, 2, 1, 1)};
    struct journal_row null[] = {row(1, 1, 1, 1)};
    struct journal_row beyond[] = {row(1, 1, 2, 1)};

    check_fold(torn, 4, "range 1 1 1\nodd 1 2 rows=2 of=3 bad=0\nrange 1 3 3\n", 3);
    check_fold(twice, 2, "odd 1 1 rows=2 of=1 bad=0\n", 1);
    check_fold(twice_and_torn, 2, "odd 1 1 rows=2 of=2 bad=1\n", 1);
    changed[1].payload = "abd";
    check_fold(changed, 2, "range 1 1 1\nodd 1 2 rows=1 of=1 bad=1\n", 2);
    moved[1].digest = moved[0].digest;
    check_fold(moved, 2, "range 1 1 1\nodd 1 2 rows=1 of=1 bad=1\n", 2);
    null[0].payload = NULL;
    check_fold(null, 1, "odd 1 1 rows=1 of=1 bad=1\n", 1);
    check_fold(beyond, 1, "odd 1 1 rows=1 of=1 bad=1\n", 1);
}
END_TEST

START_TEST(test_fold_foreign_rows)
{
    struct journal_row rows[] = {row((uint64_t) -1, 1, 1, 1), row(7, 1, 1, 1),
                                 row(UINT64_C(1) << 40, 1, 1, 1)};

    check_fold(rows, 3, "range 7 1 1\nodd 4294967295 1 rows=2 of=0 bad=2\n", 2);
}
END_TEST

START_TEST(test_fold_sum_sees_every_difference)
{
    const struct journal_row same[2][2] = {{row(1, 1, 1, 2), row(1, 1, 2, 2)},
                                           {row(1, 1, 2, 2), row(1, 1, 1, 2)}};
    struct journal_row other = row(1, 1, 1, 2);
    uint64_t sums[3];

    other.payload = "abx";
    for (size_t i = 0; i < 3; i++) {
        struct present_fold *fold = present_fold_new(NULL, NULL);
        ck_assert(present_fold_row(fold, i < 2 ? &same[i][0] : &other));
        ck_assert(present_fold_row(fold, &same[i % 2][1]));
        sums[i] = present_fold_sum(fold);
        present_fold_free(fold);
    }
    ck_assert_uint_eq(sums[0], sums[1]);
    ck_assert_uint_ne(sums[0], sums[2]);
}
END_TEST

START_TEST(test_fold_refuses_disorder)
{
    struct present_fold *fold = present_fold_new(NULL, NULL);
    struct journal_row first = row(2, 5, 1, 1), second = row(2, 4, 1, 1);

    ck_assert(present_fold_row(fold, &first));
    ck_assert(!present_fold_row(fold, &second));
    present_fold_free(fold);
}
END_TEST

/* --- servers ---------------------------------------------------------------------------------- */

static struct postgres_fixture *fixture;

static void up(void)
{
    fixture = postgres_fixture_new(2);
}

static void down(void)
{
    postgres_fixture_free(fixture);
}

static json_t *call(size_t server, const char *method, json_t *params)
{
    return postgres_fixture_call(fixture, server, method, params);
}

/* Rows of a token, as the load writes them: as the workload's user, in one transaction. */
static void insert(uint64_t client, uint64_t seq, int rows)
{
    struct pg_target target = postgres_fixture_target(fixture, 0, "ordeal_load", "ordeal");
    OWNED_PG PGconn *connection = NULL;
    OWNED_BUFFER struct buffer sql = BUFFER(65536);
    struct error err = {0};

    ck_assert_int_eq(pg_connect(&target, deadline_in_ms(5000), &connection, &err), STATUS_OK);
    for (int i = 1; i <= rows; i++)
        buffer_printf(&sql,
                      "%s(%" PRIu64 ",%" PRIu64 ",%d,%d,%" PRId64 ",E'pay\\tload \\\\ \xc3\xa9')",
                      i == 1 ? "INSERT INTO ordeal.journal VALUES" : ",", client, seq, i, rows,
                      ledger_digest(client, seq, (unsigned) i, "pay\tload \\ \xc3\xa9", 13));
    enum status status = pg_query(connection, buffer_text(&sql), deadline_in_ms(5000), NULL, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
}

static struct present load_present(size_t server)
{
    struct present present = {0};
    struct error err = {0};
    const char *path = arena_printf(fixture->arena, "%s/present-%s.tokens",
                                    fixture->servers[server].spool, fixture->servers[server].name);

    enum status status = present_load(fixture->arena, path, &present, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    return present;
}

static void wait_replayed(void)
{
    const char *lsn = postgres_fixture_query(fixture, 0, "SELECT pg_current_wal_lsn()");

    postgres_fixture_wait(
        fixture, 1, arena_printf(fixture->arena, "SELECT pg_last_wal_replay_lsn() >= '%s'", lsn),
        "t");
}

START_TEST(test_prepare_and_remove)
{
    struct error err = {0};
    json_t *result = NULL;
    OWNED_JSON json_t *made = call(0, "load.prepare", NULL);

    ck_assert(!json_flag(made, "existed", true));
    ck_assert_str_eq(
        postgres_fixture_query(fixture, 0, "SELECT obj_description('ordeal'::regnamespace)"),
        "ordeal run test-run");
    insert(1, 1, 2);
    /* a second time keeps what is there */
    OWNED_JSON json_t *again = call(0, "load.prepare", NULL);
    ck_assert_str_eq(postgres_fixture_query(fixture, 0, "SELECT count(*) FROM ordeal.journal"),
                     "2");
    /* the leftover of another run goes */
    postgres_fixture_query(fixture, 0, "COMMENT ON SCHEMA ordeal IS 'ordeal run earlier'");
    OWNED_JSON json_t *fresh = call(0, "load.prepare", NULL);
    ck_assert(json_flag(fresh, "dropped", false));
    ck_assert_str_eq(postgres_fixture_query(fixture, 0, "SELECT count(*) FROM ordeal.journal"),
                     "0");
    /* what is not ours is not touched, neither to make nor to remove */
    postgres_fixture_query(fixture, 0, "COMMENT ON SCHEMA ordeal IS 'precious'");
    ck_assert_int_eq(postgres_fixture_try(fixture, 0, "load.prepare", NULL, &result, &err),
                     STATUS_REFUSED);
    ck_assert_ptr_nonnull(strstr(err.message, "precious"));
    ck_assert_int_eq(postgres_fixture_try(fixture, 0, "load.prepare", json_pack("{s:b}", "drop", 1),
                                          &result, &err),
                     STATUS_REFUSED);
    postgres_fixture_query(fixture, 0, "COMMENT ON SCHEMA ordeal IS 'ordeal run test-run'");
    OWNED_JSON json_t *gone = call(0, "load.prepare", json_pack("{s:b}", "drop", 1));
    OWNED_JSON json_t *still = call(0, "load.prepare", json_pack("{s:b}", "drop", 1));
    ck_assert_ptr_null(
        postgres_fixture_query(fixture, 0, "SELECT 1 FROM pg_namespace WHERE nspname = 'ordeal'"));
}
END_TEST

START_TEST(test_tokens_on_primary_and_standby)
{
    OWNED_JSON json_t *made = call(0, "load.prepare", NULL);
    for (uint64_t seq = 1; seq <= 5; seq++)
        insert(1, seq, 3);
    insert(1, 7, 3);
    insert(1000000, 1, 1);
    insert(2, 1, 2);
    postgres_fixture_query(fixture, 0,
                           "DELETE FROM ordeal.journal WHERE client = 1 AND seq = 3 AND row = 2");
    postgres_fixture_query(
        fixture, 0, "INSERT INTO ordeal.journal SELECT * FROM ordeal.journal WHERE client = 2");
    postgres_fixture_query(
        fixture, 0,
        "UPDATE ordeal.journal SET payload = 'bent' WHERE client = 1 AND seq = 5 AND row = 1");
    wait_replayed();
    for (size_t server = 0; server < 2; server++) {
        OWNED_JSON json_t *result = call(server, "postgres.tokens", NULL);
        struct present present = load_present(server);
        ck_assert(json_flag(result, "agree", false));
        ck_assert_int_eq(json_number(result, "tokens", 0), 8);
        ck_assert_int_eq(json_number(result, "odd", 0), 3);
        ck_assert_str_eq(present.node, fixture->servers[server].name);
        ck_assert_str_eq(present.run, "test-run");
        ck_assert_uint_eq(present.timeline, 1);
        ck_assert(present.in_recovery == (server == 1));
        ck_assert_uint_gt(present.lsn, 0);
        ck_assert_uint_eq(present.tokens, 8);
        ck_assert(present_has(&present, 1, 1) && present_has(&present, 1, 2));
        ck_assert(!present_has(&present, 1, 3) && present_has(&present, 1, 4));
        ck_assert(!present_has(&present, 1, 5) && !present_has(&present, 1, 6));
        ck_assert(present_has(&present, 1, 7) && present_has(&present, 1000000, 1));
        ck_assert_uint_eq(present.odd_count, 3);
        ck_assert_uint_eq(present.odd[0].seq, 3);
        ck_assert_uint_eq(present.odd[0].rows, 2);
        ck_assert_uint_eq(present.odd[0].expected, 3);
        ck_assert_uint_eq(present.odd[1].bad, 1);
        ck_assert_uint_eq(present.odd[2].client, 2);
        ck_assert_uint_eq(present.odd[2].rows, 4);
    }
}
END_TEST

/* An index that lost an entry: made by hiding a heap row from the index's build. */
START_TEST(test_index_that_disagrees)
{
    OWNED_PG PGconn *connection = postgres_fixture_connect(fixture, 0);
    struct error err = {0};
    static const char *const steps[] = {
        /* entries of rows inserted while the index is not ready for inserts are missing in it */
        "UPDATE pg_index SET indisready = false WHERE indexrelid = "
        "'ordeal.journal_client_seq'::regclass",
        "INSERT INTO ordeal.journal SELECT 9, 1, 1, 1, 0, 'hidden'",
        "UPDATE pg_index SET indisready = true WHERE indexrelid = "
        "'ordeal.journal_client_seq'::regclass",
    };

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        enum status status = pg_query(connection, steps[i], deadline_in_ms(5000), NULL, &err);
        ck_assert_msg(status == STATUS_OK, "%s: %s", steps[i], err.message);
    }
    OWNED_JSON json_t *result = call(0, "postgres.tokens", NULL);
    ck_assert(!json_flag(result, "agree", true));
    ck_assert_int_eq(json_number(result, "tokens", 0), 9);
    ck_assert_uint_eq(load_present(0).odd_count, 4);
}
END_TEST

START_TEST(test_tokens_without_the_table)
{
    struct error err = {0};
    json_t *result = NULL;
    OWNED_JSON json_t *gone = call(0, "load.prepare", json_pack("{s:b}", "drop", 1));
    const char *part =
        arena_printf(fixture->arena, "%s/present-n1.tokens.part", fixture->servers[0].spool);

    ck_assert_int_eq(postgres_fixture_try(fixture, 0, "postgres.tokens", NULL, &result, &err),
                     STATUS_DATABASE);
    ck_assert_str_eq(err.detail, "42P01");
    ck_assert_int_ne(access(part, F_OK), 0);
}
END_TEST

int main(void)
{
    postgres_fixture_reap();
    Suite *suite = suite_create("postgres tokens");
    TCase *folding = tcase_create("folding");
    TCase *servers = tcase_create("servers");

    tcase_add_test(folding, test_fold_ranges);
    tcase_add_test(folding, test_fold_odd_tokens);
    tcase_add_test(folding, test_fold_foreign_rows);
    tcase_add_test(folding, test_fold_sum_sees_every_difference);
    tcase_add_test(folding, test_fold_refuses_disorder);
    suite_add_tcase(suite, folding);
    tcase_add_unchecked_fixture(servers, up, down);
    tcase_set_timeout(servers, 60);
    tcase_add_test(servers, test_prepare_and_remove);
    tcase_add_test(servers, test_tokens_on_primary_and_standby);
    tcase_add_test(servers, test_index_that_disagrees);
    tcase_add_test(servers, test_tokens_without_the_table);
    suite_add_tcase(suite, servers);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
