/* SPDX-License-Identifier: MIT */
/* Mounts, the loop devices below them, and swap areas. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/fingerprint.h"
#include "lib/owned.h"

enum { LINE_SIZE = 8192 };

static const char own_prefix[] = "ordeal";

/* --- mounts ---------------------------------------------------------------------------------- */

static const char *backing_file(struct arena *arena, const char *device)
{
    return fingerprint_text(arena, arena_printf(arena, "/sys/block/%s/loop/backing_file", device));
}

/* A loop device by what lies behind it: its number may be another after a boot. */
static const char *device_name(struct arena *arena, const char *source)
{
    if (strncmp(source, "/dev/loop", 9) != 0)
        return source;
    const char *backing = backing_file(arena, source + strlen("/dev/"));
    return backing == NULL ? source : arena_printf(arena, "loop:%s", backing);
}

struct mount {
    char root[PATH_MAX / 4], point[PATH_MAX / 4], options[512];
    char type[64], source[PATH_MAX / 4], super[512];
};

/* proc(5): ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG]... - TYPE SOURCE SUPER-OPTIONS */
static bool parse_mount(const char *line, struct mount *mount)
{
    const char *separator = strstr(line, " - ");

    return separator != NULL &&
           sscanf(line, "%*d %*d %*s %1023s %1023s %511s", mount->root, mount->point,
                  mount->options) == 3 &&
           sscanf(separator + 3, "%63s %1023s %511s", mount->type, mount->source, mount->super) ==
               3;
}

/* What comes and goes with logins, services and containers of others. */
static bool is_fleeting(const struct mount *mount)
{
    static const char *const below[] = {"/run/user/", "/run/credentials/", "/run/netns/"};

    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++)
        if (strncmp(mount->point, below[i], strlen(below[i])) == 0)
            return true;
    return strcmp(mount->type, "nsfs") == 0;
}

static void add_mount(struct arena *arena, json_t *mounts, const struct mount *mount)
{
    /* the file system itself may have become read-only, whatever the mount says */
    const char *whole =
        strncmp(mount->super, "ro", 2) == 0 && (mount->super[2] == ',' || mount->super[2] == '\0')
            ? "ro"
            : "rw";

    fingerprint_add(mounts, mount->point,
                    json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "root", mount->root, "type",
                              mount->type, "source", device_name(arena, mount->source), "options",
                              mount->options, "file_system", whole, "_device", mount->source));
}

/* --- loop devices ---------------------------------------------------------------------------- */

static bool is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);

    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

static bool is_named_ours(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strncmp(slash == NULL ? path : slash + 1, own_prefix, strlen(own_prefix)) == 0;
}

/*
 * sysfs shows the loop devices of the whole host. This node's are those that are mounted here, and
 * those whose file lies in the agent's state folder or has a name of ours.
 */
static void add_loops(struct arena *arena, const char *state_folder, const json_t *mounted,
                      json_t *loops)
{
    OWNED_DIR DIR *folder = opendir("/sys/block");
    const struct dirent *entry;

    /* no sysfs: no loop devices that we could have made */
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const char *backing = backing_file(arena, entry->d_name);
        if (backing != NULL && (json_object_get(mounted, entry->d_name) != NULL ||
                                is_below(backing, state_folder) || is_named_ours(backing)))
            fingerprint_add(loops, backing, json_pack("{s:s}", "_device", entry->d_name));
    }
}

enum status fingerprint_mounts(const struct method_call *call, json_t *fingerprint,
                               struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *mounted = json_object();
    OWNED_FILE FILE *file = fopen("/proc/self/mountinfo", "re");
    json_t *mounts = fingerprint_of(fingerprint, "mounts");
    char line[LINE_SIZE];
    struct mount mount;

    if (file == NULL)
        return error_system(err, "opening /proc/self/mountinfo");
    while (fgets(line, sizeof line, file) != NULL) {
        if (!parse_mount(line, &mount))
            continue;
        if (!is_fleeting(&mount))
            add_mount(arena, mounts, &mount);
        if (strncmp(mount.source, "/dev/loop", 9) == 0)
            json_object_set_new(mounted, mount.source + strlen("/dev/"), json_true());
    }
    add_loops(arena, call->state_folder, mounted, fingerprint_of(fingerprint, "loops"));
    return STATUS_OK;
}

/* --- swap ------------------------------------------------------------------------------------ */

/*
 * "/swapfile file 1048572 0 -2": all words but what is used just now. The kernel counts the
 * priorities that nobody asked for downwards and renumbers them: those do not count.
 */
static void add_swap(char *line, json_t *swaps)
{
    const char *words[5] = {NULL};
    char *rest = line;

    for (int i = 0; i < 5; i++) {
        rest += strspn(rest, " \t");
        words[i] = strsep(&rest, " \t\n");
        if (rest == NULL)
            return;
    }
    fingerprint_add(swaps, words[0],
                    json_pack("{s:s, s:s, s:s}", "type", words[1], "size_kib", words[2], "priority",
                              words[4][0] == '-' ? "any" : words[4]));
}

enum status fingerprint_swaps(const struct method_call *call, json_t *fingerprint,
                              struct error *err)
{
    OWNED_FILE FILE *file = fopen("/proc/swaps", "re");
    json_t *swaps = fingerprint_of(fingerprint, "swaps");
    char line[LINE_SIZE];
    bool heading = true;

    (void) call;
    (void) err;
    for (; file != NULL && fgets(line, sizeof line, file) != NULL; heading = false)
        if (!heading)
            add_swap(line, swaps);
    return STATUS_OK;
}
