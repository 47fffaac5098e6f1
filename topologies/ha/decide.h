/* SPDX-License-Identifier: MIT */
/*
 * What the runbook does about what it sees, once the clients' writes have stopped. Pure: a look at
 * the members, what is remembered, and a few facts of the moment give one decision with its reason.
 */
#ifndef ORDEAL_TOPOLOGIES_HA_DECIDE_H
#define ORDEAL_TOPOLOGIES_HA_DECIDE_H

#include "topologies/ha/elect.h"

enum decision {
    DECIDE_WAIT,     /* a failover would not help, or not yet */
    DECIDE_PROBE,    /* ask the primary for a commit that waits for its quorum, then decide again */
    DECIDE_FENCE,    /* `node` is a primary that was replaced */
    DECIDE_REFUSE,   /* a failover is called for, and could lose an acknowledged commit */
    DECIDE_FAIL_OVER /* fence the primary and promote */
};

enum probe {
    PROBE_NONE,
    PROBE_ACKNOWLEDGED, /* a commit was acknowledged by the quorum */
    PROBE_STUCK         /* it was not, in time */
};

struct facts {
    enum probe probe;
    int64_t starting_ms; /* for how long the primary's server was seen up without accepting */
    int64_t grace_ms;    /* how long that is taken for a restart after a crash */
    bool writes_known;   /* clients write and have stopped; false: nobody writes */
    bool allow_loss;
};

struct ruling {
    enum decision decision;
    const struct ha_member *node; /* whom it is about */
    char text[640];
};

void decide_failover(const struct memory *memory, const struct ha_state *state,
                     const struct facts *facts, struct ruling *ret_ruling);
/* A primary on an older timeline than the remembered one: it was replaced, and came back. */
const struct ha_member *decide_deposed(const struct memory *memory, const struct ha_state *state);
/* Its server is up, does not accept and is not frozen: it may be in crash recovery. */
bool decide_starting(const struct ha_member *member);
/* Members of the sets in force that could acknowledge: they accept, and follow. */
size_t decide_able(const struct memory *memory, const struct ha_state *state);

/* What brings a member back, one step at a time. */
enum repair {
    REPAIR_NOTHING,
    REPAIR_WAIT,
    REPAIR_POWER_ON,
    REPAIR_FENCE,
    REPAIR_START,
    REPAIR_POINT, /* let it stream from the primary */
    REPAIR_REWIND,
    REPAIR_REBUILD
};

/* What is remembered of a member that is being brought back. */
struct patient {
    const struct topology_node *node;
    bool deposed;     /* its data folder is that of a replaced primary */
    unsigned failed;  /* steps that failed, and starts, since another one worked */
    enum repair last; /* step that was taken last since it last followed */
    int64_t since_ms; /* how long ago that was, or since it last moved forward */
};

/*
 * `primary` is NULL while there is none: then only what needs none is done. A rewind and a rebuild
 * stop the server before and start it after. A step is given `patience_ms` to show an effect; after
 * that the next harder one is taken: start, rewind, rebuild. `has_power`: the node is not
 * connected, and can be powered on.
 */
enum repair repair_next(const struct patient *patient, const struct ha_member *member,
                        const struct ha_member *primary, bool has_power, int64_t patience_ms);
/* "start", "rewind" ... */
const char *repair_name(enum repair repair);

#endif
