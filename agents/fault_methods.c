/* SPDX-License-Identifier: MIT */
/*
 * fault.* and recover. Everything that blocks is a job. The guardian undoes: what is asked for here
 * and what it does by itself go the same way.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agents/agent.h"
#include "agents/fault_inject.h"
#include "agents/fault_record.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum {
    INJECT_MS = 60000,
    UNDO_MS = 70000, /* one attempt of the guardian takes at most a minute */
    LOOK_MS = 15000,
    RECORDS_MAX = 64,
    LINES_MAX = 256 * 1024
};

static enum status find_fault(const char *name, const struct fault **ret_fault, struct error *err)
{
    *ret_fault = fault_find(name);
    if (*ret_fault == NULL)
        return error_set(err, STATUS_NOT_FOUND, "no fault '%.64s'", name);
    return STATUS_OK;
}

static void release_json(void *json)
{
    json_decref(json);
}

/* The context of this node and moment, not that of a record. */
static enum status current_context(struct arena *arena, const struct method_call *call,
                                   const char *uid, struct power *power,
                                   struct fault_context *ret_context, struct error *err)
{
    json_t *json = fault_context_json(call->session);

    arena_adopt(arena, json, release_json);
    return fault_context_read(arena, json, uid, call->deadline_ns, power, ret_context, err);
}

/* --- supported, witness ---------------------------------------------------------------------- */

static enum status fault_supported(const struct method_call *call, json_t **ret_result,
                                   struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *params = NULL;
    const struct fault *fault = NULL;
    struct fault_context context;
    struct power power;
    enum status status = find_fault(json_text(call->params, "fault", ""), &fault, err);

    if (status == STATUS_OK)
        status = fault_take_params(fault, json_object_get(call->params, "params"), &params, err);
    if (status == STATUS_OK)
        status = current_context(arena, call, "probe", &power, &context, err);
    if (status != STATUS_OK)
        return status;
    status = fault_check_supported(fault, &context, params, err);
    if (status != STATUS_OK && status != STATUS_UNSUPPORTED && status != STATUS_REFUSED)
        return status;
    *ret_result = status == STATUS_OK
                      ? json_pack("{s:b, s:s, s:s}", "supported", 1, "reason", "", "hint", "")
                      : json_pack("{s:b, s:s, s:s}", "supported", 0, "reason", err->message, "hint",
                                  err->hint);
    return STATUS_OK;
}

static enum status fault_witness(const struct method_call *call, json_t **ret_result,
                                 struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct observation observation = {0};
    const struct fault *fault = NULL;
    struct fault_context context;
    struct power power;
    enum status status = find_fault(json_text(call->params, "fault", ""), &fault, err);

    if (status != STATUS_OK)
        return status;
    if (fault->witness == NULL)
        return error_set(err, STATUS_UNSUPPORTED, "%s has no witness", fault->name);
    status =
        current_context(arena, call, json_text(call->params, "uid", ""), &power, &context, err);
    if (status == STATUS_OK)
        status =
            fault->witness(&context, json_object_get(call->params, "record"), &observation, err);
    if (status == STATUS_OK)
        *ret_result = observation_json(&observation);
    return status;
}

/*
 * May this node be the target of a fault that another agent carries out? Its own lever and policy
 * answer as they would for fault.inject.
 */
static enum status fault_permitted(const struct method_call *call, json_t **ret_result,
                                   struct error *err)
{
    (void) ret_result;
    return policy_check(&call->agent->policy, call->state_folder, "fault.inject", call->params,
                        err);
}

/* --- inject, observe, undo ------------------------------------------------------------------- */

static enum status fault_inject_method(const struct method_call *call, json_t **ret_result,
                                       struct error *err)
{
    struct fault_order order = {
        .session = call->session,
        .state_folder = call->state_folder,
        .uid = json_text(call->params, "uid", ""),
        .hold_ms = json_number(call->params, "hold_ms", 0),
        .at_ns = json_number(call->params, "at_ns", 0),
        .deadline_ns = call->deadline_ns,
    };
    enum status status = find_fault(json_text(call->params, "fault", ""), &order.fault, err);

    if (status != STATUS_OK)
        return status;
    return fault_inject(&order, json_object_get(call->params, "params"), ret_result, err);
}

