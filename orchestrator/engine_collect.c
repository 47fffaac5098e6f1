/* SPDX-License-Identifier: MIT */
/*
 * The evidence that the checks judge: ledgers and present sets fetched from the nodes' spools, the
 * state of replication asked from the standbys themselves, a commit watched while it waits.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "orchestrator/engine_state.h"

enum {
    FILE_MS = 20000,
    TOKENS_MS = 120000,
    QUORUM_MS = 20000,
    REPLAY_MS = 30000,
    REPLAY_LOOK_MS = 100,
    CHUNK_MAX = 1024 * 1024
};

/* ---- files of the spool ---- */

/* The part of a name after the last slash: the run directory has folders of its own. */
static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash != NULL ? slash + 1 : name;
}

static enum status write_chunk(int fd, const char *text, const char *path, size_t *ret_length,
                               struct error *err)
{
    size_t length = strlen(text);

    if (length % 4 != 0 || length > CHUNK_MAX * 4 / 3 + 8)
        return error_set(err, STATUS_PROTOCOL, "a part of %s is not base64", path);
    OWNED_ARENA struct arena *arena = arena_new();
    unsigned char *bytes = arena_alloc(arena, length / 4 * 3 + 4);
    int count = EVP_DecodeBlock(bytes, (const unsigned char *) text, (int) length);
    if (count < 0)
        return error_set(err, STATUS_PROTOCOL, "a part of %s is not base64", path);
    for (size_t i = length; i > 0 && text[i - 1] == '='; i--)
        count--;
    if (write(fd, bytes, (size_t) count) != count)
        return error_system(err, "writing %s", path);
    *ret_length = (size_t) count;
    return STATUS_OK;
}

static enum status fetch_into(struct engine *engine, const char *node, const char *name, int fd,
                              const char *path, struct error *err)
{
    int64_t offset = 0;

    for (;;) {
        json_t *params = json_pack("{s:s, s:s, s:I}", "run", engine->run, "name", name, "offset",
                                   (json_int_t) offset);
        OWNED_JSON json_t *result = NULL;
        size_t length = 0;
        enum status status =
            cluster_call(engine->cluster, node, "file.read", params, FILE_MS, &result, err);

        if (status == STATUS_OK)
            status = write_chunk(fd, json_text(result, "data", ""), path, &length, err);
        if (status != STATUS_OK)
            return status;
        offset += (int64_t) length;
        if (json_flag(result, "end", false) || offset >= json_number(result, "size", 0))
            return STATUS_OK;
        if (length == 0)
            return error_set(err, STATUS_PROTOCOL, "%s of %s ends early", name, node);
    }
}

enum status collect_file(struct engine *engine, const char *node, const char *name,
                         const char *folder, struct error *err)
{
    OWNED_BUFFER struct buffer path = BUFFER(8192);

    buffer_printf(&path, "%s/%s/%s", engine->options->folder, folder, base_of(name));
    OWNED_FD int fd = open(buffer_text(&path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_system(err, "creating %s", buffer_text(&path));
    return fetch_into(engine, node, name, fd, buffer_text(&path), err);
}

static bool is_ledger(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot != NULL && strcmp(dot, ".ledger") == 0;
}

static void journal_missing(struct engine *engine, const char *node, const char *file,
                            const struct error *error)
{
    journal_event(engine->journal, "ledger.missing",
                  json_pack("{s:s, s:s, s:s}", "node", node, "file", file, "text", error->message));
}

static void collect_from(struct engine *engine, const char *node)
{
    struct error error = {0};
    OWNED_JSON json_t *result = NULL;
    const json_t *file;
    size_t index;

    if (cluster_call(engine->cluster, node, "file.list", engine_params(engine), FILE_MS, &result,
                     &error) != STATUS_OK) {
        journal_missing(engine, node, "all", &error);
        return;
    }
    json_array_foreach(json_object_get(result, "files"), index, file)
    {
        const char *name = json_text(file, "name", "");

        if (is_ledger(name) && collect_file(engine, node, name, "ledger", &error) != STATUS_OK)
            journal_missing(engine, node, name, &error);
    }
}

void collect_ledgers(struct engine *engine)
{
    for (size_t i = 0; i < engine->load_count; i++)
        collect_from(engine, engine->loads[i].node->name);
}

/* ---- present sets ---- */

static void journal_present(struct engine *engine, const struct ha_member *member)
{
    const char *node = member->node->name;
    json_t *params = json_pack("{s:s, s:i}", "run", engine->run, "timeout_ms", (int) TOKENS_MS);
    OWNED_JSON json_t *result = NULL;
    struct error error = {0};

    if (cluster_call(engine->cluster, node, "postgres.tokens", params, TOKENS_MS + FILE_MS, &result,
                     &error) != STATUS_OK ||
        collect_file(engine, node, json_text(result, "file", ""), "ledger", &error) != STATUS_OK) {
        journal_note(engine->journal, "present set of %s: %s", node, error.message);
        return;
    }
    const char *file =
        arena_printf(engine->arena, "ledger/%s", base_of(json_text(result, "file", "")));
    journal_event(engine->journal, "present",
                  json_pack("{s:s, s:s, s:I, s:s, s:I, s:b}", "node", node, "role",
                            member->primary ? "primary" : "standby", "timeline",
                            (json_int_t) member->timeline, "file", file, "tokens",
                            (json_int_t) json_number(result, "tokens", 0), "agree",
                            json_flag(result, "agree", false)));
}

/* ---- replication ---- */

static const struct ha_member *primary_of(const struct ha_state *state)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].node == state->primary)
            return &state->members[i];
    return NULL;
}

