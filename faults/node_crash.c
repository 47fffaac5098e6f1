/* SPDX-License-Identifier: MIT */
/*
 * node.crash: everything on a node ends at once, and nobody is told.
 *
 * It runs on the power agent, since nothing on the node survives to keep a lease: when the lease
 * lapses, the guardian of the power agent boots the node again. The topology's power driver does
 * it: "off" or, with cut, the loss of what was not flushed to the disk as well; "on" is the undo.
 *
 * Any answer of the node's kernel, also a refusal, says that it lives; silence on all ports says
 * that it is gone.
 */
#include <string.h>

#include "faults/fault.h"
#include "faults/needs.h"
#include "faults/tcp_probe.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/kill_point.h"

enum { PROBE_MS = 300 };

static const struct param params[] = {
    {.name = "node",
     .type = PARAM_STRING,
     .help = "the node that crashes; filled in from the step's target"},
    {.name = "cut",
     .type = PARAM_BOOLEAN,
     .fallback = "no",
     .help = "a power cut: pages that were not flushed to the disk are lost"},
    {0},
};

/* A record, read. */
struct crash {
    const char *node, *address, *word;
    int agent_port, database_port; /* database_port 0: none */
};

static enum status read_record(const json_t *record, struct crash *crash, struct error *err)
{
    *crash = (struct crash){
        .node = json_text(record, "node", ""),
        .address = json_text(record, "address", ""),
        .word = json_text(record, "word", ""),
        .agent_port = (int) json_number(record, "agent_port", 0),
        .database_port = (int) json_number(record, "database_port", 0),
    };
    if (crash->node[0] == '\0')
        return error_set(err, STATUS_INVALID, "record: no node");
    if (tcp_address_family(crash->address) == 0)
        return error_set(err, STATUS_INVALID, "node %s: not an address in numbers: \"%s\"",
                         crash->node, crash->address);
    if (strcmp(crash->word, "off") != 0 && strcmp(crash->word, "cut") != 0)
        return error_set(err, STATUS_INVALID, "record: word is neither off nor cut: \"%s\"",
                         crash->word);
    return STATUS_OK;
}

static enum status needs_power(const struct fault_context *context, struct error *err)
{
    if (context->power != NULL)
        return STATUS_OK;
    error_set(err, STATUS_UNSUPPORTED, "node %s has no power driver", context->node);
    error_hint(err, "Declare power: {off, cut, on} and a node with the role \"power\" in the "
                    "topology.");
    return STATUS_UNSUPPORTED;
}

static enum status supported(const struct fault_context *context, const json_t *values,
                             struct error *err)
{
    const char *node = json_text(values, "node", NULL);
    enum status status = needs_power(context, err);

    if (status != STATUS_OK || node == NULL)
        return status;
    if (strcmp(node, context->node) == 0)
        return error_set(err, STATUS_REFUSED,
                         "%s is the power agent itself: nobody would switch it on again", node);
    return STATUS_OK;
}

/* The better of the answers of both ports. */
static enum status call_node(const struct crash *crash, enum tcp_outcome *ret_outcome,
                             struct error *err)
{
    struct tcp_probe probes[] = {{.address = crash->address, .port = crash->agent_port},
                                 {.address = crash->address, .port = crash->database_port}};
    enum status status = tcp_probe_all(probes, crash->database_port > 0 ? 2 : 1, PROBE_MS, err);

    if (status == STATUS_OK)
        *ret_outcome =
            probes[0].outcome > probes[1].outcome ? probes[0].outcome : probes[1].outcome;
    return status;
}

static bool is_alive(enum tcp_outcome outcome)
{
    return outcome == TCP_CONNECTED || outcome == TCP_REFUSED;
}

/* A node that is silent already would count as crashed, and the undo would switch it on. */
static enum status must_be_alive(const struct crash *crash, struct error *err)
{
    enum tcp_outcome outcome = TCP_SILENT;
    enum status status = call_node(crash, &outcome, err);

    if (status == STATUS_OK && !is_alive(outcome))
        status =
            error_set(err, STATUS_REFUSED, "node %s does not answer at %s (%s): it is down already",
                      crash->node, crash->address, tcp_outcome_name(outcome));
    return status;
}

