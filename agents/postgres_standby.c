/* SPDX-License-Identifier: MIT */
/*
 * A standby's source, and its promotion.
 *
 * Stopping the receiver comes before an election: positions that still move cannot be compared.
 * After a restart the receive position goes back to the start of a segment, so that the position
 * that counts is the greater of received and replayed, once replay has stopped moving.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/postgres_local.h"
#include "agents/postgres_methods.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { STILL_MS = 150, SHORT_MS = 2000 };

static enum status require_standby(const struct method_call *call, PGconn *connection,
                                   struct error *err)
{
    bool in_recovery = false;
    enum status status = postgres_in_recovery(connection, call->deadline_ns, &in_recovery, err);

    if (status == STATUS_OK && !in_recovery)
        return error_set(err, STATUS_REFUSED, "PostgreSQL on %s is a primary", call->session->node);
    return status;
}

static enum status alter_system(PGconn *connection, const char *setting, const char *value,
                                int64_t deadline_ns, struct error *err)
{
    OWNED_BUFFER struct buffer sql = BUFFER(16384);
    char *literal = PQescapeLiteral(connection, value, strlen(value));

    if (literal == NULL)
        return error_set(err, STATUS_INVALID, "a value of %s cannot be quoted", setting);
    buffer_printf(&sql, "ALTER SYSTEM SET %s = %s", setting, literal);
    PQfreemem(literal);
    return pg_query(connection, buffer_text(&sql), deadline_ns, NULL, err);
}

/* Reload, and wait until a session sees the value. */
static enum status reload_until(PGconn *connection, const char *setting, const char *value,
                                int64_t deadline_ns, struct error *err)
{
    OWNED_BUFFER struct buffer sql = BUFFER(256);
    char seen[4096] = "";

    buffer_printf(&sql, "SELECT current_setting('%s')", setting);
    enum status status = pg_query(connection, "SELECT pg_reload_conf()", deadline_ns, NULL, err);
    while (status == STATUS_OK) {
        status = pg_query_text(connection, buffer_text(&sql), deadline_ns, seen, sizeof seen, err);
        if (status == STATUS_OK && strcmp(seen, value) == 0)
            return STATUS_OK;
        if (status == STATUS_OK && !postgres_wait_turn(deadline_ns))
            status = error_set(err, STATUS_TIMEOUT,
                               "%s has not taken its new value after the reload", setting);
    }
    return status;
}

struct receiver_view {
    bool receiving;
    bool exhausted; /* the startup process waits for WAL: it has replayed all that it has */
    char status[32];
    char receive_lsn[PG_LSN_TEXT_SIZE], replay_lsn[PG_LSN_TEXT_SIZE];
};

static enum status view_receiver(PGconn *connection, int64_t deadline_ns,
                                 struct receiver_view *ret_view, struct error *err)
{
    OWNED_PG_RESULT PGresult *result = NULL;
    struct receiver_view view = {0};
    enum status status =
        pg_query(connection,
                 "SELECT (SELECT coalesce(status, 'starting') FROM pg_stat_wal_receiver LIMIT 1),"
                 " EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'walreceiver'),"
                 " pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn(),"
                 " EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'startup'"
                 "  AND wait_event IN ('RecoveryRetrieveRetryInterval', 'RecoveryWalStream'))",
                 deadline_ns, &result, err);

    if (status != STATUS_OK)
        return status;
    snprintf(view.status, sizeof view.status, "%s", PQgetvalue(result, 0, 0));
    view.receiving = PQgetvalue(result, 0, 1)[0] == 't' || view.status[0] != '\0';
    snprintf(view.receive_lsn, sizeof view.receive_lsn, "%s", PQgetvalue(result, 0, 2));
    snprintf(view.replay_lsn, sizeof view.replay_lsn, "%s", PQgetvalue(result, 0, 3));
    view.exhausted = PQgetvalue(result, 0, 4)[0] == 't';
    *ret_view = view;
    return STATUS_OK;
}

