/* SPDX-License-Identifier: MIT */
#include "agents/policy.h"

#include <string.h>
#include <unistd.h>

#include "lib/json.h"
#include "lib/owned.h"

enum { POLICY_VERSION = 1 };

/* What must stay possible: to see, to ask, to undo, to fetch, to leave. */
static const char *const always[] = {
    "hello",          "session.open",    "session.close",    "heartbeat",
    "fault.observe",  "fault.undo",      "fault.list",       "recover",
    "file.list",      "file.read",       "node.fingerprint", "node.forget",
    "load.stop",      "fault.permitted", "sample.start",     "sample.stop",
    "postgres.state",
};

static bool is_always_allowed(const char *method)
{
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        if (strcmp(always[i], method) == 0)
            return true;
    return false;
}

static enum status read_policy(const json_t *json, const char *path, struct policy *policy,
                               struct error *err)
{
    int version = 0;
    json_t *methods = NULL;
    json_int_t max_hold_ms = policy->max_hold_ms;
    enum status status = json_read(json, path, err, "{s:i, s?o, s?I !}", "policy", &version,
                                   "methods", &methods, "max_hold_ms", &max_hold_ms);

    if (status != STATUS_OK)
        return status;
    if (version != POLICY_VERSION)
        return error_set(err, STATUS_INVALID, "%s: policy version %d is not known", path, version);
    if (methods != NULL && !json_is_array(methods))
        return error_set(err, STATUS_INVALID, "%s: methods is no list", path);
    if (max_hold_ms < 1)
        return error_set(err, STATUS_INVALID, "%s: max_hold_ms %lld", path,
                         (long long) max_hold_ms);
    policy->methods = json_incref(methods);
    policy->max_hold_ms = max_hold_ms;
    return STATUS_OK;
}

enum status policy_load(const char *state_folder, struct policy *ret_policy, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *path = arena_printf(arena, "%s/policy", state_folder);
    struct policy policy = {.max_hold_ms = POLICY_HOLD_MAX_MS};
    OWNED_JSON json_t *json = NULL;
    enum status status = STATUS_OK;

    if (access(path, F_OK) == 0) {
        status = json_read_file(path, &json, err);
        if (status == STATUS_OK)
            status = read_policy(json, path, &policy, err);
    }
    if (status == STATUS_OK)
        *ret_policy = policy;
    return status;
}

void policy_done(struct policy *policy)
{
    json_decref(policy->methods);
    policy->methods = NULL;
}

static bool is_listed(const json_t *methods, const char *method)
{
    for (size_t i = 0; i < json_array_size(methods); i++) {
        const char *name = json_string_value(json_array_get(methods, i));
        if (name != NULL && strcmp(name, method) == 0)
            return true;
    }
    return false;
}

static enum status check_lever(const char *state_folder, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *path = arena_printf(arena, "%s/halt", state_folder);

    if (access(path, F_OK) != 0)
        return STATUS_OK;
    error_set(err, STATUS_REFUSED, "the node is halted: %s is there", path);
    error_hint(err, "Remove that file when the node may be used again.");
    return STATUS_REFUSED;
}

enum status policy_check(const struct policy *policy, const char *state_folder, const char *method,
                         const json_t *params, struct error *err)
{
    int64_t hold_ms = json_number(params, "hold_ms", 0);

    if (is_always_allowed(method))
        return STATUS_OK;
    if (policy->methods != NULL && !is_listed(policy->methods, method)) {
        error_set(err, STATUS_REFUSED, "the policy of this node does not allow %s", method);
        error_hint(err, "Its owner may list it in %s/policy.", state_folder);
        return STATUS_REFUSED;
    }
    if (hold_ms > policy->max_hold_ms) {
        error_set(err, STATUS_REFUSED, "%s for %lld ms; this node allows %lld ms", method,
                  (long long) hold_ms, (long long) policy->max_hold_ms);
        error_hint(err, "Shorten the step, or raise max_hold_ms in %s/policy.", state_folder);
        return STATUS_REFUSED;
    }
    return check_lever(state_folder, err);
}
