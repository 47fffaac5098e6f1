/* SPDX-License-Identifier: MIT */
#include "lib/clock.h"
#include "lib/owned.h"
#include "topologies/ha/runbook.h"

enum { ROUTE_TIMEOUT_MS = 2000 };

static json_t *route_params(struct runbook *runbook, const struct topology_node *node)
{
    json_t *params = runbook_params(runbook);

    json_object_set_new(params, "open", json_boolean(node != NULL));
    if (node != NULL)
        json_object_set_new(params, "host", json_string(node->name));
    return params;
}

/*
 * All client nodes at once. The load of one that is not connected has died with its agent; one on
 * which no load runs (STATUS_NOT_FOUND) has nobody to be sent anywhere: load.start says where its
 * clients begin.
 */
static enum status route(struct runbook *runbook, const struct topology_node *node,
                         struct error *err)
{
    const struct topology *topology = runbook->ha->topology;
    OWNED_ARENA struct arena *arena = arena_new();
    struct cluster_request *requests = arena_array(arena, topology->node_count, sizeof *requests);
    enum status status = STATUS_OK;
    size_t count = 0;

    for (size_t i = 0; i < topology->node_count; i++)
        if ((topology->nodes[i].roles & ROLE_CLIENT) != 0 &&
            cluster_connected(runbook->ha->cluster, topology->nodes[i].name))
            requests[count++] = (struct cluster_request){.node = topology->nodes[i].name,
                                                         .method = "load.route",
                                                         .params = route_params(runbook, node),
                                                         .timeout_ms = ROUTE_TIMEOUT_MS};
    if (count > 0)
        cluster_call_all(runbook->ha->cluster, requests, count);
    for (size_t i = 0; i < count; i++) {
        json_decref(requests[i].result);
        if (requests[i].status == STATUS_OK || requests[i].status == STATUS_NOT_FOUND ||
            status != STATUS_OK)
            continue;
        status = requests[i].status;
        if (err != NULL)
            *err = requests[i].error;
        error_context(err, "endpoint on client node %s", requests[i].node);
    }
    return status;
}

enum status runbook_close_endpoint(struct runbook *runbook, struct error *err)
{
    if (!runbook->ha->topology->endpoint.managed)
        return STATUS_OK;
    runbook->routed = NULL;
    return route(runbook, NULL, err);
}

enum status runbook_open_endpoint(struct runbook *runbook, const struct topology_node *node,
                                  struct error *err)
{
    if (runbook->ha->topology->endpoint.managed) {
        enum status status = route(runbook, node, err);
        if (status != STATUS_OK)
            return status;
    }
    runbook->routed = node;
    runbook->opened_ns = clock_boot_ns();
    return STATUS_OK;
}
