/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "topologies/ha/runbook.h"

enum {
    PROBE_TIMEOUT_MS = 2000,
    RESTART_GRACE_MS = 2000,
    RECEIVER_TIMEOUT_MS = 2000,
    SETTLE_TIMEOUT_MS = 5000,
    SETTLE_LOOK_MS = 100,
    PROMOTE_TIMEOUT_MS = 30000,
    SLOTS_TIMEOUT_MS = 5000,
    COMMIT_TIMEOUT_MS = 5000,
    /* the orchestrator waits longer than the agent works, so that the agent's reason arrives */
    ANSWER_MARGIN_MS = 1000
};

static enum status refuse(struct runbook *runbook, const char *node, const char *reason)
{
    runbook_tell_once(runbook, "ha.refuse", node, json_pack("{s:s}", "reason", reason),
                      "not promoted: %s", reason);
    return STATUS_OK;
}

static enum status hold(struct runbook *runbook, const char *node, const char *what,
                        const struct error *problem, struct error *err)
{
    if (problem->code == STATUS_ABORTED) {
        if (err != NULL)
            *err = *problem;
        return STATUS_ABORTED;
    }
    runbook_tell_once(runbook, "ha.wait", node, NULL, "%s: %s", what, problem->message);
    return STATUS_OK;
}

/* ---- stop receivers ---- */

static json_t *receiver_params(struct runbook *runbook, const struct topology_node *source,
                               int64_t timeout_ms)
{
    json_t *params = runbook_timed_params(runbook, timeout_ms);

    json_object_set_new(params, "source", source == NULL ? json_null() : json_string(source->name));
    return params;
}

/* On all standbys that accept, at once; says by member which ones were seen to stop. */
static enum status stop_receivers(struct runbook *runbook, const struct ha_state *state,
                                  bool *stopped, struct error *err)
{
    struct cluster_request *requests = arena_array(state->arena, state->count, sizeof *requests);
    size_t *of = arena_array(state->arena, state->count, sizeof *of);
    enum status status = STATUS_OK;
    size_t count = 0;

    for (size_t i = 0; i < state->count; i++) {
        const struct ha_member *member = &state->members[i];
        if (!member->running || member->primary || member->node == runbook->memory.primary)
            continue;
        of[count] = i;
        requests[count++] =
            (struct cluster_request){.node = member->node->name,
                                     .method = "postgres.receiver",
                                     .params = receiver_params(runbook, NULL, RECEIVER_TIMEOUT_MS),
                                     .timeout_ms = RECEIVER_TIMEOUT_MS + ANSWER_MARGIN_MS};
    }
    if (count > 0)
        cluster_call_all(runbook->ha->cluster, requests, count);
    for (size_t i = 0; i < count; i++) {
        json_decref(requests[i].result);
        stopped[of[i]] = requests[i].status == STATUS_OK;
        if (requests[i].status != STATUS_OK && status == STATUS_OK)
            status = hold(runbook, requests[i].node, "its walreceiver was not stopped",
                          &requests[i].error, err);
    }
    return status;
}

/* Look until the standbys' positions have come to rest; the last look, and whether they have. */
static enum status settle(struct runbook *runbook, struct arena *arena, struct ha_state *ret_state,
                          bool *ret_settled, struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(SETTLE_TIMEOUT_MS);
    struct ha_state before, now;
    bool first = true;

    for (;;) {
        enum status status = runbook_look(runbook, arena, &now, err);
        if (status != STATUS_OK)
            return status;
        *ret_state = now;
        *ret_settled = elect_settled(first ? NULL : &before, &now);
        if (*ret_settled || deadline_passed(deadline_ns))
            return STATUS_OK;
        before = now;
        first = false;
        status = runbook_pause(runbook, SETTLE_LOOK_MS, err);
        if (status != STATUS_OK)
            return status;
    }
}

/* ---- elect ---- */

