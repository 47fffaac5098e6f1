/* SPDX-License-Identifier: MIT */
/*
 * What PostgreSQL says of itself, once a second, over one connection of a thread of its own. A
 * server that is down, frozen or full is asked again every second; what was missed is a gap.
 */
#ifndef ORDEAL_AGENTS_SAMPLER_VIEWS_H
#define ORDEAL_AGENTS_SAMPLER_VIEWS_H

#include <pthread.h>
#include <sys/types.h>

#include "agents/sampler/stream.h"
#include "agents/session.h"
#include "lib/buffer.h"
#include "lib/pg.h"

struct views {
    const struct session *session;
    struct stream *stream;
    int64_t period_ms;
    _Atomic pid_t *backend;   /* process of the connection, for the agent; 0: none */
    int stop;                 /* eventfd, readable when it is to end */
    _Atomic pid_t postmaster; /* looked for each time, for who samples processes; 0: none */
    pthread_t thread;

    PGconn *connection; /* NULL: none */
    bool down;          /* said so */
    int version;        /* of the server that `query` was made for */
    struct buffer query;
    struct line line;
};

enum { VIEWS_LINE_SIZE = 128 * 1024, VIEWS_STACK_SIZE = 512 * 1024 };

/* One SELECT for one row of JSON text, for a server's PQserverVersion(). */
void views_query(int version, struct buffer *query);
/* Starts the thread; ends with views_join(), which waits until the deadline at most. */
MUST_CHECK enum status views_start(struct views *views, struct error *err);
void views_join(struct views *views, int64_t deadline_ns);

#endif
