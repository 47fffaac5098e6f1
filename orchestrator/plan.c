/* SPDX-License-Identifier: MIT */
#include "orchestrator/plan.h"

#include <inttypes.h>
#include <string.h>

#include "lib/owned.h"
#include "lib/units.h"

enum mark { MARK_NEW, MARK_OPEN, MARK_DONE };

struct planning {
    const struct scenario *scenario;
    struct plan_span *spans;
    enum mark *marks;
};

static int64_t length_ms(const struct step *step)
{
    return step->kind == STEP_PAUSE ? step->pause_ms : step->hold_ms;
}

static enum status span_of(struct planning *planning, size_t index, struct error *err);

static enum status start_of(struct planning *planning, size_t index, int64_t *ret_start_ms,
                            struct error *err)
{
    const struct step *step = &planning->scenario->steps[index];
    size_t other = step->timing == STEP_IN_TURN ? index - 1 : step->reference;

    if (step->timing == STEP_AT_START || (step->timing == STEP_IN_TURN && index == 0)) {
        *ret_start_ms = step->offset_ms;
        return STATUS_OK;
    }
    enum status status = span_of(planning, other, err);
    if (status != STATUS_OK)
        return status;
    if (step->timing == STEP_AT_STEP)
        *ret_start_ms = planning->spans[other].start_ms + step->offset_ms;
    else
        *ret_start_ms = planning->spans[other].end_ms;
    return STATUS_OK;
}

static enum status span_of(struct planning *planning, size_t index, struct error *err)
{
    const struct step *step = &planning->scenario->steps[index];
    struct plan_span *span = &planning->spans[index];

    if (planning->marks[index] == MARK_DONE)
        return STATUS_OK;
    if (planning->marks[index] == MARK_OPEN)
        return error_set(err, STATUS_INVALID, "step %s waits for itself through other steps",
                         step->name);
    planning->marks[index] = MARK_OPEN;
    enum status status = start_of(planning, index, &span->start_ms, err);
    if (status != STATUS_OK)
        return status;
    span->end_ms = span->start_ms + length_ms(step);
    planning->marks[index] = MARK_DONE;
    return STATUS_OK;
}

enum status plan_spans(struct arena *arena, const struct scenario *scenario,
                       struct plan_span **ret_spans, struct error *err)
{
    struct planning planning = {
        .scenario = scenario,
        .spans = arena_array(arena, scenario->step_count + 1, sizeof(struct plan_span)),
        .marks = arena_array(arena, scenario->step_count + 1, sizeof(enum mark))};

    for (size_t i = 0; i < scenario->step_count; i++) {
        enum status status = span_of(&planning, i, err);
        if (status != STATUS_OK)
            return status;
    }
    *ret_spans = planning.spans;
    return STATUS_OK;
}

/* Two holding faults of one group whose spans overlap. */
static bool exclude(const struct scenario *scenario, const struct plan_span *spans, size_t a,
                    size_t b)
{
    const struct step *left = &scenario->steps[a], *right = &scenario->steps[b];

    return left->kind == STEP_FAULT && right->kind == STEP_FAULT && left->fault->excludes != NULL &&
           right->fault->excludes != NULL &&
           strcmp(left->fault->excludes, right->fault->excludes) == 0 && left->hold_ms > 0 &&
           right->hold_ms > 0 && spans[a].start_ms < spans[b].end_ms &&
           spans[b].start_ms < spans[a].end_ms;
}

/* The same words name the same nodes; anything else is known only when the step starts. */
static bool same_target(struct arena *arena, const struct target *left, const struct target *right)
{
    return strcmp(target_text(arena, left), target_text(arena, right)) == 0;
}

