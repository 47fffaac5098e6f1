/* SPDX-License-Identifier: MIT */
/*
 * The journal: which faults are open on this node, on disk before they are injected.
 *
 * Text, one record a line: "1 CRC32C-HEX KIND UID REST", the checksum over everything behind it.
 * Lines are only appended. A line that its checksum does not confirm (a torn end, a damaged
 * sector) is skipped and counted: to undo what was never injected does no harm, to forget what was
 * would.
 */
#ifndef ORDEAL_AGENTS_GUARDIAN_JOURNAL_H
#define ORDEAL_AGENTS_GUARDIAN_JOURNAL_H

#include <stddef.h>
#include <stdint.h>

#include "lib/clock.h"
#include "lib/error.h"

enum {
    JOURNAL_UID_SIZE = 41,
    JOURNAL_WORD_SIZE = 16,
    JOURNAL_RECORD_MAX = 128 * 1024,
    JOURNAL_LINE_MAX = JOURNAL_RECORD_MAX + 256
};

enum journal_kind { JOURNAL_OPEN, JOURNAL_CLOSED };

struct journal_line {
    enum journal_kind kind;
    char uid[JOURNAL_UID_SIZE];
    /* open */
    char boot_id[BOOT_ID_SIZE];
    int64_t deadline_ns;
    const char *record; /* JSON without line ends; borrowed, not terminated */
    size_t record_length;
    /* closed */
    int64_t at_ns;
    char who[JOURNAL_WORD_SIZE], state[JOURNAL_WORD_SIZE];
};

/* [a-z0-9-]{1,40} */
bool journal_uid_valid(const char *uid);
/* Write the line with its end into `text` (JOURNAL_LINE_MAX bytes) and return its length. */
size_t journal_format(const struct journal_line *line, char *text);
/* One line without its end. STATUS_INVALID says what is wrong with it. */
MUST_CHECK enum status journal_parse(const char *text, size_t length, struct journal_line *ret_line,
                                     struct error *err);

struct journal_damage {
    size_t lines;      /* that were skipped */
    struct error last; /* why the last of them was */
};

/* Call `each` for every good line from the start of the file. */
MUST_CHECK enum status journal_read(int fd,
                                    void (*each)(void *argument, const struct journal_line *line),
                                    void *argument, struct journal_damage *ret_damage,
                                    struct error *err);

#endif
