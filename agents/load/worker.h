/* SPDX-License-Identifier: MIT */
/*
 * A load worker: one process, one epoll loop, one ledger, many clients.
 *
 * It writes a beat every 50 ms, so that a check can tell a worker that was starved or stopped from
 * a database that did not answer. It ends when the agent says so, when its ledger can take no more,
 * or when its flusher is gone; only the first gives the ledger its END.
 */
#ifndef ORDEAL_AGENTS_LOAD_WORKER_H
#define ORDEAL_AGENTS_LOAD_WORKER_H

#include "agents/load/ledger_writer.h"
#include "agents/load/shared.h"
#include "agents/load/statement.h"
#include "agents/load/timers.h"

enum { BEAT_MS = 50, READ_MS = 100 };

struct client;
struct warm;

struct worker {
    const struct load_plan *plan;
    const struct load_worker_plan *own;
    struct load_shared *shared;
    struct load_counters *counters;
    struct arena *arena;
    struct ledger_writer *ledger;
    struct statement statement;
    struct timers timers;
    struct timer beat, read_tick;
    int epoll, clock; /* clock: a timerfd, armed for the earliest timer */
    int64_t clock_at_ns;
    size_t client_count, reader; /* reader: whose turn it is to read back */
    struct client *clients;
    struct warm *warm; /* NULL when no client ticks */
    size_t running;    /* clients that have not stopped */
    bool stopping;     /* nothing new begins */
    bool broken;       /* the ledger is not to be trusted with an END */
    bool read_due;
    int64_t stop_ns; /* what is in flight may go on until then */
    uint64_t random;
};

struct worker_order { /* what a forked worker needs */
    const struct load_plan *plan;
    size_t index;
    struct load_shared *shared;
    int control; /* eventfd: the agent changed the shared page */
};

/* Body of the process, for process_fork(); takes a struct worker_order. */
int worker_main(void *argument);

/* --- for clients ------------------------------------------------------------------------------ */

/* Store a record; a ledger that cannot take it stops the worker, and false comes back. */
bool worker_record(struct worker *worker, struct ledger_record record);
/* End in order but without END; the first reason is kept for the agent. */
void worker_break(struct worker *worker, const char *format, ...) PRINTF_LIKE(2, 3);
/* Events of a descriptor go to client `index` as long as `generation` is the one given here. */
void worker_watch(struct worker *worker, int fd, uint32_t events, size_t index,
                  uint32_t generation);
uint64_t worker_random(struct worker *worker);

#endif
