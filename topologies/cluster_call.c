/* SPDX-License-Identifier: MIT */
/*
 * Requests to agents and who waits for them. A request ends once: by its answer, by the end of its
 * job, by its deadline or with its connection.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "topologies/cluster_link.h"

/* ---- requests ---- */

static struct pending *new_pending(struct link *link, const char *method, int64_t timeout_ms)
{
    struct cluster *cluster = link->cluster;
    struct pending *pending = calloc(1, sizeof *pending);

    if (pending == NULL || (pending->method = strdup(method)) == NULL)
        abort(); /* lib/arena.h says why */
    pending->link = link;
    pending->id = ++cluster->last_id;
    pending->timeout_ms = timeout_ms;
    pending->next = cluster->pending;
    cluster->pending = pending;
    return pending;
}

static void finish(struct pending *pending, enum status status, const json_t *result,
                   const struct error *error)
{
    struct cluster *cluster = pending->link->cluster;
    struct pending **at = &cluster->pending;

    while (*at != pending)
        at = &(*at)->next;
    *at = pending->next;
    loop_remove(cluster->loop, pending->timer);
    if (status == STATUS_OK && strcmp(pending->method, "session.close") == 0)
        pending->link->state = LINK_CLOSED;
    if (pending->done != NULL)
        pending->done(pending->argument, status, result, error);
    free(pending->method);
    free(pending);
}

static void fail(struct pending *pending, const struct error *reason)
{
    struct error error = *reason;

    error_context(&error, "%s: %s", pending->link->node->name, pending->method);
    finish(pending, error.code, NULL, &error);
}

static void on_deadline(void *argument)
{
    struct pending *pending = argument;
    struct error error = {0};

    if (!pending->unsent)
        error_set(&error, STATUS_TIMEOUT, "no answer within %" PRId64 " ms", pending->timeout_ms);
    else if (pending->link->state == LINK_CLOSED)
        error_set(&error, STATUS_UNREACHABLE, "the session is closed");
    else
        error = pending->link->reason;
    if (pending->unsent)
        error.code = STATUS_UNREACHABLE;
    fail(pending, &error);
}

void link_request(struct link *link, const char *method, json_t *params, int64_t timeout_ms,
                  request_done *done, void *argument)
{
    struct cluster *cluster = link->cluster;
    struct pending *pending = new_pending(link, method, timeout_ms);
    struct error error = {0};

    pending->done = done;
    pending->argument = argument;
    if (params == NULL)
        params = json_object();
    if (link->rpc == NULL) {
        json_decref(params);
        pending->unsent = true;
    } else if (rpc_send(link->rpc, rpc_request(pending->id, method, params), &error) != STATUS_OK) {
        link->reason = error;
        pending->unsent = true;
    }
    int64_t due_ns = pending->unsent ? clock_boot_ns() : deadline_in_ms(timeout_ms);
    pending->timer = loop_at(cluster->loop, due_ns, on_deadline, pending);
}

void link_fail_requests(struct link *link, const struct error *reason)
{
    struct error why = *reason;
    struct pending *pending = link->cluster->pending;

    if (why.code == STATUS_OK || why.code == STATUS_SYSTEM)
        why.code = STATUS_UNREACHABLE;
    while (pending != NULL) {
        if (pending->link != link || pending->unsent) {
            pending = pending->next;
            continue;
        }
        fail(pending, &why);
        pending = link->cluster->pending; /* the callback may have changed the list */
    }
}

/* ---- answers ---- */

static struct pending *find_pending(const struct link *link, int64_t id, int64_t job)
{
    for (struct pending *pending = link->cluster->pending; pending != NULL; pending = pending->next)
        if (pending->link == link && !pending->unsent &&
            (job != 0 ? pending->job == job : pending->id == id))
            return pending;
    return NULL;
}

static void answer_error(struct pending *pending, const json_t *carrier)
{
    struct error error = {0};

    json_to_error(carrier, &error);
    if (error.code == STATUS_OK)
        error.code = STATUS_PROTOCOL;
    fail(pending, &error);
}

/* The agent's last words: why it closes the connection. */
static void answer_farewell(struct link *link, const json_t *carrier)
{
    const json_t *data = json_object_get(carrier, "data");
    struct error error = {0};

    json_to_error(json_is_object(data) ? data : carrier, &error);
    link_lost(link, &error);
}

/* {"job": N} and nothing else: the result comes later. */
static bool names_job(const json_t *result, int64_t *ret_job)
{
    if (json_object_size(result) != 1 || !json_is_integer(json_object_get(result, "job")))
        return false;
    *ret_job = json_number(result, "job", 0);
    return *ret_job != 0;
}

static void answer_response(struct link *link, const json_t *message)
{
    struct pending *pending = find_pending(link, json_number(message, "id", 0), 0);
    const json_t *error = json_object_get(message, "error");

    if (error != NULL && json_is_null(json_object_get(message, "id"))) {
        answer_farewell(link, error);
        return;
    }
    if (pending == NULL)
        return; /* its caller gave up */
    if (error != NULL) {
        const json_t *data = json_object_get(error, "data");
        answer_error(pending, json_is_object(data) ? data : error);
        return;
    }
    const json_t *result = json_object_get(message, "result");
    if (!names_job(result, &pending->job))
        finish(pending, STATUS_OK, result, NULL);
}

static void answer_job(struct link *link, const json_t *params)
{
    int64_t job = json_number(params, "job", 0);
    struct pending *pending = job != 0 ? find_pending(link, 0, job) : NULL;
    const json_t *error = json_object_get(params, "error");

    if (pending == NULL)
        return;
    if (json_is_object(error))
        answer_error(pending, error);
    else
        finish(pending, STATUS_OK, json_object_get(params, "result"), NULL);
}

