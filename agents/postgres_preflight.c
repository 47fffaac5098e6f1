/* SPDX-License-Identifier: MIT */
/*
 * postgres.preflight: what makes a run on this node unsafe or its verdict weaker. Only facts are
 * gathered here; the orchestrator judges them against the topology's promise.
 *
 * The workload's own view is asked from a session of the workload's user: settings of roles,
 * databases and functions all end there.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "agents/postgres_local.h"
#include "agents/postgres_methods.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

#define OWN_SETTINGS "'client_min_messages', 'default_transaction_read_only', 'synchronous_commit'"

static const char server_query[] =
    "SELECT json_build_object("
    "'version', current_setting('server_version'),"
    "'version_number', current_setting('server_version_num')::int,"
    "'in_recovery', pg_is_in_recovery(),"
    "'superuser', (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),"
    "'settings', json_object_agg(name, reset_val), 'setting_sources',"
    " json_object_agg(name, CASE WHEN pending_restart THEN source || ', restart pending'"
    " ELSE source END),"
    "'own_settings', (SELECT coalesce(json_agg(json_build_object("
    " 'scope', CASE WHEN r.rolname IS NULL THEN 'database' WHEN d.datname IS NULL THEN 'role'"
    " ELSE 'role-in-database' END,"
    " 'name', CASE WHEN r.rolname IS NULL THEN d.datname WHEN d.datname IS NULL THEN r.rolname"
    " ELSE r.rolname || ' in ' || d.datname END,"
    " 'setting', split_part(c, '=', 1), 'value', substr(c, strpos(c, '=') + 1))"
    " ORDER BY r.rolname, d.datname, c), '[]')"
    " FROM pg_db_role_setting AS s LEFT JOIN pg_roles AS r ON r.oid = s.setrole"
    " LEFT JOIN pg_database AS d ON d.oid = s.setdatabase, unnest(s.setconfig) AS c"
    " WHERE split_part(c, '=', 1) IN (" OWN_SETTINGS ")),"
    "'prepared_transactions', (SELECT coalesce(json_agg(json_build_object('gid', gid,"
    " 'database', database, 'owner', owner) ORDER BY gid), '[]') FROM pg_prepared_xacts),"
    "'databases', (SELECT json_object_agg(datname, oid::bigint) FROM pg_database),"
    "'data_bytes', (SELECT sum(pg_database_size(oid)) FROM pg_database),"
    "'sessions', (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    " AND pid <> pg_backend_pid()))"
    " FROM pg_settings WHERE name IN ('archive_command', 'archive_mode', 'autovacuum',"
    " 'data_checksums', 'data_sync_retry', 'fsync', 'full_page_writes', 'hot_standby',"
    " 'max_connections', 'max_prepared_transactions', 'max_replication_slots',"
    " 'max_slot_wal_keep_size', 'max_wal_senders', 'primary_slot_name',"
    " 'recovery_min_apply_delay', 'recovery_target_timeline', 'restart_after_crash',"
    " 'restore_command', 'shared_buffers', 'ssl', 'superuser_reserved_connections',"
    " 'synchronous_commit', 'synchronous_standby_names', 'wal_keep_size', 'wal_level',"
    " 'wal_log_hints', 'wal_receiver_timeout', 'wal_sender_timeout', 'wal_sync_method')";

static const char workload_database_query[] =
    "SELECT json_build_object("
    "'functions', (SELECT coalesce(json_agg(json_build_object('scope', 'function',"
    " 'name', p.oid::regprocedure::text, 'setting', split_part(c, '=', 1),"
    " 'value', substr(c, strpos(c, '=') + 1))), '[]')"
    " FROM pg_proc AS p, unnest(p.proconfig) AS c"
    " WHERE split_part(c, '=', 1) IN (" OWN_SETTINGS ")),"
    "'leftover', (SELECT json_build_object('schema', nspname,"
    " 'comment', obj_description(oid, 'pg_namespace')) FROM pg_namespace"
    " WHERE nspname = 'ordeal'),"
    "'amcheck', (SELECT json_build_object('available', count(*) > 0,"
    " 'installed', coalesce(bool_or(installed_version IS NOT NULL), false))"
    " FROM pg_available_extensions WHERE name = 'amcheck'))";

static const char workload_query[] =
    "SELECT json_build_object('user', current_user, 'database', current_database(),"
    "'synchronous_commit', current_setting('synchronous_commit'),"
    "'read_only', current_setting('default_transaction_read_only'),"
    "'statement_timeout', current_setting('statement_timeout'),"
    "'may_create', has_database_privilege(current_database(), 'CREATE'),"
    "'superuser', (SELECT rolsuper FROM pg_roles WHERE rolname = current_user))";

/* The settings as they are without what a control session sets for itself. */
static enum status ask_server(const struct method_call *call, json_t **ret_facts, struct error *err)
{
    OWNED_PG PGconn *connection = NULL;
    char pause[32] = "";
    enum status status =
        postgres_connect(call->session, NULL, NULL, call->deadline_ns, &connection, err);