static json_t *list_candidates(const struct election *election)
{
    json_t *list = json_array();

    for (size_t i = 0; i < election->count; i++) {
        const struct candidate *candidate = &election->candidates[i];
        char lsn[PG_LSN_TEXT_SIZE];
        pg_lsn_text(candidate->member->lsn, lsn);
        json_array_append_new(list, json_pack("{s:s, s:I, s:s, s:b}", "node",
                                              candidate->member->node->name, "timeline",
                                              (json_int_t) candidate->member->timeline, "lsn", lsn,
                                              "vote", candidate->vote));
    }
    return list;
}

static json_t *election_details(const struct election *election)
{
    json_t *details =
        json_pack("{s:o, s:s, s:I, s:b, s:s}", "candidates", list_candidates(election), "chosen",
                  election->chosen->node->name, "reachable", (json_int_t) election->heard, "safe",
                  election->safe, "sync_set", election->set == NULL ? "" : election->set);

    /* null: no number of members would be enough */
    json_object_set_new(details, "needed",
                        election->needed == QUORUM_IMPOSSIBLE
                            ? json_null()
                            : json_integer((json_int_t) election->needed));
    return details;
}

static void tell_election(struct runbook *runbook, const struct election *election)
{
    char lsn[PG_LSN_TEXT_SIZE];

    pg_lsn_text(election->chosen->lsn, lsn);
    runbook_tell(runbook, "ha.elect", election->chosen->node->name, election_details(election),
                 "highest of %zu at timeline %u, %s%s%s", election->count,
                 election->chosen->timeline, lsn,
                 election->safe ? "" : "; acknowledged commits may be lost: ", election->reason);
}

/*
 * The synchronous setting must be in place before the promotion: the first commit of the new
 * primary waits already.
 */
static enum status check_own_set(const struct runbook *runbook, const struct ha_member *chosen,
                                 struct arena *arena, struct error *err)
{
    const char *promise = runbook->ha->topology->promise.durability;
    const char *setting = json_text(chosen->state, "sync_set", "");
    struct quorum_set set;

    if (promise != NULL && strcmp(promise, "quorum") != 0)
        return STATUS_OK;
    enum status status = quorum_parse(arena, setting, &set, err);
    if (status != STATUS_OK)
        return status;
    if (set.method == QUORUM_NONE)
        return error_set(err, STATUS_REFUSED,
                         "synchronous_standby_names of %s is empty: it would acknowledge without "
                         "a standby",
                         chosen->node->name);
    if (!set.wildcard && quorum_size(&set, chosen->node->name) < set.k)
        return error_set(err, STATUS_REFUSED,
                         "synchronous_standby_names of %s is '%s': too few others in it",
                         chosen->node->name, setting);
    return STATUS_OK;
}

/* ---- promote ---- */

static enum status remember_promoted(struct runbook *runbook, struct arena *arena,
                                     struct error *err)
{
    struct ha_state state;
    enum status status = ha_ask(runbook->ha, arena, &state, err);

    if (status != STATUS_OK)
        return status;
    const struct ha_member *chosen = memory_member(&state, runbook->chosen);
    if (!chosen->primary)
        return STATUS_OK;
    runbook_remember(runbook, &state, chosen);
    runbook->stage = STAGE_OPENING;
    return STATUS_OK;
}

static void tell_promoted(struct runbook *runbook, json_int_t timeline, const char *fork_lsn)
{
    runbook_tell(runbook, "ha.promote", runbook->chosen->name,
                 json_pack("{s:I, s:s, s:b}", "timeline", timeline, "fork_lsn", fork_lsn,
                           "allow_loss", runbook->allow_loss),
                 "primary on timeline %lld%s", (long long) timeline,
                 runbook->allow_loss ? ", although acknowledged commits may be lost" : "");
}

static enum status promote(struct runbook *runbook, struct arena *arena, struct error *err)
{
    OWNED_JSON json_t *result = NULL;
    struct error problem = {0};

