/* SPDX-License-Identifier: MIT */
/*
 * One typed table of parameters, from which come the parser, the help text, the JSON schema and a
 * test against the documentation. Faults, checks, workloads and probes declare one each.
 *
 * The value of a parameter travels as JSON in the unit of its type: duration in ms (integer), size
 * in bytes (integer), rate per second (real), percentage (real), integer, boolean, string, choice
 * (string), nodes (array of node names: the orchestrator has resolved the target expression).
 */
#ifndef ORDEAL_LIB_PARAM_H
#define ORDEAL_LIB_PARAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/error.h"

enum param_type {
    PARAM_END = 0,
    PARAM_STRING,
    PARAM_CHOICE,
    PARAM_BOOLEAN, /* yes, no, true, false */
    PARAM_INTEGER,
    PARAM_DURATION,
    PARAM_SIZE,
    PARAM_RATE,
    PARAM_PERCENTAGE,
    PARAM_NODES /* a target expression in a scenario; node names on the wire */
};

struct param {
    const char *name;
    enum param_type type;
    bool required;
    const char *choices;      /* PARAM_CHOICE: "in|out|both" */
    const char *fallback;     /* as a person would write it; NULL: absent when not given */
    int64_t minimum, maximum; /* in the type's unit; both 0: no bound */
    const char *help;         /* one line, no full stop */
};

/* Parse one value as a person writes it. STATUS_INVALID names the parameter and the value. */
MUST_CHECK enum status param_parse(const struct param *param, const char *text, json_t **ret_value,
                                   struct error *err);
/* The same value as a person would write it, so that param_parse() gives it again. */
void param_text(const struct param *param, const json_t *value, struct buffer *text);
/*
 * Check an object that came over the wire or from a file after parsing: unknown names (with the
 * nearest known one), types, ranges, required; add what has a fallback.
 */
MUST_CHECK enum status param_complete(const struct param *params, json_t *values,
                                      struct error *err);
const struct param *param_find(const struct param *params, const char *name);
/* Nearest of a NULL-terminated list by edit distance, or NULL when nothing is near. */
const char *nearest_word(const char *word, const char *const *words);
/* "duration", "choice" ... */
const char *param_type_name(enum param_type type);
/* {"type":"object","properties":{...},"required":[...],"additionalProperties":false} */
json_t *param_schema(const struct param *params);
/* Lines for `ordeal faults NAME`: name, type, default, help. */
void param_help(const struct param *params, struct buffer *text);

#endif
