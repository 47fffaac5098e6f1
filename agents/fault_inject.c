/* SPDX-License-Identifier: MIT */
#include "agents/fault_inject.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agents/fault_record.h"
#include "agents/guardian/journal.h"
#include "agents/guardian_client.h"
#include "agents/sampler/sampler.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/kill_point.h"
#include "lib/owned.h"

enum {
    AHEAD_MS = 2000,   /* an instant to begin at lies no further ahead */
    BITE_MS = 2000,    /* an effect that is not seen by then did not bite */
    RESTORE_MS = 60000 /* of an instant that can be undone, when no hold is given */
};

enum status fault_check_uid(const char *uid, struct error *err)
{
    if (!journal_uid_valid(uid))
        return error_set(err, STATUS_INVALID, "uid '%.64s': 1 to 40 of a-z, 0-9 and '-'", uid);
    return STATUS_OK;
}

enum status fault_take_params(const struct fault *fault, const json_t *given, json_t **ret_params,
                              struct error *err)
{
    json_t *params = given == NULL || json_is_null(given) ? json_object() : json_deep_copy(given);
    enum status status = fault_validate(fault, params, err);

    if (status == STATUS_OK)
        *ret_params = params;
    else
        json_decref(params);
    return status;
}

enum status fault_check_supported(const struct fault *fault, const struct fault_context *context,
                                  const json_t *params, struct error *err)
{
    if (fault->executor == EXECUTE_POWER && context->power == NULL) {
        error_set(err, STATUS_UNSUPPORTED, "node %s has no power driver for %s", context->node,
                  fault->name);
        error_hint(err, "Name a node with role 'power' and the programs under 'power'.");
        return STATUS_UNSUPPORTED;
    }
    return fault->supported == NULL ? STATUS_OK : fault->supported(context, params, err);
}

/* --- before ---------------------------------------------------------------------------------- */

static enum status check_hold(const struct fault_order *order, struct error *err)
{
    if (order->hold_ms < 0)
        return error_set(err, STATUS_INVALID, "hold_ms %" PRId64, order->hold_ms);
    if (order->fault->holds && order->hold_ms == 0) {
        error_set(err, STATUS_INVALID, "%s holds until it is undone and needs hold_ms",
                  order->fault->name);
        error_hint(err, "Give the step a 'for:'.");
        return STATUS_INVALID;
    }
    return STATUS_OK;
}

static const char *result_path(struct arena *arena, const struct fault_order *order)
{
    return arena_printf(arena, "%s/fault-%s.json", order->session->spool, order->uid);
}

/* --- inject ---------------------------------------------------------------------------------- */

static int64_t smaller(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

/* How long it waits, recorded, for its instant. */
static int64_t ahead_ms(const struct fault_order *order)
{
    int64_t left_ns = order->at_ns - clock_boot_ns();

    return left_ns <= 0 ? 0 : left_ns / NS_PER_MS + 1;
}

static enum status open_record(const struct fault_order *order, const json_t *json,
                               struct guardian_connection *guardian, struct error *err)
{
    OWNED_MEMORY char *text = json_dumps(json, JSON_COMPACT | JSON_ENSURE_ASCII);
    int64_t lease_ms = order->session->lease_ms;
    char request[128];

    if (text == NULL)
        return error_set(err, STATUS_INTERNAL, "a record that is no JSON");
    if (strlen(text) > JOURNAL_RECORD_MAX)
        return error_set(err, STATUS_REFUSED, "the record has %zu bytes; at most %d are allowed",
                         strlen(text), JOURNAL_RECORD_MAX);
    if (order->hold_ms > 0)
        lease_ms = smaller(lease_ms, order->hold_ms + ahead_ms(order));
    snprintf(request, sizeof request, "open %s %" PRId64 " %zu", order->uid, lease_ms,
             strlen(text));
    enum status status = guardian_ask(guardian, request, text, order->deadline_ns, NULL, err);
    if (status == STATUS_CONFLICT)
        error_hint(err, "Undo the first before the second begins.");
    return status;
}

static enum status ask(const struct fault_order *order, struct guardian_connection *guardian,
                       const char *verb, const char *word, struct error *err)
{
    char request[128];

    snprintf(request, sizeof request, "%s %s%s%s", verb, order->uid, word[0] != '\0' ? " " : "",
             word);
    return guardian_ask(guardian, request, NULL, order->deadline_ns, NULL, err);
}

/* Half-way: undone at once, and if that fails, until it succeeds. */
static enum status give_up(const struct fault_order *order, struct guardian_connection *guardian,
                           struct error *err)
{
    struct error undo_error;

    error_context(err, "injecting %s", order->fault->name);
    if (ask(order, guardian, "undo", "", &undo_error) != STATUS_OK)
        error_detail(err, "and undoing it failed so far: %s", undo_error.message);
    return err == NULL ? STATUS_FAILED : err->code;
}

/* Instants without a way back are over now; everything else stays open until it is undone. */
static enum status close_if_over(const struct fault_order *order,
                                 struct guardian_connection *guardian, enum effect effect,
                                 struct error *err)
{
    if (order->fault->holds || order->fault->reversible)
        return STATUS_OK;
    return ask(order, guardian, "close", effect_name(effect), err);
}

/* Several nodes begin at one instant: whatever they prepared first took each its own time. */
static void await_instant(int64_t at_ns)
{
    struct timespec instant = {.tv_sec = at_ns / NS_PER_SECOND, .tv_nsec = at_ns % NS_PER_SECOND};

    while (at_ns > 0 && clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &instant, NULL) == EINTR)
        continue;
}

