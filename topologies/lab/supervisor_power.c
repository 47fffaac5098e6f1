/* SPDX-License-Identifier: MIT */
/* Nodes that boot and lose their power. Nothing here waits: the loop comes back every few ms. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/namespace.h"
#include "lib/owned.h"
#include "topologies/lab/node.h"
#include "topologies/lab/state.h"
#include "topologies/lab/supervisor_state.h"
#include "topologies/lab/switch.h"
#include "topologies/lab/volume.h"

enum { BOOT_TIMEOUT_MS = 30000, STOP_TIMEOUT_MS = 120000, LOOK_AGAIN_MS = 5 };

static const char *const state_names[] = {
    [SLOT_OFF] = "off", [SLOT_BOOTING] = "booting", [SLOT_ON] = "on", [SLOT_STOPPING] = "stopping"};

const char *slot_state_name(enum slot_state state)
{
    return state_names[state];
}

struct slot *supervisor_slot(struct supervisor *supervisor, const char *node)
{
    for (size_t i = 0; i < supervisor->slot_count; i++)
        if (strcmp(supervisor->slots[i].node->name, node) == 0)
            return &supervisor->slots[i];
    return NULL;
}

/* The change is over: tell who asked for it. */
static void finish(struct slot *slot, enum slot_state state)
{
    int client = slot->client;

    loop_remove(slot->supervisor->loop, slot->timer);
    slot->timer = 0;
    slot->client = -1;
    slot->state = state;
    slot->since_ns = clock_boot_ns();
    log_line(LOG_INFO, "node %s is %s", slot->node->name, slot_state_name(state));
    if (slot->failure.code != STATUS_OK)
        control_refuse(client, &slot->failure);
    else
        control_answer(client, json_pack("{s:I, s:i}", "done_ns", (json_int_t) slot->since_ns,
                                         "pid", (int) slot->host_pid));
    slot->failure = (struct error){0};
}

static void close_channel(struct slot *slot)
{
    loop_remove(slot->supervisor->loop, slot->channel_watch);
    slot->channel_watch = 0;
    owned_close_fd(&slot->channel);
    slot->channel = -1;
}

/* ---- off ---- */

/* What is still there of a node without power; NULL when nothing is. */
static const char *what_is_left(struct slot *slot)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *lab = slot->supervisor->spec->name, *node = slot->node->name;
    int loops = 0;

    /* Deadline 0: kill and thaw once more, and look. The init cannot end before the others have. */
    enum status killed = cgroup_kill(lab_cgroup(arena, lab, node, NULL), 0, NULL);
    if (slot->init.pid > 0 || killed != STATUS_OK)
        return "processes";
    if (volume_count_loops(lab_path(arena, lab, node), &loops, NULL) != STATUS_OK || loops > 0)
        return "loop devices";
    if (switch_has(node) && switch_remove(node, NULL) != STATUS_OK)
        return "its link";
    return NULL;
}

static void look_for_rest(void *argument)
{
    struct slot *slot = argument;
    const char *left = what_is_left(slot);

    if (left == NULL) {
        slot->host_pid = 0;
        finish(slot, SLOT_OFF);
    } else if (slot->client >= 0 && deadline_passed(slot->deadline_ns)) {
        struct error err = {0};

        error_set(&err, STATUS_TIMEOUT, "%s of node %s are still there after %d s", left,
                  slot->node->name, STOP_TIMEOUT_MS / 1000);
        control_refuse(slot->client, &err);
        slot->client = -1;
    }
}

/*
 * From here on the node is dead. Frozen processes die only when thawed, and the init cannot end
 * before they have: so kill first, then thaw (cgroup_kill() does), again and again.
 */
static void take_life(struct slot *slot)
{
    slot->state = SLOT_STOPPING;
    slot->deadline_ns = deadline_in_ms(STOP_TIMEOUT_MS);
    close_channel(slot);
    if (slot->init.pid > 0)
        syscall(SYS_pidfd_send_signal, slot->init.pidfd, SIGKILL, NULL, 0);
    loop_remove(slot->supervisor->loop, slot->timer);
    slot->timer = loop_every(slot->supervisor->loop, LOOK_AGAIN_MS, look_for_rest, slot);
    look_for_rest(slot);
}

static enum status cut_volumes(const struct slot *slot, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *root = arena_printf(arena, "/proc/%d/root", (int) slot->init.pid);
    enum status status = STATUS_OK;

    if (slot->node->data_bytes > 0)
        status = volume_cut(arena_printf(arena, "%s" NODE_DATA, root), err);
    if (status == STATUS_OK)
        status = volume_cut(arena_printf(arena, "%s" NODE_SYSTEM, root), err);
    return status;
}

void slot_stop(struct slot *slot, bool cut, int client)
{
    struct error err = {0};
    enum status status = STATUS_OK;

    if (slot->state == SLOT_OFF) {
        control_answer(client,
                       json_pack("{s:I, s:i}", "done_ns", (json_int_t) slot->since_ns, "pid", 0));
        return;
    }
    if (slot->state != SLOT_ON) {
        error_set(&err, STATUS_CONFLICT, "node %s is %s", slot->node->name,
                  slot_state_name(slot->state));
        control_refuse(client, &err);
        return;
    }
    /* A dead host sends no FIN: the link goes first. */
    status = switch_unplug(slot->node->name, &err);
    if (status == STATUS_OK && cut)
        status = cut_volumes(slot, &err);
    if (status != STATUS_OK) {
        /* Half done is worse than off: go on, and say that it was not what was asked for. */
        slot->failure = err;
    }
    slot->client = client;
    take_life(slot);
}

