/* SPDX-License-Identifier: MIT */
#include "tests/support/throwaway_postgres.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/pg_processes.h"
#include "lib/process.h"

#define PROGRAMS "/usr/lib/postgresql/15/bin/"

static const char initdb[] = PROGRAMS "initdb", pg_ctl[] = PROGRAMS "pg_ctl";

static void must_run(const char *const *argv, const char *user)
{
    struct error err = {0};
    struct process_spec spec = {.argv = argv, .user = user, .timeout_ms = 60000};

    if (process_run(&spec, NULL, &err) != STATUS_OK)
        ck_abort_msg("%s\n%s", err.message, err.detail);
}

/* Freezer group of everything in the namespace; "" without a freezer. */
static char group[48];

/* A frozen process does not die, and the namespace would not end before it. */
static void end_group(void)
{
    if (group[0] == '\0')
        return;
    if (cgroup_freezer_join("", getpid(), NULL) != STATUS_OK ||
        cgroup_kill(group, deadline_in_ms(5000), NULL) != STATUS_OK ||
        cgroup_remove(group, deadline_in_ms(5000), NULL) != STATUS_OK)
        fprintf(stderr, "control group %s could not be removed\n", group);
}

/* Init of the namespace: reaps whoever is left to it and ends with the test program. */
static _Noreturn void be_init(pid_t program)
{
    int status = 0;
    pid_t ended;

    while ((ended = wait(&status)) != program)
        if (ended < 0 && errno != EINTR)
            _exit(1);
    end_group();
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Outside of the namespace: its init is the only child, and its end is ours. */
static _Noreturn void be_outside(pid_t init)
{
    int status = 0;

    while (waitpid(init, &status, 0) < 0 && errno == EINTR)
        ;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void fork_or_die(void (*parent)(pid_t child))
{
    fflush(NULL);
    pid_t pid = fork();

    if (pid < 0) {
        perror("fork");
        exit(1);
    }
    if (pid > 0)
        parent(pid);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* A /tmp of our own, in which the programs that are tested stay visible when they lie there. */
static bool own_tmp(void)
{
    char kept[PATH_MAX], source[48];
    ssize_t length = readlink("/proc/self/exe", kept, sizeof kept - 1);

    if (length <= 0)
        return false;
    kept[length] = '\0';
    if (strncmp(kept, "/tmp/", 5) != 0)
        return mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777") == 0;
    kept[5 + strcspn(kept + 5, "/")] = '\0';
    OWNED_FD int folder = open(kept, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(source, sizeof source, "/proc/self/fd/%d", folder);
    return folder >= 0 && mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777") == 0 &&
           mkdir(kept, 0755) == 0 && mount(source, kept, NULL, MS_BIND | MS_REC, NULL) == 0;
}

const char *throwaway_isolate(void)
{
    if (geteuid() != 0)
        return "this needs root";
    if (access(PROGRAMS "postgres", X_OK) != 0 || getpwnam("postgres") == NULL)
        return "PostgreSQL 15 of Debian is not installed";
    if (cgroup_has("freezer")) {
        snprintf(group, sizeof group, "ordeal-throwaway-%d", (int) getpid());
        if (cgroup_freezer_create(group, NULL) != STATUS_OK)
            return "no control group can be made";
    }
    if (unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNS) != 0)
        return "this kernel gives no namespaces";
    fork_or_die(be_outside);
    if (group[0] != '\0' && cgroup_freezer_join(group, getpid(), NULL) != STATUS_OK)
        return "a process cannot be moved into a control group";
    fork_or_die(be_init);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("proc", "/proc", "proc", 0, NULL) != 0 || !own_tmp())
        return "a namespace of our own does not get its mounts";
    const char *argv[] = {"ip", "link", "set", "lo", "up", NULL};
    if (process_run(&(struct process_spec){.argv = argv, .timeout_ms = 5000}, NULL, NULL) !=
        STATUS_OK)
        return "the loopback device of a new namespace does not come up";
    return NULL;
}

static void configure(const struct throwaway *server)
{
    char path[128];

    snprintf(path, sizeof path, "%s/postgresql.auto.conf", server->data);
    OWNED_FILE FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "listen_addresses = '*'\nport = %d\nunix_socket_directories = '%s'\n"
            "fsync = off\nshared_buffers = '16MB'\nmax_connections = 20\nwal_level = replica\n"
            "cluster_name = 'throwaway/1'\narchive_mode = on\narchive_command = '/bin/true'\n",
            THROWAWAY_PORT, server->folder);
}

void throwaway_start(struct throwaway *server)
{
    const struct passwd *owner = getpwnam("postgres");

    snprintf(server->folder, sizeof server->folder, "/tmp/ordeal-throwaway-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(server->folder));
    ck_assert_int_eq(chown(server->folder, owner->pw_uid, owner->pw_gid), 0);
    snprintf(server->data, sizeof server->data, "%s/data", server->folder);
    const char *argv[] = {initdb,       "--no-sync",       "--auth=trust",
                          "--locale=C", "--encoding=UTF8", "--username=postgres",
                          "--pgdata",   server->data,      NULL};
    must_run(argv, "postgres");
    configure(server);
    throwaway_restart(server);
}

void throwaway_restart(struct throwaway *server)
{
    char log[128];

    snprintf(log, sizeof log, "%s/log", server->folder);
    const char *argv[] = {pg_ctl,       "start", "--wait", "--silent", "--pgdata",
                          server->data, "--log", log,      NULL};
    struct process_spec spec = {.argv = argv, .user = "postgres", .timeout_ms = 60000};
    struct error err = {0};
    if (process_run(&spec, NULL, &err) == STATUS_OK)
        return;
    OWNED_FILE FILE *file = fopen(log, "re");
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        fputs(line, stderr);
    ck_abort_msg("%s", err.message);
}

/* SIGKILL to all that is left of it, until nothing is. */
static void end_processes(const struct throwaway *server)
{
    int64_t deadline_ns = deadline_in_ms(10000);

    while (!deadline_passed(deadline_ns)) {
        OWNED_ARENA struct arena *arena = arena_new();
        struct pg_processes all = {0};
        ck_assert_int_eq(pg_processes_list(arena, server->data, &all, NULL), STATUS_OK);
        if (all.count == 0)
            return;
        for (size_t i = 0; i < all.count; i++)
            if (process_signal(all.items[i].id, SIGKILL, NULL) == STATUS_OK)
                ck_assert_int_eq(process_wait_gone(all.items[i].id, deadline_ns, NULL), STATUS_OK);
    }
    ck_abort_msg("processes of %s do not end", server->data);
}

void throwaway_stop(struct throwaway *server)
{
    if (server->folder[0] == '\0')
        return;
    end_processes(server);
    const char *argv[] = {"rm", "-rf", server->folder, NULL};
    must_run(argv, NULL);
    server->folder[0] = '\0';
}

static PGconn *connect_once(const struct throwaway *server)
{
    char target[192];

    snprintf(target, sizeof target, "host=%s port=%d user=postgres dbname=postgres", server->folder,
             THROWAWAY_PORT);
    return PQconnectdb(target);
}

PGconn *throwaway_connect(const struct throwaway *server)
{
    PGconn *connection = connect_once(server);

    if (PQstatus(connection) != CONNECTION_OK)
        ck_abort_msg("%s", PQerrorMessage(connection));
    return connection;
}

bool throwaway_wait_ready(const struct throwaway *server, int timeout_ms)
{
    int64_t deadline_ns = deadline_in_ms(timeout_ms);

    while (!deadline_passed(deadline_ns)) {
        PGconn *connection = connect_once(server);
        bool ready = PQstatus(connection) == CONNECTION_OK;
        PQfinish(connection);
        if (ready)
            return true;
        poll(NULL, 0, 20);
    }
    return false;
}
