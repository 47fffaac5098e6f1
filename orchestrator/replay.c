/* SPDX-License-Identifier: MIT */
#include "orchestrator/replay.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "lib/version.h"

void replay_done(struct replay *replay)
{
    json_decref(replay->nodes);
    json_decref(replay->differences);
    replay->nodes = replay->differences = NULL;
}

static void differ(struct replay *replay, const char *format, ...) PRINTF_LIKE(2, 3);

static void differ(struct replay *replay, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_array_append_new(replay->differences, json_string(text));
}

static const char *run_of(const struct replay *replay)
{
    return json_text(replay->record->start, "run", "?");
}

static const json_t *topology_of(const struct replay *replay)
{
    return json_object_get(replay->record->start, "topology");
}

/* ---- is it possible? ---- */

static enum status check_nodes(const struct replay *replay, const json_t *nodes, const char *step,
                               struct error *err)
{
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const char *node = json_string_value(json_array_get(nodes, i));

        if (node != NULL && topology_node(replay->topology, node) != NULL)
            continue;
        error_set(err, STATUS_REFUSED, "step %s acted on %s, which topology %s does not have", step,
                  node != NULL ? node : "?", replay->topology->name);
        error_hint(err, "A replay without one of its targets would be another experiment.");
        return STATUS_REFUSED;
    }
    return STATUS_OK;
}

static const json_t *begun(const struct replay *replay, const char *step)
{
    size_t index = 0;

    for (const json_t *event; (event = record_next(replay->record, "step.start", &index)) != NULL;)
        if (strcmp(json_text(event, "step", ""), step) == 0)
            return event;
    return NULL;
}

static const json_t *method_of(const struct replay *replay)
{
    return json_object_get(json_object_get(replay->record->start, "scenario"), "method");
}

static enum status check_step(const struct replay *replay, const json_t *step, struct error *err)
{
    const char *name = json_text(step, "name", "?");
    const json_t *event = begun(replay, name);
    const char *fault = json_text(step, "fault", NULL);

    if (event == NULL) {
        error_set(err, STATUS_REFUSED, "step %s did not begin in run %s", name, run_of(replay));
        error_hint(err, "Only what was resolved can be repeated: replay a run that went through.");
        return STATUS_REFUSED;
    }
    if (json_object_get(event, "offset_ms") == NULL)
        return error_set(err, STATUS_REFUSED,
                         "run %s was recorded by a version that did not keep its offsets",
                         run_of(replay));
    if (fault != NULL && fault_find(fault) == NULL)
        return error_set(err, STATUS_REFUSED, "step %s: this version has no fault %s", name, fault);
    return check_nodes(replay, json_object_get(event, "targets"), name, err);
}

static void compare_text(struct replay *replay, const char *what, const char *then, const char *now)
{
    if (strcmp(then, now) != 0)
        differ(replay, "%s was %s, is %s", what, then, now);
}

static void compare_surroundings(struct replay *replay)
{
    const struct topology *now = replay->topology;
    const json_t *then = topology_of(replay);
    const json_t *ha = json_object_get(then, "ha");
    int64_t version = json_number(json_object_get(then, "database"), "version", 0);

    compare_text(replay, "the version of ordeal", json_text(replay->record->start, "ordeal", "?"),
                 ORDEAL_VERSION);
    compare_text(replay, "the topology", json_text(then, "name", "?"), now->name);
    compare_text(replay, "the promised durability",
                 json_text(json_object_get(then, "promise"), "durability", "?"),
                 now->promise.durability);
    compare_text(replay, "the HA manager", json_text(ha, "manager", "?"), now->ha.manager);
    compare_text(replay, "the fence", json_text(ha, "fence", "?"), now->ha.fence);
    if (version != now->database.version)
        differ(replay, "PostgreSQL was version %lld, is %lld", (long long) version,
               (long long) now->database.version);
    if (json_array_size(json_object_get(then, "nodes")) != now->node_count)
        differ(replay, "the topology had %zu nodes, has %zu",
               json_array_size(json_object_get(then, "nodes")), now->node_count);
}

