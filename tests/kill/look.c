/* SPDX-License-Identifier: MIT */
#include "tests/kill/look.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/owned.h"
#include "lib/process.h"
#include "topologies/lab/lab.h"

enum { COMMAND_SIZE = 512, TOOL_MS = 5000, DEPTH_MAX = 8 };

static const char own_table[] = "table inet kill_"; /* the runner's own, see strike_network() */

/* --- processes ------------------------------------------------------------------------------- */

/* Arguments separated by NULs, ended by two of them; the length without. */
static size_t read_command(pid_t pid, char command[COMMAND_SIZE])
{
    char path[64];

    memset(command, 0, COMMAND_SIZE);
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int) pid);
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, command, COMMAND_SIZE - 2);
    return length > 0 ? (size_t) length : 0;
}

static bool is_program(const char *command, const char *name)
{
    const char *slash = strrchr(command, '/');

    return strcmp(slash == NULL ? command : slash + 1, name) == 0;
}

static bool has_argument(const char command[COMMAND_SIZE], const char *word, const char *value)
{
    for (const char *at = command; *at != '\0'; at += strlen(at) + 1)
        if (strcmp(at, word) == 0 && (value == NULL || strcmp(at + strlen(at) + 1, value) == 0))
            return true;
    return false;
}

static bool is_stopped(pid_t pid)
{
    char path[64], text[512] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", (int) pid);
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    const char *close = length > 0 ? strrchr(text, ')') : NULL;
    return close != NULL && (close[2] == 'T' || close[2] == 't');
}

bool place_find(struct place *place)
{
    char title[128], command[COMMAND_SIZE];
    OWNED_DIR DIR *folder = opendir("/proc");
    const struct dirent *entry;

    snprintf(title, sizeof title, place->power ? "ordeal-lab %s" : "ordeal-node %s/%s", place->lab,
             place->node);
    place->root = 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        pid_t pid = (pid_t) strtol(entry->d_name, NULL, 10);
        if (pid <= 0 || read_command(pid, command) == 0 || strcmp(command, title) != 0)
            continue;
        place->root = pid;
        snprintf(place->path, sizeof place->path, "/proc/%d", (int) pid);
        return true;
    }
    return false;
}

enum kin { KIN_ROOT, KIN_GUARDIAN, KIN_AGENT, KIN_WORKER, KIN_OTHER };

static enum kin kin_of(const char command[COMMAND_SIZE], enum kin parent)
{
    if (parent == KIN_AGENT || parent == KIN_WORKER)
        return KIN_WORKER;
    if (is_program(command, "ordeal-guardian"))
        return parent == KIN_GUARDIAN ? KIN_OTHER : KIN_GUARDIAN; /* its writer is a fork of it */
    if (!is_program(command, "ordeald"))
        return parent == KIN_GUARDIAN ? KIN_WORKER : KIN_OTHER;
    return parent == KIN_GUARDIAN && has_argument(command, "--agent", NULL) ? KIN_AGENT
                                                                            : KIN_WORKER;
}

/* Of the supervisor's children only the power node's agent belongs to that node. */
static bool belongs(const struct place *place, const char command[COMMAND_SIZE], enum kin parent)
{
    return !place->power || parent != KIN_ROOT || has_argument(command, "--node", place->node);
}

static void add_children(const struct place *place, pid_t parent, enum kin kin, int depth,
                         struct family *family)
{
    char path[64], command[COMMAND_SIZE];
    int pid = 0;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int) parent, (int) parent);
    OWNED_FILE FILE *children = depth < DEPTH_MAX ? fopen(path, "re") : NULL;
    while (children != NULL && fscanf(children, "%d", &pid) == 1) {
        if (read_command(pid, command) == 0 || !belongs(place, command, kin))
            continue;
        enum kin child = kin_of(command, kin);
        family->stopped += is_stopped(pid);
        family->workers += child == KIN_WORKER;
        if (child == KIN_GUARDIAN)
            family->guardian = pid;
        else if (child == KIN_AGENT)
            family->agent = pid;
        add_children(place, pid, child, depth + 1, family);
    }
}

void look_family(const struct place *place, struct family *ret_family)
{
    struct family family = {0};

    if (place->root > 0)
        add_children(place, place->root, KIN_ROOT, 0, &family);
    *ret_family = family;
}

/* --- the journal ----------------------------------------------------------------------------- */

static void read_line(char *line, const char *uid, struct entry *entry)
{
    char kind[8], name[48], who[16];

    if (sscanf(line, "1 %*8s %7s %47s", kind, name) != 2 || strcmp(name, uid) != 0)
        return;
    if (strcmp(kind, "open") == 0)
        entry->opened = true;
    else if (strcmp(kind, "closed") == 0 &&
             sscanf(line, "1 %*8s closed %*47s %*20s %15s", who) == 1) {
        entry->closed = true;
        snprintf(entry->who, sizeof entry->who, "%s", who);
    }
}

