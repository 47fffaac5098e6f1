/* SPDX-License-Identifier: MIT */
/*
 * Writing a ledger (lib/ledger.h): one file, one worker, one child that makes it durable.
 *
 * A record is stored in a shared mapping of the file: from then on it survives the death of every
 * process of this node. The child runs fdatasync() at most every LEDGER_FLUSH_MS, since flushes
 * that compete with the WAL of a database on the same disk are what costs; and it keeps room
 * allocated ahead, so that the worker waits for a disk neither to write nor to grow.
 *
 * A disk that is full, or that fails, shows in ledger_writer_failed(). The worker then ends what is
 * under way, for which there is room, and begins nothing more.
 */
#ifndef ORDEAL_AGENTS_LOAD_LEDGER_WRITER_H
#define ORDEAL_AGENTS_LOAD_LEDGER_WRITER_H

#include "lib/ledger.h"

enum { LEDGER_FLUSH_MS = 5 };

/* The file grows by a whole number of pages that is a whole number of records. */
enum { LEDGER_STEP_RECORDS = 32768, LEDGER_STEP_SIZE = LEDGER_STEP_RECORDS * 72 };

struct ledger_writer;

/* A file that must not exist yet. Forks the flusher: call it before there are sockets to inherit.
 */
MUST_CHECK enum status ledger_writer_open(const char *path, const struct ledger_header *header,
                                          struct ledger_writer **ret_writer, struct error *err);
/* Seal and store a record; false, and nothing is stored, when the file has no room left. */
MUST_CHECK bool ledger_append(struct ledger_writer *writer, struct ledger_record record);
/* Position behind the last record. */
uint64_t ledger_writer_position(const struct ledger_writer *writer);
/* Is all before the position on the disk? */
bool ledger_writer_durable(const struct ledger_writer *writer, uint64_t position);
/* Ask for an event on the descriptor at the next flush; read it with ledger_writer_notified(). */
void ledger_writer_ask(struct ledger_writer *writer);
int ledger_writer_descriptor(const struct ledger_writer *writer);
void ledger_writer_notified(struct ledger_writer *writer);
/* Readable when the flusher is gone. */
int ledger_writer_flusher(const struct ledger_writer *writer);
/* Errno of what made the file end early, or 0. */
int ledger_writer_failed(const struct ledger_writer *writer);
/*
 * Everything durable, the room behind the last record given back, the flusher gone. STATUS_SYSTEM
 * when the end of the file is not known to be on the disk. Frees the writer in any case.
 */
MUST_CHECK enum status ledger_writer_close(struct ledger_writer *writer, int64_t deadline_ns,
                                           struct error *err);

#endif
