/* SPDX-License-Identifier: MIT */
/*
 * The sampler's process, a forked child of the agent: one thread that samples the kernel, one that
 * asks PostgreSQL, one that writes. It ends when its control descriptor becomes readable.
 *
 * Its memory is locked, so that pressure on the node's memory neither stops it nor is eased by
 * what it gives back.
 */
#ifndef ORDEAL_AGENTS_SAMPLER_WORKER_H
#define ORDEAL_AGENTS_SAMPLER_WORKER_H

#include <stdatomic.h>
#include <sys/types.h>

#include "agents/session.h"

enum { SAMPLER_PERIOD_MS = 100, SAMPLER_VIEWS_MS = 1000 };

struct sampler_order {
    const struct session *session;
    int64_t period_ms, views_ms;
    bool processes;         /* of PostgreSQL, one by one */
    int control;            /* eventfd */
    _Atomic pid_t *backend; /* shared with the agent: process of the session; 0: none */
};

/* For process_fork(): 0 when it ended in order. */
int sampler_worker_main(void *argument);
/* "n1-kernel.ndjson", "n1-postgres.ndjson" (NULL on a node without a database). */
const char *sampler_file(struct arena *arena, const struct session *session, bool postgres);

#endif
