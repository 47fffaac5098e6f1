/* SPDX-License-Identifier: MIT */
/*
 * One fault on one node, from the question whether the node can do it to its undo:
 *
 *     fault.supported -> exposure -> fault.inject -> witnesses -> fault.injected
 *         ... for: ... -> fault.undo -> fault.undone
 *
 * Everything but injections_undo_all() runs in callbacks of the loop.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/engine_state.h"

enum { SUPPORTED_MS = 5000, INJECT_MS = 60000, WITNESS_MS = 5000, IN_FLIGHT_MS = 15000 };
enum { TOGETHER_MS = 150 }; /* to prepare and record on every node before all begin */

/* ---- the end of one ---- */

static void finish(struct injection *injection)
{
    struct step_run *run = injection->run;

    if (injection->over)
        return;
    injection->over = true;
    if (--run->open == 0 && run->state == STEP_RUNNING)
        step_ended(run);
}

static json_t *base_json(const struct injection *injection)
{
    return json_pack("{s:s, s:s, s:s, s:s}", "uid", injection->uid, "step",
                     injection->run->step->name, "fault", injection->run->step->fault->name, "node",
                     injection->node->name);
}

static void skip(struct injection *injection, const char *reason)
{
    step_skip(injection->run, injection->node->name, reason);
    injection->journaled = true;
    finish(injection);
}

static void journal_failed(struct injection *injection, const struct error *error)
{
    json_t *event = base_json(injection);

    json_object_set_new(event, "error", json_from_error(error));
    journal_event(injection->run->engine->journal, "fault.failed", event);
    injection->journaled = injection->failed = true;
}

/* ---- undo ---- */

static void journal_undone(struct injection *injection, const char *clock, int64_t undone_ns,
                           const char *by, const char *state, const char *text)
{
    struct engine *engine = injection->run->engine;

    injection->undone = true;
    journal_event(engine->journal, "fault.undone",
                  json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:s}", "uid", injection->uid,
                            "step", injection->run->step->name, "fault",
                            injection->run->step->fault->name, "node", injection->node->name,
                            "clock", clock, "undone_ns", (json_int_t) undone_ns, "by", by, "state",
                            state, "text", text));
}

static void take_undo(struct injection *injection, const json_t *result)
{
    journal_undone(injection, injection->agent->name, json_number(result, "undone_ns", 0),
                   json_text(result, "by", "agent"), json_text(result, "state", "unknown"),
                   json_text(result, "text", ""));
}

/* An injection that failed before its record was durable has changed nothing. */
static bool never_recorded(const struct injection *injection, enum status status)
{
    return status == STATUS_NOT_FOUND && injection->result == NULL;
}

static void on_undone(void *argument, enum status status, const json_t *result,
                      const struct error *error)
{
    struct injection *injection = argument;

    injection->undoing = false;
    injection->undone = injection->undone || never_recorded(injection, status);
    if (injection->undone) {
        finish(injection);
        return;
    }
    if (status == STATUS_OK)
        take_undo(injection, result);
    else /* the lease ends it, and the recovery asks again */
        journal_note(injection->run->engine->journal, "undoing %s on %s: %s", injection->uid,
                     injection->node->name, error->message);
    finish(injection);
}

static json_t *undo_params(const struct injection *injection)
{
    return json_pack("{s:s, s:s}", "run", injection->run->engine->run, "uid", injection->uid);
}

void injection_undo(struct injection *injection)
{
    struct engine *engine = injection->run->engine;

    if (!injection->sent || injection->undone || injection->undoing)
        return;
    injection->undoing = true;
    loop_remove(cluster_loop(engine->cluster), injection->timer);
    injection->timer = 0;
    journal_event(engine->journal, "fault.undo", base_json(injection));
    cluster_post(engine->cluster, injection->agent->name, "fault.undo", undo_params(injection),
                 UNDO_MS, on_undone, injection);
}

static void on_hold_over(void *argument)
{
    struct injection *injection = argument;

    injection->timer = 0;
    injection_undo(injection);
}

void injection_notified(struct engine *engine, const struct topology_node *node,
                        const json_t *params)
{
    const char *uid = json_text(params, "uid", "");

    for (struct injection *injection = engine->injections; injection != NULL;
         injection = injection->next) {
        if (strcmp(injection->uid, uid) != 0 || injection->undone || injection->agent != node)
            continue;
        if (injection->run->step->fault->holds)
            journal_undone(injection, node->name, json_number(params, "at_ns", 0),
                           json_text(params, "by", "lease"), json_text(params, "state", "unknown"),
                           "undone by the guardian");
        finish(injection);
    }
}

/* ---- injected ---- */

