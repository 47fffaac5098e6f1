/* SPDX-License-Identifier: MIT */
/*
 * Steps of a run under way and their faults, one on each node of a step. Part of the insides of a
 * run, like engine_state.h, which includes this.
 */
#ifndef ORDEAL_ORCHESTRATOR_INJECTION_H
#define ORDEAL_ORCHESTRATOR_INJECTION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"
#include "lib/loop.h"
#include "topologies/ha/ha.h"
#include "topologies/topology.h"

struct engine;
struct step_run;

/* One fault on one node. */
struct injection {
    struct injection *next; /* of all of the run, newest first */
    struct step_run *run;
    const char *uid;
    const struct topology_node *node;             /* that it acts on */
    const struct topology_node *agent;            /* that executes it; its clock is f0's and f1's */
    json_t *params, *result, *witness, *standbys; /* owned; standbys: gaps before it */
    uint32_t timeline;                            /* of the primary before it, 0: there was none */
    size_t witnesses_open;
    loop_handle timer;
    bool able;      /* its node can do it: waits for the others, then for the disk */
    bool sent;      /* fault.inject went out: there may be something to undo */
    bool journaled; /* fault.injected or fault.failed */
    bool failed;    /* fault.failed: no skipped one */
    bool undoing, undone;
    bool over; /* counts no longer for its step */
};

enum step_state { STEP_IDLE, STEP_SCHEDULED, STEP_RUNNING, STEP_ENDED };

struct step_run {
    struct engine *engine;
    const struct step *step;
    size_t index;
    enum step_state state;
    int64_t due_ns, started_ns, ended_ns;
    loop_handle timer;
    size_t open;   /* injections that are not over */
    size_t asking; /* nodes that have not said whether they can do it */
    int surveys;   /* looks at the cluster so far */
};

void step_begin(void *argument);
void step_ended(struct step_run *run);
/* On this node, for this reason: never a pass of the step. */
void step_skip(struct step_run *run, const char *node, const char *reason);
void injection_start(struct step_run *run, const struct topology_node *node, json_t *params,
                     const struct ha_state *state);
void injection_undo(struct injection *injection);
/* The guardian said that it undid one. */
void injection_notified(struct engine *engine, const struct topology_node *node,
                        const json_t *params);
/* Blocking, at the end: everything that was sent and is not known to be undone. */
MUST_CHECK enum status injections_undo_all(struct engine *engine, struct error *err);

#endif