bool link_answer(struct link *link, const json_t *message)
{
    const char *method = json_text(message, "method", NULL);

    if (method == NULL) {
        answer_response(link, message);
        return true;
    }
    if (strcmp(method, "job.done") != 0)
        return false;
    answer_job(link, json_object_get(message, "params"));
    return true;
}

/* ---- callers ---- */

static enum status may_block(const struct cluster *cluster, struct error *err)
{
    if (cluster->turning)
        return error_set(err, STATUS_INTERNAL, "a callback of the loop called a blocking function");
    if (!cluster->aborted || cluster->shielded)
        return STATUS_OK;
    if (err != NULL)
        *err = cluster->reason;
    return STATUS_ABORTED;
}

static enum status turn(struct cluster *cluster, int64_t deadline_ns, struct error *err)
{
    cluster->turning = true;
    enum status status = loop_turn(cluster->loop, deadline_left_ms(deadline_ns), err);
    cluster->turning = false;
    return status;
}

enum status cluster_wait(struct cluster *cluster, bool (*done)(void *argument), void *argument,
                         int64_t deadline_ns, struct error *err)
{
    enum status status = may_block(cluster, err);

    while (status == STATUS_OK && !done(argument)) {
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "the deadline passed");
        status = turn(cluster, deadline_ns, err);
        if (status == STATUS_OK)
            status = may_block(cluster, err);
    }
    return status;
}

void cluster_post(struct cluster *cluster, const char *node, const char *method, json_t *params,
                  int64_t timeout_ms, request_done *done, void *argument)
{
    struct link *link = cluster_link(cluster, node);

    if (link == NULL)
        abort(); /* names come from the topology; another one is a bug of the caller */
    if (link->state == LINK_READY) {
        link_request(link, method, params, timeout_ms, done, argument);
        return;
    }
    struct pending *pending = new_pending(link, method, timeout_ms);
    json_decref(params);
    pending->done = done;
    pending->argument = argument;
    pending->unsent = true;
    pending->timer = loop_at(cluster->loop, clock_boot_ns(), on_deadline, pending);
}

/* One request of cluster_call_all() and the count of those that are still open. */
struct slot {
    struct cluster_request *request;
    size_t *open;
};

static void fill_slot(void *argument, enum status status, const json_t *result,
                      const struct error *error)
{
    struct slot *slot = argument;

    slot->request->status = status;
    if (status == STATUS_OK)
        slot->request->result = json_incref((json_t *) (uintptr_t) result);
    else
        slot->request->error = *error;
    (*slot->open)--;
}

static bool all_filled(void *argument)
{
    return *(size_t *) argument == 0;
}

/* The wait ended early: nobody is there to take what still comes. */
static void abandon(struct cluster *cluster, const struct slot *slots, size_t count,
                    enum status status, const struct error *error)
{
    for (struct pending *pending = cluster->pending; pending != NULL; pending = pending->next) {
        const struct slot *slot = pending->argument;

        if (pending->done != fill_slot || slot < slots || slot >= slots + count)
            continue;
        pending->done = NULL;
        slot->request->status = status;
        slot->request->error = *error;
    }
}

static void refuse_all(struct cluster_request *requests, size_t count, enum status status,
                       const struct error *error)
{
    for (size_t i = 0; i < count; i++) {
        json_decref(requests[i].params);
        requests[i].params = NULL;
        requests[i].status = status;
        requests[i].error = *error;
    }
}

static void post_slot(struct cluster *cluster, struct slot *slot)
{
    struct cluster_request *request = slot->request;
    json_t *params = request->params;

    request->params = NULL;
    cluster_post(cluster, request->node, request->method, params, request->timeout_ms, fill_slot,
                 slot);
}

void cluster_call_all(struct cluster *cluster, struct cluster_request *requests, size_t count)
{
    struct slot *slots = calloc(count + 1, sizeof *slots);
    struct error error = {0};
    size_t open = count;

    if (slots == NULL)
        abort(); /* as above */
    for (size_t i = 0; i < count; i++)
        requests[i].result = NULL;
    enum status status = may_block(cluster, &error);
    if (status != STATUS_OK) {
        refuse_all(requests, count, status, &error);
        free(slots);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        slots[i] = (struct slot){.request = &requests[i], .open = &open};
        post_slot(cluster, &slots[i]);
    }
    /* every request has a deadline of its own */
    status = cluster_wait(cluster, all_filled, &open, INT64_MAX, &error);
    if (status != STATUS_OK)
        abandon(cluster, slots, count, status, &error);
    free(slots);
}

enum status cluster_call(struct cluster *cluster, const char *node, const char *method,
                         json_t *params, int64_t timeout_ms, json_t **ret_result, struct error *err)
{
    struct cluster_request request = {
        .node = node, .method = method, .params = params, .timeout_ms = timeout_ms};

    cluster_call_all(cluster, &request, 1);
    if (request.status != STATUS_OK) {
        if (err != NULL)
            *err = request.error;
        json_decref(request.result);
        return request.status;
    }
    if (ret_result != NULL)
        *ret_result = request.result;
    else
        json_decref(request.result);
    return STATUS_OK;
}

void cluster_abort(struct cluster *cluster, const struct error *reason)
{
    if (cluster->aborted)
        return;
    cluster->aborted = true;
    cluster->reason = *reason;
    cluster->reason.code = STATUS_ABORTED;
}

void cluster_shield(struct cluster *cluster)
{
    cluster->shielded = true;
}

void cluster_unshield(struct cluster *cluster)
{
    cluster->shielded = false;
}
