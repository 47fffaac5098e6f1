/* SPDX-License-Identifier: MIT */
/*
 * A model of three database nodes and a client for tests of the HA drivers: what each agent would
 * answer to postgres.state, and what the methods of the runbook change. No server, no network.
 */
#ifndef ORDEAL_TESTS_UNIT_HA_MODEL_H
#define ORDEAL_TESTS_UNIT_HA_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "lib/pg.h"
#include "topologies/ha/quorum.h"
#include "topologies/topology.h"

struct model_node {
    const char *name;
    bool silent;  /* the agent is there no more: lost, or not answering */
    bool running; /* the postmaster exists */
    bool accepting, frozen, standby, erased;
    bool receiving; /* standby: its walreceiver is on */
    bool paused;    /* its replay */
    bool cut;       /* network: nothing from or to other nodes, the agent excepted */
    bool bare;      /* the receive position was lost by a restart */
    int orphans;    /* children that outlived the postmaster */
    const char *source;
    uint32_t timeline;
    uint64_t lsn;
    const char *incarnation, *sync_set, *level;
    const char *slots[4];
};

static struct model_node model[3];

static const struct topology_node model_nodes[] = {
    {.name = "n1", .address = "10.0.0.1", .zone = "a", .roles = ROLE_DATABASE},
    {.name = "n2", .address = "10.0.0.2", .zone = "b", .roles = ROLE_DATABASE},
    {.name = "n3", .address = "10.0.0.3", .zone = "c", .roles = ROLE_DATABASE},
    {.name = "c1", .address = "10.0.0.9", .zone = "a", .roles = ROLE_CLIENT},
    {.name = "p1", .address = "10.0.0.254", .zone = "a", .roles = ROLE_POWER},
};

/* NULL for a node without a database. */
static inline struct model_node *model_find(const char *name)
{
    for (size_t i = 0; i < 3; i++)
        if (strcmp(model[i].name, name) == 0)
            return &model[i];
    return NULL;
}

static inline struct model_node *model_at(const char *name)
{
    struct model_node *node = model_find(name);

    if (node == NULL)
        abort();
    return node;
}

/* n1 is primary, n2 and n3 stream from it, each setting names the other two. */
static inline void model_healthy(void)
{
    static const char *const sets[] = {"ANY 1 (n2, n3)", "ANY 1 (n1, n3)", "ANY 1 (n1, n2)"};
    static const char *const names[] = {"n1", "n2", "n3"};
    static const char *const folders[] = {"folder-1", "folder-2", "folder-3"};

    for (size_t i = 0; i < 3; i++)
        model[i] = (struct model_node){.name = names[i],
                                       .running = true,
                                       .accepting = true,
                                       .standby = i > 0,
                                       .receiving = i > 0,
                                       .source = i > 0 ? "n1" : NULL,
                                       .timeline = 1,
                                       .lsn = 0x5000000,
                                       .incarnation = folders[i],
                                       .sync_set = sets[i],
                                       .level = "on"};
    model[0].slots[0] = "n2";
    model[0].slots[1] = "n3";
}

static inline bool model_streams(const struct model_node *node)
{
    const struct model_node *source = node->source == NULL ? NULL : model_at(node->source);

    return source != NULL && node->accepting && node->standby && node->receiving && !node->cut &&
           source->accepting && !source->standby && !source->cut &&
           source->timeline == node->timeline;
}

/* Everybody who streams has everything. */
static inline void model_flow(void)
{
    for (size_t i = 0; i < 3; i++)
        if (model_streams(&model[i]) && model[i].lsn < model_at(model[i].source)->lsn)
            model[i].lsn = model_at(model[i].source)->lsn;
}

static inline json_t *model_lsn(uint64_t lsn)
{
    char text[PG_LSN_TEXT_SIZE];

    pg_lsn_text(lsn, text);
    return json_string(text);
}

static inline json_t *model_standbys(const struct model_node *node)
{
    json_t *list = json_array();

    for (size_t i = 0; i < 3; i++)
        if (model_streams(&model[i]) && strcmp(model[i].source, node->name) == 0)
            json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", model[i].name, "state",
                                                  "streaming", "sync_state", "quorum"));
    return list;
}

static inline json_t *model_slots(const struct model_node *node)
{
    json_t *list = json_array();

    for (size_t i = 0; i < 4 && node->slots[i] != NULL; i++)
        json_array_append_new(list, json_pack("{s:s, s:b}", "name", node->slots[i], "active", 1));
    return list;
}

static inline json_t *model_state(const struct model_node *node)
{
    const struct model_node *source = node->source == NULL ? NULL : model_at(node->source);
    bool receiver = node->standby && node->receiving && source != NULL && source->accepting &&
                    !source->standby; /* a silent cut leaves it "streaming" */
    json_t *state = json_pack(
        "{s:b, s:i, s:b, s:b, s:b, s:b, s:s, s:I, s:o, s:s, s:s, s:o, s:o, s:[{s:i, s:s}]}",
        "running", node->running, "orphans", node->orphans, "accepting", node->accepting, "frozen",
        node->frozen, "data_exists", !node->erased, "in_recovery", node->standby, "incarnation",
        node->incarnation, "timeline", (json_int_t) node->timeline, "lsn", model_lsn(node->lsn),
        "sync_set", node->sync_set, "synchronous_commit", node->level, "standbys",
        model_standbys(node), "slots", model_slots(node), "history", "timeline", 1, "lsn",
        "0/5000000");

    if (node->standby && node->accepting) {
        json_object_set_new(state, "receive_lsn", model_lsn(node->bare ? 0x4000000 : node->lsn));
        json_object_set_new(state, "replay_lsn", model_lsn(node->lsn));
        json_object_set_new(state, "replay_paused", json_boolean(node->paused));
    }
    if (node->source != NULL)
        for (size_t i = 0; i < 3; i++)
            if (strcmp(model_nodes[i].name, node->source) == 0)
                json_object_set_new(state, "primary_conninfo_host",
                                    json_string(model_nodes[i].address));
    if (receiver)
        json_object_set_new(state, "receiver", json_pack("{s:s}", "status", "streaming"));
    return state;
}

/* Enough standbys of its set stream from it. */
static inline bool model_acknowledges(const struct model_node *node)
{
    struct arena *arena = arena_new();
    struct quorum_set set;
    size_t there = 0;

    if (quorum_parse(arena, node->sync_set, &set, NULL) == STATUS_OK)
        for (size_t i = 0; i < 3; i++)
            there += model_streams(&model[i]) && strcmp(model[i].source, node->name) == 0 &&
                     quorum_names(&set, model[i].name);
    arena_free(arena);
    return node->accepting && !node->standby && there >= set.k;
}

#endif
