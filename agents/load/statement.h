/* SPDX-License-Identifier: MIT */
/*
 * The texts that a client sends, built in one buffer that is made once a worker.
 *
 * A transaction takes two round trips: begin and insert, then COMMIT. The first answers with the
 * position and the timeline that it wrote to and with the durability in force, so that an outcome
 * is placed exactly, also on a connection that was made before its node was promoted or before a
 * setting was changed.
 */
#ifndef ORDEAL_AGENTS_LOAD_STATEMENT_H
#define ORDEAL_AGENTS_LOAD_STATEMENT_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/arena.h"

struct statement {
    char *text;
    size_t room, length;
};

/* What must be known of a session before it is used. */
#define STATEMENT_SETUP                                                                            \
    "SET client_min_messages = warning;"                                                           \
    "SELECT pg_catalog.current_setting('client_min_messages'),"                                    \
    " pg_catalog.current_setting('synchronous_commit'), pg_catalog.pg_is_in_recovery(),"           \
    " CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN"                                           \
    " pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()) END"

/*
 * What is in force for the COMMIT that follows. Triggers may set it for their transaction alone, at
 * the end of their statement or, when deferred, at the commit itself: those are made to run first.
 */
#define STATEMENT_IN_FORCE                                                                         \
    ";SET CONSTRAINTS ALL IMMEDIATE;SELECT pg_catalog.pg_current_wal_insert_lsn(),"                \
    "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()),"                                 \
    "pg_catalog.current_setting('synchronous_commit'),"                                            \
    "pg_catalog.current_setting('client_min_messages')"

/* For transactions of at most `rows` rows with `payload` bytes each. */
void statement_init(struct statement *statement, struct arena *arena, unsigned rows,
                    unsigned payload);
/* Rows are numbered from 1; their payload follows from client, token and row alone. */
const char *statement_insert(struct statement *statement, bool rollback_first, uint64_t client,
                             uint64_t seq, unsigned rows, unsigned payload);
/* Two tokens to read back; a token of client 0 is none. */
const char *statement_read(struct statement *statement, const uint64_t clients[2],
                           const uint64_t seqs[2]);
/* Timeline in the first eight digits of a WAL file's name; 0 when it is none. */
uint32_t statement_timeline(const char *walfile);

#endif