static bool all_replayed(const struct ha_state *state, uint64_t lsn)
{
    for (size_t i = 0; i < state->count; i++) {
        const struct ha_member *member = &state->members[i];

        if (!member->primary && member->running &&
            pg_lsn_parse(json_text(member->state, "replay_lsn", "")) < lsn)
            return false;
    }
    return true;
}

/* Absence on a standby means something only once it has replayed what the primary had. */
static enum status wait_replayed(struct engine *engine, uint64_t lsn, struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(REPLAY_MS);

    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        struct ha_state state;
        enum status status = engine->ha.driver->state(&engine->ha, arena, &state, err);

        if (status == STATUS_OK && all_replayed(&state, lsn))
            return STATUS_OK;
        if (status == STATUS_OK && deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT,
                             "standbys have not replayed the primary's position within %d s",
                             REPLAY_MS / 1000);
        if (status == STATUS_OK)
            status = engine_pause(engine, REPLAY_LOOK_MS, err);
        if (status != STATUS_OK)
            return status;
    }
}

static const json_t *row_of(const struct ha_member *primary, const char *name)
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

/* What the primary says of a standby, and what the standby says of itself. */
static json_t *standby_json(const struct ha_member *primary, const struct ha_member *member)
{
    const json_t *row = row_of(primary, member->node->name);

    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:I}", "node", member->node->name,
                     "state", json_text(row, "state", ""), "sync_state",
                     json_text(row, "sync_state", ""), "flush_lsn", json_text(row, "flush_lsn", ""),
                     "own_receive_lsn", json_text(member->state, "receive_lsn", ""),
                     "own_replay_lsn", json_text(member->state, "replay_lsn", ""), "streaming",
                     member->streaming, "timeline", (json_int_t) member->timeline);
}

/* `lsn` is a position that every standby has had the time to reach. */
static void journal_replication(struct engine *engine, const struct ha_state *state,
                                const struct ha_member *primary, uint64_t reached)
{
    json_t *standbys = json_array();
    char lsn[PG_LSN_TEXT_SIZE];

    pg_lsn_text(reached, lsn);
    for (size_t i = 0; i < state->count; i++)
        if (&state->members[i] != primary)
            json_array_append_new(standbys, standby_json(primary, &state->members[i]));
    const json_t *slots = json_object_get(primary->state, "slots");
    journal_event(engine->journal, "replication",
                  json_pack("{s:s, s:s, s:s, s:o, s:O?}", "primary", primary->node->name, "lsn",
                            lsn, "sync_set", state->sync_set, "standbys", standbys, "slots",
                            slots));
}

static void journal_timeline(struct engine *engine, const struct ha_member *primary)
{
    const json_t *history = json_object_get(primary->state, "history");

    journal_event(engine->journal, "timeline",
                  json_pack("{s:s, s:I, s:o}", "node", primary->node->name, "timeline",
                            (json_int_t) primary->timeline, "history",
                            history != NULL ? json_deep_copy(history) : json_array()));
}

static void journal_quorum_wait(struct engine *engine, const char *primary)
{
    json_t *params = json_pack("{s:s, s:i}", "run", engine->run, "timeout_ms", (int) QUORUM_MS);
    json_t *result = NULL;
    struct error error = {0};

    if (cluster_call(engine->cluster, primary, "postgres.quorum-wait", params, QUORUM_MS + STATE_MS,
                     &result, &error) != STATUS_OK) {
        journal_note(engine->journal, "watching a commit wait: %s", error.message);
        return;
    }
    json_t *event = json_pack("{s:s}", "node", primary);
    json_object_update_missing(event, result);
    json_decref(result);
    journal_event(engine->journal, "quorum-wait", event);
}

/* ---- all of it ---- */

static void collect_database(struct engine *engine)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state before, state;
    struct error error = {0};

    if (engine_members(engine, arena, &before, &error) != STATUS_OK) {
        journal_note(engine->journal, "asking the members: %s", error.message);
        return;
    }
    const struct ha_member *primary = primary_of(&before);
    if (primary == NULL) {
        journal_note(engine->journal, "no data was compared: there is no single primary");
        return;
    }
    uint64_t reached = primary->lsn;
    journal_timeline(engine, primary);
    journal_quorum_wait(engine, primary->node->name);
    if (wait_replayed(engine, reached, &error) != STATUS_OK)
        journal_note(engine->journal, "%s", error.message);
    if (engine->ha.driver->state(&engine->ha, arena, &state, &error) != STATUS_OK ||
        (primary = primary_of(&state)) == NULL) {
        journal_note(engine->journal, "the primary went away during the checks");
        return;
    }
    journal_replication(engine, &state, primary, reached);
    for (size_t i = 0; i < state.count; i++)
        if (state.members[i].running)
            journal_present(engine, &state.members[i]);
}

void collect_run(struct engine *engine)
{
    collect_ledgers(engine);
    collect_database(engine);
}

/* Apart from the rest: it stops servers, so that no signal may end it in the middle. */
void collect_integrity(struct engine *engine)
{
    bool completed = strcmp(engine->outcome, "completed") == 0;

    if (completed && engine->final_primary[0] != '\0' &&
        json_object_get(engine->scenario->checks, "integrity") != NULL)
        integrity_run(engine, engine->final_primary);
}
