/* SPDX-License-Identifier: MIT */
#include "agents/guardian/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/crc32c.h"

enum { PREFIX_LENGTH = 11 }; /* "1 xxxxxxxx " */

static const char *const kind_names[] = {[JOURNAL_OPEN] = "open", [JOURNAL_CLOSED] = "closed"};

bool journal_uid_valid(const char *uid)
{
    size_t length = strlen(uid);

    return length > 0 && length < JOURNAL_UID_SIZE &&
           strspn(uid, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

size_t journal_format(const struct journal_line *line, char *text)
{
    char *body = text + PREFIX_LENGTH;
    size_t room = JOURNAL_LINE_MAX - PREFIX_LENGTH;
    int length;

    if (line->kind == JOURNAL_OPEN)
        length = snprintf(body, room, "open %s %s %" PRId64 " %.*s", line->uid, line->boot_id,
                          line->deadline_ns, (int) line->record_length, line->record);
    else
        length = snprintf(body, room, "closed %s %" PRId64 " %s %s", line->uid, line->at_ns,
                          line->who, line->state);
    if (length < 0 || (size_t) length >= room - 1)
        abort(); /* callers bound the record */
    char prefix[PREFIX_LENGTH + 1];
    snprintf(prefix, sizeof prefix, "1 %08" PRIx32 " ", crc32c(body, (size_t) length));
    memcpy(text, prefix, PREFIX_LENGTH);
    body[length] = '\n';
    return PREFIX_LENGTH + (size_t) length + 1;
}

/* Copy the next word; false when there is none or it is too long. */
static bool next_word(const char **cursor, const char *end, char *word, size_t size)
{
    const char *space = memchr(*cursor, ' ', (size_t) (end - *cursor));
    const char *stop = space == NULL ? end : space;
    size_t length = (size_t) (stop - *cursor);

    if (length == 0 || length >= size)
        return false;
    memcpy(word, *cursor, length);
    word[length] = '\0';
    *cursor = space == NULL ? end : space + 1;
    return true;
}

static bool next_number(const char **cursor, const char *end, int64_t *ret_number)
{
    char word[24];
    char *rest;

    if (!next_word(cursor, end, word, sizeof word))
        return false;
    errno = 0;
    *ret_number = strtoll(word, &rest, 10);
    return errno == 0 && *rest == '\0';
}

static bool parse_body(const char *cursor, const char *end, struct journal_line *line)
{
    char kind[8];

    if (!next_word(&cursor, end, kind, sizeof kind) ||
        !next_word(&cursor, end, line->uid, sizeof line->uid) || !journal_uid_valid(line->uid))
        return false;
    if (strcmp(kind, kind_names[JOURNAL_OPEN]) == 0) {
        line->kind = JOURNAL_OPEN;
        if (!next_word(&cursor, end, line->boot_id, sizeof line->boot_id) ||
            !next_number(&cursor, end, &line->deadline_ns))
            return false;
        line->record = cursor;
        line->record_length = (size_t) (end - cursor);
        return line->record_length > 0 && line->record_length <= JOURNAL_RECORD_MAX;
    }
    line->kind = JOURNAL_CLOSED;
    return strcmp(kind, kind_names[JOURNAL_CLOSED]) == 0 &&
           next_number(&cursor, end, &line->at_ns) &&
           next_word(&cursor, end, line->who, sizeof line->who) &&
           next_word(&cursor, end, line->state, sizeof line->state) && cursor == end;
}

enum status journal_parse(const char *text, size_t length, struct journal_line *ret_line,
                          struct error *err)
{
    struct journal_line line = {0};
    char prefix[PREFIX_LENGTH + 1];

    if (length <= PREFIX_LENGTH || memcmp(text, "1 ", 2) != 0)
        return error_set(err, STATUS_INVALID, "no line of a journal of version 1");
    const char *body = text + PREFIX_LENGTH;
    size_t body_length = length - PREFIX_LENGTH;
    snprintf(prefix, sizeof prefix, "1 %08" PRIx32 " ", crc32c(body, body_length));
    if (memcmp(text, prefix, PREFIX_LENGTH) != 0)
        return error_set(err, STATUS_INVALID, "a line with a wrong checksum");
    if (!parse_body(body, body + body_length, &line))
        return error_set(err, STATUS_INVALID, "a line of an unknown form");
    *ret_line = line;
    return STATUS_OK;
}

static enum status read_whole(int fd, char **ret_text, size_t *ret_length, struct error *err)
{
    struct stat info;
    size_t length = 0;

    if (fstat(fd, &info) != 0)
        return error_system(err, "looking at the journal");
    char *text = malloc((size_t) info.st_size + 1);
    if (text == NULL)
        return error_system(err, "reading the journal of %lld bytes", (long long) info.st_size);
    while (length < (size_t) info.st_size) {
        ssize_t count = pread(fd, text + length, (size_t) info.st_size - length, (off_t) length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            error_system(err, "reading the journal");
            free(text);
            return STATUS_SYSTEM;
        }
        if (count == 0)
            break;
        length += (size_t) count;
    }
    *ret_text = text;
    *ret_length = length;
    return STATUS_OK;
}

enum status journal_read(int fd, void (*each)(void *argument, const struct journal_line *line),
                         void *argument, struct journal_damage *ret_damage, struct error *err)
{
    struct journal_damage damage = {0};
    char *text = NULL;
    size_t length = 0;
    enum status status = read_whole(fd, &text, &length, err);

    if (status != STATUS_OK)
        return status;
    for (const char *start = text, *end = text + length; start < end;) {
        const char *stop = memchr(start, '\n', (size_t) (end - start));
        size_t line_length = (size_t) ((stop == NULL ? end : stop) - start);
        struct journal_line line;
        if (line_length > 0) {
            if (journal_parse(start, line_length, &line, &damage.last) == STATUS_OK)
                each(argument, &line);
            else
                damage.lines++;
        }
        start += line_length + 1;
    }
    free(text);
    *ret_damage = damage;
    return STATUS_OK;
}
