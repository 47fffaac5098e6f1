/* SPDX-License-Identifier: MIT */
/*
 * One line of JSON in memory that was there before: nothing is allocated for a sample.
 *
 *     line_reset(&line);
 *     line_open(&line, '{');
 *     line_key(&line, "t"), line_number(&line, now);
 *     line_close(&line, '}');
 *
 * Commas come by themselves. What does not fit sets `overflow`; such a line is not to be used.
 */
#ifndef ORDEAL_AGENTS_SAMPLER_LINE_H
#define ORDEAL_AGENTS_SAMPLER_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct line {
    char *data;
    size_t size, length;
    bool overflow;
};

void line_reset(struct line *line);
void line_open(struct line *line, char bracket);  /* '{' or '[' */
void line_close(struct line *line, char bracket); /* '}' or ']' */
void line_key(struct line *line, const char *name);
void line_number(struct line *line, int64_t value);
void line_string(struct line *line, const char *text); /* quoted and escaped */
/* JSON as it is, on one line: line ends in it become blanks. */
void line_json(struct line *line, const char *text, size_t length);
/* "name": value */
void line_pair(struct line *line, const char *name, int64_t value);

#endif
