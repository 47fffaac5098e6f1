/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/ledger.h"
#include "lib/owned.h"

/*
 * A reader of one line after the other. The text lies in the arena and is cut into words in place.
 * The first thing that is wrong is kept in `wrong`; what follows it is not read any more.
 */
struct parser {
    struct arena *arena;
    const char *path;
    char *line;
    size_t number; /* of the line, from 1 */
    const char *wrong;
    struct present present;
    struct present_range *ranges;
    struct present_odd *odd;
    size_t range_room, odd_room;
    uint64_t tokens;
    bool started, ended;
};

static void fail(struct parser *parser, const char *wrong)
{
    if (parser->wrong == NULL)
        parser->wrong = wrong;
}

/* The next word of the line, which is moved past it; empty at the end. */
static char *next_word(struct parser *parser)
{
    char *word = parser->line;
    size_t length = strcspn(word, " ");

    parser->line += length;
    if (*parser->line == ' ')
        *parser->line++ = '\0';
    return word;
}

/* The value of the next word, which must be "name=value". */
static const char *next_value(struct parser *parser, const char *name)
{
    const char *word = next_word(parser);
    size_t length = strlen(name);

    if (strncmp(word, name, length) == 0 && word[length] == '=' && word[length + 1] != '\0')
        return word + length + 1;
    fail(parser, "a member is missing or not in its place");
    return "";
}

static uint64_t number(struct parser *parser, const char *text, uint64_t maximum)
{
    uint64_t value = 0;

    if (*text == '\0')
        fail(parser, "a number is missing");
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            fail(parser, "a number is malformed");
            return 0;
        }
        uint64_t digit = (uint64_t) (*text - '0');
        if (value > (maximum - digit) / 10) {
            fail(parser, "a number is too large");
            return 0;
        }
        value = value * 10 + digit;
    }
    return value;
}

static uint64_t hex32(struct parser *parser, const char *text, const char *end)
{
    uint64_t value = 0;

    if (text == end || end - text > 8)
        fail(parser, "the position is malformed");
    for (; text < end; text++) {
        const char *digit = strchr("0123456789ABCDEF", *text);
        if (digit == NULL) {
            fail(parser, "the position is malformed");
            return 0;
        }
        value = value << 4 | (uint64_t) (digit - "0123456789ABCDEF");
    }
    return value;
}

static uint64_t position(struct parser *parser, const char *text)
{
    const char *slash = strchr(text, '/');

    if (slash == NULL) {
        fail(parser, "the position is malformed");
        return 0;
    }
    uint64_t high = hex32(parser, text, slash);
    return high << 32 | hex32(parser, slash + 1, text + strlen(text));
}

static void read_start(struct parser *parser)
{
    struct present *present = &parser->present;

    if (parser->started)
        fail(parser, "the first line stands twice");
    parser->started = true;
    present->run = next_value(parser, "run");
    present->node = next_value(parser, "node");
    present->system_identifier = next_value(parser, "system");
    present->timeline = (uint32_t) number(parser, next_value(parser, "timeline"), UINT32_MAX);
    const char *recovery = next_value(parser, "recovery");
    present->in_recovery = strcmp(recovery, "yes") == 0;
    if (!present->in_recovery && strcmp(recovery, "no") != 0)
        fail(parser, "recovery is neither yes nor no");
    present->lsn = position(parser, next_value(parser, "lsn"));
}

/* Is (client, seq) behind the last token of the list? */
static bool behind(uint32_t client, uint64_t seq, uint32_t last_client, uint64_t last_seq)
{
    return client > last_client || (client == last_client && seq > last_seq);
}

static void read_range(struct parser *parser)
{
    struct present_range range = {0};
    struct present *present = &parser->present;

    range.client = (uint32_t) number(parser, next_word(parser), UINT32_MAX);
    range.first = number(parser, next_word(parser), INT64_MAX);
    range.last = number(parser, next_word(parser), INT64_MAX);
    if (range.first < 1 || range.last < range.first)
        fail(parser, "a range is empty or starts below 1");
    if (present->range_count > 0) {
        const struct present_range *last = &parser->ranges[present->range_count - 1];
        if (!behind(range.client, range.first, last->client, last->last))
            fail(parser, "a range is not behind the one before it");
    }
    if (present->range_count == parser->range_room) {
        size_t room = parser->range_room == 0 ? 256 : parser->range_room * 2;
        parser->ranges = arena_grow(parser->arena, parser->ranges, parser->range_room, room,
                                    sizeof(*parser->ranges));
        parser->range_room = room;
    }
    parser->ranges[present->range_count++] = range;
    parser->tokens += range.last - range.first + 1;
}

