/* SPDX-License-Identifier: MIT */
/*
 * The recovery phase: every fault undone, every node powered on, every member back through the HA
 * layer; then a while of load on the healthy cluster, and the end of the load.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/engine_state.h"

enum { AFTER_LOAD_MS = 3000, CONNECT_MS = 60000, LOOK_MS = 200, STEADY_MS = 10000 };

/* ---- steady state ---- */

static void journal_probe(struct engine *engine, const char *when, const struct probe_use *use,
                          const struct probe_view *view)
{
    double value;
    bool ok = probe_holds(use, view, &value);
    json_t *bound = json_object();

    if (use->has_least)
        json_object_set_new(bound, "at-least", json_real(use->least));
    if (use->has_most)
        json_object_set_new(bound, "at-most", json_real(use->most));
    journal_event(engine->journal, "steady-state",
                  json_pack("{s:s, s:s, s:f, s:o, s:s, s:b}", "when", when, "probe",
                            use->probe->name, "value", value, "bound", bound, "unit",
                            use->probe->unit, "ok", ok));
}

static bool all_hold(const struct engine *engine, const struct probe_view *view)
{
    double value;

    for (size_t i = 0; i < engine->scenario->steady_count; i++)
        if (!probe_holds(&engine->scenario->steady[i], view, &value))
            return false;
    return true;
}

/* One look; true when it is the last one. */
static bool look_steady(struct engine *engine, const char *when, int64_t deadline_ns)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state state = {0};
    struct error error = {0};
    enum status status = engine->ha.driver->state(&engine->ha, arena, &state, &error);
    struct probe_view view = load_view(engine, &state);

    if (status == STATUS_OK && !all_hold(engine, &view) && !deadline_passed(deadline_ns) &&
        engine_pause(engine, LOOK_MS, &error) == STATUS_OK)
        return false;
    if (status != STATUS_OK)
        journal_note(engine->journal, "steady state: %s", error.message);
    for (size_t i = 0; i < engine->scenario->steady_count; i++)
        journal_probe(engine, when, &engine->scenario->steady[i], &view);
    return true;
}

/*
 * A node that answers late on a busy host gets a while. What cannot be asked at all counts as not
 * healthy: no state, no copies, no writes.
 */
void steady_state(struct engine *engine, const char *when)
{
    int64_t deadline_ns = deadline_in_ms(STEADY_MS);

    while (engine->scenario->steady_count > 0 && !look_steady(engine, when, deadline_ns))
        ;
}

/* ---- nodes ---- */

/*
 * A node that this run took away is back with its fault's undo; one that is silent for another
 * reason is powered on when the topology can.
 */
static void power_on_silent(struct engine *engine)
{
    const struct topology *topology = engine->topology;
    const struct topology_node *power = topology_first(topology, ROLE_POWER);

    for (size_t i = 0; i < topology->node_count; i++) {
        const struct topology_node *node = &topology->nodes[i];
        struct error error = {0};
        json_t *params;

        if (power == NULL || topology->power.on == NULL || node == power ||
            cluster_connected(engine->cluster, node->name))
            continue;
        params = json_pack("{s:s, s:s, s:s}", "run", engine->run, "node", node->name, "word", "on");
        if (cluster_call(engine->cluster, power->name, "power", params, POWER_MS, NULL, &error) !=
            STATUS_OK)
            journal_note(engine->journal, "powering %s on: %s", node->name, error.message);
    }
}

/* Leftovers of this run that the journal of the run does not know of. */
static void recover_nodes(struct engine *engine)
{
    for (size_t i = 0; i < engine->topology->node_count; i++) {
        const char *name = engine->topology->nodes[i].name;
        json_t *result = NULL;
        struct error error = {0};

        if (!cluster_connected(engine->cluster, name))
            continue;
        if (cluster_call(engine->cluster, name, "recover", engine_params(engine), UNDO_MS, &result,
                         &error) != STATUS_OK)
            journal_note(engine->journal, "recover on %s: %s", name, error.message);
        for (size_t j = 0; j < json_array_size(json_object_get(result, "failed")); j++) {
            const json_t *failed = json_array_get(json_object_get(result, "failed"), j);

            engine->clean = false;
            journal_note(engine->journal, "fault %s on %s is not undone: %s",
                         json_text(failed, "uid", "?"), name, json_text(failed, "message", ""));
        }
        json_decref(result);
    }
}

/* ---- the cluster ---- */

static json_t *missing_json(const struct ha_state *state, const struct error *why)
{
    json_t *missing = json_array();

    if (state->primary_count != 1)
        json_array_append_new(
            missing, json_pack("{s:s, s:o}", "node", "cluster", "text",
                               state->primary_count == 0
                                   ? json_string("no node is primary")
                                   : json_sprintf("%zu nodes are primary", state->primary_count)));
    for (size_t i = 0; i < state->count; i++) {
        const struct ha_member *member = &state->members[i];

        if (member->primary || (member->running && member->streaming))
            continue;
        json_array_append_new(
            missing, json_pack("{s:s, s:s}", "node", member->node->name, "text",
                               member->problem != NULL ? member->problem : "does not stream"));
    }
    if (json_array_size(missing) == 0)
        json_array_append_new(missing,
                              json_pack("{s:s, s:s}", "node", "cluster", "text", why->message));
    return missing;
}

