/* SPDX-License-Identifier: MIT */
/*
 * The one log sink of a process: lines on stderr, "time level who: message".
 *
 * Only main programs and request handlers log; library code returns errors. Never log a secret,
 * a connection string or an environment.
 */
#ifndef ORDEAL_LIB_LOG_H
#define ORDEAL_LIB_LOG_H

#include "lib/error.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

/* Name that stands in each line ("ordeald n1"); the text is copied. */
void log_init(const char *who, enum log_level level);
void log_line(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);
/* "message", then detail and hint on lines of their own when they are set. */
void log_error(const struct error *err);

#endif
