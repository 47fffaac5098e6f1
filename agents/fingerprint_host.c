/* SPDX-License-Identifier: MIT */
/* Sections of the fingerprint that are about the host: processes, mounts, loops, settings. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/fingerprint.h"
#include "lib/owned.h"

enum { LINE_SIZE = 8192, ANCESTORS_MAX = 64 };

/* The first line of a small file without its end; empty when it cannot be read. */
static const char *first_line(struct arena *arena, const char *path)
{
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[1024];
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (length <= 0)
        return "";
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return arena_strdup(arena, text);
}

/* --- processes ------------------------------------------------------------------------------- */

struct seen_process {
    pid_t pid, parent;
    char state, name[64];
};

/* proc(5): PID (NAME) STATE PARENT ... */
static bool read_process(struct arena *arena, pid_t pid, struct seen_process *ret_process)
{
    const char *text = first_line(arena, arena_printf(arena, "/proc/%d/stat", (int) pid));
    const char *open = strchr(text, '('), *close = strrchr(text, ')');
    struct seen_process process = {.pid = pid};

    if (open == NULL || close == NULL || strlen(close) < strlen(") S 1"))
        return false;
    process.state = close[2];
    process.parent = (pid_t) strtol(close + 4, NULL, 10);
    snprintf(process.name, sizeof process.name, "%.*s", (int) (close - open - 1), open + 1);
    *ret_process = process;
    return true;
}

static bool runs_our_program(struct arena *arena, pid_t pid)
{
    char own[PATH_MAX], other[PATH_MAX];
    ssize_t own_length = readlink("/proc/self/exe", own, sizeof own);
    ssize_t length = readlink(arena_printf(arena, "/proc/%d/exe", (int) pid), other, sizeof other);

    return length > 0 && length == own_length && memcmp(own, other, (size_t) length) == 0;
}

/* Our agent, its jobs and workers are no residue: they have this process's parent above them. */
static bool belongs_to_agent(struct arena *arena, struct seen_process process)
{
    pid_t agent = getppid();

    for (int i = 0; i < ANCESTORS_MAX; i++) {
        if (process.pid == agent)
            return true;
        if (process.parent <= 1 || !read_process(arena, process.parent, &process))
            return false;
    }
    return false;
}

static bool is_stopped(char state)
{
    return state == 'T' || state == 't';
}

enum status fingerprint_processes(const struct method_call *call, json_t **ret_value,
                                  struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_DIR DIR *folder = opendir("/proc");
    const struct dirent *entry;
    struct seen_process process;

    (void) call;
    if (folder == NULL)
        return error_system(err, "opening /proc");
    json_t *found = json_array();
    while ((entry = readdir(folder)) != NULL) {
        if (!isdigit((unsigned char) entry->d_name[0]) ||
            !read_process(arena, (pid_t) strtol(entry->d_name, NULL, 10), &process))
            continue;
        bool helper = process.state != 'Z' && runs_our_program(arena, process.pid) &&
                      !belongs_to_agent(arena, process);
        /* a helper of another agent on this host has a parent of its own */
        if (is_stopped(process.state) || (helper && process.parent == 1))
            json_array_append_new(found,
                                  json_pack("{s:s, s:s}", "name", process.name, "state",
                                            is_stopped(process.state) ? "stopped" : "orphan"));
    }
    *ret_value = fingerprint_sorted(found);
    return STATUS_OK;
}

/* --- mounts and loops ------------------------------------------------------------------------ */

/* A loop device by what lies behind it: its number may be another after a boot. */
static const char *device_name(struct arena *arena, const char *source)
{
    if (strncmp(source, "/dev/loop", 9) != 0)
        return source;
    const char *backing = first_line(
        arena, arena_printf(arena, "/sys/block/%s/loop/backing_file", source + strlen("/dev/")));
    return backing[0] == '\0' ? source : arena_printf(arena, "loop:%s", backing);
}

struct mount {
    char root[PATH_MAX / 4], point[PATH_MAX / 4], options[512];
    char type[64], source[PATH_MAX / 4];
};

/* proc(5): ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG]... - TYPE SOURCE SUPER-OPTIONS */
static bool parse_mount(char *line, struct mount *mount)
{
    char *separator = strstr(line, " - ");

    return separator != NULL &&
           sscanf(line, "%*d %*d %*s %1023s %1023s %511s", mount->root, mount->point,
                  mount->options) == 3 &&
           sscanf(separator + 3, "%63s %1023s", mount->type, mount->source) == 2;
}

static enum status each_mount(void (*each)(void *argument, const struct mount *mount),
                              void *argument, struct error *err)
{
    OWNED_FILE FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[LINE_SIZE];
    struct mount mount;

    if (file == NULL)
        return error_system(err, "opening /proc/self/mountinfo");
    while (fgets(line, sizeof line, file) != NULL)
        if (parse_mount(line, &mount))
            each(argument, &mount);
    return STATUS_OK;
}

