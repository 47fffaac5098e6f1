/* SPDX-License-Identifier: MIT */
/*
 * How a function of Ordeal says that it failed.
 *
 * A function that can fail returns an enum status, which the caller must look at, and fills a
 * struct error. Callers add context with error_context() and pass the status up; only the command
 * functions of the orchestrator and the request handlers of the agent print. Outputs of a function
 * that failed are untouched.
 *
 *     if (thing_open(path, &thing, err) != STATUS_OK)
 *         return error_context(err, "preparing node %s", node);
 *
 * Messages are lower case, name the object and its value, and end without a full stop. Hints are
 * sentences that say what to do. A NULL error is allowed everywhere: the text is dropped.
 */
#ifndef ORDEAL_LIB_ERROR_H
#define ORDEAL_LIB_ERROR_H

#include <stdbool.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

enum status {
    STATUS_OK = 0,
    STATUS_USAGE,       /* the command line is wrong */
    STATUS_INVALID,     /* a value, file or parameter is wrong */
    STATUS_NOT_FOUND,   /* the named thing does not exist */
    STATUS_EXISTS,      /* the named thing is there already */
    STATUS_UNSUPPORTED, /* this kernel, node or version cannot do it */
    STATUS_REFUSED,     /* a rule of Ordeal or of the node forbids it */
    STATUS_UNREACHABLE, /* the peer did not answer, or the connection is gone */
    STATUS_TIMEOUT,     /* a deadline passed */
    STATUS_SYSTEM,      /* a system call failed; errnum says why */
    STATUS_PROTOCOL,    /* the peer broke the protocol */
    STATUS_DATABASE,    /* PostgreSQL answered with an error */
    STATUS_CONFLICT,    /* something that excludes this is active */
    STATUS_FAILED,      /* a program or step ran and failed */
    STATUS_ABORTED,     /* a stop condition, guard or operator ended it */
    STATUS_INTERNAL     /* a bug in Ordeal */
};

struct error {
    enum status code;
    int errnum; /* errno value, 0 when there is none */
    char message[1024];
    char detail[1024];
    char hint[512];
};

/* Fill err and return code. A text that does not fit ends in "...". */
enum status error_set(struct error *err, enum status code, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* As error_set() with STATUS_SYSTEM; appends the text of the current errno. */
enum status error_system(struct error *err, const char *format, ...) PRINTF_LIKE(2, 3);
/* Put "context: " before the message; returns err's code (STATUS_INTERNAL for NULL). */
enum status error_context(struct error *err, const char *format, ...) PRINTF_LIKE(2, 3);
/* Set the detail or the hint; the code is unchanged. */
void error_detail(struct error *err, const char *format, ...) PRINTF_LIKE(2, 3);
void error_hint(struct error *err, const char *format, ...) PRINTF_LIKE(2, 3);
void error_clear(struct error *err);
/* Stable lower-case word for a status ("timeout"), used on the wire; never NULL. */
const char *status_name(enum status code);
/* Inverse of status_name(); STATUS_INTERNAL for an unknown word. */
enum status status_from_name(const char *name);

#endif
