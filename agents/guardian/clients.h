/* SPDX-License-Identifier: MIT */
/*
 * The guardian's socket: the agent and its injectors ask, one request at a time a connection
 * (docs/formats.md, "Guardian protocol").
 */
#ifndef ORDEAL_AGENTS_GUARDIAN_CLIENTS_H
#define ORDEAL_AGENTS_GUARDIAN_CLIENTS_H

#include "agents/guardian/guardian.h"

MUST_CHECK enum status clients_listen(struct guardian *guardian, struct error *err);
void clients_watch(struct guardian *guardian, struct watches *watches);
/* Something about the record changed: tell those that watch, answer those that wait. */
void clients_changed(struct guardian *guardian, const struct record *record);
/* It is closed durably and gone from the table. */
void clients_closed(struct guardian *guardian, const struct record *record, int64_t at_ns);
/* The answer to `open`. `error` NULL: durable. False when nobody waits for it any more. */
bool clients_opened(struct guardian *guardian, const struct record *record, const char *error);

#endif
