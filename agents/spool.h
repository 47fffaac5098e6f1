/* SPDX-License-Identifier: MIT */
/* The spool of a run: a flat folder of files below the state folder (docs/formats.md). */
#ifndef ORDEAL_AGENTS_SPOOL_H
#define ORDEAL_AGENTS_SPOOL_H

#include "lib/error.h"

/* Remove the spool of a run with everything in it; fine when it is not there. */
MUST_CHECK enum status spool_remove(const char *state_folder, const char *run, struct error *err);
/* A plain file name: no '/', no leading '.'. */
MUST_CHECK enum status spool_check_name(const char *name, struct error *err);

#endif
