/* SPDX-License-Identifier: MIT */
/* Methods sample.start and sample.stop of the agent (docs/formats.md). */
#include "agents/sampler/sampler.h"

#include "lib/json.h"
#include "lib/owned.h"

enum { PERIOD_MIN_MS = 10, PERIOD_MAX_MS = 60000 };

/* A node is sampled once, and an agent is one process. */
static struct sampler *current;
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
    if (current != NULL)
        sampler_kill(current);
    current = NULL;
}

static json_t *files_of(const struct session *session)
{
    OWNED_ARENA struct arena *arena = arena_new();
    json_t *files = json_array();

    json_array_append_new(files, json_string(sampler_file(arena, session, false)));
    if (session->is_database)
        json_array_append_new(files, json_string(sampler_file(arena, session, true)));
    return files;
}

static enum status read_period(const json_t *params, const char *name, int64_t fallback,
                               int64_t *ret_ms, struct error *err)
{
    int64_t ms = json_number(params, name, fallback);

    if (ms < PERIOD_MIN_MS || ms > PERIOD_MAX_MS)
        return error_set(err, STATUS_INVALID, "%s: %lld is not between %d and %d", name,
                         (long long) ms, PERIOD_MIN_MS, PERIOD_MAX_MS);
    *ret_ms = ms;
    return STATUS_OK;
}

/* Told again, as after a connection that was lost, it only answers. */
static enum status start(const struct method_call *call, json_t **ret_result, struct error *err)
{
    struct sampler_order order = {.session = call->session,
                                  .processes = json_flag(call->params, "processes", true)};
    bool already = current != NULL;
    enum status status =
        read_period(call->params, "period_ms", SAMPLER_PERIOD_MS, &order.period_ms, err);

    if (status == STATUS_OK)
        status = read_period(call->params, "views_ms", SAMPLER_VIEWS_MS, &order.views_ms, err);
    if (status == STATUS_OK && already && sampler_stopping(current))
        status = error_set(err, STATUS_CONFLICT, "the sampler of %s is just ending",
                           call->session->node);
    if (status == STATUS_OK && !already)
        status = sampler_start(call->agent, &order, on_end, NULL, &current, err);
    if (status != STATUS_OK)
        return status;
    if (!in_session)
        agent_on_session_end(call->agent, on_session_end, NULL);
    in_session = true;
    *ret_result = json_pack("{s:o, s:b}", "files", files_of(call->session), "already", already);
    return STATUS_OK;
}

/* Asked again until it says that nothing runs any more: the files are whole then. */
static enum status stop(const struct method_call *call, json_t **ret_result, struct error *err)
{
    (void) err;
    if (current != NULL)
        sampler_stop(current);
    *ret_result =
        json_pack("{s:b, s:o}", "running", current != NULL, "files", files_of(call->session));
    return STATUS_OK;
}

extern const struct method sample_methods[];
const struct method sample_methods[] = {
    {.name = "sample.start",
     .params = (const struct method_param[]){{"run", 's', true},
                                             {"period_ms", 'i', false},
                                             {"views_ms", 'i', false},
                                             {"processes", 'b', false},
                                             {0}},
     .call = start},
    {.name = "sample.stop",
     .params = (const struct method_param[]){{"run", 's', true}, {0}},
     .call = stop},
    {0}};
