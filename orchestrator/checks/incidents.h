/* SPDX-License-Identifier: MIT */
/*
 * What a run's faults did to its writes, one by one: the gaps that are worth a verdict, each with
 * the fault that it counts from. A run may hold several, and each is held against the bound.
 *
 *     incidents_find(&incidents, record, &faults, &history, floor_ns, arena);
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_INCIDENTS_H
#define ORDEAL_ORCHESTRATOR_CHECKS_INCIDENTS_H

#include "orchestrator/checks/outage.h"

struct incident {
    struct gap gap;                     /* measured */
    const struct evidence_fault *fault; /* that times count from; NULL: no fault before it */
    bool failover;                      /* the timeline changed */
    bool again;                         /* and the fault had its failover before */
    int64_t time_ns; /* of the failover: first acknowledgement minus f0; -1 without one */
};

struct incidents {
    struct outage outage;
    size_t count;
    struct incident
        *items; /* in time: all failovers, gaps of at least `floor_ns`, the longest one */
    const struct incident *longest;  /* NULL when nothing was acknowledged */
    uint32_t old_timeline, timeline; /* before the first fault; of the final primary */
    bool
        branches_unknown; /* several timelines were acknowledged, and which ones count is unknown */
};

void incidents_find(struct incidents *incidents, const struct record *record,
                    const struct evidence_faults *faults, const struct evidence_history *history,
                    int64_t floor_ns, struct arena *arena);
/* Is one of the failovers that of this fault? */
bool incidents_followed(const struct incidents *incidents, const struct evidence_fault *fault);

#endif