enum status replay_check(struct replay *replay, struct error *err)
{
    const json_t *method = method_of(replay);

    replay->nodes = json_object();
    replay->differences = json_array();
    for (size_t i = 0; i < json_array_size(method); i++) {
        enum status status = check_step(replay, json_array_get(method, i), err);
        if (status != STATUS_OK)
            return status;
    }
    compare_surroundings(replay);
    return STATUS_OK;
}

/* ---- roles ---- */

/* The first look at the members is the preflight's. */
static const json_t *member_then(const struct replay *replay, const char *node)
{
    size_t index = 0;

    for (const json_t *event; (event = record_next(replay->record, "member", &index)) != NULL;)
        if (strcmp(json_text(event, "node", ""), node) == 0)
            return event;
    return NULL;
}

static const char *role_now(const struct ha_member *member)
{
    return member->primary ? "primary" : member->running ? "standby" : "down";
}

static const char *primary_then(const struct replay *replay)
{
    size_t index = 0;

    for (const json_t *event; (event = record_next(replay->record, "member", &index)) != NULL;)
        if (strcmp(json_text(event, "role", ""), "primary") == 0)
            return json_text(event, "node", NULL);
    return NULL;
}

/* Both ways, so that no node is meant twice. */
static enum status swap_primary(struct replay *replay, const struct ha_state *state,
                                struct error *err)
{
    const char *then = primary_then(replay);

    if (then == NULL || state->primary == NULL || topology_node(replay->topology, then) == NULL)
        return error_set(err, STATUS_REFUSED,
                         "there is not one primary then and one now to take its place");
    if (strcmp(then, state->primary->name) == 0)
        return STATUS_OK;
    json_object_set_new(replay->nodes, then, json_string(state->primary->name));
    json_object_set_new(replay->nodes, state->primary->name, json_string(then));
    differ(replay, "%s stands for %s, which was the primary, and the other way round",
           state->primary->name, then);
    return STATUS_OK;
}

static const char *name_now(const struct replay *replay, const char *then)
{
    return json_text(replay->nodes, then, then);
}

static const char *name_then(const struct replay *replay, const char *now)
{
    return name_now(replay, now); /* a swap is its own inverse */
}

static enum status compare_roles(struct replay *replay, const struct ha_state *state,
                                 struct error *err)
{
    for (size_t i = 0; i < state->count; i++) {
        const char *now = state->members[i].node->name;
        const char *then = name_then(replay, now);
        const json_t *member = member_then(replay, then);
        const char *role = json_text(member, "role", "not there");

        if (strcmp(role, role_now(&state->members[i])) != 0) {
            error_set(err, STATUS_REFUSED, "roles moved: %s was %s in run %s, %s is %s", then, role,
                      run_of(replay), now, role_now(&state->members[i]));
            error_hint(err, "Switch over first, or let --follow-roles put the primary of today in "
                            "the place of the one of then.");
            return STATUS_REFUSED;
        }
        if (json_flag(member, "sync", false) != state->members[i].sync)
            differ(replay, "%s was %sin the sync set, %s is %s", then,
                   state->members[i].sync ? "not " : "", now,
                   state->members[i].sync ? "in it" : "not");
    }
    return STATUS_OK;
}

enum status replay_place(struct replay *replay, const struct ha_state *state, bool follow,
                         struct error *err)
{
    enum status status = follow ? swap_primary(replay, state, err) : STATUS_OK;

    return status == STATUS_OK ? compare_roles(replay, state, err) : status;
}

/* ---- the file ---- */

static json_t *names_now(const struct replay *replay, const json_t *names)
{
    json_t *list = json_array();

    for (size_t i = 0; i < json_array_size(names); i++)
        json_array_append_new(
            list, json_string(name_now(replay, json_string_value(json_array_get(names, i)))));
    return list;
}

