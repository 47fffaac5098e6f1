/* SPDX-License-Identifier: MIT */
/*
 * The plan of a method: when each step starts and ends if everything takes no longer than it must,
 * and which steps would exclude each other.
 */
#ifndef ORDEAL_ORCHESTRATOR_PLAN_H
#define ORDEAL_ORCHESTRATOR_PLAN_H

#include "orchestrator/scenario.h"
#include "topologies/ha/ha.h"

struct plan_span {
    int64_t start_ms, end_ms; /* from the start of the method */
};

/* STATUS_INVALID when steps wait for each other in a circle; the message names one of them. */
MUST_CHECK enum status plan_spans(struct arena *arena, const struct scenario *scenario,
                                  struct plan_span **ret_spans, struct error *err);
/* What is wrong with the steps taken together goes to `errors`. */
void plan_check(struct arena *arena, const struct scenario *scenario, struct yaml_errors *errors);
/*
 * Lines for `ordeal plan`: timeline, targets as they would be now, undo, what can be lost.
 * `state` NULL: without a cluster. STATUS_REFUSED when two steps would exclude each other on a
 * node, STATUS_NOT_FOUND when a target is empty.
 */
MUST_CHECK enum status plan_text(struct arena *arena, const struct scenario *scenario,
                                 const struct topology *topology, const struct ha_state *state,
                                 uint64_t seed, struct buffer *text, struct error *err);
/* Lines above the plans: the cluster as it is now, and whose work it is to keep it alive. */
void plan_cluster(const struct topology *topology, const struct ha_state *state,
                  struct buffer *text);
/* Does the step take a node away or bring it back? */
bool plan_needs_power(const struct step *step);

#endif
