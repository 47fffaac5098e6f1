/* SPDX-License-Identifier: MIT */
/*
 * All nodes asked until they are as they were before, or until what differs has shown itself in
 * every look: what is just ending, and what comes and goes, is no residue.
 */
#ifndef ORDEAL_ORCHESTRATOR_RESIDUE_AUDIT_H
#define ORDEAL_ORCHESTRATOR_RESIDUE_AUDIT_H

#include "orchestrator/residue.h"
#include "topologies/cluster.h"

struct residue_audit {
    struct arena *arena;
    struct cluster *cluster;
    const struct topology *topology;
    const char *manager;  /* the HA driver */
    const json_t *before; /* object: a fingerprint a node; a node without one was not looked at */
    bool must_know;       /* and is then not confirmed clean, whatever it says now */
    /* Told of every fingerprint that is taken; may be NULL. */
    void (*taken)(void *argument, const char *node, const json_t *fingerprint);
    void *argument;
    /* Filled, one a node of the topology. */
    bool *clean;
    json_t **found; /* arrays of differences; the caller's */
    bool told;      /* some server told of the cluster as a whole */
};

void residue_audit(struct residue_audit *audit);
/* One method on all nodes at once but those with `skip[i]` (NULL: none). One request a node of the
 * topology, without a node's name for those left out; results are the caller's. */
struct cluster_request *residue_ask(const struct residue_audit *audit, const char *method,
                                    const json_t *params, const bool *skip);

#endif
