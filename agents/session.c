/* SPDX-License-Identifier: MIT */
#include "agents/session.h"

#include <errno.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "lib/rpc.h"

enum { RUN_LENGTH_MAX = 64, PEERS_MAX = 256 };

static const char default_owner[] = "postgres";

/* The parts of session.open, borrowed from its parameters. */
struct parts {
    int protocol;
    json_int_t lease_ms;
    const char *run;
    json_t *node, *peers, *database, *power, *endpoint;
};

static enum status check_run(const char *run, struct error *err)
{
    size_t length = strlen(run);
    bool fine =
        length > 0 && length <= RUN_LENGTH_MAX && run[0] != '.' && run[0] != '-' &&
        strspn(run, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;

    if (!fine)
        return error_set(err, STATUS_INVALID,
                         "run '%s': 1 to %d of letters, digits, '.', '_' and '-' are allowed", run,
                         RUN_LENGTH_MAX);
    return STATUS_OK;
}

static enum status read_parts(const json_t *params, struct parts *parts, struct error *err)
{
    enum status status =
        json_read(params, "session.open", err, "{s:i, s:s, s:I, s:o, s:o, s:o, s:o, s:o !}",
                  "protocol", &parts->protocol, "run", &parts->run, "lease_ms", &parts->lease_ms,
                  "node", &parts->node, "peers", &parts->peers, "database", &parts->database,
                  "power", &parts->power, "endpoint", &parts->endpoint);

    if (status != STATUS_OK)
        return status;
    if (parts->protocol != RPC_PROTOCOL) {
        error_set(err, STATUS_PROTOCOL, "session.open: protocol %d, this agent speaks %d",
                  parts->protocol, RPC_PROTOCOL);
        error_hint(err, "Install the same version of ordeal and ordeald.");
        return STATUS_PROTOCOL;
    }
    if (parts->lease_ms < LEASE_MIN_MS || parts->lease_ms > LEASE_MAX_MS)
        return error_set(err, STATUS_INVALID, "session.open: lease_ms %lld is not in %d to %d",
                         (long long) parts->lease_ms, LEASE_MIN_MS, LEASE_MAX_MS);
    return check_run(parts->run, err);
}

/* --- small readers --------------------------------------------------------------------------- */

/* A string or null. */
static enum status read_text(const json_t *value, const char *what, const char **ret_text,
                             struct error *err)
{
    if (value != NULL && !json_is_null(value) && !json_is_string(value))
        return error_set(err, STATUS_INVALID, "session.open: %s is no text", what);
    *ret_text = json_string_value(value);
    return STATUS_OK;
}

/* An argv array or null. */
static enum status read_argv(struct arena *arena, const json_t *value, const char *what,
                             const char *const **ret_argv, struct error *err)
{
    size_t count = json_array_size(value);

    if (value == NULL || json_is_null(value)) {
        *ret_argv = NULL;
        return STATUS_OK;
    }
    const char **argv = arena_array(arena, count + 1, sizeof *argv);
    for (size_t i = 0; i < count; i++)
        argv[i] = json_string_value(json_array_get(value, i));
    bool fine = count > 0;
    for (size_t i = 0; i < count; i++)
        fine = fine && argv[i] != NULL;
    if (!fine)
        return error_set(err, STATUS_INVALID, "session.open: %s is no list of words", what);
    *ret_argv = argv;
    return STATUS_OK;
}

static enum status read_credential(const json_t *value, const char *what, const char **ret_user,
                                   const char **ret_file, const char **ret_database,
                                   struct error *err)
{
    const json_t *file = NULL, *database = NULL;
    const char *unused;
    enum status status = json_read(value, what, err, "{s:s, s?o, s?o !}", "user", ret_user,
                                   "password_file", &file, "database", &database);

    if (status == STATUS_OK)
        status = read_text(file, "password_file", ret_file, err);
    if (status == STATUS_OK)
        status =
            read_text(database, "database", ret_database != NULL ? ret_database : &unused, err);
    return status;
}

/* --- nodes ----------------------------------------------------------------------------------- */

static enum status read_node(struct session *session, const json_t *node, bool *ret_serves_database,
                             struct error *err)
{
    const json_t *cgroup = NULL, *volumes = NULL;
    int serves = 0;
    enum status status =
        json_read(node, "session.open: node", err, "{s:s, s:s, s:b, s?o, s?o !}", "name",
                  &session->node, "address", &session->address, "serves_database", &serves,
                  "cgroup", &cgroup, "volumes", &volumes);

