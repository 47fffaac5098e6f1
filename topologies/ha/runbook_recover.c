/* SPDX-License-Identifier: MIT */
/*
 * Recovery: one pass looks at all members and does for each the next thing that it needs; passes
 * follow each other until the cluster is healthy or the deadline is reached.
 */
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "topologies/ha/runbook.h"

enum {
    PASS_MS = 200,
    PATIENCE_MS = 10000, /* without a move forward, before a harder step */
    START_TIMEOUT_MS = 30000,
    STOP_TIMEOUT_MS = 10000,
    FENCE_TIMEOUT_MS = 5000,
    POINT_TIMEOUT_MS = 5000,
    SLOTS_TIMEOUT_MS = 5000,
    COMMIT_TIMEOUT_MS = 5000,
    COPY_TIMEOUT_MS = 120000,
    ANSWER_MARGIN_MS = 1000
};

/* ---- steps for one member ---- */

struct step {
    struct runbook *runbook;
    const struct topology_node *node;
    const struct ha_member *member, *primary;
    int64_t deadline_ns; /* of the recovery */
};

/* A method of the member's agent with a timeout that the recovery's deadline cuts short. */
static enum status call(const struct step *step, const char *method, json_t *params,
                        int64_t timeout_ms, struct error *err)
{
    int64_t left_ms = deadline_left_ms(step->deadline_ns);

    if (left_ms < timeout_ms)
        timeout_ms = left_ms < ANSWER_MARGIN_MS ? ANSWER_MARGIN_MS : left_ms;
    json_object_set_new(params, "timeout_ms", json_integer(timeout_ms));
    return cluster_call(step->runbook->ha->cluster, step->node->name, method, params,
                        timeout_ms + ANSWER_MARGIN_MS, NULL, err);
}

static json_t *source_params(const struct step *step)
{
    json_t *params = runbook_params(step->runbook);

    json_object_set_new(params, "source", json_string(step->primary->node->name));
    return params;
}

static enum status do_power_on(const struct step *step, struct error *err)
{
    return runbook_power(step->runbook, step->node, "on", err);
}

static enum status do_kill(const struct step *step, struct error *err)
{
    return call(step, "postgres.fence", runbook_params(step->runbook), FENCE_TIMEOUT_MS, err);
}

/* Children that outlived their postmaster hold the shared memory: nothing starts beside them. */
static enum status clear_orphans(const struct step *step, struct error *err)
{
    return json_number(step->member->state, "orphans", 0) > 0 ? do_kill(step, err) : STATUS_OK;
}

static enum status do_start(const struct step *step, struct error *err)
{
    enum status status = clear_orphans(step, err);

    if (status != STATUS_OK)
        return status;
    return call(step, "postgres.start", runbook_params(step->runbook), START_TIMEOUT_MS, err);
}

static enum status do_point(const struct step *step, struct error *err)
{
    return call(step, "postgres.receiver", source_params(step), POINT_TIMEOUT_MS, err);
}

/* A server that cannot be stopped in order is killed. */
static enum status stop_server(const struct step *step, struct error *err)
{
    if (!json_flag(step->member->state, "running", false))
        return clear_orphans(step, err);
    json_t *params = runbook_params(step->runbook);
    json_object_set_new(params, "mode", json_string("fast"));
    enum status status = call(step, "postgres.stop", params, STOP_TIMEOUT_MS, NULL);
    return status == STATUS_OK ? STATUS_OK : do_kill(step, err);
}

static enum status copy_from_primary(const struct step *step, const char *method, struct error *err)
{
    enum status status = stop_server(step, err);

    memory_distrust(&step->runbook->memory, step->node);
    if (status == STATUS_OK)
        status = call(step, method, source_params(step), COPY_TIMEOUT_MS, err);
    if (status != STATUS_OK)
        return status;
    runbook_care(step->runbook, step->node)->patient.deposed = false;
    return do_start(step, err);
}

static enum status do_rewind(const struct step *step, struct error *err)
{
    return copy_from_primary(step, "postgres.rewind", err);
}

