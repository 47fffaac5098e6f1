/* SPDX-License-Identifier: MIT */
#include "lib/pg_processes.h"

#include <check.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/owned.h"
#include "tests/support/throwaway_postgres.h"

static struct throwaway server;

static void setup(void)
{
    throwaway_start(&server);
}

static void teardown(void)
{
    throwaway_stop(&server);
}

static const struct {
    const char *title;
    enum pg_class class;
} titles[] = {
    {"checkpointer ", PG_CHECKPOINTER},
    {"checkpointer", PG_CHECKPOINTER},
    {"15/main: checkpointer ", PG_CHECKPOINTER},
    {"background writer ", PG_BGWRITER},
    {"walwriter ", PG_WALWRITER},
    {"walsender repl 10.0.0.2(51234) streaming 0/3000148", PG_WALSENDER},
    {"prod: walsender repl 10.0.0.2(51234) streaming 0/3000148", PG_WALSENDER},
    {"walsender repl [local] starting backup", PG_WALSENDER},
    {"walreceiver streaming 0/3000148", PG_WALRECEIVER},
    {"startup recovering 000000010000000000000003", PG_STARTUP},
    {"15/main: startup waiting for 000000010000000000000003", PG_STARTUP},
    {"archiver last was 000000010000000000000003", PG_ARCHIVER},
    {"logger ", PG_LOGGER},
    {"autovacuum launcher ", PG_AUTOVACUUM},
    {"autovacuum worker postgres", PG_AUTOVACUUM},
    {"logical replication launcher ", PG_OTHER},
    {"parallel worker for PID 4711 ", PG_OTHER},
    {"bgworker: something of an extension", PG_OTHER},
    {"ordeal ordeal 10.77.0.11(40112) idle", PG_BACKEND},
    {"ordeal ordeal [local] idle in transaction", PG_BACKEND},
    {"15/main: ordeal ordeal ::1(40112) COMMIT waiting for 0/3000148", PG_BACKEND},
    {"startupuser db 10.0.0.9(1) SELECT", PG_BACKEND},
    {"checkpointers db 10.0.0.9(65000) idle", PG_BACKEND},
    {"user db () idle", PG_OTHER},
    {"", PG_OTHER},
};

START_TEST(a_title_tells_the_class)
{
    ck_assert_msg(pg_class_of_title(titles[_i].title) == titles[_i].class,
                  "\"%s\" is taken for %s, not %s", titles[_i].title,
                  pg_class_name(pg_class_of_title(titles[_i].title)),
                  pg_class_name(titles[_i].class));
}
END_TEST

START_TEST(names_go_both_ways)
{
    struct error err = {0};
    enum pg_class class;

    for (enum pg_class each = PG_POSTMASTER; each <= PG_OTHER; each++) {
        ck_assert_int_eq(pg_class_from_name(pg_class_name(each), &class, &err), STATUS_OK);
        ck_assert_int_eq(class, each);
    }
    ck_assert_int_eq(pg_class_from_name("walwritter", &class, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "walwritter"));
    ck_assert_ptr_nonnull(strstr(err.hint, "walwriter"));
}
END_TEST

START_TEST(nothing_runs_in_an_unknown_folder)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes found = {.count = 7};

    ck_assert_int_eq(pg_processes_list(arena, "/nonexistent/data", &found, NULL), STATUS_OK);
    ck_assert_uint_eq(found.count, 0);
}
END_TEST

static struct pg_processes list(struct arena *arena)
{
    struct pg_processes found = {0};
    struct error err = {0};

    ck_assert_msg(pg_processes_list(arena, server.data, &found, &err) == STATUS_OK, "%s",
                  err.message);
    return found;
}

static size_t count_class(const struct pg_processes *found, enum pg_class class)
{
    size_t count = 0;

    for (size_t i = 0; i < found->count; i++)
        count += found->items[i].class == class;
    return count;
}

START_TEST(a_real_server_is_listed)
{
    static const enum pg_class single[] = {PG_POSTMASTER, PG_CHECKPOINTER, PG_BGWRITER,
                                           PG_WALWRITER, PG_ARCHIVER};
    OWNED_ARENA struct arena *arena = arena_new();
    PGconn *one = throwaway_connect(&server), *two = throwaway_connect(&server);
    struct pg_processes found = list(arena);

    ck_assert_int_eq(found.items[0].class, PG_POSTMASTER);
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++)
        ck_assert_uint_eq(count_class(&found, single[i]), 1);
    ck_assert_uint_eq(count_class(&found, PG_BACKEND), 2);
    ck_assert_uint_eq(count_class(&found, PG_WALSENDER), 0);
    for (size_t i = 0; i < found.count; i++)
        if (found.items[i].class == PG_BACKEND)
            ck_assert(found.items[i].id.pid == PQbackendPID(one) ||
                      found.items[i].id.pid == PQbackendPID(two));
    PQfinish(one);
    PQfinish(two);
}
END_TEST