    if (status == STATUS_OK)
        status = read_text(cgroup, "node.cgroup", &session->database.cgroup, err);
    if (status == STATUS_OK && volumes != NULL && !json_is_object(volumes))
        status = error_set(err, STATUS_INVALID, "session.open: node.volumes is no object");
    session->volumes = volumes;
    *ret_serves_database = serves != 0;
    return status;
}

static enum status read_peers(struct session *session, const json_t *peers, struct error *err)
{
    size_t count = json_array_size(peers);
    struct fault_peer *list = arena_array(session->arena, count, sizeof *list);

    if (count == 0 || count > PEERS_MAX)
        return error_set(err, STATUS_INVALID, "session.open: peers is no list of 1 to %d nodes",
                         PEERS_MAX);
    for (size_t i = 0; i < count; i++) {
        enum status status =
            json_read(json_array_get(peers, i), "session.open: peers", err, "{s:s, s:s !}", "name",
                      &list[i].name, "address", &list[i].address);
        if (status != STATUS_OK)
            return status;
    }
    session->peers = list;
    session->peer_count = count;
    if (session_peer(session, session->node) == NULL)
        return error_set(err, STATUS_INVALID, "session.open: node '%s' is not among the peers",
                         session->node);
    return STATUS_OK;
}

static enum status read_endpoint(struct session *session, const json_t *endpoint, struct error *err)
{
    const json_t *hosts = NULL;
    int managed = 0;
    enum status status = json_read(endpoint, "session.open: endpoint", err, "{s:o, s:b !}", "hosts",
                                   &hosts, "managed", &managed);

    if (status == STATUS_OK && !json_is_array(hosts))
        status = error_set(err, STATUS_INVALID, "session.open: endpoint.hosts is no list");
    if (status != STATUS_OK)
        return status;
    size_t count = json_array_size(hosts);
    struct fault_peer *list = arena_array(session->arena, count, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(hosts, i));
        const struct fault_peer *peer = name == NULL ? NULL : session_peer(session, name);
        if (peer == NULL)
            return error_set(err, STATUS_INVALID, "session.open: endpoint host '%s' is no peer",
                             name == NULL ? "?" : name);
        list[i] = *peer;
    }
    session->endpoint = list;
    session->endpoint_count = count;
    session->endpoint_managed = managed != 0;
    return STATUS_OK;
}

/* --- database and power ---------------------------------------------------------------------- */

/* Who owns the data folder; where there is none (yet, or any more), the usual user. */
static const char *owner_of(struct arena *arena, const char *folder)
{
    struct stat info;
    const struct passwd *entry = stat(folder, &info) == 0 ? getpwuid(info.st_uid) : NULL;

    return entry == NULL || entry->pw_uid == 0 ? default_owner
                                               : arena_strdup(arena, entry->pw_name);
}

static enum status read_users(struct session_database *database, const json_t *superuser,
                              const json_t *workload, const json_t *replication, struct error *err)
{
    enum status status =
        read_credential(superuser, "session.open: database.superuser", &database->superuser,
                        &database->superuser_password_file, &database->superuser_database, err);

    if (status == STATUS_OK)
        status =
            read_credential(workload, "session.open: database.workload", &database->workload,
                            &database->workload_password_file, &database->workload_database, err);
    if (status == STATUS_OK && replication != NULL && !json_is_null(replication))
        status = read_credential(replication, "session.open: database.replication",
                                 &database->replication, &database->replication_password_file, NULL,
                                 err);
    return status;
}

static enum status check_database(const struct session_database *database, struct error *err)
{
    if (database->version < 10 || database->version > 99)
        return error_set(err, STATUS_INVALID, "session.open: database.version %d",
                         database->version);
    if (database->port < 1 || database->port > UINT16_MAX)
        return error_set(err, STATUS_INVALID, "session.open: database.port %d", database->port);
    if (database->data[0] != '/' || database->bin[0] != '/')
        return error_set(err, STATUS_INVALID, "session.open: database.data and bin are absolute");
    return STATUS_OK;
}