static void journal_injected(struct injection *injection)
{
    const struct step *step = injection->run->step;
    const json_t *result = injection->result;
    json_t *event = base_json(injection);

    if (injection->journaled || result == NULL) {
        json_decref(event);
        return;
    }
    injection->journaled = true;
    json_object_set_new(event, "clock", json_string(injection->agent->name));
    json_object_set(event, "params", injection->params);
    json_object_set(event, "record", json_object_get(result, "record"));
    json_object_set(event, "f0_ns", json_object_get(result, "f0_ns"));
    json_object_set(event, "f1_ns", json_object_get(result, "f1_ns"));
    json_object_set(event, "effect", json_object_get(result, "effect"));
    json_object_set(event, "witness", injection->witness);
    json_object_set_new(event, "holds", json_boolean(step->fault->holds));
    json_object_set_new(event, "hold_ms", json_integer(step->hold_ms));
    journal_event(injection->run->engine->journal, "fault.injected", event);
}

static void witnessed(struct injection *injection)
{
    journal_injected(injection);
    if (!injection->run->step->fault->holds)
        finish(injection);
}

struct testimony {
    struct injection *injection;
    const char *node;
};

static void on_testimony(void *argument, enum status status, const json_t *result,
                         const struct error *error)
{
    struct testimony *testimony = argument;
    struct injection *injection = testimony->injection;
    const char *state = status == STATUS_OK ? json_text(result, "state", "unknown") : "unknown";
    const char *text = status == STATUS_OK ? json_text(result, "text", "") : error->message;

    json_array_append_new(injection->witness, json_pack("{s:s, s:s, s:s}", "node", testimony->node,
                                                        "state", state, "text", text));
    if (--injection->witnesses_open == 0)
        witnessed(injection);
}

static void ask_witness(struct injection *injection, const struct topology_node *node)
{
    struct engine *engine = injection->run->engine;
    struct testimony *testimony = arena_alloc(engine->arena, sizeof *testimony);
    json_t *params =
        json_pack("{s:s, s:s, s:O}", "fault", injection->run->step->fault->name, "uid",
                  injection->uid, "record", json_object_get(injection->result, "record"));

    *testimony = (struct testimony){.injection = injection, .node = node->name};
    cluster_post(engine->cluster, node->name, "fault.witness", params, WITNESS_MS, on_testimony,
                 testimony);
}

/* Is the node free of this step's faults, and there to be asked? */
static bool can_witness(const struct injection *injection, const struct topology_node *node)
{
    const struct engine *engine = injection->run->engine;

    if (node == injection->node || !cluster_connected(engine->cluster, node->name))
        return false;
    for (const struct injection *other = engine->injections; other != NULL; other = other->next)
        if (other->node == node && other->sent && !other->undone)
            return false;
    return true;
}

/* A client node, which is where it matters, and one other database node. */
static void call_witnesses(struct injection *injection)
{
    static const enum topology_role roles[] = {ROLE_CLIENT, ROLE_DATABASE};
    const struct topology *topology = injection->run->engine->topology;
    const struct topology_node *chosen[2] = {NULL, NULL};
    size_t count = 0;

    for (size_t r = 0; injection->run->step->fault->witness != NULL && r < 2; r++) {
        for (size_t i = 0; i < topology->node_count && count == r; i++) {
            const struct topology_node *node = &topology->nodes[i];

            if ((node->roles & (unsigned) roles[r]) != 0 && node != chosen[0] &&
                can_witness(injection, node))
                chosen[count++] = node;
        }
    }
    injection->witnesses_open = count;
    for (size_t i = 0; i < count; i++)
        ask_witness(injection, chosen[i]);
    if (count == 0)
        witnessed(injection);
}

static void on_injected(void *argument, enum status status, const json_t *result,
                        const struct error *error)
{
    struct injection *injection = argument;
    struct engine *engine = injection->run->engine;

    if (status != STATUS_OK) { /* it may have begun: nothing of it may stay */
        journal_failed(injection, error);
        injection_undo(injection);
        if (!injection->undoing)
            finish(injection);
        return;
    }
    injection->result = json_incref((json_t *) (uintptr_t) result);
    if (injection->run->step->fault->holds)
        injection->timer =
            loop_at(cluster_loop(engine->cluster), deadline_in_ms(injection->run->step->hold_ms),
                    on_hold_over, injection);
    call_witnesses(injection);
}

/* ---- before ---- */

static void journal_exposure(struct injection *injection)
{
    struct engine *engine = injection->run->engine;

    journal_event(engine->journal, "exposure",
                  json_pack("{s:s, s:I, s:f, s:O}", "uid", injection->uid, "acked_last_second",
                            (json_int_t) load_acked_last_second(engine), "rate", load_rate(engine),
                            "standbys", injection->standbys));
}

