/* SPDX-License-Identifier: MIT */
/*
 * What must be true of settings before a run may begin, as pure functions of what the nodes answer.
 * preflight_run() (engine_state.h) asks the nodes and applies these.
 */
#ifndef ORDEAL_ORCHESTRATOR_PREFLIGHT_H
#define ORDEAL_ORCHESTRATOR_PREFLIGHT_H

#include <jansson.h>
#include <stdbool.h>

#include "lib/error.h"

/* Is this synchronous_commit weaker than the promise ("quorum", "local", "none")? */
bool preflight_weaker(const char *synchronous_commit, const char *promise);
/*
 * A sync set that names a wildcard or a standby twice says nothing about who acknowledged.
 * STATUS_REFUSED with the reason. Names are compared without regard to case, as PostgreSQL does.
 */
MUST_CHECK enum status preflight_sync_set(const char *sync_set, const char *promise,
                                          struct error *err);

#endif
