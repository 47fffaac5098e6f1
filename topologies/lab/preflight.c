/* SPDX-License-Identifier: MIT */
#include "topologies/lab/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "topologies/lab/state.h"
#include "topologies/lab/switch.h"
#include "topologies/lab/tasks.h"

enum { PROBE_MS = 10000 };

#define MIB (INT64_C(1024) * 1024)
#define DISK_MARGIN_BYTES (256 * MIB)

struct question {
    const struct lab_spec *spec;
    const struct lab_programs *programs;
};

static enum status refuse(struct error *err, const char *message, const char *hint)
{
    error_set(err, STATUS_REFUSED, "%s", message);
    error_hint(err, "%s", hint);
    return STATUS_REFUSED;
}

static enum status want_root(const struct question *question, struct error *err)
{
    (void) question;
    if (geteuid() == 0)
        return STATUS_OK;
    return refuse(err, "a lab needs root: it makes namespaces, mounts and control groups",
                  "Run it as root, or with sudo.");
}

static enum status want_absent(const struct question *question, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *name = question->spec->name;
    struct lab_state state = {0};

    if (state_read(name, &state, NULL) == STATUS_OK && state.up) {
        error_set(err, STATUS_EXISTS, "lab %s is up already, nothing was changed", name);
        error_hint(err, "\"ordeal lab status\" shows it; \"ordeal lab down\" takes it down.");
        return STATUS_EXISTS;
    }
    if (access(lab_path(arena, name, ""), F_OK) < 0)
        return STATUS_OK;
    error_set(err, STATUS_EXISTS, "lab %s is half up: it is being built, or its `up` was killed",
              name);
    error_hint(err, "\"ordeal lab down --name %s\" clears away what is left.", name);
    return STATUS_EXISTS;
}

/* ---- programs ---- */

static bool on_path(const char *program)
{
    static const char *const folders[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                          "/usr/bin",        "/sbin",          "/bin"};
    char path[128];

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folders[i], program);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static enum status want_programs(const struct question *question, struct error *err)
{
    static const struct {
        const char *program, *package;
    } needed[] = {{"ip", "iproute2"}, {"mkfs.xfs", "xfsprogs"}, {"cp", "coreutils"}};

    (void) question;
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (!on_path(needed[i].program)) {
            error_set(err, STATUS_REFUSED, "program %s is missing", needed[i].program);
            error_hint(err, "Install the package %s; \"make deps\" installs all that is needed.",
                       needed[i].package);
            return STATUS_REFUSED;
        }
    return STATUS_OK;
}

static enum status want_postgres(const struct question *question, struct error *err)
{
    static const char *const needed[] = {"initdb", "postgres", "pg_ctl"};
    OWNED_ARENA struct arena *arena = arena_new();
    int version = (int) question->spec->version;

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        const char *path = arena_printf(arena, "%s/%s", lab_bin(arena, question->spec), needed[i]);

        if (access(path, X_OK) == 0)
            continue;
        error_set(err, STATUS_REFUSED, "%s is missing", path);
        error_hint(err, "Install the package postgresql-%d.", version);
        return STATUS_REFUSED;
    }
    if (getpwnam("postgres") == NULL || access(NODE_DATA, F_OK) < 0) {
        error_set(err, STATUS_REFUSED, "the user postgres or the folder " NODE_DATA " is missing");
        error_hint(err, "Both come with the package postgresql-common.");
        return STATUS_REFUSED;
    }
    return STATUS_OK;
}

static enum status want_agent(const struct question *question, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *agent = question->programs->agent;
    const char *slash = strrchr(agent, '/');
    const char *guardian = arena_printf(arena, "%.*s/ordeal-guardian",
                                        slash != NULL ? (int) (slash - agent) : 0, agent);
    const char *missing = access(agent, X_OK) < 0      ? agent
                          : access(guardian, X_OK) < 0 ? guardian
                                                       : NULL;

    if (missing == NULL)
        return STATUS_OK;
    error_set(err, STATUS_REFUSED, "%s is missing", missing);
    error_hint(err, "Build it with \"make\"; it lies beside the program ordeal.");
    return STATUS_REFUSED;
}

/* ---- kernel ---- */

static enum status want_kernel_files(const struct question *question, struct error *err)
{
    static const char *const needed[] = {"/proc/self/ns/pid", "/proc/self/ns/net",
                                         "/proc/self/ns/mnt", "/proc/self/ns/ipc",
                                         "/proc/self/ns/uts", "/proc/sys/kernel/ns_last_pid",
                                         "/dev/loop-control"};

    (void) question;
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (access(needed[i], F_OK) < 0) {
            error_set(err, STATUS_UNSUPPORTED, "this kernel has no %s", needed[i]);
            error_hint(err, "%s",
                       strncmp(needed[i], "/dev/", 5) == 0
                           ? "Load the module loop (\"modprobe loop\"), or give a container /dev."
                           : "The lab needs a kernel with namespaces (and, for ns_last_pid, "
                             "CONFIG_CHECKPOINT_RESTORE).");
            return STATUS_UNSUPPORTED;
        }
    return STATUS_OK;
}