/* What is about to be done, for whoever reads the journal of a run that died. */
static void journal_inject(struct injection *injection)
{
    json_t *event = base_json(injection);

    json_object_set(event, "params", injection->params);
    json_object_set_new(event, "hold_ms", json_integer(injection->run->step->hold_ms));
    journal_event(injection->run->engine->journal, "fault.inject", event);
}

/* The nodes of a step begin at one instant, each on its own clock; `at_ns` is on ours. */
static void begin_together(const struct injection *injection, int64_t at_ns, json_t *params)
{
    int64_t offset_ns = 0, error_ns = 0;

    if (cluster_clock(injection->run->engine->cluster, injection->agent->name, &offset_ns,
                      &error_ns, NULL) == STATUS_OK)
        json_object_set_new(params, "at_ns", json_integer(at_ns + offset_ns));
}

static void send_inject(struct injection *injection, int64_t at_ns)
{
    const struct step_run *run = injection->run;
    struct engine *engine = run->engine;
    json_t *params = json_pack("{s:s, s:s, s:s, s:O, s:I}", "run", engine->run, "uid",
                               injection->uid, "fault", run->step->fault->name, "params",
                               injection->params, "hold_ms", (json_int_t) run->step->hold_ms);

    if (at_ns != 0)
        begin_together(injection, at_ns, params);
    injection->sent = true;
    if (strcmp(run->step->expect_failover, "yes") == 0)
        load_expect_move(engine, injection->timeline);
    cluster_post(engine->cluster, injection->agent->name, "fault.inject", params, INJECT_MS,
                 on_injected, injection);
}

/* No fault whose event could not be made durable: a run must be able to say what it did. */
static void on_durable(void *argument, const struct error *error)
{
    struct step_run *run = argument;
    struct engine *engine = run->engine;

    if (run->state != STEP_RUNNING)
        return; /* wound up meanwhile */
    if (error != NULL)
        engine_fail(engine, error);
    int64_t at_ns = run->open > 1 ? deadline_in_ms(TOGETHER_MS) : 0;
    for (struct injection *injection = engine->injections; injection != NULL;
         injection = injection->next) {
        if (injection->run != run || !injection->able || injection->sent)
            continue;
        if (error == NULL) {
            send_inject(injection, at_ns);
            continue;
        }
        journal_failed(injection, error);
        finish(injection);
    }
}

/* Every node of the step has answered: all of them at once, after one wait for the disk. */
static void asked(struct step_run *run)
{
    struct engine *engine = run->engine;
    bool any = false;

    if (--run->asking > 0)
        return;
    for (struct injection *injection = engine->injections; injection != NULL;
         injection = injection->next) {
        if (injection->run != run || !injection->able)
            continue;
        any = true;
        journal_exposure(injection);
        journal_inject(injection);
    }
    if (any)
        journal_sync(engine->journal, cluster_loop(engine->cluster), on_durable, run);
}

static void on_supported(void *argument, enum status status, const json_t *result,
                         const struct error *error)
{
    struct injection *injection = argument;
    struct step_run *run = injection->run;

    if (run->state != STEP_RUNNING)
        return; /* wound up meanwhile */
    if (status != STATUS_OK) {
        journal_failed(injection, error);
        finish(injection);
        asked(run);
        return;
    }
    if (!json_flag(result, "supported", false)) {
        skip(injection, json_text(result, "reason", "this node cannot do it"));
        asked(run);
        return;
    }
    injection->able = true;
    asked(run);
}

static json_t *gaps_json(const struct ha_state *state)
{
    json_t *standbys = json_array();

    for (size_t i = 0; i < state->count; i++) {
        const struct ha_member *member = &state->members[i];
        int64_t gap = survey_gap_bytes(state, member);

        if (member->primary)
            continue;
        json_array_append_new(standbys,
                              json_pack("{s:s, s:o}", "node", member->node->name, "gap_bytes",
                                        gap >= 0 ? json_integer(gap) : json_null()));
    }
    return standbys;
}

/* Of those that write; 0 when nobody does. */
static uint32_t newest_timeline(const struct ha_state *state)
{
    uint32_t newest = 0;

    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].primary && state->members[i].timeline > newest)
            newest = state->members[i].timeline;
    return newest;
}

static void ask_supported(struct injection *injection)
{
    cluster_post(injection->run->engine->cluster, injection->agent->name, "fault.supported",
                 json_pack("{s:s, s:O}", "fault", injection->run->step->fault->name, "params",
                           injection->params),
                 SUPPORTED_MS, on_supported, injection);
}