static enum status inject_and_look(const struct fault_order *order,
                                   const struct fault_record *record,
                                   struct guardian_connection *guardian, json_t **ret_result,
                                   struct error *err)
{
    struct observation observation = {0};
    enum status status = STATUS_OK;

    await_instant(order->at_ns);
    KILL_POINT("before-inject");
    int64_t f0_ns = clock_boot_ns(), f1_ns = 0;
    if (!SKIP_POINT("inject"))
        status = order->fault->inject(&record->context, record->record, err);
    KILL_POINT("after-inject");
    if (status == STATUS_OK)
        status = ask(order, guardian, "injected", "", err);
    KILL_POINT("before-observe");
    if (status == STATUS_OK)
        status = fault_observe_until(record, EFFECT_ACTIVE,
                                     smaller(deadline_in_ms(BITE_MS), order->deadline_ns), &f1_ns,
                                     &observation, err);
    if (status != STATUS_OK)
        return give_up(order, guardian, err);
    status = close_if_over(order, guardian, observation.effect, err);
    if (status != STATUS_OK) {
        json_decref(observation.numbers);
        return status;
    }
    *ret_result =
        json_pack("{s:s, s:O, s:I, s:o, s:o}", "uid", order->uid, "record", record->record, "f0_ns",
                  (json_int_t) f0_ns, "f1_ns", f1_ns == 0 ? json_null() : json_integer(f1_ns),
                  "effect", observation_json(&observation));
    return STATUS_OK;
}

static enum status prepare(const struct fault_order *order, const json_t *given, json_t **ret_json,
                           struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *params = NULL;
    OWNED_JSON json_t *context_json = fault_context_json(order->session);
    struct fault_context context;
    struct power power;
    json_t *record = NULL;
    enum status status = fault_take_params(order->fault, given, &params, err);

    if (status == STATUS_OK)
        status = fault_context_read(arena, context_json, order->uid, order->deadline_ns, &power,
                                    &context, err);
    context.own_session = sampler_session();
    if (status == STATUS_OK)
        status = fault_check_supported(order->fault, &context, params, err);
    if (status == STATUS_OK)
        status = order->fault->prepare(&context, params, &record, err);
    if (status != STATUS_OK)
        return status;
    *ret_json = fault_record_json(order->session, order->uid, order->fault, json_incref(params),
                                  record, order->hold_ms);
    return STATUS_OK;
}

static enum status inject_new(const struct fault_order *order, const json_t *given,
                              struct guardian_connection *guardian, json_t **ret_result,
                              struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *json = NULL;
    struct fault_record record;
    enum status status = prepare(order, given, &json, err);

    if (status == STATUS_OK)
        status = fault_record_read(arena, json, order->deadline_ns, &record, err);
    if (status == STATUS_OK)
        status = open_record(order, json, guardian, err);
    if (status == STATUS_OK)
        status = inject_and_look(order, &record, guardian, ret_result, err);
    if (status != STATUS_OK)
        return status;
    /* for the caller that asks again; without it a repeat is refused, which is safe */
    if (json_write_file(result_path(arena, order), *ret_result, NULL) != STATUS_OK)
        return STATUS_OK;
    return STATUS_OK;
}

/* --- a uid that is known already ------------------------------------------------------------- */

static enum status answer_again(const struct fault_order *order, json_t **ret_result,
                                struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();

    if (json_read_file(result_path(arena, order), ret_result, NULL) == STATUS_OK)
        return STATUS_OK;
    error_set(err, STATUS_CONFLICT, "fault %s is being injected or has failed", order->uid);
    error_hint(err, "Undo it, and use a new uid.");
    return STATUS_CONFLICT;
}

enum status fault_inject(const struct fault_order *given_order, const json_t *params,
                         json_t **ret_result, struct error *err)
{
    OWNED_GUARDIAN struct guardian_connection guardian = {.fd = -1};
    struct fault_order order = *given_order;
    struct fault_history history = {0};
    enum status status = fault_check_uid(order.uid, err);

    if (status == STATUS_OK)
        status = check_hold(&order, err);
    if (status == STATUS_OK && order.at_ns > deadline_in_ms(AHEAD_MS))
        status = error_set(err, STATUS_INVALID, "at_ns is more than %d ms ahead", AHEAD_MS);
    if (status != STATUS_OK)
        return status;
    if (order.hold_ms == 0 && order.fault->reversible)
        order.hold_ms = RESTORE_MS;
    status = fault_history_find(order.state_folder, order.uid, &history, err);
    json_decref(history.json);
    if (status == STATUS_OK)
        return answer_again(&order, ret_result, err);
    if (status != STATUS_NOT_FOUND)
        return status;
    status = guardian_connect(order.state_folder, order.deadline_ns, &guardian, err);
    return status == STATUS_OK ? inject_new(&order, params, &guardian, ret_result, err) : status;
}
