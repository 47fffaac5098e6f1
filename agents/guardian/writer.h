/* SPDX-License-Identifier: MIT */
/*
 * The child that writes the journal, so that the guardian's poll loop never waits for a disk.
 *
 * Lines are written and made durable in order, one at a time. A writer that dies is replaced, and
 * what it had not confirmed is written again: a line that stands twice says nothing new.
 */
#ifndef ORDEAL_AGENTS_GUARDIAN_WRITER_H
#define ORDEAL_AGENTS_GUARDIAN_WRITER_H

#include "agents/guardian/guardian.h"

MUST_CHECK enum status writer_start(struct guardian *guardian, struct error *err);
/* Queue a line; records_written() is called once it is durable or has failed. */
void writer_append(struct guardian *guardian, const struct journal_line *line);
void writer_watch(struct guardian *guardian, struct watches *watches);
void writer_stop(struct guardian *guardian); /* waits for what is queued, at most 2 s */

#endif