    json_t *params = runbook_timed_params(runbook, PROMOTE_TIMEOUT_MS);
    if (cluster_call(runbook->ha->cluster, runbook->chosen->name, "postgres.promote", params,
                     PROMOTE_TIMEOUT_MS + ANSWER_MARGIN_MS, &result, &problem) != STATUS_OK)
        return hold(runbook, runbook->chosen->name, "its promotion", &problem, err);
    tell_promoted(runbook, json_number(result, "timeline", 0), json_text(result, "fork_lsn", ""));
    return remember_promoted(runbook, arena, err);
}

/* The promotion that was asked for has happened, although its answer was lost. */
static enum status note_promoted(struct runbook *runbook, const struct ha_state *state,
                                 const struct ha_member *chosen)
{
    tell_promoted(runbook, chosen->timeline, ha_fork_lsn(chosen));
    runbook_remember(runbook, state, chosen);
    runbook->stage = STAGE_OPENING;
    return STATUS_OK;
}

/* ---- open ---- */

static json_t *slot_params(struct runbook *runbook, struct arena *arena)
{
    json_t *params = runbook_timed_params(runbook, SLOTS_TIMEOUT_MS), *ensure = json_array();

    for (size_t i = 0; i < runbook->memory.count; i++)
        if (runbook->memory.voters[i].node != runbook->memory.primary)
            json_array_append_new(ensure,
                                  json_string(runbook_slot(arena, runbook->memory.voters[i].node)));
    json_object_set_new(params, "ensure", ensure);
    json_object_set_new(params, "drop_others", json_false());
    return params;
}

/*
 * One commit on the new primary, begun first, and the others pointed to it, so that the commit
 * finds no standby yet and is seen to wait.
 */
static size_t commit_and_point(struct runbook *runbook, const struct ha_state *state,
                               struct cluster_request *requests)
{
    size_t count = 0;

    requests[count++] =
        (struct cluster_request){.node = runbook->memory.primary->name,
                                 .method = "postgres.quorum-wait",
                                 .params = runbook_timed_params(runbook, COMMIT_TIMEOUT_MS),
                                 .timeout_ms = COMMIT_TIMEOUT_MS + ANSWER_MARGIN_MS};
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].running && !state->members[i].primary)
            requests[count++] = (struct cluster_request){
                .node = state->members[i].node->name,
                .method = "postgres.receiver",
                .params = receiver_params(runbook, runbook->memory.primary, COMMIT_TIMEOUT_MS),
                .timeout_ms = COMMIT_TIMEOUT_MS + ANSWER_MARGIN_MS};
    cluster_call_all(runbook->ha->cluster, requests, count);
    return count;
}

static enum status take_requests(struct runbook *runbook, struct cluster_request *requests,
                                 size_t count, json_t **ret_commit, struct error *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count; i++) {
        if (i == 0 && requests[i].status == STATUS_OK)
            *ret_commit = requests[i].result;
        else
            json_decref(requests[i].result);
        if (requests[i].status != STATUS_OK && status == STATUS_OK)
            status = hold(runbook, requests[i].node,
                          i == 0 ? "no commit with its quorum yet" : "it does not follow yet",
                          &requests[i].error, err);
    }
    return status;
}

static enum status tell_followers(struct runbook *runbook, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state state;
    enum status status = runbook_look(runbook, arena, &state, err);

    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < state.count; i++)
        if (state.members[i].streaming && state.members[i].timeline == runbook->memory.timeline)
            runbook_tell(runbook, "ha.rejoin", state.members[i].node->name,
                         json_pack("{s:s}", "how", "streaming"), "streams from %s",
                         runbook->memory.primary->name);
    return STATUS_OK;
}

static enum status open_after_commit(struct runbook *runbook, json_t *commit, struct error *err)
{
    const struct topology_node *primary = runbook->memory.primary;
    struct error problem = {0};

    if (runbook_judge_commit(runbook, commit, &problem) != STATUS_OK ||
        runbook_open_endpoint(runbook, primary, &problem) != STATUS_OK)
        return hold(runbook, primary->name, "the endpoint stays closed", &problem, err);
    runbook->stage = STAGE_CALM;
    runbook_tell(runbook, "ha.route", primary->name,
                 json_pack("{s:b, s:I}", "waited", json_flag(commit, "waited", false), "ack_ns",
                           (json_int_t) json_number(commit, "ack_ns", 0)),
                 "the endpoint is open on it, after a commit waited for its quorum");
    return tell_followers(runbook, err);
}

