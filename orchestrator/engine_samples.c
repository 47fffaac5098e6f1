/* SPDX-License-Identifier: MIT */
/*
 * The samplers of a run: started on every node, started again when a node comes back, stopped and
 * fetched at the end. No sampler ever ends a run: what is missing is journaled.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/engine_state.h"

enum { START_MS = 5000, STOP_MS = 8000, LOOK_MS = 50, LIST_MS = 5000 };

static void journal_missing(struct engine *engine, const char *node, const char *file,
                            const char *text)
{
    journal_event(engine->journal, "samples.missing",
                  json_pack("{s:s, s:s, s:s}", "node", node, "file", file, "text", text));
}

/* The same method on every node that is connected, at the same time. */
static struct cluster_request *on_each_node(struct engine *engine, const char *method,
                                            int64_t timeout_ms, size_t *ret_count)
{
    size_t nodes = engine->topology->node_count, count = 0;
    struct cluster_request *requests = arena_array(engine->arena, nodes, sizeof *requests);

    for (size_t i = 0; i < nodes; i++) {
        const char *name = engine->topology->nodes[i].name;

        if (cluster_connected(engine->cluster, name))
            requests[count++] = (struct cluster_request){.node = name,
                                                         .method = method,
                                                         .params = engine_params(engine),
                                                         .timeout_ms = timeout_ms};
    }
    cluster_call_all(engine->cluster, requests, count);
    *ret_count = count;
    return requests;
}

void samples_begin(struct engine *engine)
{
    size_t count = 0;

    engine->sampling = true;
    struct cluster_request *requests = on_each_node(engine, "sample.start", START_MS, &count);
    json_t *nodes = json_array();
    for (size_t i = 0; i < count; i++) {
        if (requests[i].status == STATUS_OK)
            json_array_append_new(nodes, json_string(requests[i].node));
        else
            journal_missing(engine, requests[i].node, "all", requests[i].error.message);
        json_decref(requests[i].result);
    }
    journal_event(engine->journal, "samples.start", json_pack("{s:o}", "nodes", nodes));
}

/* --- a node that comes back ------------------------------------------------------------------- */

struct again {
    struct engine *engine;
    const char *node;
};

static void on_started(void *argument, enum status status, const json_t *result,
                       const struct error *error)
{
    struct again *again = argument;

    (void) result;
    if (status != STATUS_OK)
        journal_note(again->engine->journal, "sampling %s again: %s", again->node, error->message);
}

/* The agent may be another one than before; one that samples already only says so. */
void samples_connected(struct engine *engine, const struct topology_node *node)
{
    if (!engine->sampling)
        return;
    struct again *again = arena_alloc(engine->arena, sizeof *again);
    *again = (struct again){.engine = engine, .node = node->name};
    cluster_post(engine->cluster, node->name, "sample.start", engine_params(engine), START_MS,
                 on_started, again);
}

/* --- end -------------------------------------------------------------------------------------- */

/* False when a sampler still runs. */
static bool all_stopped(struct engine *engine)
{
    size_t count = 0;
    bool stopped = true;
    struct cluster_request *requests = on_each_node(engine, "sample.stop", STOP_MS, &count);

    for (size_t i = 0; i < count; i++) {
        stopped = stopped && !json_flag(requests[i].result, "running", false);
        json_decref(requests[i].result);
    }
    return stopped;
}

static bool is_sample(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot != NULL && strcmp(dot, ".ndjson") == 0;
}

static void fetch_from(struct engine *engine, const char *node)
{
    struct error error = {0};
    OWNED_JSON json_t *result = NULL;
    const json_t *file;
    size_t index;

    if (cluster_call(engine->cluster, node, "file.list", engine_params(engine), LIST_MS, &result,
                     &error) != STATUS_OK) {
        journal_missing(engine, node, "all", error.message);
        return;
    }
    json_array_foreach(json_object_get(result, "files"), index, file)
    {
        const char *name = json_text(file, "name", "");

        if (is_sample(name) && collect_file(engine, node, name, "samples", &error) != STATUS_OK)
            journal_missing(engine, node, name, error.message);
    }
}

/* Also of a run whose orchestrator died: then nobody knows whether they run. */
void samples_end(struct engine *engine)
{
    int64_t deadline_ns = deadline_in_ms(STOP_MS);
    struct error error = {0};

    engine->sampling = false;
    while (!all_stopped(engine)) {
        if (deadline_passed(deadline_ns)) {
            journal_note(engine->journal, "a sampler did not end within %d s", STOP_MS / 1000);
            break;
        }
        if (engine_pause(engine, LOOK_MS, &error) != STATUS_OK)
            break;
    }
}

void samples_fetch(struct engine *engine)
{
    for (size_t i = 0; i < engine->topology->node_count && !engine_hurried(engine); i++)
        fetch_from(engine, engine->topology->nodes[i].name);
}
