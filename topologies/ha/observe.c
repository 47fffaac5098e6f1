/* SPDX-License-Identifier: MIT */
/*
 * `ha: { manager: observe }`: the cluster's own manager acts, Ordeal only looks. Nothing here
 * starts, promotes, rewinds or changes anything. What the manager did is told as it is seen, at
 * the resolution of the looks.
 */
#include <stdlib.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "topologies/ha/ha.h"

enum {
    CALM_LOOK_MS = 1000,
    UNEASY_MS = 200, /* without an acknowledgement: from then on, */
    LOOK_MS = 100,   /* so often */
    RECOVERY_LOOK_MS = 200,
    DETECT_MS = 1000
};

struct watch {
    const struct topology_node *primary; /* last one seen alone */
    uint32_t timeline;
    int64_t looked_ns;
    bool stopped;   /* the writers are without acknowledgements, told */
    bool promoted;  /* another primary was seen, the writers have not been acknowledged since */
    int64_t ack_ns; /* their last acknowledgement when it was seen */
    size_t count;
    bool *in_place; /* a database node each, in order: primary, or a standby that streams */
};

static bool in_place(const struct ha_member *member)
{
    return member->primary || member->streaming;
}

static void take_places(struct watch *watch, const struct ha_state *state)
{
    for (size_t i = 0; i < watch->count && i < state->count; i++)
        watch->in_place[i] = in_place(&state->members[i]);
}

static enum status observe_begin(struct ha *ha, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state state;

    if (ha->topology->endpoint.managed) {
        error_set(err, STATUS_INVALID,
                  "endpoint routing is left to the HA manager, and 'observe' changes nothing");
        error_hint(err, "Say routing: hosts, or use a manager that acts.");
        return STATUS_INVALID;
    }
    enum status status = ha_ask(ha, arena, &state, err);
    if (status != STATUS_OK)
        return status;
    struct watch *watch = calloc(1, sizeof *watch);
    bool *places = calloc(state.count + 1, sizeof *places);
    if (watch == NULL || places == NULL)
        abort(); /* as an arena does */
    watch->in_place = places;
    watch->count = state.count;
    take_places(watch, &state);
    watch->primary = state.primary;
    for (size_t i = 0; i < state.count; i++)
        if (state.members[i].node == state.primary)
            watch->timeline = state.members[i].timeline;
    watch->looked_ns = clock_boot_ns();
    ha->private_state = watch;
    return STATUS_OK;
}

static void tell(struct ha *ha, const char *event, const char *node, json_t *details)
{
    if (ha->event != NULL)
        ha->event(ha->argument, event, node, details);
    else
        json_decref(details);
}

static int64_t last_ack(const struct ha *ha)
{
    return ha->last_ack == NULL ? 0 : ha->last_ack(ha->argument);
}

static void note_writes(struct ha *ha, struct watch *watch, int64_t ack_ns, int64_t quiet_ms,
                        bool stopped)
{
    const char *node = watch->primary == NULL ? NULL : watch->primary->name;

    /* once another primary was seen, somebody has noticed */
    if (stopped && !watch->stopped && !watch->promoted)
        tell(ha, "ha.detect", node,
             json_pack("{s:I, s:s}", "quiet_ms", (json_int_t) quiet_ms, "text",
                       "the writers are without acknowledgements"));
    if (watch->promoted && ack_ns > watch->ack_ns) {
        tell(ha, "ha.route", node,
             json_pack("{s:s}", "text", "the writers are acknowledged again"));
        watch->promoted = false;
    }
    watch->stopped = stopped;
}

/* `since_ms`: how long ago the last look was, within which it happened. */
static void note_primary(struct ha *ha, struct watch *watch, const struct ha_state *state,
                         int64_t since_ms)
{
    for (size_t i = 0; i < state->count; i++) {
        const struct ha_member *member = &state->members[i];
        if (member->node != state->primary ||
            (member->node == watch->primary && member->timeline == watch->timeline))
            continue;
        tell(ha, "ha.promote", member->node->name,
             json_pack("{s:I, s:s, s:I, s:s}", "timeline", (json_int_t) member->timeline,
                       "fork_lsn", ha_fork_lsn(member), "resolution_ms", (json_int_t) since_ms,
                       "text", "seen as the primary"));
        watch->primary = member->node;
        watch->timeline = member->timeline;
        watch->promoted = true;
        watch->ack_ns = last_ack(ha);
    }
}

