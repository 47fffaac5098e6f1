/* SPDX-License-Identifier: MIT */
/*
 * A look at every database node without blocking: the steps of a method start while the HA
 * manager's runbook holds the thread of control.
 */
#ifndef ORDEAL_ORCHESTRATOR_SURVEY_H
#define ORDEAL_ORCHESTRATOR_SURVEY_H

#include "topologies/ha/ha.h"

/* `state` is valid for the time of the call. */
typedef void survey_done(void *argument, const struct ha_state *state);

/* Calls `done` once, from the loop, when every node has answered or its deadline has passed. */
void survey_start(struct cluster *cluster, const struct topology *topology, int64_t timeout_ms,
                  survey_done *done, void *argument);
/* Bytes of WAL that a standby has not received, by the primary's position; -1: not known. */
int64_t survey_gap_bytes(const struct ha_state *state, const struct ha_member *standby);
/* Event `member` of the journal for one member. */
json_t *survey_member_json(const struct ha_member *member);

#endif
