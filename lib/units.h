/* SPDX-License-Identifier: MIT */
/*
 * Numbers as people write them in topologies, scenarios and on the command line.
 *
 * durations "500ms" "30s" "5m" "2h" (a unit is compulsory, "0" excepted); sizes "64MiB" "1GiB"
 * "512KiB" "4096B" (powers of 1024); rates "100/s" "6/m" (events per second); percentages "80%".
 * Fractions are allowed where they give a whole number of the result's unit ("1.5s").
 * Every parser refuses negative numbers, trailing text and overflow.
 */
#ifndef ORDEAL_LIB_UNITS_H
#define ORDEAL_LIB_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

MUST_CHECK enum status units_duration(const char *text, int64_t *ret_ms, struct error *err);
MUST_CHECK enum status units_size(const char *text, int64_t *ret_bytes, struct error *err);
MUST_CHECK enum status units_rate(const char *text, double *ret_per_second, struct error *err);
MUST_CHECK enum status units_percentage(const char *text, double *ret_percent, struct error *err);
MUST_CHECK enum status units_integer(const char *text, int64_t *ret_value, struct error *err);
/* "1.5s", "250ms", "2m" / "64MiB": the shortest exact text; returns `text`. */
char *units_duration_text(int64_t ms, char *text, size_t size);
char *units_size_text(int64_t bytes, char *text, size_t size);

#endif
