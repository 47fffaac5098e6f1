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

struct journal;

/* `watch` is told of every event after it is written (the live view); may be NULL. */
MUST_CHECK enum status journal_open(const char *folder,
                                    void (*watch)(void *argument, const json_t *event),
                                    void *argument, struct journal **ret_journal,
                                    struct error *err);
void journal_close(struct journal *journal); /* NULL is allowed; makes the files durable */
/* Takes `members` (NULL: none). */
void journal_event(struct journal *journal, const char *event, json_t *members);
void journal_note(struct journal *journal, const char *format, ...) PRINTF_LIKE(2, 3);
/* Offsets in schedule.txt count from this call. */
void journal_method_begins(struct journal *journal);
void journal_schedule(struct journal *journal, const char *step, const char *action,
                      const char *fault, const char *node, const json_t *params);
/* STATUS_OK while every line was written. */
MUST_CHECK enum status journal_failure(const struct journal *journal, struct error *err);

#endif