static enum status do_rebuild(const struct step *step, struct error *err)
{
    return copy_from_primary(step, "postgres.rebuild", err);
}

static enum status (*const steps[])(const struct step *step, struct error *err) = {
    [REPAIR_POWER_ON] = do_power_on, [REPAIR_FENCE] = do_kill,    [REPAIR_START] = do_start,
    [REPAIR_POINT] = do_point,       [REPAIR_REWIND] = do_rewind, [REPAIR_REBUILD] = do_rebuild,
};

/* ---- one member ---- */

static void note_movement(struct care *care, const struct ha_member *member)
{
    if (member->timeline > care->timeline || member->lsn > care->lsn || care->moved_ns == 0)
        care->moved_ns = clock_boot_ns();
    care->timeline = member->timeline;
    care->lsn = member->lsn;
    care->patient.since_ms = (clock_boot_ns() - care->moved_ns) / NS_PER_MS;
}

/* It follows the primary: say by which step it came back, if one was needed. */
static void note_follows(struct runbook *runbook, struct care *care)
{
    static const char *const how[] = {
        [REPAIR_NOTHING] = "streaming", [REPAIR_WAIT] = "streaming",  [REPAIR_POWER_ON] = "start",
        [REPAIR_FENCE] = "start",       [REPAIR_START] = "start",     [REPAIR_POINT] = "streaming",
        [REPAIR_REWIND] = "rewind",     [REPAIR_REBUILD] = "rebuild",
    };

    if (care->patient.last == REPAIR_NOTHING)
        return;
    runbook_tell(runbook, "ha.rejoin", care->patient.node->name,
                 json_pack("{s:s}", "how", how[care->patient.last]), "follows %s again, by %s",
                 runbook->memory.primary->name, repair_name(care->patient.last));
    care->patient.last = REPAIR_NOTHING;
    care->patient.failed = 0;
    care->problem[0] = '\0';
}

static enum status note_step(struct runbook *runbook, struct care *care, enum repair repair,
                             enum status status, const struct error *problem, struct error *err)
{
    const char *node = care->patient.node->name;

    care->patient.last = repair;
    care->moved_ns = clock_boot_ns();
    if (status == STATUS_ABORTED) {
        if (err != NULL)
            *err = *problem;
        return status;
    }
    /* a server that was started and is down again has not come back by that */
    if (status != STATUS_OK || repair == REPAIR_START)
        care->patient.failed++;
    else
        care->patient.failed = 0;
    if (status == STATUS_OK)
        return STATUS_OK;
    snprintf(care->problem, sizeof care->problem, "%s: %s: %.400s", node, repair_name(repair),
             problem->message);
    runbook_tell_once(runbook, "ha.wait", node, NULL, "%s failed: %s", repair_name(repair),
                      problem->message);
    return STATUS_OK;
}

static enum status treat(struct runbook *runbook, const struct ha_member *member,
                         const struct ha_member *primary, int64_t deadline_ns, struct error *err)
{
    struct care *care = runbook_care(runbook, member->node);
    struct step step = {runbook, member->node, member, primary, deadline_ns};
    struct error problem = {0};

    note_movement(care, member);
    bool has_power = runbook->ha->topology->power.on != NULL &&
                     !cluster_connected(runbook->ha->cluster, member->node->name);
    enum repair repair = repair_next(&care->patient, member, primary, has_power, PATIENCE_MS);
    if (repair == REPAIR_NOTHING && member != primary)
        note_follows(runbook, care);
    if (repair == REPAIR_NOTHING || repair == REPAIR_WAIT)
        return STATUS_OK;
    enum status status = steps[repair](&step, &problem);
    return note_step(runbook, care, repair, status, &problem, err);
}

/* ---- the primary ---- */

/* A data folder other than the one that served must not be started as the primary. */
static void distrust_new_folder(struct runbook *runbook, const struct ha_state *state)
{
    const struct ha_member *member = memory_member(state, runbook->memory.primary);

    if (member->reachable && json_flag(member->state, "data_exists", true) &&
        strcmp(json_text(member->state, "incarnation", ""), runbook->memory.incarnation) != 0)
        runbook_care(runbook, member->node)->patient.deposed = true;
}

