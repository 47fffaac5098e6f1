/* SPDX-License-Identifier: MIT */
/*
 * Did the workload come back? A probe that keeps its connection may write again while no client of
 * the application can connect; an outage is over when its clients are served too.
 *
 *     workload_read(&workload, &outage);
 *     back = workload_return(&workload, &gap);
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_WORKLOAD_H
#define ORDEAL_ORCHESTRATOR_CHECKS_WORKLOAD_H

#include "orchestrator/checks/outage.h"

struct workload_client {
    uint32_t client;
    int64_t first_ns, last_ns; /* acknowledged; last: in the final history, 0: never */
};

struct workload {
    int64_t until_ns; /* it had work, or still tried */
    size_t count;
    struct workload_client *items; /* each that was ever acknowledged */
};

struct workload_return {
    size_t before, back; /* acknowledged before the gap, and of those again after it */
    bool looked;         /* the load went on so long that whoever can come back has */
};

/* Of an outage whose gaps were found. */
void workload_read(struct workload *workload, const struct outage *outage);
struct workload_return workload_return(const struct workload *workload, const struct gap *gap);

#endif
