/* SPDX-License-Identifier: MIT */
#include "lib/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "lib/clock.h"
#include "lib/owned.h"

enum { PATH_SIZE = 512, CPU_PERIOD_US = 100000, POLL_MS = 2 };

/* Controllers by their names of version 1; on version 2 blkio is called io. */
enum controller { MEMORY, CPU, FREEZER, BLKIO, CONTROLLERS };

static const char *const controller_names[CONTROLLERS] = {"memory", "cpu", "freezer", "blkio"};

/* Where the hierarchies are mounted. On version 2 all roots but that of MEMORY are empty. */
struct hierarchies {
    enum cgroup_version version;
    char root[CONTROLLERS][PATH_SIZE];
};

static bool has_option(const char *options, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = options; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

static void note_v1_mount(struct hierarchies *found, const char *where, const char *options)
{
    for (int i = 0; i < CONTROLLERS; i++)
        if (found->root[i][0] == '\0' && has_option(options, controller_names[i])) {
            snprintf(found->root[i], PATH_SIZE, "%s", where);
            found->version = CGROUP_V1;
        }
}

static struct hierarchies find_hierarchies(void)
{
    struct hierarchies found = {0};
    char unified[PATH_SIZE] = "", line[4096];
    OWNED_FILE FILE *mounts = fopen("/proc/self/mounts", "re");

    while (mounts != NULL && fgets(line, sizeof(line), mounts) != NULL) {
        char where[PATH_SIZE], type[32], options[1024];

        if (sscanf(line, "%*s %511s %31s %1023s", where, type, options) != 3)
            continue;
        if (strcmp(type, "cgroup") == 0)
            note_v1_mount(&found, where, options);
        else if (strcmp(type, "cgroup2") == 0 && unified[0] == '\0')
            snprintf(unified, sizeof(unified), "%s", where);
    }
    if (found.version == CGROUP_NONE && unified[0] != '\0') {
        found.version = CGROUP_V2;
        snprintf(found.root[MEMORY], PATH_SIZE, "%s", unified);
    }
    return found;
}

enum cgroup_version cgroup_version(void)
{
    return find_hierarchies().version;
}

static enum status check_path(const char *path, struct error *err)
{
    if (path[0] == '\0' || path[0] == '/' || strstr(path, "..") != NULL ||
        strlen(path) > PATH_SIZE / 2)
        return error_set(err, STATUS_INVALID, "\"%s\" is not a path of a control group", path);
    return STATUS_OK;
}

/* Check the path and find the hierarchies: how every function that takes a path begins. */
static enum status begin(const char *path, struct hierarchies *ret_found, struct error *err)
{
    enum status status = check_path(path, err);

    if (status != STATUS_OK)
        return status;
    *ret_found = find_hierarchies();
    if (ret_found->version == CGROUP_NONE) {
        error_set(err, STATUS_UNSUPPORTED, "no control group hierarchy is mounted");
        error_hint(err, "Mount cgroup2 on /sys/fs/cgroup.");
        return STATUS_UNSUPPORTED;
    }
    return STATUS_OK;
}

static void file_path(char text[PATH_SIZE * 2], const char *root, const char *path,
                      const char *file)
{
    snprintf(text, PATH_SIZE * 2, "%s/%s%s%s", root, path, file[0] != '\0' ? "/" : "", file);
}

static enum status read_file(const char *root, const char *path, const char *file, char *text,
                             size_t size, struct error *err)
{
    char name[PATH_SIZE * 2];

    file_path(name, root, path, file);
    OWNED_FD int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
    if (length < 0)
        return error_system(err, "cannot read %s", name);
    text[length] = '\0';
    return STATUS_OK;
}

static enum status write_file(const char *root, const char *path, const char *file,
                              const char *text, struct error *err)
{
    char name[PATH_SIZE * 2];

    file_path(name, root, path, file);
    OWNED_FD int fd = open(name, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return error_system(err, "cannot write \"%s\" to %s", text, name);
    return STATUS_OK;
}

bool cgroup_has(const char *controller)
{
    struct hierarchies found = find_hierarchies();
    char text[1024], *rest = NULL;

    for (int i = 0; found.version == CGROUP_V1 && i < CONTROLLERS; i++)
        if (strcmp(controller, controller_names[i]) == 0)
            return found.root[i][0] != '\0';
    if (found.version != CGROUP_V2)
        return false;
    if (strcmp(controller, "freezer") == 0)
        return true;
    const char *wanted = strcmp(controller, "blkio") == 0 ? "io" : controller;
    if (read_file(found.root[MEMORY], ".", "cgroup.controllers", text, sizeof(text), NULL) !=
        STATUS_OK)
        return false;
    for (char *word = strtok_r(text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
        if (strcmp(word, wanted) == 0)
            return true;
    return false;
}

/* Version 2 passes a controller down only where the parent says so; what it lacks is left out. */
static void enable_controllers(const char *root, const char *parent)
{
    static const char *const wanted[] = {"+memory", "+cpu", "+io"};

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (write_file(root, parent, "cgroup.subtree_control", wanted[i], NULL) != STATUS_OK)
            continue; /* cgroup_limit() says so when a limit is asked for */
}

static enum status create_in(const struct hierarchies *found, const char *root, const char *path,
                             struct error *err)
{
    char part[PATH_SIZE], name[PATH_SIZE * 2];
    size_t length = 0, whole = strlen(path);

    if (found->version == CGROUP_V2)
        enable_controllers(root, ".");
    while (length < whole) {
        length += strcspn(path + length + (path[length] == '/'), "/") + (path[length] == '/');
        snprintf(part, sizeof(part), "%.*s", (int) length, path);
        file_path(name, root, part, "");
        if (mkdir(name, 0755) < 0 && errno != EEXIST)
            return error_system(err, "cannot create control group %s", name);
        if (found->version == CGROUP_V2 && length < whole)
            enable_controllers(root, part);
    }
    return STATUS_OK;
}

enum status cgroup_create(const char *path, struct error *err)
{
    struct hierarchies found;
    enum status status = begin(path, &found, err);

    for (int i = 0; i < CONTROLLERS && status == STATUS_OK; i++)
        if (found.root[i][0] != '\0')
            status = create_in(&found, found.root[i], path, err);
    return status;
}

static const char *amount(char text[32], int64_t value, const char *none)
{
    if (value > 0)
        snprintf(text, 32, "%" PRId64, value);
    else
        snprintf(text, 32, "%s", none);
    return text;
}

static enum status limit_memory_v1(const char *root, const char *path,
                                   const struct cgroup_limits *limits, struct error *err)
{
    static const char *const file = "memory.limit_in_bytes", *const swap_file =
                                                                 "memory.memsw.limit_in_bytes";
    char memory[32], both[32];

    amount(memory, limits->memory_bytes, "-1");
    amount(both, limits->memory_swap_bytes, "-1");
    /* The kernel wants limit <= memsw at every moment: so memsw goes to the top in between. */
    enum status swap = write_file(root, path, swap_file, "-1", err);
    if (swap != STATUS_OK && limits->memory_swap_bytes > 0) {
        error_hint(err, "Boot with swapaccount=1.");
        return swap;
    }
    enum status status = write_file(root, path, file, memory, err);
    if (status == STATUS_OK && limits->memory_swap_bytes > 0)
        status = write_file(root, path, swap_file, both, err);
    return status;
}

static enum status limit_memory_v2(const char *root, const char *path,
                                   const struct cgroup_limits *limits, struct error *err)
{
    char memory[32], swap[32];
    int64_t swap_bytes = limits->memory_swap_bytes - limits->memory_bytes;
    bool limited = limits->memory_swap_bytes > 0;

    enum status status =
        write_file(root, path, "memory.max", amount(memory, limits->memory_bytes, "max"), err);
    if (status != STATUS_OK)
        return status;
    snprintf(swap, sizeof(swap), "%" PRId64, swap_bytes > 0 ? swap_bytes : 0);
    status = write_file(root, path, "memory.swap.max", limited ? swap : "max", err);
    return status != STATUS_OK && limited ? status : STATUS_OK;
}

static enum status limit_cpu(const struct hierarchies *found, const char *path, int64_t percent,
                             struct error *err)
{
    char quota[32], text[64];
    int64_t quota_us = percent * CPU_PERIOD_US / 100;

    if (found->version == CGROUP_V2) {
        snprintf(text, sizeof(text), "%s %d", amount(quota, quota_us, "max"), CPU_PERIOD_US);
        return write_file(found->root[MEMORY], path, "cpu.max", text, err);
    }
    snprintf(text, sizeof(text), "%d", CPU_PERIOD_US);
    enum status status = write_file(found->root[CPU], path, "cpu.cfs_period_us", text, err);
    if (status != STATUS_OK)
        return status;
    return write_file(found->root[CPU], path, "cpu.cfs_quota_us", amount(quota, quota_us, "-1"),
                      err);
}

static enum status need(const char *controller, bool wanted, struct error *err)
{
    if (!wanted || cgroup_has(controller))
        return STATUS_OK;
    error_set(err, STATUS_UNSUPPORTED, "the control group controller \"%s\" is not there",
              controller);
    error_hint(err, "Mount it, or enable it in the kernel's configuration.");
    return STATUS_UNSUPPORTED;
}

enum status cgroup_limit(const char *path, const struct cgroup_limits *limits, struct error *err)
{
    struct hierarchies found;
    bool memory = limits->memory_bytes > 0 || limits->memory_swap_bytes > 0;
    enum status status = begin(path, &found, err);

    if (status == STATUS_OK)
        status = need("memory", memory, err);
    if (status == STATUS_OK)
        status = need("cpu", limits->cpu_percent > 0, err);
    if (status == STATUS_OK && cgroup_has("memory"))
        status = found.version == CGROUP_V1
                     ? limit_memory_v1(found.root[MEMORY], path, limits, err)
                     : limit_memory_v2(found.root[MEMORY], path, limits, err);
    if (status == STATUS_OK && cgroup_has("cpu"))
        status = limit_cpu(&found, path, limits->cpu_percent, err);
    return status;
}

enum status cgroup_weight(const char *path, int64_t weight, struct error *err)
{
    struct hierarchies found;
    char text[32];
    enum status status = begin(path, &found, err);

    if (status != STATUS_OK || !cgroup_has("cpu"))
        return status;
    if (weight < 1 || weight > 10000)
        return error_set(err, STATUS_INVALID, "weight %" PRId64 " is not between 1 and 10000",
                         weight);
    bool first = found.version == CGROUP_V1;
    snprintf(text, sizeof(text), "%" PRId64, first ? weight * 1024 / 100 : weight);
    return write_file(first ? found.root[CPU] : found.root[MEMORY], path,
                      first ? "cpu.shares" : "cpu.weight", text, err);
}

enum status cgroup_join(const char *path, pid_t pid, struct error *err)
{
    struct hierarchies found;
    char text[32];
    enum status status = begin(path, &found, err);

    snprintf(text, sizeof(text), "%d", (int) pid);
    for (int i = 0; i < CONTROLLERS && status == STATUS_OK; i++)
        if (found.root[i][0] != '\0')
            status = write_file(found.root[i], path, "cgroup.procs", text, err);
    return status;
}

/* The path in a line "6:freezer:/a/b" or "0::/a/b" when it is the hierarchy that counts. */
static const char *path_of_line(char *line, enum cgroup_version version)
{
    char *controllers = strchr(line, ':');
    char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

    if (path == NULL)
        return NULL;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    bool counts =
        version == CGROUP_V1 ? has_option(controllers + 1, "freezer") : controllers[1] == '\0';
    return counts ? path + strspn(path, "/") : NULL;
}

enum status cgroup_of(struct arena *arena, pid_t pid, const char **ret_path, struct error *err)
{
    char name[64], line[4096];
    enum cgroup_version version = cgroup_version();

    snprintf(name, sizeof(name), "/proc/%d/cgroup", (int) pid);
    OWNED_FILE FILE *file = fopen(name, "re");
    if (file == NULL && errno == ENOENT)
        return error_set(err, STATUS_NOT_FOUND, "there is no process %d", (int) pid);
    if (file == NULL)
        return error_system(err, "cannot open %s", name);
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *path = path_of_line(line, version);

        if (path != NULL) {
            *ret_path = arena_strdup(arena, path);
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_UNSUPPORTED,
                     "process %d is in no control group that can be frozen", (int) pid);
}

const char *cgroup_memory_file(struct arena *arena, const char *path, const char *file)
{
    struct hierarchies found;

    if (begin(path, &found, NULL) != STATUS_OK || found.root[MEMORY][0] == '\0')
        return NULL;
    return arena_printf(arena, "%s/%s/%s", found.root[MEMORY], path, file);
}

static void wait_a_little(void)
{
    poll(NULL, 0, POLL_MS);
}

/* The hierarchy in which processes are frozen and counted. */
static const char *main_root(const struct hierarchies *found)
{
    if (found->version == CGROUP_V2)
        return found->root[MEMORY];
    for (int i = 0; i < CONTROLLERS; i++) {
        int order[CONTROLLERS] = {FREEZER, MEMORY, CPU, BLKIO};

        if (found->root[order[i]][0] != '\0')
            return found->root[order[i]];
    }
    return "";
}

static enum status set_frozen(const struct hierarchies *found, const char *path, bool frozen,
                              struct error *err)
{
    if (found->version == CGROUP_V2)
        return write_file(found->root[MEMORY], path, "cgroup.freeze", frozen ? "1" : "0", err);
    return write_file(found->root[FREEZER], path, "freezer.state", frozen ? "FROZEN" : "THAWED",
                      err);
}

enum status cgroup_frozen(const char *path, bool *ret_frozen, struct error *err)
{
    struct hierarchies found;
    char text[256];
    enum status status = begin(path, &found, err);

    if (status == STATUS_OK)
        status = need("freezer", true, err);
    if (status != STATUS_OK)
        return status;
    status = found.version == CGROUP_V2
                 ? read_file(found.root[MEMORY], path, "cgroup.events", text, sizeof(text), err)
                 : read_file(found.root[FREEZER], path, "freezer.state", text, sizeof(text), err);
    if (status == STATUS_OK)
        *ret_frozen = found.version == CGROUP_V2 ? strstr(text, "frozen 1") != NULL
                                                 : strncmp(text, "FROZEN", 6) == 0;
    return status;
}

enum status cgroup_freeze(const char *path, bool frozen, int64_t deadline_ns, struct error *err)
{
    struct hierarchies found;
    bool now = !frozen;
    enum status status = begin(path, &found, err);

    if (status == STATUS_OK)
        status = need("freezer", true, err);
    if (status == STATUS_OK)
        status = set_frozen(&found, path, frozen, err);
    while (status == STATUS_OK) {
        status = cgroup_frozen(path, &now, err);
        if (status != STATUS_OK || now == frozen)
            return status;
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "control group %s is still %s", path,
                             now ? "frozen" : "not wholly frozen");
        wait_a_little();
    }
    return status;
}

static enum status begin_freezer(const char *path, struct hierarchies *ret_found, struct error *err)
{
    enum status status = begin(path[0] == '\0' ? "." : path, ret_found, err);

    return status == STATUS_OK ? need("freezer", true, err) : status;
}

enum status cgroup_freezer_create(const char *path, struct error *err)
{
    struct hierarchies found;
    char name[PATH_SIZE * 2];
    enum status status = begin_freezer(path, &found, err);

    if (status != STATUS_OK)
        return status;
    file_path(name, main_root(&found), path, "");
    if (mkdir(name, 0755) < 0 && errno != EEXIST)
        return error_system(err, "cannot create control group %s", name);
    return STATUS_OK;
}

enum status cgroup_freezer_join(const char *path, pid_t pid, struct error *err)
{
    struct hierarchies found;
    char text[32];
    enum status status = begin_freezer(path, &found, err);

    snprintf(text, sizeof(text), "%d", (int) pid);
    if (status == STATUS_OK)
        status = write_file(main_root(&found), path, "cgroup.procs", text, err);
    return status;
}

enum status cgroup_freezer_members(struct arena *arena, const char *path, pid_t **ret_pids,
                                   size_t *ret_count, struct error *err)
{
    struct hierarchies found;
    char name[PATH_SIZE * 2];
    pid_t *pids = NULL;
    size_t count = 0, capacity = 0;
    int pid = 0;
    enum status status = begin_freezer(path, &found, err);

    if (status != STATUS_OK)
        return status;
    file_path(name, main_root(&found), path, "cgroup.procs");
    OWNED_FILE FILE *members = fopen(name, "re");
    if (members == NULL && errno == ENOENT)
        return error_set(err, STATUS_NOT_FOUND, "there is no control group %s", name);
    if (members == NULL)
        return error_system(err, "cannot open %s", name);
    while (fscanf(members, "%d", &pid) == 1) {
        if (count == capacity) {
            capacity = capacity == 0 ? 32 : capacity * 2;
            pids = arena_grow(arena, pids, count, capacity, sizeof(*pids));
        }
        pids[count++] = pid;
    }
    *ret_pids = pids;
    *ret_count = count;
    return STATUS_OK;
}

/* Calls `each` for a group and all below it, the deepest first; a group that is gone is fine. */
static enum status walk(const char *root, const char *path,
                        enum status (*each)(const char *root, const char *path, void *argument,
                                            struct error *err),
                        void *argument, struct error *err)
{
    char name[PATH_SIZE * 2];
    enum status status = STATUS_OK;

    file_path(name, root, path, "");
    OWNED_DIR DIR *folder = opendir(name);
    if (folder == NULL)
        return errno == ENOENT ? STATUS_OK : error_system(err, "cannot open %s", name);
    for (struct dirent *entry = readdir(folder); entry != NULL && status == STATUS_OK;
         entry = readdir(folder)) {
        char below[PATH_SIZE];

        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        if (snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) >= (int) sizeof(below))
            return error_set(err, STATUS_INVALID, "control group below %s has too long a name",
                             path);
        status = walk(root, below, each, argument, err);
    }
    return status == STATUS_OK ? each(root, path, argument, err) : status;
}

struct killing {
    const struct hierarchies *found;
    size_t alive, foreign;
};

/* Kill one process through a pidfd, and only while it still is in the group. */
static void kill_member(const char *path, pid_t pid)
{
    OWNED_FD int fd = (int) syscall(SYS_pidfd_open, pid, 0);
    OWNED_ARENA struct arena *arena = arena_new();
    const char *group = NULL;

    if (fd >= 0 && cgroup_of(arena, pid, &group, NULL) == STATUS_OK && group != NULL &&
        strcmp(group, path) == 0)
        syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
}

static enum status kill_members(const char *root, const char *path, void *argument,
                                struct error *err)
{
    struct killing *killing = argument;
    char name[PATH_SIZE * 2];
    int pid = 0;

    (void) err;
    file_path(name, root, path, "cgroup.procs");
    OWNED_FILE FILE *members = fopen(name, "re");
    while (members != NULL && fscanf(members, "%d", &pid) == 1) {
        killing->alive++;
        if (pid == 0)
            killing->foreign++;
        else
            kill_member(path, pid);
    }
    /* A frozen process takes its SIGKILL only when thawed. */
    bool can_freeze =
        killing->found->version == CGROUP_V2 || killing->found->root[FREEZER][0] != '\0';
    if (can_freeze && set_frozen(killing->found, path, false, NULL) != STATUS_OK)
        return STATUS_OK; /* gone meanwhile */
    return STATUS_OK;
}

enum status cgroup_kill(const char *path, int64_t deadline_ns, struct error *err)
{
    struct hierarchies found;
    enum status status = begin(path, &found, err);

    while (status == STATUS_OK) {
        struct killing killing = {.found = &found};

        status = walk(main_root(&found), path, kill_members, &killing, err);
        if (status != STATUS_OK || killing.alive == 0)
            break;
        if (killing.foreign == killing.alive)
            return error_set(err, STATUS_REFUSED,
                             "control group %s holds only processes of another PID namespace",
                             path);
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "%zu processes are left in control group %s",
                             killing.alive, path);
        wait_a_little();
    }
    return status;
}

static enum status remove_one(const char *root, const char *path, void *argument, struct error *err)
{
    const int64_t *deadline_ns = argument;
    char name[PATH_SIZE * 2];

    file_path(name, root, path, "");
    /* EBUSY: the last processes are exiting still. */
    while (rmdir(name) < 0 && errno != ENOENT) {
        if (errno != EBUSY || deadline_passed(*deadline_ns))
            return error_system(err, "cannot remove control group %s", name);
        wait_a_little();
    }
    return STATUS_OK;
}

enum status cgroup_remove(const char *path, int64_t deadline_ns, struct error *err)
{
    struct hierarchies found;
    enum status status = begin(path, &found, err);

    for (int i = 0; i < CONTROLLERS && status == STATUS_OK; i++)
        if (found.root[i][0] != '\0')
            status = walk(found.root[i], path, remove_one, &deadline_ns, err);
    return status;
}
