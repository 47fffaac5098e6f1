/* SPDX-License-Identifier: MIT */
/*
 * What one load consists of: the parameters of load.start, checked, and cut into workers.
 *
 * A worker is one process with one ledger. The workload has one for each 256 clients. The probes
 * have three, since making a connection, with the key derivation of SCRAM, keeps a process busy for
 * milliseconds and would delay the others: one for the warm connections, which are many and
 * come back together; one for those that are kept, one to a node; one for those that are made anew.
 */
#ifndef ORDEAL_AGENTS_LOAD_PLAN_H
#define ORDEAL_AGENTS_LOAD_PLAN_H

#include <jansson.h>

#include "lib/arena.h"
#include "lib/ledger.h"
#include "lib/pg.h"

enum {
    LOAD_CLIENTS_MAX = 4096,
    LOAD_CLIENTS_PER_WORKER = 256,
    LOAD_WORKERS_MAX = LOAD_CLIENTS_MAX / LOAD_CLIENTS_PER_WORKER + 3,
    LOAD_GROUPS_MAX = LEDGER_NODES_MAX + 1,
    LOAD_FIRST_PROBE = 1000000,
    LOAD_PROBES_PER_START = 4000, /* client numbers set aside for the probes of one load.start */
    LOAD_STATEMENT_MAX = 8 * 1024 * 1024,
    LOAD_ROUTE_CLOSED = -1
};

enum load_pace {
    LOAD_OWN,  /* each client has its part of the group's schedule */
    LOAD_TICK, /* one client without a connection: it has the schedule of the warm ones */
    LOAD_WARM  /* they begin when the ticks say so: see agents/load/warm.h */
};

/* Clients that do the same thing. */
struct load_group {
    enum ledger_role role;
    enum load_pace pace;
    uint32_t first_client;
    size_t clients;
    double rate;            /* starts a second of the whole group; 0: closed loop */
    size_t of, offset;      /* the group's place in a schedule that is shared with other workers */
    unsigned rows, payload; /* of a transaction; bytes of text in each row */
    int node;               /* index of the one node that it connects to; -1: the endpoint */
    bool one_shot;          /* a new connection for each transaction */
};

struct load_worker_plan {
    unsigned number; /* of the file: NODE-worker-NUMBER.ledger */
    const char *path;
    size_t group_count;
    struct load_group groups[LOAD_GROUPS_MAX];
};

struct load_node {
    const char *name;
    struct pg_target target;
};

struct load_plan {
    const char *run, *client_node;
    size_t node_count;
    struct load_node nodes[LEDGER_NODES_MAX];
    size_t endpoint_count;
    uint16_t endpoint[LEDGER_NODES_MAX]; /* indexes of nodes, in the order in which to try them */
    bool managed;                        /* only the node that load.route opened */
    int route;                           /* managed, at the start: node or LOAD_ROUTE_CLOSED */
    uint64_t seed;
    int64_t commit_timeout_ms, drain_ms;
    size_t worker_count;
    struct load_worker_plan workers[LOAD_WORKERS_MAX];
};

/* The part of load.start that concerns no session: see docs/formats.md. */
struct load_request {
    const json_t *workload, *probes, *route; /* objects or NULL */
    uint64_t seed;
};

/*
 * Fill the rest of a plan whose run, client_node, nodes, endpoint and managed are set. Ledgers
 * go into the folder `spool`; numbers of workers go on behind the files that are there.
 */
MUST_CHECK enum status load_plan_fill(struct load_plan *plan, struct arena *arena,
                                      const struct load_request *request, const char *spool,
                                      struct error *err);
/* Index of a node by name, or -1. */
int load_plan_node(const struct load_plan *plan, const char *name);
/* Number of the last ledger of this node in the spool, 0 when there is none. */
unsigned load_last_worker(const char *spool, const char *client_node);

#endif