static json_t *with_file(const struct replay *replay, const struct fault *fault,
                         const json_t *params)
{
    json_t *with = json_object();
    const char *name;
    json_t *value;

    json_object_foreach((json_t *) (uintptr_t) params, name, value)
    {
        const struct param *param = param_find(fault->params, name);
        OWNED_BUFFER struct buffer text = BUFFER(64 * 1024);

        if (param == NULL)
            continue; /* refused by the reader when it matters: a parameter that is gone is required
                       */
        if (param->type == PARAM_NODES) {
            json_object_set_new(with, name, names_now(replay, value));
            continue;
        }
        param_text(param, value, &text);
        json_object_set_new(with, name, json_string(buffer_text(&text)));
    }
    return with;
}

static json_t *duration(int64_t ms)
{
    return json_sprintf("%lldms", (long long) ms);
}

static void add_action(const struct replay *replay, const json_t *step, const json_t *event,
                       json_t *file)
{
    const char *fault = json_text(step, "fault", NULL);

    if (json_object_get(step, "pause") != NULL) {
        json_object_set_new(file, "pause", duration(json_number(step, "pause", 0)));
        return;
    }
    json_object_set_new(file, "target", names_now(replay, json_object_get(event, "targets")));
    if (fault == NULL) {
        json_object_set(file, "power", json_object_get(step, "power"));
        return;
    }
    json_object_set_new(file, "fault", json_string(fault));
    json_object_set_new(file, "with",
                        with_file(replay, fault_find(fault), json_object_get(event, "params")));
    if (json_object_get(step, "for") != NULL)
        json_object_set_new(file, "for", duration(json_number(step, "for", 0)));
}

static json_t *step_file(const struct replay *replay, const json_t *step)
{
    const json_t *event = begun(replay, json_text(step, "name", ""));
    json_t *file =
        json_pack("{s:O, s:o, s:O, s:O}", "name", json_object_get(step, "name"), "at",
                  duration(json_number(event, "offset_ms", 0)), "expect",
                  json_object_get(step, "expect"), "optional", json_object_get(step, "optional"));

    add_action(replay, step, event, file);
    return file;
}

enum status replay_write(const struct replay *replay, const char *path, struct error *err)
{
    const json_t *start = replay->record->start;
    OWNED_JSON json_t *file = scenario_file_json(json_object_get(start, "scenario"));
    json_t *method = json_array();
    const json_t *steps = method_of(replay);

    for (size_t i = 0; i < json_array_size(steps); i++)
        json_array_append_new(method, step_file(replay, json_array_get(steps, i)));
    json_object_set_new(file, "method", method);
    if (json_number(start, "seed", -1) >= 0)
        json_object_set(file, "seed", json_object_get(start, "seed"));
    return json_write_file(path, file, err);
}

/* ---- did all of it survive? ---- */

void replay_compare_scenario(struct replay *replay, const struct scenario *scenario)
{
    /* what is pinned differs from what was written, and nobody repeats a replay by itself */
    static const char *const other[] = {"method", "name", "repeat"};
    const json_t *then = json_object_get(replay->record->start, "scenario");
    OWNED_JSON json_t *now = scenario_json(scenario);
    OWNED_JSON json_t *rest = json_copy((json_t *) (uintptr_t) then);
    const char *key;
    json_t *value;

    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        json_object_del(now, other[i]);
        json_object_del(rest, other[i]);
    }
    json_object_foreach(rest, key, value)
    {
        OWNED_MEMORY char *was = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        OWNED_MEMORY char *is =
            json_dumps(json_object_get(now, key), JSON_ENCODE_ANY | JSON_COMPACT);

        if (!json_equal(value, json_object_get(now, key)))
            differ(replay, "%s was %.200s, is %.200s", key, was != NULL ? was : "?",
                   is != NULL ? is : "absent");
    }
}