/*
 * While no node is primary the old one, which certainly holds everything, is started again. Only
 * when that cannot be, a failover is tried by the same rules as before.
 */
static bool old_primary_is_hopeless(struct runbook *runbook, const struct ha_state *state)
{
    const struct ha_member *member = memory_member(state, runbook->memory.primary);
    const struct care *care = runbook_care(runbook, runbook->memory.primary);
    bool gone = member->reachable && !json_flag(member->state, "data_exists", true);

    return care->patient.deposed || gone || care->patient.failed > 1 ||
           (!member->reachable && care->patient.since_ms > PATIENCE_MS);
}

/* The one primary to follow is known after this: it is memory.primary, if that accepts. */
static enum status settle_primary(struct runbook *runbook, const struct ha_state *state,
                                  struct error *err)
{
    const struct ha_member *deposed = decide_deposed(&runbook->memory, state);
    const struct ha_member *primary =
        state->primary == NULL ? NULL : memory_member(state, state->primary);
    struct fencing fencing;

    if (deposed != NULL) {
        runbook_care(runbook, deposed->node)->patient.deposed = true;
        return runbook_fence_and_tell(runbook, deposed->node, "it was replaced and came back",
                                      &fencing, err);
    }
    if (runbook->stage != STAGE_CALM)
        return runbook_fail_over_further(runbook, state, err);
    if (primary == NULL) {
        distrust_new_folder(runbook, state);
        return old_primary_is_hopeless(runbook, state) ? runbook_act(runbook, state, true, err)
                                                       : STATUS_OK;
    }
    if (primary->timeline > runbook->memory.timeline) {
        if (primary->node != runbook->memory.primary)
            runbook_care(runbook, runbook->memory.primary)->patient.deposed = true;
        runbook_tell(
            runbook, "ha.promote", primary->node->name,
            json_pack("{s:I, s:b}", "timeline", (json_int_t) primary->timeline, "allow_loss", 1),
            "it was promoted by somebody else, without the runbook's arithmetic");
        runbook_remember(runbook, state, primary);
    }
    return STATUS_OK;
}

/* ---- slots ---- */

static bool has_slot(struct arena *arena, const struct ha_member *member,
                     const struct topology_node *node)
{
    const char *wanted = runbook_slot(arena, node);
    const json_t *slot;
    size_t index;

    json_array_foreach(json_object_get(member->state, "slots"), index, slot)
    {
        if (strcmp(json_text(slot, "name", ""), wanted) == 0)
            return true;
    }
    return false;
}

/* The primary keeps one for each other member, a standby keeps none for anybody. */
static bool slots_are_right(const struct ha_state *state, const struct ha_member *member)
{
    for (size_t i = 0; i < state->count; i++)
        if (&state->members[i] != member &&
            has_slot(state->arena, member, state->members[i].node) != member->primary)
            return false;
    return true;
}

static json_t *slots_wanted(struct runbook *runbook, const struct ha_state *state,
                            const struct ha_member *member)
{
    json_t *params = runbook_timed_params(runbook, SLOTS_TIMEOUT_MS), *ensure = json_array();

    for (size_t i = 0; member->primary && i < state->count; i++)
        if (&state->members[i] != member)
            json_array_append_new(ensure,
                                  json_string(runbook_slot(state->arena, state->members[i].node)));
    json_object_set_new(params, "ensure", ensure);
    json_object_set_new(params, "drop_others", json_boolean(!member->primary));
    return params;
}

static enum status tidy_slots(struct runbook *runbook, const struct ha_state *state,
                              bool *ret_right, struct error *err)
{
    struct error problem = {0};

    *ret_right = true;
    for (size_t i = 0; i < state->count; i++) {
        const struct ha_member *member = &state->members[i];
        if (!member->running || slots_are_right(state, member))
            continue;
        *ret_right = false;
        enum status status = cluster_call(runbook->ha->cluster, member->node->name,
                                          "postgres.slots", slots_wanted(runbook, state, member),
                                          SLOTS_TIMEOUT_MS + ANSWER_MARGIN_MS, NULL, &problem);
        if (status == STATUS_ABORTED) {
            if (err != NULL)
                *err = problem;
            return status;
        }
        if (status != STATUS_OK)
            runbook_tell_once(runbook, "ha.wait", member->node->name, NULL, "its slots: %s",
                              problem.message);
    }
    return STATUS_OK;
}

