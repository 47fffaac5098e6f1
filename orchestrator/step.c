/* SPDX-License-Identifier: MIT */
/*
 * One step of a method: begins when its time has come, resolves its targets by a fresh look at the
 * cluster, acts, ends. Everything runs in callbacks of the loop.
 */
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/engine_state.h"

enum { SURVEY_MS = 1500, SURVEY_AGAIN_MS = 4000, SURVEYS_MAX = 4 };

static const char *fault_name(const struct step *step)
{
    return step->kind == STEP_FAULT   ? step->fault->name
           : step->kind == STEP_POWER ? "power"
                                      : "pause";
}

/* When it was to begin, from the start of the method: the same when the run is replayed. */
static int64_t offset_ms(const struct step_run *run)
{
    return (run->due_ns - run->engine->method_ns) / NS_PER_MS;
}

/* What was resolved, before any of it is done. */
static void schedule(const struct step_run *run, const char *node, const json_t *params)
{
    static const char *const actions[] = {
        [STEP_FAULT] = "inject", [STEP_POWER] = "power", [STEP_PAUSE] = "pause"};
    const struct step *step = run->step;
    struct journal *journal = run->engine->journal;
    OWNED_JSON json_t *none = json_object();

    journal_schedule(journal, offset_ms(run), step->name, actions[step->kind],
                     step->kind == STEP_FAULT   ? step->fault->name
                     : step->kind == STEP_POWER ? "on"
                                                : "-",
                     node, params != NULL ? params : none);
    if (step->kind == STEP_FAULT && step->fault->holds)
        journal_schedule(journal, offset_ms(run) + step->hold_ms, step->name, "undo",
                         step->fault->name, node, none);
}

static void schedule_all(const struct step_run *run, const struct target_nodes *nodes,
                         const json_t *params)
{
    for (size_t i = 0; i < nodes->count; i++)
        schedule(run, nodes->nodes[i]->name, params);
}

static void journal_begin(struct step_run *run, const struct target_nodes *nodes,
                          const json_t *params)
{
    json_t *targets = json_array();

    for (size_t i = 0; nodes != NULL && i < nodes->count; i++)
        json_array_append_new(targets, json_string(nodes->nodes[i]->name));
    journal_event(run->engine->journal, "step.start",
                  json_pack("{s:s, s:s, s:I, s:o, s:o}", "step", run->step->name, "fault",
                            fault_name(run->step), "offset_ms", (json_int_t) offset_ms(run),
                            "targets", targets, "params",
                            params != NULL ? json_deep_copy(params) : json_object()));
}

void step_ended(struct step_run *run)
{
    if (run->state == STEP_ENDED)
        return;
    run->state = STEP_ENDED;
    run->ended_ns = clock_boot_ns();
    journal_event(run->engine->journal, "step.end", json_pack("{s:s}", "step", run->step->name));
    if (run->engine->failed.code == STATUS_OK) /* else nothing more is begun */
        steps_advance(run->engine);
}

void step_skip(struct step_run *run, const char *node, const char *reason)
{
    struct engine *engine = run->engine;
    bool optional = run->step->optional && !engine->options->strict;

    engine->skipped = true;
    journal_event(engine->journal, "step.skipped",
                  json_pack("{s:s, s:s, s:s, s:b}", "step", run->step->name, "node", node, "reason",
                            reason, "optional", optional));
}

static void fail_step(struct step_run *run, const struct error *error)
{
    struct error reason = *error;

    error_context(&reason, "step %s", run->step->name);
    engine_fail(run->engine, &reason);
    step_ended(run);
}

/* ---- faults ---- */

/* Lists of nodes go to the agent as names; what the step acts on is never among its own peers. */
static enum status resolve_lists(struct step_run *run, const struct target_scope *outer,
                                 const struct target_nodes *nodes, json_t *params,
                                 struct error *err)
{
    struct engine *engine = run->engine;
    struct target_scope scope = *outer;

    scope.exclude = nodes->nodes;
    scope.exclude_count = nodes->count;
    for (size_t i = 0; i < run->step->node_count; i++) {
        const struct step_nodes *list = &run->step->nodes[i];
        struct target_nodes found;
        enum status status = target_resolve(engine->arena, &list->target, &scope, &found, err);

        if (status != STATUS_OK)
            return error_context(err, "%s", list->name);
        json_t *names = json_array();
        for (size_t j = 0; j < found.count; j++)
            json_array_append_new(names, json_string(found.nodes[j]->name));
        json_object_set_new(params, list->name, names);
    }
    return STATUS_OK;
}

