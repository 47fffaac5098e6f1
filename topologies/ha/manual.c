/* SPDX-License-Identifier: MIT */
/*
 * `ha: { manager: manual }`: the operator's runbook, followed by a program and timed. When it looks
 * and how it starts and ends is here; what it does is in runbook.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "topologies/ha/runbook.h"

enum {
    VOTES_TIMEOUT_MS = 15000, /* begin: until every member has a vote */
    LOOK_MS = 1000,           /* between looks while all is well */
    TROUBLE_LOOK_MS = 200,    /* and while it is not */
    VOTE_LOOK_MS = 100
};

/* ---- what all steps use ---- */

static void tell_text(struct runbook *runbook, const char *event, const char *node, json_t *details,
                      const char *text)
{
    if (details == NULL)
        details = json_object();
    json_object_set_new(details, "text", json_string(text));
    if (runbook->ha->event != NULL)
        runbook->ha->event(runbook->ha->argument, event, node, details);
    else
        json_decref(details);
}

static void write_text(char text[SAID_SIZE], const char *format, va_list args)
{
    vsnprintf(text, SAID_SIZE, format, args);
}

void runbook_tell(struct runbook *runbook, const char *event, const char *node, json_t *details,
                  const char *format, ...)
{
    char text[SAID_SIZE];
    va_list args;

    va_start(args, format);
    write_text(text, format, args);
    va_end(args);
    tell_text(runbook, event, node, details, text);
}

static struct said *said_of(struct runbook *runbook, const char *event, const char *node)
{
    for (size_t i = 0; i < runbook->said_count; i++)
        if (strcmp(runbook->said[i].event, event) == 0 && strcmp(runbook->said[i].node, node) == 0)
            return &runbook->said[i];
    runbook->said = arena_grow(runbook->arena, runbook->said, runbook->said_count,
                               runbook->said_count + 1, sizeof *runbook->said);
    struct said *said = &runbook->said[runbook->said_count++];
    said->event = event;
    said->node = node;
    return said;
}

static void forget_said(struct runbook *runbook)
{
    for (size_t i = 0; i < runbook->said_count; i++)
        runbook->said[i].text[0] = '\0';
}

void runbook_tell_once(struct runbook *runbook, const char *event, const char *node,
                       json_t *details, const char *format, ...)
{
    struct said *said = said_of(runbook, event, node);
    char text[SAID_SIZE];
    va_list args;

    va_start(args, format);
    write_text(text, format, args);
    va_end(args);
    if (strcmp(said->text, text) == 0) {
        json_decref(details);
        return;
    }
    memcpy(said->text, text, sizeof text);
    tell_text(runbook, event, node, details, text);
}

json_t *runbook_params(struct runbook *runbook)
{
    return json_pack("{s:s}", "run", cluster_run(runbook->ha->cluster));
}

json_t *runbook_timed_params(struct runbook *runbook, int64_t timeout_ms)
{
    json_t *params = runbook_params(runbook);

    json_object_set_new(params, "timeout_ms", json_integer(timeout_ms));
    return params;
}

char *runbook_slot(struct arena *arena, const struct topology_node *node)
{
    char *slot = arena_strdup(arena, node->name);

    for (char *c = slot; *c != '\0'; c++)
        if (*c == '-')
            *c = '_';
    return slot;
}

static bool never(void *argument)
{
    (void) argument;
    return false;
}

enum status runbook_pause(struct runbook *runbook, int64_t ms, struct error *err)
{
    enum status status = cluster_wait(runbook->ha->cluster, never, NULL, deadline_in_ms(ms), err);

    return status == STATUS_TIMEOUT ? STATUS_OK : status;
}

struct care *runbook_care(struct runbook *runbook, const struct topology_node *node)
{
    for (size_t i = 0; i < runbook->care_count; i++)
        if (runbook->cares[i].patient.node == node)
            return &runbook->cares[i];
    abort(); /* members come from the topology; another one is a bug */
}

void runbook_remember(struct runbook *runbook, const struct ha_state *state,
                      const struct ha_member *primary)
{
    arena_free(runbook->knowledge);
    runbook->knowledge = arena_new();
    memory_begin(&runbook->memory, runbook->knowledge, state, primary);
    runbook_care(runbook, primary->node)->patient.deposed = false;
}

