/* SPDX-License-Identifier: MIT */
/*
 * Control groups: those that Ordeal makes for its faults (named ordeal-UID, below the group of what
 * they act on), groups that are frozen, and the limits of the groups in which the node's PostgreSQL
 * runs.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agents/fingerprint.h"
#include "lib/cgroup.h"
#include "lib/owned.h"
#include "lib/pg_processes.h"

enum { DEPTH_MAX = 8, ROOTS_MAX = 16 };

static const char own_prefix[] = "ordeal-";

struct walk {
    struct arena *arena;
    json_t *own, *frozen, *limits, *io;
    bool shared; /* a power agent: its machine may carry others', and no fault of its makes a group
                  */
    size_t count;
    const char *roots[ROOTS_MAX]; /* where hierarchies are mounted */
};

static void find_roots(struct walk *walk)
{
    OWNED_FILE FILE *mounts = fopen("/proc/self/mounts", "re");
    char line[4096], point[PATH_MAX / 4], type[64];

    while (mounts != NULL && fgets(line, sizeof line, mounts) != NULL)
        if (sscanf(line, "%*s %1023s %63s", point, type) == 2 &&
            strncmp(type, "cgroup", strlen("cgroup")) == 0 && walk->count < ROOTS_MAX)
            walk->roots[walk->count++] = arena_strdup(walk->arena, point);
}

static bool is_folder(DIR *parent, const struct dirent *entry)
{
    struct stat info;

    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(dirfd(parent), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(info.st_mode);
}

/* --- groups of ours, and frozen ones --------------------------------------------------------- */

/* Frozen by itself; a child of a frozen group is not meant. */
static void look_frozen(const struct walk *walk, const char *path)
{
    static const struct {
        const char *look, *set, *thawed;
    } files[] = {{"freezer.self_freezing", "freezer.state", "THAWED"},
                 {"cgroup.freeze", "cgroup.freeze", "0"}};

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const char *value =
            fingerprint_text(walk->arena, arena_printf(walk->arena, "%s/%s", path, files[i].look));
        if (value != NULL && strcmp(value, "1") == 0)
            json_object_set_new(walk->frozen, path,
                                json_pack("{s:s+, s:s}", "_file", path,
                                          arena_printf(walk->arena, "/%s", files[i].set), "_thawed",
                                          files[i].thawed));
    }
}

static void look_at_group(const struct walk *walk, const char *path, bool own)
{
    look_frozen(walk, path);
    if (!own)
        return;
    const char *inside =
        fingerprint_text(walk->arena, arena_printf(walk->arena, "%s/cgroup.procs", path));
    json_object_set_new(walk->own, path,
                        json_pack("{s:b}", "_inhabited", inside != NULL && inside[0] != '\0'));
}

static void walk_groups(const struct walk *walk, const char *path, int depth)
{
    OWNED_DIR DIR *folder = opendir(path);
    const struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.' || !is_folder(folder, entry))
            continue;
        const char *child = arena_printf(walk->arena, "%s/%s", path, entry->d_name);
        look_at_group(walk, child, strncmp(entry->d_name, own_prefix, sizeof own_prefix - 1) == 0);
        if (depth < DEPTH_MAX)
            walk_groups(walk, child, depth + 1);
    }
}

/* --- limits ---------------------------------------------------------------------------------- */

static void add_limit(const struct walk *walk, const char *group, const char *file)
{
    const char *path = arena_printf(walk->arena, "%s/%s", group, file);
    const char *value = fingerprint_text(walk->arena, path);

    if (value != NULL) /* another version's file, or none */
        json_object_set_new(walk->limits, path, json_pack("{s:s}", "value", value));
}

/* A line a device: "8:0 1048576". */
static void add_devices(const struct walk *walk, const char *group, const char *file)
{
    const char *path = arena_printf(walk->arena, "%s/%s", group, file);
    const char *text = fingerprint_text(walk->arena, path);
    char *rest = text == NULL ? NULL : arena_strdup(walk->arena, text);

    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *device = strsep(&line, " ");
        if (line != NULL)
            json_object_set_new(
                walk->io, arena_printf(walk->arena, "%s %s", path, device),
                json_pack("{s:s, s:s, s:s}", "file", path, "device", device, "value", line));
    }
}

