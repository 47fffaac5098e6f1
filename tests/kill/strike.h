/* SPDX-License-Identifier: MIT */
/* Who dies, and how. */
#ifndef ORDEAL_TESTS_KILL_STRIKE_H
#define ORDEAL_TESTS_KILL_STRIKE_H

#include "lib/process.h"
#include "tests/kill/cell.h"

/* `orchestrator` is reaped when it is the victim. */
MUST_CHECK enum status strike(struct rig *rig, enum victim victim, struct process *orchestrator,
                              struct error *err);
/* What the strike took from others than the product: the network comes back. */
MUST_CHECK enum status strike_heal(const struct rig *rig, enum victim victim, struct error *err);

#endif
