/* SPDX-License-Identifier: MIT */
/*
 * Every node before and after the run, compared item by item (residue.h): what differs is residue,
 * and a node that cannot be asked is not confirmed clean.
 *
 * The agents keep what they told before, until the node was found clean: when this orchestrator
 * dies, or what is left is removed by hand later, `ordeal recover` compares with that.
 */
#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/engine_state.h"
#include "orchestrator/residue_audit.h"

static enum status keep(struct engine *engine, const char *node, const char *when,
                        const json_t *fingerprint, struct error *err)
{
    const char *path =
        arena_printf(engine->arena, "%s/nodes/%s-%s.json", engine->options->folder, node, when);

    return json_write_file(path, fingerprint, err);
}

static struct residue_audit audit_of(struct engine *engine)
{
    return (struct residue_audit){.arena = engine->arena,
                                  .cluster = engine->cluster,
                                  .topology = engine->topology,
                                  .manager = engine->ha.driver->name,
                                  .before = engine->fingerprints,
                                  .must_know = true};
}

/* ---- before ---- */

/* What a run that nobody closed left would be taken for the node's own. */
static void warn_of_unaudited(struct engine *engine, const char *node, const json_t *fingerprint)
{
    const char *other = json_text(fingerprint, "unaudited", NULL);

    if (other != NULL)
        preflight_find(engine, "warn", "unaudited", node,
                       arena_printf(engine->arena,
                                    "run %s ended without %s confirmed as it was before", other,
                                    node),
                       "Run ordeal recover first: it compares, and says what is left.");
}

static enum status take_before(struct engine *engine, const struct cluster_request *request,
                               struct error *err)
{
    if (request->status != STATUS_OK) {
        *err = request->error;
        return error_context(err, "%s before the run", request->node);
    }
    warn_of_unaudited(engine, request->node, request->result);
    json_object_del(request->result, "unaudited");
    json_object_set(engine->fingerprints, request->node, request->result);
    return keep(engine, request->node, "before", request->result, err);
}

static void forget(struct engine *engine, const bool *skip)
{
    OWNED_JSON json_t *params = json_pack("{s:s, s:s}", "run", engine->run, "of", engine->run);
    const struct residue_audit audit = audit_of(engine);
    struct cluster_request *requests = residue_ask(&audit, "node.forget", params, skip);

    for (size_t i = 0; i < engine->topology->node_count; i++) {
        if (requests[i].node != NULL && requests[i].status != STATUS_OK)
            journal_note(engine->journal, "%s keeps what it was before: %s", requests[i].node,
                         requests[i].error.message);
        json_decref(requests[i].result);
    }
}

enum status residue_before(struct engine *engine, struct error *err)
{
    OWNED_JSON json_t *params = json_pack("{s:s, s:b}", "run", engine->run, "keep", 1);
    const struct residue_audit audit = audit_of(engine);
    struct cluster_request *requests = residue_ask(&audit, "node.fingerprint", params, NULL);
    enum status status = STATUS_OK;

    for (size_t i = 0; i < engine->topology->node_count; i++) {
        if (status == STATUS_OK)
            status = take_before(engine, &requests[i], err);
        json_decref(requests[i].result);
    }
    if (status != STATUS_OK) /* nothing was changed, and nothing will be */
        forget(engine, NULL);
    return status;
}

/* ---- after ---- */

static void taken(void *argument, const char *node, const json_t *fingerprint)
{
    struct engine *engine = argument;
    struct error error = {0};

    if (keep(engine, node, "after", fingerprint, &error) != STATUS_OK)
        journal_note(engine->journal, "%s", error.message);
}

void residue_after(struct engine *engine)
{
    size_t nodes = engine->topology->node_count;
    bool *dirty = arena_array(engine->arena, nodes, sizeof *dirty);
    struct residue_audit audit = audit_of(engine);

    audit.taken = taken;
    audit.argument = engine;
    residue_audit(&audit);
    for (size_t i = 0; i < nodes; i++) {
        dirty[i] = !audit.clean[i];
        engine->clean = engine->clean && audit.clean[i];
        journal_event(engine->journal, "residue",
                      json_pack("{s:s, s:b, s:o}", "node", engine->topology->nodes[i].name, "clean",
                                audit.clean[i], "differences", audit.found[i]));
    }
    forget(engine, dirty);
}
