/* SPDX-License-Identifier: MIT */
/*
 * The record of a fault as it stands in the journal: all that a fresh process needs to observe and
 * undo it (docs/formats.md).
 */
#ifndef ORDEAL_AGENTS_FAULT_RECORD_H
#define ORDEAL_AGENTS_FAULT_RECORD_H

#include "agents/power.h"
#include "agents/session.h"
#include "faults/fault.h"

/* What a fault may know of this node, as JSON. */
json_t *fault_context_json(const struct session *session);
/* `power` is filled and must live as long as the context. */
MUST_CHECK enum status fault_context_read(struct arena *arena, const json_t *json, const char *uid,
                                          int64_t deadline_ns, struct power *power,
                                          struct fault_context *ret_context, struct error *err);

struct fault_record {
    const char *uid, *run;
    const struct fault *fault;
    const json_t *params, *record;
    struct power power;
    struct fault_context context;
};

/* Takes `params` and `record`. */
json_t *fault_record_json(const struct session *session, const char *uid, const struct fault *fault,
                          json_t *params, json_t *record, int64_t hold_ms);
/* `json` must live as long as the arena and what is filled. */
MUST_CHECK enum status fault_record_read(struct arena *arena, const json_t *json,
                                         int64_t deadline_ns, struct fault_record *ret_record,
                                         struct error *err);

/* What the journal says of a fault. */
struct fault_history {
    json_t *json; /* the record; the caller owns it */
    bool closed;
    int64_t closed_ns;
    char by[16], state[16];
};

/* STATUS_NOT_FOUND when the journal does not know it. */
MUST_CHECK enum status fault_history_find(const char *state_folder, const char *uid,
                                          struct fault_history *ret_history, struct error *err);

/*
 * Observe again and again until the effect is `wanted` or the deadline passes. The last observation
 * counts; its numbers are the caller's. `ret_seen_ns`: when an effect (active or partial) was first
 * seen, 0: never; may be NULL.
 */
MUST_CHECK enum status fault_observe_until(const struct fault_record *record, enum effect wanted,
                                           int64_t deadline_ns, int64_t *ret_seen_ns,
                                           struct observation *ret_observation, struct error *err);
/* {state, text, numbers}; takes the numbers. */
json_t *observation_json(struct observation *observation);

/* `ordeald --undo`: the record on stdin; the exit code. */
int fault_undo_main(void);

#endif