static enum status prepare(const struct fault_context *context, const json_t *values,
                           json_t **ret_record, struct error *err)
{
    const char *node = json_text(values, "node", NULL);
    enum status status = supported(context, values, err);
    struct crash crash;

    if (status != STATUS_OK)
        return status;
    if (node == NULL)
        return error_set(err, STATUS_INVALID, "node: not given");
    const char *address = context_address(context, node);
    if (address == NULL)
        return error_set(err, STATUS_INVALID, "node: the topology has no node \"%s\"", node);
    json_t *record =
        json_pack("{s:s, s:s, s:s, s:i, s:i}", "node", node, "address", address, "word",
                  json_flag(values, "cut", false) ? "cut" : "off", "agent_port",
                  context->control_port, "database_port", context->database_port);
    status = read_record(record, &crash, err);
    if (status == STATUS_OK)
        status = must_be_alive(&crash, err);
    if (status == STATUS_OK)
        *ret_record = json_incref(record);
    json_decref(record);
    return status;
}

static enum status inject(const struct fault_context *context, const json_t *record,
                          struct error *err)
{
    struct crash crash;
    enum status status = read_record(record, &crash, err);

    if (status == STATUS_OK)
        status = needs_power(context, err);
    if (status == STATUS_OK)
        status =
            context->power(context->argument, crash.word, crash.node, context->deadline_ns, err);
    KILL_POINT("inside-inject");
    return status;
}

/*
 * The driver is always asked, also when the node answers: a slow "off" may still be on its way, and
 * the driver carries out one word after the other. Then until the node's kernel answers, which is
 * before its agent does.
 */
static enum status undo(const struct fault_context *context, const json_t *record,
                        struct error *err)
{
    enum tcp_outcome outcome = TCP_SILENT;
    struct crash crash;
    enum status status = read_record(record, &crash, err);

    if (status == STATUS_OK)
        status = needs_power(context, err);
    if (status == STATUS_OK)
        status = context->power(context->argument, "on", crash.node, context->deadline_ns, err);
    KILL_POINT("inside-undo");
    if (status == STATUS_OK)
        status = call_node(&crash, &outcome, err);
    while (status == STATUS_OK && !is_alive(outcome)) {
        if (deadline_passed(context->deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "node %s is on and does not answer at %s (%s)",
                             crash.node, crash.address, tcp_outcome_name(outcome));
        status = call_node(&crash, &outcome, err);
    }
    return status;
}

/* Asked by the power agent and, as witness, by any other node: the same question. */
static enum status observe(const struct fault_context *context, const json_t *record,
                           struct observation *ret_observation, struct error *err)
{
    enum tcp_outcome outcome = TCP_SILENT;
    struct crash crash;
    enum status status = read_record(record, &crash, err);

    if (status == STATUS_OK)
        status = call_node(&crash, &outcome, err);
    if (status != STATUS_OK)
        return status;
    observation_set(ret_observation, is_alive(outcome) ? EFFECT_ABSENT : EFFECT_ACTIVE,
                    json_pack("{s:s}", "connect", tcp_outcome_name(outcome)),
                    "node %s, called from %s at %s: %s", crash.node, context->node, crash.address,
                    tcp_outcome_name(outcome));
    return STATUS_OK;
}

static enum status witness(const struct fault_context *context, const json_t *record,
                           struct observation *ret_observation, struct error *err)
{
    if (strcmp(json_text(record, "node", ""), context->node) != 0)
        return observe(context, record, ret_observation, err);
    observation_set(ret_observation, EFFECT_ABSENT, NULL, "node %s itself was asked and answers",
                    context->node);
    return STATUS_OK;
}

const struct fault fault_node_crash = {
    .abi = FAULT_ABI,
    .name = "node.crash",
    .summary = "everything on a node ends at once, through the topology's power driver",
    .executor = EXECUTE_POWER,
    .holds = true,
    .reversible = false,
    .restores = "power on, then rejoin through the HA layer",
    .loses = "all sessions of the node and their transactions in flight; with cut also pages that "
             "were not flushed to the disk",
    .excludes = "power",
    .params = params,
    .supported = supported,
    .prepare = prepare,
    .inject = inject,
    .observe = observe,
    .undo = undo,
    .witness = witness,
};
