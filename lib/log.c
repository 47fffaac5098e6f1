/* SPDX-License-Identifier: MIT */
#include "lib/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "lib/clock.h"

static struct {
    char who[64];
    enum log_level level;
} sink = {.who = "ordeal", .level = LOG_INFO};

void log_init(const char *who, enum log_level level)
{
    snprintf(sink.who, sizeof sink.who, "%s", who);
    sink.level = level;
}

void log_line(enum log_level level, const char *format, ...)
{
    static const char *const words[] = {"error", "warning", "info", "debug"};
    char when[WALL_TEXT_SIZE];
    char message[2048];
    va_list args;

    if (level > sink.level)
        return;
    clock_wall_text(clock_wall_ns(), when);
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fprintf(stderr, "%s %s %s: %s\n", when, words[level], sink.who, message);
}

void log_error(const struct error *err)
{
    log_line(LOG_ERROR, "%s", err->message);
    if (err->detail[0] != '\0')
        log_line(LOG_ERROR, "detail: %s", err->detail);
    if (err->hint[0] != '\0')
        log_line(LOG_ERROR, "hint: %s", err->hint);
}