void look_journal(const struct place *place, const char *uid, struct entry *ret_entry)
{
    char path[PATH_MAX];
    char *line = NULL;
    size_t capacity = 0;

    *ret_entry = (struct entry){0};
    if (place->power)
        snprintf(path, sizeof path, "%s/%s/%s/journal", LAB_ROOT, place->lab, place->node);
    else
        snprintf(path, sizeof path, "%s/root%s/journal", place->path, NODE_AGENT);
    OWNED_FILE FILE *journal = fopen(path, "re");
    while (journal != NULL && getline(&line, &capacity, journal) > 0)
        read_line(line, uid, ret_entry);
    free(line);
}

/* --- everything ------------------------------------------------------------------------------ */

/* "eth0@if7      UP": the number is another after a boot, and so is the width of the column. */
static void drop_numbers(char *line)
{
    char *to = line;

    for (const char *from = line; *from != '\0'; from++) {
        if (strncmp(from, "@if", 3) == 0)
            from += 3 + strspn(from + 3, "0123456789") - 1;
        else if (*from != ' ' || from[1] != ' ')
            *to++ = *from;
    }
    *to = '\0';
}

/* The output of a tool in the node's network namespace, without the runner's own tables. */
static enum status add_tool(const struct place *place, const char *const *tool, struct buffer *text,
                            struct error *err)
{
    char net[80];
    const char *argv[12] = {"nsenter", net};
    OWNED_RESULT struct process_result result = {0};
    bool skipping = false;

    snprintf(net, sizeof net, "--net=%s/ns/net", place->path);
    for (size_t i = 0; i < 9 && tool[i] != NULL; i++)
        argv[2 + i] = tool[i];
    enum status status =
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = TOOL_MS}, &result, err);
    if (status != STATUS_OK)
        return error_context(err, "looking at %s", place->node);
    char *rest = result.output.data;
    for (char *line; rest != NULL && (line = strsep(&rest, "\n")) != NULL;) {
        skipping = skipping || strncmp(line, own_table, sizeof own_table - 1) == 0;
        drop_numbers(line);
        if (!skipping && *line != '\0')
            buffer_printf(text, "%s: %s\n", tool[0], line);
        skipping = skipping && line[0] != '}';
    }
    return STATUS_OK;
}

/* proc(5): ID PARENT MAJOR:MINOR ROOT POINT OPTIONS ... - TYPE SOURCE ...; sources are numbered. */
static void add_mounts(const struct place *place, struct buffer *text)
{
    char path[80], point[256], options[256], type[64];
    char *line = NULL;
    size_t capacity = 0;

    snprintf(path, sizeof path, "%s/mountinfo", place->path);
    OWNED_FILE FILE *mounts = fopen(path, "re");
    while (mounts != NULL && getline(&line, &capacity, mounts) > 0) {
        const char *separator = strstr(line, " - ");
        if (separator != NULL && sscanf(line, "%*d %*d %*s %*s %255s %255s", point, options) == 2 &&
            sscanf(separator + 3, "%63s", type) == 1)
            buffer_printf(text, "mount: %s %s %s\n", point, type, options);
    }
    free(line);
}

static void add_state(const char *folder, const char *name, struct buffer *text)
{
    char path[PATH_MAX], state[32] = "";

    snprintf(path, sizeof path, "%s/%s", folder, name);
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, state, sizeof state - 1) > 0)
        buffer_printf(text, "cgroup: %s %s", path, state);
}

static void add_groups(const char *folder, int depth, struct buffer *text)
{
    OWNED_DIR DIR *listing = depth < DEPTH_MAX ? opendir(folder) : NULL;
    const struct dirent *entry;
    char path[PATH_MAX];

    if (listing == NULL)
        return;
    buffer_printf(text, "cgroup: %s\n", folder);
    add_state(folder, "freezer.state", text);
    add_state(folder, "cgroup.freeze", text);
    while ((entry = readdir(listing)) != NULL)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            add_groups(path, depth + 1, text);
        }
}

/* cgroup v2 has one hierarchy, v1 one for each controller. */
static void add_cgroups(const struct place *place, struct buffer *text)
{
    OWNED_DIR DIR *controllers = opendir("/sys/fs/cgroup");
    const struct dirent *entry;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "/sys/fs/cgroup/ordeal-%s/%s", place->lab, place->node);
    add_groups(path, 0, text);
    while (controllers != NULL && (entry = readdir(controllers)) != NULL) {
        if (entry->d_name[0] == '.' || strncmp(entry->d_name, "ordeal-", 7) == 0)
            continue;
        snprintf(path, sizeof path, "/sys/fs/cgroup/%s/ordeal-%s/%s", entry->d_name, place->lab,
                 place->node);
        add_groups(path, 0, text);
    }
}

enum status look_whole(const struct place *place, struct buffer *text, struct error *err)
{
    static const char *const tools[][6] = {{"nft", "list", "ruleset", NULL},
                                           {"tc", "qdisc", "show", NULL},
                                           {"ip", "-br", "-4", "addr", NULL},
                                           {"ip", "route", NULL}};
    /* the switch has a port for each node, which comes and goes with it */
    size_t count = place->power ? 1 : sizeof tools / sizeof tools[0];
    enum status status = STATUS_OK;
    struct family family;

    look_family(place, &family);
    buffer_printf(text, "stopped processes: %zu\n", family.stopped);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = add_tool(place, tools[i], text, err);
    if (!place->power)
        add_mounts(place, text);
    add_cgroups(place, text);
    return status;
}
