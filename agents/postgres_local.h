/* SPDX-License-Identifier: MIT */
/*
 * What the methods that control PostgreSQL share: control sessions, programs run as the owner of
 * the data folder, connection strings, and the facts that are on disk.
 *
 * A control session never waits for standbys (synchronous_commit = local): what Ordeal does to a
 * cluster must not hang because the quorum is gone. Passwords go from file to file (a passfile that
 * only the owner can read) and never into arguments or settings.
 */
#ifndef ORDEAL_AGENTS_POSTGRES_LOCAL_H
#define ORDEAL_AGENTS_POSTGRES_LOCAL_H

#include "agents/method.h"
#include "lib/buffer.h"
#include "lib/pg_processes.h"
#include "lib/process.h"

/* Superuser on `address` (NULL: this node) in `database` (NULL: the session's default). */
MUST_CHECK enum status postgres_connect(const struct session *session, const char *address,
                                        const char *database, int64_t deadline_ns,
                                        PGconn **ret_connection, struct error *err);
/* First column of the first row, parsed; json_decref() it. */
MUST_CHECK enum status postgres_query_json(PGconn *connection, const char *sql, int64_t deadline_ns,
                                           json_t **ret_json, struct error *err);
/* Is this server in recovery? */
MUST_CHECK enum status postgres_in_recovery(PGconn *connection, int64_t deadline_ns,
                                            bool *ret_in_recovery, struct error *err);

/* Between two looks at a condition: waits 10 ms; false when the deadline has passed. */
bool postgres_wait_turn(int64_t deadline_ns);
/* The earlier of the deadline and `ms` from now. */
int64_t postgres_deadline(int64_t deadline_ns, int64_t ms);

const char *postgres_program(struct arena *arena, const struct session *session, const char *name);
/* Run to the end as the data folder's owner, LC_ALL=C and PGPASSFILE set when there is one. */
MUST_CHECK enum status postgres_run(const struct session *session, const char *const *argv,
                                    const char *passfile, int64_t deadline_ns,
                                    struct process_result *ret_result, struct error *err);
/* Folder that holds the data folder. */
const char *postgres_parent(struct arena *arena, const struct session *session);
/* Slot name of a node: "-" turned into "_". */
const char *postgres_slot_name(struct arena *arena, const char *node);
/* Node of the session by name; STATUS_NOT_FOUND. */
MUST_CHECK enum status postgres_peer(const struct session *session, const char *name,
                                     const struct fault_peer **ret_peer, struct error *err);
/*
 * Write the passfile (superuser and replication user, any host) beside the data folder, 0600,
 * owned by the data folder's owner.
 */
MUST_CHECK enum status postgres_passfile(struct arena *arena, const struct session *session,
                                         const char **ret_path, struct error *err);
/* The same under another name, for a program that is run now; to be unlinked after it. */
MUST_CHECK enum status postgres_passfile_once(struct arena *arena, const struct session *session,
                                              const char **ret_path, struct error *err);
/*
 * Connection string to a peer for a program or for primary_conninfo; without a password.
 * `application` NULL: the node's name, by which the primary's sync set knows it.
 */
const char *postgres_conninfo(struct arena *arena, const struct session *session,
                              const struct fault_peer *peer, enum session_user user,
                              const char *application, const char *passfile);
/* Create (or empty) a file that belongs to the data folder's owner, 0600, and sync it. */
MUST_CHECK enum status postgres_write_file(const struct session *session, const char *path,
                                           const char *text, size_t length, struct error *err);
MUST_CHECK enum status postgres_owner(const struct session *session, uid_t *ret_uid, gid_t *ret_gid,
                                      struct error *err);

/* Line `number` (from 1) of a small file, without its end; false when there is none. */
bool postgres_file_line(const char *path, int number, char *line, size_t size);

/* Refuses (STATUS_REFUSED) when any process of the server is alive. */
MUST_CHECK enum status postgres_require_stopped(const struct session *session, struct error *err);
/* After a kill: until the postmaster named in the pid file is no zombie any more. */
MUST_CHECK enum status postgres_wait_reaped(const struct session *session, int64_t deadline_ns,
                                            struct error *err);
/* The postmaster when it is alive, else NULL. */
const struct pg_process *postgres_postmaster(const struct pg_processes *processes);

/* Facts of pg_controldata. */
struct postgres_control {
    const char *state, *system_identifier; /* "in production" */
    uint32_t timeline;                     /* greater of checkpoint and minimum recovery end */
    uint64_t lsn;                          /* greater of the same two positions */
    bool checksums;
};
MUST_CHECK enum status postgres_control(struct arena *arena, const struct session *session,
                                        int64_t deadline_ns, struct postgres_control *ret_control,
                                        struct error *err);
/* History of a timeline from pg_wal: [{timeline, lsn}], empty for the first or an absent file. */
json_t *postgres_history(const struct session *session, uint32_t timeline);
/*
 * Highest timeline of which pg_wal has the segment that ends at or holds `lsn`; 0 when there is
 * none.
 */
uint32_t postgres_segment_timeline(const struct session *session, uint64_t lsn,
                                   uint64_t segment_bytes);

#endif
