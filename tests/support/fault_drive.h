/* SPDX-License-Identifier: MIT */
/*
 * A fault driven as the agent drives it, for tests: every step must succeed, else the test ends
 * with the fault's own words.
 */
#ifndef ORDEAL_TESTS_SUPPORT_FAULT_DRIVE_H
#define ORDEAL_TESTS_SUPPORT_FAULT_DRIVE_H

#include "faults/fault.h"

/* JSON with ' for ": easier to write in C. `json` has room for all of it. */
void drive_quotes(const char *text, char *json);
/* Parameters from JSON text with ' for ", validated and completed. */
json_t *drive_params(const struct fault *fault, const char *text);
/* validate -> supported -> prepare; the record, as it comes back from a journal. */
json_t *drive_prepare(const struct fault *fault, const struct fault_context *context,
                      const char *params);
void drive_inject(const struct fault *fault, const struct fault_context *context,
                  const json_t *record);
void drive_undo(const struct fault *fault, const struct fault_context *context,
                const json_t *record);
/* The effect, which must be the one that is expected. */
void drive_expect(const struct fault *fault, const struct fault_context *context,
                  const json_t *record, enum effect effect);
void drive_expect_witness(const struct fault *fault, const struct fault_context *context,
                          const json_t *record, enum effect effect);
/* A number of the last observation. */
int64_t drive_number(const char *name);
const char *drive_text(void);
void drive_done(void); /* drops what the last observation holds */

#endif
