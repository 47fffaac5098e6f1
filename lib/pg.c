/* SPDX-License-Identifier: MIT */
#include "lib/pg.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"

enum { CANCEL_MS = 500, PARAMETERS_MAX = 20, PASSWORD_SIZE = 512 };

/* Keyword and value arrays as libpq wants them, NULL-terminated. */
struct parameters {
    int count;
    const char *keywords[PARAMETERS_MAX + 1];
    const char *values[PARAMETERS_MAX + 1];
};

static void add(struct parameters *parameters, const char *keyword, const char *value)
{
    if (value == NULL)
        return;
    if (parameters->count == PARAMETERS_MAX)
        abort();
    parameters->keywords[parameters->count] = keyword;
    parameters->values[parameters->count++] = value;
}

static void drop_notice(void *argument, const PGresult *result)
{
    (void) argument;
    (void) result;
}

/* libpq's text without line ends inside: "a\n\tb\n" -> "a; b". */
static void one_line(const char *text, char *line, size_t size)
{
    size_t length = 0;

    for (; *text != '\0' && length + 3 < size; text++) {
        if (*text != '\n') {
            line[length++] = *text;
            continue;
        }
        while (isspace((unsigned char) text[1]))
            text++;
        if (text[1] != '\0') {
            line[length++] = ';';
            line[length++] = ' ';
        }
    }
    line[length] = '\0';
}

static void fill(struct parameters *parameters, const struct pg_target *target, const char *port,
                 const char *password)
{
    bool local = target->host[0] == '/';

    add(parameters, "host", target->host);
    add(parameters, "port", port);
    add(parameters, "dbname", target->database != NULL ? target->database : "postgres");
    add(parameters, "user", target->user);
    add(parameters, "password", password);
    add(parameters, "application_name",
        target->application != NULL ? target->application : "ordeal");
    add(parameters, "sslmode",
        local                     ? "disable"
        : target->sslmode != NULL ? target->sslmode
                                  : "prefer");
    add(parameters, "sslrootcert", target->ssl_root);
    add(parameters, "gssencmode", "disable");
    add(parameters, "replication", target->replication ? "true" : NULL);
    /* options of the session outrank what a role or a database sets for itself */
    add(parameters, "options", "-c client_min_messages=warning -c search_path=pg_catalog");
    add(parameters, "keepalives_idle", "5");
    add(parameters, "keepalives_interval", "2");
    add(parameters, "keepalives_count", "3");
}

enum status pg_connect_start(const struct pg_target *target, PGconn **ret_connection,
                             struct error *err)
{
    struct parameters parameters = {0};
    char port[16];
    char password[PASSWORD_SIZE] = "";

    if (target->password_file != NULL &&
        pg_password(target->password_file, password, sizeof password, err) != STATUS_OK)
        return error_context(err, "connecting to %s port %d", target->host, target->port);
    snprintf(port, sizeof port, "%d", target->port);
    fill(&parameters, target, port, target->password_file != NULL ? password : NULL);
    PGconn *connection = PQconnectStartParams(parameters.keywords, parameters.values, 0);
    explicit_bzero(password, sizeof password);
    if (connection == NULL)
        abort();
    PQsetNoticeReceiver(connection, drop_notice, NULL);
    PQsetErrorVerbosity(connection, PQERRORS_VERBOSE);
    if (PQstatus(connection) == CONNECTION_BAD) {
        enum status status = pg_connect_error(connection, target, err);
        PQfinish(connection);
        return status;
    }
    *ret_connection = connection;
    return STATUS_OK;
}

