/* SPDX-License-Identifier: MIT */
/*
 * load.prepare: the schema that the workload writes to. Its comment says whose it is; a schema
 * "ordeal" without our comment belongs to somebody else and is never touched.
 */
#include <stdio.h>
#include <string.h>

#include "agents/postgres_local.h"
#include "agents/postgres_methods.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

#define MARK "ordeal run "

struct schema {
    bool exists, ours, of_this_run;
};

static enum status look(PGconn *connection, const struct method_call *call,
                        struct schema *ret_schema, struct error *err)
{
    OWNED_PG_RESULT PGresult *result = NULL;
    struct schema schema = {0};
    enum status status =
        pg_query(connection,
                 "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace"
                 " WHERE nspname = 'ordeal'",
                 call->deadline_ns, &result, err);

    if (status != STATUS_OK)
        return status;
    if (PQntuples(result) > 0) {
        const char *comment = PQgetvalue(result, 0, 0);
        schema.exists = true;
        schema.ours = strncmp(comment, MARK, strlen(MARK)) == 0;
        schema.of_this_run = schema.ours && strcmp(comment + strlen(MARK), call->session->run) == 0;
        if (!schema.ours) {
            error_set(err, STATUS_REFUSED,
                      "database %s has a schema ordeal that is not ours, its comment is \"%s\"",
                      PQdb(connection), comment);
            error_hint(err, "Rename that schema, or name another database for the workload.");
            return STATUS_REFUSED;
        }
    }
    *ret_schema = schema;
    return STATUS_OK;
}

/* One message of several statements is one transaction. */
static enum status create(PGconn *connection, const struct method_call *call, bool drop_first,
                          struct error *err)
{
    OWNED_BUFFER struct buffer sql = BUFFER(8192);
    OWNED_BUFFER struct buffer mark = BUFFER(1024);
    const char *user = call->session->database.workload;

    buffer_printf(&mark, MARK "%s", call->session->run);
    char *comment = PQescapeLiteral(connection, buffer_text(&mark), mark.length);
    char *owner = PQescapeIdentifier(connection, user, strlen(user));
    if (comment != NULL && owner != NULL)
        buffer_printf(&sql,
                      "%sCREATE SCHEMA ordeal AUTHORIZATION %s; COMMENT ON SCHEMA ordeal IS %s;"
                      "CREATE TABLE ordeal.journal(client bigint NOT NULL, seq bigint NOT NULL,"
                      " row smallint NOT NULL, rows smallint NOT NULL, digest bigint NOT NULL,"
                      " payload text NOT NULL);"
                      "ALTER TABLE ordeal.journal OWNER TO %s;"
                      "CREATE INDEX journal_client_seq ON ordeal.journal(client, seq)",
                      drop_first ? "DROP SCHEMA ordeal CASCADE;" : "", owner, comment, owner);
    PQfreemem(comment);
    PQfreemem(owner);
    if (sql.length == 0 || sql.overflow)
        return error_set(err, STATUS_INVALID, "the workload's user \"%s\" cannot be quoted", user);
    return pg_query(connection, buffer_text(&sql), call->deadline_ns, NULL, err);
}

static enum status drop(PGconn *connection, const struct method_call *call,
                        const struct schema *schema, struct error *err)
{
    if (!schema->exists)
        return STATUS_OK;
    return pg_query(connection, "DROP SCHEMA ordeal CASCADE", call->deadline_ns, NULL, err);
}

enum status postgres_prepare(const struct method_call *call, json_t **ret_result, struct error *err)
{
    const struct session *session = call->session;
    bool away = json_flag(call->params, "drop", false);
    OWNED_PG PGconn *connection = NULL;
    struct schema schema = {0};
    enum status status = postgres_connect(session, NULL, session->database.workload_database,
                                          call->deadline_ns, &connection, err);

    if (status == STATUS_OK)
        status = look(connection, call, &schema, err);
    if (status == STATUS_OK && away)
        status = drop(connection, call, &schema, err);
    else if (status == STATUS_OK && !schema.of_this_run)
        status = create(connection, call, schema.exists, err);
    if (status != STATUS_OK)
        return error_context(err, "%s the schema of the workload on %s",
                             away ? "removing" : "making", session->node);
    *ret_result = json_pack("{s:b, s:b}", "existed", schema.exists, "dropped",
                            schema.exists && (away || !schema.of_this_run));
    return STATUS_OK;
}