/* What was recorded, open or closed; the caller owns history->json. */
static enum status recorded(struct arena *arena, const struct method_call *call,
                            struct fault_history *history, struct fault_record *ret_record,
                            struct error *err)
{
    const char *uid = json_text(call->params, "uid", "");
    enum status status = fault_history_find(call->state_folder, uid, history, err);

    if (status != STATUS_OK)
        return status;
    arena_adopt(arena, history->json, release_json);
    return fault_record_read(arena, history->json, call->deadline_ns, ret_record, err);
}

static enum status fault_observe(const struct method_call *call, json_t **ret_result,
                                 struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct observation observation = {0};
    struct fault_history history = {0};
    struct fault_record record;
    enum status status = recorded(arena, call, &history, &record, err);

    if (status == STATUS_OK)
        status =
            fault_observe_until(&record, EFFECT_UNKNOWN, clock_boot_ns(), NULL, &observation, err);
    if (status == STATUS_OK)
        *ret_result = observation_json(&observation);
    return status;
}

/*
 * An injection that is still being prepared has no record yet: it must not begin after its undo
 * found nothing.
 */
static void call_off_one(const struct method_call *call)
{
    jobs_call_off(call->agent, "fault.inject", json_text(call->params, "uid", ""));
}

static void call_off_run(const struct method_call *call)
{
    const struct session *session = call->session;
    const char *run = json_text(call->params, "run", NULL);

    if (session != NULL && (run == NULL || strcmp(run, session->run) == 0))
        jobs_call_off(call->agent, "fault.inject", NULL);
}

/* STATUS_OK also when it is not open any more: somebody else was faster. */
static enum status ask_undo(const struct method_call *call, const char *uid, struct error *err)
{
    OWNED_GUARDIAN struct guardian_connection guardian = {.fd = -1};
    char request[64];
    enum status status = guardian_connect(call->state_folder, call->deadline_ns, &guardian, err);

    if (status != STATUS_OK)
        return status;
    snprintf(request, sizeof request, "undo %.40s", uid);
    status = guardian_ask(&guardian, request, NULL, call->deadline_ns, NULL, err);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status fault_undo(const struct method_call *call, json_t **ret_result,
                              struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct observation observation = {0};
    struct fault_history history = {0};
    struct fault_record record;
    enum status status = fault_check_uid(json_text(call->params, "uid", ""), err);

    if (status == STATUS_OK)
        status = ask_undo(call, json_text(call->params, "uid", ""), err);
    if (status == STATUS_OK)
        status = recorded(arena, call, &history, &record, err);
    if (status == STATUS_OK)
        status =
            fault_observe_until(&record, EFFECT_UNKNOWN, clock_boot_ns(), NULL, &observation, err);
    if (status != STATUS_OK)
        return status;
    json_t *result = observation_json(&observation);
    json_object_set_new(result, "undone_ns", json_integer(history.closed_ns));
    json_object_set_new(result, "by", json_string(history.by));
    *ret_result = result;
    return STATUS_OK;
}

/* --- list, recover --------------------------------------------------------------------------- */

static enum status fault_list_method(const struct method_call *call, json_t **ret_result,
                                     struct error *err)
{
    const struct guardian_link *link = call->agent->guardian;
    json_t *faults = json_array();

