/* SPDX-License-Identifier: MIT */
#include "orchestrator/survey.h"

#include <string.h>

#include "lib/json.h"
#include "lib/pg.h"

struct survey {
    struct arena *arena; /* owns this, freed after the call */
    struct ha_state state;
    size_t open;
    survey_done *done;
    void *argument;
};

struct question {
    struct survey *survey;
    struct ha_member *member;
};

static void release_json(void *json)
{
    json_decref(json);
}

static uint64_t lsn_of(const json_t *state, const char *key)
{
    return pg_lsn_parse(json_text(state, key, ""));
}

/* A restarted standby forgets what it received, but not what it replayed. */
static uint64_t standby_lsn(const json_t *state)
{
    uint64_t received = lsn_of(state, "receive_lsn");
    uint64_t replayed = lsn_of(state, "replay_lsn");
    uint64_t lsn = received > replayed ? received : replayed;

    return lsn != 0 ? lsn : lsn_of(state, "lsn");
}

static void read_member(struct ha_member *member, const json_t *state)
{
    const json_t *receiver = json_object_get(state, "receiver");

    member->reachable = true;
    member->state = state;
    member->running = json_flag(state, "accepting", false);
    member->primary = member->running && !json_flag(state, "in_recovery", true);
    member->timeline = (uint32_t) json_number(state, "timeline", 0);
    member->lsn = member->primary ? lsn_of(state, "lsn") : standby_lsn(state);
    member->streaming = member->running && !member->primary &&
                        strcmp(json_text(receiver, "status", ""), "streaming") == 0;
}

static const json_t *standby_row(const struct ha_member *primary, const char *name)
{
    const json_t *row;
    size_t index;

    json_array_foreach(json_object_get(primary->state, "standbys"), index, row)
    {
        if (strcmp(json_text(row, "name", ""), name) == 0)
            return row;
    }
    return NULL;
}

/* In the sync set by the primary's own word. */
static bool is_sync(const struct ha_member *primary, const struct ha_member *member)
{
    const json_t *row = standby_row(primary, member->node->name);
    const char *sync = json_text(row, "sync_state", "");

    return (strcmp(sync, "sync") == 0 || strcmp(sync, "quorum") == 0) &&
           strcmp(json_text(row, "state", ""), "streaming") == 0;
}

static void conclude(struct ha_state *state)
{
    const struct ha_member *primary = NULL;

    for (size_t i = 0; i < state->count; i++) {
        if (state->members[i].primary) {
            state->primary_count++;
            primary = &state->members[i];
        }
    }
    state->sync_set = "";
    if (primary == NULL || state->primary_count > 1)
        return;
    state->primary = primary->node;
    state->sync_set = json_text(primary->state, "sync_set", "");
    for (size_t i = 0; i < state->count; i++)
        state->members[i].sync =
            &state->members[i] != primary && is_sync(primary, &state->members[i]);
}

static void on_state(void *argument, enum status status, const json_t *result,
                     const struct error *error)
{
    struct question *question = argument;
    struct survey *survey = question->survey;
    struct ha_member *member = question->member;

    if (status == STATUS_OK && json_is_object(result)) {
        json_t *kept = json_incref((json_t *) (uintptr_t) result);
        arena_adopt(survey->arena, kept, release_json);
        read_member(member, kept);
    } else {
        member->problem = arena_strdup(survey->arena, error != NULL ? error->message : "no state");
    }
    if (--survey->open > 0)
        return;
    conclude(&survey->state);
    survey->done(survey->argument, &survey->state);
    arena_free(survey->arena);
}

void survey_start(struct cluster *cluster, const struct topology *topology, int64_t timeout_ms,
                  survey_done *done, void *argument)
{
    struct arena *arena = arena_new();
    struct survey *survey = arena_alloc(arena, sizeof *survey);

    *survey = (struct survey){.arena = arena, .done = done, .argument = argument};
    survey->state.arena = arena;
    survey->state.members = arena_array(arena, topology->node_count, sizeof(struct ha_member));
    for (size_t i = 0; i < topology->node_count; i++)
        if ((topology->nodes[i].roles & ROLE_DATABASE) != 0)
            survey->state.members[survey->state.count++].node = &topology->nodes[i];
    survey->open = survey->state.count;
    for (size_t i = 0; i < survey->state.count; i++) {
        struct question *question = arena_alloc(arena, sizeof *question);

        *question = (struct question){.survey = survey, .member = &survey->state.members[i]};
        cluster_post(cluster, question->member->node->name, "postgres.state", NULL, timeout_ms,
                     on_state, question);
    }
}

int64_t survey_gap_bytes(const struct ha_state *state, const struct ha_member *standby)
{
    for (size_t i = 0; i < state->count; i++) {
        const struct ha_member *primary = &state->members[i];

        if (primary->node != state->primary || standby->lsn == 0 || primary->lsn == 0)
            continue;
        return primary->lsn > standby->lsn ? (int64_t) (primary->lsn - standby->lsn) : 0;
    }
    return -1;
}

json_t *survey_member_json(const struct ha_member *member)
{
    char lsn[PG_LSN_TEXT_SIZE];
    const char *role = !member->reachable ? "unknown"
                       : !member->running ? "down"
                       : member->primary  ? "primary"
                                          : "standby";

    pg_lsn_text(member->lsn, lsn);
    json_t *json = json_pack("{s:s, s:s, s:I, s:s, s:b, s:b}", "node", member->node->name, "role",
                             role, "timeline", (json_int_t) member->timeline, "lsn", lsn,
                             "streaming", member->streaming, "sync", member->sync);
    if (member->problem != NULL)
        json_object_set_new(json, "problem", json_string(member->problem));
    return json;
}
