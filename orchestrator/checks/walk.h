/* SPDX-License-Identifier: MIT */
/*
 * All ledgers of a run, record by record, each with the session that it belongs to.
 *
 *     struct walk walk;
 *     walk_begin(&walk, record, arena);
 *     while (walk_next(&walk))
 *         if (walk.at->kind == LEDGER_OUTCOME && walk.client->role == LEDGER_DIRECT) ...
 *
 * A ledger names nodes by an index of its own; `walk.node` is one of `walk.nodes` for all of them.
 * Files come one after the other, each in the order of writing. No memory is used per record.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_WALK_H
#define ORDEAL_ORCHESTRATOR_CHECKS_WALK_H

#include "orchestrator/record.h"

enum { WALK_NODES_MAX = 64 };

struct walk_client {
    uint32_t id;
    size_t file; /* the ledger that it first appeared in */
    enum ledger_role role;
    enum ledger_level level; /* of its session; unknown before the first one */
    uint16_t node;           /* of its session, index in walk.nodes */
    uint32_t timeline;       /* of its session, 0 unknown */
    bool connected;
};

struct walk {
    const struct record *record;
    struct arena *arena;
    size_t node_count;
    const char *nodes[WALK_NODES_MAX];
    size_t client_count, client_room;
    struct walk_client *clients; /* moves when it grows: keep slots, not pointers */
    uint32_t *table;             /* slot + 1 by hash of the client's number */
    size_t table_size;
    uint64_t shared; /* records of a client that stands in two files */

    size_t file, next;
    uint16_t map[LEDGER_NODES_MAX];
    uint32_t last_id;
    size_t last_slot;

    const struct ledger_record *at;
    size_t slot;                /* of the client, SIZE_MAX for records of the worker itself */
    struct walk_client *client; /* NULL likewise */
    uint16_t node;              /* of the record */
};

void walk_begin(struct walk *walk, const struct record *record, struct arena *arena);
bool walk_next(struct walk *walk);
/* SIZE_MAX for a client that no record has named so far. */
size_t walk_slot(const struct walk *walk, uint32_t client);
/* Index of a node by name, added when it is new. */
uint16_t walk_node(struct walk *walk, const char *name);

#endif
