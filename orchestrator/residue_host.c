/* SPDX-License-Identifier: MIT */
/* Sections of the fingerprint that are about the host: what counts, in words, and what undoes it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/residue_class.h"

/* ---- processes ---- */

static bool process_ours(const struct residue_item *item)
{
    return strcmp(residue_member(item, "kind"), "orphan") == 0;
}

static bool always(const struct residue_item *item)
{
    (void) item;
    return true;
}

/* A shell has stopped processes of its own; a server has none. */
static bool process_alone(const struct residue_item *item)
{
    return process_ours(item) || strcmp(residue_member(item, "name"), "postgres") == 0;
}

static const char *process_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "%s process %s, pid %" PRId64, residue_member(item, "kind"),
                        residue_member(item, "name"), json_number(item->after, "_pid", 0));
}

/* A traced process goes on when its tracer ends. */
static const char *process_remedy(const struct residue_item *item)
{
    const char *kind = residue_member(item, "kind");
    int64_t pid = json_number(item->after, "_pid", 0);

    if (strcmp(kind, "traced") == 0)
        return arena_printf(item->arena, "kill %s", residue_member(item, "_tracer"));
    return arena_printf(item->arena, "kill -%s %" PRId64,
                        strcmp(kind, "stopped") == 0 ? "CONT" : "KILL", pid);
}

/* ---- mounts, loop devices, swap ---- */

static const char *unnumbered(const struct residue_item *item)
{
    const char *number = strstr(item->key, " #");

    return number == NULL ? item->key
                          : arena_strndup(item->arena, item->key, (size_t) (number - item->key));
}

/* mountinfo writes a blank as \040, and so on. */
static const char *mount_point(const struct residue_item *item)
{
    char *point = arena_strdup(item->arena, unnumbered(item)), *to = point;
    unsigned code;

    for (const char *from = point; *from != '\0'; to++)
        if (*from == '\\' && sscanf(from + 1, "%3o", &code) == 1) {
            *to = (char) code;
            from += 4;
        } else {
            *to = *from++;
        }
    *to = '\0';
    return point;
}

static const char *mount_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "mount %s (%s of %s)", mount_point(item),
                        residue_member(item, "type"), residue_member(item, "source"));
}

static bool mount_ours(const struct residue_item *item)
{
    const char *slash = strrchr(item->key, '/');

    return slash != NULL && residue_named_ours(slash + 1);
}

/* The whole file system back to being written, or the mount's own options as they were. */
static const char *remount(const struct residue_item *item, const char *point)
{
    bool whole = strcmp(residue_old(item, "file_system"), "rw") == 0 &&
                 strcmp(residue_member(item, "file_system"), "ro") == 0;

    return arena_printf(item->arena, "mount -o remount,%s%s %s", whole ? "" : "bind,",
                        whole ? "rw" : residue_shell(item->arena, residue_old(item, "options")),
                        point);
}

static const char *mount_remedy(const struct residue_item *item)
{
    const char *point = residue_shell(item->arena, mount_point(item));
    const char *source = residue_old(item, "source");
    bool loop = strncmp(source, "loop:", strlen("loop:")) == 0;

    if (item->change == RESIDUE_ADDED)
        return arena_printf(item->arena, "umount %s", point);
    if (item->change == RESIDUE_CHANGED && strcmp(source, residue_member(item, "source")) == 0 &&
        strcmp(residue_old(item, "type"), residue_member(item, "type")) == 0)
        return remount(item, point);
    if (strcmp(residue_old(item, "root"), "/") != 0)
        return arena_printf(item->arena, "mount %s",
                            point); /* a bind mount: of fstab, or by hand */
    return arena_printf(item->arena, "mount -t %s -o %s%s %s %s", residue_old(item, "type"),
                        loop ? "loop," : "",
                        residue_shell(item->arena, residue_old(item, "options")),
                        residue_shell(item->arena, source + (loop ? strlen("loop:") : 0)), point);
}

static const char *loop_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "loop device /dev/%s on %s", residue_member(item, "_device"),
                        unnumbered(item));
}

/* Whoever made one in the agent's state folder or with a name of ours, it is for us. */
static bool loop_ours(const struct residue_item *item)
{
    return mount_ours(item);
}

static const char *loop_remedy(const struct residue_item *item)
{
    if (item->change == RESIDUE_ADDED)
        return arena_printf(item->arena, "losetup -d /dev/%s", residue_member(item, "_device"));
    return arena_printf(item->arena, "losetup -f %s", residue_shell(item->arena, unnumbered(item)));
}

static const char *swap_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "swap area %s", mount_point(item));
}

static const char *swap_remedy(const struct residue_item *item)
{
    const char *name = residue_shell(item->arena, mount_point(item));
    const char *priority = residue_old(item, "priority");
    const char *on = strcmp(priority, "any") == 0 || priority[0] == '\0'
                         ? arena_printf(item->arena, "swapon %s", name)
                         : arena_printf(item->arena, "swapon -p %s %s", priority, name);

    if (item->change == RESIDUE_ADDED)
        return arena_printf(item->arena, "swapoff %s", name);
    return item->change == RESIDUE_REMOVED
               ? on
               : arena_printf(item->arena, "swapoff %s && %s", name, on);
}

/* ---- control groups ---- */

static const char *group_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "control group %s", item->key);
}