/* A member that stood aside and streams: who did it, and how, is not seen. */
static void note_members(struct ha *ha, struct watch *watch, const struct ha_state *state,
                         int64_t since_ms)
{
    for (size_t i = 0; i < watch->count && i < state->count; i++) {
        const struct ha_member *member = &state->members[i];
        if (watch->in_place[i] || !member->streaming || state->primary == NULL)
            continue;
        tell(ha, "ha.rejoin", member->node->name,
             json_pack("{s:s, s:I, s:I, s:s}", "how", "streaming", "timeline",
                       (json_int_t) member->timeline, "resolution_ms", (json_int_t) since_ms,
                       "text", "seen to stream again"));
    }
    take_places(watch, state);
}

static enum status look(struct ha *ha, struct watch *watch, struct arena *arena,
                        struct ha_state *ret_state, struct error *err)
{
    struct ha_state state;
    enum status status = ha_ask(ha, arena, &state, err);

    if (status != STATUS_OK)
        return status;
    int64_t since_ms = (clock_boot_ns() - watch->looked_ns) / NS_PER_MS;
    watch->looked_ns = clock_boot_ns();
    note_primary(ha, watch, &state, since_ms);
    note_members(ha, watch, &state, since_ms);
    *ret_state = state;
    return STATUS_OK;
}

static enum status observe_attend(struct ha *ha, struct error *err)
{
    struct watch *watch = ha->private_state;
    int64_t detect_ms = ha->topology->ha.detect_ms > 0 ? ha->topology->ha.detect_ms : DETECT_MS;
    int64_t ack_ns = last_ack(ha);
    int64_t now_ns = clock_boot_ns(), quiet_ms = (now_ns - ack_ns) / NS_PER_MS;
    bool stopped = ack_ns > 0 && quiet_ms >= detect_ms;
    bool uneasy = watch->promoted || (ack_ns > 0 && quiet_ms >= UNEASY_MS);
    bool due = now_ns - watch->looked_ns >= (uneasy ? LOOK_MS : CALM_LOOK_MS) * NS_PER_MS;
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state state;
    enum status status = STATUS_OK;

    /* when writes are back, who took them is asked before that is told */
    if (due || (watch->stopped && !stopped))
        status = look(ha, watch, arena, &state, err);
    if (status == STATUS_OK)
        note_writes(ha, watch, ack_ns, quiet_ms, stopped);
    return status;
}

static bool never(void *argument)
{
    (void) argument;
    return false;
}

static enum status observe_recover(struct ha *ha, int64_t deadline_ns, struct error *err)
{
    struct watch *watch = ha->private_state;

    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        struct ha_state state;
        struct error why = {0};
        enum status status = look(ha, watch, arena, &state, err);
        if (status != STATUS_OK)
            return status;
        if (ha_healthy(&state, &why))
            return STATUS_OK;
        if (deadline_passed(deadline_ns)) {
            error_set(err, STATUS_TIMEOUT, "not recovered: %s", why.message);
            error_hint(err, "To repair that is the work of %s.", ha->driver->whose);
            return STATUS_TIMEOUT;
        }
        status = cluster_wait(ha->cluster, never, NULL, deadline_in_ms(RECOVERY_LOOK_MS), err);
        if (status != STATUS_OK && status != STATUS_TIMEOUT)
            return status;
    }
}

static void observe_end(struct ha *ha)
{
    struct watch *watch = ha->private_state;

    if (watch != NULL)
        free(watch->in_place);
    free(watch);
    ha->private_state = NULL;
}

const struct ha_driver ha_observe = {
    .name = "observe",
    .summary = "looks and times only: the cluster's own manager must act",
    .acts = false,
    .whose = "what manages this cluster, or its operator (ha: observe changes nothing)",
    .begin = observe_begin,
    .state = ha_ask,
    .attend = observe_attend,
    .recover = observe_recover,
    .end = observe_end,
};
