/* SPDX-License-Identifier: MIT */
/*
 * What became of each class of outcome. An odd token counts in its
 * own column only, so that one defect is one finding.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_TOKEN_COUNTS_H
#define ORDEAL_ORCHESTRATOR_CHECKS_TOKEN_COUNTS_H

#include "orchestrator/checks/tokens.h"

struct token_counts {
    uint64_t acked, weak, in_doubt, aborted, unsent; /* tokens of each class */
    uint64_t in_doubt_present, weak_lost;
    uint64_t below_promise, below_promise_lost; /* of acked, of lost */
    uint64_t unlevelled;  /* of acked and weak: durability in force not known */
    uint64_t lost;        /* acked, absent */
    uint64_t lost_read;   /* of lost: somebody had read them */
    uint64_t vanished;    /* not acked, read, absent, and no failover excuses it */
    uint64_t exposed;     /* not acked, read before they were replicated, absent */
    uint64_t resurrected; /* aborted or unsent, present */
    uint64_t duplicate, torn, garbage;
    uint64_t standby_differences;
};

/* `judged`: a present set was marked; without one nothing counts as absent. */
void token_counts_add(struct token_counts *counts, const uint64_t *histogram, bool judged);
void token_counts_add_odd(struct token_counts *counts, const struct present *present);
/* The object `ledger` of result.json. */
json_t *token_counts_json(const struct token_counts *counts, bool judged);

#endif
