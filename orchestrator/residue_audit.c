/* SPDX-License-Identifier: MIT */
#include "orchestrator/residue_audit.h"

#include "lib/clock.h"
#include "lib/owned.h"

enum { ASK_MS = 15000, AGAIN_MS = 500, TRIES = 6 };

struct cluster_request *residue_ask(const struct residue_audit *audit, const char *method,
                                    const json_t *params, const bool *skip)
{
    size_t nodes = audit->topology->node_count, count = 0;
    struct cluster_request *requests = arena_array(audit->arena, nodes, sizeof *requests);
    struct cluster_request *sent = arena_array(audit->arena, nodes, sizeof *sent);
    size_t *index = arena_array(audit->arena, nodes, sizeof *index);

    for (size_t i = 0; i < nodes; i++) {
        if (skip != NULL && skip[i])
            continue;
        index[count] = i;
        sent[count++] = (struct cluster_request){.node = audit->topology->nodes[i].name,
                                                 .method = method,
                                                 .params = json_deep_copy(params),
                                                 .timeout_ms = ASK_MS};
    }
    cluster_call_all(audit->cluster, sent, count);
    for (size_t i = 0; i < count; i++)
        requests[index[i]] = sent[i];
    return requests;
}

static const json_t *cluster_before(const struct residue_audit *audit)
{
    const char *node;
    json_t *fingerprint;

    json_object_foreach((json_t *) (uintptr_t) audit->before, node, fingerprint)
    {
        if (residue_tells_cluster(fingerprint))
            return fingerprint;
    }
    return NULL;
}

static json_t *compare(struct residue_audit *audit, const struct cluster_request *request)
{
    const struct residue_question question = {.before =
                                                  json_object_get(audit->before, request->node),
                                              .after = request->result,
                                              .cluster_before = cluster_before(audit),
                                              .topology = audit->topology,
                                              .manager = audit->manager};

    if (request->status != STATUS_OK)
        return residue_unknown(request->error.message);
    if (audit->must_know && question.before == NULL)
        return residue_unknown("nobody looked at it before the run");
    if (audit->taken != NULL)
        audit->taken(audit->argument, request->node, request->result);
    audit->told = audit->told || residue_tells_cluster(request->result);
    return residue_differences(&question);
}

static bool look(struct residue_audit *audit)
{
    struct cluster_request *requests = residue_ask(audit, "node.fingerprint", NULL, audit->clean);
    bool all = true;

    for (size_t i = 0; i < audit->topology->node_count; i++) {
        if (audit->clean[i])
            continue;
        OWNED_JSON json_t *now = compare(audit, &requests[i]);
        OWNED_JSON json_t *earlier = audit->found[i];
        /* after a look that did not see everything the next one is the first */
        audit->found[i] = earlier == NULL || residue_is_blind(earlier) || residue_is_blind(now)
                              ? json_incref(now)
                              : residue_common(earlier, now);
        audit->clean[i] = json_array_size(audit->found[i]) == 0;
        all = all && audit->clean[i];
        json_decref(requests[i].result);
    }
    return all;
}

static bool never(void *argument)
{
    (void) argument;
    return false;
}

static bool pause_before_again(struct residue_audit *audit)
{
    struct error error;

    return cluster_wait(audit->cluster, never, NULL, deadline_in_ms(AGAIN_MS), &error) ==
           STATUS_TIMEOUT;
}

/* Roles, their settings, prepared transactions: of a cluster without a primary nobody knows. */
static void want_cluster(struct residue_audit *audit)
{
    const struct topology_node *first = topology_first(audit->topology, ROLE_DATABASE);
    size_t index = first == NULL ? 0 : (size_t) (first - audit->topology->nodes);

    if (audit->told || first == NULL || cluster_before(audit) == NULL)
        return;
    OWNED_JSON json_t *unknown = residue_unknown("no server tells of the cluster as its primary");
    json_array_extend(audit->found[index], unknown);
    audit->clean[index] = false;
}

void residue_audit(struct residue_audit *audit)
{
    size_t nodes = audit->topology->node_count;

    audit->clean = arena_array(audit->arena, nodes, sizeof *audit->clean);
    audit->found = arena_array(audit->arena, nodes, sizeof(json_t *));
    for (int i = 0; i < TRIES; i++)
        if (look(audit) || !pause_before_again(audit))
            break;
    want_cluster(audit);
}
