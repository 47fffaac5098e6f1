/* SPDX-License-Identifier: MIT */
/* Methods load.start, load.route and load.stop of the agent (docs/formats.md). */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "agents/load/load.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

/* A node carries one load at a time, and an agent is one process. */
static struct load *current;

/* Where load.route opened the endpoint in the session; it may be told before load.start. */
static char routed[64];
static bool in_session; /* the agent will tell us when it ends */

static void on_end(void *argument)
{
    (void) argument;
    current = NULL;
}

static void on_session_end(void *argument)
{
    (void) argument;
    in_session = false;
    routed[0] = '\0';
    if (current != NULL)
        load_orphan(current);
}

static void follow_session(struct agent *agent)
{
    if (!in_session)
        agent_on_session_end(agent, on_session_end, NULL);
    in_session = true;
}

static const json_t *object_or_null(const json_t *params, const char *name)
{
    const json_t *value = json_object_get(params, name);

    return json_is_null(value) ? NULL : value;
}

static enum status start(const struct method_call *call, json_t **ret_result, struct error *err)
{
    OWNED_JSON json_t *known_route =
        routed[0] != '\0' ? json_pack("{s:b, s:s}", "open", 1, "host", routed) : NULL;
    struct load_request request = {.workload = object_or_null(call->params, "workload"),
                                   .probes = object_or_null(call->params, "probes"),
                                   .route = object_or_null(call->params, "route"),
                                   .seed = (uint64_t) json_number(call->params, "seed", 1)};

    if (current != NULL && !load_is_orphan(current))
        return error_set(err, STATUS_CONFLICT, "load runs already on %s", call->session->node);
    if (current != NULL) { /* of a session that is over */
        load_kill(current);
        current = NULL;
    }
    if (request.route == NULL)
        request.route = known_route;
    enum status status =
        load_start(call->agent, call->session, &request, on_end, NULL, &current, err);
    if (status != STATUS_OK)
        return error_context(err, "starting load");
    follow_session(call->agent);
    *ret_result = json_pack("{s:o}", "files", load_files(current));
    return STATUS_OK;
}

static enum status route(const struct method_call *call, json_t **ret_result, struct error *err)
{
    const char *host =
        json_flag(call->params, "open", false) ? json_text(call->params, "host", "") : NULL;

    if (!call->session->endpoint_managed)
        return error_set(err, STATUS_INVALID,
                         "the endpoint is not managed: clients try all its hosts");
    if (host != NULL && session_peer(call->session, host) == NULL)
        return error_set(err, STATUS_INVALID, "no node \"%s\" in this topology", host);
    if (current != NULL && !load_is_orphan(current)) {
        enum status status = load_route(current, host, err);
        if (status != STATUS_OK)
            return status;
    }
    snprintf(routed, sizeof(routed), "%s", host != NULL ? host : "");
    follow_session(call->agent);
    *ret_result = json_object();
    return STATUS_OK;
}

/* --- load.stop without a load: what an earlier agent left in the spool -------------------------
 */

struct leftover {
    struct agent *agent;
    json_t *ended;
};

static void tell_leftover(void *argument)
{
    struct leftover *leftover = argument;

    agent_notify(leftover->agent, "load.ended", leftover->ended);
    free(leftover);
}

static void end_leftover(const struct method_call *call)
{
    struct leftover *leftover = calloc(1, sizeof(*leftover));

    if (leftover == NULL)
        abort();
    leftover->agent = call->agent;
    leftover->ended = load_ended(NULL, call->session->spool, call->session->node);
    loop_at(agent_loop(call->agent), clock_boot_ns(), tell_leftover, leftover);
}

static enum status stop(const struct method_call *call, json_t **ret_result, struct error *err)
{
    (void) err;
    if (current != NULL && !load_is_orphan(current))
        load_stop(current);
    else
        end_leftover(call);
    *ret_result = json_object();
    return STATUS_OK;
}

static const struct method_param start_params[] = {{"run", 's', true},     {"workload", 'o', false},
                                                   {"probes", 'o', false}, {"route", 'o', false},
                                                   {"seed", 'i', false},   {0}};
static const struct method_param route_params[] = {
    {"run", 's', true}, {"open", 'b', true}, {"host", 's', false}, {0}};
static const struct method_param stop_params[] = {{"run", 's', true}, {0}};

extern const struct method load_methods[];
const struct method load_methods[] = {{.name = "load.start", .params = start_params, .call = start},
                                      {.name = "load.route", .params = route_params, .call = route},
                                      {.name = "load.stop", .params = stop_params, .call = stop},
                                      {0}};