void plan_check(struct arena *arena, const struct scenario *scenario, struct yaml_errors *errors)
{
    struct plan_span *spans;
    struct error error = {0};

    if (plan_spans(arena, scenario, &spans, &error) != STATUS_OK) {
        yaml_complain(errors, scenario->step_count > 0 ? scenario->steps[0].at : NULL, "%s",
                      error.message);
        return;
    }
    for (size_t a = 0; a < scenario->step_count; a++)
        for (size_t b = a + 1; b < scenario->step_count; b++)
            if (exclude(scenario, spans, a, b) &&
                same_target(arena, &scenario->steps[a].target, &scenario->steps[b].target))
                yaml_complain(errors, scenario->steps[b].at,
                              "steps %s and %s would be active on the same node at once, and "
                              "their faults exclude each other (%s)",
                              scenario->steps[a].name, scenario->steps[b].name,
                              scenario->steps[a].fault->excludes);
}

/* ---- text ---- */

struct writing {
    struct arena *arena;
    const struct scenario *scenario;
    const struct topology *topology;
    const struct ha_state *state;
    uint64_t random;
    struct target_nodes *targets; /* a step each */
    struct plan_span *spans;
    struct buffer *text;
};

static enum status resolve_step(struct writing *writing, size_t index, struct error *err)
{
    const struct step *step = &writing->scenario->steps[index];
    struct target_scope scope = {
        .topology = writing->topology, .state = writing->state, .random = &writing->random};
    enum status status =
        target_resolve(writing->arena, &step->target, &scope, &writing->targets[index], err);

    if (status != STATUS_OK)
        return error_context(err, "step %s", step->name);
    return STATUS_OK;
}

static void write_names(struct buffer *text, const struct target_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++)
        buffer_printf(text, "%s%s", i == 0 ? "" : ", ", nodes->nodes[i]->name);
}

/* Durations are in ms in the model; people read them as they wrote them. */
static void write_param(struct buffer *text, const struct param *param, const json_t *value)
{
    char words[32];
    OWNED_MEMORY char *json = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

    if (param != NULL && param->type == PARAM_DURATION)
        buffer_puts(text, units_duration_text(json_integer_value(value), words, sizeof words));
    else if (param != NULL && param->type == PARAM_SIZE)
        buffer_puts(text, units_size_text(json_integer_value(value), words, sizeof words));
    else if (json_is_string(value))
        buffer_puts(text, json_string_value(value));
    else
        buffer_puts(text, json != NULL ? json : "?");
}

static void write_params(struct writing *writing, const struct step *step)
{
    const char *key, *separator = "";
    json_t *value;

    json_object_foreach(step->params, key, value)
    {
        buffer_printf(writing->text, "%s%s ", separator, key);
        write_param(writing->text, param_find(step->fault->params, key), value);
        separator = ", ";
    }
    for (size_t i = 0; i < step->node_count; i++) {
        buffer_printf(writing->text, "%s%s %s", separator, step->nodes[i].name,
                      target_text(writing->arena, &step->nodes[i].target));
        separator = ", ";
    }
}

bool plan_needs_power(const struct step *step)
{
    return step->kind == STEP_POWER ||
           (step->kind == STEP_FAULT && step->fault->executor == EXECUTE_POWER);
}

static void write_unsupported(struct writing *writing, const struct step *step)
{
    if (plan_needs_power(step) && !topology_has_power(writing->topology))
        buffer_printf(writing->text, "  cannot   the topology has no power driver: %s\n",
                      step->optional ? "the step is skipped" : "the run is refused");
}

