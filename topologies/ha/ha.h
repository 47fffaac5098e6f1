/* SPDX-License-Identifier: MIT */
/*
 * HA managers behind one table of functions (docs/ha-manual.md). One file a driver, listed once in
 * ha.def; nothing outside this folder asks which one is in use.
 */
#ifndef ORDEAL_TOPOLOGIES_HA_HA_H
#define ORDEAL_TOPOLOGIES_HA_HA_H

#include "topologies/cluster.h"

struct ha_member {
    const struct topology_node *node;
    bool reachable; /* its agent answered */
    bool running;   /* PostgreSQL accepts connections there */
    bool primary;   /* and is not in recovery */
    uint32_t timeline;
    uint64_t lsn;        /* written (primary), greater of received and replayed (standby) */
    bool streaming;      /* standby: its walreceiver streams; asked from the standby itself */
    bool sync;           /* named by the primary's sync set and connected */
    const json_t *state; /* whole answer of postgres.state, or NULL */
    const char *problem; /* in words, why it is not reachable or not running; NULL: it is */
};

struct ha_state {
    const struct topology_node *primary; /* NULL: none, or more than one */
    size_t primary_count;
    bool paused;
    const char *sync_set; /* synchronous_standby_names in force on the primary, "" for none */
    size_t count;
    struct ha_member *members; /* the topology's database nodes, in order */
    struct arena *arena;       /* owns all of it */
};

struct ha {
    const struct ha_driver *driver;
    struct cluster *cluster;
    const struct topology *topology;
    void *private_state; /* the driver's */
    /* Told as things happen, for the run's journal: docs/formats.md, event ha.*. Takes details. */
    void (*event)(void *argument, const char *event, const char *node, json_t *details);
    void *argument;
    /*
     * What the clients see now: instant (orchestrator's boot clock) of the last acknowledged write
     * through the endpoint, 0 while none is known.
     */
    int64_t (*last_ack)(void *argument);
};

struct ha_driver {
    const char *name, *summary;
    bool acts; /* false: observes only, "the HA manager must" */
    /* Whose work it is to promote and to bring members back, for a sentence. */
    const char *whose;
    /* Once, when the cluster is known to be healthy. */
    enum status (*begin)(struct ha *ha, struct error *err);
    /* Asked fresh from all nodes. */
    enum status (*state)(struct ha *ha, struct arena *arena, struct ha_state *ret_state,
                         struct error *err);
    /*
     * Called in turn during the method phase (every 50 ms or later); does what the manager does
     * when it sees what it sees now: may take long, uses cluster calls only. An error ends the run
     * as not-recovered only if nothing later recovers the cluster.
     */
    enum status (*attend)(struct ha *ha, struct error *err);
    /*
     * Recovery phase: bring every member back until ha_healthy() or the deadline; a driver that
     * does not act only waits.
     */
    enum status (*recover)(struct ha *ha, int64_t deadline_ns, struct error *err);
    void (*end)(struct ha *ha);
};

const struct ha_driver *ha_find(const char *name);
/* The names of all drivers, up to NULL. */
const char *const *ha_names(void);
/* The common way to ask: postgres.state on all database nodes at once. Drivers use it for state. */
MUST_CHECK enum status ha_ask(struct ha *ha, struct arena *arena, struct ha_state *ret_state,
                              struct error *err);
/* Where the member's timeline left the one before ("0/3000148"), "" for the first. */
const char *ha_fork_lsn(const struct ha_member *member);
/* One primary, every other member streaming from it on its timeline, sync set satisfied. */
bool ha_healthy(const struct ha_state *state, struct error *why);

#endif
