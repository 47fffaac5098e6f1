/* SPDX-License-Identifier: MIT */
/*
 * Blocking libpq with a deadline on everything, for the agent's jobs (never in its poll loop).
 *
 * libpq's own connect_timeout does not work on asynchronous connections, so every connect and
 * every query here waits on the socket with our deadline. One host per connection. Passwords come
 * from a file that only its owner can read and never appear in an error.
 */
#ifndef ORDEAL_LIB_PG_H
#define ORDEAL_LIB_PG_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

struct pg_target {
    const char *host; /* address, or directory of a Unix socket */
    int port;
    const char *database, *user;
    const char *password_file; /* NULL: none */
    const char *sslmode;       /* NULL: "prefer" on TCP; "verify-ca" needs ssl_root */
    const char *ssl_root;      /* CA file or NULL */
    const char *application;   /* application_name */
    bool replication;          /* walsender connection for physical replication: no SQL */
};

static inline void owned_pg(PGconn **connection)
{
    PQfinish(*connection);
}

static inline void owned_pg_result(PGresult **result)
{
    PQclear(*result);
}

#define OWNED_PG __attribute__((cleanup(owned_pg)))
#define OWNED_PG_RESULT __attribute__((cleanup(owned_pg_result)))

/*
 * Connected, with client_min_messages = warning, lc_messages untouched, search_path = pg_catalog.
 * STATUS_UNREACHABLE: nobody answered; STATUS_DATABASE: PostgreSQL refused (SQLSTATE in detail).
 */
MUST_CHECK enum status pg_connect(const struct pg_target *target, int64_t deadline_ns,
                                  PGconn **ret_connection, struct error *err);
/*
 * Begin an asynchronous connection with the same parameters; for load and probes, which drive it
 * with PQconnectPoll() under a deadline of their own. Notices are dropped until the caller sets a
 * receiver. Messages are verbose, so that pg_connect_sqlstate() works.
 */
MUST_CHECK enum status pg_connect_start(const struct pg_target *target, PGconn **ret_connection,
                                        struct error *err);
/* SQLSTATE with which the server refused; false and "" when no server answered. */
enum { PG_SQLSTATE_SIZE = 6 };
bool pg_connect_sqlstate(const PGconn *connection, char sqlstate[PG_SQLSTATE_SIZE]);
/* Why PQconnectPoll() failed, as pg_connect() would say it. Returns the status. */
enum status pg_connect_error(const PGconn *connection, const struct pg_target *target,
                             struct error *err);
/*
 * One statement. Any status but a result or a command's tag is an error: STATUS_DATABASE with the
 * SQLSTATE in err->detail. On STATUS_TIMEOUT the statement is cancelled and the connection is done.
 */
MUST_CHECK enum status pg_query(PGconn *connection, const char *sql, int64_t deadline_ns,
                                PGresult **ret_result, struct error *err);
MUST_CHECK enum status pg_query_params(PGconn *connection, const char *sql, int count,
                                       const char *const *values, int64_t deadline_ns,
                                       PGresult **ret_result, struct error *err);
/*
 * First column of the first row as text (empty for NULL), in the caller's buffer. STATUS_NOT_FOUND
 * without a row, STATUS_INVALID when the text does not fit.
 */
MUST_CHECK enum status pg_query_text(PGconn *connection, const char *sql, int64_t deadline_ns,
                                     char *text, size_t size, struct error *err);
/*
 * COPY ... TO STDOUT: `take` gets each message of data as it comes and may end it by returning
 * another status than STATUS_OK, which is then returned; the connection is done after an error.
 */
MUST_CHECK enum status pg_copy_out(PGconn *connection, const char *sql, int64_t deadline_ns,
                                   enum status (*take)(void *argument, const char *data,
                                                       size_t length, struct error *err),
                                   void *argument, struct error *err);
/* "0/3000148" <-> 0x3000148; 0 for an empty or malformed text. */
uint64_t pg_lsn_parse(const char *text);
enum { PG_LSN_TEXT_SIZE = 20 };
void pg_lsn_text(uint64_t lsn, char text[PG_LSN_TEXT_SIZE]);
/* Read a password file's first line; refuses one that group or others can read. */
MUST_CHECK enum status pg_password(const char *path, char *password, size_t size,
                                   struct error *err);

#endif
