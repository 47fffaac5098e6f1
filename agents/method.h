/* SPDX-License-Identifier: MIT */
/*
 * Methods of the agent: tables, each listed once in methods.def.
 *
 * A job runs in a forked child of its own and blocks as it likes until its deadline; what it
 * returns goes to the caller as job.done. Everything else runs in the agent's poll loop and must
 * return at once. Parameters arrive checked against `params` (unknown names, types, required).
 */
#ifndef ORDEAL_AGENTS_METHOD_H
#define ORDEAL_AGENTS_METHOD_H

#include "agents/session.h"
#include "lib/loop.h"

struct agent;

struct method_call {
    struct agent *agent;           /* inline methods only: NULL in a job */
    const struct session *session; /* NULL only for methods with no_session */
    const char *state_folder;      /* of the agent */
    const json_t *params;
    int64_t deadline_ns; /* jobs: params.timeout_ms from now, or the method's own timeout */
};

/* Types of jansson, as in json_unpack: s string, i integer, b boolean, o object, a array, r real or
 * integer, n any. */
struct method_param {
    const char *name;
    char type;
    bool required; /* a null counts as absent when it is not */
};

struct method {
    const char *name;
    bool job, no_session;
    int64_t timeout_ms;                /* of a job when params have none */
    const struct method_param *params; /* ends with {0} */
    enum status (*call)(const struct method_call *call, json_t **ret_result, struct error *err);
    /* Of a job, optional: in the agent's poll loop, right before the job is forked. */
    void (*before)(const struct method_call *call);
};

/* What inline methods may use of the agent. */
struct loop *agent_loop(struct agent *agent);
void agent_notify(struct agent *agent, const char *method, json_t *params); /* takes params */
const char *agent_state_folder(const struct agent *agent);
/* Called when the session ends (closed, replaced or the agent stops); one slot a module. */
void agent_on_session_end(struct agent *agent, void (*call)(void *argument), void *argument);

#endif
