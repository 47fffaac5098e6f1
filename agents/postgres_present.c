/* SPDX-License-Identifier: MIT */
#include "agents/postgres_present.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ledger.h"

enum { ROWS_MAX = SHRT_MAX, LINE_SIZE = 160 };

struct token {
    uint64_t client, seq;
    int expected;                     /* as its first row says */
    uint64_t rows, bad, repeated;     /* found; wrong ones; row numbers that were there already */
    uint64_t seen[ROWS_MAX / 64 + 1]; /* which row numbers */
    int highest;                      /* of them, to clear no more than was used */
};

struct present_fold {
    bool (*write)(void *argument, const char *text);
    void *argument;
    bool open, range_open, failed;
    struct token token;
    uint64_t range_client, range_first, range_last;
    uint64_t tokens, rows, odd, sum, foreign;
};

struct present_fold *present_fold_new(bool (*write)(void *argument, const char *text),
                                      void *argument)
{
    struct present_fold *fold = calloc(1, sizeof *fold);

    if (fold == NULL)
        abort();
    fold->write = write;
    fold->argument = argument;
    return fold;
}

void present_fold_free(struct present_fold *fold)
{
    free(fold);
}

static void put(struct present_fold *fold, const char *line)
{
    if (fold->write != NULL && !fold->write(fold->argument, line))
        fold->failed = true;
}

static void close_range(struct present_fold *fold)
{
    char line[LINE_SIZE];

    if (!fold->range_open)
        return;
    snprintf(line, sizeof line, "range %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", fold->range_client,
             fold->range_first, fold->range_last);
    put(fold, line);
    fold->range_open = false;
}

static void add_whole(struct present_fold *fold, const struct token *token)
{
    if (fold->range_open && fold->range_client == token->client &&
        fold->range_last + 1 == token->seq) {
        fold->range_last = token->seq;
        return;
    }
    close_range(fold);
    fold->range_open = true;
    fold->range_client = token->client;
    fold->range_first = fold->range_last = token->seq;
}

/* Rows that repeat are told by the count, unless others are missing: then they are bad ones. */
static void add_odd(struct present_fold *fold, const struct token *token)
{
    char line[LINE_SIZE];
    uint64_t expected = (uint64_t) token->expected;
    uint64_t bad = token->bad + (token->rows == expected ? token->repeated : 0);

    close_range(fold);
    snprintf(line, sizeof line,
             "odd %" PRIu64 " %" PRIu64 " rows=%" PRIu64 " of=%" PRIu64 " bad=%" PRIu64 "\n",
             token->client, token->seq, token->rows, expected, bad);
    put(fold, line);
    fold->odd++;
}

static void close_token(struct present_fold *fold)
{
    struct token *token = &fold->token;

    if (!fold->open)
        return;
    bool whole = token->bad == 0 && token->repeated == 0 && token->expected > 0 &&
                 token->rows == (uint64_t) token->expected;
    if (whole)
        add_whole(fold, token);
    else
        add_odd(fold, token);
    fold->tokens++;
    memset(token->seen, 0, (size_t) (token->highest / 64 + 1) * sizeof token->seen[0]);
    fold->open = false;
}

static void open_token(struct present_fold *fold, const struct journal_row *row)
{
    struct token *token = &fold->token;

    token->client = row->client;
    token->seq = row->seq;
    token->expected = row->rows > 0 ? row->rows : 0;
    token->rows = token->bad = token->repeated = 0;
    token->highest = 0;
    fold->open = true;
}

static bool right(const struct token *token, const struct journal_row *row)
{
    return row->row >= 1 && row->row <= ROWS_MAX && row->row <= row->rows &&
           row->rows == token->expected && row->payload != NULL &&
           row->digest ==
               ledger_digest(row->client, row->seq, (unsigned) row->row, row->payload, row->length);
}

static void count_row(struct token *token, const struct journal_row *row)
{
    token->rows++;
    if (!right(token, row)) {
        token->bad++;
        return;
    }
    uint64_t bit = UINT64_C(1) << row->row % 64;
    if (token->seen[row->row / 64] & bit)
        token->repeated++;
    token->seen[row->row / 64] |= bit;
    if (row->row > token->highest)
        token->highest = row->row;
}

static uint64_t fold_bytes(uint64_t sum, const void *data, size_t length)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < length; i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001B3);
    return sum;
}

/* FNV-1a over what identifies the row and its content; added up, so that order does not matter. */
static uint64_t row_sum(const struct journal_row *row)
{
    uint64_t sum = UINT64_C(0xCBF29CE484222325);

    sum = fold_bytes(sum, &row->client, sizeof row->client);
    sum = fold_bytes(sum, &row->seq, sizeof row->seq);
    sum = fold_bytes(sum, &row->row, sizeof row->row);
    sum = fold_bytes(sum, &row->rows, sizeof row->rows);
    sum = fold_bytes(sum, &row->digest, sizeof row->digest);
    return row->payload == NULL ? sum : fold_bytes(sum, row->payload, row->length);
}

bool present_fold_row(struct present_fold *fold, const struct journal_row *row)
{
    struct token *token = &fold->token;

    fold->rows++;
    fold->sum += row_sum(row);
    if (row->client > UINT32_MAX || row->seq > INT64_MAX) { /* no client of ours, or negative */
        fold->foreign++;
        return !fold->failed;
    }
    if (fold->open && (row->client != token->client || row->seq != token->seq)) {
        if (row->client < token->client || (row->client == token->client && row->seq < token->seq))
            return false;
        close_token(fold);
    }
    if (!fold->open)
        open_token(fold, row);
    count_row(token, row);
    return !fold->failed;
}

bool present_fold_end(struct present_fold *fold)
{
    struct token foreign = {.client = UINT32_MAX, .seq = 1};

    close_token(fold);
    if (fold->foreign > 0) {
        foreign.rows = foreign.bad = fold->foreign;
        add_odd(fold, &foreign);
        fold->tokens++;
    }
    close_range(fold);
    return !fold->failed;
}

uint64_t present_fold_tokens(const struct present_fold *fold)
{
    return fold->tokens;
}

uint64_t present_fold_rows(const struct present_fold *fold)
{
    return fold->rows;
}

uint64_t present_fold_odd(const struct present_fold *fold)
{
    return fold->odd;
}

uint64_t present_fold_sum(const struct present_fold *fold)
{
    return fold->sum;
}
