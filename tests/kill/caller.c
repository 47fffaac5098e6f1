/* SPDX-License-Identifier: MIT */
#include "tests/kill/caller.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/rpc.h"
#include "lib/tls.h"

enum { HANDSHAKE_MS = 2000, BEAT_MS = 100, CALL_MS = 30000, AGAIN_MS = 20 };

struct caller {
    const struct topology_node *node;
    const char *run;
    struct loop *loop;
    SSL_CTX *context;
    struct rpc *rpc;
    bool ready, closed;
    struct error reason; /* why it is closed */
    int64_t last_id, awaited_id;
    json_t *answer, *done; /* to the one request that is waited for; the last job.done */
};

/* --- events ---------------------------------------------------------------------------------- */

static void on_ready(void *argument, struct rpc *rpc)
{
    struct caller *caller = argument;

    (void) rpc;
    caller->ready = true;
}

static void on_message(void *argument, struct rpc *rpc, json_t *message)
{
    struct caller *caller = argument;

    (void) rpc;
    if (json_object_get(message, "method") == NULL) {
        if (json_number(message, "id", -1) == caller->awaited_id)
            caller->answer = json_incref(message);
    } else if (strcmp(json_text(message, "method", ""), "job.done") == 0) {
        json_decref(caller->done);
        caller->done = json_incref(json_object_get(message, "params"));
    }
}

static void on_closed(void *argument, struct rpc *rpc, const struct error *reason)
{
    struct caller *caller = argument;

    (void) rpc;
    caller->closed = true;
    caller->reason = *reason;
}

static void on_beat(void *argument)
{
    struct caller *caller = argument;
    struct error err;
    json_t *params = json_pack("{s:s, s:i}", "run", caller->run, "lease_ms", KILL_LEASE_MS);

    if (!caller->closed &&
        rpc_send(caller->rpc, rpc_request(++caller->last_id, "heartbeat", params), &err) !=
            STATUS_OK)
        caller->closed = true;
}

/* --- calls ----------------------------------------------------------------------------------- */

static enum status turn(struct caller *caller, int64_t deadline_ns, const char *what,
                        struct error *err)
{
    enum status status = loop_turn(caller->loop, BEAT_MS, err);

    if (status == STATUS_OK && caller->closed) {
        *err = caller->reason;
        err->code = STATUS_UNREACHABLE;
        return error_context(err, "%s on %s", what, caller->node->name);
    }
    if (status == STATUS_OK && deadline_passed(deadline_ns))
        return error_set(err, STATUS_TIMEOUT, "%s on %s: no answer", what, caller->node->name);
    return status;
}

static enum status result_of(const json_t *answer, const char *error_member, json_t **ret_result,
                             struct error *err)
{
    const json_t *error = json_object_get(answer, "error");

    if (error == NULL) {
        *ret_result = json_incref(json_object_get(answer, "result"));
        return STATUS_OK;
    }
    return json_to_error(error_member != NULL ? json_object_get(error, error_member) : error, err);
}

static enum status await_job(struct caller *caller, int64_t job, const char *method,
                             int64_t deadline_ns, json_t **ret_result, struct error *err)
{
    while (json_number(caller->done, "job", 0) != job) {
        enum status status = turn(caller, deadline_ns, method, err);
        if (status != STATUS_OK)
            return status;
    }
    return result_of(caller->done, NULL, ret_result, err);
}

enum status caller_call(struct caller *caller, const char *method, json_t *params,
                        json_t **ret_result, struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(CALL_MS);
    OWNED_JSON json_t *first = NULL;
    OWNED_JSON json_t *result = NULL;

    caller->awaited_id = ++caller->last_id;
    enum status status =
        rpc_send(caller->rpc, rpc_request(caller->awaited_id, method, params), err);
    while (status == STATUS_OK && caller->answer == NULL)
        status = turn(caller, deadline_ns, method, err);
    if (status != STATUS_OK)
        return status;
    first = caller->answer;
    caller->answer = NULL;
    status = result_of(first, "data", &result, err);
    int64_t job = json_number(result, "job", 0);
    if (status == STATUS_OK && job != 0) {
        json_decref(result);
        result = NULL;
        status = await_job(caller, job, method, deadline_ns, &result, err);
    }
    if (status != STATUS_OK)
        return error_context(err, "%s on %s", method, caller->node->name);
    if (ret_result != NULL)
        *ret_result = json_incref(result);
    return STATUS_OK;
}

void caller_beat(struct caller *caller, int64_t deadline_ns)
{
    struct error err;

    while (turn(caller, deadline_ns, "heartbeat", &err) == STATUS_OK)
        ;
}

/* --- the session ----------------------------------------------------------------------------- */

static enum status connect_once(struct caller *caller, struct error *err)
{
    static const struct rpc_events events = {
        .ready = on_ready, .message = on_message, .closed = on_closed};
    int64_t deadline_ns = deadline_in_ms(HANDSHAKE_MS);
    int fd = -1;
    enum status status = rpc_dial(caller->node->address, (int) caller->node->agent_port, &fd, err);

    if (status == STATUS_OK)
        status = rpc_new(caller->loop, caller->context, fd, false, caller->node->name, HANDSHAKE_MS,
                         &events, caller, &caller->rpc, err);
    while (status == STATUS_OK && !caller->ready)
        status = turn(caller, deadline_ns, "connecting", err);
    return status;
}

static enum status try_open(const struct topology *topology, const struct topology_node *node,
                            const char *run, struct caller **ret_caller, struct error *err)
{
    const struct tls_files files = {topology->control.ca, topology->control.certificate,
                                    topology->control.key};
    struct caller *caller = calloc(1, sizeof *caller);

    if (caller == NULL)
        abort();
    caller->node = node;
    caller->run = run;
    enum status status = loop_new(&caller->loop, err);
    if (status == STATUS_OK)
        status = tls_context(TLS_ORCHESTRATOR, &files, &caller->context, err);
    if (status == STATUS_OK)
        status = connect_once(caller, err);
    if (status == STATUS_OK)
        status = caller_call(caller, "session.open",
                             topology_session(topology, node, run, KILL_LEASE_MS), NULL, err);
    if (status != STATUS_OK) {
        caller_free(caller);
        return status;
    }
    loop_every(caller->loop, BEAT_MS, on_beat, caller);
    *ret_caller = caller;
    return STATUS_OK;
}

enum status caller_open(const struct topology *topology, const struct topology_node *node,
                        const char *run, int64_t deadline_ns, struct caller **ret_caller,
                        struct error *err)
{
    for (;;) {
        enum status status = try_open(topology, node, run, ret_caller, err);
        if (status == STATUS_OK || deadline_passed(deadline_ns))
            return status;
        poll(NULL, 0, AGAIN_MS);
    }
}

void caller_close(struct caller *caller)
{
    struct error err;

    if (caller == NULL)
        return;
    enum status status =
        caller_call(caller, "session.close",
                    json_pack("{s:s, s:b}", "run", caller->run, "purge", 1), NULL, &err);
    (void) status; /* the next session waits for the end of this one */
    caller_free(caller);
}

void caller_free(struct caller *caller)
{
    if (caller == NULL)
        return;
    rpc_free(caller->rpc);
    SSL_CTX_free(caller->context);
    loop_free(caller->loop);
    json_decref(caller->answer);
    json_decref(caller->done);
    free(caller);
}
