/* SPDX-License-Identifier: MIT */
/*
 * For tests of the audit: what was planted must be named with its remedy, and the remedy, run as it
 * is printed, must leave nothing that the audit names.
 */
#ifndef ORDEAL_TESTS_SUPPORT_RESIDUE_CASE_H
#define ORDEAL_TESTS_SUPPORT_RESIDUE_CASE_H

#include <jansson.h>

#include "orchestrator/residue.h"

struct residue_case {
    const char *name;
    const char *prepare; /* lines for a shell, or NULL */
    const char *plant;
    const char *class;
    const char *text;   /* is in the text of the first difference */
    const char *remedy; /* its remedy, or the beginning of it */
    size_t count;       /* differences in all; 0: one */
    const char *after;  /* removes what was prepared, or NULL */
};

/* Each gives a new fingerprint of what is tested. */
typedef json_t *residue_take(void *argument);

/* A line for a shell; a failure fails the test with what it printed. */
void residue_sh(const char *line);
/* The differences, `before` being what is known of the node and of the cluster; the caller's. */
json_t *residue_compared(struct residue_question question, const json_t *before,
                         const json_t *after);
/* Looks until there is no difference: a killed process takes its time. */
void residue_expect_clean(const char *name, const json_t *before, residue_take *take,
                          void *argument, struct residue_question question);
/* Prepare, look, plant, look, compare, undo by the remedies, look, compare. `question` has all but
 * the fingerprints. */
void residue_case_run(const struct residue_case *residue, residue_take *take, void *argument,
                      struct residue_question question);
/* The same with all of them at once. */
void residue_cases_run(const struct residue_case *cases, size_t count, residue_take *take,
                       void *argument, struct residue_question question);

#endif
