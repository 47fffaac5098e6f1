/* SPDX-License-Identifier: MIT */
/*
 * postgres.tokens: which tokens this node really holds. The journal table is read twice in one
 * snapshot, by sequential scan and through its index, since a table and an index that disagree are
 * corruption that either one alone would hide. The sequential scan makes the present set.
 *
 * Rows come as binary COPY: nothing has to be unescaped, and memory does not grow with the table.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agents/postgres_local.h"
#include "agents/postgres_methods.h"
#include "agents/postgres_present.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { ATTEMPTS = 5, COLUMNS = 6 };

static inline void owned_fold(struct present_fold **fold)
{
    if (*fold != NULL)
        present_fold_free(*fold);
}

#define OWNED_FOLD __attribute__((cleanup(owned_fold)))

/* --- binary COPY ------------------------------------------------------------------------------ */

struct reader {
    struct present_fold *fold;
    bool header_seen, ended;
    const char *at, *end;
};

static bool take_bytes(struct reader *reader, void *target, size_t length)
{
    if ((size_t) (reader->end - reader->at) < length)
        return false;
    memcpy(target, reader->at, length);
    reader->at += length;
    return true;
}

static bool take_i16(struct reader *reader, int *ret_value)
{
    uint16_t raw;

    if (!take_bytes(reader, &raw, sizeof raw))
        return false;
    *ret_value = (int16_t) be16toh(raw);
    return true;
}

static bool take_length(struct reader *reader, int32_t *ret_length)
{
    uint32_t raw;

    if (!take_bytes(reader, &raw, sizeof raw))
        return false;
    *ret_length = (int32_t) be32toh(raw);
    return true;
}

static bool take_bigint(struct reader *reader, uint64_t *ret_value)
{
    int32_t length;
    uint64_t raw;

    if (!take_length(reader, &length) || length != (int32_t) sizeof raw ||
        !take_bytes(reader, &raw, sizeof raw))
        return false;
    *ret_value = be64toh(raw);
    return true;
}

static bool take_smallint(struct reader *reader, int *ret_value)
{
    int32_t length;

    return take_length(reader, &length) && length == 2 && take_i16(reader, ret_value);
}

static bool take_text(struct reader *reader, const char **ret_text, size_t *ret_length)
{
    int32_t length;

    if (!take_length(reader, &length))
        return false;
    *ret_text = NULL;
    *ret_length = 0;
    if (length < 0) /* null */
        return true;
    if (reader->end - reader->at < length)
        return false;
    *ret_text = reader->at;
    *ret_length = (size_t) length;
    reader->at += length;
    return true;
}

/* Signature of eleven bytes, flags, and the length of an extension that nobody uses. */
static bool take_header(struct reader *reader)
{
    static const char signature[] = "PGCOPY\n\377\r\n";
    char found[sizeof signature];
    int32_t flags, extension;

    return take_bytes(reader, found, sizeof found) &&
           memcmp(found, signature, sizeof signature) == 0 && take_length(reader, &flags) &&
           flags == 0 && take_length(reader, &extension) && extension == 0;
}

static bool take_row(struct reader *reader, struct journal_row *row)
{
    uint64_t digest;

    if (!take_bigint(reader, &row->client) || !take_bigint(reader, &row->seq) ||
        !take_smallint(reader, &row->row) || !take_smallint(reader, &row->rows) ||
        !take_bigint(reader, &digest) || !take_text(reader, &row->payload, &row->length))
        return false;
    row->digest = (int64_t) digest;
    return true;
}

static enum status take_message(void *argument, const char *data, size_t length, struct error *err)
{
    struct reader *reader = argument;
    struct journal_row row;
    int columns;

