/* SPDX-License-Identifier: MIT */
/*
 * Physical replication slots on any server of the topology.
 */
#ifndef ORDEAL_AGENTS_POSTGRES_SLOTS_H
#define ORDEAL_AGENTS_POSTGRES_SLOTS_H

#include <libpq-fe.h>
#include <stdint.h>

#include "lib/error.h"

/* Make a physical slot with WAL reserved at once; fine when it is there. */
MUST_CHECK enum status postgres_slot_ensure(PGconn *connection, const char *name,
                                            int64_t deadline_ns, struct error *err);

#endif
