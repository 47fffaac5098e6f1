/* SPDX-License-Identifier: MIT */
/* What is asked of a lab that is up: status, power, exec. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/namespace.h"
#include "lib/owned.h"
#include "topologies/lab/lab.h"
#include "topologies/lab/probe.h"
#include "topologies/lab/state.h"
#include "topologies/lab/supervisor.h"

enum { ASK_MS = 10000, POWER_MS = 150000, PROBE_MS = 1500 };

static enum status read_up(const char *name, struct lab_state *ret_state, struct error *err)
{
    enum status status = state_read(name, ret_state, err);

    if (status == STATUS_OK && !ret_state->alive)
        status = error_set(err, STATUS_NOT_FOUND, "lab %s has died", name);
    if (status == STATUS_NOT_FOUND)
        error_hint(err, "\"ordeal lab up\" brings it up; \"ordeal lab down\" clears away what is "
                        "left.");
    return status;
}

/* ---- status ---- */

static json_t *postgres_status(const char *lab, const char *address, int port)
{
    struct probe_server server;

    probe_postgres(lab, address, port, deadline_in_ms(PROBE_MS), &server);
    if (!server.running)
        return json_pack("{s:b, s:b, s:s}", "running", 0, "silent", server.silent, "error",
                         server.error);
    return json_pack("{s:b, s:s, s:I}", "running", 1, "role",
                     server.in_recovery ? "standby" : "primary", "timeline",
                     (json_int_t) server.timeline);
}

static void add_probes(const char *lab, int port, int64_t now_ns, json_t *node)
{
    const char *address = json_text(node, "address", "");
    bool on = strcmp(json_text(node, "power", ""), "on") == 0;

    json_object_set_new(node, "since_s",
                        json_real((double) (now_ns - json_number(node, "since_ns", now_ns)) / 1e9));
    json_object_set_new(
        node, "agent",
        json_boolean(on && probe_tcp(address, LAB_AGENT_PORT, deadline_in_ms(PROBE_MS))));
    if (json_flag(node, "database", false))
        json_object_set_new(node, "postgres",
                            on ? postgres_status(lab, address, port)
                               : json_pack("{s:b, s:b, s:s}", "running", 0, "silent", 1, "error",
                                           "the node is off"));
}

/* This process moves into the switch's network, from where the nodes are seen. */
static enum status probe_all(const char *lab, pid_t supervisor, json_t *status, struct error *err)
{
    int port = (int) json_number(status, "port", 0);
    int64_t now_ns = clock_boot_ns();
    size_t index = 0;
    json_t *node = NULL;
    enum status entered = namespace_enter(supervisor, CLONE_NEWNET, err);

    if (entered != STATUS_OK)
        return entered;
    json_array_foreach(json_object_get(status, "nodes"), index, node)
        add_probes(lab, port, now_ns, node);
    json_object_set_new(
        status, "up_s",
        json_real((double) (now_ns - json_number(status, "started_ns", now_ns)) / 1e9));
    return STATUS_OK;
}

enum status lab_status(const char *name, json_t **ret_status, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *answer = NULL;
    struct lab_state state = {0};
    enum status status = read_up(name, &state, err);

    if (status == STATUS_OK)
        status =
            supervisor_ask(name, json_pack("{s:s}", "request", "status"), ASK_MS, &answer, err);
    if (status == STATUS_OK)
        status = probe_all(name, state.supervisor.pid, answer, err);
    if (status != STATUS_OK)
        return status;
    json_object_set_new(answer, "up", json_boolean(state.up));
    json_object_set_new(answer, "pid", json_integer(state.supervisor.pid));
    json_object_set_new(answer, "topology", json_string(lab_path(arena, name, "topology.yaml")));
    *ret_status = json_incref(answer);
    return STATUS_OK;
}

/* ---- power ---- */

enum status lab_power(const char *name, const char *node, const char *word, struct error *err)
{
    return supervisor_ask(
        name, json_pack("{s:s, s:s, s:s}", "request", "power", "node", node, "word", word),
        POWER_MS, NULL, err);
}