/* The nearest group around it that is not ours, where what is inside came from. */
static const char *group_around(struct arena *arena, const char *group)
{
    char *path = arena_strdup(arena, group);
    char *slash = strrchr(path, '/');

    while (slash != NULL && slash != path && residue_named_ours(slash + 1)) {
        *slash = '\0';
        slash = strrchr(path, '/');
    }
    return path;
}

static const char *group_remedy(const struct residue_item *item)
{
    const char *group = residue_shell(item->arena, item->key);
    const char *around = residue_shell(item->arena, group_around(item->arena, item->key));

    if (!json_flag(item->after, "_inhabited", false))
        return arena_printf(item->arena, "rmdir %s", group);
    return arena_printf(item->arena,
                        "for pid in $(cat %s/cgroup.procs); do echo $pid >%s/cgroup.procs; done; "
                        "rmdir %s",
                        group, around, group);
}

static const char *frozen_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "frozen control group %s", item->key);
}

static const char *frozen_remedy(const struct residue_item *item)
{
    return arena_printf(item->arena, "echo %s >%s", residue_member(item, "_thawed"),
                        residue_shell(item->arena, residue_member(item, "_file")));
}

static bool frozen_ours(const struct residue_item *item)
{
    return strstr(item->key, "/ordeal-") != NULL && mount_ours(item);
}

static const char *limit_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "limit %s", item->key);
}

static const char *limit_remedy(const struct residue_item *item)
{
    return arena_printf(item->arena, "echo %s >%s",
                        residue_shell(item->arena, residue_old(item, "value")),
                        residue_shell(item->arena, item->key));
}

static const char *io_remedy(const struct residue_item *item)
{
    const char *file = residue_member(item, "file"), *value = residue_old(item, "value");
    size_t length = strlen(file);

    if (value[0] == '\0')
        value = length > 7 && strcmp(file + length - 7, "/io.max") == 0
                    ? "rbps=max wbps=max riops=max wiops=max"
                    : "0";
    return arena_printf(item->arena, "echo '%s %s' >%s", residue_member(item, "device"), value,
                        residue_shell(item->arena, file));
}

/* ---- settings of the kernel ---- */

static const char *sysctl_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "sysctl %s", item->key);
}

/* Setting one of a pair clears the other, and a cleared one is put back by setting its partner. */
static const char *sysctl_partner(const struct residue_item *item)
{
    static const char *const pairs[][2] = {
        {"vm/dirty_bytes", "vm/dirty_ratio"},
        {"vm/dirty_background_bytes", "vm/dirty_background_ratio"},
        {"vm/overcommit_kbytes", "vm/overcommit_ratio"},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        for (size_t j = 0; j < 2; j++)
            if (strcmp(item->key, pairs[i][j]) == 0)
                return pairs[i][1 - j];
    return NULL;
}

static const char *sysctl_remedy(const struct residue_item *item)
{
    const char *name = item->key, *value = json_string_value(item->before);
    const char *partner = sysctl_partner(item);
    const char *other = json_text(item->all_before, partner == NULL ? "" : partner, NULL);

    if (strcmp(value, "0") == 0 && other != NULL && strcmp(other, "0") != 0) {
        name = partner;
        value = other;
    }
    char *words = arena_printf(item->arena, "%s=%s", name, value);
    for (char *at = words; *at != '\0'; at++)
        if (*at == '\t')
            *at = ' ';
    return arena_printf(item->arena, "sysctl -w %s", residue_shell(item->arena, words));
}

/* ---- files, records ---- */

static const char *file_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "%s %s", residue_member(item, "kind"), item->key);
}

/* A copy that was not finished: "main.ordeal-new". */
static bool file_alone(const struct residue_item *item)
{
    return strstr(item->key, ".ordeal-") != NULL;
}

static const char *file_remedy(const struct residue_item *item)
{
    return arena_printf(item->arena, "rm -r -- %s", residue_shell(item->arena, item->key));
}

static const char *record_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "fault %s (%s) not undone", residue_member(item, "fault"),
                        item->key);
}

static const char *record_remedy(const struct residue_item *item)
{
    return arena_strdup(item->arena, "ordeal recover");
}

/* ---- the table: thaw before the group goes, unmount before its device ---- */

const struct residue_class residue_host_classes[] = {
    {"open_records", RESIDUE_ADDED, false, NULL, always, always, record_what, record_remedy},
    {"processes", RESIDUE_ADDED, false, NULL, process_ours, process_alone, process_what,
     process_remedy},
    {"mounts", RESIDUE_ANY, false, NULL, mount_ours, NULL, mount_what, mount_remedy},
    {"loops", RESIDUE_ADDED | RESIDUE_REMOVED, false, NULL, loop_ours, NULL, loop_what,
     loop_remedy},
    {"swaps", RESIDUE_ANY, false, NULL, mount_ours, NULL, swap_what, swap_remedy},
    {"frozen", RESIDUE_ADDED, false, NULL, frozen_ours, frozen_ours, frozen_what, frozen_remedy},
    {"cgroups", RESIDUE_ADDED, false, NULL, always, always, group_what, group_remedy},
    {"cgroup_limits", RESIDUE_CHANGED, false, NULL, NULL, NULL, limit_what, limit_remedy},
    {"cgroup_io", RESIDUE_ANY, false, NULL, NULL, NULL, limit_what, io_remedy},
    {"sysctls", RESIDUE_CHANGED, false, NULL, NULL, NULL, sysctl_what, sysctl_remedy},
    {"files", RESIDUE_ADDED, false, NULL, always, file_alone, file_what, file_remedy},
    {.name = NULL},
};
