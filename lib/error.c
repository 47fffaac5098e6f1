/* SPDX-License-Identifier: MIT */
#include "lib/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    [STATUS_OK] = "ok",
    [STATUS_USAGE] = "usage",
    [STATUS_INVALID] = "invalid",
    [STATUS_NOT_FOUND] = "not-found",
    [STATUS_EXISTS] = "exists",
    [STATUS_UNSUPPORTED] = "unsupported",
    [STATUS_REFUSED] = "refused",
    [STATUS_UNREACHABLE] = "unreachable",
    [STATUS_TIMEOUT] = "timeout",
    [STATUS_SYSTEM] = "system",
    [STATUS_PROTOCOL] = "protocol",
    [STATUS_DATABASE] = "database",
    [STATUS_CONFLICT] = "conflict",
    [STATUS_FAILED] = "failed",
    [STATUS_ABORTED] = "aborted",
    [STATUS_INTERNAL] = "internal",
};

#define NAME_COUNT (sizeof names / sizeof names[0])

static void format_text(char *text, size_t size, const char *format, va_list args)
{
    int needed = vsnprintf(text, size, format, args);

    if (needed >= 0 && (size_t) needed >= size)
        memcpy(text + size - 4, "...", 4);
}

enum status error_set(struct error *err, enum status code, const char *format, ...)
{
    va_list args;

    if (err == NULL)
        return code;
    error_clear(err);
    err->code = code;
    va_start(args, format);
    format_text(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

enum status error_system(struct error *err, const char *format, ...)
{
    int errnum = errno;
    char message[sizeof err->message];
    va_list args;

    if (err == NULL)
        return STATUS_SYSTEM;
    va_start(args, format);
    format_text(message, sizeof message, format, args);
    va_end(args);
    error_set(err, STATUS_SYSTEM, "%s: %s", message, strerror(errnum));
    err->errnum = errnum;
    return STATUS_SYSTEM;
}

enum status error_context(struct error *err, const char *format, ...)
{
    char context[sizeof err->message];
    char previous[sizeof err->message];
    va_list args;

    if (err == NULL)
        return STATUS_INTERNAL;
    va_start(args, format);
    format_text(context, sizeof context, format, args);
    va_end(args);
    memcpy(previous, err->message, sizeof previous);
    int needed = snprintf(err->message, sizeof err->message, "%s: %s", context, previous);
    if (needed >= 0 && (size_t) needed >= sizeof err->message)
        memcpy(err->message + sizeof err->message - 4, "...", 4);
    return err->code;
}

void error_detail(struct error *err, const char *format, ...)
{
    va_list args;

    if (err == NULL)
        return;
    va_start(args, format);
    format_text(err->detail, sizeof err->detail, format, args);
    va_end(args);
}

void error_hint(struct error *err, const char *format, ...)
{
    va_list args;

    if (err == NULL)
        return;
    va_start(args, format);
    format_text(err->hint, sizeof err->hint, format, args);
    va_end(args);
}

void error_clear(struct error *err)
{
    if (err != NULL)
        *err = (struct error){0};
}

const char *status_name(enum status code)
{
    return (size_t) code < NAME_COUNT ? names[code] : "internal";
}

enum status status_from_name(const char *name)
{
    for (size_t i = 0; i < NAME_COUNT; i++)
        if (strcmp(names[i], name) == 0)
            return (enum status) i;
    return STATUS_INTERNAL;
}
