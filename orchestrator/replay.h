/* SPDX-License-Identifier: MIT */
/*
 * A recorded run done again: the same steps on the same nodes at the same offsets with the same
 * seeds, whatever the scenario's targets would give today. All of it comes from the run directory.
 *
 *     struct replay replay = {.record = record, .topology = topology};
 *     replay_check(&replay, err)               is it possible at all?
 *     replay_place(&replay, &state, false, err)   are the roles where they were?
 *     replay_write(&replay, arena, path, err)  a scenario file with everything pinned
 *
 * What would make it another experiment (a node that is gone, a primary elsewhere, a step that did
 * not begin then) is refused; what may change the outcome all the same (another version, another
 * promise) is listed as a difference.
 */
#ifndef ORDEAL_ORCHESTRATOR_REPLAY_H
#define ORDEAL_ORCHESTRATOR_REPLAY_H

#include "orchestrator/record.h"
#include "orchestrator/scenario.h"

struct replay {
    const struct record *record;
    const struct topology *topology;
    json_t *nodes;       /* name then -> name now, where they differ; owned */
    json_t *differences; /* array of texts; owned */
};

void replay_done(struct replay *replay);
/* STATUS_REFUSED names what is not there any more. */
MUST_CHECK enum status replay_check(struct replay *replay, struct error *err);
/*
 * STATUS_REFUSED when a role is on another node than when the run began. With `follow` the primary
 * of today takes the place of the primary of then, and the other way round.
 */
MUST_CHECK enum status replay_place(struct replay *replay, const struct ha_state *state,
                                    bool follow, struct error *err);
MUST_CHECK enum status replay_write(const struct replay *replay, const char *path,
                                    struct error *err);
/* After it was read back: what of the scenario did not survive becomes a difference. */
void replay_compare_scenario(struct replay *replay, const struct scenario *scenario);
/* Member `replays` of event run.start. */
json_t *replay_json(const struct replay *replay);
/*
 * Do the two schedules agree, line by line, with the nodes of then as they are named now? The first
 * line that does not goes to `difference`.
 */
MUST_CHECK enum status replay_compare(const struct replay *replay, const char *folder,
                                      bool *ret_same, struct buffer *difference, struct error *err);

#endif
