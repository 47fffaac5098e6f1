/* SPDX-License-Identifier: MIT */
/*
 * postgres.quorum-wait: is a commit on this primary really held until the quorum has it?
 *
 * One transaction that writes is committed in a session with synchronous_commit = on, while a
 * second session looks at the first one's wait event. A fast quorum answers between two looks;
 * then the standbys' flushed positions right after the acknowledgement are the evidence. The
 * transaction writes a WAL message and no row, so that nothing stays behind in any database.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/postgres_local.h"
#include "agents/postgres_methods.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { EAGER_MS = 50, MARGIN_MS = 300 };

struct commit {
    PGconn *session, *watcher;
    int64_t deadline_ns;
    bool seen_waiting;
    int64_t ack_ns; /* 0: not acknowledged */
    char message_lsn[PG_LSN_TEXT_SIZE];
};

/* How many standbys synchronous_standby_names asks for: "ANY 2 (...)", "2 (...)", "a, b", "". */
static int needed_standbys(const char *sync_set)
{
    const char *at = sync_set + strspn(sync_set, " \t");

    if (*at == '\0')
        return 0;
    if (strncasecmp(at, "any ", 4) == 0)
        at += 4;
    else if (strncasecmp(at, "first ", 6) == 0)
        at += 6;
    at += strspn(at, " \t");
    size_t digits = strspn(at, "0123456789");
    const char *after = at + digits + strspn(at + digits, " \t");
    return digits > 0 && *after == '(' ? (int) strtol(at, NULL, 10) : 1;
}

static enum status begin_commit(struct commit *commit, struct error *err)
{
    static const char sql[] = "SELECT pg_logical_emit_message(true, 'ordeal', 'quorum wait')";
    enum status status =
        pg_query(commit->session, "SET synchronous_commit = on; SET client_min_messages = warning",
                 commit->deadline_ns, NULL, err);

    if (status != STATUS_OK)
        return status;
    if (PQsetnonblocking(commit->session, 1) != 0 || PQsendQuery(commit->session, sql) != 1 ||
        PQflush(commit->session) < 0)
        return error_set(err, STATUS_UNREACHABLE, "connection lost while sending the commit");
    return STATUS_OK;
}

/* Take what has arrived; true when the statement is over. */
static enum status take_answer(struct commit *commit, bool *ret_over, struct error *err)
{
    if (PQflush(commit->session) < 0 || PQconsumeInput(commit->session) != 1)
        return error_set(err, STATUS_UNREACHABLE, "connection lost before the commit's answer");
    *ret_over = false;
    while (!PQisBusy(commit->session)) {
        OWNED_PG_RESULT PGresult *result = PQgetResult(commit->session);
        if (result == NULL) {
            *ret_over = true;
            return STATUS_OK;
        }
        if (PQresultStatus(result) != PGRES_TUPLES_OK)
            return error_set(err, STATUS_DATABASE, "the commit failed: %s",
                             PQresultErrorMessage(result));
        commit->ack_ns = clock_boot_ns();
        snprintf(commit->message_lsn, sizeof commit->message_lsn, "%s", PQgetvalue(result, 0, 0));
    }
    return STATUS_OK;
}

static enum status look(struct commit *commit, struct error *err)
{
    char event[64], sql[160];

    snprintf(sql, sizeof sql,
             "SELECT coalesce((SELECT wait_event FROM pg_stat_activity"
             " WHERE pid = %d), '')",
             PQbackendPID(commit->session));
    enum status status =
        pg_query_text(commit->watcher, sql, commit->deadline_ns, event, sizeof event, err);
    if (status == STATUS_OK && strcmp(event, "SyncRep") == 0)
        commit->seen_waiting = true;
    return status;
}

/* Without pauses at first: a quorum on the same network answers within a millisecond. */
static enum status watch(struct commit *commit, int64_t deadline_ns, struct error *err)
{
    int64_t eager_ns = deadline_in_ms(EAGER_MS);
    bool over = false;

