/* SPDX-License-Identifier: MIT */
/* `ordeal status` and `ordeal recover`. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "orchestrator/engine.h"
#include "orchestrator/files.h"
#include "orchestrator/record.h"
#include "orchestrator/recover_audit.h"
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
    /* what PostgreSQL says is told to the run that has the session only */
    status = files_find_run(look, topology, arena, &run, err);
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

/* A node that cannot be compared is not confirmed clean. */
static void audit(struct arena *arena, const struct invocation *invocation,
                  const struct topology *topology, bool *ret_clean)
{
    bool clean = false, accept = invocation_flag(invocation, "accept");
    struct error error = {0};

    if (recover_audit(arena, topology, accept, &clean, &error) != STATUS_OK)
        printf("NOT compared with what it was before: %s\n", error.message);
    *ret_clean = *ret_clean && clean;
}

static enum status recover(struct arena *arena, const struct invocation *invocation,
                           bool *ret_clean, struct error *err)
{
    struct topology *topology = NULL;
    struct cluster *cluster = NULL;
    const char *run = NULL;
    enum status status = files_topology(arena, invocation, &topology, err);

    if (status == STATUS_OK)
        status = files_look(arena, topology, "recover", &cluster, err);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < topology->node_count; i++)
        *ret_clean = recover_node(cluster, topology->nodes[i].name) && *ret_clean;
    status = files_find_run(cluster, topology, arena, &run, err);
    cluster_free(cluster);
    if (status != STATUS_OK)
        return status;
    if (run != NULL)
        printf("run %s is under way: it compares its nodes with before at its end\n", run);
    else
        audit(arena, invocation, topology, ret_clean);
    return STATUS_OK;
}

/* A run that is under way has an orchestrator of its own, which would lose its sessions to us. */
static enum status want_dead(struct arena *arena, const struct topology *topology, const char *run,
                             struct error *err)
{
    struct cluster *look = NULL;
    const char *serving = NULL;
    enum status status = files_look(arena, topology, "recover", &look, err);

    if (status == STATUS_OK)
        status = files_find_run(look, topology, arena, &serving, err);
    cluster_free(look);
    if (status != STATUS_OK || serving == NULL)
        return status;
    error_set(err, STATUS_REFUSED, "run %s is under way", serving);
    error_hint(err,
               strcmp(serving, run) == 0 ? "End it with SIGINT: it undoes everything itself."
                                         : "Wait for its end, then recover run %s.",
               run);
    return STATUS_REFUSED;
}

/* The whole end of a run whose orchestrator died. */
static enum status recover_run(struct arena *arena, const struct invocation *invocation,
                               int *ret_exit_code, struct error *err)
{
    struct engine_options options = {.folder = invocation_argument(invocation, 0)};
    struct record *record = NULL;
    struct topology *topology = NULL;
    enum status status = record_load(arena, options.folder, &record, err);

    if (status == STATUS_OK)
        status = files_topology_of(arena, invocation, record->start, &topology, err);
    if (status == STATUS_OK)
        status = want_dead(arena, topology, json_text(record->start, "run", "?"), err);
    options.topology = topology;
    if (status == STATUS_OK)
        status = engine_resume(&options, ret_exit_code, err);
    record_close(record);
    return status;
}

static int run_recover(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct error err = {0};
    int exit_code = EXIT_INTERNAL;
    bool clean = true;

    if (invocation_count(invocation) == 1)
        return recover_run(arena, invocation, &exit_code, &err) == STATUS_OK ? exit_code
                                                                             : command_fail(&err);
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

static const struct command_option recover_options[] = {
    {.name = "topology", .letter = 't', .value = "FILE", .help = "the lab that is up, without"},
    {.name = "accept",
     .help = "take the nodes as they are now: what they were before is forgotten"},
    {.name = NULL},
};

const struct command command_recover = {
    .name = "recover",
    .arguments = "[RUN]",
    .minimum = 0,
    .maximum = 1,
    .summary = "undo every fault on every node now; what is left?",
    .text =
        "Tells every agent to undo all that its journal holds open, of any run, also beside a run "
        "that goes on. When none does, compares every node with what it was before the last run "
        "that did not end clean, and prints what is left with the commands that remove it. Ends "
        "with 5 when a node did not answer, a fault could not be undone or something is left.\n\n"
        "With the directory of a run whose orchestrator died, it ends that run as it would have "
        "ended itself: asks what became of its faults, waits for the cluster, stops its load, "
        "collects its ledgers, drops its tables, compares every node with before, adds all of it "
        "to the run's journal and reports: 3 when every node is confirmed clean, else 5.",
    .options = recover_options,
    .run = run_recover,
};
