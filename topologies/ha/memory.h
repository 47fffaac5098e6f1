/* SPDX-License-Identifier: MIT */
/*
 * What the operator of a manual failover must have known before the primary was lost: who it was,
 * every sync set that was in force under it, and which members held everything at some moment and
 * have not been replaced since. All of it comes from earlier looks at the healthy cluster; none of
 * it can be asked afterwards.
 *
 * A member has a vote when its data folder (incarnation) was seen to hold all that the primary had
 * written at an earlier look: from then on it still holds every commit that it acknowledged, and
 * what it acknowledged before lies below. A member that was erased or rebuilt has none until it
 * has caught up in the same way; nobody has one after a change of the primary.
 *
 * Pure: reads answers that were given, asks nobody.
 */
#ifndef ORDEAL_TOPOLOGIES_HA_MEMORY_H
#define ORDEAL_TOPOLOGIES_HA_MEMORY_H

#include "topologies/ha/ha.h"

enum { INCARNATION_SIZE = 96 };

struct voter {
    const struct topology_node *node;
    char incarnation[INCARNATION_SIZE]; /* that has the vote; "" for none */
    char seen[INCARNATION_SIZE];        /* of the last look */
    uint64_t mark_lsn; /* where the primary was after `seen` was first seen; 0: not known yet */
};

struct memory {
    struct arena *arena; /* owns what is below */
    const struct topology_node *primary;
    uint32_t timeline;
    char incarnation[INCARNATION_SIZE]; /* of the primary's data folder */
    size_t set_count;
    const char **sets; /* different values of synchronous_standby_names under this primary */
    const char *weak;  /* a synchronous_commit that does not wait for a flush, if one was seen */
    size_t count;
    struct voter *voters; /* the database nodes, in order */
};

/* Forget all but the nodes; the primary of `state` (a member that accepts) is the one from now. */
void memory_begin(struct memory *memory, struct arena *arena, const struct ha_state *state,
                  const struct ha_member *primary);
/* A later look. Learns nothing unless the remembered primary accepts on its timeline. */
void memory_learn(struct memory *memory, const struct ha_state *state);
/* Does this member, as it is seen now, have a vote? */
bool memory_votes(const struct memory *memory, const struct ha_member *member);
/* Take a member's vote away: its data folder is about to be changed. */
void memory_distrust(struct memory *memory, const struct topology_node *node);
/* True when every member but the primary has a vote; else the first one without is named. */
bool memory_complete(const struct memory *memory, const struct ha_state *state,
                     const char **ret_missing);
const struct ha_member *memory_member(const struct ha_state *state,
                                      const struct topology_node *node);

#endif
