/* SPDX-License-Identifier: MIT */
/*
 * How much was at stake: acknowledgements in the last second before each fault. An idle cluster
 * loses nothing, so a verdict on durability without exposure says nothing. The direct probes do not
 * count: they write whatever the load does.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_EXPOSURE_H
#define ORDEAL_ORCHESTRATOR_CHECKS_EXPOSURE_H

#include "orchestrator/checks/evidence.h"

struct exposure {
    size_t count;
    const struct evidence_fault **faults; /* those with a place on the client's clock */
    uint64_t *acked; /* by fault: acknowledged at the promised level in the second before f0 */
    uint64_t best;   /* of them */
};

struct exposure exposure_measure(const struct record *record, const struct evidence_faults *faults,
                                 enum ledger_level promised, struct arena *arena);
/* [{uid, fault, node, acked_last_second, standbys}] with the gaps that the run recorded. */
json_t *exposure_json(const struct record *record, const struct exposure *exposure);

#endif