static void note_primary(struct runbook *runbook, const struct ha_state *state)
{
    const struct ha_member *primary = memory_member(state, runbook->memory.primary);
    bool starting = primary != NULL && decide_starting(primary);

    runbook->looked_ns = clock_boot_ns();
    if (primary != NULL && primary->primary)
        runbook->accepted_ns = runbook->looked_ns;
    if (!starting)
        runbook->starting_ns = 0;
    else if (runbook->starting_ns == 0)
        runbook->starting_ns = runbook->looked_ns;
}

enum status runbook_look(struct runbook *runbook, struct arena *arena, struct ha_state *ret_state,
                         struct error *err)
{
    enum status status = ha_ask(runbook->ha, arena, ret_state, err);

    if (status != STATUS_OK)
        return status;
    if (runbook->memory.primary != NULL) {
        memory_learn(&runbook->memory, ret_state);
        note_primary(runbook, ret_state);
    }
    return STATUS_OK;
}

enum status runbook_judge_commit(const struct runbook *runbook, const json_t *result,
                                 struct error *err)
{
    const char *promise = runbook->ha->topology->promise.durability;
    bool quorum = promise == NULL || strcmp(promise, "quorum") == 0;

    if (json_number(result, "ack_ns", 0) <= 0)
        return error_set(err, STATUS_FAILED, "the commit was not acknowledged");
    if (quorum && !json_flag(result, "waited", false))
        return error_set(err, STATUS_FAILED,
                         "the commit was acknowledged and nothing shows that it waited for a "
                         "standby");
    return STATUS_OK;
}

/* ---- the driver ---- */

static void free_runbook(struct runbook *runbook)
{
    if (runbook == NULL)
        return;
    arena_free(runbook->knowledge);
    arena_free(runbook->arena);
    free(runbook);
}

static struct runbook *new_runbook(struct ha *ha, const struct ha_state *state)
{
    struct runbook *runbook = calloc(1, sizeof *runbook);

    if (runbook == NULL)
        abort(); /* as an arena does */
    runbook->ha = ha;
    runbook->arena = arena_new();
    runbook->care_count = state->count;
    runbook->cares = arena_array(runbook->arena, state->count, sizeof *runbook->cares);
    for (size_t i = 0; i < state->count; i++)
        runbook->cares[i].patient.node = state->members[i].node;
    return runbook;
}

/* Look until every member has shown that it holds everything. */
static enum status gather_votes(struct runbook *runbook, struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(VOTES_TIMEOUT_MS);
    const char *missing = "";

    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        struct ha_state state;
        enum status status = runbook_look(runbook, arena, &state, err);
        if (status != STATUS_OK || memory_complete(&runbook->memory, &state, &missing))
            return status;
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT,
                             "%s was not seen to hold everything that %s wrote within %d ms",
                             missing, runbook->memory.primary->name, VOTES_TIMEOUT_MS);
        status = runbook_pause(runbook, VOTE_LOOK_MS, err);
        if (status != STATUS_OK)
            return status;
    }
}

static enum status start(struct runbook *runbook, const struct ha_state *state, struct error *err)
{
    runbook_remember(runbook, state, memory_member(state, state->primary));
    runbook->accepted_ns = clock_boot_ns();
    enum status status = gather_votes(runbook, err);
    if (status == STATUS_OK)
        status = runbook_open_endpoint(runbook, runbook->memory.primary, err);
    return status;
}

static enum status manual_begin(struct ha *ha, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state state;
    enum status status = ha_ask(ha, arena, &state, err);

    if (status != STATUS_OK)
        return status;
    if (state.primary == NULL)
        return error_set(err, STATUS_REFUSED, "%zu of %zu database nodes are primary, not one",
                         state.primary_count, state.count);
    struct runbook *runbook = new_runbook(ha, &state);
    status = start(runbook, &state, err);
    if (status != STATUS_OK) {
        free_runbook(runbook);
        return error_context(err, "manual failover");
    }
    ha->private_state = runbook;
    return STATUS_OK;
}

