/* SPDX-License-Identifier: MIT */
/*
 * YAML read strictly, with every error at its place.
 *
 * yaml_load() gives a tree whose nodes know file, line and column. The readers below check a
 * mapping against a table and collect all errors in a list instead of stopping at the first:
 * unknown key (with the nearest known one), duplicate key, wrong type, value out of range, missing
 * key. Anchors, aliases, tags and several documents in a file are refused.
 */
#ifndef ORDEAL_LIB_YAML_H
#define ORDEAL_LIB_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/arena.h"
#include "lib/error.h"
#include "lib/param.h"

enum yaml_kind { YAML_SCALAR, YAML_SEQUENCE, YAML_MAPPING };

struct yaml_node {
    enum yaml_kind kind;
    int line, column;         /* from 1 */
    const char *text;         /* scalar; "" for an empty one */
    bool quoted;              /* scalar in quotes: a string whatever it looks like */
    size_t count;             /* items or pairs */
    struct yaml_node **items; /* sequence: items; mapping: values */
    struct yaml_node **keys;  /* mapping: scalar keys, in file order */
};

struct yaml_errors {
    struct arena *arena;
    const char *file;
    size_t count;
    char **texts; /* "file:line:column: message" */
};

/* Syntax errors, too, go into `errors`; the status is STATUS_INVALID then. */
MUST_CHECK enum status yaml_load(struct arena *arena, const char *path, struct yaml_node **ret_root,
                                 struct yaml_errors *errors, struct error *err);
void yaml_complain(struct yaml_errors *errors, const struct yaml_node *at, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* Value of a key, NULL when absent. */
const struct yaml_node *yaml_get(const struct yaml_node *mapping, const char *key);

enum yaml_type {
    YAML_END = 0,
    YAML_TEXT,     /* const char * in the struct */
    YAML_CHOICE,   /* const char *, one of choices "a|b|c" */
    YAML_BOOLEAN,  /* bool */
    YAML_INTEGER,  /* int64_t */
    YAML_DURATION, /* int64_t, ms */
    YAML_SIZE,     /* int64_t, bytes */
    YAML_RATE,     /* double, per second */
    YAML_PERCENT,  /* double */
    YAML_TEXTS,    /* const char **, NULL-terminated; a single scalar is a list of one */
    YAML_NODE      /* const struct yaml_node *: for the caller to read further */
};

struct yaml_field {
    const char *name;
    enum yaml_type type;
    bool required;
    size_t offset; /* offsetof() in the struct that is filled */
    const char *choices;
    int64_t minimum, maximum; /* both 0: no bound */
};

/*
 * Fill `base` (zeroed or preset with defaults by the caller) from a mapping. What is wrong is
 * added to `errors`; other fields are still read.
 */
void yaml_read(const struct yaml_node *mapping, const struct yaml_field *fields, void *base,
               struct yaml_errors *errors);
/* A mapping `with:` into a JSON object by a table of parameters (PARAM_NODES is left out). */
json_t *yaml_read_params(const struct yaml_node *mapping, const struct param *params,
                         struct yaml_errors *errors);

#endif