/*
 * What was received in this life of the server counts, replayed or not. After a restart nothing
 * was: then only a startup process that waits for WAL has shown all that the standby holds; one
 * that stands still (a delay, a conflict, a pause) has not.
 */
static bool position_known(const struct receiver_view *view)
{
    uint64_t received = pg_lsn_parse(view->receive_lsn);

    return view->exhausted || (received != 0 && received >= pg_lsn_parse(view->replay_lsn));
}

/* No walreceiver, and replay has had nothing to do for a while. */
static enum status wait_still(PGconn *connection, int64_t deadline_ns, struct receiver_view *view,
                              struct error *err)
{
    char replayed[PG_LSN_TEXT_SIZE] = "";
    int64_t still_ns = deadline_in_ms(STILL_MS);

    do {
        enum status status = view_receiver(connection, deadline_ns, view, err);
        if (status != STATUS_OK)
            return status;
        if (view->receiving || !position_known(view) || strcmp(replayed, view->replay_lsn) != 0)
            still_ns = deadline_in_ms(STILL_MS);
        else if (deadline_passed(still_ns))
            return STATUS_OK;
        snprintf(replayed, sizeof replayed, "%s", view->replay_lsn);
    } while (postgres_wait_turn(deadline_ns));
    if (view->receiving) {
        error_set(err, STATUS_TIMEOUT, "the walreceiver still runs, status \"%s\"", view->status);
        error_hint(err, "A frozen walreceiver ends when it is thawed.");
        return STATUS_TIMEOUT;
    }
    if (!position_known(view))
        return error_set(err, STATUS_TIMEOUT,
                         "replay stands at %s and has not reached the end of its WAL",
                         view->replay_lsn);
    return error_set(err, STATUS_TIMEOUT, "replay still moves at %s", view->replay_lsn);
}

static enum status stop_receiver(const struct method_call *call, PGconn *connection,
                                 json_t **ret_result, struct error *err)
{
    struct receiver_view view = {0};
    OWNED_JSON json_t *state = NULL;
    enum status status = alter_system(connection, "primary_conninfo", "", call->deadline_ns, err);

    if (status == STATUS_OK)
        status = reload_until(connection, "primary_conninfo", "", call->deadline_ns, err);
    if (status == STATUS_OK)
        status = wait_still(connection, call->deadline_ns, &view, err);
    if (status == STATUS_OK)
        status = postgres_state(call, &state, err);
    if (status != STATUS_OK)
        return status;
    *ret_result =
        json_pack("{s:n, s:b, s:s, s:s, s:O, s:O}", "source", "streaming", 0, "receive_lsn",
                  view.receive_lsn, "replay_lsn", view.replay_lsn, "lsn",
                  json_object_get(state, "lsn"), "timeline", json_object_get(state, "timeline"));
    return STATUS_OK;
}

static enum status point_receiver(const struct method_call *call, PGconn *connection,
                                  const char *source, json_t **ret_result, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const struct session *session = call->session;
    const struct fault_peer *peer = NULL;
    const char *passfile = NULL;
    struct receiver_view view = {0};
    enum status status = postgres_peer(session, source, &peer, err);

    if (status == STATUS_OK)
        status = postgres_passfile(arena, session, &passfile, err);
    if (status != STATUS_OK)
        return status;
    const char *conninfo =
        postgres_conninfo(arena, session, peer, SESSION_REPLICATION, NULL, passfile);
    status = alter_system(connection, "primary_slot_name", postgres_slot_name(arena, session->node),
                          call->deadline_ns, err);
    if (status == STATUS_OK)
        status = alter_system(connection, "primary_conninfo", conninfo, call->deadline_ns, err);
    if (status == STATUS_OK)
        status = reload_until(connection, "primary_conninfo", conninfo, call->deadline_ns, err);
    if (status == STATUS_OK)
        status = view_receiver(connection, call->deadline_ns, &view, err);
    if (status != STATUS_OK)
        return status;
    *ret_result = json_pack("{s:s, s:b, s:s, s:s}", "source", source, "streaming",
                            strcmp(view.status, "streaming") == 0, "receive_lsn", view.receive_lsn,
                            "replay_lsn", view.replay_lsn);
    return STATUS_OK;
}

