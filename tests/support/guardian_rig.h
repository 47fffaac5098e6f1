/* SPDX-License-Identifier: MIT */
/*
 * The guardian as a program, with a scripted ordeald in a temporary folder: its undo writes down
 * what it was given, and fails or hangs while a file `fail` or `hang` is there. It complains in a
 * file `too-early` when the process named in a file `injector` still runs.
 */
#ifndef ORDEAL_TESTS_SUPPORT_GUARDIAN_RIG_H
#define ORDEAL_TESTS_SUPPORT_GUARDIAN_RIG_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "agents/guardian_client.h"

enum { PATIENCE_MS = 8000, LEASE_MS = 60000, SHORT_LEASE_MS = 300, UNDO_TIMEOUT_MS = 700 };

extern pid_t rig_guardian;
extern struct guardian_connection rig_watching; /* after rig_setup() */

struct end {
    char uid[41], by[16], state[16];
    int64_t at_ns;
};

const char *rig_path(const char *name); /* in the test's folder; good for the next 8 calls */
void rig_write(const char *name, const char *text, mode_t mode);
bool rig_has(const char *name);
void rig_await_file(const char *name);
pid_t rig_pid(const char *name); /* that a file holds */
/* How often an undo succeeded; the text that the last one was given is kept. */
int rig_undos(char *text, size_t size);
void rig_start(void);
void rig_stop(int number); /* with that signal, and waited for */
struct guardian_connection rig_dial(void);
/* The text of a refusal, or "" for `ok`. */
const char *rig_ask(struct guardian_connection *connection, const char *request, const char *body);
const char *rig_open(struct guardian_connection *connection, const char *uid, int lease_ms,
                     int hold_ms);
void rig_inject(struct guardian_connection *connection, const char *uid, int lease_ms);
/* The next `closed` line on the watching connection. */
struct end rig_await_end(void);
/* The line of a fault in `list`; false when it is not open. */
bool rig_listed(const char *uid, struct guardian_record *ret_record);
void rig_await_state(const char *uid, const char *state);
void rig_setup(void);
void rig_teardown(void);

/* Ask, and expect that text of an `error`, or "" for `ok`. */
#define ASK(connection, expected, ...)                                                             \
    do {                                                                                           \
        char request_[256];                                                                        \
        snprintf(request_, sizeof request_, __VA_ARGS__);                                          \
        const char *said_ = rig_ask(connection, request_, NULL);                                   \
        ck_assert_msg(strcmp(said_, expected) == 0, "%s: '%s'", request_, said_);                  \
    } while (0)

#endif
