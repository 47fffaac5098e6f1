/* SPDX-License-Identifier: MIT */
#include "agents/postgres_local.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { TURN_MS = 10, PASSWORD_SIZE = 512, CONNINFO_MAX = 4096 };

enum status postgres_connect(const struct session *session, const char *address,
                             const char *database, int64_t deadline_ns, PGconn **ret_connection,
                             struct error *err)
{
    /* roles may have settings of their own: none of them may stop what Ordeal does */
    static const char settings[] =
        "SET synchronous_commit = local; SET statement_timeout = 0; SET lock_timeout = 0;"
        "SET idle_in_transaction_session_timeout = 0; SET default_transaction_read_only = off";
    struct pg_target target =
        session_target(session, address != NULL ? address : session->address, SESSION_SUPERUSER);
    OWNED_PG PGconn *connection = NULL;

    if (database != NULL)
        target.database = database;
    target.application = "ordeal-control";
    enum status status = pg_connect(&target, deadline_ns, &connection, err);
    if (status == STATUS_OK)
        status = pg_query(connection, settings, deadline_ns, NULL, err);
    if (status != STATUS_OK)
        return status;
    *ret_connection = connection;
    connection = NULL;
    return STATUS_OK;
}

enum status postgres_query_json(PGconn *connection, const char *sql, int64_t deadline_ns,
                                json_t **ret_json, struct error *err)
{
    OWNED_PG_RESULT PGresult *result = NULL;
    enum status status = pg_query(connection, sql, deadline_ns, &result, err);

    if (status != STATUS_OK)
        return status;
    if (PQntuples(result) != 1 || PQnfields(result) != 1)
        return error_set(err, STATUS_INTERNAL, "a query for JSON gave %d rows", PQntuples(result));
    return json_parse_text(PQgetvalue(result, 0, 0), (size_t) PQgetlength(result, 0, 0), ret_json,
                           err);
}

enum status postgres_in_recovery(PGconn *connection, int64_t deadline_ns, bool *ret_in_recovery,
                                 struct error *err)
{
    char text[8];
    enum status status = pg_query_text(connection, "SELECT pg_is_in_recovery()", deadline_ns, text,
                                       sizeof text, err);

    if (status == STATUS_OK)
        *ret_in_recovery = text[0] == 't';
    return status;
}

bool postgres_wait_turn(int64_t deadline_ns)
{
    if (deadline_passed(deadline_ns))
        return false;
    poll(NULL, 0, TURN_MS);
    return true;
}

int64_t postgres_deadline(int64_t deadline_ns, int64_t ms)
{
    int64_t limit_ns = deadline_in_ms(ms);

    return limit_ns < deadline_ns ? limit_ns : deadline_ns;
}

const char *postgres_program(struct arena *arena, const struct session *session, const char *name)
{
    return arena_printf(arena, "%s/%s", session->database.bin, name);
}

enum status postgres_run(const struct session *session, const char *const *argv,
                         const char *passfile, int64_t deadline_ns,
                         struct process_result *ret_result, struct error *err)
{
    char pass_variable[PATH_MAX + 16];
    const char *env[] = {"LC_ALL=C", "PGAPPNAME=ordeal-control",
                         passfile != NULL ? pass_variable : NULL, NULL};
    int left_ms = deadline_left_ms(deadline_ns);

    if (passfile != NULL)
        snprintf(pass_variable, sizeof pass_variable, "PGPASSFILE=%s", passfile);
    if (left_ms == 0)
        return error_set(err, STATUS_TIMEOUT, "no time left to run %s", argv[0]);
    struct process_spec spec = {
        .argv = argv, .env = env, .user = session->database.owner, .timeout_ms = left_ms};
    return process_run(&spec, ret_result, err);
}

const char *postgres_parent(struct arena *arena, const struct session *session)
{
    char *path = arena_strdup(arena, session->database.data);
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return "/";
    *slash = '\0';
    return path;
}

const char *postgres_slot_name(struct arena *arena, const char *node)
{
    char *name = arena_strdup(arena, node);

    for (char *at = name; *at != '\0'; at++)
        if (*at == '-')
            *at = '_';
    return name;
}

