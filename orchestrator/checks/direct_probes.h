/* SPDX-License-Identifier: MIT */
/*
 * When each node was being probed directly: the times at which an attempt was under way, over all
 * its probes. What lies between them nobody saw.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_DIRECT_PROBES_H
#define ORDEAL_ORCHESTRATOR_CHECKS_DIRECT_PROBES_H

#include "orchestrator/checks/walk.h"

struct direct_probes;

struct direct_probes *direct_probes_new(struct arena *arena);
/* Any record of a client with role LEDGER_DIRECT. */
void direct_probes_add(struct direct_probes *probes, const struct walk *walk);
/* Once, after the last record and before the questions. */
void direct_probes_sort(struct direct_probes *probes);
/* Median time between the begins of attempts on one node; 0 without attempts. */
int64_t direct_probes_spacing(const struct direct_probes *probes);
/* The longest time within [from, to] in which no attempt on a node was under way. */
int64_t direct_probes_pause(const struct direct_probes *probes, uint16_t node, int64_t from_ns,
                            int64_t to_ns);

#endif
