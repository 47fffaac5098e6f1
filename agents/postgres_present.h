/* SPDX-License-Identifier: MIT */
/*
 * Folding rows of ordeal.journal, sorted by client and sequence, into a present set
 * (docs/formats.md, "present-NODE.tokens"). Pure: rows go in, text comes out.
 *
 * A token is whole when its rows are exactly 1 to `rows`, each once and each with the digest of its
 * content. Neighbouring whole tokens become one "range" line, every other token an "odd" line.
 * Rows that no client can have written (numbers out of range) are one odd token of client
 * 4294967295 at the end.
 */
#ifndef ORDEAL_AGENTS_POSTGRES_PRESENT_H
#define ORDEAL_AGENTS_POSTGRES_PRESENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct journal_row {
    uint64_t client, seq;
    int row, rows;
    int64_t digest;
    const char *payload; /* NULL: the column is null */
    size_t length;
};

struct present_fold; /* counts and sum may be read at any time */

/* Text is written through `write`, which returns false when it cannot; NULL: only counted. */
struct present_fold *present_fold_new(bool (*write)(void *argument, const char *text),
                                      void *argument);
void present_fold_free(struct present_fold *fold);
/* False: out of order, or the text could not be written. */
bool present_fold_row(struct present_fold *fold, const struct journal_row *row);
/* Flush what is open; no row may follow. */
bool present_fold_end(struct present_fold *fold);
uint64_t present_fold_tokens(const struct present_fold *fold); /* distinct ones so far */
uint64_t present_fold_rows(const struct present_fold *fold);
uint64_t present_fold_odd(const struct present_fold *fold);
/* Sum over all rows that does not depend on the order of a token's rows. */
uint64_t present_fold_sum(const struct present_fold *fold);

#endif
