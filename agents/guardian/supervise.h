/* SPDX-License-Identifier: MIT */
/* The agent as a child of the guardian: started, watched, started again with growing pauses. */
#ifndef ORDEAL_AGENTS_GUARDIAN_SUPERVISE_H
#define ORDEAL_AGENTS_GUARDIAN_SUPERVISE_H

#include "agents/guardian/guardian.h"

void supervise_watch(struct guardian *guardian, struct watches *watches);
void supervise_tick(struct guardian *guardian, int64_t now_ns);
/* SIGTERM to the agent; SIGKILL when it takes too long. */
void supervise_stop(struct guardian *guardian);

#endif
