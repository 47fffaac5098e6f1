/* SPDX-License-Identifier: MIT */
#include "topologies/lab/probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "topologies/lab/lab.h"
#include "topologies/lab/state.h"

enum { TRY_MS = 1000, LOOK_AGAIN_MS = 10 };

static bool connect_within(int fd, const struct sockaddr_in *address, int64_t deadline_ns)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    int failure = 0;
    socklen_t length = sizeof(failure);

    if (connect(fd, (const struct sockaddr *) address, sizeof(*address)) == 0)
        return true;
    if (errno != EINPROGRESS || poll(&poll_fd, 1, deadline_left_ms(deadline_ns)) != 1)
        return false;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &length) == 0 && failure == 0;
}

bool probe_tcp(const char *address, int port, int64_t deadline_ns)
{
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};
    OWNED_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd >= 0 && inet_pton(AF_INET, address, &peer.sin_addr) == 1 &&
           connect_within(fd, &peer, deadline_ns);
}

static enum status login(const char *lab, const char *address, int port, bool admin,
                         int64_t deadline_ns, PGconn **ret_connection, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_target target = {
        .host = address,
        .port = port,
        .database = admin ? "postgres" : DATABASE_LOAD,
        .user = admin ? USER_ADMIN : USER_LOAD,
        .password_file = lab_path(arena, lab, admin ? "secrets/admin.pass" : "secrets/load.pass"),
        .sslmode = "verify-full",
        .ssl_root = lab_path(arena, lab, "pki/ca.crt"),
        .application = "ordeal lab",
    };

    return pg_connect(&target, deadline_ns, ret_connection, err);
}

/*
 * Of a standby the control file knows the timeline of the last restart point only, its receiver
 * the one that it streams.
 */
void probe_postgres(const char *lab, const char *address, int port, int64_t deadline_ns,
                    struct probe_server *ret_server)
{
    static const char sql[] =
        "SELECT CASE WHEN pg_is_in_recovery() THEN 'standby ' || coalesce((SELECT received_tli"
        " FROM pg_stat_wal_receiver), (SELECT timeline_id FROM pg_control_checkpoint()))"
        " ELSE 'primary ' || ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))"
        "::bit(32)::int END";
    OWNED_PG PGconn *connection = NULL;
    char text[64] = "";
    struct error err = {0};
    enum status status = login(lab, address, port, true, deadline_ns, &connection, &err);

    *ret_server = (struct probe_server){0};
    if (status == STATUS_OK)
        status = pg_query_text(connection, sql, deadline_ns, text, sizeof(text), &err);
    if (status != STATUS_OK) {
        ret_server->silent = status == STATUS_UNREACHABLE;
        snprintf(ret_server->error, sizeof(ret_server->error), "%.250s", err.message);
        return;
    }
    ret_server->running = true;
    ret_server->in_recovery = strncmp(text, "standby", 7) == 0;
    const char *timeline = strchr(text, ' ');
    ret_server->timeline = timeline != NULL ? strtoll(timeline, NULL, 10) : 0;
}

/* ---- quorum ---- */

static enum status count_streaming(PGconn *connection, int64_t deadline_ns, int *ret_count,
                                   struct error *err)
{
    static const char sql[] = "SELECT count(*) FROM pg_stat_replication"
                              " WHERE state = 'streaming' AND sync_state = 'quorum'";
    char text[32] = "";
    enum status status = pg_query_text(connection, sql, deadline_ns, text, sizeof(text), err);

    if (status == STATUS_OK)
        *ret_count = (int) strtol(text, NULL, 10);
    return status;
}

/* A record of WAL makes it a transaction that waits; nothing is left of it. */
static enum status commit_once(const char *lab, const char *address, int port, int64_t deadline_ns,
                               struct error *err)
{
    OWNED_PG PGconn *connection = NULL;
    char text[32];
    enum status status = login(lab, address, port, false, deadline_ns, &connection, err);

    if (status == STATUS_OK)
        status = pg_query_text(connection, "SELECT pg_logical_emit_message(true, 'ordeal', 'up')",
                               deadline_ns, text, sizeof(text), err);
    return status == STATUS_OK ? STATUS_OK : error_context(err, "a first commit");
}

static int64_t sooner(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

enum status probe_quorum(const char *lab, const char *address, int port, int standbys,
                         int64_t deadline_ns, struct error *err)
{
    PGconn *connection = NULL;
    int streaming = 0;
    enum status status;

    for (;;) {
        int64_t try_ns = sooner(deadline_in_ms(TRY_MS), deadline_ns);

        status = connection != NULL ? STATUS_OK
                                    : login(lab, address, port, true, try_ns, &connection, err);
        if (status == STATUS_OK)
            status = count_streaming(connection, try_ns, &streaming, err);
        if (status == STATUS_OK && streaming >= standbys)
            break;
        if (deadline_passed(deadline_ns))
            break;
        poll(NULL, 0, LOOK_AGAIN_MS);
    }
    PQfinish(connection);
    if (status != STATUS_OK)
        return error_context(err, "the primary on %s", address);
    if (streaming < standbys)
        return error_set(err, STATUS_TIMEOUT, "%d of %d standbys stream with sync_state quorum",
                         streaming, standbys);
    return commit_once(lab, address, port, deadline_ns, err);
}
