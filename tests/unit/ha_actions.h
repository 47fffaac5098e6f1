/* SPDX-License-Identifier: MIT */
/* What the agents' methods do to the model of ha_model.h. */
#ifndef ORDEAL_TESTS_UNIT_HA_ACTIONS_H
#define ORDEAL_TESTS_UNIT_HA_ACTIONS_H

#include "lib/clock.h"
#include "tests/unit/ha_model.h"

static int64_t fake_now_ns = 1000 * NS_PER_SECOND;
static const char *fake_route; /* where the endpoint is open */

static inline void fake_repoint(struct model_node *node, const char *source)
{
    struct model_node *from = source == NULL ? NULL : model_at(source);

    node->receiving = source != NULL;
    node->source = from == NULL ? NULL : from->name;
    if (from != NULL && from->timeline > node->timeline)
        node->timeline = from->timeline;
    model_flow();
}

static inline void fake_copy(struct model_node *node, const json_t *params, const char *method)
{
    struct model_node *from = model_at(json_text(params, "source", "n1"));

    node->standby = true;
    node->erased = false;
    node->timeline = from->timeline;
    node->lsn = from->lsn;
    node->source = from->name;
    node->receiving = true;
    if (strcmp(method, "postgres.rebuild") == 0)
        node->incarnation = "rebuilt";
}

static inline void fake_take_slots(struct model_node *node, const json_t *params)
{
    const json_t *ensure = json_object_get(params, "ensure");

    memset(node->slots, 0, sizeof node->slots);
    for (size_t i = 0; i < json_array_size(ensure); i++)
        node->slots[i] = model_at(json_string_value(json_array_get(ensure, i)))->name;
}

static inline void fake_power(const json_t *params)
{
    struct model_node *node = model_at(json_text(params, "node", ""));

    node->silent = strcmp(json_text(params, "word", ""), "on") != 0;
    node->running = node->accepting = false;
}

/* Methods of agents without a database. */
static inline json_t *fake_do_elsewhere(const char *method, const json_t *params)
{
    if (strcmp(method, "power") == 0)
        fake_power(params);
    else
        fake_route =
            json_flag(params, "open", false) ? model_at(json_text(params, "host", ""))->name : NULL;
    return json_object();
}

static inline struct model_node stopped(const struct model_node *node)
{
    struct model_node copy = *node;

    copy.running = copy.accepting = copy.frozen = false;
    copy.orphans = 0;
    return copy;
}

/* Until its time is up, when nobody acknowledges: an answer without an instant. */
static inline json_t *fake_commit(const struct model_node *node)
{
    if (model_acknowledges(node))
        return json_pack("{s:b, s:I}", "waited", 1, "ack_ns", (json_int_t) fake_now_ns);
    fake_now_ns += 2 * NS_PER_SECOND;
    return json_pack("{s:b, s:n}", "waited", 1, "ack_ns");
}

static inline json_t *fake_do(struct model_node *node, const char *method, const json_t *params)
{
    if (strcmp(method, "postgres.state") == 0)
        return model_state(node);
    if (strcmp(method, "postgres.fence") == 0 || strcmp(method, "postgres.stop") == 0)
        *node = stopped(node);
    else if (strcmp(method, "postgres.start") == 0)
        node->running = node->accepting = true;
    else if (strcmp(method, "postgres.receiver") == 0)
        fake_repoint(node, json_text(params, "source", NULL));
    else if (strcmp(method, "postgres.slots") == 0)
        fake_take_slots(node, params);
    else if (strcmp(method, "postgres.rewind") == 0 || strcmp(method, "postgres.rebuild") == 0)
        fake_copy(node, params, method);
    else if (strcmp(method, "postgres.promote") == 0) {
        node->standby = node->receiving = false;
        node->timeline++;
        return json_pack("{s:i, s:s}", "timeline", (int) node->timeline, "fork_lsn", "0/5000000");
    } else if (strcmp(method, "postgres.quorum-wait") == 0)
        return fake_commit(node);
    return json_object();
}

#endif