    (void) err;
    for (size_t i = 0; i < guardian_link_count(link); i++)
        json_array_append_new(faults, guardian_record_json(guardian_link_record(link, i)));
    *ret_result = json_pack("{s:o, s:s?}", "faults", faults, "run", agent_serving_run(call->agent));
    return STATUS_OK;
}

struct open_faults {
    struct guardian_record records[RECORDS_MAX];
    size_t count;
};

static enum status list_open(struct guardian_connection *guardian, const char *run,
                             int64_t deadline_ns, struct open_faults *ret_open, struct error *err)
{
    OWNED_BUFFER struct buffer lines = BUFFER(LINES_MAX);
    enum status status = guardian_ask(guardian, "list", NULL, deadline_ns, &lines, err);
    char *rest = lines.data;

    ret_open->count = 0;
    for (char *line; status == STATUS_OK && (line = strsep(&rest, "\n")) != NULL;) {
        struct guardian_record *record = &ret_open->records[ret_open->count];
        if (ret_open->count < RECORDS_MAX && guardian_record_parse(line, record) &&
            (run == NULL || strcmp(record->run, run) == 0))
            ret_open->count++;
    }
    return status;
}

static const struct guardian_record *still_open(const struct open_faults *open, const char *uid)
{
    for (size_t i = 0; i < open->count; i++)
        if (strcmp(open->records[i].uid, uid) == 0)
            return &open->records[i];
    return NULL;
}

static json_t *compare(const struct open_faults *before, const struct open_faults *after)
{
    json_t *undone = json_array(), *failed = json_array();

    for (size_t i = 0; i < before->count; i++) {
        const char *uid = before->records[i].uid;
        const struct guardian_record *left = still_open(after, uid);
        if (left == NULL)
            json_array_append_new(undone, json_string(uid));
        else
            json_array_append_new(failed,
                                  json_pack("{s:s, s:s}", "uid", uid, "message",
                                            left->text[0] != '\0' ? left->text : left->state));
    }
    return json_pack("{s:o, s:o}", "undone", undone, "failed", failed);
}

static enum status recover(const struct method_call *call, json_t **ret_result, struct error *err)
{
    OWNED_GUARDIAN struct guardian_connection guardian = {.fd = -1};
    const char *run = json_text(call->params, "run", NULL);
    struct open_faults before, after;
    char request[128];
    enum status status = guardian_connect(call->state_folder, call->deadline_ns, &guardian, err);

    if (status == STATUS_OK)
        status = list_open(&guardian, run, call->deadline_ns, &before, err);
    if (status != STATUS_OK)
        return status;
    snprintf(request, sizeof request, "undo-all %.64s", run != NULL ? run : "*");
    status = guardian_ask(&guardian, request, NULL, call->deadline_ns, NULL, err);
    if (status != STATUS_OK && status != STATUS_FAILED)
        return status; /* what failed is in the list */
    status = list_open(&guardian, run, call->deadline_ns, &after, err);
    if (status == STATUS_OK)
        *ret_result = compare(&before, &after);
    return status;
}

const struct method fault_methods[] = {
    {.name = "fault.supported",
     .job = true,
     .timeout_ms = LOOK_MS,
     .params = (const struct method_param[]){{"fault", 's', true}, {"params", 'o', false}, {0}},
     .call = fault_supported},
    {.name = "fault.permitted",
     .params =
         (const struct method_param[]){
             {"run", 's', true}, {"fault", 's', true}, {"hold_ms", 'i', false}, {0}},
     .call = fault_permitted},
    {.name = "fault.inject",
     .job = true,
     .timeout_ms = INJECT_MS,
     .params = (const struct method_param[]){{"run", 's', true},
                                             {"uid", 's', true},
                                             {"fault", 's', true},
                                             {"params", 'o', false},
                                             {"hold_ms", 'i', false},
                                             {"at_ns", 'i', false},
                                             {"timeout_ms", 'i', false},
                                             {0}},
     .call = fault_inject_method},
    {.name = "fault.observe",
     .job = true,
     .timeout_ms = LOOK_MS,
     .params = (const struct method_param[]){{"uid", 's', true}, {0}},
     .call = fault_observe},
    {.name = "fault.undo",
     .job = true,
     .timeout_ms = UNDO_MS,
     .params =
         (const struct method_param[]){
             {"run", 's', true}, {"uid", 's', true}, {"timeout_ms", 'i', false}, {0}},
     .call = fault_undo,
     .before = call_off_one},
    {.name = "fault.witness",
     .job = true,
     .timeout_ms = LOOK_MS,
     .params =
         (const struct method_param[]){
             {"fault", 's', true}, {"uid", 's', true}, {"record", 'o', true}, {0}},
     .call = fault_witness},
    {.name = "fault.list", .no_session = true, .call = fault_list_method},
    {.name = "recover",
     .job = true,
     .no_session = true,
     .timeout_ms = UNDO_MS,
     .params = (const struct method_param[]){{"run", 's', false}, {"timeout_ms", 'i', false}, {0}},
     .call = recover,
     .before = call_off_run},
    {0},
};
