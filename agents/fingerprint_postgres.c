/* SPDX-License-Identifier: MIT */
/*
 * What a fault could leave behind in PostgreSQL. Of each server: settings, slots, a paused replay.
 * Of the cluster, told by a server that is not in recovery: roles, their settings, databases,
 * prepared transactions, subscriptions, and in each database publications and schemas of ours.
 *
 * Sections that are absent are not known; then the section `postgres` says why.
 */
#include <string.h>

#include "agents/fingerprint.h"
#include "agents/postgres_local.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { CONNECT_MS = 5000 };

/*
 * What the asking connection set itself (client, session) and what its role or database set (that
 * is in role_settings) is not the server's. What the HA manager changes in a failover is not
 * compared: primary_conninfo, primary_slot_name. A server tells its role and the current
 * transaction as settings, too. Texts that may hold a password are told by their digest.
 */
#define SETTINGS                                                                                   \
    "(SELECT json_object_agg(name, json_build_object('value',"                                     \
    " CASE WHEN name ~ 'conninfo|passphrase' THEN md5(setting) ELSE setting END,"                  \
    " '_context', context, '_pending', pending_restart)) FROM pg_settings"                         \
    " WHERE source NOT IN ('client', 'session', 'global', 'user', 'database', 'database user')"    \
    " AND name NOT IN ('in_hot_standby', 'primary_conninfo', 'primary_slot_name', 'seed',"         \
    " 'is_superuser', 'session_authorization') AND name !~ '^transaction_')"

/* The line that counts of each setting; a file that cannot be read as a whole is a line, too. */
#define FILE_SETTINGS                                                                              \
    "(SELECT coalesce(json_object_agg(name, json_build_object('value',"                            \
    " CASE WHEN name ~ 'conninfo|passphrase' THEN md5(setting) ELSE setting END,"                  \
    " 'file', sourcefile)), '{}') FROM (SELECT DISTINCT ON (lower(name)) name, setting,"           \
    " sourcefile FROM pg_file_settings WHERE name IS NOT NULL"                                     \
    " AND name NOT IN ('primary_conninfo', 'primary_slot_name')"                                   \
    " ORDER BY lower(name), seqno DESC) AS last)"

#define SLOTS                                                                                      \
    "(SELECT coalesce(json_object_agg(slot_name, json_build_object('type', slot_type, 'plugin',"   \
    " coalesce(plugin, ''), 'database', coalesce(database, ''), '_active', active,"                \
    " '_restart_lsn', restart_lsn::text)), '{}') FROM pg_replication_slots WHERE NOT temporary)"

#define REPLAY                                                                                     \
    "(CASE WHEN pg_is_in_recovery() THEN CASE WHEN pg_is_wal_replay_paused()"                      \
    " THEN '{\"paused\": {}}' ELSE '{}' END ELSE '{}' END)::json"

static const char server_query[] =
    "SELECT json_build_object('in_recovery', pg_is_in_recovery(), 'settings', " SETTINGS
    ", 'file_settings', " FILE_SETTINGS ", 'slots', " SLOTS ", 'replay', " REPLAY ")";

#define ROLES                                                                                      \
    "(SELECT json_object_agg(rolname, json_build_object('login', rolcanlogin, 'superuser',"        \
    " rolsuper, 'replication', rolreplication, 'connection_limit', rolconnlimit, 'valid_until',"   \
    " coalesce(rolvaliduntil::text, 'infinity'))) FROM pg_roles)"

/* A setting of a role, of a database, of both, or (neither) of everybody. */
#define ROLE_SETTINGS                                                                              \
    "(SELECT coalesce(json_object_agg(format('%s in %s: %s', coalesce(rolname, 'ALL'),"            \
    " coalesce(datname, 'ALL'), split_part(item, '=', 1)), json_build_object('role',"              \
    " coalesce(rolname, ''), 'database', coalesce(datname, ''), 'name', split_part(item, '=', 1)," \
    " 'value', substr(item, strpos(item, '=') + 1))), '{}') FROM pg_db_role_setting"               \
    " LEFT JOIN pg_roles ON pg_roles.oid = setrole"                                                \
    " LEFT JOIN pg_database ON pg_database.oid = setdatabase, unnest(setconfig) AS item)"

#define DATABASES                                                                                  \
    "(SELECT json_object_agg(datname, json_build_object('connections', datallowconn,"              \
    " 'connection_limit', datconnlimit)) FROM pg_database)"

#define PREPARED                                                                                   \
    "(SELECT coalesce(json_object_agg(gid, json_build_object('database', database, 'owner',"       \
    " owner)), '{}') FROM pg_prepared_xacts)"

