/* SPDX-License-Identifier: MIT */
#include "topologies/ha/decide.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/json.h"

static void rule(struct ruling *ruling, enum decision decision, const struct ha_member *node,
                 const char *format, ...) PRINTF_LIKE(4, 5);

static void rule(struct ruling *ruling, enum decision decision, const struct ha_member *node,
                 const char *format, ...)
{
    va_list args;

    ruling->decision = decision;
    ruling->node = node;
    va_start(args, format);
    vsnprintf(ruling->text, sizeof ruling->text, format, args);
    va_end(args);
}

const struct ha_member *decide_deposed(const struct memory *memory, const struct ha_state *state)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].primary && state->members[i].node != memory->primary &&
            state->members[i].timeline < memory->timeline)
            return &state->members[i];
    return NULL;
}

/* A primary that the runbook did not make and cannot place. */
static const struct ha_member *foreign_primary(const struct memory *memory,
                                               const struct ha_state *state)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].primary && (state->members[i].node != memory->primary ||
                                          state->members[i].timeline != memory->timeline))
            return &state->members[i];
    return NULL;
}

bool decide_starting(const struct ha_member *member)
{
    return member->reachable && !member->running && json_flag(member->state, "running", false) &&
           !json_flag(member->state, "frozen", false);
}

size_t decide_able(const struct memory *memory, const struct ha_state *state)
{
    const char *setting = memory->set_count == 0 ? "" : memory->sets[memory->set_count - 1];
    struct quorum_set set;
    size_t able = 0;

    if (quorum_parse(state->arena, setting, &set, NULL) != STATUS_OK)
        return 0;
    for (size_t i = 0; i < state->count; i++)
        able += state->members[i].running && !state->members[i].primary &&
                state->members[i].node != memory->primary &&
                quorum_names(&set, state->members[i].node->name);
    return able;
}

static size_t demanded(const struct memory *memory, const struct ha_state *state)
{
    const char *setting = memory->set_count == 0 ? "" : memory->sets[memory->set_count - 1];
    struct quorum_set set;

    return quorum_parse(state->arena, setting, &set, NULL) == STATUS_OK ? set.k : 1;
}

/* Fail over if that is safe or allowed to lose; nothing has been changed yet. */
static void rule_failover(const struct memory *memory, const struct ha_state *state,
                          const struct facts *facts, const struct ha_member *primary,
                          const char *why, struct ruling *ruling)
{
    struct election election;

    elect_best(memory, state, NULL, true, &election);
    if (election.chosen == NULL || (!election.safe && !facts->allow_loss))
        rule(ruling, DECIDE_REFUSE, primary, "%s; not promoted: %s", why, election.reason);
    else
        rule(ruling, DECIDE_FAIL_OVER, primary, "%s", why);
}

/*
 * The primary accepts. While too few standbys are there to acknowledge, it is not dead: it waits
 * for its quorum, and so do the writers. With enough of them, only a commit tells whether the
 * primary is cut off from them.
 */
static void rule_accepting(const struct memory *memory, const struct ha_state *state,
                           const struct facts *facts, const struct ha_member *primary,
                           struct ruling *ruling)
{
    size_t able = decide_able(memory, state), k = demanded(memory, state);
    struct election election;

    if (!facts->writes_known) {
        rule(ruling, DECIDE_WAIT, primary, "the primary accepts connections");
        return;
    }
    if (able < k) {
        rule(ruling, DECIDE_WAIT, primary,
             "the primary is well and waits for its quorum: %zu of %zu standbys are there", able,
             k);
        return;
    }
    if (facts->probe == PROBE_NONE) {
        rule(ruling, DECIDE_PROBE, primary, "does the primary reach its quorum");
        return;
    }
    if (facts->probe == PROBE_ACKNOWLEDGED) {
        rule(ruling, DECIDE_WAIT, primary,
             "the primary commits with its quorum; a failover would not bring the writers back");
        return;
    }
    elect_best(memory, state, NULL, true, &election);
    if (election.chosen == NULL || (!election.safe && !facts->allow_loss))
        rule(ruling, DECIDE_WAIT, primary,
             "the primary runs without its quorum, and replacing it is not safe: %s",
             election.reason);
    else
        rule(ruling, DECIDE_FAIL_OVER, primary,
             "the primary runs and is cut off: a commit was not acknowledged by its quorum");
}

void decide_failover(const struct memory *memory, const struct ha_state *state,
                     const struct facts *facts, struct ruling *ret_ruling)
{
    const struct ha_member *primary = memory_member(state, memory->primary);
    const struct ha_member *deposed = decide_deposed(memory, state);
    const struct ha_member *foreign = foreign_primary(memory, state);

    if (deposed != NULL)
        rule(ret_ruling, DECIDE_FENCE, deposed,
             "it is a primary on timeline %u, and was replaced by %s on timeline %u",
             deposed->timeline, memory->primary->name, memory->timeline);
    else if (foreign != NULL)
        rule(ret_ruling, DECIDE_REFUSE, foreign,
             "%s is primary on timeline %u, which the runbook did not make (it knows %s on %u)",
             foreign->node->name, foreign->timeline, memory->primary->name, memory->timeline);
    else if (primary->primary)
        rule_accepting(memory, state, facts, primary, ret_ruling);
    else if (decide_starting(primary) && facts->starting_ms < facts->grace_ms)
        rule(ret_ruling, DECIDE_WAIT, primary,
             "the primary's server is up and does not accept; a restart after a crash is given "
             "%lld ms",
             (long long) facts->grace_ms);
    else
        rule_failover(memory, state, facts, primary,
                      primary->problem != NULL ? primary->problem
                                               : "it is a standby that nobody told to be one",
                      ret_ruling);
}
