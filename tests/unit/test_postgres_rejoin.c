/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "tests/support/postgres_fixture.h"

static struct postgres_fixture *fixture;

static void up(void)
{
    fixture = postgres_fixture_new(2);
    postgres_fixture_query(fixture, 0, "CREATE TABLE public.rows AS SELECT 0 AS n");
    postgres_fixture_wait(fixture, 1, "SELECT count(*) FROM pg_class WHERE relname = 'rows'", "1");
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

static json_t *from(const char *source)
{
    return json_pack("{s:s}", "source", source);
}

static bool exists(size_t server, const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", fixture->servers[server].home, name);
    return access(path, F_OK) == 0;
}

/* n1 keeps a row that n2 never had; n2 is the primary of the next timeline. */
static void diverge(size_t old_primary, size_t new_primary)
{
    OWNED_JSON json_t *stopped = call(new_primary, "postgres.receiver", NULL);

    postgres_fixture_query(fixture, old_primary, "INSERT INTO public.rows VALUES (666)");
    OWNED_JSON json_t *fenced = call(old_primary, "postgres.fence", NULL);
    OWNED_JSON json_t *promoted = call(new_primary, "postgres.promote", NULL);
    postgres_fixture_query(fixture, new_primary, "INSERT INTO public.rows VALUES (1)");
}

/* It streams from the other on the other's timeline, has its rows, its own settings, no slot. */
static void check_standby(size_t server, size_t primary, const char *timeline)
{
    const char *listens = postgres_fixture_query(fixture, server, "SHOW listen_addresses");

    ck_assert_str_eq(listens, fixture->servers[server].address);
    postgres_fixture_wait(fixture, server, "SELECT status FROM pg_stat_wal_receiver", "streaming");
    postgres_fixture_wait(fixture, server, "SELECT received_tli FROM pg_stat_wal_receiver",
                          timeline);
    const char *count =
        postgres_fixture_query(fixture, primary, "SELECT count(*) FROM public.rows");
    postgres_fixture_wait(fixture, server, "SELECT count(*) FROM public.rows", count);
    ck_assert_str_eq(
        postgres_fixture_query(fixture, server, "SELECT count(*) FROM public.rows WHERE n = 666"),
        "0");
    ck_assert_str_eq(
        postgres_fixture_query(fixture, server, "SELECT count(*) FROM pg_replication_slots"), "0");
    ck_assert_str_eq(postgres_fixture_query(fixture, server, "SHOW primary_slot_name"),
                     fixture->servers[server].slot);
    ck_assert_ptr_null(
        strstr(postgres_fixture_query(fixture, server, "SHOW primary_conninfo"), "secret"));
    OWNED_JSON json_t *state = call(primary, "postgres.state", NULL);
    const json_t *standby = json_array_get(json_object_get(state, "standbys"), 0);
    ck_assert_str_eq(json_text(standby, "name", ""), fixture->servers[server].name);
}

static void check_nothing_left(size_t server)
{
    char keep[32];

    snprintf(keep, sizeof keep, "ordeal-%s.keep", fixture->servers[server].name);
    ck_assert(!exists(server, keep));
    ck_assert(!exists(server, "data.ordeal-new"));
    ck_assert(!exists(server, "data.ordeal-old"));
}

/* The tests below follow one another: each leaves what the next one begins with. */

START_TEST(test_refusals)
{
    struct error err = {0};

    ck_assert_int_eq(try(1, "postgres.rewind", from("n1"), &err), STATUS_REFUSED);
    ck_assert_ptr_nonnull(strstr(err.message, "PostgreSQL runs in"));
    ck_assert_int_eq(try(1, "postgres.rebuild", from("n1"), &err), STATUS_REFUSED);
    OWNED_JSON json_t *stopped = call(1, "postgres.stop", NULL);
    ck_assert_int_eq(try(1, "postgres.rewind", from("n9"), &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(try(1, "postgres.rebuild", from("n2"), &err), STATUS_INVALID);
    OWNED_JSON json_t *started = call(1, "postgres.start", NULL);
}
END_TEST

START_TEST(test_rewind_after_divergence)
{
    OWNED_JSON json_t *before = call(0, "postgres.state", NULL);

    diverge(0, 1);
    OWNED_JSON json_t *rewound = call(0, "postgres.rewind", from("n2"));
    ck_assert_str_eq(json_text(rewound, "how", ""), "rewind");
    OWNED_JSON json_t *started = call(0, "postgres.start", NULL);
    check_standby(0, 1, "2");
    check_nothing_left(0);
    OWNED_JSON json_t *after = call(0, "postgres.state", NULL);
    ck_assert_str_eq(json_text(after, "incarnation", "a"), json_text(before, "incarnation", "b"));
}
END_TEST

START_TEST(test_rebuild)
{
    OWNED_JSON json_t *before = call(0, "postgres.state", NULL);
    OWNED_JSON json_t *fenced = call(0, "postgres.fence", NULL);
    OWNED_JSON json_t *rebuilt = call(0, "postgres.rebuild", from("n2"));
    OWNED_JSON json_t *started = call(0, "postgres.start", NULL);

    ck_assert_str_eq(json_text(rebuilt, "how", ""), "rebuild");
    check_standby(0, 1, "2");
    check_nothing_left(0);
    OWNED_JSON json_t *after = call(0, "postgres.state", NULL);
    ck_assert_str_ne(json_text(after, "incarnation", "a"), json_text(before, "incarnation", "a"));
}
END_TEST

/* A data folder that is a mount point cannot be swapped. */
START_TEST(test_rebuild_on_a_mount_point)
{
    const char *data = fixture->servers[0].data;
    OWNED_JSON json_t *before = call(0, "postgres.state", NULL);
    OWNED_JSON json_t *stopped = call(0, "postgres.stop", NULL);
    struct stat inside, outside;

    ck_assert_int_eq(stat(data, &outside), 0);
    ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
    ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    ck_assert_int_eq(mount(data, data, NULL, MS_BIND, NULL), 0);
    OWNED_JSON json_t *rebuilt = call(0, "postgres.rebuild", from("n2"));
    ck_assert_int_eq(stat(data, &inside), 0);
    ck_assert_uint_eq(inside.st_ino, outside.st_ino);
    ck_assert_int_eq(umount2(data, MNT_DETACH), 0);
    OWNED_JSON json_t *started = call(0, "postgres.start", NULL);
    check_standby(0, 1, "2");
    check_nothing_left(0);
    OWNED_JSON json_t *after = call(0, "postgres.state", NULL);
    ck_assert_str_ne(json_text(after, "incarnation", "a"), json_text(before, "incarnation", "a"));
}
END_TEST

/* A rewind that cannot be done says why, and a rebuild after it still has the node's own files. */
START_TEST(test_failed_rewind_then_rebuild)
{
    char path[256], aside[256];
    struct error err = {0};

    diverge(1, 0);
    snprintf(path, sizeof path, "%s/pg_xact", fixture->servers[1].data);
    snprintf(aside, sizeof aside, "%s/pg_xact", fixture->servers[1].home);
    ck_assert_int_eq(rename(path, aside), 0);
    ck_assert_int_eq(try(1, "postgres.rewind", from("n1"), &err), STATUS_FAILED);
    ck_assert_str_ne(err.detail, "");
    ck_assert_ptr_nonnull(strstr(err.message, "rewinding n2"));
    ck_assert(exists(1, "ordeal-n2.keep"));
    OWNED_JSON json_t *rebuilt = call(1, "postgres.rebuild", from("n1"));
    OWNED_JSON json_t *started = call(1, "postgres.start", NULL);
    postgres_fixture_query(fixture, 0, "DELETE FROM public.rows WHERE n = 666");
    check_standby(1, 0, "3");
    check_nothing_left(1);
}
END_TEST

int main(void)
{
    postgres_fixture_reap();
    Suite *suite = suite_create("postgres rejoin");
    TCase *servers = tcase_create("servers");

    tcase_add_unchecked_fixture(servers, up, down);
    tcase_set_timeout(servers, 60);
    tcase_add_test(servers, test_refusals);
    tcase_add_test(servers, test_rewind_after_divergence);
    tcase_add_test(servers, test_rebuild);
    tcase_add_test(servers, test_rebuild_on_a_mount_point);
    tcase_add_test(servers, test_failed_rewind_then_rebuild);
    suite_add_tcase(suite, servers);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
