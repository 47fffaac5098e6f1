/* SPDX-License-Identifier: MIT */
/* What the two halves of the run builder share: planting (run_builder.c), the standard run. */
#ifndef ORDEAL_TESTS_SUPPORT_RUN_PARTS_H
#define ORDEAL_TESTS_SUPPORT_RUN_PARTS_H

#include "tests/support/run_builder.h"

struct run_node {
    const char *name;
    int64_t offset_s; /* of its clock to the orchestrator's */
};
extern const struct run_node run_nodes[RUN_NODES];

/* Place of a client in run->sequences. */
size_t run_client_index(uint32_t client);
size_t run_add_ledger(struct run_builder *run);
void run_append_token(struct run_present *set, struct run_token token);

#endif
