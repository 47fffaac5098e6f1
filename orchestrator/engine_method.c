/* SPDX-License-Identifier: MIT */
/*
 * The method phase: steps start when their time comes, the HA manager is attended in between, stop
 * conditions are watched, and the phase ends when every step has ended and an expected failover has
 * been seen (or its deadline has passed), plus a time to settle.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "lib/units.h"
#include "orchestrator/engine_state.h"

enum {
    ATTEND_MS = 50,
    SURVEY_EVERY_MS = 1000,
    SURVEY_MS = 2000,
    STOP_EVERY_MS = 200,
    FAILOVER_MS = 60000, /* an expected failover is waited for, when none is promised */
    BESIDE_MS = 10000    /* beside twice the promise, to tell late from never */
};

/* ---- scheduling ---- */

/* Instant at which a step may start; 0: not known yet. */
static int64_t due_ns(const struct engine *engine, const struct step_run *run)
{
    const struct step *step = run->step;
    const struct step_run *other = &engine->steps[step->reference];

    if (step->timing == STEP_IN_TURN && run->index == 0)
        return engine->method_ns;
    if (step->timing == STEP_IN_TURN)
        return engine->steps[run->index - 1].ended_ns;
    if (step->timing == STEP_AT_START)
        return engine->method_ns + step->offset_ms * NS_PER_MS;
    if (step->timing == STEP_AFTER)
        return other->ended_ns;
    return other->started_ns == 0 ? 0 : other->started_ns + step->offset_ms * NS_PER_MS;
}

void steps_advance(struct engine *engine)
{
    for (size_t i = 0; i < engine->scenario->step_count; i++) {
        struct step_run *run = &engine->steps[i];
        int64_t due = run->state == STEP_IDLE ? due_ns(engine, run) : 0;

        if (due == 0)
            continue;
        run->state = STEP_SCHEDULED;
        run->due_ns = due;
        run->timer = loop_at(cluster_loop(engine->cluster), due, step_begin, run);
    }
}

static void make_steps(struct engine *engine)
{
    size_t count = engine->scenario->step_count;

    engine->steps = arena_array(engine->arena, count + 1, sizeof *engine->steps);
    for (size_t i = 0; i < count; i++)
        engine->steps[i] =
            (struct step_run){.engine = engine, .step = &engine->scenario->steps[i], .index = i};
    engine->method_ns = deadline_in_ms(engine->options->delay_ms);
    steps_advance(engine);
}

static bool all_ended(const struct engine *engine)
{
    for (size_t i = 0; i < engine->scenario->step_count; i++)
        if (engine->steps[i].state != STEP_ENDED)
            return false;
    return true;
}

/* ---- watching ---- */

static void on_survey(void *argument, const struct ha_state *state)
{
    struct engine *engine = argument;

    engine->surveying = false;
    engine_journal_members(engine, state, false);
}

static void survey_again(void *argument)
{
    struct engine *engine = argument;

    if (engine->surveying)
        return;
    engine->surveying = true;
    survey_start(engine->cluster, engine->topology, SURVEY_MS, on_survey, engine);
}

static void stop_run(struct engine *engine, const struct probe_use *use, double value)
{
    struct error reason = {0};
    char words[32];

    error_set(&reason, STATUS_ABORTED, "stop condition: %s was not as it should be for %s",
              use->probe->name, units_duration_text(use->false_for_ms, words, sizeof words));
    journal_event(engine->journal, "stop-condition",
                  json_pack("{s:s, s:s, s:f}", "probe", use->probe->name, "text", reason.message,
                            "value", value));
    cluster_abort(engine->cluster, &reason);
}

static void look_at_stops(void *argument)
{
    struct engine *engine = argument;
    struct probe_view view = load_view(engine, NULL);
    int64_t now_ns = clock_boot_ns();

    for (size_t i = 0; i < engine->scenario->stop_count; i++) {
        const struct probe_use *use = &engine->scenario->stops[i];
        struct open_stop *stop = &engine->stops[i];
        double value;

        if (probe_holds(use, &view, &value))
            stop->false_since_ns = 0;
        else if (stop->false_since_ns == 0)
            stop->false_since_ns = now_ns;
        else if (now_ns - stop->false_since_ns >= use->false_for_ms * NS_PER_MS)
            stop_run(engine, use, value);
    }
    view_draw(engine->view);
}

