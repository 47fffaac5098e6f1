/* SPDX-License-Identifier: MIT */
/*
 * A small orchestrator for one agent: one session, heartbeats while it waits. It dials from the
 * network namespace that the process stands in.
 */
#ifndef ORDEAL_TESTS_KILL_CALLER_H
#define ORDEAL_TESTS_KILL_CALLER_H

#include <jansson.h>
#include <stdint.h>

#include "lib/error.h"
#include "topologies/topology.h"

enum { KILL_LEASE_MS = 500 };

struct caller;

/* Dial and open the session until it works or the deadline passes. */
MUST_CHECK enum status caller_open(const struct topology *topology,
                                   const struct topology_node *node, const char *run,
                                   int64_t deadline_ns, struct caller **ret_caller,
                                   struct error *err);
/* Takes `params`; gives a job's result. `ret_result` may be NULL. */
MUST_CHECK enum status caller_call(struct caller *caller, const char *method, json_t *params,
                                   json_t **ret_result, struct error *err);
/* Only heartbeats, until the connection ends or for that long. */
void caller_beat(struct caller *caller, int64_t deadline_ns);
/* Close the session, its spool removed, and free. */
void caller_close(struct caller *caller);
void caller_free(struct caller *caller); /* as if it had died */

#endif
