/* SPDX-License-Identifier: MIT */
#include "topologies/lab/node.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/loop.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "lib/title.h"
#include "topologies/lab/node_mounts.h"
#include "topologies/lab/switch.h"

enum { GO_TIMEOUT_MS = 20000, RESTART_MS = 500, PID_STEP = 1000, PID_STEPS = 30 };

struct node {
    const struct node_boot *boot;
    struct arena *arena;
    struct loop *loop;
    struct process agent;
    bool agent_wanted;
};

static enum status join_cgroup(const struct node_boot *boot, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();

    return cgroup_join(lab_cgroup(arena, boot->spec->name, boot->node->name, "agent"), getpid(),
                       err);
}

static enum status await_go(const struct node_boot *boot, struct error *err)
{
    struct pollfd fd = {.fd = boot->channel, .events = POLLIN};
    char text[16] = "";

    if (poll(&fd, 1, GO_TIMEOUT_MS) != 1 || recv(boot->channel, text, sizeof(text) - 1, 0) <= 0 ||
        strcmp(text, "go") != 0)
        return error_set(err, STATUS_TIMEOUT, "the supervisor did not give node %s its link",
                         boot->node->name);
    return STATUS_OK;
}

static enum status set_name(const struct node_boot *boot, struct error *err)
{
    if (sethostname(boot->node->name, strlen(boot->node->name)) < 0)
        return error_system(err, "cannot set the host name %s", boot->node->name);
    return STATUS_OK;
}

static enum status network_up(const struct node_boot *boot, struct error *err)
{
    return switch_node_up(boot->node->address, err);
}

/*
 * A fresh PID namespace begins at 2 again, and the pid in a postmaster.pid from before the power
 * failed would be somebody else's now: each boot begins elsewhere.
 */
static enum status advance_pids(const struct node_boot *boot, struct error *err)
{
    char text[24];
    OWNED_FD int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);

    snprintf(text, sizeof(text), "%lld", (long long) (1 + boot->boot_count % PID_STEPS) * PID_STEP);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return error_system(err, "cannot advance ns_last_pid");
    return STATUS_OK;
}

/*
 * A node that booted at another time than the host: its boot and monotonic clocks are those of a
 * time namespace. It is for what this process starts, and this process waits with the host's.
 */
static enum status set_clocks(const struct node_boot *boot, struct error *err)
{
    long long s = boot->node->boot_clock_offset_ms / 1000;
    long long ns = boot->node->boot_clock_offset_ms % 1000 * 1000000;
    char text[128];

    if (boot->node->boot_clock_offset_ms == 0)
        return STATUS_OK;
    if (unshare(CLONE_NEWTIME) < 0)
        return error_system(err, "cannot create a time namespace");
    OWNED_FD int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    snprintf(text, sizeof(text), "monotonic %lld %lld\nboottime %lld %lld\n", s, ns, s, ns);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return error_system(err, "cannot set the clocks of node %s", boot->node->name);
    return STATUS_OK;
}

/* From here on what the node says goes to a log on its own volume. */
static enum status open_log(const struct node_boot *boot, struct error *err)
{
    OWNED_FD int fd =
        open(NODE_SYSTEM "/node.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    (void) boot;
    if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
        return error_system(err, "cannot open " NODE_SYSTEM "/node.log");
    return STATUS_OK;
}

static enum status (*const boot_steps[])(const struct node_boot *boot, struct error *err) = {
    join_cgroup, await_go, set_name, node_mount_all, network_up, advance_pids, set_clocks, open_log,
};

static void tell(const struct node_boot *boot, const char *text)
{
    if (send(boot->channel, text, strlen(text), MSG_NOSIGNAL) < 0)
        log_line(LOG_WARNING, "cannot tell the supervisor: %s", text);
}

static enum status boot_node(const struct node_boot *boot, pid_t host_pid, struct error *err)
{
    char text[32];