enum status postgres_peer(const struct session *session, const char *name,
                          const struct fault_peer **ret_peer, struct error *err)
{
    const struct fault_peer *peer = session_peer(session, name);

    if (peer == NULL)
        return error_set(err, STATUS_NOT_FOUND, "no node is called \"%s\"", name);
    *ret_peer = peer;
    return STATUS_OK;
}

/* --- files ------------------------------------------------------------------------------------ */

enum status postgres_owner(const struct session *session, uid_t *ret_uid, gid_t *ret_gid,
                           struct error *err)
{
    const struct passwd *entry = getpwnam(session->database.owner);

    if (entry == NULL)
        return error_set(err, STATUS_NOT_FOUND, "no user %s on this host", session->database.owner);
    *ret_uid = entry->pw_uid;
    *ret_gid = entry->pw_gid;
    return STATUS_OK;
}

static enum status write_whole(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, text, length);
        if (written < 0)
            return STATUS_SYSTEM;
        text += written;
        length -= (size_t) written;
    }
    return fsync(fd) == 0 ? STATUS_OK : STATUS_SYSTEM;
}

enum status postgres_write_file(const struct session *session, const char *path, const char *text,
                                size_t length, struct error *err)
{
    char temporary[PATH_MAX];
    uid_t uid = 0;
    gid_t gid = 0;

    enum status status = postgres_owner(session, &uid, &gid, err);
    if (status != STATUS_OK)
        return status;
    if (snprintf(temporary, sizeof temporary, "%s.ordeal", path) >= (int) sizeof temporary)
        return error_set(err, STATUS_INVALID, "path too long: %s", path);
    /* the folder belongs to another user: never follow what that user may have put there */
    unlink(temporary);
    OWNED_FD int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_system(err, "creating %s", temporary);
    if (fchown(fd, uid, gid) != 0 || write_whole(fd, text, length) != STATUS_OK ||
        rename(temporary, path) != 0) {
        status = error_system(err, "writing %s", path);
        unlink(temporary);
    }
    return status;
}

/* In a passfile ":" and "\" are escaped. */
static void add_pass_line(struct buffer *text, const char *user, const char *password)
{
    buffer_puts(text, "*:*:*:");
    for (const char *part = user; part != NULL; part = part == user ? password : NULL) {
        for (const char *at = part; *at != '\0'; at++) {
            if (*at == ':' || *at == '\\')
                buffer_puts(text, "\\");
            buffer_append(text, at, 1);
        }
        buffer_puts(text, part == user ? ":" : "\n");
    }
}

static enum status pass_line(struct buffer *text, const char *user, const char *file,
                             struct error *err)
{
    char password[PASSWORD_SIZE];

    if (user == NULL || file == NULL)
        return STATUS_OK;
    enum status status = pg_password(file, password, sizeof password, err);
    if (status == STATUS_OK)
        add_pass_line(text, user, password);
    explicit_bzero(password, sizeof password);
    return status;
}

static enum status write_passfile(const struct session *session, const char *path,
                                  struct error *err)
{
    const struct session_database *database = &session->database;
    OWNED_BUFFER struct buffer text = BUFFER(8192);
    enum status status =
        pass_line(&text, database->superuser, database->superuser_password_file, err);
    if (status == STATUS_OK)
        status = pass_line(&text, database->replication, database->replication_password_file, err);
    if (status == STATUS_OK && text.overflow)
        status = error_set(err, STATUS_INVALID, "passwords too long for %s", path);
    if (status == STATUS_OK)
        status = postgres_write_file(session, path, buffer_text(&text), text.length, err);
    if (text.data != NULL)
        explicit_bzero(text.data, text.length);
    return status;
}

enum status postgres_passfile(struct arena *arena, const struct session *session,
                              const char **ret_path, struct error *err)
{
    *ret_path =
        arena_printf(arena, "%s/ordeal-%s.pgpass", postgres_parent(arena, session), session->node);
    return write_passfile(session, *ret_path, err);
}

enum status postgres_passfile_once(struct arena *arena, const struct session *session,
                                   const char **ret_path, struct error *err)
{
    *ret_path = arena_printf(arena, "%s/ordeal-%s.once.pgpass", postgres_parent(arena, session),
                             session->node);
    return write_passfile(session, *ret_path, err);
}

