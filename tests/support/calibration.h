/* SPDX-License-Identifier: MIT */
/*
 * Calibration: a known defect is planted into a whole run, and the report must find exactly it.
 * One row a defect, with neighbours beside it that must not be found. Each row prints one line of
 * the table: what was planted, what was to be found, what was found.
 *
 *     static const struct calibration rows[] = {
 *         {.planted = "acked row deleted", .plant = delete_row, FAILS("durability", "CORRUPTION"),
 *          COUNTS("lost", 1)}};
 *     int main(void) { return calibrate("commits", rows, sizeof rows / sizeof rows[0]); }
 */
#ifndef ORDEAL_TESTS_SUPPORT_CALIBRATION_H
#define ORDEAL_TESTS_SUPPORT_CALIBRATION_H

#include <stddef.h>

#include "orchestrator/reports/report.h"
#include "tests/support/run_builder.h"

struct calibration {
    const char *planted;
    struct run_plan plan;
    void (*plant)(struct run_builder *run); /* NULL: nothing more */
    enum run_verdict verdict;               /* of the run */
    const char *check;                      /* that must decide; NULL: the run itself */
    enum verdict finding;                   /* of that check */
    const char *words;                      /* in the check's text, or in the run's reasons */
    const char *column;                     /* of the ledger; NULL: none */
    int64_t count;
};

#define PASSES(check_, words_)                                                                     \
    .verdict = RUN_PASS, .check = (check_), .finding = VERDICT_PASS, .words = (words_)
#define FAILS(check_, words_)                                                                      \
    .verdict = RUN_FAIL, .check = (check_), .finding = VERDICT_FAIL, .words = (words_)
#define PROVES_NOTHING(check_, words_)                                                             \
    .verdict = RUN_INCONCLUSIVE, .check = (check_), .finding = VERDICT_INCONCLUSIVE,               \
    .words = (words_)
#define COUNTS(column_, count_) .column = (column_), .count = (count_)

/* The rows as a suite of Check; returns what main() returns. */
int calibrate(const char *suite, const struct calibration *rows, size_t count);

#endif
