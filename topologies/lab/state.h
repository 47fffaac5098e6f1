/* SPDX-License-Identifier: MIT */
/*
 * The state folder of a lab, LAB_ROOT/NAME: images of the volumes, certificates, the control
 * socket, lab.json (who the supervisor is) and, once the lab is up, topology.yaml.
 *
 * The folder itself is the lock: `up` and `down` hold it with flock(2) while they work, so that a
 * lock never outlives the process that held it. It is made first and removed last.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_STATE_H
#define ORDEAL_TOPOLOGIES_LAB_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/arena.h"
#include "lib/error.h"
#include "lib/process.h"

const char *lab_path(struct arena *arena, const char *name, const char *below);

/* Make the folder and lock it; STATUS_EXISTS when there is one. The lock ends with the fd. */
MUST_CHECK enum status state_create(const char *name, int *ret_lock, struct error *err);
/*
 * Lock what is there; STATUS_NOT_FOUND when there is none, STATUS_CONFLICT when another process
 * still holds it at the deadline.
 */
MUST_CHECK enum status state_lock(const char *name, int64_t deadline_ns, int *ret_lock,
                                  struct error *err);
/* Remove the folder, and its parents when they are empty. */
MUST_CHECK enum status state_remove(const char *name, struct error *err);

struct lab_state {
    struct process_id supervisor;
    char boot_id[40];
    int64_t started_ns; /* boot clock */
    char nodes[512];    /* names, each followed by a blank */
    bool alive, up;     /* the supervisor lives; topology.yaml is there, too */
};

MUST_CHECK enum status state_write(const char *name, const struct lab_state *state,
                                   struct error *err);
/* STATUS_NOT_FOUND when there is no such lab or its lab.json was never written. */
MUST_CHECK enum status state_read(const char *name, struct lab_state *ret_state, struct error *err);

#endif
