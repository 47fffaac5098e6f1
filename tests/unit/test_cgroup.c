/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "tests/support/suite.h"

static char group[64], inner[96];

static void setup(void)
{
    snprintf(group, sizeof(group), "ordeal-test-%d", (int) getpid());
    snprintf(inner, sizeof(inner), "%s/a/b", group);
    ck_assert_int_eq(cgroup_create(inner, NULL), STATUS_OK);
}

static void teardown(void)
{
    struct error err;

    ck_assert_msg(cgroup_kill(group, deadline_in_ms(5000), &err) == STATUS_OK, "%s", err.message);
    ck_assert_msg(cgroup_remove(group, deadline_in_ms(5000), &err) == STATUS_OK, "%s", err.message);
}

static int wait_for_ever(void *argument)
{
    (void) argument;
    for (;;)
        pause();
    return 0;
}

static struct process child_in(const char *path)
{
    struct process child = {.pidfd = -1};

    ck_assert_int_eq(process_fork(wait_for_ever, NULL, &child, NULL), STATUS_OK);
    ck_assert_int_eq(cgroup_join(path, child.pid, NULL), STATUS_OK);
    return child;
}

START_TEST(refuses_paths_that_lead_elsewhere)
{
    static const char *const bad[] = {"", "/", "/a", "../a", "a/../b"};
    struct error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(cgroup_create(bad[i], &err), STATUS_INVALID);
}
END_TEST

START_TEST(create_twice_is_fine)
{
    ck_assert_int_eq(cgroup_create(inner, NULL), STATUS_OK);
}
END_TEST

START_TEST(a_process_is_found_where_it_was_put)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct process child = child_in(inner);
    const char *path = NULL;

    ck_assert_int_eq(cgroup_of(arena, child.pid, &path, NULL), STATUS_OK);
    ck_assert_str_eq(path, inner);
    process_kill(&child);
    struct error err;
    ck_assert_int_eq(cgroup_of(arena, 0x7ffffffe, &path, &err), STATUS_NOT_FOUND);
}
END_TEST

static int spin(void *argument)
{
    volatile uint64_t *counter = argument;

    for (;;)
        ++*counter;
    return 0;
}

