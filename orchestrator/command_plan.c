/* SPDX-License-Identifier: MIT */
/* `ordeal plan SCENARIO`: what a run would do to this cluster now. Changes nothing. */
#include <stdio.h>

#include "lib/owned.h"
#include "orchestrator/files.h"
#include "orchestrator/plan.h"
#include "topologies/ha/ha.h"

static enum status ask(struct arena *arena, const struct topology *topology,
                       struct cluster *cluster, struct ha_state *ret_state, struct error *err)
{
    struct ha ha = {
        .driver = ha_find(topology->ha.manager), .cluster = cluster, .topology = topology};

    return ha_ask(&ha, arena, ret_state, err);
}

static void print_cluster(const struct topology *topology, const struct ha_state *state)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);

    plan_cluster(topology, state, &text);
    fputs(buffer_text(&text), stdout);
}

static enum status print_plan(struct arena *arena, const struct scenario *scenario,
                              const struct topology *topology, const struct ha_state *state,
                              uint64_t seed, struct error *err)
{
    OWNED_BUFFER struct buffer text = BUFFER(1024 * 1024);
    enum status status = plan_text(arena, scenario, topology, state, seed, &text, err);

    fputs(buffer_text(&text), stdout);
    return status;
}

static enum status plan(struct arena *arena, const struct invocation *invocation, struct error *err)
{
    struct scenario_file file = {0};
    struct topology *topology = NULL;
    struct cluster *cluster = NULL;
    struct ha_state state = {0};
    uint64_t seed = 0;
    enum status status = files_topology(arena, invocation, &topology, err);

    if (status == STATUS_OK)
        status = files_scenario(arena, invocation_argument(invocation, 0), topology, &file, err);
    if (status == STATUS_OK)
        status = files_connect(arena, topology, "plan", true, &cluster, err);
    if (status == STATUS_OK)
        status = ask(arena, topology, cluster, &state, err);
    if (status == STATUS_OK)
        print_cluster(topology, &state);
    size_t count = file.profile != NULL ? file.profile->count : 1;
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        const struct scenario *scenario =
            file.profile != NULL ? file.profile->scenarios[i] : file.scenario;

        status = files_seed(invocation, scenario, &seed, err);
        if (status == STATUS_OK)
            status = print_plan(arena, scenario, topology, &state, seed, err);
    }
    cluster_free(cluster);
    return status;
}

static int run_plan(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct error err = {0};

    return plan(arena, invocation, &err) == STATUS_OK ? EXIT_PASS : command_fail(&err);
}

static const struct command_option options[] = {
    {.name = "topology", .letter = 't', .value = "FILE", .help = "the lab that is up, without"},
    {.name = "seed", .value = "N", .help = "for targets that leave a choice"},
    {.name = NULL},
};

const struct command command_plan = {
    .name = "plan",
    .arguments = "SCENARIO",
    .minimum = 1,
    .maximum = 1,
    .summary = "resolved targets, timeline, undo, what can be lost",
    .text = "Connects to the cluster, resolves every target as it would be now, and prints the "
            "timeline of the steps with what undoes them and what they put at stake. Nothing is "
            "changed.",
    .options = options,
    .run = run_plan,
};
