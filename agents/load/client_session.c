/* SPDX-License-Identifier: MIT */
/* Connections of a client: which host, how far, and when to give up. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "agents/load/client.h"
#include "lib/clock.h"

static void watch(struct client *client, uint32_t events)
{
    int fd = PQsocket(client->connection);

    client->fd = fd;
    client->events = events;
    worker_watch(client->worker, fd, events, client->index, client->generation);
}

/*
 * libpq keeps what the kernel does not take; the kernel says when it does. The events are changed
 * only when they differ, which is hardly ever.
 */
static bool flush_out(struct client *client)
{
    int left = PQflush(client->connection);

    if (left < 0)
        return false;
    uint32_t events = left > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
    if (events != client->events)
        watch(client, events);
    return true;
}

bool client_flush(struct client *client)
{
    return (client->events & EPOLLOUT) == 0 || flush_out(client);
}

bool client_send(struct client *client, const char *text)
{
    memset(&client->reply, 0, sizeof(client->reply));
    return PQsendQuery(client->connection, text) && flush_out(client);
}

/* --- notices --------------------------------------------------------------------------------- */

/*
 * The warning of an ended synchronous wait is known by the function that raises it, whatever its
 * language. What a server says before it ends an idle session comes here, too.
 */
static void on_notice(void *argument, const PGresult *notice)
{
    struct client *client = argument;
    const char *function = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *sqlstate = PQresultErrorField(notice, PG_DIAG_SQLSTATE);
    bool sync_wait = function != NULL && strcmp(function, "SyncRepWaitForLSN") == 0;
    bool last_word = severity != NULL && strcmp(severity, "FATAL") == 0;

    if (sync_wait)
        client->reply.sync_wait_notice = true;
    if (sqlstate != NULL && (sync_wait || last_word))
        snprintf(client->reply.sqlstate, sizeof(client->reply.sqlstate), "%s", sqlstate);
}

/* --- opening --------------------------------------------------------------------------------- */

static void drop_connection(struct client *client)
{
    PQfinish(client->connection);
    client->connection = NULL;
    client->generation++; /* events of the old socket that are still on their way are nobody's */
    client->fd = -1;
    client->events = 0;
}

/* Index of the node to connect to, or LOAD_ROUTE_CLOSED. */
static int pick_host(const struct client *client)
{
    const struct load_plan *plan = client->worker->plan;

    if (client->group->node >= 0)
        return client->group->node;
    if (plan->managed)
        return atomic_load_explicit(&client->worker->shared->route, memory_order_relaxed);
    return plan->endpoint[client->host];
}

static bool more_hosts(const struct client *client)
{
    const struct load_plan *plan = client->worker->plan;

    return client->group->node < 0 && !plan->managed && client->host + 1 < plan->endpoint_count;
}

/* False when not even a beginning could be made. */
static bool start_connecting(struct client *client, int host)
{
    struct load_counters *counters = client->worker->counters;
    struct error err = {0};

    client->node = (uint16_t) host;
    client->timeline = 0;
    client->level = LEDGER_LEVEL_UNKNOWN;
    memset(&client->reply, 0, sizeof(client->reply));
    if (pg_connect_start(&client->worker->plan->nodes[host].target, &client->connection, &err) !=
        STATUS_OK) {
        client->connection = NULL;
        snprintf(counters->problem, sizeof(counters->problem), "%s", err.message);
        return false;
    }
    client->state = CLIENT_CONNECTING;
    client_arm(client, deadline_in_ms(CONNECT_MS));
    watch(client, EPOLLOUT);
    return true;
}

static void try_hosts(struct client *client, const char *sqlstate)
{
    int host = pick_host(client);

    while (host >= 0 && !start_connecting(client, host)) {
        if (!more_hosts(client)) {
            host = LOAD_ROUTE_CLOSED;
        } else {
            client->host++;
            host = pick_host(client);
        }
    }
    if (host < 0)
        client_refused(client, sqlstate);
}

void session_open(struct client *client)
{
    client->host = 0;
    client->attempt_ns = clock_boot_ns();
    try_hosts(client, "");
}

void session_reroute(struct client *client)
{
    if (pick_host(client) == client->node)
        return;
    drop_connection(client);
    session_open(client);
}

