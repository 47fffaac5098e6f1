/* SPDX-License-Identifier: MIT */
/*
 * The helper that undoes one fault: `ordeald --undo`, the record on its standard input. It exits
 * with 0 when the fault is undone; the last line of its standard output is the effect that it then
 * observed, or what went wrong.
 */
#ifndef ORDEAL_AGENTS_GUARDIAN_UNDO_H
#define ORDEAL_AGENTS_GUARDIAN_UNDO_H

#include "agents/guardian/guardian.h"

/* Start one attempt; the record's state becomes UNDOING, or FAILED when no helper can be started.
 */
void undo_start(struct guardian *guardian, struct record *record);
/* An attempt failed, or its end could not be written down: another follows after a pause. */
void undo_failed(struct guardian *guardian, struct record *record, const char *reason);
void undo_watch(struct guardian *guardian, struct record *record, struct watches *watches);
void undo_tick(struct guardian *guardian, struct record *record, int64_t now_ns);

#endif
