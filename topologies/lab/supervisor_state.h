/* SPDX-License-Identifier: MIT */
/*
 * State of the supervisor, shared by its three files: supervisor.c (life), supervisor_control.c
 * (requests), supervisor_power.c (nodes that come and go).
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_SUPERVISOR_STATE_H
#define ORDEAL_TOPOLOGIES_LAB_SUPERVISOR_STATE_H

#include "lib/loop.h"
#include "lib/process.h"
#include "topologies/lab/lab.h"

enum slot_state { SLOT_OFF, SLOT_BOOTING, SLOT_ON, SLOT_STOPPING };

struct supervisor;

/* A node's place. One change at a time; its client waits for the answer. */
struct slot {
    struct supervisor *supervisor;
    const struct lab_node *node;
    enum slot_state state;
    struct process init; /* pid 0: none */
    pid_t host_pid;
    int channel; /* to the node's init, or -1 */
    loop_handle channel_watch, timer;
    int64_t boot_count, since_ns, deadline_ns;
    bool start_agent;     /* as soon as it has booted */
    int client;           /* waits for the change, or -1 */
    struct error failure; /* why the boot that is being cleared away failed */
};

struct supervisor {
    const struct lab_spec *spec;
    const struct lab_programs *programs;
    struct arena *arena;
    struct loop *loop;
    int host_proc, listener;
    int64_t started_ns;
    size_t slot_count;
    struct slot *slots;
    const struct lab_node *power_node;
    struct process power_agent;
    bool power_agent_wanted;
};

struct slot *supervisor_slot(struct supervisor *supervisor, const char *node);
const char *slot_state_name(enum slot_state state);
/* Answers `client` at once or later and closes it. */
void slot_boot(struct slot *slot, bool start_agent, int client);
void slot_stop(struct slot *slot, bool cut, int client);
/* A child ended: true when it was this slot's init. */
bool slot_reaped(struct slot *slot, pid_t pid);
MUST_CHECK enum status slot_agent(struct slot *slot, struct error *err);
void power_agent_start(void *argument); /* the supervisor, as a timer gives it */

MUST_CHECK enum status control_listen(struct supervisor *supervisor, struct error *err);
/* Send, then close the client; -1 is nobody. `result` is given away and may be NULL. */
void control_answer(int client, json_t *result);
void control_refuse(int client, const struct error *err);

#endif
