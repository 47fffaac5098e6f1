/* SPDX-License-Identifier: MIT */
/* `ordeal inject`: one fault without a scenario, with the same undo and the same lease. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/units.h"
#include "orchestrator/files.h"
#include "topologies/ha/ha.h"

enum { SUPPORTED_MS = 5000, INJECT_MS = 60000, UNDO_MS = 60000, HOLD_MIN_MS = 100 };

#define HOLD_MAX_MS INT64_C(86400000)

struct inject {
    struct arena *arena;
    const struct invocation *invocation;
    const struct fault *fault;
    const struct topology *topology;
    struct cluster *cluster;
    struct target target;
    struct target_nodes nodes;
    struct ha_state state;
    uint64_t random;
    int64_t hold_ms;
    json_t *params;
    bool bit, clean;
};

/* ---- the command line ---- */

static enum status find_fault(struct inject *inject, struct error *err)
{
    const char *name = invocation_argument(inject->invocation, 0);
    const struct fault *const *list = fault_list();
    const char *words[128] = {NULL};

    inject->fault = fault_find(name);
    if (inject->fault != NULL)
        return STATUS_OK;
    for (size_t i = 0; i < 127 && list[i] != NULL; i++)
        words[i] = list[i]->name;
    const char *near = nearest_word(name, words);
    return error_set(err, STATUS_USAGE, "unknown fault %s%s%s%s", name,
                     near != NULL ? ", did you mean " : "", near != NULL ? near : "",
                     near != NULL ? "?" : "");
}

static enum status read_hold(struct inject *inject, struct error *err)
{
    const char *text = invocation_option(inject->invocation, "for");

    if (!inject->fault->holds)
        return text == NULL ? STATUS_OK
                            : error_set(err, STATUS_USAGE,
                                        "fault %s happens at an instant: --for has no meaning",
                                        inject->fault->name);
    if (text == NULL)
        return error_set(err, STATUS_USAGE, "fault %s lasts until it is undone: --for is missing",
                         inject->fault->name);
    if (units_duration(text, &inject->hold_ms, err) != STATUS_OK || inject->hold_ms < HOLD_MIN_MS ||
        inject->hold_ms > HOLD_MAX_MS) {
        error_set(err, STATUS_USAGE, "--for: %s is not a duration from 100ms to 24h", text);
        return STATUS_USAGE;
    }
    return STATUS_OK;
}

static enum status read_peers(struct inject *inject, const struct param *param, const char *text,
                              struct error *err)
{
    struct target target;
    struct target_scope scope = {.topology = inject->topology,
                                 .state = &inject->state,
                                 .exclude = inject->nodes.nodes,
                                 .exclude_count = inject->nodes.count,
                                 .random = &inject->random};
    struct target_nodes found;
    enum status status = target_parse(inject->arena, text, inject->topology, &target, err);

    if (status == STATUS_OK && target.mode == TARGET_ONE)
        target.mode = TARGET_ALL;
    if (status == STATUS_OK)
        status = target_resolve(inject->arena, &target, &scope, &found, err);
    if (status != STATUS_OK)
        return error_context(err, "--with %s", param->name);
    json_t *names = json_array();
    for (size_t i = 0; i < found.count; i++)
        json_array_append_new(names, json_string(found.nodes[i]->name));
    json_object_set_new(inject->params, param->name, names);
    return STATUS_OK;
}

static enum status read_pair(struct inject *inject, const char *pair, struct error *err)
{
    const char *equals = strchr(pair, '=');
    json_t *value = NULL;

    if (equals == NULL)
        return error_set(err, STATUS_USAGE, "--with %s: expected KEY=VALUE", pair);
    const char *key = arena_strndup(inject->arena, pair, (size_t) (equals - pair));
    const struct param *param = param_find(inject->fault->params, key);
    if (param == NULL) {
        error_set(err, STATUS_USAGE, "fault %s has no parameter %s", inject->fault->name, key);
        error_hint(err, "`ordeal faults %s` lists them.", inject->fault->name);
        return STATUS_USAGE;
    }
    if (param->type == PARAM_NODES)
        return read_peers(inject, param, equals + 1, err);
    enum status status = param_parse(param, equals + 1, &value, err);
    if (status == STATUS_OK)
        json_object_set_new(inject->params, key, value);
    return status;
}

