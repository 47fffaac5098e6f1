/* SPDX-License-Identifier: MIT */
/*
 * The topology's power driver: three programs that take a node away and bring it back. Only the
 * power agent has them.
 */
#ifndef ORDEAL_AGENTS_POWER_H
#define ORDEAL_AGENTS_POWER_H

#include "agents/session.h"

struct power {
    const char *const *off, *const *cut, *const *on; /* argv arrays; NULL: not there */
    size_t peer_count;
    const struct fault_peer *peers; /* the nodes that it may be used on */
};

struct power power_of_session(const struct session *session);
/*
 * Run the program for `word` with "{node}" replaced; returns when it has ended, which is when the
 * node is in that state. `argument` is a struct power: this is fault_context.power.
 */
enum status power_call(void *argument, const char *word, const char *node, int64_t deadline_ns,
                       struct error *err);

#endif