json_t *replay_json(const struct replay *replay)
{
    return json_pack("{s:s, s:s, s:O, s:O}", "run", run_of(replay), "folder",
                     replay->record->folder, "nodes", replay->nodes, "differences",
                     replay->differences);
}

/* ---- the schedules ---- */

/* "OFFSET STEP ACTION FAULT NODE PARAMS": node and names within the parameters as of now. */
static void translate(const struct replay *replay, const char *line, struct buffer *text)
{
    char head[4][128] = {{0}}, node[128] = "";
    OWNED_JSON json_t *params = NULL;
    int length = 0;
    const char *name;
    json_t *value;

    if (json_object_size(replay->nodes) == 0 ||
        sscanf(line, "%127s %127s %127s %127s %127s %n", head[0], head[1], head[2], head[3], node,
               &length) != 5) {
        buffer_puts(text, line);
        return;
    }
    if (json_parse_text(line + length, strlen(line + length), &params, NULL) == STATUS_OK)
        json_object_foreach(params, name, value) if (json_is_array(value))
            json_object_set_new(params, name, names_now(replay, value));
    OWNED_MEMORY char *dump =
        json_dumps(params, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(12));
    buffer_printf(text, "%s %s %s %s %s %s\n", head[0], head[1], head[2], head[3],
                  name_now(replay, node), dump != NULL ? dump : line + length);
}

static int by_offset(const void *left, const void *right)
{
    const char *a = *(const char *const *) left, *b = *(const char *const *) right;
    long long one = strtoll(a, NULL, 10), other = strtoll(b, NULL, 10);

    return one != other ? (one > other) - (one < other) : strcmp(a, b);
}

struct schedule {
    size_t count;
    const char **lines; /* in the order of their offsets, however they came to be written */
};

static enum status read_schedule(struct arena *arena, const struct replay *replay,
                                 const char *folder, struct schedule *ret_schedule,
                                 struct error *err)
{
    const char *path = arena_printf(arena, "%s/schedule.txt", folder);
    OWNED_FILE FILE *file = fopen(path, "re");
    OWNED_MEMORY char *line = NULL;
    size_t size = 0, room = 64;
    struct schedule schedule = {.lines = arena_array(arena, room, sizeof(char *))};

    if (file == NULL)
        return error_system(err, "opening %s", path);
    while (getline(&line, &size, file) > 0) {
        OWNED_BUFFER struct buffer text = BUFFER(4 * 1024 * 1024);

        if (schedule.count == room) {
            schedule.lines = arena_grow(arena, schedule.lines, room, room * 2, sizeof(char *));
            room *= 2;
        }
        if (replay != NULL)
            translate(replay, line, &text);
        else
            buffer_puts(&text, line);
        schedule.lines[schedule.count++] = arena_strdup(arena, buffer_text(&text));
    }
    if (ferror(file))
        return error_system(err, "reading %s", path);
    qsort(schedule.lines, schedule.count, sizeof(char *), by_offset);
    *ret_schedule = schedule;
    return STATUS_OK;
}

static const char *line_at(const struct schedule *schedule, size_t index)
{
    return index < schedule->count ? schedule->lines[index] : "(nothing)\n";
}

enum status replay_compare(const struct replay *replay, const char *folder, bool *ret_same,
                           struct buffer *difference, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct schedule then = {0}, now = {0};
    enum status status = read_schedule(arena, replay, replay->record->folder, &then, err);

    if (status == STATUS_OK)
        status = read_schedule(arena, NULL, folder, &now, err);
    if (status != STATUS_OK)
        return status;
    *ret_same = true;
    for (size_t i = 0; i < then.count || i < now.count; i++) {
        if (strcmp(line_at(&then, i), line_at(&now, i)) == 0)
            continue;
        *ret_same = false;
        buffer_printf(difference, "then: %snow:  %s", line_at(&then, i), line_at(&now, i));
        break;
    }
    return STATUS_OK;
}
