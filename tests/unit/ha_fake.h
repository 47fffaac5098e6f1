/* SPDX-License-Identifier: MIT */
/*
 * Stands in for cluster.h and clock.h when it is linked into a test: calls are answered by the
 * model of ha_model.h at once, time passes only by calls and waits, and every call is
 * kept for the test to look at. One answer of a method on a node can be replaced by a failure.
 */
#ifndef ORDEAL_TESTS_UNIT_HA_FAKE_H
#define ORDEAL_TESTS_UNIT_HA_FAKE_H

#include <limits.h>

#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/loop.h"
#include "tests/unit/ha_actions.h"
#include "topologies/cluster.h"

enum { FAKE_CALL_MS = 5 };

static struct buffer fake_calls = {.maximum = 200000};
static struct {
    const char *node, *method;
    enum status status;
} fake_failures[4];
static bool fake_aborted;
static struct loop *fake_loop;

/* ---- clock.h ---- */

int64_t clock_boot_ns(void)
{
    return fake_now_ns;
}

int64_t clock_wall_ns(void)
{
    return fake_now_ns;
}

int deadline_left_ms(int64_t deadline_ns)
{
    int64_t left_ms = (deadline_ns - fake_now_ns + NS_PER_MS - 1) / NS_PER_MS;

    return left_ms < 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int) left_ms;
}

void clock_wall_text(int64_t wall_ns, char text[WALL_TEXT_SIZE])
{
    snprintf(text, WALL_TEXT_SIZE, "%lld", (long long) wall_ns);
}

/* ---- cluster.h ---- */

static inline enum status fake_failure(const struct cluster_request *request)
{
    const struct model_node *node = model_find(request->node);

    for (size_t i = 0; i < sizeof fake_failures / sizeof fake_failures[0]; i++)
        if (fake_failures[i].node != NULL && strcmp(fake_failures[i].node, request->node) == 0 &&
            strcmp(fake_failures[i].method, request->method) == 0)
            return fake_failures[i].status;
    if (node != NULL && node->silent)
        return STATUS_UNREACHABLE;
    return STATUS_OK;
}

static inline void fake_answer(struct cluster_request *request)
{
    const char *detail = json_text(request->params, "source", NULL);
    struct model_node *node = model_find(request->node);

    if (strcmp(request->method, "load.route") == 0)
        detail = json_text(request->params, "host", "closed");
    if (strcmp(request->method, "power") == 0)
        detail = json_text(request->params, "word", NULL);
    if (strcmp(request->method, "postgres.state") != 0)
        buffer_printf(&fake_calls, "%s %s%s%s\n", request->node, request->method,
                      detail == NULL ? "" : " ", detail == NULL ? "" : detail);
    request->status = fake_failure(request);
    if (request->status == STATUS_OK)
        request->result = node == NULL ? fake_do_elsewhere(request->method, request->params)
                                       : fake_do(node, request->method, request->params);
    else
        error_set(&request->error, request->status, "%s: %s: scripted", request->node,
                  request->method);
    json_decref(request->params);
}

/* A commit is answered last: what else was asked at the same time may be what it waits for. */
void cluster_call_all(struct cluster *cluster, struct cluster_request *requests, size_t count)
{
    (void) cluster;
    fake_now_ns += FAKE_CALL_MS * NS_PER_MS;
    for (int commits = 0; commits < 2; commits++)
        for (size_t i = 0; i < count; i++)
            if ((strcmp(requests[i].method, "postgres.quorum-wait") == 0) == (commits == 1))
                fake_answer(&requests[i]);
    for (size_t i = 0; fake_aborted && i < count; i++)
        requests[i].status = error_set(&requests[i].error, STATUS_ABORTED, "stop condition");
}

enum status cluster_call(struct cluster *cluster, const char *node, const char *method,
                         json_t *params, int64_t timeout_ms, json_t **ret_result, struct error *err)
{
    struct cluster_request request = {
        .node = node, .method = method, .params = params, .timeout_ms = timeout_ms};

    cluster_call_all(cluster, &request, 1);
    if (request.status != STATUS_OK && err != NULL)
        *err = request.error;
    if (request.status == STATUS_OK && ret_result != NULL)
        *ret_result = request.result;
    else
        json_decref(request.result);
    return request.status;
}

enum status cluster_wait(struct cluster *cluster, bool (*done)(void *argument), void *argument,
                         int64_t deadline_ns, struct error *err)
{
    (void) cluster;
    while (!done(argument)) {
        if (fake_now_ns >= deadline_ns)
            return error_set(err, STATUS_TIMEOUT, "the deadline passed");
        if (fake_loop != NULL && loop_turn(fake_loop, 1, err) != STATUS_OK)
            return err->code;
        fake_now_ns += 10 * NS_PER_MS;
    }
    return STATUS_OK;
}

bool cluster_connected(const struct cluster *cluster, const char *node)
{
    const struct model_node *at = model_find(node);

    (void) cluster;
    return at == NULL || !at->silent;
}

const char *cluster_run(const struct cluster *cluster)
{
    (void) cluster;
    return "run-1";
}

struct loop *cluster_loop(struct cluster *cluster)
{
    (void) cluster;
    return fake_loop;
}

#endif