static enum status read_params(struct inject *inject, struct error *err)
{
    enum status status = STATUS_OK;
    const char *pair;

    if (inject->target.process != NULL)
        json_object_set_new(inject->params, "process", json_string(inject->target.process));
    for (size_t i = 0;
         status == STATUS_OK && (pair = invocation_repeated(inject->invocation, "with", i)) != NULL;
         i++)
        status = read_pair(inject, pair, err);
    return status;
}

/* ---- on one node ---- */

static const char *agent_of(const struct inject *inject, const struct topology_node *node)
{
    const struct topology_node *power = topology_first(inject->topology, ROLE_POWER);

    if (inject->fault->executor != EXECUTE_POWER)
        return node->name;
    return power != NULL ? power->name : NULL;
}

static enum status check_supported(struct inject *inject, const char *agent, const json_t *params,
                                   struct error *err)
{
    OWNED_JSON json_t *answer = NULL;
    enum status status =
        cluster_call(inject->cluster, agent, "fault.supported",
                     json_pack("{s:s, s:O}", "fault", inject->fault->name, "params", params),
                     SUPPORTED_MS, &answer, err);

    if (status != STATUS_OK || json_flag(answer, "supported", false))
        return status;
    error_set(err, STATUS_UNSUPPORTED, "%s: %s", agent, json_text(answer, "reason", "unsupported"));
    error_hint(err, "%s", json_text(answer, "hint", ""));
    return STATUS_UNSUPPORTED;
}

static void print_effect(const char *node, const char *what, const json_t *observation)
{
    printf("%s: %s: %s, %s\n", node, what, json_text(observation, "state", "unknown"),
           json_text(observation, "text", ""));
    fflush(stdout);
}

static void undo(struct inject *inject, const char *agent, const char *uid, const char *node)
{
    OWNED_JSON json_t *answer = NULL;
    struct error error = {0};

    enum status status =
        cluster_call(inject->cluster, agent, "fault.undo",
                     json_pack("{s:s, s:s}", "run", cluster_run(inject->cluster), "uid", uid),
                     UNDO_MS, &answer, &error);

    if (status == STATUS_NOT_FOUND)
        return; /* it failed before its record was durable: nothing was changed */
    if (status != STATUS_OK) {
        inject->clean = false;
        command_fail(&error);
        return;
    }
    print_effect(node, "undone", answer);
    if (strcmp(json_text(answer, "state", ""), "absent") != 0)
        inject->clean = false;
}

static bool never(void *argument)
{
    const struct inject *inject = argument;

    return inject->fault == NULL;
}

/* The time of the fault, or until a signal ends it early. */
static enum status hold(struct inject *inject, struct error *err)
{
    enum status status =
        cluster_wait(inject->cluster, never, inject, deadline_in_ms(inject->hold_ms), err);

    cluster_shield(inject->cluster);
    return status == STATUS_TIMEOUT ? STATUS_OK : status;
}

static enum status inject_all(struct inject *inject, const char **uids, struct error *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < inject->nodes.count; i++) {
        const struct topology_node *node = inject->nodes.nodes[i];
        const char *agent = agent_of(inject, node);
        OWNED_JSON json_t *params = json_deep_copy(inject->params);
        OWNED_JSON json_t *answer = NULL;

        if (agent == NULL)
            return error_set(err, STATUS_UNSUPPORTED, "no node has the role power");
        if (inject->fault->executor == EXECUTE_POWER)
            json_object_set_new(params, "node", json_string(node->name));
        status = check_supported(inject, agent, params, err);
        if (status != STATUS_OK)
            return status;
        uids[i] = arena_printf(inject->arena, "%s-%zu", cluster_run(inject->cluster), i + 1);
        status =
            cluster_call(inject->cluster, agent, "fault.inject",
                         json_pack("{s:s, s:s, s:s, s:O, s:I}", "run", cluster_run(inject->cluster),
                                   "uid", uids[i], "fault", inject->fault->name, "params", params,
                                   "hold_ms", (json_int_t) inject->hold_ms),
                         INJECT_MS, &answer, err);
        if (status != STATUS_OK)
            return status;
        const json_t *effect = json_object_get(answer, "effect");
        print_effect(node->name, inject->fault->name, effect);
        inject->bit = inject->bit && strcmp(json_text(effect, "state", ""), "active") == 0;
    }
    return status;
}