enum status postgres_receiver(const struct method_call *call, json_t **ret_result,
                              struct error *err)
{
    const char *source = json_text(call->params, "source", NULL);
    OWNED_PG PGconn *connection = NULL;
    enum status status =
        postgres_connect(call->session, NULL, NULL, call->deadline_ns, &connection, err);

    if (status == STATUS_OK)
        status = require_standby(call, connection, err);
    if (status == STATUS_OK)
        status = source == NULL ? stop_receiver(call, connection, ret_result, err)
                                : point_receiver(call, connection, source, ret_result, err);
    if (status != STATUS_OK)
        return error_context(err, "setting the source of %s to %s", call->session->node,
                             source != NULL ? source : "none");
    return STATUS_OK;
}

/* --- promote ---------------------------------------------------------------------------------- */

static enum status current_timeline(PGconn *connection, int64_t deadline_ns, uint32_t *ret_timeline,
                                    struct error *err)
{
    char name[32];
    enum status status = pg_query_text(connection, "SELECT pg_walfile_name(pg_current_wal_lsn())",
                                       deadline_ns, name, sizeof name, err);

    if (status != STATUS_OK)
        return status;
    name[8] = '\0';
    *ret_timeline = (uint32_t) strtoul(name, NULL, 16);
    return STATUS_OK;
}

static enum status wait_promoted(PGconn *connection, int64_t deadline_ns, struct error *err)
{
    bool in_recovery = true;
    enum status status;

    do {
        status = postgres_in_recovery(connection, deadline_ns, &in_recovery, err);
        if (status != STATUS_OK || !in_recovery)
            return status;
    } while (postgres_wait_turn(deadline_ns));
    return error_set(err, STATUS_TIMEOUT, "promotion was asked for, but it is still in recovery");
}

/* Where the timeline before ended: the last line of the new history. */
static const char *fork_lsn(const json_t *history)
{
    size_t count = json_array_size(history);

    return count == 0 ? "" : json_text(json_array_get(history, count - 1), "lsn", "");
}

/*
 * Sent and not waited for: the server carries it out after we are gone. Until it is done the
 * control file names the old timeline, and pg_rewind from this server would see nothing to do.
 */
static void checkpoint_behind(PGconn *connection)
{
    if (PQsendQuery(connection, "CHECKPOINT") == 1 && PQflush(connection) != 0)
        return;
}

enum status postgres_promote(const struct method_call *call, json_t **ret_result, struct error *err)
{
    const struct session *session = call->session;
    OWNED_PG PGconn *connection = NULL;
    OWNED_JSON json_t *history = NULL;
    uint32_t timeline = 0;
    enum status status = postgres_connect(session, NULL, NULL, call->deadline_ns, &connection, err);

    if (status == STATUS_OK)
        status = require_standby(call, connection, err);
    if (status == STATUS_OK)
        status = pg_query(connection, "SELECT pg_promote(false)", call->deadline_ns, NULL, err);
    if (status == STATUS_OK)
        status = wait_promoted(connection, call->deadline_ns, err);
    int64_t promoted_ns = clock_boot_ns();
    if (status == STATUS_OK)
        status = current_timeline(connection, call->deadline_ns, &timeline, err);
    if (status != STATUS_OK)
        return error_context(err, "promoting %s", session->node);
    history = postgres_history(session, timeline);
    checkpoint_behind(connection);
    if (fork_lsn(history)[0] == '\0')
        return error_set(err, STATUS_FAILED, "%s was promoted, but timeline %u has no history",
                         session->node, timeline);
    *ret_result =
        json_pack("{s:I, s:I, s:s, s:O}", "promoted_ns", (json_int_t) promoted_ns, "timeline",
                  (json_int_t) timeline, "fork_lsn", fork_lsn(history), "history", history);
    return STATUS_OK;
}
