/* SPDX-License-Identifier: MIT */
/*
 * Insides of the agent, shared by server.c (listener, connections, dispatch, session), jobs.c and
 * agent_methods.c. Other methods use agents/method.h.
 */
#ifndef ORDEAL_AGENTS_AGENT_H
#define ORDEAL_AGENTS_AGENT_H

#include <netinet/in.h>
#include <openssl/ssl.h>

#include "agents/guardian_client.h"
#include "agents/method.h"
#include "agents/policy.h"
#include "agents/server.h"
#include "lib/clock.h"
#include "lib/process.h"
#include "lib/rpc.h"

enum { CONNECTIONS_MAX = 16, JOBS_MAX = 32, END_CALLS_MAX = 8 };

struct connection {
    struct connection *next;
    struct agent *agent;
    struct rpc *rpc;
    int64_t id;
    char peer[INET6_ADDRSTRLEN];
};

struct job {
    struct job *next;
    struct agent *agent;
    int64_t id, connection; /* who asked */
    const struct method *method;
    json_t *params;
    struct process process;
    int output; /* what the child says; -1 at its end */
    bool told;  /* the caller has its answer, or wants none */
    struct buffer said;
    loop_handle output_watch, end_watch, timer;
};

struct agent {
    const struct agent_options *options;
    struct loop *loop;
    SSL_CTX *tls;
    struct policy policy;
    int listener;
    char boot_id[BOOT_ID_SIZE];
    struct guardian_link *guardian;
    struct connection *connections;
    struct connection *serving; /* whose request is being carried out */
    struct session *session;
    json_t *session_params; /* as they came, to know a reconnect */
    int64_t owner;          /* connection of the session; 0: lost */
    loop_handle lonely;     /* ends a session to which nobody comes back */
    struct job *jobs;
    int64_t last_connection, last_job;
    struct {
        void (*call)(void *argument);
        void *argument;
    } end_calls[END_CALLS_MAX];
    size_t end_call_count;
    struct error fatal; /* why the agent ends by itself */
};

struct connection *agent_connection(struct agent *agent, int64_t id);
/* Open, or come back to, the session on the connection that is being served. */
MUST_CHECK enum status agent_open_session(struct agent *agent, const json_t *params,
                                          struct error *err);
/* The run whose orchestrator is connected now, or NULL. */
const char *agent_serving_run(struct agent *agent);
void agent_end_session(struct agent *agent);

/* Fork a child for a job method; its id goes to the caller at once, its result later. */
MUST_CHECK enum status job_start(struct agent *agent, const struct method *method,
                                 const json_t *params, int64_t *ret_job, struct error *err);
void jobs_kill(struct agent *agent); /* all, without a word to anybody */
/*
 * Kill the jobs of a method that act on a uid (NULL: on any); who asked for them is told. When this
 * returns they take no further step: what they did is in the journal, or was not done.
 */
void jobs_call_off(struct agent *agent, const char *method, const char *uid);

#endif
