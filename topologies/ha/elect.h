/* SPDX-License-Identifier: MIT */
/*
 * Who is promoted, and whether that can lose an acknowledged commit. Pure.
 */
#ifndef ORDEAL_TOPOLOGIES_HA_ELECT_H
#define ORDEAL_TOPOLOGIES_HA_ELECT_H

#include "topologies/ha/memory.h"
#include "topologies/ha/quorum.h"

struct candidate {
    const struct ha_member *member;
    bool vote; /* it certainly holds all that it acknowledged, and can acknowledge no more */
};

struct election {
    size_t count;
    struct candidate *candidates;   /* standbys that accept, best first */
    const struct ha_member *chosen; /* the best, or NULL: there is none */
    bool safe;                      /* no acknowledged commit can be lost */
    size_t needed, heard;           /* of the sync set that lacks most; QUORUM_IMPOSSIBLE: any */
    const char *set;                /* that set */
    char reason[512];               /* why it is not safe, or why nobody is chosen; else "" */
};

/*
 * Of a look at the members. `stopped` says by member (state's order) whether its walreceiver was
 * stopped; NULL: they will be. `fenced`: the old primary is or will be fenced, so that no standby
 * can acknowledge more to it; without that only a stopped walreceiver makes a vote.
 *
 * Best: highest timeline, then highest position written to disk or replayed, then first by name.
 * Safe: of every set that was in force, N - k + 1 members have a vote (quorum_needed()).
 */
void elect_best(const struct memory *memory, const struct ha_state *state, const bool *stopped,
                bool fenced, struct election *ret_election);
/*
 * Has each standby's position come to rest? A position that was received has, once the receiver
 * is stopped; one that is only replayed (after a restart the received one starts anew) has when
 * two looks give the same.
 */
bool elect_settled(const struct ha_state *before, const struct ha_state *now);

#endif