/* In the order in which they can be written back when they were lowered. */
static void add_limits(const struct walk *walk, const char *group)
{
    static const char *const files[] = {
        "memory.memsw.limit_in_bytes",
        "memory.limit_in_bytes",
        "memory.soft_limit_in_bytes",
        "memory.swappiness",
        "memory.swap.max",
        "memory.max",
        "memory.high",
        "memory.low",
        "memory.min",
        "memory.oom.group",
        "cpu.cfs_quota_us",
        "cpu.cfs_period_us",
        "cpu.shares",
        "cpu.max",
        "cpu.weight",
        "cpuset.cpus",
        "cpuset.mems",
        "blkio.weight",
        "blkio.bfq.weight",
        "io.bfq.weight",
        "pids.max",
    };
    static const char *const by_device[] = {
        "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
        "blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device", "io.max"};

    look_frozen(walk, group);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        add_limit(walk, group, files[i]);
    for (size_t i = 0; i < sizeof by_device / sizeof by_device[0]; i++)
        add_devices(walk, group, by_device[i]);
}

/* --- all of it ------------------------------------------------------------------------------- */

/*
 * With a group of the node's own, only what is below its parent is looked at: a host may carry
 * other nodes. Without one everything is, but the outermost level, where labs have theirs.
 */
static void walk_hierarchy(const struct walk *walk, const char *root, const char *group)
{
    if (group != NULL) {
        const char *slash = strrchr(group, '/');
        int parent = slash == NULL ? (int) strlen(group) : (int) (slash - group);
        walk_groups(walk, arena_printf(walk->arena, "%s/%.*s", root, parent, group), 1);
        add_limits(walk, arena_printf(walk->arena, "%s/%s", root, group));
        return;
    }
    if (walk->shared)
        return;
    OWNED_DIR DIR *folder = opendir(root);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && is_folder(folder, entry) &&
            strncmp(entry->d_name, own_prefix, sizeof own_prefix - 1) != 0)
            walk_groups(walk, arena_printf(walk->arena, "%s/%s", root, entry->d_name), 1);
}

/* Where the postmaster is: a unit of the host's own service manager, for one. NULL without one. */
static const char *group_of_server(struct arena *arena, const struct session *session)
{
    struct pg_processes processes = {0};
    struct error error = {0};
    const char *group = NULL;

    if (session == NULL || !session->is_database ||
        pg_processes_list(arena, session->database.data, &processes, &error) != STATUS_OK ||
        processes.count == 0 || processes.items[0].class != PG_POSTMASTER ||
        cgroup_of(arena, processes.items[0].id.pid, &group, &error) != STATUS_OK)
        return NULL;
    return group[0] == '\0' || strcmp(group, "/") == 0 ? NULL : group;
}

enum status fingerprint_cgroups(const struct method_call *call, json_t *fingerprint,
                                struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const struct session *session = call->session;
    const char *group = session != NULL ? session->database.cgroup : NULL;
    const char *other = group_of_server(arena, session);
    struct walk walk = {.arena = arena,
                        .shared = session != NULL && session->power_on != NULL,
                        .own = fingerprint_of(fingerprint, "cgroups"),
                        .frozen = fingerprint_of(fingerprint, "frozen"),
                        .limits = fingerprint_of(fingerprint, "cgroup_limits"),
                        .io = fingerprint_of(fingerprint, "cgroup_io")};

    (void) err;
    find_roots(&walk);
    for (size_t i = 0; i < walk.count; i++) {
        walk_hierarchy(&walk, walk.roots[i], group);
        if (other != NULL && (group == NULL || strcmp(other, group) != 0))
            add_limits(&walk, arena_printf(arena, "%s/%s", walk.roots[i],
                                           other[0] == '/' ? other + 1 : other));
    }
    return STATUS_OK;
}
