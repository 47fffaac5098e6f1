/* SPDX-License-Identifier: MIT */
/*
 * The page that the agent shares with its load workers: orders one way, live counters the other.
 *
 * Every field has one writer. Counters are for people and for the run engine's live view; what is
 * judged stands in the ledgers.
 */
#ifndef ORDEAL_AGENTS_LOAD_SHARED_H
#define ORDEAL_AGENTS_LOAD_SHARED_H

#include <stdatomic.h>
#include <stdint.h>

#include "agents/load/plan.h"
#include "lib/histogram.h"

struct load_counters { /* written by one worker */
    _Atomic uint64_t acked, errors;
    _Atomic int64_t last_ack_ns;
    _Atomic uint64_t writer; /* of that acknowledgement: (node + 1) << 32 | timeline; 0: none */
    _Atomic uint32_t in_flight;
    _Atomic int64_t blind_ns; /* time for which it was too late to see anything */
    struct histogram latency; /* of acknowledged transactions, from their scheduled start, us */
    _Atomic bool complete;    /* the ledger has its END and is on the disk */
    char error[1024];         /* why it is not; written before the worker exits */
    char problem[1024];       /* why a connection failed for a reason of ours, the last one */
};

struct load_shared {
    _Atomic int32_t route;     /* written by the agent: node index or LOAD_ROUTE_CLOSED */
    _Atomic int64_t routed_ns; /* and just before that: the route before it held until then */
    _Atomic int64_t stop_ns;   /* 0: run; else what is in flight may go on until then */
    struct load_counters workers[LOAD_WORKERS_MAX];
};

#endif
