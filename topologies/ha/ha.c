/* SPDX-License-Identifier: MIT */
#include "topologies/ha/ha.h"

#include <stdarg.h>
#include <string.h>

#include "lib/buffer.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "topologies/ha/quorum.h"

/* An agent gives a hung server two seconds and then describes it from outside. */
enum { ASK_TIMEOUT_MS = 3000, WHY_MAXIMUM = 900 };

#define HA(driver) extern const struct ha_driver driver;
#include "topologies/ha/ha.def"
#undef HA

static const struct ha_driver *const drivers[] = {
#define HA(driver) &driver,
#include "topologies/ha/ha.def"
#undef HA
};

const struct ha_driver *ha_find(const char *name)
{
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        if (strcmp(drivers[i]->name, name) == 0)
            return drivers[i];
    return NULL;
}

const char *const *ha_names(void)
{
    static const char *names[sizeof drivers / sizeof drivers[0] + 1];

    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        names[i] = drivers[i]->name;
    return names;
}

static void release_json(void *json)
{
    json_decref(json);
}

static uint64_t lsn_of(const json_t *object, const char *key)
{
    return pg_lsn_parse(json_text(object, key, ""));
}

static uint64_t position_of(const json_t *state, bool primary)
{
    uint64_t received = lsn_of(state, "receive_lsn"), replayed = lsn_of(state, "replay_lsn");
    uint64_t standby = received > replayed ? received : replayed;

    return primary || standby == 0 ? lsn_of(state, "lsn") : standby;
}

static const char *problem_of(struct arena *arena, const json_t *state, bool accepting)
{
    const char *error = json_text(state, "error", "");

    if (accepting)
        return NULL;
    const char *what = !json_flag(state, "data_exists", true) ? "its data folder is gone"
                       : json_flag(state, "running", false) ? "PostgreSQL runs but does not answer"
                                                            : "PostgreSQL is down";
    return error[0] == '\0' ? what : arena_printf(arena, "%s (%s)", what, error);
}

static void read_member(struct arena *arena, const json_t *state, struct ha_member *member)
{
    const json_t *receiver = json_object_get(state, "receiver");

    member->reachable = true;
    member->state = state;
    member->running = json_flag(state, "accepting", false);
    member->primary = member->running && !json_flag(state, "in_recovery", true);
    member->timeline = (uint32_t) json_number(state, "timeline", 0);
    member->lsn = position_of(state, member->primary);
    member->streaming = member->running && !member->primary &&
                        strcmp(json_text(receiver, "status", ""), "streaming") == 0;
    member->problem = problem_of(arena, state, member->running);
}

static void take_answer(struct arena *arena, struct cluster_request *request,
                        struct ha_member *member)
{
    if (request->status == STATUS_OK && json_is_object(request->result)) {
        arena_adopt(arena, request->result, release_json);
        read_member(arena, request->result, member);
        return;
    }
    json_decref(request->result);
    member->problem =
        arena_printf(arena, "its agent does not answer (%s)",
                     request->status == STATUS_OK ? "no state" : request->error.message);
}

static size_t count_databases(const struct topology *topology)
{
    size_t count = 0;

    for (size_t i = 0; i < topology->node_count; i++)
        count += (topology->nodes[i].roles & ROLE_DATABASE) != 0;
    return count;
}

static void list_members(const struct topology *topology, struct arena *arena,
                         struct ha_state *state)
{
    state->count = 0;
    state->members = arena_array(arena, count_databases(topology), sizeof *state->members);
    for (size_t i = 0; i < topology->node_count; i++)
        if ((topology->nodes[i].roles & ROLE_DATABASE) != 0)
            state->members[state->count++].node = &topology->nodes[i];
}

/* A connection that is known to be lost is not waited for. */
static enum status ask_all(struct ha *ha, struct arena *arena, struct ha_state *state,
                           struct error *err)
{
    struct cluster_request *requests = arena_array(arena, state->count, sizeof *requests);
    struct ha_member **asked = arena_array(arena, state->count, sizeof(struct ha_member *));
    enum status status = STATUS_OK;
    size_t count = 0;

    for (size_t i = 0; i < state->count; i++) {
        struct ha_member *member = &state->members[i];
        member->problem = "its agent is not connected";
        if (!cluster_connected(ha->cluster, member->node->name))
            continue;
        requests[count] = (struct cluster_request){
            .node = member->node->name, .method = "postgres.state", .timeout_ms = ASK_TIMEOUT_MS};
        asked[count++] = member;
    }
    if (count > 0)
        cluster_call_all(ha->cluster, requests, count);
    for (size_t i = 0; i < count; i++) {
        if (requests[i].status == STATUS_ABORTED) {
            status = STATUS_ABORTED;
            if (err != NULL)
                *err = requests[i].error;
        }
        take_answer(arena, &requests[i], asked[i]);
    }
    return status;
}

static const struct ha_member *find_primary(struct ha_state *state)
{
    const struct ha_member *primary = NULL;

    state->primary_count = 0;
    for (size_t i = 0; i < state->count; i++) {
        if (!state->members[i].primary)
            continue;
        state->primary_count++;
        primary = &state->members[i];
    }
    if (state->primary_count != 1)
        primary = NULL;
    state->primary = primary == NULL ? NULL : primary->node;
    return primary;
}

static bool connected_to(const struct ha_member *primary, const char *standby)
{
    const json_t *item;
    size_t index;

    json_array_foreach(json_object_get(primary->state, "standbys"), index, item)
    {
        if (strcmp(json_text(item, "name", ""), standby) == 0 &&
            strcmp(json_text(item, "state", ""), "streaming") == 0)
            return true;
    }
    return false;
}

