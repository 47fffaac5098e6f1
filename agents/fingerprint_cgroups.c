/* SPDX-License-Identifier: MIT */
/*
 * Control groups: those that Ordeal makes for its faults (named ordeal-UID, below the group of what
 * they act on), and the limits of the group in which the node's PostgreSQL runs.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/fingerprint.h"
#include "lib/owned.h"

enum { DEPTH_MAX = 8, ROOTS_MAX = 16 };

static const char own_prefix[] = "ordeal-";

struct roots {
    size_t count;
    const char *paths[ROOTS_MAX]; /* where hierarchies are mounted */
};

static void find_roots(struct arena *arena, struct roots *roots)
{
    OWNED_FILE FILE *mounts = fopen("/proc/self/mounts", "re");
    char line[4096], point[PATH_MAX / 4], type[64];

    while (mounts != NULL && fgets(line, sizeof line, mounts) != NULL)
        if (sscanf(line, "%*s %1023s %63s", point, type) == 2 &&
            strncmp(type, "cgroup", strlen("cgroup")) == 0 && roots->count < ROOTS_MAX)
            roots->paths[roots->count++] = arena_strdup(arena, point);
}

static bool is_folder(DIR *parent, const struct dirent *entry)
{
    struct stat info;

    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(dirfd(parent), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(info.st_mode);
}

static void add_own_groups(struct arena *arena, const char *path, int depth, json_t *groups)
{
    OWNED_DIR DIR *folder = opendir(path);
    const struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.' || !is_folder(folder, entry))
            continue;
        const char *child = arena_printf(arena, "%s/%s", path, entry->d_name);
        if (strncmp(entry->d_name, own_prefix, sizeof own_prefix - 1) == 0)
            json_array_append_new(groups, json_pack("{s:s}", "group", child));
        if (depth < DEPTH_MAX)
            add_own_groups(arena, child, depth + 1, groups);
    }
}

static void add_value(struct arena *arena, const char *group, const char *file, json_t *groups)
{
    const char *path = arena_printf(arena, "%s/%s", group, file);
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[256];
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (length < 0)
        return; /* another version's file, or none */
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    json_array_append_new(groups, json_pack("{s:s, s:s}", "file", path, "value", text));
}

static void add_limits(struct arena *arena, const char *group, json_t *groups)
{
    static const char *const files[] = {
        "freezer.state",    "memory.limit_in_bytes", "memory.memsw.limit_in_bytes",
        "cpu.cfs_quota_us", "cgroup.freeze",         "memory.max",
        "memory.high",      "memory.swap.max",       "cpu.max",
    };

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        add_value(arena, group, files[i], groups);
}

/*
 * With a group of the node's own, only what is below its parent is looked at: a host may carry
 * other nodes. Without one everything is, but the outermost level, where labs have theirs.
 */
static void add_hierarchy(struct arena *arena, const char *root, const char *group, json_t *groups)
{
    if (group != NULL) {
        const char *slash = strrchr(group, '/');
        int parent = slash == NULL ? (int) strlen(group) : (int) (slash - group);
        add_own_groups(arena, arena_printf(arena, "%s/%.*s", root, parent, group), 1, groups);
        add_limits(arena, arena_printf(arena, "%s/%s", root, group), groups);
        return;
    }
    OWNED_DIR DIR *folder = opendir(root);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && is_folder(folder, entry) &&
            strncmp(entry->d_name, own_prefix, sizeof own_prefix - 1) != 0)
            add_own_groups(arena, arena_printf(arena, "%s/%s", root, entry->d_name), 1, groups);
}

enum status fingerprint_cgroups(const struct method_call *call, json_t **ret_value,
                                struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *group = call->session != NULL ? call->session->database.cgroup : NULL;
    struct roots roots = {0};
    json_t *groups = json_array();

    (void) err;
    find_roots(arena, &roots);
    for (size_t i = 0; i < roots.count; i++)
        add_hierarchy(arena, roots.paths[i], group, groups);
    *ret_value = fingerprint_sorted(groups);
    return STATUS_OK;
}
