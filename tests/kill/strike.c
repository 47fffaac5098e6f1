/* SPDX-License-Identifier: MIT */
#include "tests/kill/strike.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>

#include "lib/clock.h"
#include "topologies/lab/lab.h"

enum { NFT_MS = 5000, GONE_MS = 5000, BOOT_MS = 20000, AGAIN_MS = 10 };

static enum status kill_pid(pid_t pid, const char *who, struct error *err)
{
    if (pid <= 0)
        return error_set(err, STATUS_NOT_FOUND, "there is no %s to kill", who);
    return kill(pid, SIGKILL) == 0 ? STATUS_OK : error_system(err, "killing the %s", who);
}

static enum status strike_agent(struct rig *rig, struct process *orchestrator, struct error *err)
{
    struct family family;

    (void) orchestrator;
    look_family(&rig->place, &family);
    return kill_pid(family.agent, "agent", err);
}

static enum status strike_guardian(struct rig *rig, struct process *orchestrator, struct error *err)
{
    struct family family;

    (void) orchestrator;
    look_family(&rig->place, &family);
    return kill_pid(family.guardian, "guardian", err);
}

static enum status strike_both(struct rig *rig, struct process *orchestrator, struct error *err)
{
    struct family family;

    (void) orchestrator;
    look_family(&rig->place, &family);
    enum status status = kill_pid(family.agent, "agent", err);
    return status == STATUS_OK ? kill_pid(family.guardian, "guardian", err) : status;
}

static enum status strike_orchestrator(struct rig *rig, struct process *orchestrator,
                                       struct error *err)
{
    (void) rig, (void) err;
    process_kill(orchestrator);
    return STATUS_OK;
}

static enum status nft(const char *script, struct error *err)
{
    static const char *const argv[] = {"nft", "-f", "-", NULL};

    return process_run(&(struct process_spec){.argv = argv, .input = script, .timeout_ms = NFT_MS},
                       NULL, err);
}

/* At the orchestrator's end, so that nothing of it is on the node. */
static enum status strike_network(struct rig *rig, struct process *orchestrator, struct error *err)
{
    char script[640];
    int port = (int) rig->node->agent_port;

    (void) orchestrator;
    snprintf(script, sizeof script,
             "table inet kill_%s {\n"
             "chain out { type filter hook output priority -300; ip daddr %s tcp dport %d drop; }\n"
             "chain in { type filter hook input priority -300; ip saddr %s tcp sport %d drop; }\n"
             "}\n",
             rig->node->name, rig->node->address, port, rig->node->address, port);
    return nft(script, err);
}

/* A node whose init has just died is still being cleared away. */
static enum status boot(struct rig *rig, struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(BOOT_MS);
    enum status status;

    while ((status = lab_power(rig->lab, rig->node->name, "on", err)) != STATUS_OK) {
        if (deadline_passed(deadline_ns))
            return status;
        poll(NULL, 0, AGAIN_MS);
    }
    if (!place_find(&rig->place))
        return error_set(err, STATUS_NOT_FOUND, "%s is on and has no init", rig->node->name);
    return STATUS_OK;
}

static enum status strike_supervisor(struct rig *rig, struct process *orchestrator,
                                     struct error *err)
{
    struct process_id init;
    enum status status = process_identify(rig->place.root, &init, err);

    (void) orchestrator;
    if (status == STATUS_OK)
        status = kill_pid(rig->place.root, "init", err);
    if (status == STATUS_OK)
        status = process_wait_gone(init, deadline_in_ms(GONE_MS), err);
    return status == STATUS_OK ? boot(rig, err) : status;
}

static enum status strike_power(struct rig *rig, struct process *orchestrator, struct error *err)
{
    (void) orchestrator;
    enum status status = lab_power(rig->lab, rig->node->name, "cut", err);
    return status == STATUS_OK ? boot(rig, err) : status;
}

static const struct {
    const char *name;
    enum status (*strike)(struct rig *rig, struct process *orchestrator, struct error *err);
} victims[VICTIM_COUNT] = {
    [VICTIM_AGENT] = {"agent", strike_agent},
    [VICTIM_GUARDIAN] = {"guardian", strike_guardian},
    [VICTIM_BOTH] = {"both", strike_both},
    [VICTIM_ORCHESTRATOR] = {"orchestrator", strike_orchestrator},
    [VICTIM_NETWORK] = {"network", strike_network},
    [VICTIM_SUPERVISOR] = {"node's init", strike_supervisor},
    [VICTIM_POWER] = {"power cut", strike_power},
};

const char *victim_name(enum victim victim)
{
    return victims[victim].name;
}

enum status strike(struct rig *rig, enum victim victim, struct process *orchestrator,
                   struct error *err)
{
    enum status status = victims[victim].strike(rig, orchestrator, err);

    return status == STATUS_OK ? STATUS_OK
                               : error_context(err, "striking %s", victims[victim].name);
}

enum status strike_heal(const struct rig *rig, enum victim victim, struct error *err)
{
    char script[80];

    if (victim != VICTIM_NETWORK)
        return STATUS_OK;
    snprintf(script, sizeof script, "table inet kill_%s\ndelete table inet kill_%s\n",
             rig->node->name, rig->node->name);
    return nft(script, err);
}
