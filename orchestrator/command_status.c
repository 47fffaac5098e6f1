/* SPDX-License-Identifier: MIT */
/* `ordeal status` and `ordeal recover`. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "orchestrator/files.h"
#include "topologies/ha/ha.h"

enum { LIST_MS = 5000, RECOVER_MS = 120000 };

/* ---- status ---- */

static const char *role_of(const struct ha_member *member)
{
    if (!member->running)
        return "down";
    if (member->primary)
        return "primary";
    return member->sync ? "sync standby" : "standby";
}

static void print_member(const struct ha_member *member)
{
    char lsn[PG_LSN_TEXT_SIZE];

    pg_lsn_text(member->lsn, lsn);
    printf("%-12s %-13s timeline %" PRIu32 "  %-14s %s\n", member->node->name, role_of(member),
           member->timeline, lsn,
           member->problem != NULL ? member->problem
           : member->streaming     ? "streams"
                                   : "");
}

static void print_others(const struct topology *topology, const struct cluster *cluster)
{
    for (size_t i = 0; i < topology->node_count; i++) {
        const struct topology_node *node = &topology->nodes[i];

        printf("%-12s %-13s %s\n", node->name,
               (node->roles & ROLE_DATABASE) != 0 ? "database"
               : (node->roles & ROLE_CLIENT) != 0 ? "client"
               : (node->roles & ROLE_POWER) != 0  ? "power"
                                                  : "other",
               cluster_connected(cluster, node->name) ? "agent answers" : "agent does not answer");
    }
}

static void print_faults(const struct topology *topology, struct cluster *cluster)
{
    size_t total = 0, asked = 0;

    for (size_t i = 0; i < topology->node_count; i++) {
        const char *name = topology->nodes[i].name;
        OWNED_JSON json_t *result = NULL;
        struct error error = {0};

        if (!cluster_connected(cluster, name) ||
            cluster_call(cluster, name, "fault.list", NULL, LIST_MS, &result, &error) != STATUS_OK)
            continue;
        asked++;
        const json_t *faults = json_object_get(result, "faults");
        for (size_t j = 0; j < json_array_size(faults); j++) {
            const json_t *fault = json_array_get(faults, j);

            printf("%-12s active: %s %s (run %s, %s)\n", name, json_text(fault, "fault", "?"),
                   json_text(fault, "uid", "?"), json_text(fault, "run", "?"),
                   json_text(fault, "state", "?"));
            total++;
        }
    }
    if (asked < topology->node_count)
        printf("%zu of %zu nodes told their faults; the agents of the others do not answer\n",
               asked, topology->node_count);
    else if (total == 0)
        puts("no fault is active");
}

/* Does a run hold any node? What PostgreSQL says is told to the run that has the session only. */
static enum status find_run(struct cluster *look, const struct topology *topology,
                            struct arena *arena, const char **ret_run, struct error *err)
{
    for (size_t i = 0; i < topology->node_count && *ret_run == NULL; i++) {
        const char *name = topology->nodes[i].name;
        OWNED_JSON json_t *result = NULL;
        enum status status =
            cluster_connected(look, name)
                ? cluster_call(look, name, "fault.list", NULL, LIST_MS, &result, err)
                : STATUS_OK;

        if (status != STATUS_OK)
            return error_context(err, "asking %s", name);
        const char *run = json_text(result, "run", NULL);
        *ret_run = run != NULL ? arena_strdup(arena, run) : NULL;
    }
    return STATUS_OK;
}

static enum status show_members(struct arena *arena, const struct topology *topology,
                                struct error *err)
{
    struct cluster *cluster = NULL;
    struct ha_state state = {0};
    enum status status = files_connect(arena, topology, "status", false, &cluster, err);

    if (status != STATUS_OK)
        return status;
    struct ha ha = {
        .driver = ha_find(topology->ha.manager), .cluster = cluster, .topology = topology};
    status = ha_ask(&ha, arena, &state, err);
    for (size_t i = 0; status == STATUS_OK && i < state.count; i++)
        print_member(&state.members[i]);
    struct error why = {0};
    if (status == STATUS_OK)
        puts(ha_healthy(&state, &why) ? "the cluster is healthy" : why.message);
    cluster_free(cluster);
    return status;
}

static enum status show(struct arena *arena, const struct invocation *invocation, struct error *err)
{
    struct topology *topology = NULL;
    struct cluster *look = NULL;
    const char *run = NULL;
    enum status status = files_topology(arena, invocation, &topology, err);

    if (status == STATUS_OK)
        status = files_look(arena, topology, "status", &look, err);
    if (status != STATUS_OK)
        return status;
    status = find_run(look, topology, arena, &run, err);
    if (status == STATUS_OK) {
        print_others(topology, look);
        print_faults(topology, look);
    }
    cluster_free(look);
    if (status == STATUS_OK && run != NULL)
        printf("run %s is under way\n", run);
    else if (status == STATUS_OK)
        status = show_members(arena, topology, err);
    return status;
}

static int run_status(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct error err = {0};

    return show(arena, invocation, &err) == STATUS_OK ? EXIT_PASS : command_fail(&err);
}

/* ---- recover ---- */

static bool recover_node(struct cluster *cluster, const char *name)
{
    OWNED_JSON json_t *result = NULL;
    struct error error = {0};

    if (cluster_call(cluster, name, "recover", json_pack("{s:n}", "run"), RECOVER_MS, &result,
                     &error) != STATUS_OK) {
        printf("%-12s NOT recovered: %s\n", name, error.message);
        return false;
    }
    const json_t *undone = json_object_get(result, "undone");
    const json_t *failed = json_object_get(result, "failed");
    printf("%-12s %zu undone, %zu failed\n", name, json_array_size(undone),
           json_array_size(failed));
    for (size_t i = 0; i < json_array_size(failed); i++)
        printf("%-12s   %s: %s\n", name, json_text(json_array_get(failed, i), "uid", "?"),
               json_text(json_array_get(failed, i), "message", "?"));
    return json_array_size(failed) == 0;
}

static enum status recover(struct arena *arena, const struct invocation *invocation,
                           bool *ret_clean, struct error *err)
{
    struct topology *topology = NULL;
    struct cluster *cluster = NULL;
    enum status status = files_topology(arena, invocation, &topology, err);

    if (status == STATUS_OK)
        status = files_look(arena, topology, "recover", &cluster, err);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < topology->node_count; i++)
        *ret_clean = recover_node(cluster, topology->nodes[i].name) && *ret_clean;
    cluster_free(cluster);
    return STATUS_OK;
}

static int run_recover(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct error err = {0};
    bool clean = true;

    if (recover(arena, invocation, &clean, &err) != STATUS_OK)
        return command_fail(&err);
    return clean ? EXIT_PASS : EXIT_NOT_RECOVERED;
}

static const struct command_option options[] = {
    {.name = "topology", .letter = 't', .value = "FILE", .help = "the lab that is up, without"},
    {.name = NULL},
};

const struct command command_status = {
    .name = "status",
    .arguments = "",
    .summary = "nodes, roles, active faults",
    .text = "Asks every agent that answers: which faults are active, which run is under way and, "
            "when there is none, who is primary and who streams.",
    .options = options,
    .run = run_status,
};

const struct command command_recover = {
    .name = "recover",
    .arguments = "",
    .summary = "undo every fault on every node now",
    .text =
        "Tells every agent to undo all that its journal holds open, of any run, also beside a run "
        "that goes on. Ends with 5 "
        "when a node did not answer or a fault could not be undone.",
    .options = options,
    .run = run_recover,
};