bool pg_connect_sqlstate(const PGconn *connection, char sqlstate[PG_SQLSTATE_SIZE])
{
    /* verbose form: "... FATAL:  28P01: text" */
    for (const char *at = PQerrorMessage(connection); (at = strstr(at, ":  ")) != NULL; at++) {
        size_t length = strspn(at + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (length != PG_SQLSTATE_SIZE - 1 || at[3 + length] != ':')
            continue;
        memcpy(sqlstate, at + 3, length);
        sqlstate[length] = '\0';
        return true;
    }
    sqlstate[0] = '\0';
    return false;
}

enum status pg_connect_error(const PGconn *connection, const struct pg_target *target,
                             struct error *err)
{
    char sqlstate[PG_SQLSTATE_SIZE];
    char line[512];
    bool answered = pg_connect_sqlstate(connection, sqlstate);

    one_line(PQerrorMessage(connection), line, sizeof line);
    char *location = strstr(line, "; LOCATION:");
    if (location != NULL)
        *location = '\0';
    enum status status = error_set(err, answered ? STATUS_DATABASE : STATUS_UNREACHABLE,
                                   "connecting to %s port %d as %s: %s", target->host, target->port,
                                   target->user, line[0] != '\0' ? line : "connection is bad");
    error_detail(err, "%s", sqlstate);
    return status;
}

/* STATUS_TIMEOUT when the socket is not ready by then. */
static enum status wait_socket(const PGconn *connection, short events, int64_t deadline_ns)
{
    struct pollfd entry = {.fd = PQsocket(connection), .events = events};

    for (;;) {
        int count = poll(&entry, 1, deadline_left_ms(deadline_ns));
        if (count > 0)
            return STATUS_OK;
        if (count == 0 && deadline_passed(deadline_ns))
            return STATUS_TIMEOUT;
        if (count < 0 && errno != EINTR)
            return STATUS_SYSTEM;
    }
}

static enum status finish_connecting(PGconn *connection, const struct pg_target *target,
                                     int64_t deadline_ns, struct error *err)
{
    PostgresPollingStatusType poll_status = PGRES_POLLING_WRITING;

    while (poll_status != PGRES_POLLING_OK) {
        if (poll_status == PGRES_POLLING_FAILED)
            return pg_connect_error(connection, target, err);
        short events = poll_status == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        if (wait_socket(connection, events, deadline_ns) != STATUS_OK)
            return error_set(err, STATUS_UNREACHABLE,
                             "connecting to %s port %d as %s: no answer before the deadline",
                             target->host, target->port, target->user);
        poll_status = PQconnectPoll(connection);
    }
    PQsetErrorVerbosity(connection, PQERRORS_DEFAULT);
    return STATUS_OK;
}

enum status pg_connect(const struct pg_target *target, int64_t deadline_ns, PGconn **ret_connection,
                       struct error *err)
{
    OWNED_PG PGconn *connection = NULL;
    enum status status = pg_connect_start(target, &connection, err);

    if (status != STATUS_OK)
        return status;
    status = finish_connecting(connection, target, deadline_ns, err);
    if (status != STATUS_OK)
        return status;
    *ret_connection = connection;
    connection = NULL;
    return STATUS_OK;
}

static int cancel_child(void *argument)
{
    PGcancel *cancel = argument;
    char text[256];

    return PQcancel(cancel, text, sizeof text) == 1 ? 0 : 1;
}

/*
 * PQcancel() opens a connection of its own and blocks until the server closes it, for ever if the
 * server is frozen. A child does it, so that it can be left behind.
 */
static void cancel_statement(PGconn *connection)
{
    PGcancel *cancel = PQgetCancel(connection);
    struct process child = {0, -1};
    int wait_status = 0;

    if (cancel == NULL)
        return;
    if (process_fork(cancel_child, cancel, &child, NULL) == STATUS_OK) {
        if (process_reap(&child, deadline_in_ms(CANCEL_MS), &wait_status, NULL) != STATUS_OK)
            process_kill(&child);
        else if (child.pidfd >= 0)
            close(child.pidfd);
    }
    PQfreeCancel(cancel);
}

static enum status lost(const PGconn *connection, struct error *err)
{
    char line[512];

    one_line(PQerrorMessage(connection), line, sizeof line);
    return error_set(err, STATUS_UNREACHABLE, "connection lost: %s",
                     line[0] != '\0' ? line : "no reason given");
}

static enum status result_error(const PGconn *connection, const PGresult *result, struct error *err)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
    const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);

    if (sqlstate == NULL) /* libpq's own: the connection broke */
        return lost(connection, err);
    enum status status =
        error_set(err, STATUS_DATABASE, "%s%s%s", primary != NULL ? primary : "no message",
                  detail != NULL ? ": " : "", detail != NULL ? detail : "");
    error_detail(err, "%s", sqlstate);
    if (hint != NULL)
        error_hint(err, "%s", hint);
    return status;
}

