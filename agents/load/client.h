/* SPDX-License-Identifier: MIT */
/*
 * One client: a connection, its schedule, its tokens, and the transaction that it is in.
 *
 *     waiting -> connecting -> setting up -> idle -> beginning -> committing -> idle ...
 *                                                 -> reading -> idle
 *
 * One that ticks has no connection and stays what it is until it stops (agents/load/warm.h).
 *
 * A client tries one host at a time, each with a deadline of its own. It leaves a statement that
 * does not answer after STATEMENT_MS and a commit after the plan's commit timeout, by closing the
 * connection without a cancel: that is what applications do, and a cancel would end the wait for
 * the standbys.
 */
#ifndef ORDEAL_AGENTS_LOAD_CLIENT_H
#define ORDEAL_AGENTS_LOAD_CLIENT_H

#include <libpq-fe.h>

#include "agents/load/schedule.h"
#include "agents/load/worker.h"

enum {
    CONNECT_MS = 1000,     /* TCP, TLS, authentication and set-up of one host together */
    STATEMENT_MS = 5000,   /* begin and insert, or a read */
    SILENT_HOST_MS = 2000, /* sent, and not even acknowledged by the other host's kernel */
    BACKOFF_MIN_MS = 20,
    BACKOFF_MAX_MS = 200,
    BACKOFF_SPARE_MS = 2000, /* of a warm connection that nobody needs now */
    RESERVE_TOKENS = 4096    /* a block that is durable before its first use */
};

enum client_state {
    CLIENT_TICKING, /* has the warm clients' schedule */
    CLIENT_WAITING, /* no connection */
    CLIENT_CONNECTING,
    CLIENT_SETTING_UP,
    CLIENT_IDLE,
    CLIENT_BEGINNING,
    CLIENT_COMMITTING,
    CLIENT_READING,
    CLIENT_STOPPED,
    CLIENT_STATES
};

struct client_reply { /* to what was sent last */
    bool sync_wait_notice;
    char tag[24], severity[8], sqlstate[6];
};

struct client {
    struct worker *worker;
    const struct load_group *group;
    uint32_t id;
    enum client_state state;
    size_t index; /* in worker->clients */
    struct timer timer;
    struct schedule schedule;

    PGconn *connection;
    uint32_t generation, events; /* of the epoll registration */
    int fd;
    bool in_session;      /* the connection has a SESSION record */
    bool warnings_hidden; /* in this transaction, whatever the session was set to */
    bool has_start;
    size_t host; /* place in the endpoint's list */
    unsigned failures;
    uint16_t node;
    uint32_t timeline;
    enum ledger_level level;

    uint64_t next_seq, last_seq;                /* last: the newest whose COMMIT was sent */
    uint64_t reserved, reserving, reserving_at; /* tokens up to; position that must be durable */
    int64_t attempt_ns;                         /* the connection was begun */
    int64_t scheduled_ns, begun_ns, commit_ns;
    uint64_t seq, lsn; /* of the transaction */
    uint64_t read_clients[2], read_seqs[2];
    struct client_reply reply;
    bool in_recovery, set_up; /* what the set-up query said */
};

void client_init(struct client *client, struct worker *worker, const struct load_group *group,
                 size_t index, uint32_t id);
/* Ask for a block of tokens. */
void client_reserve(struct client *client);
/* Begin, with a schedule that starts at the instant. */
void client_start(struct client *client, int64_t begin_ns);
void client_ready(struct client *client);
/* The ledger became durable further: tokens that were waited for may be used. */
void client_flushed(struct client *client);
/* The endpoint was opened, moved or closed: a client that waits tries again at once. */
void client_rerouted(struct client *client);
/* The worker is stopping: a client that is in no transaction stops. */
void client_stop(struct client *client);
/* The time to finish is over: what is in flight is left. */
void client_abandon(struct client *client);
/* For the probe on warm connections. */
extern const struct warm_hands client_hands;
/* Read back with this client, if it is idle and there is a token to look for. */
bool client_read(struct client *client);

/* --- between client.c, client_reply.c and client_session.c ----------------------------------- */

/* Take what has come, rows first of all; true when the reply is whole. */
bool reply_take(struct client *client, void (*rows)(struct client *client, const PGresult *result));
/* Did the reply end the session, or did the session end instead? */
bool reply_lost(const struct client *client);
/* Choose an own and a foreign token to look for; false when there is none yet. */
bool read_choose(struct client *client);
bool read_send(struct client *client);
void read_rows(struct client *client, const PGresult *result);

/* A record of this client about its present session. */
struct ledger_record client_about(const struct client *client, enum ledger_kind kind);
void client_arm(struct client *client, int64_t at_ns);
/* Send a text and forget the reply to the one before; false when the connection is gone. */
bool client_send(struct client *client, const char *text);
/* Send what the kernel did not take before, if there is any; false when the connection is gone. */
bool client_flush(struct client *client);
/* Try the hosts of the endpoint, one after the other: client_opened() or client_refused(). */
void session_open(struct client *client);
/* The endpoint has moved: an attempt at another host begins anew at the right one. */
void session_reroute(struct client *client);
void session_connecting(struct client *client);        /* the socket is ready */
void session_set_up(struct client *client, bool lost); /* the reply to the set-up is whole */
void session_set_up_row(struct client *client, const PGresult *result);
/* This host took too long or said no (sqlstate, or empty): the next one. */
void session_host_failed(struct client *client, const char *sqlstate);
/* Note the durability and timeline in force; a change begins a new session record. */
void session_in_force(struct client *client, const char *level, const char *client_min_messages,
                      uint32_t timeline);
void session_close(struct client *client);
void client_opened(struct client *client);
void client_refused(struct client *client, const char *sqlstate);

#endif
