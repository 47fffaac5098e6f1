/* SPDX-License-Identifier: MIT */
/*
 * Times at which a load worker did not run. Workers write a beat every 50 ms; a longer silence
 * means that nobody probed or measured, whatever the cluster did then.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_BLIND_H
#define ORDEAL_ORCHESTRATOR_CHECKS_BLIND_H

#include "orchestrator/record.h"

struct blind {
    uint64_t count;
    int64_t longest_ns, at_ns; /* of the longest one, when it began */
    const char *path;          /* ledger of the longest one */
};

/*
 * Silences longer than `limit_ns` that touch [from, to], of workers that have a client with one of
 * `roles` (1 << enum ledger_role). A worker without any beat is one silence.
 */
struct blind blind_find(const struct record *record, unsigned roles, int64_t from_ns, int64_t to_ns,
                        int64_t limit_ns);
/* The first and last instant at which any worker ran; false without a beat. */
bool blind_span(const struct record *record, int64_t *ret_from_ns, int64_t *ret_to_ns);

#endif