static void add_keyword(struct buffer *text, const char *keyword, const char *value)
{
    if (value == NULL)
        return;
    buffer_printf(text, "%s%s='", text->length == 0 ? "" : " ", keyword);
    for (const char *at = value; *at != '\0'; at++) {
        if (*at == '\'' || *at == '\\')
            buffer_puts(text, "\\");
        buffer_append(text, at, 1);
    }
    buffer_puts(text, "'");
}

const char *postgres_conninfo(struct arena *arena, const struct session *session,
                              const struct fault_peer *peer, enum session_user user,
                              const char *application, const char *passfile)
{
    const struct session_database *database = &session->database;
    bool replication = user == SESSION_REPLICATION && database->replication != NULL;
    OWNED_BUFFER struct buffer text = BUFFER(CONNINFO_MAX);
    char port[16];

    snprintf(port, sizeof port, "%d", database->port);
    add_keyword(&text, "host", peer->address);
    add_keyword(&text, "port", port);
    add_keyword(&text, "user", replication ? database->replication : database->superuser);
    if (user == SESSION_SUPERUSER)
        add_keyword(&text, "dbname", "postgres");
    add_keyword(&text, "passfile", passfile);
    add_keyword(&text, "application_name", application != NULL ? application : session->node);
    add_keyword(&text, "sslmode", database->ssl_root != NULL ? "verify-ca" : "prefer");
    add_keyword(&text, "sslrootcert", database->ssl_root);
    /* a source that vanishes without a word is given up after five seconds */
    add_keyword(&text, "keepalives_idle", "2");
    add_keyword(&text, "keepalives_interval", "1");
    add_keyword(&text, "keepalives_count", "3");
    add_keyword(&text, "tcp_user_timeout", "5000");
    return arena_strdup(arena, buffer_text(&text));
}

/* --- processes -------------------------------------------------------------------------------- */

const struct pg_process *postgres_postmaster(const struct pg_processes *processes)
{
    if (processes->count == 0 || processes->items[0].class != PG_POSTMASTER)
        return NULL;
    return &processes->items[0];
}

enum status postgres_require_stopped(const struct session *session, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes processes = {0};
    enum status status = pg_processes_list(arena, session->database.data, &processes, err);

    if (status != STATUS_OK)
        return status;
    if (processes.count == 0)
        return STATUS_OK;
    error_set(err, STATUS_REFUSED, "PostgreSQL runs in %s: %s, pid %d", session->database.data,
              pg_class_name(processes.items[0].class), (int) processes.items[0].id.pid);
    error_hint(err, "Stop or fence it first.");
    return STATUS_REFUSED;
}

bool postgres_file_line(const char *path, int number, char *line, size_t size)
{
    char text[65536];
    OWNED_FD int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (length <= 0)
        return false;
    text[length] = '\0';
    const char *at = text;
    while (--number > 0 && (at = strchr(at, '\n')) != NULL)
        at++;
    if (at == NULL || *at == '\0')
        return false;
    size_t end = strcspn(at, "\n");
    if (end >= size)
        return false;
    memcpy(line, at, end);
    line[end] = '\0';
    return true;
}

static pid_t pid_in_file(const struct session *session)
{
    char path[PATH_MAX], line[32];

    snprintf(path, sizeof path, "%s/postmaster.pid", session->database.data);
    if (!postgres_file_line(path, 1, line, sizeof line))
        return 0;
    return (pid_t) strtol(line, NULL, 10);
}

/*
 * A killed postmaster leaves its pid file, and a new one refuses to start while that pid exists. A
 * zombie counts as existing; some inits reap only after seconds.
 */
enum status postgres_wait_reaped(const struct session *session, int64_t deadline_ns,
                                 struct error *err)
{
    struct process_id id;
    pid_t pid = pid_in_file(session);

    while (pid > 1 && kill(pid, 0) == 0 && process_identify(pid, &id, NULL) != STATUS_OK)
        if (!postgres_wait_turn(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "the old postmaster %d is dead but not reaped",
                             (int) pid);
    return STATUS_OK;
}