/* utime of proc(5): what a frozen process cannot raise. */
static uint64_t ticks_used(pid_t pid)
{
    char name[64], text[1024] = "";
    uint64_t user = 0;

    snprintf(name, sizeof(name), "/proc/%d/stat", (int) pid);
    OWNED_FILE FILE *file = fopen(name, "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
    ck_assert_int_eq(
        sscanf(strrchr(text, ')'), ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64, &user),
        1);
    return user;
}

static bool ticks_move(pid_t pid, uint64_t from, int64_t within_ms)
{
    int64_t deadline_ns = deadline_in_ms(within_ms);

    while (!deadline_passed(deadline_ns))
        if (ticks_used(pid) != from)
            return true;
    return false;
}

START_TEST(frozen_processes_stand_still_and_go_on)
{
    uint64_t counter = 0;
    struct process child = {.pidfd = -1};
    bool frozen = false;

    ck_assert_int_eq(process_fork(spin, &counter, &child, NULL), STATUS_OK);
    ck_assert_int_eq(cgroup_join(inner, child.pid, NULL), STATUS_OK);
    ck_assert(ticks_move(child.pid, 0, 5000));
    ck_assert_int_eq(cgroup_freeze(inner, true, deadline_in_ms(5000), NULL), STATUS_OK);
    ck_assert_int_eq(cgroup_frozen(inner, &frozen, NULL), STATUS_OK);
    ck_assert(frozen);
    ck_assert(!ticks_move(child.pid, ticks_used(child.pid), 200));
    ck_assert_int_eq(cgroup_freeze(inner, false, deadline_in_ms(5000), NULL), STATUS_OK);
    ck_assert_int_eq(cgroup_frozen(inner, &frozen, NULL), STATUS_OK);
    ck_assert(!frozen);
    ck_assert(ticks_move(child.pid, ticks_used(child.pid), 5000));
    process_kill(&child);
}
END_TEST

START_TEST(a_freezer_group_leaves_the_other_groups_alone)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct process child = child_in(inner);
    char below[160], line[256];
    const char *path = NULL;
    pid_t *pids = NULL;
    size_t count = 0, kept = 0;
    struct error err;

    snprintf(below, sizeof(below), "%s/frozen", inner);
    ck_assert_int_eq(cgroup_freezer_members(arena, below, &pids, &count, &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(cgroup_freezer_create(below, &err), STATUS_OK);
    ck_assert_int_eq(cgroup_freezer_create(below, &err), STATUS_OK);
    ck_assert_int_eq(cgroup_freezer_join(below, child.pid, &err), STATUS_OK);
    ck_assert_int_eq(cgroup_of(arena, child.pid, &path, &err), STATUS_OK);
    ck_assert_str_eq(path, below);
    ck_assert_int_eq(cgroup_freezer_members(arena, below, &pids, &count, &err), STATUS_OK);
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(pids[0], child.pid);
    snprintf(line, sizeof(line), "/proc/%d/cgroup", (int) child.pid);
    OWNED_FILE FILE *file = fopen(line, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        char *group_path = strrchr(line, ':') + 2;
        group_path[strcspn(group_path, "\n")] = '\0';
        kept += strcmp(group_path, inner) == 0;
    }
    if (cgroup_version() == CGROUP_V1 && cgroup_has("memory"))
        ck_assert_uint_ge(kept, 1);
    ck_assert_int_eq(cgroup_freezer_join("", child.pid, &err), STATUS_OK);
    ck_assert_int_eq(cgroup_of(arena, child.pid, &path, &err), STATUS_OK);
    ck_assert_str_eq(path, "");
    process_kill(&child);
}
END_TEST

START_TEST(kill_takes_frozen_and_nested_processes)
{
    struct process outer = child_in(group), nested = child_in(inner);
    int wait_status = 0;

    ck_assert_int_eq(cgroup_freeze(inner, true, deadline_in_ms(5000), NULL), STATUS_OK);
    ck_assert_int_eq(cgroup_kill(group, deadline_in_ms(5000), NULL), STATUS_OK);
    ck_assert_int_eq(process_reap(&outer, deadline_in_ms(1000), &wait_status, NULL), STATUS_OK);
    ck_assert(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
    ck_assert_int_eq(process_reap(&nested, deadline_in_ms(1000), &wait_status, NULL), STATUS_OK);
    ck_assert(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
}
END_TEST

/* The file of a controller, wherever the host has it. */
static int64_t limit_of(const char *v1_controller, const char *v1_file, const char *v2_file)
{
    char name[512];
    long long value = -2;

    if (cgroup_version() == CGROUP_V1)
        snprintf(name, sizeof(name), "/sys/fs/cgroup/%s/%s/%s", v1_controller, inner, v1_file);
    else
        snprintf(name, sizeof(name), "/sys/fs/cgroup/%s/%s", inner, v2_file);
    OWNED_FILE FILE *file = fopen(name, "re");
    ck_assert_msg(file != NULL, "%s", name);
    if (fscanf(file, "%lld", &value) != 1)
        return -1; /* "max" */
    return value;
}

START_TEST(limits_reach_the_kernel_and_go_again)
{
    const int64_t mib = 1024 * 1024;
    struct cgroup_limits tight = {64 * mib, 96 * mib, 50}, wide = {256 * mib, 512 * mib, 150},
                         none = {0};

    ck_assert_int_eq(cgroup_limit(inner, &tight, NULL), STATUS_OK);
    ck_assert_int_eq(limit_of("memory", "memory.limit_in_bytes", "memory.max"), 64 * mib);
    ck_assert_int_eq(limit_of("cpu", "cpu.cfs_quota_us", "cpu.max"), 50000);
    ck_assert_int_eq(cgroup_limit(inner, &wide, NULL), STATUS_OK);
    ck_assert_int_eq(limit_of("memory", "memory.limit_in_bytes", "memory.max"), 256 * mib);
    ck_assert_int_eq(cgroup_limit(inner, &tight, NULL), STATUS_OK);
    ck_assert_int_eq(cgroup_limit(inner, &none, NULL), STATUS_OK);
    ck_assert_int_eq(limit_of("cpu", "cpu.cfs_quota_us", "cpu.max"), -1);
    int64_t memory = limit_of("memory", "memory.limit_in_bytes", "memory.max");
    ck_assert(memory == -1 || memory > INT64_C(1) << 60);
}
END_TEST

START_TEST(a_weight_reaches_the_kernel)
{
    bool first = cgroup_version() == CGROUP_V1;

    ck_assert_int_eq(cgroup_weight(inner, 400, NULL), STATUS_OK);
    ck_assert_int_eq(limit_of("cpu", "cpu.shares", "cpu.weight"), first ? 4096 : 400);
    ck_assert_int_eq(cgroup_weight(inner, 0, NULL), STATUS_INVALID);
    ck_assert_int_eq(cgroup_weight(inner, 100, NULL), STATUS_OK);
    ck_assert_int_eq(limit_of("cpu", "cpu.shares", "cpu.weight"), first ? 1024 : 100);
}
END_TEST

START_TEST(removed_groups_are_gone_and_removing_again_is_fine)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct error err;

    ck_assert_int_eq(cgroup_remove(group, deadline_in_ms(5000), NULL), STATUS_OK);
    ck_assert_int_ne(cgroup_join(inner, getpid(), &err), STATUS_OK);
    ck_assert_int_eq(cgroup_remove(group, deadline_in_ms(5000), NULL), STATUS_OK);
    ck_assert_int_eq(cgroup_create(inner, NULL), STATUS_OK);
}
END_TEST

int main(void)
{
    const TTest *const pure[] = {refuses_paths_that_lead_elsewhere};
    const TTest *const live[] = {create_twice_is_fine,
                                 a_process_is_found_where_it_was_put,
                                 frozen_processes_stand_still_and_go_on,
                                 kill_takes_frozen_and_nested_processes,
                                 a_freezer_group_leaves_the_other_groups_alone,
                                 limits_reach_the_kernel_and_go_again,
                                 a_weight_reaches_the_kernel,
                                 removed_groups_are_gone_and_removing_again_is_fine};
    bool root = geteuid() == 0 && cgroup_version() != CGROUP_NONE;
    int failed = run_suite("cgroup paths", 5, NULL, NULL, pure, 1);

    if (!root)
        puts("control groups need root: only paths were tested");
    return root ? run_suite("cgroup", 30, setup, teardown, live, sizeof(live) / sizeof(live[0])) |
                      failed
                : failed;
}