/* ---- all of it ---- */

static void on_signal(void *argument, int signal)
{
    struct inject *inject = argument;
    struct error reason = {0};

    error_set(&reason, STATUS_ABORTED, "interrupted by signal %d", signal);
    cluster_abort(inject->cluster, &reason);
}

static enum status prepare(struct inject *inject, struct error *err)
{
    struct topology *topology = NULL;
    const char *text = invocation_option(inject->invocation, "target");
    enum status status = find_fault(inject, err);

    if (status == STATUS_OK && text == NULL)
        status = error_set(err, STATUS_USAGE, "--target is missing");
    if (status == STATUS_OK)
        status = read_hold(inject, err);
    if (status == STATUS_OK)
        status = files_topology(inject->arena, inject->invocation, &topology, err);
    inject->topology = topology;
    if (status == STATUS_OK)
        status = target_parse(inject->arena, text, topology, &inject->target, err);
    if (status == STATUS_OK)
        status = files_connect(inject->arena, topology, "inject", true, &inject->cluster, err);
    return status;
}

static enum status resolve(struct inject *inject, struct error *err)
{
    struct ha ha = {.driver = ha_find(inject->topology->ha.manager),
                    .cluster = inject->cluster,
                    .topology = inject->topology};
    struct target_scope scope = {
        .topology = inject->topology, .state = &inject->state, .random = &inject->random};
    enum status status = ha_ask(&ha, inject->arena, &inject->state, err);

    if (status == STATUS_OK)
        status = target_resolve(inject->arena, &inject->target, &scope, &inject->nodes, err);
    if (status == STATUS_OK)
        status = read_params(inject, err);
    return status;
}

static enum status carry_out(struct inject *inject, struct error *err)
{
    const char **uids = arena_array(inject->arena, inject->nodes.count + 1, sizeof *uids);
    struct loop *loop = cluster_loop(inject->cluster);

    loop_on_signal(loop, SIGINT, on_signal, inject);
    loop_on_signal(loop, SIGTERM, on_signal, inject);
    enum status status = inject_all(inject, uids, err);
    if (status == STATUS_OK && inject->fault->holds)
        status = hold(inject, err);
    cluster_shield(inject->cluster);
    for (size_t i = 0; i < inject->nodes.count; i++)
        if (uids[i] != NULL && (inject->fault->holds || status != STATUS_OK))
            undo(inject, agent_of(inject, inject->nodes.nodes[i]), uids[i],
                 inject->nodes.nodes[i]->name);
    return status;
}

static int run_inject(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *params = json_object();
    struct inject inject = {.arena = arena,
                            .invocation = invocation,
                            .params = params,
                            .random = (uint64_t) clock_boot_ns(),
                            .bit = true,
                            .clean = true};
    struct error err = {0};
    enum status status = prepare(&inject, &err);

    if (status == STATUS_OK)
        status = resolve(&inject, &err);
    if (status == STATUS_OK)
        status = carry_out(&inject, &err);
    cluster_free(inject.cluster);
    int exit_code = status != STATUS_OK ? command_fail(&err) : EXIT_PASS;
    if (!inject.clean)
        return EXIT_NOT_RECOVERED;
    if (exit_code != EXIT_PASS)
        return exit_code;
    return inject.bit ? EXIT_PASS : EXIT_INCONCLUSIVE;
}

static const struct command_option options[] = {
    {.name = "topology", .letter = 't', .value = "FILE", .help = "the lab that is up, without"},
    {.name = "target",
     .value = "T",
     .help = "a node, a role, or KEY=VALUE,... of node, role, zone, mode, process"},
    {.name = "for", .value = "D", .help = "how long; compulsory for a fault that holds"},
    {.name = "with", .value = "KEY=VALUE", .help = "a parameter of the fault; may be repeated"},
    {.name = NULL},
};

const struct command command_inject = {
    .name = "inject",
    .arguments = "FAULT",
    .minimum = 1,
    .maximum = 1,
    .summary = "one fault without a scenario; waits, undoes, prints its effect",
    .text = "Injects the fault, prints what was observed, holds it for the given time and undoes "
            "it. SIGINT and SIGTERM end it early. There is no load, no check and no HA manager: "
            "an instant fault's damage is for the operator or the cluster to repair.",
    .options = options,
    .run = run_inject,
};