/* ---- on ---- */

static void boot_failed(struct slot *slot, const struct error *err)
{
    log_error(err);
    slot->failure = *err;
    take_life(slot);
}

static void boot_too_slow(void *argument)
{
    struct slot *slot = argument;
    struct error err = {0};

    slot->timer = 0;
    error_set(&err, STATUS_TIMEOUT, "node %s did not boot within %d s", slot->node->name,
              BOOT_TIMEOUT_MS / 1000);
    boot_failed(slot, &err);
}

enum status slot_agent(struct slot *slot, struct error *err)
{
    if (slot->state != SLOT_ON)
        return error_set(err, STATUS_CONFLICT, "node %s is %s", slot->node->name,
                         slot_state_name(slot->state));
    if (send(slot->channel, "agent", 5, MSG_NOSIGNAL) != 5)
        return error_system(err, "cannot tell node %s to start its agent", slot->node->name);
    return STATUS_OK;
}

static void has_booted(struct slot *slot, const char *pid)
{
    slot->host_pid = (pid_t) strtol(pid, NULL, 10);
    slot->state = SLOT_ON;
    if (slot->start_agent && slot_agent(slot, &slot->failure) != STATUS_OK)
        log_error(&slot->failure);
    finish(slot, SLOT_ON);
}

static void on_channel(void *argument, short events)
{
    struct slot *slot = argument;
    char text[NODE_MESSAGE_MAX] = "";
    struct error err = {0};

    (void) events;
    ssize_t length = recv(slot->channel, text, sizeof(text) - 1, MSG_DONTWAIT);
    if (length > 0 && strncmp(text, "up ", 3) == 0) {
        has_booted(slot, text + 3);
        return;
    }
    error_set(&err, STATUS_FAILED, "node %s: %s", slot->node->name,
              strncmp(text, "error ", 6) == 0 ? text + 6 : "its init ended");
    boot_failed(slot, &err);
}

static enum status open_image(const struct slot *slot, const char *volume, int *ret_fd,
                              struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *below = arena_printf(arena, "%s/%s.img", slot->node->name, volume);
    const char *path = lab_path(arena, slot->supervisor->spec->name, below);
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return error_system(err, "cannot open %s", path);
    *ret_fd = fd;
    return STATUS_OK;
}

static enum status open_images(const struct slot *slot, struct node_boot *boot, struct error *err)
{
    enum status status = open_image(slot, "system", &boot->system_image, err);

    if (status == STATUS_OK && slot->node->data_bytes > 0)
        status = open_image(slot, "data", &boot->data_image, err);
    return status;
}

static enum status fork_init(struct slot *slot, struct node_boot *boot, struct error *err)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return error_system(err, "cannot make a socket pair");
    boot->channel = ends[1];
    enum status status = open_images(slot, boot, err);
    if (status == STATUS_OK)
        status = namespace_fork(NAMESPACE_HOST, node_main, boot, &slot->init, err);
    owned_close_fd(&boot->system_image);
    owned_close_fd(&boot->data_image);
    close(ends[1]);
    slot->channel = ends[0]; /* closed with the slot's change, whatever comes */
    return status;
}

static enum status start_init(struct slot *slot, struct error *err)
{
    const struct supervisor *supervisor = slot->supervisor;
    struct node_boot boot = {.spec = supervisor->spec,
                             .node = slot->node,
                             .agent = supervisor->programs->agent,
                             .system_image = -1,
                             .data_image = -1,
                             .host_proc = supervisor->host_proc,
                             .boot_count = ++slot->boot_count};
    enum status status = fork_init(slot, &boot, err);

    if (status == STATUS_OK)
        status = switch_connect(slot->node->name, slot->node->address, slot->init.pid, err);
    if (status == STATUS_OK && send(slot->channel, "go", 2, MSG_NOSIGNAL) != 2)
        status = error_system(err, "cannot tell node %s to boot", slot->node->name);
    return status;
}

void slot_boot(struct slot *slot, bool start_agent, int client)
{
    struct loop *loop = slot->supervisor->loop;
    struct error err = {0};

    if (slot->state == SLOT_ON) {
        control_answer(client, json_pack("{s:I, s:i}", "done_ns", (json_int_t) slot->since_ns,
                                         "pid", (int) slot->host_pid));
        return;
    }
    if (slot->state != SLOT_OFF) {
        error_set(&err, STATUS_CONFLICT, "node %s is %s", slot->node->name,
                  slot_state_name(slot->state));
        control_refuse(client, &err);
        return;
    }
    slot->state = SLOT_BOOTING;
    slot->client = client;
    slot->start_agent = start_agent;
    if (start_init(slot, &err) != STATUS_OK) {
        boot_failed(slot, &err);
        return;
    }
    slot->channel_watch = loop_watch(loop, slot->channel, POLLIN, on_channel, slot);
    slot->timer = loop_at(loop, deadline_in_ms(BOOT_TIMEOUT_MS), boot_too_slow, slot);
}

bool slot_reaped(struct slot *slot, pid_t pid)
{
    if (slot->init.pid != pid)
        return false;
    close(slot->init.pidfd);
    slot->init = (struct process){.pidfd = -1};
    return true;
}
