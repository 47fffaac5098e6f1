/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "agents/postgres_methods.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg_processes.h"
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

static json_t *state_of(size_t server)
{
    return postgres_fixture_call(fixture, server, "postgres.state", NULL);
}

static uint64_t lsn_of(const json_t *state, const char *key)
{
    return pg_lsn_parse(json_text(state, key, ""));
}

START_TEST(test_primary)
{
    uint64_t before =
        pg_lsn_parse(postgres_fixture_query(fixture, 0, "SELECT pg_current_wal_lsn()"));
    OWNED_JSON json_t *state = state_of(0);

    ck_assert(json_flag(state, "running", false));
    ck_assert(json_flag(state, "accepting", false));
    ck_assert(!json_flag(state, "frozen", true));
    ck_assert(!json_flag(state, "in_recovery", true));
    ck_assert_int_eq(json_number(state, "timeline", 0), 1);
    ck_assert_uint_ne(before, 0);
    ck_assert_uint_ge(lsn_of(state, "lsn"), before);
    ck_assert(json_is_null(json_object_get(state, "receiver")));
    ck_assert(json_is_null(json_object_get(state, "error")));
    ck_assert_str_eq(json_text(state, "synchronous_commit", ""), "on");
    const json_t *standby = json_array_get(json_object_get(state, "standbys"), 0);
    ck_assert_str_eq(json_text(standby, "name", ""), "n2");
    ck_assert_str_eq(json_text(standby, "state", ""), "streaming");
    const json_t *slot = json_array_get(json_object_get(state, "slots"), 0);
    ck_assert_str_eq(json_text(slot, "name", ""), "n2");
    ck_assert(json_flag(slot, "active", false));
    ck_assert_uint_eq(json_array_size(json_object_get(state, "history")), 0);
    ck_assert_int_gt(json_number(state, "at_ns", 0), 0);
    ck_assert_str_eq(json_text(json_object_get(state, "settings"), "wal_log_hints", ""), "on");
}
END_TEST

START_TEST(test_standby)
{
    OWNED_JSON json_t *state = state_of(1);
    OWNED_JSON json_t *primary = state_of(0);
    const json_t *receiver = json_object_get(state, "receiver");

    ck_assert(json_flag(state, "in_recovery", false));
    ck_assert_int_eq(json_number(state, "timeline", 0), 1);
    uint64_t receive = lsn_of(state, "receive_lsn");
    uint64_t replay = lsn_of(state, "replay_lsn");
    ck_assert_uint_eq(lsn_of(state, "lsn"), receive > replay ? receive : replay);
    ck_assert_str_eq(json_text(receiver, "status", ""), "streaming");
    ck_assert_str_eq(json_text(receiver, "sender_host", ""), "127.0.0.11");
    ck_assert_str_eq(json_text(receiver, "slot", ""), "n2");
    ck_assert_str_eq(json_text(state, "primary_conninfo_host", ""), "127.0.0.11");
    ck_assert_ptr_null(json_object_get(state, "primary_conninfo"));
    ck_assert_str_eq(json_text(state, "system_identifier", "a"),
                     json_text(primary, "system_identifier", "b"));
    ck_assert_str_ne(json_text(state, "incarnation", "same"),
                     json_text(primary, "incarnation", "same"));
}
END_TEST

START_TEST(test_down)
{
    OWNED_JSON json_t *before = state_of(1);

    postgres_fixture_stop(fixture, 1, "fast");
    OWNED_JSON json_t *state = state_of(1);
    postgres_fixture_start(fixture, 1);
    OWNED_JSON json_t *after = state_of(1);

    ck_assert(!json_flag(state, "running", true));
    ck_assert(!json_flag(state, "accepting", true));
    ck_assert(json_flag(state, "data_exists", false));
    ck_assert(json_flag(state, "in_recovery", false));
    ck_assert_int_eq(json_number(state, "timeline", 0), 1);
    ck_assert_uint_ne(lsn_of(state, "lsn"), 0);
    ck_assert_str_eq(json_text(state, "control_state", ""), "shut down in recovery");
    ck_assert_str_eq(json_text(state, "system_identifier", "a"),
                     json_text(before, "system_identifier", "b"));
    /* the same folder after a restart */
    ck_assert_str_eq(json_text(state, "incarnation", "a"), json_text(before, "incarnation", "b"));
    ck_assert_str_eq(json_text(after, "incarnation", "a"), json_text(before, "incarnation", "b"));
    ck_assert_int_ne(json_number(after, "pid", 0), json_number(before, "pid", 0));
}
END_TEST

START_TEST(test_frozen_server_does_not_hang_the_method)
{
    OWNED_JSON json_t *before = state_of(1);
    pid_t postmaster = (pid_t) json_number(before, "pid", 0);
    int64_t began_ns = clock_boot_ns();

    ck_assert_int_gt(postmaster, 1);
    ck_assert_int_eq(kill(postmaster, SIGSTOP), 0);
    OWNED_JSON json_t *state = state_of(1);
    int64_t took_ns = clock_boot_ns() - began_ns;
    ck_assert_int_eq(kill(postmaster, SIGCONT), 0);
    OWNED_JSON json_t *after = state_of(1);

    ck_assert(json_flag(state, "running", false));
    ck_assert(json_flag(state, "frozen", false));
    ck_assert(!json_flag(state, "accepting", true));
    ck_assert_ptr_nonnull(strstr(json_text(state, "error", ""), "frozen"));
    ck_assert_int_lt(took_ns, 5 * NS_PER_SECOND);
    ck_assert(!json_flag(after, "frozen", true));
    ck_assert(json_flag(after, "accepting", false));
}
END_TEST

START_TEST(test_no_data_folder)
{
    const struct session *session = postgres_fixture_session(fixture, 1);
    struct session elsewhere = *session;
    OWNED_JSON json_t *state = NULL;
    OWNED_JSON json_t *params = json_object();
    struct error err = {0};

    elsewhere.database.data = "/tmp/ordeal-there-is-no-such-folder";
    struct method_call call = {
        .session = &elsewhere, .params = params, .deadline_ns = deadline_in_ms(5000)};
    ck_assert_int_eq(postgres_state(&call, &state, &err), STATUS_OK);
    ck_assert(!json_flag(state, "data_exists", true));
    ck_assert(!json_flag(state, "running", true));
    ck_assert(json_is_null(json_object_get(state, "incarnation")));
}
END_TEST

START_TEST(test_session_setting_of_the_role_is_shown)
{
    /* what a new session of the superuser would have, not what the control session set */
    postgres_fixture_query(fixture, 0, "ALTER ROLE ordeal_admin SET synchronous_commit = off");
    OWNED_JSON json_t *state = state_of(0);
    postgres_fixture_query(fixture, 0, "ALTER ROLE ordeal_admin RESET synchronous_commit");
    ck_assert_str_eq(json_text(state, "synchronous_commit", ""), "off");
}
END_TEST

int main(void)
{
    postgres_fixture_reap();
    Suite *suite = suite_create("postgres state");
    TCase *servers = tcase_create("servers");

    tcase_add_unchecked_fixture(servers, up, down);
    tcase_set_timeout(servers, 60);
    tcase_add_test(servers, test_primary);
    tcase_add_test(servers, test_standby);
    tcase_add_test(servers, test_down);
    tcase_add_test(servers, test_frozen_server_does_not_hang_the_method);
    tcase_add_test(servers, test_no_data_folder);
    tcase_add_test(servers, test_session_setting_of_the_role_is_shown);
    suite_add_tcase(suite, servers);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