static enum status check_result(const PGconn *connection, const PGresult *result, struct error *err)
{
    switch (PQresultStatus(result)) {
    case PGRES_TUPLES_OK:
    case PGRES_COMMAND_OK:
    case PGRES_EMPTY_QUERY:
        return STATUS_OK;
    case PGRES_COPY_IN:
    case PGRES_COPY_OUT:
    case PGRES_COPY_BOTH:
        return error_set(err, STATUS_INTERNAL, "a COPY was sent as a query");
    default:
        return result_error(connection, result, err);
    }
}

/* Wait until PQgetResult() will not block. */
static enum status wait_result(PGconn *connection, int64_t deadline_ns, struct error *err)
{
    while (PQisBusy(connection)) {
        enum status status = wait_socket(connection, POLLIN, deadline_ns);
        if (status == STATUS_TIMEOUT) {
            cancel_statement(connection);
            return error_set(err, STATUS_TIMEOUT, "no answer to the statement before the deadline");
        }
        if (status != STATUS_OK)
            return lost(connection, err);
        if (!PQconsumeInput(connection))
            break; /* the last words of the server, if any, are in the next result */
    }
    return STATUS_OK;
}

/* The last result of the statement, or its first error; the connection is idle again then. */
static enum status collect(PGconn *connection, int64_t deadline_ns, PGresult **ret_result,
                           struct error *err)
{
    OWNED_PG_RESULT PGresult *last = NULL;
    enum status failure = STATUS_OK;

    for (;;) {
        enum status status = wait_result(connection, deadline_ns, err);
        if (status != STATUS_OK)
            return status;
        PGresult *result = PQgetResult(connection);
        if (result == NULL)
            break;
        if (failure == STATUS_OK)
            failure = check_result(connection, result, err);
        PQclear(last);
        last = result;
        if (failure == STATUS_INTERNAL || failure == STATUS_UNREACHABLE)
            break; /* neither a COPY nor a lost connection has an end to wait for */
    }
    if (failure != STATUS_OK)
        return failure;
    if (last == NULL)
        return error_set(err, STATUS_PROTOCOL, "the statement gave no result");
    if (ret_result != NULL) {
        *ret_result = last;
        last = NULL;
    }
    return STATUS_OK;
}

static enum status flush(PGconn *connection, int64_t deadline_ns, struct error *err)
{
    int left;

    while ((left = PQflush(connection)) == 1) {
        enum status status = wait_socket(connection, POLLIN | POLLOUT, deadline_ns);
        if (status == STATUS_TIMEOUT)
            return error_set(err, STATUS_TIMEOUT, "the statement was not taken by the deadline");
        if (status != STATUS_OK || !PQconsumeInput(connection))
            return lost(connection, err);
    }
    return left == 0 ? STATUS_OK : lost(connection, err);
}

enum status pg_query_params(PGconn *connection, const char *sql, int count,
                            const char *const *values, int64_t deadline_ns, PGresult **ret_result,
                            struct error *err)
{
    int sent;

    if (PQsetnonblocking(connection, 1) != 0)
        return lost(connection, err);
    if (count == 0) /* the simple protocol: walsenders know no other */
        sent = PQsendQuery(connection, sql);
    else
        sent = PQsendQueryParams(connection, sql, count, NULL, values, NULL, NULL, 0);
    if (!sent)
        return lost(connection, err);
    enum status status = flush(connection, deadline_ns, err);
    if (status != STATUS_OK)
        return status;
    return collect(connection, deadline_ns, ret_result, err);
}

enum status pg_query(PGconn *connection, const char *sql, int64_t deadline_ns,
                     PGresult **ret_result, struct error *err)
{
    return pg_query_params(connection, sql, 0, NULL, deadline_ns, ret_result, err);
}

enum status pg_query_text(PGconn *connection, const char *sql, int64_t deadline_ns, char *text,
                          size_t size, struct error *err)
{
    OWNED_PG_RESULT PGresult *result = NULL;
    enum status status = pg_query(connection, sql, deadline_ns, &result, err);

    if (status != STATUS_OK)
        return status;
    if (PQntuples(result) < 1 || PQnfields(result) < 1)
        return error_set(err, STATUS_NOT_FOUND, "the query gave no row: %s", sql);
    size_t length = (size_t) PQgetlength(result, 0, 0);
    if (length >= size)
        return error_set(err, STATUS_INVALID, "the answer has %zu bytes, more than %zu: %s", length,
                         size - 1, sql);
    memcpy(text, PQgetvalue(result, 0, 0), length + 1);
    return STATUS_OK;
}

