/* SPDX-License-Identifier: MIT */
/*
 * Throw-away PostgreSQL servers for tests: a primary and streaming standbys, each on a loopback
 * address of its own (127.0.0.11, .12, ...) and all on one free port, with TLS, SCRAM, checksums,
 * wal_log_hints and 1 MiB segments, as user postgres, in a folder of /tmp.
 *
 *     static struct postgres_fixture *fixture;
 *     static void up(void)   { fixture = postgres_fixture_new(2); }       // n1 primary, n2 standby
 *     static void down(void) { postgres_fixture_free(fixture); }
 *     tcase_add_unchecked_fixture(tcase, up, down);
 *
 * What cannot be set up fails the test with the reason. The servers are torn down always: when the
 * test program dies, a child that it left behind kills them and removes the folder.
 */
#ifndef ORDEAL_TESTS_SUPPORT_POSTGRES_FIXTURE_H
#define ORDEAL_TESTS_SUPPORT_POSTGRES_FIXTURE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

#include "agents/session.h"
#include "lib/arena.h"

enum { POSTGRES_FIXTURE_SERVERS = 3 };

struct postgres_server {
    const char *name, *slot;         /* "n1", "n1" */
    const char *address;             /* "127.0.0.11" */
    const char *home, *data, *spool; /* folder of this server; its data folder; a spool */
};

struct postgres_fixture {
    struct arena *arena;
    const char *folder, *bin;
    int port, version;
    const char *superuser_file, *workload_file, *replication_file; /* password files, 0600 */
    const char *ssl_root;
    size_t count;
    struct postgres_server servers[POSTGRES_FIXTURE_SERVERS];
    int guard; /* closing it (or dying) ends the servers */
};

/*
 * Call it first in main(): from then on the caller is a child of a process that reaps dead servers
 * at once and ends as the caller does. Without it a killed server stays a zombie for as long as the
 * host's init likes, which some take seconds for.
 */
void postgres_fixture_reap(void);
/* Server n1 is the primary, the others stream from it through slots; all accept connections. */
struct postgres_fixture *postgres_fixture_new(size_t servers);
void postgres_fixture_free(struct postgres_fixture *fixture); /* NULL is allowed */

/* Users "ordeal_admin" (superuser), "ordeal_load" (owns database "ordeal"), "ordeal_replication".
 */
struct pg_target postgres_fixture_target(const struct postgres_fixture *fixture, size_t server,
                                         const char *user, const char *database);
/* As superuser in database "ordeal", waits for 20 s at most. PQfinish() it. */
PGconn *postgres_fixture_connect(const struct postgres_fixture *fixture, size_t server);
/* One statement as superuser; first column of the first row, NULL without one. Arena memory. */
const char *postgres_fixture_query(struct postgres_fixture *fixture, size_t server,
                                   const char *sql);
/* Wait for 20 s until the query gives this text. */
void postgres_fixture_wait(struct postgres_fixture *fixture, size_t server, const char *sql,
                           const char *expected);
/* pg_ctl start and stop ("fast", "immediate"), independent of the code under test. */
void postgres_fixture_start(const struct postgres_fixture *fixture, size_t server);
void postgres_fixture_stop(const struct postgres_fixture *fixture, size_t server, const char *mode);
/* A session as the agent of that server's node would have it. Arena memory of the fixture. */
const struct session *postgres_fixture_session(struct postgres_fixture *fixture, size_t server);
/*
 * Call a method of the agent on that server's session, as a job would: parameters checked against
 * its table, its default timeout. Takes params (NULL: {}); "run" is added where the method wants
 * it.
 */
MUST_CHECK enum status postgres_fixture_try(struct postgres_fixture *fixture, size_t server,
                                            const char *method, json_t *params, json_t **ret_result,
                                            struct error *err);
/* The same; a failure fails the test. json_decref() the result. */
json_t *postgres_fixture_call(struct postgres_fixture *fixture, size_t server, const char *method,
                              json_t *params);
/* True when this host can run it (root, the programs, user postgres); else why not. */
bool postgres_fixture_possible(const char **ret_reason);

#endif
