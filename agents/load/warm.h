/* SPDX-License-Identifier: MIT */
/*
 * The probe on warm connections: an instrument, not an application.
 *
 * How finely an outage is seen depends on how soon somebody tries again. A client that has lost its
 * connection makes a new one first, with TLS and SCRAM and a pause before it, together with all the
 * others. So this probe keeps connections to every host of the endpoint, on which nothing happens
 * until that host is the one to write to.
 *
 * One client ticks: it has the schedule, and no connection. Each tick goes to one warm client:
 *
 * - Managed endpoint: of the host that the HA driver opened. While it is closed a tick is an
 *   outcome of the ticking client: it found no host, and so is the instant at which it opened. When
 *   it moves there is one tick more at once.
 * - Endpoint by hosts: of the host that took the last write. When that one refuses, is gone or has
 *   no connection free (it is silent), each tick is tried on every host, until one takes it.
 *
 * A warm client has a number and tokens of its own, so that a token is sent to one host only. A
 * tick waits for a free connection until the next one comes, and is missed then. An attempt at a
 * silent host thus occupies its own connection alone.
 */
#ifndef ORDEAL_AGENTS_LOAD_WARM_H
#define ORDEAL_AGENTS_LOAD_WARM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/ledger.h"

struct arena;
struct client;
struct warm;
struct worker;

/* What is asked of clients. */
struct warm_hands {
    bool (*is_free)(struct client *client); /* can a write begin on it now? */
    void (*take)(struct client *client, int64_t scheduled_ns);
    /* of the client that ticks; it has no start any more when its outcome could be stored */
    void (*found_no_host)(struct client *client, int64_t looked_ns);
    void (*missed)(struct client *client, uint64_t count);
    void (*arm)(struct client *client, int64_t at_ns);
};

/* Of the worker's clients, which are made already; NULL when none of them ticks. */
struct warm *warm_new(struct worker *worker, const struct warm_hands *hands, struct arena *arena);
/* The time of a tick has come. */
void warm_tick(struct warm *warm);
/* The managed endpoint was opened, moved or closed: look at once. */
void warm_rerouted(struct warm *warm);
/* A warm client has a connection that is free now. */
void warm_idle(struct warm *warm);
/* What became of a write on this client's host. */
void warm_outcome(struct warm *warm, const struct client *client, enum ledger_class class);
/* Is this client's host the one to write to, as far as is known? */
bool warm_is_wanted(const struct warm *warm, const struct client *client);
/*
 * The host refused a connection. True when that answers the tick that waits: then it is this
 * client's (ret_scheduled_ns).
 */
bool warm_take_refused(struct warm *warm, const struct client *client, int64_t *ret_scheduled_ns);

#endif