static void on_permitted(void *argument, enum status status, const json_t *result,
                         const struct error *error)
{
    struct injection *injection = argument;

    (void) result;
    if (injection->run->state != STEP_RUNNING)
        return; /* wound up meanwhile */
    if (status == STATUS_OK) {
        ask_supported(injection);
        return;
    }
    journal_failed(injection, error);
    finish(injection);
    asked(injection->run);
}

/* Another agent will carry it out, but the node belongs to its owner. */
static void ask_permission(struct injection *injection)
{
    const struct engine *engine = injection->run->engine;

    cluster_post(engine->cluster, injection->node->name, "fault.permitted",
                 json_pack("{s:s, s:s, s:I}", "run", engine->run, "fault",
                           injection->run->step->fault->name, "hold_ms",
                           (json_int_t) injection->run->step->hold_ms),
                 SUPPORTED_MS, on_permitted, injection);
}

void injection_start(struct step_run *run, const struct topology_node *node, json_t *params,
                     const struct ha_state *state)
{
    struct engine *engine = run->engine;
    struct injection *injection = arena_alloc(engine->arena, sizeof *injection);
    bool power = run->step->fault->executor == EXECUTE_POWER;
    size_t number = 1;

    for (const struct injection *other = engine->injections; other != NULL; other = other->next)
        number++;
    injection->run = run;
    injection->node = node;
    injection->agent = power ? topology_first(engine->topology, ROLE_POWER) : node;
    injection->params = params;
    injection->witness = json_array();
    injection->uid =
        arena_printf(engine->arena, "%s-s%zu-%zu", engine->prefix, run->index + 1, number);
    injection->next = engine->injections;
    engine->injections = injection;
    if (power)
        json_object_set_new(params, "node", json_string(node->name));
    if (power && !topology_has_power(engine->topology)) {
        skip(injection, "the topology has no power driver");
        asked(run);
        return;
    }
    /* the look at the cluster is gone when the answer comes: keep what the exposure needs */
    injection->standbys = gaps_json(state);
    injection->timeline = newest_timeline(state);
    if (power)
        ask_permission(injection);
    else
        ask_supported(injection);
}

/* ---- at the end of a run ---- */

static bool must_undo(const struct injection *injection)
{
    return injection->sent && !injection->undone &&
           (injection->run->step->fault->holds || injection->result == NULL);
}

static enum status undo_one(struct engine *engine, struct injection *injection, struct error *err)
{
    json_t *result = NULL;

    journal_event(engine->journal, "fault.undo", base_json(injection));
    enum status status = cluster_wait_connected(engine->cluster, injection->agent->name,
                                                deadline_in_ms(UNDO_MS), err);

    if (status == STATUS_OK)
        status = cluster_call(engine->cluster, injection->agent->name, "fault.undo",
                              undo_params(injection), UNDO_MS, &result, err);
    if (never_recorded(injection, status)) {
        injection->undone = true;
        return STATUS_OK;
    }
    if (status == STATUS_OK && !injection->undone && injection->run->step->fault->holds)
        take_undo(injection, result);
    json_decref(result);
    injection->undone = injection->undone || status == STATUS_OK;
    return status;
}

/* An injection whose answer is not there yet may still begin; its undo must come after. */
static bool none_in_flight(void *argument)
{
    const struct engine *engine = argument;

    for (const struct injection *injection = engine->injections; injection != NULL;
         injection = injection->next)
        if (injection->sent && injection->result == NULL && !injection->journaled)
            return false;
    return true;
}

/* Announced, but the run ended while it waited for the disk. */
static void journal_unsent(struct injection *injection)
{
    struct error error = {0};

    if (!injection->able || injection->sent || injection->journaled)
        return;
    error_set(&error, STATUS_ABORTED, "the run ended before it was sent");
    journal_failed(injection, &error);
}

enum status injections_undo_all(struct engine *engine, struct error *err)
{
    enum status status = STATUS_OK;
    struct error error = {0};

    if (cluster_wait(engine->cluster, none_in_flight, engine, deadline_in_ms(IN_FLIGHT_MS),
                     &error) != STATUS_OK)
        journal_note(engine->journal, "an injection has no answer: %s", error.message);
    for (struct injection *injection = engine->injections; injection != NULL;
         injection = injection->next) {
        loop_remove(cluster_loop(engine->cluster), injection->timer);
        injection->timer = 0;
        journal_unsent(injection);
        journal_injected(injection);
        if (!must_undo(injection) || undo_one(engine, injection, &error) == STATUS_OK)
            continue;
        journal_note(engine->journal, "undoing %s on %s: %s", injection->uid, injection->node->name,
                     error.message);
        if (status == STATUS_OK && err != NULL)
            *err = error;
        status = error.code;
    }
    return status;
}