#define SUBSCRIPTIONS                                                                              \
    "(SELECT coalesce(json_object_agg(format('%s in %s', subname, datname),"                       \
    " json_build_object('name', subname, 'database', datname, 'enabled', subenabled)), '{}')"      \
    " FROM pg_subscription JOIN pg_database ON pg_database.oid = subdbid)"

static const char cluster_query[] =
    "SELECT json_build_object('roles', " ROLES ", 'role_settings', " ROLE_SETTINGS
    ", 'databases', " DATABASES ", 'prepared', " PREPARED ", 'subscriptions', " SUBSCRIPTIONS ")";

static const char database_query[] =
    "SELECT json_build_object('schemas', (SELECT coalesce(json_agg(json_build_object('name',"
    " nspname, 'database', current_database(), '_comment', coalesce(obj_description(oid,"
    " 'pg_namespace'), ''))), '[]') FROM pg_namespace WHERE nspname ~ '^ordeal(_|$)'),"
    " 'publications', (SELECT coalesce(json_agg(json_build_object('name', pubname, 'database',"
    " current_database())), '[]') FROM pg_publication))";

/* No settings of a session: those that are in force are asked for. */
static enum status connect_to(const struct session *session, const char *database,
                              int64_t deadline_ns, PGconn **ret_connection, struct error *err)
{
    struct pg_target target = session_target(session, session->address, SESSION_SUPERUSER);

    if (database != NULL)
        target.database = database;
    target.application = "ordeal-control";
    return pg_connect(&target, postgres_deadline(deadline_ns, CONNECT_MS), ret_connection, err);
}

static void add_named(json_t *fingerprint, const char *section, const json_t *items)
{
    OWNED_ARENA struct arena *arena = arena_new();

    for (size_t i = 0; i < json_array_size(items); i++) {
        json_t *item = json_array_get(items, i);
        fingerprint_add(fingerprint_of(fingerprint, section),
                        arena_printf(arena, "%s in %s", json_text(item, "name", "?"),
                                     json_text(item, "database", "?")),
                        json_incref(item));
    }
}

static enum status add_database(const struct method_call *call, const char *database,
                                json_t *fingerprint, struct error *err)
{
    OWNED_PG PGconn *connection = NULL;
    OWNED_JSON json_t *answer = NULL;
    enum status status = connect_to(call->session, database, call->deadline_ns, &connection, err);

    if (status == STATUS_OK)
        status = postgres_query_json(connection, database_query, call->deadline_ns, &answer, err);
    if (status != STATUS_OK)
        return error_context(err, "database %s", database);
    add_named(fingerprint, "schemas", json_object_get(answer, "schemas"));
    add_named(fingerprint, "publications", json_object_get(answer, "publications"));
    return STATUS_OK;
}

static enum status add_cluster(const struct method_call *call, PGconn *connection,
                               json_t *fingerprint, struct error *err)
{
    OWNED_JSON json_t *answer = NULL;
    enum status status =
        postgres_query_json(connection, cluster_query, call->deadline_ns, &answer, err);
    const char *name;
    json_t *database;

    json_object_foreach(json_object_get(answer, "databases"), name, database)
    {
        if (status == STATUS_OK && json_flag(database, "connections", false) &&
            json_number(database, "connection_limit", 0) != -2) /* -2: a drop was cut short */
            status = add_database(call, name, fingerprint, err);
    }
    if (status != STATUS_OK)
        return status;
    fingerprint_of(fingerprint, "schemas");
    fingerprint_of(fingerprint, "publications");
    json_object_update(fingerprint, answer);
    return STATUS_OK;
}

static enum status ask_server(const struct method_call *call, json_t *fingerprint,
                              struct error *err)
{
    OWNED_PG PGconn *connection = NULL;
    OWNED_JSON json_t *answer = NULL;
    enum status status = connect_to(call->session, NULL, call->deadline_ns, &connection, err);

    if (status == STATUS_OK)
        status = postgres_query_json(connection, server_query, call->deadline_ns, &answer, err);
    if (status == STATUS_OK && !json_flag(answer, "in_recovery", true))
        status = add_cluster(call, connection, fingerprint, err);
    json_object_del(answer, "in_recovery");
    if (status == STATUS_OK)
        json_object_update(fingerprint, answer);
    return status;
}

enum status fingerprint_postgres(const struct method_call *call, json_t *fingerprint,
                                 struct error *err)
{
    OWNED_JSON json_t *known = json_object();
    struct error why = {0};

    (void) err;
    if (call->session == NULL || !call->session->is_database)
        return STATUS_OK;
    enum status status = ask_server(call, known, &why);
    json_object_set_new(
        fingerprint_of(fingerprint, "postgres"), "server",
        json_pack("{s:s}", "answer", status == STATUS_OK ? "answers" : why.message));
    if (status == STATUS_OK)
        json_object_update(fingerprint, known);
    return STATUS_OK;
}