/* How long the writers have been without an acknowledgement, or the primary without a sign. */
static int64_t quiet_ms(const struct runbook *runbook, bool *ret_writes_known)
{
    int64_t ack_ns =
        runbook->ha->last_ack == NULL ? 0 : runbook->ha->last_ack(runbook->ha->argument);
    int64_t sign_ns = ack_ns > 0 ? ack_ns : runbook->accepted_ns;

    *ret_writes_known = ack_ns > 0;
    if (ack_ns > 0 && runbook->opened_ns > sign_ns)
        sign_ns = runbook->opened_ns;
    return (clock_boot_ns() - sign_ns) / NS_PER_MS;
}

static int64_t detect_ms(const struct runbook *runbook)
{
    int64_t ms = runbook->ha->topology->ha.detect_ms;

    return ms > 0 ? ms : 1000;
}

/* All is well: look now and then, to know what must be known later. */
static enum status attend_calm(struct runbook *runbook, struct error *err)
{
    int64_t every_ms = detect_ms(runbook) / 2 < LOOK_MS ? detect_ms(runbook) / 2 : LOOK_MS;
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state state;
    struct fencing fencing;

    runbook->alarmed = false;
    forget_said(runbook);
    if (clock_boot_ns() - runbook->looked_ns < every_ms * NS_PER_MS)
        return STATUS_OK;
    enum status status = runbook_look(runbook, arena, &state, err);
    if (status != STATUS_OK)
        return status;
    const struct ha_member *deposed = decide_deposed(&runbook->memory, &state);
    if (deposed == NULL)
        return STATUS_OK;
    runbook_care(runbook, deposed->node)->patient.deposed = true;
    return runbook_fence_and_tell(runbook, deposed->node, "it came back as a second primary",
                                  &fencing, err);
}

static void tell_detect(struct runbook *runbook, const struct ha_state *state, int64_t quiet)
{
    const struct ha_member *primary = memory_member(state, runbook->memory.primary);

    if (runbook->alarmed)
        return;
    runbook->alarmed = true;
    runbook_tell(runbook, "ha.detect", primary->node->name, json_pack("{s:I}", "quiet_ms", quiet),
                 "no acknowledged write for %lld ms; the primary: %s", (long long) quiet,
                 primary->problem != NULL ? primary->problem : "accepts connections");
}

static enum status attend_trouble(struct runbook *runbook, int64_t quiet, bool writes_known,
                                  struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state state;

    if (runbook->alarmed && clock_boot_ns() - runbook->looked_ns < TROUBLE_LOOK_MS * NS_PER_MS)
        return STATUS_OK;
    enum status status = runbook_look(runbook, arena, &state, err);
    if (status != STATUS_OK)
        return status;
    if (!writes_known && memory_member(&state, runbook->memory.primary)->primary &&
        runbook->stage == STAGE_CALM)
        return STATUS_OK;
    tell_detect(runbook, &state, quiet);
    if (runbook->stage != STAGE_CALM)
        return runbook_fail_over_further(runbook, &state, err);
    return runbook_act(runbook, &state, writes_known, err);
}

static enum status manual_attend(struct ha *ha, struct error *err)
{
    struct runbook *runbook = ha->private_state;
    bool writes_known;
    int64_t quiet = quiet_ms(runbook, &writes_known);

    if (runbook->stage == STAGE_CALM && quiet < detect_ms(runbook))
        return attend_calm(runbook, err);
    return attend_trouble(runbook, quiet, writes_known, err);
}

static enum status manual_recover(struct ha *ha, int64_t deadline_ns, struct error *err)
{
    return runbook_recover(ha->private_state, deadline_ns, err);
}

static void manual_end(struct ha *ha)
{
    free_runbook(ha->private_state);
    ha->private_state = NULL;
}

const struct ha_driver ha_manual = {
    .name = "manual",
    .summary = "the operator's runbook: fence, elect by quorum arithmetic, promote, rejoin",
    .acts = true,
    .whose = "Ordeal's runbook (ha: manual)",
    .begin = manual_begin,
    .state = ha_ask,
    .attend = manual_attend,
    .recover = manual_recover,
    .end = manual_end,
};