static void write_fault(struct writing *writing, const struct step *step, size_t index)
{
    const struct fault *fault = step->fault;
    struct buffer *text = writing->text;
    char hold[32];

    buffer_printf(text, "  fault    %s", fault->name);
    if (step->hold_ms > 0)
        buffer_printf(text, " for %s", units_duration_text(step->hold_ms, hold, sizeof hold));
    buffer_puts(text, step->optional ? " (optional)\n  with     " : "\n  with     ");
    write_params(writing, step);
    buffer_printf(text, "\n  target   %s", target_text(writing->arena, &step->target));
    if (writing->state != NULL) {
        buffer_puts(text, ", now: ");
        write_names(text, &writing->targets[index]);
    }
    buffer_printf(text, "\n  undo     %s\n",
                  fault->reversible ? fault->holds ? "by the agent at the end, by the lease "
                                                     "if the run dies"
                                                   : "nothing to undo"
                  : fault->restores != NULL ? fault->restores
                                            : "by the HA layer");
    buffer_printf(text, "  at stake %s\n", fault->loses != NULL ? fault->loses : "nothing");
    buffer_printf(text, "  expect   failover %s, writes %s\n", step->expect_failover,
                  step->expect_writes);
}

static void write_step(struct writing *writing, size_t index)
{
    const struct step *step = &writing->scenario->steps[index];
    const struct plan_span *span = &writing->spans[index];
    char words[32];

    buffer_printf(writing->text, "%8.3f s  %s\n", (double) span->start_ms / 1000, step->name);
    if (step->kind == STEP_PAUSE) {
        buffer_printf(writing->text, "  pause    %s\n",
                      units_duration_text(step->pause_ms, words, sizeof words));
    } else if (step->kind == STEP_POWER) {
        buffer_printf(writing->text, "  power    on, %s\n",
                      target_text(writing->arena, &step->target));
    } else {
        write_fault(writing, step, index);
    }
    write_unsupported(writing, step);
}

static bool share_node(const struct target_nodes *left, const struct target_nodes *right,
                       const char **ret_name)
{
    for (size_t i = 0; i < left->count; i++) {
        for (size_t j = 0; j < right->count; j++) {
            if (left->nodes[i] == right->nodes[j]) {
                *ret_name = left->nodes[i]->name;
                return true;
            }
        }
    }
    return false;
}

static enum status refuse_overlap(const struct writing *writing, struct error *err)
{
    const struct scenario *scenario = writing->scenario;
    const char *name;

    for (size_t a = 0; a < scenario->step_count; a++)
        for (size_t b = a + 1; b < scenario->step_count; b++)
            if (exclude(scenario, writing->spans, a, b) &&
                share_node(&writing->targets[a], &writing->targets[b], &name))
                return error_set(err, STATUS_REFUSED,
                                 "steps %s and %s would both be active on %s, and their faults "
                                 "exclude each other (%s)",
                                 scenario->steps[a].name, scenario->steps[b].name, name,
                                 scenario->steps[a].fault->excludes);
    return STATUS_OK;
}

enum status plan_text(struct arena *arena, const struct scenario *scenario,
                      const struct topology *topology, const struct ha_state *state, uint64_t seed,
                      struct buffer *text, struct error *err)
{
    struct writing writing = {.arena = arena,
                              .scenario = scenario,
                              .topology = topology,
                              .state = state,
                              .random = seed,
                              .text = text};
    char baseline[32], recovery[32];

    writing.targets = arena_array(arena, scenario->step_count + 1, sizeof *writing.targets);
    enum status status = plan_spans(arena, scenario, &writing.spans, err);
    for (size_t i = 0; status == STATUS_OK && state != NULL && i < scenario->step_count; i++)
        if (scenario->steps[i].kind != STEP_PAUSE)
            status = resolve_step(&writing, i, err);
    if (status != STATUS_OK)
        return status;
    buffer_printf(text, "%s\nworkload %" PRId64 " clients at %s; baseline %s; recovery within %s\n",
                  scenario->title,
                  (int64_t) json_integer_value(json_object_get(scenario->workload, "clients")),
                  scenario->rate_text,
                  units_duration_text(scenario->baseline_ms, baseline, sizeof baseline),
                  units_duration_text(scenario->recovery_ms, recovery, sizeof recovery));
    for (size_t i = 0; i < scenario->step_count; i++)
        write_step(&writing, i);
    return refuse_overlap(&writing, err);
}