    reader->at = data;
    reader->end = data + length;
    if (!reader->header_seen && !take_header(reader))
        return error_set(err, STATUS_PROTOCOL, "not a binary COPY");
    reader->header_seen = true;
    while (reader->at < reader->end) {
        if (reader->ended || !take_i16(reader, &columns) || (columns != -1 && columns != COLUMNS))
            return error_set(err, STATUS_PROTOCOL, "a row of the journal cannot be read");
        reader->ended = columns == -1;
        if (reader->ended)
            continue;
        if (!take_row(reader, &row))
            return error_set(err, STATUS_PROTOCOL, "a row of the journal cannot be read");
        if (!present_fold_row(reader->fold, &row))
            return error_set(err, STATUS_FAILED,
                             "rows of the journal come out of order, or cannot be written");
    }
    return STATUS_OK;
}

/* --- scans ------------------------------------------------------------------------------------ */

#define JOURNAL_QUERY                                                                              \
    "SELECT client, seq, row, rows, digest, payload FROM ordeal.journal ORDER BY client, seq"

struct scan {
    const char *settings, *node_type; /* node_type: what the plan must contain */
};

static const struct scan sequential = {
    "SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = off;"
    "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = on",
    "Seq Scan on journal",
};
static const struct scan by_index = {
    "SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = on;"
    "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off",
    "Index Scan using journal_client_seq",
};

/* The planner is asked, not trusted: two scans of the same kind would always agree. */
static enum status require_plan(PGconn *connection, const struct scan *scan, int64_t deadline_ns,
                                struct error *err)
{
    OWNED_PG_RESULT PGresult *result = NULL;
    enum status status =
        pg_query(connection, "EXPLAIN (COSTS off) " JOURNAL_QUERY, deadline_ns, &result, err);

    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++)
        if (strstr(PQgetvalue(result, i, 0), scan->node_type) != NULL)
            return STATUS_OK;
    if (status != STATUS_OK)
        return status;
    return error_set(err, STATUS_DATABASE, "the journal is not read by \"%s\"", scan->node_type);
}

static enum status run_scan(PGconn *connection, const struct scan *scan, int64_t deadline_ns,
                            struct present_fold *fold, struct error *err)
{
    struct reader reader = {.fold = fold};
    enum status status = pg_query(connection, scan->settings, deadline_ns, NULL, err);

    if (status == STATUS_OK)
        status = require_plan(connection, scan, deadline_ns, err);
    if (status == STATUS_OK)
        status = pg_copy_out(connection, "COPY (" JOURNAL_QUERY ") TO STDOUT (FORMAT binary)",
                             deadline_ns, take_message, &reader, err);
    if (status == STATUS_OK && !reader.ended)
        status = error_set(err, STATUS_PROTOCOL, "the copy of the journal has no end");
    if (status == STATUS_OK && !present_fold_end(fold))
        status = error_system(err, "writing the present set");
    return status;
}

/* --- the file --------------------------------------------------------------------------------- */

static bool write_text(void *argument, const char *text)
{
    return fputs(text, argument) >= 0;
}

/* What a standby has received and not replayed cannot be read there: its position is the replayed.
 */
static enum status write_header(FILE *file, const struct session *session, const json_t *state,
                                struct error *err)
{
    bool in_recovery = json_flag(state, "in_recovery", false);
    const char *lsn = json_text(state, in_recovery ? "replay_lsn" : "lsn", "0/0");
    int written =
        fprintf(file,
                "ordeal-present-1 run=%s node=%s system=%s timeline=%lld recovery=%s"
                " lsn=%s\n",
                session->run, session->node, json_text(state, "system_identifier", ""),
                (long long) json_number(state, "timeline", 0), in_recovery ? "yes" : "no", lsn);

    return written > 0 ? STATUS_OK : error_system(err, "writing the present set");
}

static enum status finish_file(FILE *file, uint64_t tokens, struct error *err)
{
    if (fprintf(file, "end tokens=%llu\n", (unsigned long long) tokens) < 0 || fflush(file) != 0 ||
        fsync(fileno(file)) != 0)
        return error_system(err, "writing the present set");
    return STATUS_OK;
}

