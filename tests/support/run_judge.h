/* SPDX-License-Identifier: MIT */
/*
 * One check on one built run.
 *
 *     struct judged judged = run_judge(run, "durability", NULL);
 *     ck_assert_int_eq(judged.result.verdict, VERDICT_FAIL);
 *     judged_free(&judged);
 */
#ifndef ORDEAL_TESTS_SUPPORT_RUN_JUDGE_H
#define ORDEAL_TESTS_SUPPORT_RUN_JUDGE_H

#include "orchestrator/checks/check.h"
#include "tests/support/run_builder.h"

struct judged {
    struct arena *arena;
    struct record *record;
    struct check_result result;
};

/* Writes the run, loads it and judges it; takes `params` (NULL: {}). */
struct judged run_judge(struct run_builder *run, const char *check, json_t *params);
void judged_free(struct judged *judged);
/* A number of details.GROUP; -1 when it is not there. */
int64_t judged_number(const struct judged *judged, const char *group, const char *member);
/* Verdict and, unless NULL, a part of the text; frees the judgement and the run. */
void expect_verdict(struct run_builder *run, const char *check, json_t *params,
                    enum verdict verdict, const char *part);

#endif
