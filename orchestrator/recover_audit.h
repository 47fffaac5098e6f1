/* SPDX-License-Identifier: MIT */
/*
 * The audit of `ordeal recover`: for a run whose orchestrator died, and after what a run left was
 * removed by hand. Compares with what the agents kept from before that run; where nobody kept
 * anything, only what can be nobody else's is residue.
 */
#ifndef ORDEAL_ORCHESTRATOR_RECOVER_AUDIT_H
#define ORDEAL_ORCHESTRATOR_RECOVER_AUDIT_H

#include "topologies/topology.h"

/*
 * No run may be under way. Prints what is left with the commands that remove it, and forgets the
 * state from before where a node is clean, or, with `accept`, everywhere.
 */
MUST_CHECK enum status recover_audit(struct arena *arena, const struct topology *topology,
                                     bool accept, bool *ret_clean, struct error *err);

#endif