/* One message, or NULL at the end of the copy. */
static enum status next_message(PGconn *connection, int64_t deadline_ns, char **ret_data,
                                size_t *ret_length, struct error *err)
{
    for (;;) {
        int length = PQgetCopyData(connection, ret_data, 1);
        if (length == -2)
            return lost(connection, err);
        if (length != 0) {
            *ret_length = length > 0 ? (size_t) length : 0;
            return STATUS_OK;
        }
        enum status status = wait_socket(connection, POLLIN, deadline_ns);
        if (status == STATUS_TIMEOUT) {
            cancel_statement(connection);
            return error_set(err, STATUS_TIMEOUT, "the copy did not end before the deadline");
        }
        if (status != STATUS_OK || !PQconsumeInput(connection))
            return lost(connection, err);
    }
}

static enum status begin_copy(PGconn *connection, const char *sql, int64_t deadline_ns,
                              struct error *err)
{
    if (PQsetnonblocking(connection, 1) != 0 || !PQsendQuery(connection, sql))
        return lost(connection, err);
    enum status status = flush(connection, deadline_ns, err);
    if (status == STATUS_OK)
        status = wait_result(connection, deadline_ns, err);
    if (status != STATUS_OK)
        return status;
    OWNED_PG_RESULT PGresult *result = PQgetResult(connection);
    if (PQresultStatus(result) == PGRES_COPY_OUT)
        return STATUS_OK;
    status = check_result(connection, result, err);
    return status != STATUS_OK ? status
                               : error_set(err, STATUS_INTERNAL, "not a COPY TO STDOUT: %s", sql);
}

enum status pg_copy_out(PGconn *connection, const char *sql, int64_t deadline_ns,
                        enum status (*take)(void *argument, const char *data, size_t length,
                                            struct error *err),
                        void *argument, struct error *err)
{
    enum status status = begin_copy(connection, sql, deadline_ns, err);

    while (status == STATUS_OK) {
        char *data = NULL;
        size_t length = 0;
        status = next_message(connection, deadline_ns, &data, &length, err);
        if (status == STATUS_OK && data == NULL)
            return collect(connection, deadline_ns, NULL, err);
        if (status == STATUS_OK)
            status = take(argument, data, length, err);
        PQfreemem(data);
    }
    return status;
}

static bool parse_half(const char **at, char end, uint64_t *ret_half)
{
    uint64_t half = 0;
    int digits = 0;

    for (; isxdigit((unsigned char) **at); (*at)++, digits++) {
        int c = tolower((unsigned char) **at);
        half = half << 4 | (uint64_t) (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (digits < 1 || digits > 8 || **at != end)
        return false;
    *ret_half = half;
    return true;
}

uint64_t pg_lsn_parse(const char *text)
{
    uint64_t high;
    uint64_t low;

    if (text == NULL || !parse_half(&text, '/', &high))
        return 0;
    text++;
    if (!parse_half(&text, '\0', &low))
        return 0;
    return high << 32 | low;
}

void pg_lsn_text(uint64_t lsn, char text[PG_LSN_TEXT_SIZE])
{
    snprintf(text, PG_LSN_TEXT_SIZE, "%X/%X", (unsigned) (lsn >> 32), (unsigned) lsn);
}

enum status pg_password(const char *path, char *password, size_t size, struct error *err)
{
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0)
        return error_system(err, "opening password file %s", path);
    if ((info.st_mode & 077) != 0) {
        error_set(err, STATUS_REFUSED, "password file %s can be read by others than its owner",
                  path);
        error_hint(err, "Run chmod 600 on it.");
        return STATUS_REFUSED;
    }
    ssize_t length = read(fd, password, size - 1);
    if (length < 0)
        return error_system(err, "reading password file %s", path);
    password[length] = '\0';
    size_t end = strcspn(password, "\r\n");
    if (end == size - 1)
        return error_set(err, STATUS_INVALID, "password file %s: its first line is too long", path);
    if (end == 0)
        return error_set(err, STATUS_INVALID, "password file %s is empty", path);
    password[end] = '\0';
    return STATUS_OK;
}
