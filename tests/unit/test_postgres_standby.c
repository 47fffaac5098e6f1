/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "tests/support/postgres_fixture.h"

static struct postgres_fixture *fixture;

static void up(void)
{
    fixture = postgres_fixture_new(3);
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

static uint64_t lsn(const json_t *json, const char *key)
{
    return pg_lsn_parse(json_text(json, key, ""));
}

static void write_something(size_t server)
{
    postgres_fixture_query(fixture, server,
                           "SELECT pg_logical_emit_message(true, 'test', repeat('x', 1000))");
}

START_TEST(test_receiver_stops_and_positions_stay)
{
    OWNED_JSON json_t *stopped = call(1, "postgres.receiver", NULL);
    uint64_t position = lsn(stopped, "lsn");

    ck_assert_uint_gt(position, 0);
    ck_assert_int_eq(json_number(stopped, "timeline", 0), 1);
    write_something(0);
    ck_assert_str_eq(
        postgres_fixture_query(fixture, 1, "SELECT count(*) FROM pg_stat_wal_receiver"), "0");
    OWNED_JSON json_t *state = call(1, "postgres.state", NULL);
    ck_assert_uint_eq(lsn(state, "lsn"), position);
    ck_assert(json_is_null(json_object_get(state, "receiver")));
    ck_assert(json_is_null(json_object_get(state, "primary_conninfo_host")));
    ck_assert_int_eq(json_number(state, "timeline", 0), 1);
    OWNED_JSON json_t *primary = call(0, "postgres.state", NULL);
    ck_assert_uint_gt(lsn(primary, "lsn"), position);

    OWNED_JSON json_t *pointed = call(1, "postgres.receiver", json_pack("{s:s}", "source", "n1"));
    ck_assert_str_eq(json_text(pointed, "source", ""), "n1");
    postgres_fixture_wait(fixture, 1, "SELECT status FROM pg_stat_wal_receiver", "streaming");
    ck_assert_ptr_null(
        strstr(postgres_fixture_query(fixture, 1, "SHOW primary_conninfo"), "secret"));
    ck_assert_str_eq(postgres_fixture_query(
                         fixture, 0,
                         "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_replication USING (pid) WHERE "
                         "application_name = 'n2'"),
                     "t");
}
END_TEST

START_TEST(test_receiver_of_a_standby_that_restarted)
{
    OWNED_JSON json_t *before = NULL;

    write_something(0);
    before = call(0, "postgres.state", NULL);
    const char *sql = arena_printf(fixture->arena, "SELECT pg_last_wal_replay_lsn() >= '%s'",
                                   json_text(before, "lsn", ""));
    postgres_fixture_wait(fixture, 1, sql, "t");
    OWNED_JSON json_t *stopped = call(1, "postgres.receiver", NULL);
    postgres_fixture_stop(fixture, 1, "fast");
    postgres_fixture_start(fixture, 1);
    /* the receive position is unknown now: the replayed one counts */
    OWNED_JSON json_t *after = call(1, "postgres.state", NULL);
    ck_assert_uint_ge(lsn(after, "lsn"), lsn(before, "lsn"));
    OWNED_JSON json_t *again = call(1, "postgres.receiver", json_pack("{s:s}", "source", "n1"));
    postgres_fixture_wait(fixture, 1, "SELECT status FROM pg_stat_wal_receiver", "streaming");
}
END_TEST

START_TEST(test_receiver_refuses)
{
    struct error err = {0};

    ck_assert_int_eq(try(0, "postgres.receiver", NULL, &err), STATUS_REFUSED);
    ck_assert_int_eq(try(1, "postgres.receiver", json_pack("{s:s}", "source", "n9"), &err),
                     STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.message, "n9"));
    ck_assert_int_eq(try(0, "postgres.promote", NULL, &err), STATUS_REFUSED);
}
END_TEST

/* Last of all: n2 becomes the primary, n3 follows it to the new timeline, n1 is left alone. */
START_TEST(test_promote_and_follow)
{
    OWNED_JSON json_t *stopped = call(2, "postgres.receiver", NULL);
    OWNED_JSON json_t *fenced = call(0, "postgres.fence", NULL);
    OWNED_JSON json_t *promoted = call(1, "postgres.promote", NULL);
    OWNED_JSON json_t *state = call(1, "postgres.state", NULL);
    const json_t *history = json_object_get(state, "history");

    ck_assert_int_eq(json_number(promoted, "timeline", 0), 2);
    ck_assert_uint_gt(lsn(promoted, "fork_lsn"), 0);
    ck_assert(!json_flag(state, "in_recovery", true));
    ck_assert_int_eq(json_number(state, "timeline", 0), 2);
    ck_assert_uint_eq(json_array_size(history), 1);
    ck_assert_int_eq(json_number(json_array_get(history, 0), "timeline", 0), 1);
    ck_assert_uint_eq(lsn(json_array_get(history, 0), "lsn"), lsn(promoted, "fork_lsn"));
    ck_assert_uint_ge(lsn(state, "lsn"), lsn(promoted, "fork_lsn"));
    /* the checkpoint behind it makes the control file name the new timeline */
    postgres_fixture_wait(fixture, 1, "SELECT timeline_id FROM pg_control_checkpoint()", "2");

    OWNED_JSON json_t *slots =
        call(1, "postgres.slots", json_pack("{s:[s], s:b}", "ensure", "n3", "drop_others", 1));
    OWNED_JSON json_t *pointed = call(2, "postgres.receiver", json_pack("{s:s}", "source", "n2"));
    postgres_fixture_wait(fixture, 2, "SELECT received_tli FROM pg_stat_wal_receiver", "2");
    write_something(1);
    OWNED_JSON json_t *follower = call(2, "postgres.state", NULL);
    ck_assert_int_eq(json_number(follower, "timeline", 0), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(follower, "history")), 1);
    /* its position lies on the new timeline also when nothing is received any more */
    OWNED_JSON json_t *still = call(2, "postgres.receiver", NULL);
    ck_assert_int_eq(json_number(still, "timeline", 0), 2);
}
END_TEST

int main(void)
{
    postgres_fixture_reap();
    Suite *suite = suite_create("postgres standby");
    TCase *servers = tcase_create("servers");

    tcase_add_unchecked_fixture(servers, up, down);
    tcase_set_timeout(servers, 60);
    tcase_add_test(servers, test_receiver_stops_and_positions_stay);
    tcase_add_test(servers, test_receiver_of_a_standby_that_restarted);
    tcase_add_test(servers, test_receiver_refuses);
    tcase_add_test(servers, test_promote_and_follow);
    suite_add_tcase(suite, servers);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
