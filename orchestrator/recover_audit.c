/* SPDX-License-Identifier: MIT */
#include "orchestrator/recover_audit.h"

#include <stdio.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/files.h"
#include "orchestrator/residue_audit.h"

/* What each node was before the run that nobody closed, by node. */
static json_t *kept_before(const struct residue_audit *audit)
{
    OWNED_JSON json_t *params = json_pack("{s:b}", "kept", 1);
    struct cluster_request *requests = residue_ask(audit, "node.fingerprint", params, NULL);
    json_t *before = json_object();

    for (size_t i = 0; i < audit->topology->node_count; i++) {
        const json_t *kept = json_object_get(requests[i].result, "kept");
        if (json_is_object(kept)) {
            json_object_set(before, requests[i].node, json_object_get(kept, "fingerprint"));
            printf("%-12s compared with what it was before run %s\n", requests[i].node,
                   json_text(kept, "run", "?"));
        }
        json_decref(requests[i].result);
    }
    return before;
}

static void print_found(const struct residue_audit *audit, const char *node, const json_t *found)
{
    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *difference = json_array_get(found, i);
        const char *remedy = json_text(difference, "remedy", NULL);
        printf("%-12s %s\n", node, residue_text(audit->arena, difference));
        if (remedy != NULL)
            printf("%-12s   on %s: %s\n", "", node, remedy);
    }
}

static bool was_compared(const struct residue_audit *audit, size_t index)
{
    return json_object_get(audit->before, audit->topology->nodes[index].name) != NULL;
}

/* A node that nobody looked at before cannot be called clean, only free of what is ours. */
static const char *said_of(const struct residue_audit *audit, size_t index, bool accept)
{
    if (!audit->clean[index])
        return accept ? "accepted as it is" : "NOT clean";
    return was_compared(audit, index) ? "clean" : "not compared: no state from before";
}

static void print_compared(const struct residue_audit *audit)
{
    size_t nodes = audit->topology->node_count, missing = 0;

    for (size_t i = 0; i < nodes; i++)
        missing += !was_compared(audit, i);
    if (missing > 0)
        printf("%zu of %zu nodes not compared: no state from before\n", missing, nodes);
}

static bool conclude(const struct residue_audit *audit, bool accept)
{
    OWNED_JSON json_t *params = json_pack("{s:s}", "run", cluster_run(audit->cluster));
    size_t nodes = audit->topology->node_count;
    bool *dirty = arena_array(audit->arena, nodes, sizeof *dirty), clean = true;

    for (size_t i = 0; i < nodes; i++) {
        OWNED_JSON json_t *found = audit->found[i];
        const char *node = audit->topology->nodes[i].name;
        dirty[i] = !audit->clean[i];
        clean = clean && audit->clean[i];
        print_found(audit, node, found);
        printf("%-12s %s\n", node, said_of(audit, i, accept));
    }
    struct cluster_request *requests =
        residue_ask(audit, "node.forget", params, accept ? NULL : dirty);
    for (size_t i = 0; i < nodes; i++) {
        if (requests[i].node != NULL && requests[i].status != STATUS_OK)
            printf("%-12s %s\n", requests[i].node, requests[i].error.message);
        json_decref(requests[i].result);
    }
    print_compared(audit);
    return clean || accept;
}

enum status recover_audit(struct arena *arena, const struct topology *topology, bool accept,
                          bool *ret_clean, struct error *err)
{
    struct cluster *cluster = NULL;
    enum status status = files_connect(arena, topology, "recover", true, &cluster, err);

    if (status != STATUS_OK)
        return status;
    struct residue_audit audit = {
        .arena = arena, .cluster = cluster, .topology = topology, .manager = topology->ha.manager};
    OWNED_JSON json_t *before = kept_before(&audit);
    audit.before = before;
    residue_audit(&audit);
    *ret_clean = conclude(&audit, accept);
    cluster_free(cluster);
    return STATUS_OK;
}
