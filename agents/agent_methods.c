/* SPDX-License-Identifier: MIT */
/* Methods of the agent itself: greeting, session, heartbeat, and the power driver. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agents/agent.h"
#include "agents/fingerprint.h"
#include "agents/power.h"
#include "agents/spool.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/log.h"
#include "lib/version.h"

enum { POWER_TIMEOUT_MS = 120000, FINGERPRINT_TIMEOUT_MS = 20000 };

static enum status check_protocol(const json_t *params, struct error *err)
{
    int64_t protocol = json_number(params, "protocol", 0);

    if (protocol == RPC_PROTOCOL)
        return STATUS_OK;
    error_set(err, STATUS_PROTOCOL, "the orchestrator speaks protocol %lld, this agent %d",
              (long long) protocol, RPC_PROTOCOL);
    error_hint(err, "Install the same version of ordeal and ordeald.");
    return STATUS_PROTOCOL;
}

static enum status hello(const struct method_call *call, json_t **ret_result, struct error *err)
{
    const struct agent *agent = call->agent;
    enum status status = check_protocol(call->params, err);

    if (status != STATUS_OK)
        return status;
    *ret_result =
        json_pack("{s:s, s:s, s:i, s:s, s:I, s:I}", "node", agent->options->node, "version",
                  ORDEAL_VERSION, "protocol", RPC_PROTOCOL, "boot_id", agent->boot_id, "boot_ns",
                  (json_int_t) clock_boot_ns(), "wall_ns", (json_int_t) clock_wall_ns());
    return STATUS_OK;
}

static json_t *open_uids(const struct agent *agent)
{
    json_t *uids = json_array();

    for (size_t i = 0; i < guardian_link_count(agent->guardian); i++)
        json_array_append_new(uids, json_string(guardian_link_record(agent->guardian, i)->uid));
    return uids;
}

static enum status session_open(const struct method_call *call, json_t **ret_result,
                                struct error *err)
{
    struct agent *agent = call->agent;
    enum status status = check_protocol(call->params, err);

    if (status == STATUS_OK)
        status = agent_open_session(agent, call->params, err);
    if (status != STATUS_OK)
        return status;
    *ret_result = json_pack("{s:s, s:s, s:s, s:o}", "node", agent->options->node, "version",
                            ORDEAL_VERSION, "boot_id", agent->boot_id, "open", open_uids(agent));
    return STATUS_OK;
}

/* Faults that are open stay under their leases, which nobody renews any more. */
static enum status session_close(const struct method_call *call, json_t **ret_result,
                                 struct error *err)
{
    struct agent *agent = call->agent;
    enum status status = STATUS_OK;

    (void) ret_result;
    if (json_flag(call->params, "purge", false))
        status = spool_remove(call->state_folder, call->session->run, err);
    else
        spool_remove_empty(call->state_folder, call->session->run);
    log_line(LOG_INFO, "end of run %s", call->session->run);
    agent_end_session(agent);
    return status;
}

static json_t *faults_of_run(const struct agent *agent, const char *run)
{
    json_t *faults = json_array();

    for (size_t i = 0; i < guardian_link_count(agent->guardian); i++) {
        const struct guardian_record *record = guardian_link_record(agent->guardian, i);
        if (strcmp(record->run, run) == 0)
            json_array_append_new(faults, json_pack("{s:s, s:s, s:s}", "uid", record->uid, "fault",
                                                    record->fault, "state", record->state));
    }
    return faults;
}

static enum status heartbeat(const struct method_call *call, json_t **ret_result, struct error *err)
{
    struct agent *agent = call->agent;
    int64_t lease_ms = json_number(call->params, "lease_ms", call->session->lease_ms);

    if (lease_ms < LEASE_MIN_MS || lease_ms > LEASE_MAX_MS)
        return error_set(err, STATUS_INVALID, "lease_ms: %lld is not between %d and %d",
                         (long long) lease_ms, LEASE_MIN_MS, LEASE_MAX_MS);
    guardian_link_renew(agent->guardian, call->session->run, lease_ms);
    *ret_result = json_pack("{s:I, s:I, s:s, s:o}", "boot_ns", (json_int_t) clock_boot_ns(),
                            "wall_ns", (json_int_t) clock_wall_ns(), "boot_id", agent->boot_id,
                            "faults", faults_of_run(agent, call->session->run));
    return STATUS_OK;
}

static enum status power(const struct method_call *call, json_t **ret_result, struct error *err)
{
    const char *word = json_text(call->params, "word", "");
    const char *node = json_text(call->params, "node", "");
    struct power power = power_of_session(call->session);
    enum status status = power_call(&power, word, node, call->deadline_ns, err);

    if (status == STATUS_OK)
        *ret_result = json_pack("{s:I}", "done_ns", (json_int_t) clock_boot_ns());
    return status;
}

const struct method agent_methods[] = {
    {.name = "hello",
     .no_session = true,
     .params = (const struct method_param[]){{"protocol", 'i', true}, {0}},
     .call = hello},
    {.name = "session.open",
     .no_session = true,
     .params = (const struct method_param[]){{"protocol", 'i', true},
                                             {"run", 's', true},
                                             {"lease_ms", 'i', true},
                                             {"node", 'o', true},
                                             {"peers", 'a', true},
                                             {"database", 'n', true},
                                             {"power", 'n', true},
                                             {"endpoint", 'o', true},
                                             {0}},
     .call = session_open},
    {.name = "session.close",
     .params = (const struct method_param[]){{"run", 's', true}, {"purge", 'b', false}, {0}},
     .call = session_close},
    {.name = "heartbeat",
     .params = (const struct method_param[]){{"run", 's', true}, {"lease_ms", 'i', false}, {0}},
     .call = heartbeat},
    {.name = "power",
     .job = true,
     .timeout_ms = POWER_TIMEOUT_MS,
     .params = (const struct method_param[]){{"run", 's', true},
                                             {"node", 's', true},
                                             {"word", 's', true},
                                             {"timeout_ms", 'i', false},
                                             {0}},
     .call = power},
    {.name = "node.fingerprint",
     .job = true,
     .timeout_ms = FINGERPRINT_TIMEOUT_MS,
     .params =
         (const struct method_param[]){
             {"run", 's', false}, {"keep", 'b', false}, {"kept", 'b', false}, {0}},
     .call = node_fingerprint},
    {.name = "node.forget",
     .job = true,
     .timeout_ms = FINGERPRINT_TIMEOUT_MS,
     .params = (const struct method_param[]){{"run", 's', true}, {"of", 's', false}, {0}},
     .call = node_forget},
    {0},
};
