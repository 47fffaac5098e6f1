/* SPDX-License-Identifier: MIT */
/*
 * Where the tokens that are missing stood in the log, and who had seen them.
 *
 * A failover may cost exactly the tail of the old timeline: what was committed after the point at
 * which the new one forked off. Anything else that is missing was lost inside the part that the
 * final primary did copy, which is corruption. A commit's position is known as an interval: `lo`
 * was read inside its transaction, `hi` is the next position that the same client read on the same
 * timeline.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_LOSS_H
#define ORDEAL_ORCHESTRATOR_CHECKS_LOSS_H

#include "orchestrator/checks/tokens.h"

struct loss {
    uint64_t tail;          /* acknowledged, absent, may lie behind the fork */
    uint64_t misplaced;     /* acknowledged, absent, certainly before the fork or on the final
                               timeline itself */
    uint64_t branch;        /* acknowledged on a timeline that is no ancestor of the final one */
    uint64_t unplaced;      /* acknowledged, absent, position not recorded */
    uint64_t present_after; /* present, though certainly written behind the fork */
    uint64_t rpo_bytes;     /* at least: highest lost position minus the end of its timeline */
    int64_t oldest_ack_ns;  /* of the acknowledged and absent ones; 0 when there are none */
    uint64_t by_level[LEDGER_REMOTE_APPLY + 1]; /* acknowledged and absent, by level in force */
    struct {
        uint32_t client, timeline;
        uint64_t seq, lsn;
    } example; /* the oldest of them */
};

/* The final primary's present set must be marked. Sets TOKEN_BEFORE_FORK and TOKEN_READ_*. */
void loss_examine(struct tokens *tokens, const struct evidence_history *history,
                  struct loss *ret_loss);

#endif
