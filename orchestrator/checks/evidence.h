/* SPDX-License-Identifier: MIT */
/*
 * What several checks need to know about a run: its faults on the client's clock, its timelines,
 * its nodes, what its scenario expects, and lists of reasons.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_EVIDENCE_H
#define ORDEAL_ORCHESTRATOR_CHECKS_EVIDENCE_H

#include "lib/buffer.h"
#include "orchestrator/checks/check.h"

struct evidence_fault {
    const json_t *event; /* fault.injected */
    const char *uid, *step, *fault, *node;
    bool placed;                    /* f0 and f1 could be brought to the client's clock */
    int64_t f0_ns, f1_ns, error_ns; /* client's clock */
    int64_t undone_ns;              /* client's clock, 0: not undone or not placed */
    bool holds;
    bool effective; /* seen active, and no witness says that it is absent */
    const char *effect_text;
};

struct evidence_faults {
    size_t count;
    struct evidence_fault *items; /* in order of the journal */
};

struct evidence_faults evidence_faults(const struct record *record, struct arena *arena);
/* The earliest placed one, or NULL. */
const struct evidence_fault *evidence_first_fault(const struct evidence_faults *faults);

/* Timelines of the final primary: `ends[i]` closes `timelines[i]`; its own has no end. */
struct evidence_history {
    bool known;
    const char *node;
    uint32_t timeline;
    size_t count;
    uint32_t *timelines;
    uint64_t *ends;
};

struct evidence_history evidence_history(const struct record *record, struct arena *arena);
/* End of an ancestor; false for the final timeline itself and for those that it does not have. */
bool evidence_timeline_end(const struct evidence_history *history, uint32_t timeline,
                           uint64_t *ret_lsn);
/* "0/3000148"; false when malformed. */
bool evidence_lsn(const char *text, uint64_t *ret_lsn);

/* Names of the topology's nodes with role database, NULL-terminated. */
const char *const *evidence_database_nodes(const struct record *record, struct arena *arena);
/* "quorum", "local" or "none" ("quorum" when the topology is silent). */
const char *evidence_promise(const struct record *record);
/* Does any step say what is expected of it? */
bool evidence_expects(const struct record *record);
/* expect.NAME of a step of the method ("yes", "no", "any", "continue", "stall"), or NULL. */
const char *evidence_expectation(const struct record *record, const char *step, const char *name);
/* The instant of an event on the client's clock; false when it cannot be placed. */
bool evidence_instant(const struct record *record, const json_t *event, int64_t *ret_ns);

/* Reasons for a verdict: the first ones in words, all of them counted. */
struct reasons {
    struct arena *arena;
    size_t count;
    const char *texts[8];
};

void reasons_add(struct reasons *reasons, const char *format, ...) PRINTF_LIKE(2, 3);
/* "first; second and 3 more", "" when there are none. */
const char *reasons_text(const struct reasons *reasons);

/* Append a text to result->unjudged. */
void evidence_unjudged(struct check_result *result, const char *format, ...) PRINTF_LIKE(2, 3);
/* Set a member of result->details; takes the value. */
void evidence_detail(struct check_result *result, const char *name, json_t *value);
double evidence_ms(int64_t ns);
/* A JSON number of ms with three decimals. */
json_t *evidence_json_ms(int64_t ns);

#endif