START_TEST(orphans_of_a_dead_postmaster_are_found)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes before = list(arena);

    /* stopped children do not notice the death of their postmaster */
    for (size_t i = 1; i < before.count; i++)
        ck_assert_int_eq(process_signal(before.items[i].id, SIGSTOP, NULL), STATUS_OK);
    ck_assert_int_eq(process_signal(before.items[0].id, SIGKILL, NULL), STATUS_OK);
    ck_assert_int_eq(process_wait_gone(before.items[0].id, deadline_in_ms(5000), NULL), STATUS_OK);
    struct pg_processes after = list(arena);
    ck_assert_uint_eq(after.count, before.count - 1);
    ck_assert_uint_eq(count_class(&after, PG_POSTMASTER), 0);
}
END_TEST

START_TEST(an_erased_folder_does_not_hide_its_server)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes before = list(arena);
    const char *argv[] = {"rm", "-rf", server.data, NULL};

    /* stopped, so that the server does not end by itself when it misses its folder */
    for (size_t i = 0; i < before.count; i++)
        ck_assert_int_eq(process_signal(before.items[i].id, SIGSTOP, NULL), STATUS_OK);
    ck_assert_int_eq(
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = 10000}, NULL, NULL),
        STATUS_OK);
    struct pg_processes after = list(arena);
    ck_assert_uint_eq(after.count, before.count);
}
END_TEST

/* Look as somebody whom the file system answers nothing about the folder. */
static void list_blindly(struct arena *arena, const char *directory, enum status expected,
                         size_t count)
{
    struct pg_processes found = {0};
    struct error err = {0};

    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2], all[2];
    ck_assert_int_eq(syscall(SYS_capget, &header, all), 0);
    memcpy(data, all, sizeof data);
    data[0].effective &= ~(1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH);
    ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
    enum status status = pg_processes_list(arena, directory, &found, &err);
    ck_assert_int_eq(syscall(SYS_capset, &header, all), 0);
    ck_assert_int_eq(status, expected);
    ck_assert_uint_eq(found.count, count);
    ck_assert(count == 0 || found.items[0].class == PG_POSTMASTER);
}

START_TEST(a_folder_that_cannot_be_read_does_not_hide_its_server)
{
    OWNED_ARENA struct arena *arena = arena_new();
    char parent[128], nobodys[160];
    struct stat before;

    snprintf(parent, sizeof parent, "%s", server.data);
    *strrchr(parent, '/') = '\0';
    snprintf(nobodys, sizeof nobodys, "%s/another", parent);
    size_t running = list(arena).count;
    ck_assert_int_eq(stat(parent, &before), 0);
    ck_assert_int_eq(chmod(parent, 0), 0);
    list_blindly(arena, server.data, STATUS_OK, running);
    /* where nothing is found, it may go by another name */
    list_blindly(arena, nobodys, STATUS_SYSTEM, 0);
    ck_assert_int_eq(chmod(parent, before.st_mode), 0);
}
END_TEST

START_TEST(a_pid_file_that_names_a_stranger_is_not_believed)
{
    OWNED_ARENA struct arena *arena = arena_new();
    char path[128];

    throwaway_stop(&server);
    throwaway_start(&server);
    struct pg_processes before = list(arena);
    snprintf(path, sizeof path, "%s/postmaster.pid", server.data);
    OWNED_FILE FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "%d\n", (int) getpid());
    fflush(file);
    struct pg_processes found = list(arena);
    ck_assert_uint_eq(count_class(&found, PG_POSTMASTER), 0);
    ck_assert_uint_eq(found.count, before.count);
    for (size_t i = 0; i < found.count; i++)
        ck_assert_int_ne(found.items[i].id.pid, getpid());
}
END_TEST

static Suite *suite(const char *skip_reason)
{
    Suite *result = suite_create("pg_processes");
    TCase *pure = tcase_create("pure");
    TCase *real = tcase_create("real server");

    tcase_add_loop_test(pure, a_title_tells_the_class, 0, (int) (sizeof titles / sizeof titles[0]));
    tcase_add_test(pure, names_go_both_ways);
    tcase_add_test(pure, nothing_runs_in_an_unknown_folder);
    suite_add_tcase(result, pure);
    tcase_add_checked_fixture(real, setup, teardown);
    tcase_set_timeout(real, 60);
    tcase_add_test(real, a_real_server_is_listed);
    tcase_add_test(real, orphans_of_a_dead_postmaster_are_found);
    tcase_add_test(real, an_erased_folder_does_not_hide_its_server);
    tcase_add_test(real, a_folder_that_cannot_be_read_does_not_hide_its_server);
    tcase_add_test(real, a_pid_file_that_names_a_stranger_is_not_believed);
    if (skip_reason == NULL)
        suite_add_tcase(result, real);
    else
        printf("not run with a real server: %s\n", skip_reason);
    return result;
}

int main(void)
{
    SRunner *runner = srunner_create(suite(throwaway_isolate()));

    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