/* A setting that cannot be read names nobody; ha_healthy() complains about it. */
static void mark_sync(struct arena *arena, struct ha_state *state, const struct ha_member *primary)
{
    struct quorum_set set;

    state->sync_set = primary == NULL ? "" : json_text(primary->state, "sync_set", "");
    if (primary == NULL || quorum_parse(arena, state->sync_set, &set, NULL) != STATUS_OK)
        return;
    for (size_t i = 0; i < state->count; i++) {
        struct ha_member *member = &state->members[i];
        member->sync = member != primary && quorum_names(&set, member->node->name) &&
                       connected_to(primary, member->node->name);
    }
}

enum status ha_ask(struct ha *ha, struct arena *arena, struct ha_state *ret_state,
                   struct error *err)
{
    struct ha_state state = {.arena = arena, .sync_set = ""};

    list_members(ha->topology, arena, &state);
    enum status status = ask_all(ha, arena, &state, err);
    if (status != STATUS_OK)
        return status;
    mark_sync(arena, &state, find_primary(&state));
    *ret_state = state;
    return STATUS_OK;
}

const char *ha_fork_lsn(const struct ha_member *member)
{
    const json_t *history = json_object_get(member->state, "history"), *item;
    const char *lsn = "";
    int64_t latest = 0;
    size_t index;

    json_array_foreach(history, index, item)
    {
        int64_t timeline = json_number(item, "timeline", 0);
        if (timeline <= latest || timeline >= member->timeline)
            continue;
        latest = timeline;
        lsn = json_text(item, "lsn", "");
    }
    return lsn;
}

static const struct ha_member *member_of(const struct ha_state *state,
                                         const struct topology_node *node)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].node == node)
            return &state->members[i];
    return NULL;
}

static void miss(struct buffer *missing, const char *node, const char *format, ...)
    PRINTF_LIKE(3, 4);

static void miss(struct buffer *missing, const char *node, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    buffer_printf(missing, "%s%s%s%s", missing->length > 0 ? "; " : "", node == NULL ? "" : node,
                  node == NULL ? "" : ": ", text);
}

/* It streams, but under which name? The sync set counts names, and so does everybody else. */
static void miss_name(struct buffer *missing, const char *name, const struct ha_member *primary)
{
    OWNED_BUFFER struct buffer names = BUFFER(256);
    const json_t *item;
    size_t index;

    json_array_foreach(json_object_get(primary->state, "standbys"), index, item)
    {
        buffer_printf(&names, "%s%s", index == 0 ? "" : ", ", json_text(item, "name", "?"));
    }
    miss(missing, name,
         "is not among the standbys that stream from %s (their application_name: %s; it must be "
         "the node's name)",
         primary->node->name, names.length > 0 ? buffer_text(&names) : "none is connected");
}

static void look_at_standby(const struct ha_member *member, const struct ha_member *primary,
                            struct buffer *missing)
{
    const char *name = member->node->name;
    const json_t *receiver = json_object_get(member->state, "receiver");

    if (!member->reachable || !member->running)
        miss(missing, name, "%s", member->problem);
    else if (!member->streaming)
        miss(missing, name, "does not stream (walreceiver: %s)",
             json_text(receiver, "status", "none"));
    else if (member->timeline != primary->timeline)
        miss(missing, name, "is on timeline %u, the primary %s on %u", member->timeline,
             primary->node->name, primary->timeline);
    else if (!connected_to(primary, name))
        miss_name(missing, name, primary);
    else if (json_flag(member->state, "replay_paused", false))
        miss(missing, name, "its replay is paused (pg_wal_replay_resume() ends that)");
}

static void look_at_sync_set(const struct ha_state *state, const struct ha_member *primary,
                             struct buffer *missing)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct quorum_set set;
    struct error err;
    size_t connected = 0;

    if (quorum_parse(arena, state->sync_set, &set, &err) != STATUS_OK) {
        miss(missing, primary->node->name, "%s", err.message);
        return;
    }
    for (size_t i = 0; i < state->count; i++)
        connected += state->members[i].sync;
    if (connected < set.k)
        miss(missing, primary->node->name, "its commits wait for %zu of '%s', %zu connected", set.k,
             state->sync_set, connected);
}

static void look_for_primary(const struct ha_state *state, struct buffer *missing)
{
    if (state->primary_count > 1) {
        for (size_t i = 0; i < state->count; i++)
            if (state->members[i].primary)
                miss(missing, state->members[i].node->name, "is one of %zu primaries (timeline %u)",
                     state->primary_count, state->members[i].timeline);
        return;
    }
    miss(missing, NULL, "no node is primary");
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].problem != NULL)
            miss(missing, state->members[i].node->name, "%s", state->members[i].problem);
}

bool ha_healthy(const struct ha_state *state, struct error *why)
{
    OWNED_BUFFER struct buffer missing = BUFFER(WHY_MAXIMUM);
    const struct ha_member *primary =
        state->primary == NULL ? NULL : member_of(state, state->primary);

    if (primary == NULL) {
        look_for_primary(state, &missing);
    } else {
        for (size_t i = 0; i < state->count; i++)
            if (&state->members[i] != primary)
                look_at_standby(&state->members[i], primary, &missing);
        look_at_sync_set(state, primary, &missing);
    }
    if (state->paused)
        miss(&missing, NULL, "the HA manager is paused");
    if (missing.length == 0)
        return true;
    error_set(why, STATUS_FAILED, "the cluster is not healthy: %s%s", buffer_text(&missing),
              missing.overflow ? " ..." : "");
    return false;
}
