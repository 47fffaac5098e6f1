/* SPDX-License-Identifier: MIT */
/*
 * Writer of a run directory's journal.ndjson and schedule.txt (docs/formats.md). Each line is given
 * to the kernel before the call returns, so that it survives the death of this process. A line that
 * cannot be written (disk full) is remembered: the run must end, and says why.
 */
#ifndef ORDEAL_ORCHESTRATOR_JOURNAL_H
#define ORDEAL_ORCHESTRATOR_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"
#include "lib/loop.h"

struct journal;

/* `error` is NULL when the events are durable. */
typedef void journal_synced(void *argument, const struct error *error);

/* `watch` is told of every event after it is written (the live view); may be NULL. */
MUST_CHECK enum status journal_open(const char *folder,
                                    void (*watch)(void *argument, const json_t *event),
                                    void *argument, struct journal **ret_journal,
                                    struct error *err);
/* Goes on with the journal of a run that died; `sequence` is that of its last event. */
MUST_CHECK enum status journal_reopen(const char *folder, int64_t sequence,
                                      void (*watch)(void *argument, const json_t *event),
                                      void *argument, struct journal **ret_journal,
                                      struct error *err);
/* Before the loop is freed: nobody is told any more. */
void journal_leave_loop(struct journal *journal);
/* NULL is allowed; makes the files durable. */
void journal_close(struct journal *journal);
/* Takes `members` (NULL: none). */
void journal_event(struct journal *journal, const char *event, json_t *members);
void journal_note(struct journal *journal, const char *format, ...) PRINTF_LIKE(2, 3);
/* One line of schedule.txt; `offset_ms` from the start of the method. */
void journal_schedule(struct journal *journal, int64_t offset_ms, const char *step,
                      const char *action, const char *fault, const char *node,
                      const json_t *params);
/*
 * Once every event so far is on the disk, or cannot be: `done` is called from the loop, which never
 * waits for the disk itself. What changes a node is sent after that answer.
 */
void journal_sync(struct journal *journal, struct loop *loop, journal_synced *done, void *argument);
/* STATUS_OK while every line was written. */
MUST_CHECK enum status journal_failure(const struct journal *journal, struct error *err);

#endif