static void read_odd(struct parser *parser)
{
    struct present_odd odd = {0};
    struct present *present = &parser->present;

    odd.client = (uint32_t) number(parser, next_word(parser), UINT32_MAX);
    odd.seq = number(parser, next_word(parser), INT64_MAX);
    odd.rows = number(parser, next_value(parser, "rows"), INT64_MAX);
    odd.expected = number(parser, next_value(parser, "of"), INT64_MAX);
    odd.bad = number(parser, next_value(parser, "bad"), INT64_MAX);
    if (odd.rows < 1)
        fail(parser, "an odd token without a row");
    if (present->odd_count > 0) {
        const struct present_odd *last = &parser->odd[present->odd_count - 1];
        if (!behind(odd.client, odd.seq, last->client, last->seq))
            fail(parser, "an odd token is not behind the one before it");
    }
    if (present->odd_count == parser->odd_room) {
        size_t room = parser->odd_room == 0 ? 64 : parser->odd_room * 2;
        parser->odd =
            arena_grow(parser->arena, parser->odd, parser->odd_room, room, sizeof(*parser->odd));
        parser->odd_room = room;
    }
    parser->odd[present->odd_count++] = odd;
    parser->tokens++;
}

static void read_end(struct parser *parser)
{
    parser->present.tokens = number(parser, next_value(parser, "tokens"), UINT64_MAX);
    if (parser->present.tokens != parser->tokens)
        fail(parser, "the number of tokens is not that of the lines before");
    parser->ended = true;
}

static void read_line(struct parser *parser)
{
    static const struct {
        const char *word;
        void (*read)(struct parser *parser);
    } kinds[] = {
        {"range", read_range},
        {"odd", read_odd},
        {"end", read_end},
        {"ordeal-present-1", read_start},
    };
    const char *word = next_word(parser);

    if (parser->ended)
        fail(parser, "a line follows the end");
    if (!parser->started && strcmp(word, "ordeal-present-1") != 0)
        fail(parser, "not a present set of a known version");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(word, kinds[i].word) != 0)
            continue;
        kinds[i].read(parser);
        if (*parser->line != '\0')
            fail(parser, "the line is too long");
        return;
    }
    fail(parser, "an unknown word begins the line");
}

/* Only whole lines count: text behind the last line end was cut off. */
static enum status read_lines(struct parser *parser, char *text, size_t length, struct error *err)
{
    char *end = text + length;

    while (text < end && parser->wrong == NULL) {
        char *line_end = memchr(text, '\n', (size_t) (end - text));
        if (line_end == NULL)
            break;
        *line_end = '\0';
        parser->line = text;
        parser->number++;
        if (strlen(text) != (size_t) (line_end - text))
            fail(parser, "a NUL byte");
        else
            read_line(parser);
        text = line_end + 1;
    }
    if (parser->wrong != NULL)
        return error_set(err, STATUS_INVALID, "present set %s, line %zu: %s", parser->path,
                         parser->number, parser->wrong);
    if (!parser->ended || text != end)
        return error_set(err, STATUS_INVALID, "present set %s was cut off after line %zu",
                         parser->path, parser->number);
    return STATUS_OK;
}

static const struct present_range *find_range(const struct present *present, uint32_t client,
                                              uint64_t seq)
{
    size_t low = 0;
    size_t high = present->range_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct present_range *range = &present->ranges[middle];
        if (behind(client, seq, range->client, range->last))
            low = middle + 1;
        else if (client < range->client || seq < range->first)
            high = middle;
        else
            return range;
    }
    return NULL;
}

bool present_has(const struct present *present, uint32_t client, uint64_t seq)
{
    return find_range(present, client, seq) != NULL;
}

static enum status read_whole(struct arena *arena, const char *path, char **ret_text,
                              size_t *ret_length, struct error *err)
{
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0)
        return error_system(err, "opening present set %s", path);
    if (!S_ISREG(info.st_mode))
        return error_set(err, STATUS_INVALID, "present set %s is not a file", path);
    size_t length = (size_t) info.st_size;
    char *text = arena_alloc(arena, length + 1);
    for (size_t done = 0; done < length;) {
        ssize_t got = read(fd, text + done, length - done);
        if (got < 0)
            return error_system(err, "reading present set %s", path);
        if (got == 0)
            return error_set(err, STATUS_INVALID, "present set %s became shorter", path);
        done += (size_t) got;
    }
    *ret_text = text;
    *ret_length = length;
    return STATUS_OK;
}

enum status present_load(struct arena *arena, const char *path, struct present *ret_present,
                         struct error *err)
{
    struct parser parser = {.arena = arena, .path = path};
    char *text = NULL;
    size_t length = 0;

    enum status status = read_whole(arena, path, &text, &length, err);
    if (status == STATUS_OK)
        status = read_lines(&parser, text, length, err);
    if (status != STATUS_OK)
        return status;
    parser.present.ranges = parser.ranges;
    parser.present.odd = parser.odd;
    for (size_t i = 0; i < parser.present.odd_count; i++)
        if (present_has(&parser.present, parser.odd[i].client, parser.odd[i].seq))
            return error_set(err, STATUS_INVALID,
                             "present set %s has token %u:%llu both whole and odd", path,
                             parser.odd[i].client, (unsigned long long) parser.odd[i].seq);
    *ret_present = parser.present;
    return STATUS_OK;
}
