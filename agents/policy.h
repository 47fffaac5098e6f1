/* SPDX-License-Identifier: MIT */
/*
 * What the owner of a node allows, in two files of the agent's state folder (docs/agent.md):
 * `policy` (JSON, read when the agent starts) bounds methods and holds, `halt` (any content) is the
 * lever: while it is there, nothing new is done to the node.
 */
#ifndef ORDEAL_AGENTS_POLICY_H
#define ORDEAL_AGENTS_POLICY_H

#include <jansson.h>
#include <stdint.h>

#include "lib/error.h"

enum { POLICY_HOLD_MAX_MS = 3600 * 1000 }; /* without a policy file */

struct policy {
    json_t *methods; /* names that are allowed; NULL: all */
    int64_t max_hold_ms;
};

/* Defaults when there is no file; a file that is wrong is an error. */
MUST_CHECK enum status policy_load(const char *state_folder, struct policy *ret_policy,
                                   struct error *err);
void policy_done(struct policy *policy);
/* STATUS_REFUSED says which rule forbids it. */
MUST_CHECK enum status policy_check(const struct policy *policy, const char *state_folder,
                                    const char *method, const json_t *params, struct error *err);

#endif
