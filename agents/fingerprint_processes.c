/* SPDX-License-Identifier: MIT */
/* Processes that stand still, and helpers of ours that nobody waits for any more. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/fingerprint.h"
#include "lib/owned.h"

enum { ANCESTORS_MAX = 64, AFTER_STATE_TO_START = 19 };

struct seen_process {
    pid_t pid, parent;
    char state, name[64];
    const char *start; /* ticks since boot */
};

/* proc(5): PID (NAME) STATE PARENT ... START is the 22nd word, the 20th behind the name. */
static bool read_process(struct arena *arena, pid_t pid, struct seen_process *ret_process)
{
    const char *text = fingerprint_text(arena, arena_printf(arena, "/proc/%d/stat", (int) pid));
    const char *open = text == NULL ? NULL : strchr(text, '(');
    const char *close = text == NULL ? NULL : strrchr(text, ')');
    struct seen_process process = {.pid = pid};

    if (open == NULL || close == NULL || strlen(close) < strlen(") S 1"))
        return false;
    process.state = close[2];
    process.parent = (pid_t) strtol(close + 4, NULL, 10);
    snprintf(process.name, sizeof process.name, "%.*s", (int) (close - open - 1), open + 1);
    char *rest = arena_strdup(arena, close + 2);
    for (int i = 0; i < AFTER_STATE_TO_START; i++)
        strsep(&rest, " ");
    process.start = rest == NULL ? NULL : strsep(&rest, " ");
    *ret_process = process;
    return process.start != NULL;
}

static bool same_link(struct arena *arena, pid_t pid, const char *name)
{
    char own[PATH_MAX], other[PATH_MAX];
    ssize_t own_length = readlink(arena_printf(arena, "/proc/self/%s", name), own, sizeof own);
    ssize_t length =
        readlink(arena_printf(arena, "/proc/%d/%s", (int) pid, name), other, sizeof other);

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

static const char *tracer(struct arena *arena, pid_t pid)
{
    const char *text = fingerprint_text(arena, arena_printf(arena, "/proc/%d/status", (int) pid));
    const char *line = text == NULL ? NULL : strstr(text, "\nTracerPid:\t");

    if (line == NULL)
        return "0";
    line += strlen("\nTracerPid:\t");
    return arena_strndup(arena, line, strcspn(line, "\n"));
}

static void add(json_t *found, const struct seen_process *process, const char *kind, const char *by)
{
    char key[128];

    snprintf(key, sizeof key, "%d started %s", (int) process->pid, process->start);
    fingerprint_add(found, key,
                    json_pack("{s:s, s:s, s:i, s:s}", "name", process->name, "kind", kind, "_pid",
                              (int) process->pid, "_tracer", by));
}

static void look_at(struct arena *arena, pid_t pid, json_t *found)
{
    struct seen_process process;

    if (!read_process(arena, pid, &process))
        return;
    /* a helper of another agent on this host has a parent of its own */
    if (process.state == 'T')
        add(found, &process, "stopped", "");
    else if (process.state == 't')
        add(found, &process, "traced", tracer(arena, pid));
    else if (process.state != 'Z' && process.parent == 1 && same_link(arena, pid, "exe") &&
             !belongs_to_agent(arena, process))
        add(found, &process, "orphan", "");
}

/*
 * A node that serves a database may hold it in a container, whose processes it sees. A node that
 * does not leaves the processes of other PID namespaces to their own agents.
 */
enum status fingerprint_processes(const struct method_call *call, json_t *fingerprint,
                                  struct error *err)
{
    OWNED_DIR DIR *folder = opendir("/proc");
    const struct dirent *entry;
    json_t *found = fingerprint_of(fingerprint, "processes");
    bool own_only = call->session == NULL || !call->session->is_database;

    if (folder == NULL)
        return error_system(err, "opening /proc");
    while ((entry = readdir(folder)) != NULL) {
        OWNED_ARENA struct arena *arena = arena_new();
        pid_t pid = (pid_t) strtol(entry->d_name, NULL, 10);

        if (isdigit((unsigned char) entry->d_name[0]) &&
            (!own_only || same_link(arena, pid, "ns/pid")))
            look_at(arena, pid, found);
    }
    return STATUS_OK;
}