    if (status == STATUS_OK)
        status = pg_query(connection, "RESET ALL", call->deadline_ns, NULL, err);
    if (status == STATUS_OK)
        status = postgres_query_json(connection, server_query, call->deadline_ns, ret_facts, err);
    if (status == STATUS_OK && json_flag(*ret_facts, "in_recovery", false))
        status = pg_query_text(connection,
                               PQserverVersion(connection) >= 140000
                                   ? "SELECT pg_get_wal_replay_pause_state()"
                                   : "SELECT CASE WHEN pg_is_wal_replay_paused() THEN 'paused'"
                                     " ELSE 'not paused' END",
                               call->deadline_ns, pause, sizeof pause, err);
    if (status == STATUS_OK)
        json_object_set_new(*ret_facts, "replay_pause",
                            pause[0] != '\0' ? json_string(pause) : json_null());
    return status;
}

/* What only the workload's database knows; its absence shows in the workload's login. */
static enum status ask_database(const struct method_call *call, json_t *facts, struct error *err)
{
    const struct session *session = call->session;
    OWNED_PG PGconn *connection = NULL;
    OWNED_JSON json_t *answer = NULL;
    enum status status = postgres_connect(session, NULL, session->database.workload_database,
                                          call->deadline_ns, &connection, err);

    if (status == STATUS_OK)
        status = postgres_query_json(connection, workload_database_query, call->deadline_ns,
                                     &answer, err);
    if (status != STATUS_OK)
        return status;
    json_array_extend(json_object_get(facts, "own_settings"), json_object_get(answer, "functions"));
    json_object_del(answer, "functions");
    json_object_update(facts, answer);
    return STATUS_OK;
}

static enum status log_in(const struct method_call *call, enum session_user user, json_t **ret_view,
                          struct error *err)
{
    struct pg_target target = session_target(call->session, call->session->address, user);
    OWNED_PG PGconn *connection = NULL;
    enum status status = pg_connect(&target, call->deadline_ns, &connection, err);

    if (status == STATUS_OK && user == SESSION_WORKLOAD)
        status = postgres_query_json(connection, workload_query, call->deadline_ns, ret_view, err);
    return status;
}

static void add_login(const struct method_call *call, enum session_user user, const char *name,
                      json_t *facts)
{
    struct error err = {0};
    json_t *view = NULL;
    enum status status = log_in(call, user, &view, &err);

    if (view != NULL)
        json_object_set_new(facts, "workload", view);
    json_array_append_new(json_object_get(facts, "logins"),
                          json_pack("{s:s, s:b, s:o}", "user", name, "ok", status == STATUS_OK,
                                    "error",
                                    status == STATUS_OK ? json_null() : json_string(err.message)));
}

static void add_logins(const struct method_call *call, json_t *facts)
{
    const struct session_database *database = &call->session->database;

    json_object_set_new(facts, "logins", json_array());
    json_object_set_new(facts, "workload", json_null());
    if (database->workload != NULL)
        add_login(call, SESSION_WORKLOAD, database->workload, facts);
    if (database->replication != NULL)
        add_login(call, SESSION_REPLICATION, database->replication, facts);
}

static void add_volume(json_t *volumes, const char *path)
{
    struct statvfs info;

    if (statvfs(path, &info) == 0)
        json_array_append_new(volumes,
                              json_pack("{s:s, s:I, s:I}", "path", path, "free_bytes",
                                        (json_int_t) info.f_bavail * (json_int_t) info.f_frsize,
                                        "total_bytes",
                                        (json_int_t) info.f_blocks * (json_int_t) info.f_frsize));
}

/* The WAL counts apart only where it has a volume of its own. */
static void add_volumes(const struct session *session, json_t *facts)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *data = session->database.data;
    const char *wal = arena_printf(arena, "%s/pg_wal", data);
    struct stat data_info, wal_info;
    json_t *volumes = json_array();

    add_volume(volumes, data);
    if (stat(data, &data_info) == 0 && stat(wal, &wal_info) == 0 &&
        data_info.st_dev != wal_info.st_dev)
        add_volume(volumes, wal);
    add_volume(volumes, session->spool);
    json_object_set_new(facts, "volumes", volumes);
}

/* Kept for a check of one database's files while the server is down. */
static enum status keep_databases(const struct session *session, const json_t *facts,
                                  struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();

    return json_write_file(arena_printf(arena, "%s/databases.json", session->spool),
                           json_object_get(facts, "databases"), err);
}

enum status postgres_preflight(const struct method_call *call, json_t **ret_result,
                               struct error *err)
{
    OWNED_JSON json_t *facts = NULL;
    struct error ignored = {0};
    enum status status = ask_server(call, &facts, err);

    if (status == STATUS_OK)
        status = keep_databases(call->session, facts, err);
    if (status != STATUS_OK)
        return error_context(err, "preflight of %s", call->session->node);
    add_logins(call, facts);
    add_volumes(call->session, facts);
    if (ask_database(call, facts, &ignored) != STATUS_OK)
        json_object_set_new(facts, "database_error", json_from_error(&ignored));
    *ret_result = json_incref(facts);
    return STATUS_OK;
}