/* The two folds of one snapshot. */
struct outcome {
    uint64_t tokens, rows, odd;
    bool agree;
};

static enum status read_both(PGconn *connection, FILE *file, int64_t deadline_ns,
                             struct outcome *ret_outcome, struct error *err)
{
    OWNED_FOLD struct present_fold *heap = present_fold_new(write_text, file);
    OWNED_FOLD struct present_fold *index = present_fold_new(NULL, NULL);
    enum status status = pg_query(connection,
                                  "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
                                  "SET LOCAL max_parallel_workers_per_gather = 0;"
                                  "SET LOCAL work_mem = '32MB'",
                                  deadline_ns, NULL, err);

    if (status == STATUS_OK)
        status = run_scan(connection, &sequential, deadline_ns, heap, err);
    if (status == STATUS_OK)
        status = run_scan(connection, &by_index, deadline_ns, index, err);
    if (status == STATUS_OK)
        status = pg_query(connection, "COMMIT", deadline_ns, NULL, err);
    if (status != STATUS_OK)
        return status;
    *ret_outcome = (struct outcome){
        .tokens = present_fold_tokens(heap),
        .rows = present_fold_rows(heap),
        .odd = present_fold_odd(heap),
        .agree = present_fold_rows(heap) == present_fold_rows(index) &&
                 present_fold_sum(heap) == present_fold_sum(index),
    };
    return STATUS_OK;
}

static enum status write_present(const struct method_call *call, const json_t *state,
                                 const char *path, struct outcome *ret_outcome, struct error *err)
{
    const struct session *session = call->session;
    OWNED_FILE FILE *file = fopen(path, "we");
    OWNED_PG PGconn *connection = NULL;

    if (file == NULL)
        return error_system(err, "creating %s", path);
    enum status status = postgres_connect(session, NULL, session->database.workload_database,
                                          call->deadline_ns, &connection, err);
    if (status == STATUS_OK)
        status = write_header(file, session, state, err);
    if (status == STATUS_OK)
        status = read_both(connection, file, call->deadline_ns, ret_outcome, err);
    if (status == STATUS_OK)
        status = finish_file(file, ret_outcome->tokens, err);
    return status;
}

/* A standby cancels readers that stand in the way of replay (40001): read again. */
static enum status attempt(const struct method_call *call, const char *path,
                           struct outcome *ret_outcome, struct error *err)
{
    enum status status = STATUS_OK;

    for (int i = 0; i < ATTEMPTS; i++) {
        OWNED_JSON json_t *state = NULL;
        status = postgres_state(call, &state, err);
        if (status == STATUS_OK && !json_flag(state, "accepting", false))
            status = error_set(err, STATUS_UNREACHABLE, "PostgreSQL does not answer: %s",
                               json_text(state, "error", "it is down"));
        if (status == STATUS_OK)
            status = write_present(call, state, path, ret_outcome, err);
        if (status != STATUS_DATABASE || strcmp(err->detail, "40001") != 0)
            break;
    }
    return status;
}

enum status postgres_tokens(const struct method_call *call, json_t **ret_result, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const struct session *session = call->session;
    const char *name = arena_printf(arena, "present-%s.tokens", session->node);
    const char *path = arena_printf(arena, "%s/%s", session->spool, name);
    const char *begun = arena_printf(arena, "%s.part", path);
    struct outcome outcome = {0};
    enum status status = attempt(call, begun, &outcome, err);

    if (status == STATUS_OK && rename(begun, path) != 0)
        status = error_system(err, "renaming %s", begun);
    if (status != STATUS_OK) {
        unlink(begun);
        return error_context(err, "reading the journal of %s", session->node);
    }
    *ret_result = json_pack("{s:s, s:I, s:I, s:I, s:b}", "file", name, "tokens",
                            (json_int_t) outcome.tokens, "rows", (json_int_t) outcome.rows, "odd",
                            (json_int_t) outcome.odd, "agree", outcome.agree);
    return STATUS_OK;
}
