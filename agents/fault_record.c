/* SPDX-License-Identifier: MIT */
#include "agents/fault_record.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "agents/guardian/journal.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { RECORD_VERSION = 1, LOOK_FIRST_MS = 2, LOOK_MAX_MS = 50 };

/* --- the context ----------------------------------------------------------------------------- */

static json_t *peers_json(const struct session *session)
{
    json_t *peers = json_array();

    for (size_t i = 0; i < session->peer_count; i++)
        json_array_append_new(peers, json_pack("{s:s, s:s}", "name", session->peers[i].name,
                                               "address", session->peers[i].address));
    return peers;
}

static json_t *argv_json(const char *const *argv)
{
    if (argv == NULL)
        return json_null();
    json_t *array = json_array();
    for (; *argv != NULL; argv++)
        json_array_append_new(array, json_string(*argv));
    return array;
}

json_t *fault_context_json(const struct session *session)
{
    json_t *json = json_pack("{s:s, s:s, s:i, s:o}", "node", session->node, "control_address",
                             session->control_address, "control_port", session->control_port,
                             "peers", peers_json(session));

    if (session->is_database) {
        json_object_set_new(json, "data_directory", json_string(session->database.data));
        json_object_set_new(json, "database_port", json_integer(session->database.port));
    } else if (session->has_database)
        json_object_set_new(json, "database_port", json_integer(session->database.port));
    if (session->power_on != NULL)
        json_object_set_new(json, "power",
                            json_pack("{s:o, s:o, s:o}", "off", argv_json(session->power_off),
                                      "cut", argv_json(session->power_cut), "on",
                                      argv_json(session->power_on)));
    return json;
}

static const char *const *read_argv(struct arena *arena, const json_t *json)
{
    size_t count = json_array_size(json);

    if (count == 0)
        return NULL;
    const char **argv = arena_array(arena, count + 1, sizeof *argv);
    for (size_t i = 0; i < count; i++) {
        const char *word = json_string_value(json_array_get(json, i));
        argv[i] = word != NULL ? word : "";
    }
    return argv;
}

static const struct fault_peer *read_peers(struct arena *arena, const json_t *json, size_t count)
{
    struct fault_peer *peers = arena_array(arena, count, sizeof *peers);

    for (size_t i = 0; i < count; i++) {
        const json_t *peer = json_array_get(json, i);
        peers[i].name = json_text(peer, "name", "");
        peers[i].address = json_text(peer, "address", "");
    }
    return peers;
}

enum status fault_context_read(struct arena *arena, const json_t *json, const char *uid,
                               int64_t deadline_ns, struct power *power,
                               struct fault_context *ret_context, struct error *err)
{
    const json_t *peers = json_object_get(json, "peers");
    const json_t *programs = json_object_get(json, "power");
    struct fault_context context = {
        .node = json_text(json, "node", NULL),
        .uid = uid,
        .deadline_ns = deadline_ns,
        .data_directory = json_text(json, "data_directory", NULL),
        .database_port = (int) json_number(json, "database_port", 0),
        .control_address = json_text(json, "control_address", NULL),
        .control_port = (int) json_number(json, "control_port", 0),
        .peer_count = json_array_size(peers),
    };

    if (context.node == NULL || context.control_address == NULL)
        return error_set(err, STATUS_INVALID, "a record without node or control_address");
    context.peers = read_peers(arena, peers, context.peer_count);
    *power = (struct power){.off = read_argv(arena, json_object_get(programs, "off")),
                            .cut = read_argv(arena, json_object_get(programs, "cut")),
                            .on = read_argv(arena, json_object_get(programs, "on")),
                            .peer_count = context.peer_count,
                            .peers = context.peers};
    if (power->on != NULL) {
        context.power = power_call;
        context.argument = power;
    }
    *ret_context = context;
    return STATUS_OK;
}

/* --- the record ------------------------------------------------------------------------------ */

/* What the guardian allows once at a time: a group on this node, of a power fault on its target. */
static json_t *exclusion_json(const struct fault *fault, const json_t *params)
{
    if (fault->excludes == NULL)
        return json_string("");
    return json_sprintf("%s%s%s", fault->excludes, fault->executor == EXECUTE_POWER ? ":" : "",
                        fault->executor == EXECUTE_POWER ? json_text(params, "node", "") : "");
}

