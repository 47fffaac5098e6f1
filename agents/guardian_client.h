/* SPDX-License-Identifier: MIT */
/*
 * The agent's two ways to its guardian (protocol: docs/formats.md).
 *
 * Jobs talk to it on a connection of their own and wait for each answer. The agent's poll loop
 * keeps one connection that never blocks: it renews leases and hears of every change, so that the
 * agent always knows which faults are open.
 */
#ifndef ORDEAL_AGENTS_GUARDIAN_CLIENT_H
#define ORDEAL_AGENTS_GUARDIAN_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/error.h"
#include "lib/loop.h"

/* --- for jobs: blocking ---------------------------------------------------------------------- */

struct guardian_connection {
    int fd;
    struct buffer input;
};

void guardian_disconnect(struct guardian_connection *connection);
#define OWNED_GUARDIAN __attribute__((cleanup(guardian_disconnect)))

MUST_CHECK enum status guardian_connect(const char *state_folder, int64_t deadline_ns,
                                        struct guardian_connection *ret_connection,
                                        struct error *err);
/*
 * One request without its line end, `body` behind it or NULL. The lines before `ok` go to `lines`
 * (NULL: dropped). STATUS_FAILED carries the text of an `error`.
 */
MUST_CHECK enum status guardian_ask(struct guardian_connection *connection, const char *request,
                                    const char *body, int64_t deadline_ns, struct buffer *lines,
                                    struct error *err);

/* One line of `list`. */
struct guardian_record {
    char uid[41], state[16], run[80], fault[80];
    int64_t deadline_ns;
    char text[256]; /* why undoing failed, or empty */
};

/* False when the line is of another kind. */
bool guardian_record_parse(const char *line, struct guardian_record *ret_record);
/* {uid, run, fault, state, deadline_ns, text?} */
json_t *guardian_record_json(const struct guardian_record *record);

/* --- for the poll loop ----------------------------------------------------------------------- */

struct guardian_link;

struct guardian_events {
    /* A fault was closed: by agent, lease, death, boot or restart. */
    void (*closed)(void *argument, const char *uid, const char *by, const char *state,
                   int64_t at_ns, const char *run);
    /* The guardian is gone, so is the promise: the agent ends. */
    void (*lost)(void *argument, const struct error *reason);
};

MUST_CHECK enum status guardian_link_new(struct loop *loop, const char *state_folder,
                                         const struct guardian_events *events, void *argument,
                                         struct guardian_link **ret_link, struct error *err);
void guardian_link_free(struct guardian_link *link);
void guardian_link_renew(struct guardian_link *link, const char *run, int64_t lease_ms);
size_t guardian_link_count(const struct guardian_link *link);
const struct guardian_record *guardian_link_record(const struct guardian_link *link, size_t index);

#endif
