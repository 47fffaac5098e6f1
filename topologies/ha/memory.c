/* SPDX-License-Identifier: MIT */
#include "topologies/ha/memory.h"

#include <stdio.h>
#include <string.h>

#include "lib/json.h"

const struct ha_member *memory_member(const struct ha_state *state,
                                      const struct topology_node *node)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].node == node)
            return &state->members[i];
    return NULL;
}

static struct voter *voter_of(const struct memory *memory, const struct topology_node *node)
{
    for (size_t i = 0; i < memory->count; i++)
        if (memory->voters[i].node == node)
            return &memory->voters[i];
    return NULL;
}

/* "" when the answer has none or one that is too long to be kept whole. */
static void incarnation_of(const struct ha_member *member, char text[INCARNATION_SIZE])
{
    int length =
        snprintf(text, INCARNATION_SIZE, "%s", json_text(member->state, "incarnation", ""));

    if (length < 0 || length >= INCARNATION_SIZE)
        text[0] = '\0';
}

static void remember_set(struct memory *memory, const char *setting)
{
    for (size_t i = 0; i < memory->set_count; i++)
        if (strcmp(memory->sets[i], setting) == 0)
            return;
    memory->sets = arena_grow(memory->arena, memory->sets, memory->set_count, memory->set_count + 1,
                              sizeof *memory->sets);
    memory->sets[memory->set_count++] = arena_strdup(memory->arena, setting);
}

/* Levels at which an acknowledged commit is flushed by the sync set: on and remote_apply. */
static void remember_level(struct memory *memory, const char *level)
{
    if (strcmp(level, "on") != 0 && strcmp(level, "remote_apply") != 0)
        memory->weak = arena_strdup(memory->arena, level[0] == '\0' ? "unknown" : level);
}

static void learn_setting(struct memory *memory, const struct ha_member *primary)
{
    remember_set(memory, json_text(primary->state, "sync_set", ""));
    if (memory->weak == NULL)
        remember_level(memory, json_text(primary->state, "synchronous_commit", ""));
}

/*
 * In three looks: a new folder; then where the primary is, which is at or above everything that
 * the folder before it acknowledged (the answers of one look are not of one instant); then whether
 * that is flushed here.
 */
static void learn_vote(struct voter *voter, const struct ha_member *member,
                       const struct ha_member *primary)
{
    char incarnation[INCARNATION_SIZE];

    if (voter == NULL || !member->streaming || member->timeline != primary->timeline)
        return;
    incarnation_of(member, incarnation);
    if (strcmp(voter->seen, incarnation) != 0) {
        memcpy(voter->seen, incarnation, sizeof incarnation);
        voter->mark_lsn = 0;
    } else if (voter->mark_lsn == 0) {
        voter->mark_lsn = primary->lsn;
    } else if (member->lsn >= voter->mark_lsn) {
        memcpy(voter->incarnation, incarnation, sizeof incarnation);
    }
}

void memory_begin(struct memory *memory, struct arena *arena, const struct ha_state *state,
                  const struct ha_member *primary)
{
    *memory = (struct memory){.arena = arena,
                              .primary = primary->node,
                              .timeline = primary->timeline,
                              .count = state->count};
    memory->voters = arena_array(arena, state->count, sizeof *memory->voters);
    for (size_t i = 0; i < state->count; i++)
        memory->voters[i].node = state->members[i].node;
    incarnation_of(primary, memory->incarnation);
    memory_learn(memory, state);
}

void memory_learn(struct memory *memory, const struct ha_state *state)
{
    const struct ha_member *primary = memory_member(state, memory->primary);

    if (primary == NULL || !primary->primary || primary->timeline != memory->timeline)
        return;
    learn_setting(memory, primary);
    for (size_t i = 0; i < state->count; i++)
        if (&state->members[i] != primary)
            learn_vote(voter_of(memory, state->members[i].node), &state->members[i], primary);
}

bool memory_votes(const struct memory *memory, const struct ha_member *member)
{
    const struct voter *voter = voter_of(memory, member->node);
    char incarnation[INCARNATION_SIZE];

    if (voter == NULL || !member->running || member->primary || voter->incarnation[0] == '\0')
        return false;
    incarnation_of(member, incarnation);
    return strcmp(voter->incarnation, incarnation) == 0;
}

void memory_distrust(struct memory *memory, const struct topology_node *node)
{
    struct voter *voter = voter_of(memory, node);

    if (voter == NULL)
        return;
    voter->incarnation[0] = voter->seen[0] = '\0';
    voter->mark_lsn = 0;
}

bool memory_complete(const struct memory *memory, const struct ha_state *state,
                     const char **ret_missing)
{
    for (size_t i = 0; i < state->count; i++) {
        if (state->members[i].node == memory->primary || memory_votes(memory, &state->members[i]))
            continue;
        *ret_missing = state->members[i].node->name;
        return false;
    }
    return true;
}