json_t *fault_record_json(const struct session *session, const char *uid, const struct fault *fault,
                          json_t *params, json_t *record, int64_t hold_ms)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:o, s:I, s:o, s:o, s:o}", "uid", uid, "run",
                     session->run, "fault", fault->name, "version", RECORD_VERSION, "excludes",
                     exclusion_json(fault, params), "hold_ms", (json_int_t) hold_ms, "context",
                     fault_context_json(session), "params", params, "record", record);
}

enum status fault_record_read(struct arena *arena, const json_t *json, int64_t deadline_ns,
                              struct fault_record *ret_record, struct error *err)
{
    struct fault_record record = {0};
    const char *name = NULL;
    const json_t *context = NULL;
    int version = 0;
    enum status status =
        json_read(json, "record", err, "{s:s, s:s, s:s, s:i, s:o, s:o, s:o}", "uid", &record.uid,
                  "run", &record.run, "fault", &name, "version", &version, "context", &context,
                  "params", &record.params, "record", &record.record);

    if (status != STATUS_OK)
        return status;
    if (version != RECORD_VERSION)
        return error_set(err, STATUS_INVALID, "record %s: version %d is not known", record.uid,
                         version);
    record.fault = fault_find(name);
    if (record.fault == NULL)
        return error_set(err, STATUS_NOT_FOUND, "record %s: no fault '%s'", record.uid, name);
    *ret_record = record;
    /* in place: the context points to the power driver beside it */
    return fault_context_read(arena, context, record.uid, deadline_ns, &ret_record->power,
                              &ret_record->context, err);
}

/* --- the journal ----------------------------------------------------------------------------- */

struct search {
    const char *uid;
    struct fault_history history;
};

static void look_at(void *argument, const struct journal_line *line)
{
    struct search *search = argument;
    struct fault_history *history = &search->history;

    if (strcmp(line->uid, search->uid) != 0)
        return;
    if (line->kind == JOURNAL_OPEN) {
        json_decref(history->json);
        history->json = NULL;
        if (json_parse_text(line->record, line->record_length, &history->json, NULL) != STATUS_OK)
            history->json = NULL;
        history->closed = false;
        return;
    }
    history->closed = true;
    history->closed_ns = line->at_ns;
    memcpy(history->by, line->who, sizeof history->by);
    memcpy(history->state, line->state, sizeof history->state);
}

enum status fault_history_find(const char *state_folder, const char *uid,
                               struct fault_history *ret_history, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *path = arena_printf(arena, "%s/journal", state_folder);
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct search search = {.uid = uid};
    struct journal_damage damage;

    if (fd < 0)
        return error_system(err, "opening %s", path);
    enum status status = journal_read(fd, look_at, &search, &damage, err);
    if (status != STATUS_OK)
        return status;
    if (search.history.json == NULL)
        return error_set(err, STATUS_NOT_FOUND, "no fault %s on this node", uid);
    *ret_history = search.history;
    return STATUS_OK;
}

/* --- observing ------------------------------------------------------------------------------- */

enum status fault_observe_until(const struct fault_record *record, enum effect wanted,
                                int64_t deadline_ns, int64_t *ret_seen_ns,
                                struct observation *ret_observation, struct error *err)
{
    struct observation seen = {0};
    int64_t first_ns = 0;
    int pause_ms = LOOK_FIRST_MS;

    for (;;) {
        struct observation now = {0};
        enum status status = record->fault->observe(&record->context, record->record, &now, err);
        if (status != STATUS_OK) {
            json_decref(seen.numbers);
            return error_context(err, "observing %s", record->fault->name);
        }
        json_decref(seen.numbers);
        seen = now;
        bool effect = seen.effect == EFFECT_ACTIVE || seen.effect == EFFECT_PARTIAL;
        if (effect && first_ns == 0)
            first_ns = clock_boot_ns();
        if (seen.effect == wanted || deadline_passed(deadline_ns))
            break;
        poll(NULL, 0, pause_ms); /* the pace of looking */
        pause_ms = 2 * pause_ms < LOOK_MAX_MS ? 2 * pause_ms : LOOK_MAX_MS;
    }
    if (ret_seen_ns != NULL)
        *ret_seen_ns = first_ns;
    *ret_observation = seen;
    return STATUS_OK;
}

json_t *observation_json(struct observation *observation)
{
    json_t *text = json_string(observation->text);

    return json_pack("{s:s, s:o, s:o}", "state", effect_name(observation->effect), "text",
                     text != NULL ? text : json_string("(no text)"), "numbers",
                     observation->numbers != NULL ? observation->numbers : json_object());
}