struct collection {
    struct arena *arena;
    json_t *items;
};

static void add_mount(void *argument, const struct mount *mount)
{
    struct collection *collection = argument;

    json_array_append_new(collection->items,
                          json_pack("{s:s, s:s, s:s, s:s, s:s}", "point", mount->point, "root",
                                    mount->root, "type", mount->type, "source",
                                    device_name(collection->arena, mount->source), "options",
                                    mount->options));
}

enum status fingerprint_mounts(const struct method_call *call, json_t **ret_value,
                               struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct collection mounts = {.arena = arena, .items = json_array()};
    enum status status = each_mount(add_mount, &mounts, err);

    (void) call;
    if (status == STATUS_OK)
        *ret_value = fingerprint_sorted(mounts.items);
    else
        json_decref(mounts.items);
    return status;
}

static void add_loop_source(void *argument, const struct mount *mount)
{
    if (strncmp(mount->source, "/dev/loop", 9) == 0)
        json_object_set_new(argument, mount->source + strlen("/dev/"), json_true());
}

/*
 * sysfs shows the loop devices of the whole host. Ours are those that are mounted here, and those
 * whose file lies in the agent's state folder.
 */
static enum status list_loops(struct arena *arena, const char *state_folder, json_t *loops,
                              struct error *err)
{
    OWNED_JSON json_t *mounted = json_object();
    OWNED_DIR DIR *folder = opendir("/sys/block");
    const struct dirent *entry;
    enum status status = each_mount(add_loop_source, mounted, err);

    if (status != STATUS_OK || folder == NULL)
        return status; /* no sysfs: no loop devices that we could have made */
    while ((entry = readdir(folder)) != NULL) {
        const char *backing = first_line(
            arena, arena_printf(arena, "/sys/block/%s/loop/backing_file", entry->d_name));
        if (backing[0] == '\0')
            continue;
        if (json_object_get(mounted, entry->d_name) != NULL ||
            strncmp(backing, state_folder, strlen(state_folder)) == 0)
            json_array_append_new(loops, json_string(backing));
    }
    return STATUS_OK;
}

enum status fingerprint_loops(const struct method_call *call, json_t **ret_value, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    json_t *loops = json_array();
    enum status status = list_loops(arena, call->state_folder, loops, err);

    if (status == STATUS_OK)
        *ret_value = fingerprint_sorted(loops);
    else
        json_decref(loops);
    return status;
}

/* --- settings -------------------------------------------------------------------------------- */

enum status fingerprint_sysctls(const struct method_call *call, json_t **ret_value,
                                struct error *err)
{
    static const char *const names[] = {
        "fs/file-max",
        "kernel/pid_max",
        "kernel/threads-max",
        "net/core/somaxconn",
        "net/ipv4/ip_local_port_range",
        "net/ipv4/tcp_keepalive_intvl",
        "net/ipv4/tcp_keepalive_probes",
        "net/ipv4/tcp_keepalive_time",
        "net/ipv4/tcp_max_syn_backlog",
        "net/ipv4/tcp_retries2",
        "net/ipv4/tcp_syn_retries",
        "vm/dirty_background_bytes",
        "vm/dirty_background_ratio",
        "vm/dirty_bytes",
        "vm/dirty_ratio",
        "vm/min_free_kbytes",
        "vm/overcommit_memory",
        "vm/overcommit_ratio",
        "vm/swappiness",
    };
    OWNED_ARENA struct arena *arena = arena_new();
    json_t *values = json_object();

    (void) call;
    (void) err;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        json_object_set_new(
            values, names[i],
            json_string(first_line(arena, arena_printf(arena, "/proc/sys/%s", names[i]))));
    *ret_value = values;
    return STATUS_OK;
}

/* "/swapfile file 1048572 0 -2": all words but what is used just now. */
static json_t *swap_of_line(char *line)
{
    const char *words[5] = {NULL};
    char *rest = line;

    for (int i = 0; i < 5; i++) {
        rest += strspn(rest, " \t");
        words[i] = strsep(&rest, " \t\n");
        if (rest == NULL)
            return NULL;
    }
    return json_pack("{s:s, s:s, s:s, s:s}", "name", words[0], "type", words[1], "size_kib",
                     words[2], "priority", words[4]);
}

enum status fingerprint_swaps(const struct method_call *call, json_t **ret_value, struct error *err)
{
    OWNED_FILE FILE *file = fopen("/proc/swaps", "re");
    json_t *swaps = json_array();
    char line[LINE_SIZE];
    bool heading = true;

    (void) call;
    (void) err;
    for (; file != NULL && fgets(line, sizeof line, file) != NULL; heading = false) {
        json_t *swap = heading ? NULL : swap_of_line(line);
        if (swap != NULL)
            json_array_append_new(swaps, swap);
    }
    *ret_value = fingerprint_sorted(swaps);
    return STATUS_OK;
}