    for (size_t i = 0; i < sizeof(boot_steps) / sizeof(boot_steps[0]); i++) {
        enum status status = boot_steps[i](boot, err);
        if (status != STATUS_OK)
            return status;
    }
    snprintf(text, sizeof(text), "up %d", (int) host_pid);
    tell(boot, text);
    return STATUS_OK;
}

/* ---- the agent ---- */

const char *const *node_agent_argv(struct arena *arena, const struct lab_node *node,
                                   const char *program, const char *pki, const char *state)
{
    const char *argv[] = {
        program,
        "--node",
        node->name,
        "--listen",
        arena_printf(arena, "%s:%d", node->address, LAB_AGENT_PORT),
        "--ca",
        arena_printf(arena, "%s/ca.crt", pki),
        "--certificate",
        arena_printf(arena, "%s/%s.crt", pki, node->name),
        "--key",
        arena_printf(arena, "%s/%s.key", pki, node->name),
        "--state",
        state,
    };
    const char **copy = arena_array(arena, sizeof(argv) / sizeof(argv[0]) + 1, sizeof(char *));

    memcpy(copy, argv, sizeof(argv));
    return copy;
}

static void start_agent(void *argument)
{
    struct node *node = argument;
    struct error err = {0};
    const char *const *argv = node_agent_argv(node->arena, node->boot->node,
                                              NODE_PROGRAMS "/ordeald", NODE_PKI, NODE_AGENT);
    struct process_spec spec = {.argv = argv, .inherit_output = true};

    if (!node->agent_wanted || node->agent.pid > 0)
        return;
    if (process_start(&spec, &node->agent, &err) == STATUS_OK)
        return;
    log_error(&err);
    loop_at(node->loop, deadline_in_ms(RESTART_MS), start_agent, node);
}

static void reap(void *argument, int signal)
{
    struct node *node = argument;
    int wait_status = 0;

    (void) signal;
    for (pid_t pid = waitpid(-1, &wait_status, WNOHANG); pid > 0;
         pid = waitpid(-1, &wait_status, WNOHANG)) {
        if (pid != node->agent.pid)
            continue;
        log_line(LOG_WARNING, "the agent ended with wait status 0x%x and is started again",
                 (unsigned) wait_status);
        close(node->agent.pidfd);
        node->agent = (struct process){.pidfd = -1};
        loop_at(node->loop, deadline_in_ms(RESTART_MS), start_agent, node);
    }
}

static void on_channel(void *argument, short events)
{
    struct node *node = argument;
    char text[16] = "";

    (void) events;
    if (recv(node->boot->channel, text, sizeof(text) - 1, 0) <= 0) {
        loop_stop(node->loop); /* no supervisor, no node */
        return;
    }
    if (strcmp(text, "agent") == 0) {
        node->agent_wanted = true;
        start_agent(node);
    }
}

static enum status supervise(const struct node_boot *boot, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct node node = {.boot = boot, .arena = arena, .agent.pidfd = -1};
    enum status status = loop_new(&node.loop, err);

    if (status != STATUS_OK)
        return status;
    loop_on_signal(node.loop, SIGCHLD, reap, &node);
    loop_watch(node.loop, boot->channel, POLLIN, on_channel, &node);
    status = loop_run(node.loop, err);
    loop_free(node.loop);
    return status;
}

/* The pid that the host knows: /proc of the host says it for this process. */
static pid_t find_host_pid(int host_proc)
{
    char text[24] = "";

    return readlinkat(host_proc, "self", text, sizeof(text) - 1) > 0
               ? (pid_t) strtol(text, NULL, 10)
               : -1;
}

static int by_number(const void *one, const void *other)
{
    return *(const int *) one - *(const int *) other;
}

/* The supervisor's other descriptors: a client of it must not wait for this process to close. */
static void close_others(const struct node_boot *boot)
{
    int kept[] = {2, boot->channel, boot->host_proc, boot->system_image, boot->data_image};
    enum { KEPT = sizeof(kept) / sizeof(kept[0]) };

    qsort(kept, KEPT, sizeof(kept[0]), by_number);
    for (int i = 0; i < KEPT; i++) {
        unsigned low = kept[i] < 2 ? 3 : (unsigned) kept[i] + 1;
        unsigned high = i + 1 < KEPT ? (unsigned) kept[i + 1] - 1 : ~0U;

        if (kept[i] >= 2 && low <= high)
            close_range(low, high, 0);
    }
}

int node_main(void *argument)
{
    const struct node_boot *boot = argument;
    struct error err = {0};
    char text[NODE_MESSAGE_MAX];
    pid_t host_pid = find_host_pid(boot->host_proc);

    close_others(boot);
    title_set("ordeal-node %s/%s", boot->spec->name, boot->node->name);
    log_init(boot->node->name, LOG_INFO);
    if (boot_node(boot, host_pid, &err) == STATUS_OK && supervise(boot, &err) == STATUS_OK)
        return 0;
    log_error(&err);
    snprintf(text, sizeof(text), "error %s", err.message);
    tell(boot, text);
    return 1;
}
