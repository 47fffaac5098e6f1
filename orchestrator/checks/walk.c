/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/walk.h"

#include <string.h>

enum { FIRST_TABLE = 256, FIRST_CLIENTS = 64 };

void walk_begin(struct walk *walk, const struct record *record, struct arena *arena)
{
    *walk = (struct walk){.record = record, .arena = arena, .last_slot = SIZE_MAX};
    walk->table_size = FIRST_TABLE;
    walk->table = arena_array(arena, walk->table_size, sizeof *walk->table);
}

uint16_t walk_node(struct walk *walk, const char *name)
{
    for (size_t i = 0; i < walk->node_count; i++)
        if (strcmp(walk->nodes[i], name) == 0)
            return (uint16_t) i;
    if (walk->node_count == WALK_NODES_MAX) /* more nodes than any topology has: keep them apart */
        return WALK_NODES_MAX - 1;
    walk->nodes[walk->node_count] = name;
    return (uint16_t) walk->node_count++;
}

/* Place of a client in the table: its slot + 1, or the empty place where it belongs. */
static size_t place_of(const struct walk *walk, uint32_t client)
{
    size_t mask = walk->table_size - 1;
    size_t place = (client * UINT32_C(2654435761)) & mask;

    while (walk->table[place] != 0 && walk->clients[walk->table[place] - 1].id != client)
        place = (place + 1) & mask;
    return place;
}

size_t walk_slot(const struct walk *walk, uint32_t client)
{
    uint32_t entry = walk->table[place_of(walk, client)];

    return entry == 0 ? SIZE_MAX : entry - 1;
}

static void grow_table(struct walk *walk)
{
    walk->table_size *= 2;
    walk->table = arena_array(walk->arena, walk->table_size, sizeof *walk->table);
    for (size_t i = 0; i < walk->client_count; i++)
        walk->table[place_of(walk, walk->clients[i].id)] = (uint32_t) i + 1;
}

static size_t add_client(struct walk *walk, uint32_t client)
{
    if (walk->client_count * 2 >= walk->table_size)
        grow_table(walk);
    if (walk->client_count == walk->client_room) {
        size_t room = walk->client_room == 0 ? FIRST_CLIENTS : walk->client_room * 2;
        walk->clients =
            arena_grow(walk->arena, walk->clients, walk->client_room, room, sizeof *walk->clients);
        walk->client_room = room;
    }
    size_t slot = walk->client_count++;
    walk->clients[slot] = (struct walk_client){.id = client, .file = walk->file};
    if (walk->at->flags <= LEDGER_DIRECT) /* before its first session, too, it is what it is */
        walk->clients[slot].role = (enum ledger_role) walk->at->flags;
    walk->table[place_of(walk, client)] = (uint32_t) slot + 1;
    return slot;
}

static size_t slot_of(struct walk *walk, uint32_t client)
{
    if (client == walk->last_id && walk->last_slot != SIZE_MAX)
        return walk->last_slot;
    size_t slot = walk_slot(walk, client);
    if (slot == SIZE_MAX)
        slot = add_client(walk, client);
    walk->last_id = client;
    walk->last_slot = slot;
    return slot;
}

static void open_file(struct walk *walk)
{
    const struct ledger_header *header = &walk->record->ledgers[walk->file].ledger.header;

    for (uint32_t i = 0; i < header->node_count && i < LEDGER_NODES_MAX; i++)
        walk->map[i] = walk_node(walk, header->nodes[i]);
}

static void follow_session(struct walk *walk)
{
    const struct ledger_record *at = walk->at;
    struct walk_client *client = walk->client;

    if (at->kind == LEDGER_SESSION) {
        client->role = (enum ledger_role) at->flags;
        client->level = (enum ledger_level) at->class;
        client->node = walk->node;
        client->timeline = at->timeline;
        client->connected = true;
    } else if (at->kind == LEDGER_SESSION_END) {
        client->connected = false;
    }
}

bool walk_next(struct walk *walk)
{
    const struct record *record = walk->record;

    while (walk->file < record->ledger_count &&
           walk->next >= record->ledgers[walk->file].ledger.count) {
        walk->file++;
        walk->next = 0;
    }
    if (walk->file >= record->ledger_count)
        return false;
    if (walk->next == 0)
        open_file(walk);
    walk->at = &record->ledgers[walk->file].ledger.records[walk->next++];
    walk->node = walk->map[walk->at->node];
    if (walk->at->kind == LEDGER_BEAT || walk->at->kind == LEDGER_END || walk->at->client == 0) {
        walk->slot = SIZE_MAX;
        walk->client = NULL;
        return true;
    }
    walk->slot = slot_of(walk, walk->at->client);
    walk->client = &walk->clients[walk->slot];
    if (walk->client->file != walk->file)
        walk->shared++;
    follow_session(walk);
    return true;
}
