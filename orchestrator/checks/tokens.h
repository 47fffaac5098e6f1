/* SPDX-License-Identifier: MIT */
/*
 * Every token of a run, merged from all ledgers, and the set that a node really holds marked in it.
 *
 * A token has two bytes in an array per client, so that merging and comparing are linear passes
 * over flat memory with nothing allocated per token.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_TOKENS_H
#define ORDEAL_ORCHESTRATOR_CHECKS_TOKENS_H

#include "orchestrator/checks/evidence.h"
#include "orchestrator/checks/walk.h"

enum { /* low bits of a token's state */
       TOKEN_NONE = 0,
       TOKEN_ACKED,
       TOKEN_WEAK,
       TOKEN_IN_DOUBT,
       TOKEN_ABORTED,
       TOKEN_UNSENT,
       TOKEN_INTENT, /* no outcome: in doubt */
       TOKEN_CLASS_MASK = 7
};

enum {                             /* flags of a token's state */
       TOKEN_BELOW = 1 << 3,       /* acknowledged below the topology's promise */
       TOKEN_UNLEVELLED = 1 << 4,  /* acknowledged, durability in force not known */
       TOKEN_READ = 1 << 5,        /* somebody read it */
       TOKEN_PRESENT = 1 << 6,     /* the final primary holds it, once and whole */
       TOKEN_ODD = 1 << 7,         /* the final primary holds it otherwise */
       TOKEN_BEFORE_FORK = 1 << 8, /* committed, if at all, before its timeline ended */
       TOKEN_READ_LEGIT = 1 << 9,  /* read on a node that was the writer at that time */
       TOKEN_READ_FINAL = 1 << 10, /* read on the final timeline */
       TOKEN_STATES = 1 << 11
};

struct token_list {  /* of one client */
    uint16_t *state; /* by sequence; [0] is not used */
    uint64_t highest, room;
    uint64_t reserved; /* highest token that the worker may have sent */
};

struct tokens {
    struct walk walk; /* at its end; its slots index `lists` */
    size_t list_count, list_room;
    struct token_list *lists;
    uint64_t contradictions; /* a second and different outcome, an acknowledgement without intent */
    uint64_t impossible;     /* sequences that no ledger of this size can hold */
    uint64_t reads;          /* records that say that a token was read */
    uint64_t garbage_reads;  /* a token read that nobody attempted */
    size_t timeline_count;
    struct {
        uint32_t timeline;
        int64_t first_ack_ns;
    } timelines[32];
};

enum ledger_level tokens_promised_level(const char *promise);
/* Merge all ledgers; never fails: what does not fit together is counted. */
void tokens_merge(struct tokens *tokens, const struct record *record, struct arena *arena);
/* Reasons why the ledgers may hide something: files, ends, gaps between a client's tokens. */
void tokens_holes(const struct tokens *tokens, struct reasons *holes);

struct token_strangers {        /* tokens of a present set that no ledger knows */
    uint64_t garbage, reserved; /* reserved: a worker that died may have sent them */
};
/* Mark what a present set holds. */
struct token_strangers tokens_mark(struct tokens *tokens, const struct present *present);
/* State of one token, TOKEN_NONE when unknown. */
uint16_t *tokens_state(const struct tokens *tokens, uint32_t client, uint64_t seq);
/* How many tokens have each state; `histogram` has TOKEN_STATES entries. */
void tokens_count(const struct tokens *tokens, uint64_t *histogram);

#endif
