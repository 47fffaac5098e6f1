/* SPDX-License-Identifier: MIT */
/*
 * Kernel settings: all of vm, kernel, fs and net that a fault could set. Names of devices that come
 * and go bring theirs along, so only settings that are there both times are compared.
 */
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>

#include "agents/fingerprint.h"
#include "lib/owned.h"

enum { DEPTH_MAX = 6 };

static const char proc_sys[] = "/proc/sys/";

/* Counters and states, what acts when it is read, secrets, and what the kernel adjusts itself. */
static const char *const left_out[] = {
    "*/flush",
    "*/stable_secret",
    "*_count",
    "fs/aio-nr",
    "fs/binfmt_misc*",
    "fs/dentry-state",
    "fs/file-nr",
    "fs/inode-*",
    "fs/quota/*",
    "kernel/cad_pid",
    "kernel/hung_task_warnings",
    "kernel/keys/*",
    "kernel/ns_last_pid",
    "kernel/perf_cpu_time_max_percent",
    "kernel/perf_event_max_sample_rate",
    "kernel/pty/*",
    "kernel/random/*",
    "kernel/*_next_id",
    "kernel/tainted",
    "net/core/netdev_rss_key",
    "net/ipv4/tcp_fastopen_key",
    "vm/compact_memory",
    "vm/drop_caches",
    "vm/numa_stat",
    "vm/stat_refresh",
};

static bool is_left_out(const char *name)
{
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
        if (fnmatch(left_out[i], name, 0) == 0)
            return true;
    return false;
}

static void read_folder(struct arena *arena, const char *path, int depth, json_t *values);

static void read_entry(struct arena *arena, const char *path, int depth, json_t *values)
{
    const char *name = path + strlen(proc_sys);
    struct stat info;

    if (is_left_out(name) || lstat(path, &info) != 0)
        return;
    if (S_ISDIR(info.st_mode) && depth < DEPTH_MAX)
        read_folder(arena, path, depth + 1, values);
    if (!S_ISREG(info.st_mode) || (info.st_mode & 0444) == 0 || (info.st_mode & 0222) == 0)
        return; /* what nobody can write nobody has changed */
    const char *value = fingerprint_text(arena, path);
    if (value != NULL)
        json_object_set_new(values, name, json_string(value));
}

static void read_folder(struct arena *arena, const char *path, int depth, json_t *values)
{
    OWNED_DIR DIR *folder = opendir(path);
    const struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.')
            read_entry(arena, arena_printf(arena, "%s/%s", path, entry->d_name), depth, values);
}

enum status fingerprint_sysctls(const struct method_call *call, json_t *fingerprint,
                                struct error *err)
{
    static const char *const roots[] = {"vm",       "kernel",   "fs",           "net/core",
                                        "net/ipv4", "net/ipv6", "net/netfilter"};
    OWNED_ARENA struct arena *arena = arena_new();
    json_t *values = fingerprint_of(fingerprint, "sysctls");

    (void) call;
    (void) err;
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++)
        read_folder(arena, arena_printf(arena, "%s%s", proc_sys, roots[i]), 0, values);
    return STATUS_OK;
}
