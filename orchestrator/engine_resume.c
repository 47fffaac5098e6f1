/* SPDX-License-Identifier: MIT */
/*
 * The end of a run whose orchestrator died, made later by another one: it opens the sessions of
 * that run again, asks the agents what became of its faults, and winds up as the run itself would
 * have. What happens is added to the run's journal.
 */
#include <stdio.h>
#include <string.h>

#include "faults/fault.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/engine_state.h"
#include "orchestrator/record.h"

/* ---- what the run was ---- */

static bool had_phase(const struct record *record, const char *phase)
{
    size_t index = 0;

    for (const json_t *event; (event = record_next(record, "phase", &index)) != NULL;)
        if (strcmp(json_text(event, "phase", ""), phase) == 0)
            return true;
    return false;
}

/* As much of the scenario as the end of a run asks for. */
static struct scenario *scenario_of(struct arena *arena, const struct record *record)
{
    const json_t *json = json_object_get(record->start, "scenario");
    struct scenario *scenario = arena_alloc(arena, sizeof *scenario);

    *scenario = (struct scenario){
        .name = json_text(json, "name", "run"),
        .title = json_text(json, "title", ""),
        .workload = json_object_get(json, "workload"),
        .probes = json_object_get(json, "probes"),
        .checks = json_object_get(json, "checks"),
        .recovery_ms = json_number(json_object_get(json, "recovery"), "timeout", 60000),
        .manager_must = json_flag(json, "manager-must", false)};
    return scenario;
}

static void read_fingerprints(struct engine *engine)
{
    for (size_t i = 0; i < engine->topology->node_count; i++) {
        const char *node = engine->topology->nodes[i].name;
        const char *path =
            arena_printf(engine->arena, "%s/nodes/%s-before.json", engine->options->folder, node);
        json_t *fingerprint = NULL;
        struct error error = {0};

        if (json_read_file(path, &fingerprint, &error) == STATUS_OK)
            json_object_set_new(engine->fingerprints, node, fingerprint);
        else
            journal_note(engine->journal, "%s", error.message);
    }
}

static void be_that_run(struct engine *engine, const struct record *record)
{
    bool loaded = record_last(record, "load.start") != NULL;

    snprintf(engine->run, sizeof engine->run, "%s", json_text(record->start, "run", ""));
    engine->resumed = true;
    engine->changed = engine->prepared = had_phase(record, "prepare");
    for (size_t i = 0; i < engine->load_count; i++)
        engine->loads[i].running = loaded;
    if (engine->changed)
        read_fingerprints(engine);
}

static enum status check_topology(const struct topology *topology, const struct record *record,
                                  struct error *err)
{
    const json_t *nodes = json_object_get(json_object_get(record->start, "topology"), "nodes");

    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const char *node = json_text(json_array_get(nodes, i), "name", "");

        if (topology_node(topology, node) != NULL)
            continue;
        error_set(err, STATUS_REFUSED, "topology %s has no node %s, which was in run %s",
                  topology->name, node, json_text(record->start, "run", "?"));
        error_hint(err, "Name the topology of that run with -t.");
        return STATUS_REFUSED;
    }
    return STATUS_OK;
}

/* ---- its faults ---- */

static bool has_event(const struct record *record, const char *name, const char *uid)
{
    size_t index = 0;

    for (const json_t *event; (event = record_next(record, name, &index)) != NULL;)
        if (strcmp(json_text(event, "uid", ""), uid) == 0)
            return true;
    return false;
}

/* One that failed may have begun all the same; its undo was asked for after that was journaled. */
bool engine_may_be_active(const struct record *record, const char *uid)
{
    return !has_event(record, "fault.undone", uid);
}

/* The node whose agent holds the record of a fault. */
static const char *agent_of(const struct engine *engine, const json_t *event)
{
    const struct fault *fault = fault_find(json_text(event, "fault", ""));
    const struct topology_node *power = topology_first(engine->topology, ROLE_POWER);

    if (fault != NULL && fault->executor == EXECUTE_POWER && power != NULL)
        return power->name;
    return json_text(event, "node", "");
}

static json_t *same_fault(const json_t *event)
{
    return json_pack("{s:O, s:O, s:O, s:O}", "uid", json_object_get(event, "uid"), "step",
                     json_object_get(event, "step"), "fault", json_object_get(event, "fault"),
                     "node", json_object_get(event, "node"));
}

