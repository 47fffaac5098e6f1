/* SPDX-License-Identifier: MIT */
/*
 * The spool of a run: a folder of files below the state folder, with one folder in it for ledgers
 * (docs/formats.md).
 */
#ifndef ORDEAL_AGENTS_SPOOL_H
#define ORDEAL_AGENTS_SPOOL_H

#include "lib/error.h"

/* Remove the spool of a run with everything in it; fine when it is not there. */
MUST_CHECK enum status spool_remove(const char *state_folder, const char *run, struct error *err);
/* A session that wrote nothing (a plan, an inspection) leaves no folder behind. */
void spool_remove_empty(const char *state_folder, const char *run);
/* A plain file name, or one below "ledger/": no other '/', no leading '.'. */
MUST_CHECK enum status spool_check_name(const char *name, struct error *err);

#endif
