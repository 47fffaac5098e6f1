/* SPDX-License-Identifier: MIT */
#include "agents/load/statement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ledger.h"

enum { FIXED_SIZE = 512, ROW_SIZE = 128 }; /* without payload: six numbers and punctuation */

void statement_init(struct statement *statement, struct arena *arena, unsigned rows,
                    unsigned payload)
{
    statement->room = FIXED_SIZE + (size_t) rows * (ROW_SIZE + payload);
    statement->length = 0;
    statement->text = arena_alloc(arena, statement->room);
}

static void put(struct statement *statement, const char *text)
{
    size_t length = strlen(text);

    if (length >= statement->room - statement->length)
        abort(); /* statement_init() was told less than is asked for */
    memcpy(statement->text + statement->length, text, length + 1);
    statement->length += length;
}

/* splitmix64, by Vigna (public domain): neighbouring inputs give unlike outputs. */
static uint64_t mix(uint64_t value)
{
    value += UINT64_C(0x9E3779B97F4A7C15);
    value = (value ^ value >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ value >> 27) * UINT64_C(0x94D049BB133111EB);
    return value ^ value >> 31;
}

/* Sixteen letters of the alphabet a to p from each 64 bits. */
static void fill_payload(char *payload, unsigned length, uint64_t seed)
{
    for (unsigned i = 0; i < length; seed++) {
        uint64_t bits = mix(seed);
        for (int nibble = 0; nibble < 16 && i < length; nibble++, bits >>= 4)
            payload[i++] = (char) ('a' + (bits & 15));
    }
}

static void put_row(struct statement *statement, uint64_t client, uint64_t seq, unsigned row,
                    unsigned rows, unsigned payload)
{
    if (statement->room - statement->length < ROW_SIZE + (size_t) payload)
        abort();
    /* the payload first, behind the longest head: the digest in the head is made from it */
    char *text = statement->text + statement->length;
    char *made = text + ROW_SIZE - 4;
    fill_payload(made, payload, mix(client << 40 ^ seq) + ((uint64_t) row << 20));
    int64_t digest = ledger_digest(client, seq, row, made, payload);
    int head = snprintf(text, ROW_SIZE - 4, "%s(%" PRIu64 ",%" PRIu64 ",%u,%u,%" PRId64 ",'",
                        row == 1 ? "" : ",", client, seq, row, rows, digest);
    memmove(text + head, made, payload);
    statement->length += (size_t) head + payload;
    put(statement, "')");
}

const char *statement_insert(struct statement *statement, bool rollback_first, uint64_t client,
                             uint64_t seq, unsigned rows, unsigned payload)
{
    statement->length = 0;
    if (rollback_first)
        put(statement, "ROLLBACK;");
    put(statement, "BEGIN;INSERT INTO ordeal.journal(client,seq,row,rows,digest,payload)VALUES");
    for (unsigned row = 1; row <= rows; row++)
        put_row(statement, client, seq, row, rows, payload);
    put(statement, STATEMENT_IN_FORCE);
    return statement->text;
}

const char *statement_read(struct statement *statement, const uint64_t clients[2],
                           const uint64_t seqs[2])
{
    int length = snprintf(statement->text, statement->room,
                          "SELECT client,seq FROM ordeal.journal WHERE(client,seq)IN((%" PRIu64
                          ",%" PRIu64 "),(%" PRIu64 ",%" PRIu64 "))GROUP BY client,seq",
                          clients[0], seqs[0], clients[1], seqs[1]);

    statement->length = (size_t) length;
    return statement->text;
}

uint32_t statement_timeline(const char *walfile)
{
    char digits[9] = "";
    char *end;

    if (strlen(walfile) != 24)
        return 0;
    memcpy(digits, walfile, 8);
    unsigned long timeline = strtoul(digits, &end, 16);
    return *end == '\0' ? (uint32_t) timeline : 0;
}