void session_host_failed(struct client *client, const char *sqlstate)
{
    char kept[sizeof(client->reply.sqlstate)]; /* it may lie in the connection */

    snprintf(kept, sizeof(kept), "%s", sqlstate);
    drop_connection(client);
    if (more_hosts(client)) {
        client->host++;
        try_hosts(client, kept);
    } else {
        client_refused(client, kept);
    }
}

/* An answer that the server's kernel never acknowledges is waited for SILENT_HOST_MS, not for ever.
 */
static void set_socket(int fd)
{
    const struct {
        int level, option, value;
    } options[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 1},
        {IPPROTO_TCP, TCP_KEEPINTVL, 1},
        {IPPROTO_TCP, TCP_KEEPCNT, 2},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, SILENT_HOST_MS},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        setsockopt(fd, options[i].level, options[i].option, &options[i].value, sizeof(int));
}

static void send_set_up(struct client *client)
{
    set_socket(PQsocket(client->connection));
    PQsetErrorVerbosity(client->connection, PQERRORS_DEFAULT);
    PQsetNoticeReceiver(client->connection, on_notice, client);
    client->set_up = false;
    client->state = CLIENT_SETTING_UP; /* the deadline is still that of connecting */
    if (PQsetnonblocking(client->connection, 1) != 0 || !client_send(client, STATEMENT_SETUP))
        session_host_failed(client, "");
}

void session_connecting(struct client *client)
{
    switch (PQconnectPoll(client->connection)) {
    case PGRES_POLLING_READING:
        watch(client, EPOLLIN); /* always: the socket may be another one now */
        break;
    case PGRES_POLLING_WRITING:
        watch(client, EPOLLOUT);
        break;
    case PGRES_POLLING_OK:
        send_set_up(client);
        break;
    default:
        pg_connect_sqlstate(client->connection, client->reply.sqlstate);
        session_host_failed(client, client->reply.sqlstate);
    }
}

/* --- the session ----------------------------------------------------------------------------- */

/* Everything but these is above a warning. */
static bool hides_warnings(const char *client_min_messages)
{
    return strcmp(client_min_messages, "warning") != 0 &&
           strcmp(client_min_messages, "notice") != 0 && strcmp(client_min_messages, "log") != 0 &&
           strncmp(client_min_messages, "debug", 5) != 0;
}

void session_set_up_row(struct client *client, const PGresult *result)
{
    if (PQntuples(result) != 1 || PQnfields(result) != 4)
        return;
    client->set_up = !hides_warnings(PQgetvalue(result, 0, 0));
    client->level = ledger_level_from_name(PQgetvalue(result, 0, 1));
    client->in_recovery = PQgetvalue(result, 0, 2)[0] == 't';
    client->timeline = statement_timeline(PQgetvalue(result, 0, 3));
}

static void record_session(struct client *client)
{
    struct ledger_record record = client_about(client, LEDGER_SESSION);

    record.class = (uint8_t) client->level;
    record.done_ns = clock_boot_ns();
    client->in_session = true;
    worker_record(client->worker, record);
}

/* An endpoint leads to who takes writes; a client of one node takes it as it is. */
void session_set_up(struct client *client, bool lost)
{
    bool wanted = client->group->node >= 0 || !client->in_recovery;

    if (lost || !client->set_up || !wanted) {
        session_host_failed(client, client->reply.sqlstate);
        return;
    }
    client->failures = 0;
    record_session(client);
    client_opened(client);
}

/* Where warnings are hidden nobody knows what an acknowledgement is worth. */
void session_in_force(struct client *client, const char *level_name,
                      const char *client_min_messages, uint32_t timeline)
{
    enum ledger_level level = ledger_level_from_name(level_name);

    client->warnings_hidden = hides_warnings(client_min_messages);
    if (client->warnings_hidden)
        level = LEDGER_LEVEL_UNKNOWN;
    if (level == client->level && timeline == client->timeline)
        return;
    client->level = level;
    client->timeline = timeline;
    record_session(client);
}

void session_close(struct client *client)
{
    if (client->in_session) {
        struct ledger_record record = client_about(client, LEDGER_SESSION_END);
        record.done_ns = clock_boot_ns();
        memcpy(record.sqlstate, client->reply.sqlstate, sizeof(record.sqlstate));
        client->in_session = false;
        worker_record(client->worker, record);
    }
    if (client->connection != NULL)
        drop_connection(client);
}