static void watch(struct engine *engine)
{
    struct loop *loop = cluster_loop(engine->cluster);

    engine->stops =
        arena_array(engine->arena, engine->scenario->stop_count + 1, sizeof *engine->stops);
    engine->survey_timer = loop_every(loop, SURVEY_EVERY_MS, survey_again, engine);
    engine->stop_timer = loop_every(loop, STOP_EVERY_MS, look_at_stops, engine);
}

static void unwatch(struct engine *engine)
{
    struct loop *loop = cluster_loop(engine->cluster);

    loop_remove(loop, engine->survey_timer);
    loop_remove(loop, engine->stop_timer);
    for (size_t i = 0; i < engine->scenario->step_count; i++) {
        loop_remove(loop, engine->steps[i].timer);
        if (engine->steps[i].state != STEP_ENDED)
            engine->steps[i].state = STEP_ENDED; /* callbacks that still come do nothing */
    }
}

/* ---- the phase ---- */

/* An error of the manager ends nothing: what it could not do now it may do later. */
static enum status attend(struct engine *engine, char last[1024], struct error *err)
{
    struct error error = {0};
    enum status status = engine->ha.driver->attend(&engine->ha, &error);

    if (status == STATUS_ABORTED) {
        *err = error;
        return status;
    }
    if (status != STATUS_OK && strncmp(last, error.message, 1023) != 0) {
        journal_note(engine->journal, "HA manager %s: %s", engine->ha.driver->name, error.message);
        memcpy(last, error.message, 1024);
    }
    return STATUS_OK;
}

static bool bit(const struct engine *engine)
{
    for (const struct injection *injection = engine->injections; injection != NULL;
         injection = injection->next)
        if (injection->result != NULL)
            return true;
    return false;
}

/* The last one that is expected is waited for, when something was injected that could cause it. */
static bool failover_pending(const struct engine *engine)
{
    return scenario_expects_failover(engine->scenario) && bit(engine) && !load_moved(engine);
}

static enum status turn(struct engine *engine, char last[1024], struct error *err)
{
    enum status status = attend(engine, last, err);

    if (status == STATUS_OK)
        status = engine_pause(engine, ATTEND_MS, err);
    if (status == STATUS_OK && engine->failed.code != STATUS_OK) {
        *err = engine->failed;
        status = engine->failed.code;
    }
    if (status == STATUS_OK)
        status = journal_failure(engine->journal, err);
    return status;
}

static enum status turn_until(struct engine *engine, bool (*over)(const struct engine *engine),
                              int64_t deadline_ns, struct error *err)
{
    char last[1024] = "";
    enum status status = STATUS_OK;

    while (status == STATUS_OK && !over(engine) && !deadline_passed(deadline_ns))
        status = turn(engine, last, err);
    return status;
}

static bool failover_done(const struct engine *engine)
{
    return !failover_pending(engine);
}

static bool never(const struct engine *engine)
{
    (void) engine;
    return false;
}

static enum status attend_steps(struct engine *engine, struct error *err)
{
    int64_t promise_ms = engine->topology->promise.failover_ms;
    int64_t wait_ms = promise_ms > 0 ? promise_ms * 2 + BESIDE_MS : FAILOVER_MS;
    enum status status = turn_until(engine, all_ended, INT64_MAX, err);

    if (status == STATUS_OK) {
        view_until(engine->view, deadline_in_ms(wait_ms));
        status = turn_until(engine, failover_done, deadline_in_ms(wait_ms), err);
    }
    if (status == STATUS_OK && failover_pending(engine))
        journal_note(engine->journal, "the expected failover was not seen within %" PRId64 " ms",
                     wait_ms);
    if (status == STATUS_OK) {
        view_until(engine->view, deadline_in_ms(engine->scenario->settle_ms));
        status = turn_until(engine, never, deadline_in_ms(engine->scenario->settle_ms), err);
    }
    return status;
}

enum status method_run(struct engine *engine, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state state;
    enum status status = engine_members(engine, arena, &state, err);

    if (status != STATUS_OK)
        return status;
    engine_phase(engine, "method");
    make_steps(engine);
    watch(engine);
    status = attend_steps(engine, err);
    unwatch(engine);
    return status;
}
