/* SPDX-License-Identifier: MIT */
/*
 * Growing bytes with a declared maximum.
 *
 * Appending past the maximum sets `overflow` and drops the addition whole; the flag stays until
 * buffer_reset(), so that a writer may append many times and look once. The content is always
 * followed by a NUL byte that is not counted in `length`.
 */
#ifndef ORDEAL_LIB_BUFFER_H
#define ORDEAL_LIB_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/error.h"

struct buffer {
    char *data; /* never NULL after the first append; use buffer_text() before */
    size_t length, capacity, maximum;
    bool overflow;
};

#define BUFFER(max_bytes)                                                                          \
    (struct buffer)                                                                                \
    {                                                                                              \
        .maximum = (max_bytes)                                                                     \
    }

void buffer_append(struct buffer *buffer, const void *data, size_t length);
void buffer_puts(struct buffer *buffer, const char *text);
void buffer_printf(struct buffer *buffer, const char *format, ...) PRINTF_LIKE(2, 3);
/* Remove the first `length` bytes. */
void buffer_consume(struct buffer *buffer, size_t length);
void buffer_reset(struct buffer *buffer); /* empty; keeps the memory */
void buffer_done(struct buffer *buffer);  /* frees; the buffer is empty and usable */
const char *buffer_text(const struct buffer *buffer);

#endif