static enum status open_new_primary(struct runbook *runbook, const struct ha_state *state,
                                    struct error *err)
{
    const char *primary = runbook->memory.primary->name;
    struct cluster_request *requests =
        arena_array(state->arena, state->count + 1, sizeof *requests);
    OWNED_JSON json_t *commit = NULL;
    struct error problem = {0};

    if (cluster_call(runbook->ha->cluster, primary, "postgres.slots",
                     slot_params(runbook, state->arena), SLOTS_TIMEOUT_MS + ANSWER_MARGIN_MS, NULL,
                     &problem) != STATUS_OK)
        return hold(runbook, primary, "slots for the standbys", &problem, err);
    size_t count = commit_and_point(runbook, state, requests);
    enum status status = take_requests(runbook, requests, count, &commit, err);
    if (status != STATUS_OK || commit == NULL)
        return status;
    return open_after_commit(runbook, commit, err);
}

/* ---- the failover ---- */

static enum status promote_chosen(struct runbook *runbook, const struct election *election,
                                  struct arena *arena, struct error *err)
{
    struct ha_state state;

    tell_election(runbook, election);
    runbook->chosen = election->chosen->node;
    runbook->allow_loss = !election->safe;
    runbook->stage = STAGE_PROMOTING;
    runbook_care(runbook, runbook->memory.primary)->patient.deposed = true;
    enum status status = promote(runbook, arena, err);
    if (status != STATUS_OK || runbook->stage != STAGE_OPENING)
        return status;
    status = runbook_look(runbook, arena, &state, err);
    return status == STATUS_OK ? open_new_primary(runbook, &state, err) : status;
}

static enum status elect_and_promote(struct runbook *runbook, const bool *stopped, bool fenced,
                                     struct error *err)
{
    const char *old = runbook->memory.primary->name;
    OWNED_ARENA struct arena *arena = arena_new();
    struct election election;
    struct ha_state state;
    struct error problem = {0};
    bool settled;

    enum status status = settle(runbook, arena, &state, &settled, err);
    if (status != STATUS_OK)
        return status;
    elect_best(&runbook->memory, &state, stopped, fenced, &election);
    if (!settled)
        return refuse(runbook, old, "the standbys' positions still move");
    if (election.chosen == NULL || (!election.safe && !runbook->ha->topology->ha.allow_loss))
        return refuse(runbook, old, election.reason);
    if (check_own_set(runbook, election.chosen, arena, &problem) != STATUS_OK)
        return refuse(runbook, election.chosen->node->name, problem.message);
    return promote_chosen(runbook, &election, arena, err);
}

enum status runbook_fail_over(struct runbook *runbook, const struct ha_state *state,
                              const struct ha_member *primary, const char *why, struct error *err)
{
    bool *stopped = arena_array(state->arena, state->count, sizeof *stopped);
    const char *declared = runbook->ha->topology->ha.fence;
    struct error problem = {0};
    struct fencing fencing;

    enum status status = runbook_close_endpoint(runbook, &problem);
    if (status != STATUS_OK)
        status = hold(runbook, primary->node->name, "the endpoint was not closed", &problem, err);
    if (status == STATUS_OK)
        status = runbook_fence_and_tell(runbook, primary->node, why, &fencing, err);
    if (status != STATUS_OK)
        return status;
    if (!fencing.fenced && declared != NULL && strcmp(declared, "none") != 0)
        return refuse(runbook, primary->node->name, fencing.text);
    status = stop_receivers(runbook, state, stopped, err);
    if (status != STATUS_OK)
        return status;
    return elect_and_promote(runbook, stopped, fencing.fenced, err);
}

