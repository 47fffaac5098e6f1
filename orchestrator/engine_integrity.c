/* SPDX-License-Identifier: MIT */
/*
 * Examinations of the data itself: standbys stopped in turn for pg_checksums, the primary through
 * the verification of a base backup, pg_amcheck on the declared scope. Each has the check's time
 * budget; what does not finish in it is recorded as such.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/engine_state.h"

enum { SERVICE_MS = 60000, MARGIN_MS = 5000, STREAM_MS = 60000, LOOK_MS = 200 };

struct examination {
    struct engine *engine;
    const json_t *params; /* of the check */
    int64_t budget_ms;
    const char *scope;
};

static void journal_result(struct examination *all, const char *node, const char *method, bool ok,
                           int64_t examined, json_t *problems, int64_t began_ns,
                           const struct error *error)
{
    json_t *event =
        json_pack("{s:s, s:s, s:b, s:I, s:o, s:s, s:I, s:I}", "node", node, "method", method, "ok",
                  ok, "examined", (json_int_t) examined, "problems", problems, "scope", all->scope,
                  "ms", (json_int_t) ((clock_boot_ns() - began_ns) / NS_PER_MS), "budget_ms",
                  (json_int_t) all->budget_ms);

    if (error != NULL)
        json_object_set_new(event, "error", json_from_error(error));
    journal_event(all->engine->journal, "integrity", event);
}

static enum status examine(struct examination *all, const char *node, const char *method,
                           json_t *extra, json_t **ret_result, struct error *err)
{
    json_t *params =
        json_pack("{s:s, s:I}", "run", all->engine->run, "timeout_ms", (json_int_t) all->budget_ms);

    if (extra != NULL) {
        json_object_update(params, extra);
        json_decref(extra);
    }
    return cluster_call(all->engine->cluster, node, method, params, all->budget_ms + MARGIN_MS,
                        ret_result, err);
}

/* ---- standbys ---- */

static enum status service(struct examination *all, const char *node, bool start, struct error *err)
{
    json_t *params =
        json_pack("{s:s, s:i}", "run", all->engine->run, "timeout_ms", (int) SERVICE_MS);

    if (!start)
        json_object_set_new(params, "mode", json_string("fast"));
    return cluster_call(all->engine->cluster, node, start ? "postgres.start" : "postgres.stop",
                        params, SERVICE_MS + MARGIN_MS, NULL, err);
}

static bool streams(const struct ha_state *state, const char *node)
{
    for (size_t i = 0; i < state->count; i++)
        if (strcmp(state->members[i].node->name, node) == 0)
            return state->members[i].streaming;
    return false;
}

/* The next standby is stopped only when this one counts again. */
static enum status wait_streaming(struct engine *engine, const char *node, struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(STREAM_MS);

    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        struct ha_state state;
        enum status status = engine->ha.driver->state(&engine->ha, arena, &state, err);

        if (status == STATUS_OK && streams(&state, node))
            return STATUS_OK;
        if (status == STATUS_OK && deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "%s does not stream %d s after its start", node,
                             STREAM_MS / 1000);
        if (status == STATUS_OK)
            status = engine_pause(engine, LOOK_MS, err);
        if (status != STATUS_OK)
            return status;
    }
}

static void checksums(struct examination *all, const char *node)
{
    int64_t began_ns = clock_boot_ns();
    OWNED_JSON json_t *result = NULL;
    struct error error = {0}, restart = {0};
    json_t *problems = json_array();
    enum status status = service(all, node, false, &error);

    if (status == STATUS_OK)
        status = examine(all, node, "postgres.checksums", json_pack("{s:s}", "scope", all->scope),
                         &result, &error);
    int64_t bad = json_number(result, "bad", 0);
    if (bad > 0)
        json_array_append_new(problems,
                              json_sprintf("%" PRId64 " blocks with a wrong checksum", bad));
    journal_result(all, node, "checksums", status == STATUS_OK && bad == 0,
                   json_number(result, "blocks", 0), problems, began_ns,
                   status == STATUS_OK ? NULL : &error);
    if (service(all, node, true, &restart) != STATUS_OK ||
        wait_streaming(all->engine, node, &restart) != STATUS_OK) {
        all->engine->clean = false;
        journal_note(all->engine->journal, "%s after its examination: %s", node, restart.message);
    }
}

/* ---- the primary ---- */

static void verify(struct examination *all, const char *node)
{
    int64_t began_ns = clock_boot_ns();
    OWNED_JSON json_t *result = NULL;
    struct error error = {0};
    json_t *problems = json_array();
    enum status status = examine(all, node, "postgres.verify", NULL, &result, &error);
    bool ok = status == STATUS_OK && json_flag(result, "ok", false);

    if (status == STATUS_OK && !ok)
        json_array_append_new(problems,
                              json_string(json_text(result, "text", "the backup does not verify")));
    journal_result(all, node, "verify", ok, json_number(result, "files", 0), problems, began_ns,
                   status == STATUS_OK ? NULL : &error);
}

static void amcheck(struct examination *all, const char *node)
{
    const struct topology *topology = all->engine->topology;
    const char *database = json_text(all->params, "scope", topology->database.workload.database);
    int64_t began_ns = clock_boot_ns();
    OWNED_JSON json_t *result = NULL;
    struct error error = {0};
    enum status status = examine(
        all, node, "postgres.amcheck",
        json_pack("{s:s}", "database", database != NULL ? database : "postgres"), &result, &error);
    const json_t *found = json_object_get(result, "problems");
    json_t *problems = json_is_array(found) ? json_deep_copy(found) : json_array();

    journal_result(all, node, "amcheck", status == STATUS_OK && json_array_size(problems) == 0,
                   json_number(result, "relations", 0), problems, began_ns,
                   status == STATUS_OK ? NULL : &error);
}

/* A cluster's own manager would take a standby that we stop for one that failed. */
static void leave_running(struct examination *all, const char *node)
{
    journal_event(all->engine->journal, "integrity",
                  json_pack("{s:s, s:s, s:s}", "node", node, "method", "checksums", "skipped",
                            "the server would have to be stopped, and the HA manager 'observe' "
                            "stops nothing"));
}

void integrity_run(struct engine *engine, const char *primary)
{
    const json_t *params = json_object_get(engine->scenario->checks, "integrity");
    struct examination all = {.engine = engine,
                              .params = params,
                              .budget_ms = json_number(params, "budget", 120000),
                              .scope = json_text(params, "scope", "all")};

    if (json_flag(params, "amcheck", true))
        amcheck(&all, primary);
    if (json_flag(params, "verify", true) && engine->signals == 0)
        verify(&all, primary);
    for (size_t i = 0; json_flag(params, "checksums", true) && i < engine->topology->node_count &&
                       engine->signals == 0;
         i++) {
        const struct topology_node *node = &engine->topology->nodes[i];

        if ((node->roles & ROLE_DATABASE) == 0 || strcmp(node->name, primary) == 0)
            continue;
        if (engine->ha.driver->acts)
            checksums(&all, node->name);
        else
            leave_running(&all, node->name);
    }
}