/* ---- exec ---- */

/* The init to follow: of a node, or the supervisor for the power node. */
static enum status find_init(const char *name, const char *node, pid_t *ret_pid, struct error *err)
{
    OWNED_JSON json_t *answer = NULL;
    struct lab_state state = {0};
    size_t index = 0;
    json_t *entry = NULL;
    enum status status = read_up(name, &state, err);

    if (status == STATUS_OK)
        status =
            supervisor_ask(name, json_pack("{s:s}", "request", "status"), ASK_MS, &answer, err);
    if (status != STATUS_OK)
        return status;
    json_array_foreach(json_object_get(answer, "nodes"), index, entry)
    {
        if (strcmp(json_text(entry, "name", ""), node) != 0)
            continue;
        if (strcmp(json_text(entry, "power", ""), "on") != 0)
            return error_set(err, STATUS_CONFLICT, "node %s is %s", node,
                             json_text(entry, "power", "off"));
        *ret_pid = (pid_t) json_number(entry, "pid", state.supervisor.pid);
        return STATUS_OK;
    }
    return error_set(err, STATUS_NOT_FOUND, "lab %s has no node \"%s\"", name, node);
}

/* Everything that is left of this process's own is the terminal. */
static _Noreturn void become(const char *const *argv)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
    execvp(argv[0], (char *const *) (uintptr_t) argv);
    _exit(errno == ENOENT ? 127 : 126);
}

static int exit_code_of(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

struct follow {
    const char *name, *node;
    const char *const *argv;
    pid_t init;
};

static enum status enter_node(const struct follow *follow, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    enum status status =
        cgroup_join(lab_cgroup(arena, follow->name, follow->node, "agent"), getpid(), err);

    return status == STATUS_OK ? namespace_enter(follow->init, NAMESPACE_INSIDE, err) : status;
}

/* A PID namespace that was entered counts for children only: so the program is one. */
static _Noreturn void run_in_node(const struct follow *follow, int report)
{
    struct error err = {0};
    int wait_status = 0;
    pid_t pid = -1;

    if (enter_node(follow, &err) == STATUS_OK) {
        pid = fork();
        if (pid == 0)
            become(follow->argv);
        if (pid < 0)
            error_system(&err, "cannot fork");
    }
    if (pid < 0) {
        ssize_t ignored = write(report, &err, sizeof(err));
        (void) ignored;
        _exit(1);
    }
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
        ;
    _exit(exit_code_of(wait_status));
}

/*
 * A child goes into the namespaces, not this process: a process whose children live in another PID
 * namespace cannot be looked through by the leak checker when it ends.
 */
static enum status follow_and_wait(const struct follow *follow, int *ret_exit_code,
                                   struct error *err)
{
    struct error reported = {0};
    int wait_status = 0, ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_system(err, "cannot make a pipe");
    OWNED_FD int report = ends[0];
    /* The keys of the terminal are for the program, which shares our process group. */
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    pid_t pid = fork();
    if (pid == 0)
        run_in_node(follow, ends[1]);
    close(ends[1]);
    if (pid < 0)
        return error_system(err, "cannot fork");
    while (waitpid(pid, &wait_status, 0) < 0)
        if (errno != EINTR)
            return error_system(err, "cannot wait for %s", follow->argv[0]);
    if (read(report, &reported, sizeof(reported)) == (ssize_t) sizeof(reported)) {
        if (err != NULL)
            *err = reported;
        return reported.code;
    }
    *ret_exit_code = exit_code_of(wait_status);
    return STATUS_OK;
}

enum status lab_exec(const char *name, const char *node, const char *const *argv,
                     int *ret_exit_code, struct error *err)
{
    struct follow follow = {.name = name, .node = node, .argv = argv};
    enum status status = find_init(name, node, &follow.init, err);

    if (status == STATUS_OK)
        status = follow_and_wait(&follow, ret_exit_code, err);
    if (status == STATUS_OK && *ret_exit_code == 127)
        status =
            error_set(err, STATUS_NOT_FOUND, "there is no program %s on node %s", argv[0], node);
    return status;
}
