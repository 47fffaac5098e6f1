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
    fixture = postgres_fixture_new(2);
}

static void down(void)
{
    postgres_fixture_free(fixture);
}

static void set_sync(const char *sync_set)
{
    postgres_fixture_query(fixture, 0,
                           arena_printf(fixture->arena,
                                        "ALTER SYSTEM SET synchronous_standby_names = '%s'",
                                        sync_set));
    postgres_fixture_query(fixture, 0, "SELECT pg_reload_conf()");
    postgres_fixture_wait(fixture, 0, "SHOW synchronous_standby_names", sync_set);
}

static json_t *quorum_wait(int timeout_ms)
{
    return postgres_fixture_call(fixture, 0, "postgres.quorum-wait",
                                 json_pack("{s:i}", "timeout_ms", timeout_ms));
}

START_TEST(test_no_sync_set)
{
    OWNED_JSON json_t *result = quorum_wait(5000);

    ck_assert(!json_flag(result, "waited", true));
    ck_assert_int_gt(json_number(result, "ack_ns", 0), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(result, "standbys")), 0);
}
END_TEST

static void check_waits(const char *sync_set, const char *state)
{
    int64_t before_ns = clock_boot_ns();

    set_sync(sync_set);
    postgres_fixture_wait(fixture, 0, "SELECT sync_state FROM pg_stat_replication", state);
    OWNED_JSON json_t *result = quorum_wait(5000);
    ck_assert(json_flag(result, "waited", false));
    ck_assert_int_gt(json_number(result, "ack_ns", 0), before_ns);
    ck_assert_int_eq(json_number(result, "needed", 0), 1);
    const json_t *standbys = json_object_get(result, "standbys");
    ck_assert_uint_eq(json_array_size(standbys), 1);
    ck_assert_str_eq(json_string_value(json_array_get(standbys, 0)), "n2");
}

START_TEST(test_quorum_with_a_standby)
{
    check_waits("ANY 1 (n2, n3)", "quorum");
    check_waits("FIRST 1 (n2)", "sync");
    check_waits("n2", "sync");
}
END_TEST

START_TEST(test_quorum_without_its_standby)
{
    set_sync("ANY 1 (n2)");
    postgres_fixture_stop(fixture, 1, "fast");
    postgres_fixture_wait(fixture, 0, "SELECT count(*) FROM pg_stat_replication", "0");
    int64_t before_ns = clock_boot_ns();
    OWNED_JSON json_t *result = quorum_wait(1000);
    ck_assert_int_lt(clock_boot_ns() - before_ns, 5 * NS_PER_SECOND);
    ck_assert(json_flag(result, "waited", false));
    ck_assert(json_flag(result, "seen_waiting", false));
    ck_assert(json_is_null(json_object_get(result, "ack_ns")));
    /* nothing of ours is left waiting, and control sessions go on without the quorum */
    postgres_fixture_wait(
        fixture, 0, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", "0");
    OWNED_JSON json_t *slots = postgres_fixture_call(fixture, 0, "postgres.slots",
                                                     json_pack("{s:[s, s]}", "ensure", "n2", "n3"));
    ck_assert_uint_eq(json_array_size(json_object_get(slots, "slots")), 2);
    OWNED_JSON json_t *prepared = postgres_fixture_call(fixture, 0, "load.prepare", NULL);
    postgres_fixture_start(fixture, 1);
    OWNED_JSON json_t *back = quorum_wait(10000);
    ck_assert_int_gt(json_number(back, "ack_ns", 0), 0);
}
END_TEST

/* Two are asked for and one is there: its flushed position alone is no evidence. */
START_TEST(test_quorum_of_two_with_one)
{
    set_sync("ANY 2 (n2, n3)");
    OWNED_JSON json_t *result = quorum_wait(1000);
    ck_assert_int_eq(json_number(result, "needed", 0), 2);
    ck_assert(json_is_null(json_object_get(result, "ack_ns")));
    set_sync("");
}
END_TEST

START_TEST(test_slots_are_dropped)
{
    struct error err = {0};
    json_t *result = NULL;
    OWNED_JSON json_t *made = postgres_fixture_call(
        fixture, 0, "postgres.slots", json_pack("{s:[s, s]}", "ensure", "old_a", "n2"));
    OWNED_JSON json_t *again = postgres_fixture_call(
        fixture, 0, "postgres.slots", json_pack("{s:[s, s]}", "ensure", "old_a", "n2"));
    OWNED_JSON json_t *kept = postgres_fixture_call(
        fixture, 0, "postgres.slots", json_pack("{s:[s], s:b}", "ensure", "n2", "drop_others", 1));

    ck_assert_uint_eq(json_array_size(json_object_get(kept, "slots")), 1);
    ck_assert_str_eq(postgres_fixture_query(
                         fixture, 0, "SELECT string_agg(slot_name, ',') FROM pg_replication_slots"),
                     "n2");
    /* one that is in use is not torn away: the deadline passes and the error names it */
    postgres_fixture_wait(fixture, 0, "SELECT active FROM pg_replication_slots", "t");
    ck_assert_int_eq(postgres_fixture_try(fixture, 0, "postgres.slots",
                                          json_pack("{s:[], s:b, s:i}", "ensure", "drop_others", 1,
                                                    "timeout_ms", 1500),
                                          &result, &err),
                     STATUS_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(err.message, "slot n2 is still in use"));
}
END_TEST

int main(void)
{
    postgres_fixture_reap();
    Suite *suite = suite_create("postgres quorum");
    TCase *servers = tcase_create("servers");

    tcase_add_unchecked_fixture(servers, up, down);
    tcase_set_timeout(servers, 60);
    tcase_add_test(servers, test_no_sync_set);
    tcase_add_test(servers, test_quorum_with_a_standby);
    tcase_add_test(servers, test_quorum_without_its_standby);
    tcase_add_test(servers, test_quorum_of_two_with_one);
    tcase_add_test(servers, test_slots_are_dropped);
    suite_add_tcase(suite, servers);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