enum status runbook_fail_over_further(struct runbook *runbook, const struct ha_state *state,
                                      struct error *err)
{
    const struct ha_member *chosen = memory_member(state, runbook->chosen);
    enum status status = STATUS_OK;

    if (runbook->stage == STAGE_PROMOTING) {
        if (chosen->primary)
            status = note_promoted(runbook, state, chosen);
        else if (chosen->running)
            status = promote(runbook, state->arena, err);
        else
            return refuse(runbook, chosen->node->name,
                          "its promotion was asked for, and it is not known whether it happened");
    }
    if (status != STATUS_OK || runbook->stage != STAGE_OPENING)
        return status;
    if (!memory_member(state, runbook->memory.primary)->running)
        return runbook_act(runbook, state, true, err);
    return open_new_primary(runbook, state, err);
}

/* ---- act on a decision ---- */

static enum status probe_primary(struct runbook *runbook, struct facts *facts, struct error *err)
{
    OWNED_JSON json_t *result = NULL;
    struct error problem = {0};

    enum status status =
        cluster_call(runbook->ha->cluster, runbook->memory.primary->name, "postgres.quorum-wait",
                     runbook_timed_params(runbook, PROBE_TIMEOUT_MS),
                     PROBE_TIMEOUT_MS + ANSWER_MARGIN_MS, &result, &problem);
    if (status == STATUS_ABORTED) {
        if (err != NULL)
            *err = problem;
        return status;
    }
    if (status == STATUS_OK)
        status = runbook_judge_commit(runbook, result, &problem);
    facts->probe = status == STATUS_OK ? PROBE_ACKNOWLEDGED : PROBE_STUCK;
    return STATUS_OK;
}

/* The endpoint was closed for a failover that is not called for any more. */
static enum status wait_or_reopen(struct runbook *runbook, const struct facts *facts,
                                  const struct ruling *ruling, struct error *err)
{
    const struct topology_node *node = ruling->node->node;
    struct error problem = {0};

    runbook_tell_once(runbook, "ha.wait", node->name, NULL, "%s", ruling->text);
    if (facts->probe != PROBE_ACKNOWLEDGED || runbook->routed == node)
        return STATUS_OK;
    if (runbook_open_endpoint(runbook, node, &problem) != STATUS_OK)
        return hold(runbook, node->name, "the endpoint stays closed", &problem, err);
    runbook_tell(runbook, "ha.route", node->name, NULL, "the endpoint is open on it again");
    return STATUS_OK;
}

enum status runbook_act(struct runbook *runbook, const struct ha_state *state, bool writes_known,
                        struct error *err)
{
    struct facts facts = {.grace_ms = RESTART_GRACE_MS,
                          .writes_known = writes_known,
                          .allow_loss = runbook->ha->topology->ha.allow_loss};
    struct fencing fencing;
    struct ruling ruling;
    enum status status = STATUS_OK;

    if (runbook->starting_ns > 0)
        facts.starting_ms = (clock_boot_ns() - runbook->starting_ns) / NS_PER_MS;
    decide_failover(&runbook->memory, state, &facts, &ruling);
    if (ruling.decision == DECIDE_PROBE) {
        status = probe_primary(runbook, &facts, err);
        if (status != STATUS_OK)
            return status;
        decide_failover(&runbook->memory, state, &facts, &ruling);
    }
    switch (ruling.decision) {
    case DECIDE_WAIT:
    case DECIDE_PROBE:
        return wait_or_reopen(runbook, &facts, &ruling, err);
    case DECIDE_FENCE:
        runbook_care(runbook, ruling.node->node)->patient.deposed = true;
        return runbook_fence_and_tell(runbook, ruling.node->node, ruling.text, &fencing, err);
    case DECIDE_REFUSE:
        runbook_tell_once(runbook, "ha.refuse", ruling.node->node->name,
                          json_pack("{s:s}", "reason", ruling.text), "%s", ruling.text);
        return STATUS_OK;
    case DECIDE_FAIL_OVER:
        return runbook_fail_over(runbook, state, ruling.node, ruling.text, err);
    }
    return STATUS_OK;
}