static enum status read_database(struct session *session, const json_t *json, struct error *err)
{
    struct session_database *database = &session->database;
    const json_t *start = NULL, *stop = NULL, *ssl_root = NULL;
    const json_t *superuser = NULL, *workload = NULL, *replication = NULL;
    enum status status = json_read(
        json, "session.open: database", err, "{s:i, s:i, s:s, s:s, s?o, s?o, s:o, s:o, s?o, s?o !}",
        "version", &database->version, "port", &database->port, "data", &database->data, "bin",
        &database->bin, "start", &start, "stop", &stop, "superuser", &superuser, "workload",
        &workload, "replication", &replication, "ssl_root", &ssl_root);

    if (status == STATUS_OK)
        status = check_database(database, err);
    if (status == STATUS_OK)
        status = read_argv(session->arena, start, "database.start", &database->start, err);
    if (status == STATUS_OK)
        status = read_argv(session->arena, stop, "database.stop", &database->stop, err);
    if (status == STATUS_OK)
        status = read_text(ssl_root, "database.ssl_root", &database->ssl_root, err);
    if (status == STATUS_OK)
        status = read_users(database, superuser, workload, replication, err);
    if (status != STATUS_OK)
        return status;
    database->owner = owner_of(session->arena, database->data);
    session->has_database = true;
    return STATUS_OK;
}

static enum status read_power(struct session *session, const json_t *json, struct error *err)
{
    const json_t *off = NULL, *cut = NULL, *on = NULL;
    enum status status = json_read(json, "session.open: power", err, "{s:o, s?o, s:o !}", "off",
                                   &off, "cut", &cut, "on", &on);

    if (status == STATUS_OK)
        status = read_argv(session->arena, off, "power.off", &session->power_off, err);
    if (status == STATUS_OK)
        status = read_argv(session->arena, cut, "power.cut", &session->power_cut, err);
    if (status == STATUS_OK)
        status = read_argv(session->arena, on, "power.on", &session->power_on, err);
    return status;
}

/* --- the session ----------------------------------------------------------------------------- */

static enum status read_session(struct session *session, const struct parts *parts,
                                struct error *err)
{
    bool serves_database = false;
    enum status status = read_node(session, parts->node, &serves_database, err);

    if (status == STATUS_OK)
        status = read_peers(session, parts->peers, err);
    if (status == STATUS_OK)
        status = read_endpoint(session, parts->endpoint, err);
    if (status == STATUS_OK && !json_is_null(parts->database))
        status = read_database(session, parts->database, err);
    if (status == STATUS_OK && !json_is_null(parts->power))
        status = read_power(session, parts->power, err);
    session->is_database = serves_database && session->has_database;
    return status;
}

static enum status make_folder(const char *path, struct error *err)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return error_system(err, "creating folder %s", path);
    return STATUS_OK;
}

static enum status make_spool(struct session *session, const char *state_folder, struct error *err)
{
    enum status status = make_folder(arena_printf(session->arena, "%s/runs", state_folder), err);

    session->spool = arena_printf(session->arena, "%s/runs/%s", state_folder, session->run);
    return status == STATUS_OK ? make_folder(session->spool, err) : status;
}

static void release_params(void *params)
{
    json_decref(params);
}

enum status session_new(const char *state_folder, const json_t *params,
                        struct session **ret_session, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct session *session = arena_alloc(arena, sizeof *session);
    struct parts parts = {0};
    /* the texts of the session are those of a copy that lives as long */
    json_t *copy = json_deep_copy(params);

    arena_adopt(arena, copy, release_params);
    session->arena = arena;
    enum status status = read_parts(copy, &parts, err);
    if (status != STATUS_OK)
        return status;
    session->run = parts.run;
    session->lease_ms = parts.lease_ms;
    status = read_session(session, &parts, err);
    if (status == STATUS_OK)
        status = make_spool(session, state_folder, err);
    if (status != STATUS_OK)
        return status;
    arena = NULL; /* the session has it */
    *ret_session = session;
    return STATUS_OK;
}

void session_free(struct session *session)
{
    if (session != NULL)
        arena_free(session->arena);
}