static bool kernel_has_xfs(void)
{
    char line[128];
    OWNED_FILE FILE *file = fopen("/proc/filesystems", "re");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strcmp(line, "\txfs\n") == 0)
            return true;
    return false;
}

static enum status want_xfs(const struct question *question, struct error *err)
{
    const char *argv[] = {"modprobe", "xfs", NULL};

    (void) question;
    if (kernel_has_xfs())
        return STATUS_OK;
    if (process_run(&(struct process_spec){.argv = argv, .timeout_ms = PROBE_MS}, NULL, NULL) ==
            STATUS_OK &&
        kernel_has_xfs())
        return STATUS_OK;
    error_set(err, STATUS_UNSUPPORTED, "this kernel has no XFS");
    error_hint(err, "Load the module xfs, or use a kernel that has it.");
    return STATUS_UNSUPPORTED;
}

static enum status want_cgroups(const struct question *question, struct error *err)
{
    static const char *const needed[] = {"memory", "cpu", "freezer"};

    (void) question;
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (!cgroup_has(needed[i])) {
            error_set(err, STATUS_UNSUPPORTED, "the control group controller %s is missing",
                      needed[i]);
            error_hint(err, "Mount it below /sys/fs/cgroup, or boot with cgroup_enable=%s.",
                       needed[i]);
            return STATUS_UNSUPPORTED;
        }
    return STATUS_OK;
}

/* In a network namespace that ends with this child: bridge and veth, for a try. */
static enum status try_network(void *argument, struct error *err)
{
    (void) argument;
    if (unshare(CLONE_NEWNET) < 0)
        return error_system(err, "cannot make a network namespace");
    enum status status = switch_create("10.77.0.254", err);
    return status == STATUS_OK ? switch_connect("probe", "10.77.0.1", getpid(), err) : status;
}

static enum status want_network(const struct question *question, struct error *err)
{
    const struct task task = {"trying a network namespace with bridge and veth", try_network, NULL};

    (void) question;
    enum status status = tasks_run(&task, 1, NULL, deadline_in_ms(PROBE_MS), err);
    if (status == STATUS_OK)
        return STATUS_OK;
    error_hint(err, "Load the modules bridge and veth; in a container CAP_NET_ADMIN and "
                    "CAP_SYS_ADMIN are needed.");
    if (err != NULL)
        err->code = STATUS_UNSUPPORTED;
    return STATUS_UNSUPPORTED;
}

/* ---- room ---- */

static int64_t available_memory(void)
{
    char line[128];
    int64_t kib = 0;
    OWNED_FILE FILE *file = fopen("/proc/meminfo", "re");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "MemAvailable: %" SCNd64, &kib) == 1)
            return kib * 1024;
    return 0;
}

static enum status too_little(const char *what, const char *where, int64_t needed, int64_t there,
                              const char *hint, struct error *err)
{
    error_set(err, STATUS_REFUSED,
              "too little %s%s: the lab needs %" PRId64 " MiB, there are %" PRId64 " MiB", what,
              where, (needed + MIB - 1) / MIB, there / MIB);
    error_hint(err, "%s", hint);
    return STATUS_REFUSED;
}

enum status preflight_memory(const struct lab_spec *spec, int64_t available_bytes,
                             struct error *err)
{
    int64_t needed = 0;

    for (size_t i = 0; i < spec->node_count; i++)
        needed += spec->nodes[i].memory_bytes;
    if (needed <= available_bytes)
        return STATUS_OK;
    return too_little("memory", "", needed, available_bytes,
                      "Free some, or write a lab file with smaller nodes (-t FILE).", err);
}

enum status preflight_disk(const struct lab_spec *spec, int64_t free_bytes, struct error *err)
{
    int64_t needed = DISK_MARGIN_BYTES;

    for (size_t i = 0; i < spec->node_count; i++)
        needed += spec->nodes[i].system_bytes + spec->nodes[i].data_bytes;
    if (needed <= free_bytes)
        return STATUS_OK;
    return too_little("disk", " below /var/lib", needed, free_bytes,
                      "Free some, or write a lab file with smaller volumes (-t FILE).", err);
}

static enum status want_room(const struct question *question, struct error *err)
{
    struct statvfs about;
    enum status status = preflight_memory(question->spec, available_memory(), err);

    if (status != STATUS_OK)
        return status;
    if (statvfs("/var/lib", &about) < 0)
        return error_system(err, "cannot ask for the free space of /var/lib");
    return preflight_disk(question->spec, (int64_t) about.f_bavail * (int64_t) about.f_frsize, err);
}

static enum status (*const questions[])(const struct question *question, struct error *err) = {
    want_root, want_absent,       want_programs, want_postgres, want_agent,
    want_room, want_kernel_files, want_cgroups,  want_xfs,      want_network,
};

enum status lab_preflight(const struct lab_spec *spec, const struct lab_programs *programs,
                          struct error *err)
{
    struct question question = {.spec = spec, .programs = programs};

    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
        enum status status = questions[i](&question, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}