static void inject_all(struct step_run *run, const struct target_nodes *nodes, const json_t *params,
                       const struct ha_state *state)
{
    journal_begin(run, nodes, params);
    schedule_all(run, nodes, params);
    run->open = run->asking = nodes->count;
    for (size_t i = 0; i < nodes->count; i++)
        injection_start(run, nodes->nodes[i], json_deep_copy(params), state);
}

/* ---- power ---- */

static void on_power(void *argument, enum status status, const json_t *result,
                     const struct error *error)
{
    struct step_run *run = argument;

    (void) result;
    if (status != STATUS_OK)
        engine_fail(run->engine, error);
    if (--run->open == 0)
        step_ended(run);
}

static void power_all(struct step_run *run, const struct target_nodes *nodes)
{
    struct engine *engine = run->engine;
    const struct topology_node *power = topology_first(engine->topology, ROLE_POWER);

    journal_begin(run, nodes, NULL);
    if (!topology_has_power(engine->topology)) {
        for (size_t i = 0; i < nodes->count; i++)
            step_skip(run, nodes->nodes[i]->name, "the topology has no power driver");
        step_ended(run);
        return;
    }
    schedule_all(run, nodes, NULL);
    run->open = nodes->count;
    for (size_t i = 0; i < nodes->count; i++) {
        json_t *params = json_pack("{s:s, s:s, s:s}", "run", engine->run, "node",
                                   nodes->nodes[i]->name, "word", "on");

        cluster_post(engine->cluster, power->name, "power", params, POWER_MS, on_power, run);
    }
}

/* ---- beginning ---- */

/* A node whose agent is connected but late: what it would have said may be the target. */
static bool somebody_is_late(const struct engine *engine, const struct ha_state *state)
{
    for (size_t i = 0; i < state->count; i++)
        if (!state->members[i].reachable &&
            cluster_connected(engine->cluster, state->members[i].node->name))
            return true;
    return false;
}

static void on_survey(void *argument, const struct ha_state *state);

static bool look_again(struct step_run *run, const struct ha_state *state)
{
    struct engine *engine = run->engine;

    if (run->surveys == SURVEYS_MAX || !somebody_is_late(engine, state))
        return false;
    run->surveys++;
    survey_start(engine->cluster, engine->topology, SURVEY_AGAIN_MS, on_survey, run);
    return true;
}

static void on_survey(void *argument, const struct ha_state *state)
{
    struct step_run *run = argument;
    struct engine *engine = run->engine;
    struct target_scope scope = {
        .topology = engine->topology, .state = state, .random = &engine->random};
    OWNED_JSON json_t *params =
        run->step->params != NULL ? json_deep_copy(run->step->params) : json_object();
    struct target_nodes nodes = {0};
    struct error error = {0};

    if (run->state != STEP_RUNNING)
        return; /* the run was wound up meanwhile */
    engine_journal_members(engine, state, false);
    if (target_resolve(engine->arena, &run->step->target, &scope, &nodes, &error) != STATUS_OK ||
        resolve_lists(run, &scope, &nodes, params, &error) != STATUS_OK) {
        if (!look_again(run, state))
            fail_step(run, &error);
    } else if (run->step->kind == STEP_POWER) {
        power_all(run, &nodes);
    } else {
        inject_all(run, &nodes, params, state);
    }
}

static void on_pause_over(void *argument)
{
    step_ended(argument);
}

void step_begin(void *argument)
{
    struct step_run *run = argument;
    struct engine *engine = run->engine;

    run->state = STEP_RUNNING;
    run->started_ns = clock_boot_ns();
    if (run->step->kind == STEP_PAUSE) {
        OWNED_JSON json_t *params = json_pack("{s:I}", "for_ms", (json_int_t) run->step->pause_ms);

        journal_begin(run, NULL, NULL);
        schedule(run, "-", params);
        run->timer = loop_at(cluster_loop(engine->cluster), deadline_in_ms(run->step->pause_ms),
                             on_pause_over, run);
    } else {
        run->surveys = 1;
        survey_start(engine->cluster, engine->topology, SURVEY_MS, on_survey, run);
    }
    steps_advance(engine);
}