    while (!over) {
        enum status status = look(commit, err);
        if (status == STATUS_OK)
            status = take_answer(commit, &over, err);
        if (status != STATUS_OK)
            return status;
        if (!over && deadline_passed(deadline_ns))
            return STATUS_OK;
        if (!over && deadline_passed(eager_ns) && !postgres_wait_turn(deadline_ns))
            return STATUS_OK;
    }
    return STATUS_OK;
}

/* Members of the sync set whose flushed position lies behind the commit's. */
static enum status confirmed(struct commit *commit, json_t **ret_names, struct error *err)
{
    const char *values[] = {commit->message_lsn};
    OWNED_PG_RESULT PGresult *result = NULL;
    enum status status =
        pg_query_params(commit->watcher,
                        "SELECT application_name FROM pg_stat_replication WHERE flush_lsn > $1"
                        " AND sync_state IN ('sync', 'quorum') ORDER BY 1",
                        1, values, commit->deadline_ns, &result, err);

    if (status != STATUS_OK)
        return status;
    *ret_names = json_array();
    for (int i = 0; i < PQntuples(result); i++)
        json_array_append_new(*ret_names, json_string(PQgetvalue(result, i, 0)));
    return STATUS_OK;
}

static enum status conclude(struct commit *commit, json_t **ret_result, struct error *err)
{
    OWNED_JSON json_t *names = json_array();
    OWNED_JSON json_t *found = NULL;
    char sync_set[1024];
    enum status status = pg_query_text(commit->watcher, "SHOW synchronous_standby_names",
                                       commit->deadline_ns, sync_set, sizeof sync_set, err);

    if (status == STATUS_OK && commit->ack_ns != 0)
        status = confirmed(commit, &found, err);
    if (status != STATUS_OK)
        return status;
    if (found != NULL)
        json_array_extend(names, found);
    int needed = needed_standbys(sync_set);
    bool held = commit->ack_ns != 0 && needed > 0 && json_array_size(names) >= (size_t) needed;
    *ret_result =
        json_pack("{s:b, s:b, s:o, s:O, s:s, s:i}", "waited", commit->seen_waiting || held,
                  "seen_waiting", commit->seen_waiting, "ack_ns",
                  commit->ack_ns != 0 ? json_integer((json_int_t) commit->ack_ns) : json_null(),
                  "standbys", names, "sync_set", sync_set, "needed", needed);
    return STATUS_OK;
}

/* What still waits is cancelled: it would hang in the server for as long as the quorum is gone. */
static enum status give_up(struct commit *commit, struct error *err)
{
    char sql[64];

    snprintf(sql, sizeof sql, "SELECT pg_cancel_backend(%d)", PQbackendPID(commit->session));
    return pg_query(commit->watcher, sql, commit->deadline_ns, NULL, err);
}

enum status postgres_quorum_wait(const struct method_call *call, json_t **ret_result,
                                 struct error *err)
{
    const struct session *session = call->session;
    OWNED_PG PGconn *committer = NULL;
    OWNED_PG PGconn *watcher = NULL;
    bool in_recovery = false;
    /* the last part of the time is for saying that nobody answered */
    int64_t give_up_ns = call->deadline_ns - MARGIN_MS * NS_PER_MS;
    enum status status = postgres_connect(session, NULL, NULL, call->deadline_ns, &committer, err);

    if (status == STATUS_OK)
        status = postgres_connect(session, NULL, NULL, call->deadline_ns, &watcher, err);
    struct commit commit = {
        .session = committer, .watcher = watcher, .deadline_ns = call->deadline_ns};
    if (status == STATUS_OK)
        status = postgres_in_recovery(watcher, call->deadline_ns, &in_recovery, err);
    if (status == STATUS_OK && in_recovery)
        status = error_set(err, STATUS_REFUSED, "it is in recovery");
    if (status == STATUS_OK)
        status = begin_commit(&commit, err);
    if (status == STATUS_OK)
        status = watch(&commit, give_up_ns, err);
    if (status == STATUS_OK)
        status = conclude(&commit, ret_result, err);
    if (status == STATUS_OK && commit.ack_ns == 0)
        status = give_up(&commit, err);
    if (status != STATUS_OK)
        return error_context(err, "watching a commit on %s", session->node);
    return STATUS_OK;
}
