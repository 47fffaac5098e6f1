/* SPDX-License-Identifier: MIT */
/*
 * The orchestrator's side of the agents: one connection a node, heartbeats that renew leases and
 * measure clock offsets, calls and notifications.
 *
 * One thread of control runs blocking-looking code (an HA runbook, a recovery) on top of the poll
 * loop: cluster_call() turns the loop until the answer is there, so that heartbeats, timers of
 * scenario steps and the live view go on meanwhile. Callbacks (timers, cluster_post() answers,
 * notifications) must not call a blocking function of this file; they may post.
 *
 * A method that works long answers with a job; cluster_call() and cluster_post() hide that and
 * give the job's result. A lost connection is dialled again for as long as the cluster is open.
 */
#ifndef ORDEAL_TOPOLOGIES_CLUSTER_H
#define ORDEAL_TOPOLOGIES_CLUSTER_H

#include <jansson.h>
#include <stdint.h>

#include "lib/error.h"
#include "lib/loop.h"
#include "topologies/topology.h"

struct cluster;

struct cluster_events {
    void (*notification)(void *argument, const struct topology_node *node, const char *method,
                         const json_t *params);
    /* Connected (and session opened) or lost; `reason` is set when lost. */
    void (*connection)(void *argument, const struct topology_node *node, bool connected,
                       const struct error *reason);
    /* A better estimate of a node's clock: node clock = ours + offset, +- error. */
    void (*clock)(void *argument, const struct topology_node *node, int64_t offset_ns,
                  int64_t error_ns);
};

struct cluster_options {
    const char *run;
    int64_t lease_ms, heartbeat_ms; /* defaults in docs/formats.md */
    /*
     * Only to look and to undo (fault.list, recover), beside whatever run holds the nodes: no
     * session is opened, nothing is renewed, other methods are refused by the agents.
     */
    bool no_session;
    struct cluster_events events;
    void *argument;
};

/* Enters the topology's network namespace, dials every node; returns at once. */
MUST_CHECK enum status cluster_new(const struct topology *topology,
                                   const struct cluster_options *options,
                                   struct cluster **ret_cluster, struct error *err);
void cluster_free(struct cluster *cluster); /* closes sessions; leases lapse if any are left */
struct loop *cluster_loop(struct cluster *cluster);
/* The run id that was given: member `run` of the methods that change a node. Never added by calls.
 */
const char *cluster_run(const struct cluster *cluster);
/* Wait until every node (or the one named) is connected; the error names those that are not. */
MUST_CHECK enum status cluster_wait_connected(struct cluster *cluster, const char *node,
                                              int64_t deadline_ns, struct error *err);
bool cluster_connected(const struct cluster *cluster, const char *node);
/* STATUS_NOT_FOUND while there is no estimate. */
MUST_CHECK enum status cluster_clock(const struct cluster *cluster, const char *node,
                                     int64_t *ret_offset_ns, int64_t *ret_error_ns,
                                     struct error *err);

/* Takes `params` (NULL: {}). `ret_result` may be NULL. */
MUST_CHECK enum status cluster_call(struct cluster *cluster, const char *node, const char *method,
                                    json_t *params, int64_t timeout_ms, json_t **ret_result,
                                    struct error *err);

struct cluster_request {
    const char *node, *method;
    json_t *params; /* taken */
    int64_t timeout_ms;
    enum status status; /* filled, with result or error */
    json_t *result;
    struct error error;
};
/* All at the same time; returns when each has an answer or its deadline passed. */
void cluster_call_all(struct cluster *cluster, struct cluster_request *requests, size_t count);
/* Start one; `done` is called once, from the loop. `result` is borrowed. */
void cluster_post(struct cluster *cluster, const char *node, const char *method, json_t *params,
                  int64_t timeout_ms,
                  void (*done)(void *argument, enum status status, const json_t *result,
                               const struct error *error),
                  void *argument);
/* Turn the loop until `done` says so; STATUS_TIMEOUT at the deadline. */
MUST_CHECK enum status cluster_wait(struct cluster *cluster, bool (*done)(void *argument),
                                    void *argument, int64_t deadline_ns, struct error *err);
/*
 * From a signal or stop condition: every blocking call, waiting or to come, returns
 * STATUS_ABORTED with this reason until cluster_shield() says that cleaning up has begun.
 */
void cluster_abort(struct cluster *cluster, const struct error *reason);
void cluster_shield(struct cluster *cluster);
/* What is waited for from here on is not cleaning up: after an abort it fails again. */
void cluster_unshield(struct cluster *cluster);

#endif
