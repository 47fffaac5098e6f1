/* SPDX-License-Identifier: MIT */
/*
 * A forked worker inherits every descriptor of the agent: its listener, the orchestrator's
 * connection, the guardian's socket, whose end means that the agent died. It must keep none.
 */
#ifndef ORDEAL_AGENTS_LOAD_DESCRIPTORS_H
#define ORDEAL_AGENTS_LOAD_DESCRIPTORS_H

#include <stddef.h>

/* Close all above 2 but these. */
void descriptors_close_all_but(const int *kept, size_t count);

#endif