static void keep_primary(struct engine *engine, const struct ha_state *state)
{
    if (state->primary == NULL)
        return;
    memset(engine->final_primary, 0, sizeof engine->final_primary);
    memcpy(engine->final_primary, state->primary->name,
           strnlen(state->primary->name, sizeof engine->final_primary - 1));
}

static void journal_recovered(struct engine *engine, int64_t began_ns, int64_t looked_ns)
{
    int64_t now_ns = clock_boot_ns();
    json_int_t ms = (now_ns - began_ns) / NS_PER_MS;
    json_int_t resolution_ms = (now_ns - looked_ns) / NS_PER_MS + LOOK_MS;

    journal_event(engine->journal, "recovered",
                  json_pack("{s:I, s:I}", "ms", ms, "resolution_ms", resolution_ms));
}

/* The driver says that it is done; the look that follows decides. */
static enum status confirm(struct engine *engine, int64_t began_ns, int64_t deadline_ns,
                           struct error *err)
{
    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        struct ha_state state;
        struct error why = {0};
        int64_t looked_ns = clock_boot_ns();
        enum status status = engine->ha.driver->state(&engine->ha, arena, &state, err);

        if (status != STATUS_OK)
            return status;
        keep_primary(engine, &state);
        if (ha_healthy(&state, &why)) {
            engine_journal_members(engine, &state, true);
            journal_recovered(engine, began_ns, looked_ns);
            return STATUS_OK;
        }
        if (deadline_passed(deadline_ns)) {
            engine_journal_members(engine, &state, true);
            journal_event(engine->journal, "recovery.timeout",
                          json_pack("{s:I, s:o, s:s, s:s}", "ms",
                                    (json_int_t) ((clock_boot_ns() - began_ns) / NS_PER_MS),
                                    "missing", missing_json(&state, &why), "text", why.message,
                                    "whose", engine->ha.driver->whose));
            return error_set(err, STATUS_TIMEOUT, "the cluster is not back: %s", why.message);
        }
        status = engine_pause(engine, LOOK_MS, err);
        if (status != STATUS_OK)
            return status;
    }
}

static enum status recover_cluster(struct engine *engine, int64_t began_ns, struct error *err)
{
    int64_t deadline_ns = began_ns + engine->scenario->recovery_ms * NS_PER_MS;
    struct error error = {0};

    view_until(engine->view, deadline_ns);
    if (engine->ha_begun &&
        engine->ha.driver->recover(&engine->ha, deadline_ns, &error) != STATUS_OK)
        journal_note(engine->journal, "HA manager %s: %s", engine->ha.driver->name, error.message);
    return confirm(engine, began_ns, deadline_ns, err);
}

static void undo_everything(struct engine *engine)
{
    struct error error = {0};

    if (injections_undo_all(engine, &error) != STATUS_OK)
        engine->clean = false;
    power_on_silent(engine);
    engine_leavable(engine, true);
    if (cluster_wait_connected(engine->cluster, NULL, deadline_in_ms(CONNECT_MS), &error) !=
        STATUS_OK)
        journal_note(engine->journal, "%s", error.message);
    engine_leavable(engine, false);
    recover_nodes(engine);
}

/* A run that was aborted measures nothing more on the cluster that is back. */
static enum status load_the_recovered(struct engine *engine, struct error *err)
{
    bool completed = strcmp(engine->outcome, "completed") == 0;

    if (!completed || engine->load_count == 0 || !engine->loads[0].running)
        return STATUS_OK;
    return engine_pause(engine, AFTER_LOAD_MS, err);
}

/* After a second signal one look says whether the cluster is back. */
static enum status come_back(struct engine *engine, int64_t began_ns, struct error *err)
{
    engine_leavable(engine, true);
    enum status status = recover_cluster(engine, began_ns, err);
    if (status == STATUS_OK)
        status = load_the_recovered(engine, err);
    if (!engine_hurried(engine))
        steady_state(engine, "after");
    engine_leavable(engine, false);
    return engine_hurried(engine) ? confirm(engine, began_ns, clock_boot_ns(), err) : status;
}

enum status recovery_run(struct engine *engine, struct error *err)
{
    int64_t began_ns = clock_boot_ns();
    struct error error = {0};

    engine_phase(engine, "recovery");
    undo_everything(engine);
    enum status status = come_back(engine, began_ns, err);
    if (load_end(engine, &error) != STATUS_OK)
        journal_note(engine->journal, "%s", error.message);
    return status;
}
