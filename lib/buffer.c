/* SPDX-License-Identifier: MIT */
#include "lib/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(struct buffer *buffer, size_t extra)
{
    if (buffer->overflow || extra > buffer->maximum - buffer->length) {
        buffer->overflow = true;
        return false;
    }
    size_t needed = buffer->length + extra + 1;
    if (needed <= buffer->capacity)
        return true;
    size_t capacity = buffer->capacity == 0 ? 256 : buffer->capacity;
    while (capacity < needed)
        capacity *= 2;
    char *data = realloc(buffer->data, capacity);
    if (data == NULL)
        abort();
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

void buffer_append(struct buffer *buffer, const void *data, size_t length)
{
    if (!reserve(buffer, length))
        return;
    if (length > 0)
        memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
    buffer->data[buffer->length] = '\0';
}

void buffer_puts(struct buffer *buffer, const char *text)
{
    buffer_append(buffer, text, strlen(text));
}

void buffer_printf(struct buffer *buffer, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        abort();
    if (!reserve(buffer, (size_t) length))
        return;
    va_start(args, format);
    vsnprintf(buffer->data + buffer->length, (size_t) length + 1, format, args);
    va_end(args);
    buffer->length += (size_t) length;
}

void buffer_consume(struct buffer *buffer, size_t length)
{
    if (length > buffer->length)
        abort();
    if (length == 0)
        return;
    memmove(buffer->data, buffer->data + length, buffer->length - length + 1);
    buffer->length -= length;
}

void buffer_reset(struct buffer *buffer)
{
    buffer->length = 0;
    buffer->overflow = false;
    if (buffer->data != NULL)
        buffer->data[0] = '\0';
}

void buffer_done(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = BUFFER(buffer->maximum);
}

const char *buffer_text(const struct buffer *buffer)
{
    return buffer->data == NULL ? "" : buffer->data;
}