static void journal_undone(struct engine *engine, const json_t *event, const char *agent,
                           const json_t *result)
{
    json_t *undone = same_fault(event);

    json_object_set_new(undone, "clock", json_string(agent));
    json_object_set_new(undone, "undone_ns", json_integer(json_number(result, "undone_ns", 0)));
    json_object_set_new(undone, "by", json_string(json_text(result, "by", "unknown")));
    json_object_set_new(undone, "state", json_string(json_text(result, "state", "unknown")));
    json_object_set_new(undone, "text", json_string(json_text(result, "text", "")));
    journal_event(engine->journal, "fault.undone", undone);
}

/* It never came to a record: nothing was done. */
static void journal_failed(struct engine *engine, const json_t *event, const struct error *error)
{
    json_t *failed = same_fault(event);

    json_object_set_new(failed, "error", json_from_error(error));
    journal_event(engine->journal, "fault.failed", failed);
}

static void ask_about(struct engine *engine, const struct record *record, const json_t *event)
{
    const char *uid = json_text(event, "uid", "");
    const char *agent = agent_of(engine, event);
    json_t *params = engine_params(engine);
    OWNED_JSON json_t *result = NULL;
    struct error error = {0};

    json_object_set(params, "uid", json_object_get(event, "uid"));
    enum status status =
        cluster_call(engine->cluster, agent, "fault.undo", params, UNDO_MS, &result, &error);
    if (status == STATUS_OK) {
        journal_undone(engine, event, agent, result);
    } else if (status == STATUS_NOT_FOUND) {
        if (!has_event(record, "fault.failed", uid))
            journal_failed(engine, event, &error);
    } else {
        journal_note(engine->journal, "undoing %s on %s: %s", uid, agent, error.message);
        engine->clean = false;
    }
}

/* Before anything else, since the reopened session's heartbeats renew the lease of what is still
 * active. */
static void settle_faults(struct engine *engine, const struct record *record)
{
    size_t index = 0;

    for (const json_t *event; (event = record_next(record, "fault.inject", &index)) != NULL;)
        if (engine_may_be_active(record, json_text(event, "uid", "")))
            ask_about(engine, record, event);
}

/* ---- all of it ---- */

static void settle(struct engine *engine, const struct record *record)
{
    struct error error = {0};

    if (engine_connect(engine, &error) != STATUS_OK) {
        journal_note(engine->journal, "%s", error.message);
        engine->clean = false;
    }
    if (engine->cluster == NULL || !engine->changed)
        return;
    engine->winding_up = true;
    cluster_shield(engine->cluster);
    settle_faults(engine, record);
    engine_wind_up(engine);
}

static enum status resume_recorded(const struct engine_options *options,
                                   const struct record *record, int *ret_exit_code,
                                   struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct engine_options own = *options;
    struct error reason = {0};
    const json_t *last = json_array_get(record->events, json_array_size(record->events) - 1);

    own.scenario = scenario_of(arena, record);
    own.seed = (uint64_t) json_number(record->start, "seed", 0);
    struct engine *engine = engine_new(&own);
    enum status status = journal_reopen(own.folder, json_number(last, "seq", 0), view_event,
                                        engine->view, &engine->journal, err);
    if (status != STATUS_OK) {
        engine_free(engine);
        return status;
    }
    be_that_run(engine, record);
    error_set(&reason, STATUS_ABORTED, "the orchestrator died; `ordeal recover` ended the run");
    engine_outcome(engine, "aborted", &reason);
    journal_note(engine->journal, "the run goes on from here by `ordeal recover`");
    settle(engine, record);
    engine_close(engine);
    journal_close(engine->journal);
    engine->journal = NULL;
    *ret_exit_code = engine_report(engine);
    engine_free(engine);
    return STATUS_OK;
}

enum status engine_resume(const struct engine_options *options, int *ret_exit_code,
                          struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct record *record = NULL;
    enum status status = record_load(arena, options->folder, &record, err);

    if (status == STATUS_OK)
        status = check_topology(options->topology, record, err);
    if (status == STATUS_OK && record->complete) {
        status = error_set(err, STATUS_REFUSED, "run %s has its end already",
                           json_text(record->start, "run", "?"));
        error_hint(err, "See `ordeal report %s`.", options->folder);
    }
    if (status == STATUS_OK)
        status = resume_recorded(options, record, ret_exit_code, err);
    record_close(record);
    return status;
}
