/* SPDX-License-Identifier: MIT */
/*
 * The records of open faults and what happens to each of them.
 *
 *     OPENING -> ARMED -> INJECTED -> (KILLING) -> UNDOING -> CLOSING -> free
 *                  \__________________/               \-> FAILED -> UNDOING ...
 *
 * A record leaves the table only when its closing line is durable. Undoing begins with the death of
 * the injector when that may still be at work.
 */
#ifndef ORDEAL_AGENTS_GUARDIAN_RECORDS_H
#define ORDEAL_AGENTS_GUARDIAN_RECORDS_H

#include "agents/guardian/guardian.h"

/* "armed" ... */
const char *record_state_name(enum record_state state);
struct record *records_find(struct guardian *guardian, const char *uid);
/* True when the record is of this run; run "*" is every run's. */
bool record_of_run(const struct record *record, const char *run);

/* Take over what the journal says is open, from before this guardian. */
MUST_CHECK enum status records_replay(struct guardian *guardian, struct error *err);
/* `injector` is a pidfd that the record takes over. */
MUST_CHECK enum status records_open(struct guardian *guardian, const char *uid, int64_t lease_ms,
                                    const char *text, int injector, struct error *err);
void record_injected(struct guardian *guardian, struct record *record);
void record_renew(struct guardian *guardian, struct record *record, int64_t lease_ms);
void record_close(struct guardian *guardian, struct record *record, const char *effect);
/* Begin, or try again at once. `who`: agent, lease, death, boot, restart. */
void record_undo(struct guardian *guardian, struct record *record, const char *who);
void records_undo_all(struct guardian *guardian, const char *who);
/* The writer made a line durable, or could not (errnum). */
void records_written(struct guardian *guardian, enum journal_kind kind, const char *uid,
                     int errnum);
/* Every open record had its first attempt: the agent may start. */
bool records_settled(const struct guardian *guardian);
size_t records_count(const struct guardian *guardian);

void records_watch(struct guardian *guardian, struct watches *watches);
void records_tick(struct guardian *guardian, int64_t now_ns);

#endif
