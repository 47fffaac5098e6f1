/* SPDX-License-Identifier: MIT */
/* `ordeal replay RUN`: the resolved schedule of a recorded run once more. */
#include <stdio.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/engine.h"
#include "orchestrator/files.h"
#include "orchestrator/record.h"
#include "orchestrator/replay.h"
#include "topologies/ha/ha.h"

struct replaying {
    const struct invocation *invocation;
    struct arena *arena;
    struct replay replay;
    struct scenario *scenario;
    const char *folder; /* of the new run */
};

static enum status ask_roles(struct replaying *replaying, struct error *err)
{
    const struct topology *topology = replaying->replay.topology;
    struct cluster *cluster = NULL;
    struct ha_state state = {0};
    enum status status = files_connect(replaying->arena, topology, "replay", true, &cluster, err);

    if (status != STATUS_OK)
        return status;
    struct ha ha = {
        .driver = ha_find(topology->ha.manager), .cluster = cluster, .topology = topology};
    status = ha_ask(&ha, replaying->arena, &state, err);
    if (status == STATUS_OK)
        status = replay_place(&replaying->replay, &state,
                              invocation_flag(replaying->invocation, "follow-roles"), err);
    cluster_free(cluster);
    return status;
}

/* The pinned scenario lies in the new run directory: what is done can be read there. */
static enum status pin(struct replaying *replaying, struct error *err)
{
    const json_t *then = json_object_get(replaying->replay.record->start, "scenario");
    const char *name = arena_printf(replaying->arena, "%s-replay", json_text(then, "name", "run"));
    struct scenario_file file = {0};
    enum status status =
        files_run_folder(replaying->arena, invocation_option(replaying->invocation, "output"), name,
                         &replaying->folder, err);
    const char *path = arena_printf(replaying->arena, "%s/replay.yaml", replaying->folder);

    if (status == STATUS_OK)
        status = replay_write(&replaying->replay, path, err);
    if (status == STATUS_OK)
        status = files_scenario(replaying->arena, path, replaying->replay.topology, &file, err);
    if (status != STATUS_OK)
        return status;
    replaying->scenario = file.scenario;
    replaying->scenario->name = name;
    replay_compare_scenario(&replaying->replay, replaying->scenario);
    return STATUS_OK;
}

static void tell_differences(const struct replay *replay)
{
    for (size_t i = 0; i < json_array_size(replay->differences); i++)
        fprintf(stderr, "not the same: %s\n",
                json_string_value(json_array_get(replay->differences, i)));
}

/* A replay that did something else says nothing about the run that it repeats. */
static enum status judge_schedule(const struct replaying *replaying, int *exit_code,
                                  struct error *err)
{
    OWNED_BUFFER struct buffer difference = BUFFER(1024 * 1024);
    bool same = false;
    enum status status =
        replay_compare(&replaying->replay, replaying->folder, &same, &difference, err);

    if (status != STATUS_OK)
        return status;
    if (same) {
        fputs("schedule: the same as in the run that was replayed\n", stderr);
        return STATUS_OK;
    }
    fprintf(stderr, "schedule: not the same as in the run that was replayed\n%s",
            buffer_text(&difference));
    if (*exit_code == EXIT_PASS)
        *exit_code = EXIT_INCONCLUSIVE;
    return STATUS_OK;
}

static enum status run_pinned(struct replaying *replaying, int *ret_exit_code, struct error *err)
{
    const json_t *start = replaying->replay.record->start;
    OWNED_JSON json_t *replays = replay_json(&replaying->replay);
    struct engine_options options = {.topology = replaying->replay.topology,
                                     .scenario = replaying->scenario,
                                     .folder = replaying->folder,
                                     .seed = (uint64_t) json_number(start, "seed", 0),
                                     .delay_ms = json_number(start, "delay_ms", 0),
                                     .strict = json_flag(start, "strict", false),
                                     .replays = replays,
                                     .json = invocation_flag(replaying->invocation, "json")};
    struct engine_result result = {0};

    fprintf(stderr, "run directory %s\n", replaying->folder);
    enum status status = engine_run(&options, &result, err);
    if (status == STATUS_OK) {
        *ret_exit_code = result.exit_code;
        status = judge_schedule(replaying, ret_exit_code, err);
    }
    fprintf(stderr, "run directory %s\n", replaying->folder);
    return status;
}

static enum status replay_any(struct replaying *replaying, int *ret_exit_code, struct error *err)
{
    struct topology *topology = NULL;
    enum status status = files_topology_of(replaying->arena, replaying->invocation,
                                           replaying->replay.record->start, &topology, err);

    replaying->replay.topology = topology;
    if (status == STATUS_OK)
        status = replay_check(&replaying->replay, err);
    if (status == STATUS_OK)
        status = ask_roles(replaying, err);
    if (status == STATUS_OK)
        status = pin(replaying, err);
    if (status != STATUS_OK)
        return status;
    tell_differences(&replaying->replay);
    return run_pinned(replaying, ret_exit_code, err);
}

static int run_replay(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct replaying replaying = {.invocation = invocation, .arena = arena};
    struct record *record = NULL;
    struct error err = {0};
    int exit_code = EXIT_INTERNAL;
    enum status status = record_load(arena, invocation_argument(invocation, 0), &record, &err);

    replaying.replay.record = record;
    if (status == STATUS_OK)
        status = replay_any(&replaying, &exit_code, &err);
    replay_done(&replaying.replay);
    record_close(record);
    return status == STATUS_OK ? exit_code : command_fail(&err);
}

static const struct command_option options[] = {
    {.name = "topology", .letter = 't', .value = "FILE", .help = "that of the run, without"},
    {.name = "output", .letter = 'o', .value = "DIR", .help = "run directory; must be empty"},
    {.name = "follow-roles", .help = "the primary of today in the place of the one of then"},
    {.name = "json", .help = "one JSON object on stdout instead of the summary"},
    {.name = NULL},
};

const struct command command_replay = {
    .name = "replay",
    .arguments = "RUN",
    .minimum = 1,
    .maximum = 1,
    .summary = "do again exactly what a recorded run did",
    .text = "Repeats the resolved schedule from the run's directory: the same faults with the same "
            "parameters on the same nodes at the same offsets, the same load and seeds. The new "
            "run directory holds it as replay.yaml and names the run that it replays.\n\n"
            "Refused (4) when it would be another experiment: a node or a fault is not there any "
            "more, a step had not begun, the roles have moved (see --follow-roles). What may "
            "change the outcome all the same, as another version, is told before it begins. At the "
            "end both schedules are compared; a replay that passed but did something else ends "
            "with 2.",
    .options = options,
    .run = run_replay,
};
