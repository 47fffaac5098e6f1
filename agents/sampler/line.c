/* SPDX-License-Identifier: MIT */
#include "agents/sampler/line.h"

#include <string.h>

void line_reset(struct line *line)
{
    line->length = 0;
    line->overflow = false;
}

static void put(struct line *line, const char *text, size_t length)
{
    if (line->overflow || length > line->size - line->length) {
        line->overflow = true;
        return;
    }
    memcpy(line->data + line->length, text, length);
    line->length += length;
}

static void put_char(struct line *line, char letter)
{
    put(line, &letter, 1);
}

/* Before each value: a comma, unless it is the first of its list or has a name. */
static void separate(struct line *line)
{
    if (line->length > 0 && strchr("{[:", line->data[line->length - 1]) == NULL)
        put_char(line, ',');
}

void line_open(struct line *line, char bracket)
{
    separate(line);
    put_char(line, bracket);
}

void line_close(struct line *line, char bracket)
{
    put_char(line, bracket);
}

static void put_escaped(struct line *line, unsigned char letter)
{
    static const char digits[] = "0123456789abcdef";
    char escape[] = "\\u0000";

    if (letter >= ' ' && letter != '"' && letter != '\\') {
        put_char(line, (char) letter);
        return;
    }
    escape[4] = digits[letter >> 4];
    escape[5] = digits[letter & 15];
    put(line, escape, sizeof escape - 1);
}

void line_string(struct line *line, const char *text)
{
    separate(line);
    put_char(line, '"');
    for (; *text != '\0'; text++)
        put_escaped(line, (unsigned char) *text);
    put_char(line, '"');
}

void line_key(struct line *line, const char *name)
{
    line_string(line, name);
    put_char(line, ':');
}

void line_number(struct line *line, int64_t value)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t) value : (uint64_t) value;

    separate(line);
    do
        digits[--at] = (char) ('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (value < 0)
        digits[--at] = '-';
    put(line, digits + at, sizeof digits - at);
}

void line_json(struct line *line, const char *text, size_t length)
{
    separate(line);
    size_t begun = line->length;
    put(line, text, length);
    for (size_t i = begun; i < line->length; i++)
        if (line->data[i] == '\n')
            line->data[i] = ' ';
}

void line_pair(struct line *line, const char *name, int64_t value)
{
    line_key(line, name);
    line_number(line, value);
}
