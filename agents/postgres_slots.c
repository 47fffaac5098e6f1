/* SPDX-License-Identifier: MIT */
/*
 * postgres.slots: the physical slots that this server should have. A slot that nobody uses keeps
 * WAL for ever, and an old primary keeps those that it had: both are dropped with `drop_others`.
 * Logical slots are left alone.
 */
#include <string.h>

#include "agents/postgres_local.h"
#include "agents/postgres_methods.h"
#include "agents/postgres_slots.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

static bool same_state(enum status status, const struct error *err, const char *sqlstate)
{
    return status == STATUS_DATABASE && strcmp(err->detail, sqlstate) == 0;
}

/* The position is reserved at once, so that WAL is kept before the standby connects. */
enum status postgres_slot_ensure(PGconn *connection, const char *name, int64_t deadline_ns,
                                 struct error *err)
{
    const char *values[] = {name};
    enum status status =
        pg_query_params(connection,
                        "SELECT pg_create_physical_replication_slot($1, true) WHERE NOT EXISTS"
                        " (SELECT FROM pg_replication_slots WHERE slot_name = $1)",
                        1, values, deadline_ns, NULL, err);

    if (same_state(status, err, "42710")) /* somebody was faster */
        return STATUS_OK;
    if (status != STATUS_OK)
        return error_context(err, "making slot %s", name);
    return STATUS_OK;
}

/* A slot in use (55006) is free when its walsender has ended: wait for that. */
static enum status drop(PGconn *connection, const char *name, int64_t deadline_ns,
                        struct error *err)
{
    const char *values[] = {name};
    bool in_use = false;
    enum status status;

    for (;;) {
        status = pg_query_params(connection, "SELECT pg_drop_replication_slot($1)", 1, values,
                                 deadline_ns, NULL, err);
        bool over = status == STATUS_TIMEOUT && in_use; /* the deadline fell into the last try */
        if (!over && !same_state(status, err, "55006"))
            break;
        in_use = true;
        if (over || !postgres_wait_turn(deadline_ns) || deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "slot %s is still in use", name);
    }
    if (status != STATUS_OK && !same_state(status, err, "42704")) /* gone already */
        return error_context(err, "dropping slot %s", name);
    return STATUS_OK;
}

static bool contains(const json_t *names, const char *name)
{
    size_t i;
    const json_t *item;

    json_array_foreach(names, i, item)
    {
        if (strcmp(json_string_value(item), name) == 0)
            return true;
    }
    return false;
}

static enum status ensure_all(PGconn *connection, const json_t *names, int64_t deadline_ns,
                              struct error *err)
{
    enum status status = STATUS_OK;
    size_t i;
    const json_t *item;

    json_array_foreach(names, i, item)
    {
        if (!json_is_string(item))
            return error_set(err, STATUS_INVALID, "ensure[%zu] is no slot name", i);
    }
    json_array_foreach(names, i, item)
    {
        if (status == STATUS_OK)
            status = postgres_slot_ensure(connection, json_string_value(item), deadline_ns, err);
    }
    return status;
}

static enum status drop_others(PGconn *connection, const json_t *keep, int64_t deadline_ns,
                               json_t *dropped, struct error *err)
{
    OWNED_PG_RESULT PGresult *result = NULL;
    enum status status =
        pg_query(connection,
                 "SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'physical'"
                 " AND NOT temporary ORDER BY slot_name",
                 deadline_ns, &result, err);

    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        const char *name = PQgetvalue(result, i, 0);
        if (contains(keep, name))
            continue;
        status = drop(connection, name, deadline_ns, err);
        if (status == STATUS_OK)
            json_array_append_new(dropped, json_string(name));
    }
    return status;
}

enum status postgres_slots(const struct method_call *call, json_t **ret_result, struct error *err)
{
    const json_t *ensure = json_object_get(call->params, "ensure");
    OWNED_JSON json_t *dropped = json_array();
    OWNED_JSON json_t *slots = NULL;
    OWNED_PG PGconn *connection = NULL;
    enum status status =
        postgres_connect(call->session, NULL, NULL, call->deadline_ns, &connection, err);

    if (status == STATUS_OK)
        status = ensure_all(connection, ensure, call->deadline_ns, err);
    if (status == STATUS_OK && json_flag(call->params, "drop_others", false))
        status = drop_others(connection, ensure, call->deadline_ns, dropped, err);
    if (status == STATUS_OK)
        status = postgres_query_json(
            connection,
            "SELECT coalesce(json_agg(json_build_object('name', slot_name, 'active', active,"
            " 'restart_lsn', restart_lsn::text) ORDER BY slot_name), '[]')"
            " FROM pg_replication_slots",
            call->deadline_ns, &slots, err);
    if (status != STATUS_OK)
        return error_context(err, "slots of %s", call->session->node);
    *ret_result = json_pack("{s:O, s:O}", "slots", slots, "dropped", dropped);
    return STATUS_OK;
}
