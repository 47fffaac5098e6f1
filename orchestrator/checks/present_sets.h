/* SPDX-License-Identifier: MIT */
/*
 * The present sets of a run: which event names them, whether they are what the event says, and how
 * two of them differ.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_PRESENT_SETS_H
#define ORDEAL_ORCHESTRATOR_CHECKS_PRESENT_SETS_H

#include "orchestrator/checks/evidence.h"
#include "orchestrator/checks/tokens.h"

/* The last event "present" of a node, or of the primary (node NULL); NULL when there is none. */
const json_t *present_event(const struct record *record, const char *node);
/* Load the file of such an event; STATUS_INVALID when it contradicts the event or the run. */
MUST_CHECK enum status present_read(const struct record *record, const json_t *event,
                                    struct arena *arena, struct present *ret_present,
                                    struct error *err);

struct present_difference {
    uint64_t missing;       /* tokens of the primary that the other one lacks */
    uint64_t missing_acked; /* of those, acknowledged */
    uint64_t extra;         /* tokens that only the other one holds */
    uint64_t odd;           /* odd tokens of the other that are not odd in the same way here */
};
struct present_difference present_compare(const struct tokens *tokens,
                                          const struct present *primary,
                                          const struct present *other);

#endif
