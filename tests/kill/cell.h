/* SPDX-License-Identifier: MIT */
/*
 * One entry of the table: a fault is injected, held at a moment of its life, somebody dies there,
 * and the rest goes on. Within the lease and a second the node must look as before.
 */
#ifndef ORDEAL_TESTS_KILL_CELL_H
#define ORDEAL_TESTS_KILL_CELL_H

#include "faults/fault.h"
#include "tests/kill/gate.h"
#include "tests/kill/look.h"
#include "topologies/topology.h"

enum { KILL_GRACE_MS = 1000 }; /* beyond the lease */

enum victim {
    VICTIM_AGENT,
    VICTIM_GUARDIAN,
    VICTIM_BOTH,
    VICTIM_ORCHESTRATOR,
    VICTIM_NETWORK,    /* between orchestrator and agent */
    VICTIM_SUPERVISOR, /* the node's init: everything on the node goes with it, disks are kept */
    VICTIM_POWER,      /* of the node, cut: what was not synced is gone */
    VICTIM_COUNT
};

const char *victim_name(enum victim victim);

struct moment {
    const char *name;
    const char *point; /* of lib/kill_point.h, NULL: the fault holds */
    int nth;           /* which arrival at the point */
    bool holding_only; /* an instant has no such moment */
    bool of_undo;      /* an instant comes there only when it was cut short */
};

/* What one worker works on. */
struct rig {
    const struct topology *topology;
    const char *lab, *folder;         /* the lab's name; where the programs with kill points lie */
    const struct topology_node *node; /* whose agent carries out the faults */
    struct place place;
    struct place target; /* of power faults: the node that is taken away; node NULL: none */
    const char *target_address;
    /* as it was before the first fault */
    char *whole;
    json_t *fingerprint;
};

MUST_CHECK enum status rig_learn(struct rig *rig, struct error *err);
void rig_forget(struct rig *rig);

struct cell {
    const struct fault *fault;
    const char *params; /* JSON */
    const struct moment *moment;
    enum victim victim;
    int number;
};

/*
 * STATUS_OK: clean, after that time. STATUS_TIMEOUT: clean, and too late. Anything else says what
 * was found.
 */
MUST_CHECK enum status cell_run(struct rig *rig, const struct cell *cell, int64_t *ret_ms,
                                struct error *err);

#endif
