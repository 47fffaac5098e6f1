/* SPDX-License-Identifier: MIT */
/*
 * Checks: pure functions of a run directory, so that they can be repeated on any recorded run and
 * so that their calibration can plant a defect into one.
 *
 * One file a check, one line in checks.def, one section in docs. A check never passes on missing
 * evidence: a file that is absent, cut off or contradicts another one makes it inconclusive.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_CHECK_H
#define ORDEAL_ORCHESTRATOR_CHECKS_CHECK_H

#include "lib/arena.h"
#include "lib/param.h"
#include "orchestrator/record.h"

enum verdict { VERDICT_PASS, VERDICT_INCONCLUSIVE, VERDICT_FAIL, VERDICT_SKIPPED };

struct check_result {
    enum verdict verdict;
    char text[512];       /* one line for people, with the numbers that decided */
    json_t *value;        /* number, or NULL when it has none */
    json_t *bound;        /* number, or NULL */
    const char *unit;     /* "ms", "transactions" ..., or NULL */
    json_t *resolution;   /* number in the same unit: resolution or error of the measurement */
    const char *evidence; /* path within the run directory */
    json_t *details;      /* object: everything else that belongs into result.json */
    json_t *unjudged;     /* array of strings: parts of the topology that it did not judge */
};

struct check {
    const char *name, *summary;
    const char *negative_control; /* "FILE: words" of the test in which it must fail */
    const struct param *params;
    bool judges_expectations; /* counts in every run in which a step has `expect` */
    bool judges_faults;       /* counts in every run in which a fault was injected */
    /* STATUS other than OK only for a broken run directory (becomes inconclusive). */
    enum status (*judge)(const struct record *record, const json_t *params, struct arena *arena,
                         struct check_result *ret_result, struct error *err);
};

const struct check *check_find(const char *name);
const struct check *const *check_list(void); /* ends with NULL */
const char *verdict_name(enum verdict verdict);
/* Set verdict and text. */
void check_conclude(struct check_result *result, enum verdict verdict, const char *format, ...)
    PRINTF_LIKE(3, 4);
void check_result_done(struct check_result *result);

#endif
