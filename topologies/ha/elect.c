/* SPDX-License-Identifier: MIT */
#include "topologies/ha/elect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "lib/pg.h"

static bool is_candidate(const struct memory *memory, const struct ha_member *member)
{
    return member->running && !member->primary && member->node != memory->primary;
}

static int compare(const void *left, const void *right)
{
    const struct ha_member *a = ((const struct candidate *) left)->member;
    const struct ha_member *b = ((const struct candidate *) right)->member;

    if (a->timeline != b->timeline)
        return a->timeline > b->timeline ? -1 : 1;
    if (a->lsn != b->lsn)
        return a->lsn > b->lsn ? -1 : 1;
    return strcmp(a->node->name, b->node->name);
}

static void list_candidates(const struct memory *memory, const struct ha_state *state,
                            const bool *stopped, bool fenced, struct election *election)
{
    election->candidates = arena_array(state->arena, state->count, sizeof *election->candidates);
    for (size_t i = 0; i < state->count; i++) {
        const struct ha_member *member = &state->members[i];
        if (!is_candidate(memory, member))
            continue;
        bool silent = fenced || stopped == NULL || stopped[i];
        election->candidates[election->count++] = (struct candidate){
            .member = member, .vote = silent && member->lsn > 0 && memory_votes(memory, member)};
    }
    qsort(election->candidates, election->count, sizeof *election->candidates, compare);
    if (election->count > 0)
        election->chosen = election->candidates[0].member;
}

static size_t heard_of(const struct election *election, const struct quorum_set *set)
{
    size_t heard = 0;

    for (size_t i = 0; i < election->count; i++)
        heard += election->candidates[i].vote &&
                 quorum_names(set, election->candidates[i].member->node->name);
    return heard;
}

static void explain(struct election *election, const char *setting, const struct quorum_set *set,
                    size_t members)
{
    char *text = election->reason;
    size_t size = sizeof election->reason;

    if (set->method == QUORUM_NONE)
        snprintf(text, size,
                 "a sync set in force was empty: commits were acknowledged "
                 "without waiting for a standby");
    else if (set->wildcard)
        snprintf(text, size, "the sync set '%s' has a wildcard: nobody knows who acknowledged",
                 setting);
    else
        snprintf(text, size,
                 "%zu of '%s' heard, %zu needed: %zu of %zu acknowledge a commit, and those that "
                 "are missing, erased or rebuilt may be the ones that did",
                 election->heard, setting, election->needed, set->k, members);
}

/* Keep the set that lacks most. */
static void weigh(const struct memory *memory, const struct ha_state *state, const char *setting,
                  struct election *election)
{
    struct quorum_set set;
    struct error err;
    bool first = election->set == NULL;

    if (quorum_parse(state->arena, setting, &set, &err) != STATUS_OK) {
        election->safe = false;
        election->set = setting;
        election->needed = QUORUM_IMPOSSIBLE;
        election->heard = 0;
        snprintf(election->reason, sizeof election->reason, "%.500s", err.message);
        return;
    }
    size_t needed = quorum_needed(&set, memory->primary->name), heard = heard_of(election, &set);
    if (!first && needed + election->heard <= election->needed + heard)
        return;
    election->set = setting;
    election->needed = needed;
    election->heard = heard;
    if (heard < needed) {
        election->safe = false;
        explain(election, setting, &set, quorum_size(&set, memory->primary->name));
    }
}

void elect_best(const struct memory *memory, const struct ha_state *state, const bool *stopped,
                bool fenced, struct election *ret_election)
{
    struct election election = {.safe = memory->set_count > 0};

    list_candidates(memory, state, stopped, fenced, &election);
    for (size_t i = 0; i < memory->set_count; i++)
        weigh(memory, state, memory->sets[i], &election);
    if (memory->weak != NULL) {
        election.safe = false;
        snprintf(election.reason, sizeof election.reason,
                 "synchronous_commit was %s: commits were acknowledged before a standby had "
                 "flushed them",
                 memory->weak);
    }
    if (election.chosen == NULL) {
        election.safe = false;
        snprintf(election.reason, sizeof election.reason, "no standby accepts connections");
    }
    *ret_election = election;
}

/* Written to disk by the walreceiver, as far as it was replayed or further. */
static bool received(const struct ha_member *member)
{
    uint64_t receive_lsn = pg_lsn_parse(json_text(member->state, "receive_lsn", ""));

    return receive_lsn > 0 &&
           receive_lsn >= pg_lsn_parse(json_text(member->state, "replay_lsn", ""));
}

bool elect_settled(const struct ha_state *before, const struct ha_state *now)
{
    for (size_t i = 0; i < now->count; i++) {
        const struct ha_member *member = &now->members[i];
        if (!member->running || member->primary)
            continue;
        const struct ha_member *earlier =
            before == NULL ? NULL : memory_member(before, member->node);
        bool same = earlier != NULL && earlier->running && earlier->lsn == member->lsn;
        if (!same && !received(member))
            return false;
    }
    return true;
}