/* ---- the endpoint ---- */

static enum status open_on_primary(struct runbook *runbook, struct error *err)
{
    const struct topology_node *primary = runbook->memory.primary;
    OWNED_JSON json_t *commit = NULL;
    struct error problem = {0};

    enum status status = cluster_call(runbook->ha->cluster, primary->name, "postgres.quorum-wait",
                                      runbook_timed_params(runbook, COMMIT_TIMEOUT_MS),
                                      COMMIT_TIMEOUT_MS + ANSWER_MARGIN_MS, &commit, &problem);
    if (status == STATUS_OK)
        status = runbook_judge_commit(runbook, commit, &problem);
    if (status == STATUS_OK)
        status = runbook_open_endpoint(runbook, primary, &problem);
    if (status == STATUS_ABORTED) {
        if (err != NULL)
            *err = problem;
        return status;
    }
    if (status == STATUS_OK)
        runbook_tell(runbook, "ha.route", primary->name, NULL, "the endpoint is open on it");
    else
        runbook_tell_once(runbook, "ha.wait", primary->name, NULL, "the endpoint stays closed: %s",
                          problem.message);
    return STATUS_OK;
}

/* ---- passes ---- */

static enum status treat_all(struct runbook *runbook, const struct ha_state *state,
                             int64_t deadline_ns, struct error *err)
{
    const struct ha_member *primary = memory_member(state, runbook->memory.primary);

    for (size_t i = 0; i < state->count; i++) {
        enum status status =
            treat(runbook, &state->members[i], primary->primary ? primary : NULL, deadline_ns, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* One pass; says whether everything is as it should be, and why not. */
static enum status pass(struct runbook *runbook, int64_t deadline_ns, bool *ret_whole,
                        struct error *why, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state state;
    bool slots_right;

    enum status status = runbook_look(runbook, arena, &state, err);
    if (status == STATUS_OK)
        status = settle_primary(runbook, &state, err);
    if (status == STATUS_OK)
        status = runbook_look(runbook, arena, &state, err);
    if (status == STATUS_OK)
        status = tidy_slots(runbook, &state, &slots_right, err);
    if (status == STATUS_OK)
        status = treat_all(runbook, &state, deadline_ns, err);
    if (status != STATUS_OK)
        return status;
    *ret_whole = ha_healthy(&state, why) && slots_right;
    if (*ret_whole && runbook->stage == STAGE_CALM && runbook->routed != runbook->memory.primary)
        status = open_on_primary(runbook, err);
    *ret_whole =
        *ret_whole && runbook->stage == STAGE_CALM && runbook->routed == runbook->memory.primary;
    return status;
}

static enum status give_up(struct runbook *runbook, const struct error *why, struct error *err)
{
    error_set(err, STATUS_TIMEOUT, "not recovered: %s",
              why->message[0] == '\0' ? "the endpoint is not open, or slots are wrong"
                                      : why->message);
    for (size_t i = 0; i < runbook->care_count; i++)
        if (runbook->cares[i].problem[0] != '\0')
            error_detail(err, "%s", runbook->cares[i].problem);
    return STATUS_TIMEOUT;
}

enum status runbook_recover(struct runbook *runbook, int64_t deadline_ns, struct error *err)
{
    bool whole = false;

    for (size_t i = 0; i < runbook->care_count; i++)
        runbook->cares[i].moved_ns = clock_boot_ns();
    for (;;) {
        struct error why = {0};
        enum status status = pass(runbook, deadline_ns, &whole, &why, err);
        if (status != STATUS_OK || whole)
            return status;
        if (deadline_passed(deadline_ns))
            return give_up(runbook, &why, err);
        status = runbook_pause(runbook, PASS_MS, err);
        if (status != STATUS_OK)
            return status;
    }
}
