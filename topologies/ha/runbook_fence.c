/* SPDX-License-Identifier: MIT */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "topologies/ha/runbook.h"

enum {
    FENCE_TIMEOUT_MS = 5000,
    POWER_TIMEOUT_MS = 20000,
    SCRIPT_TIMEOUT_MS = 20000,
    ANSWER_MARGIN_MS = 1000,
    ARGUMENT_MAXIMUM = 4096
};

/* ---- control ---- */

static enum status fence_by_control(struct runbook *runbook, const struct topology_node *node,
                                    struct error *err)
{
    const struct topology *topology = runbook->ha->topology;

    if (!topology->ha.management_network)
        return error_set(err, STATUS_REFUSED,
                         "the topology does not say that the control connection is a management "
                         "network");
    return cluster_call(runbook->ha->cluster, node->name, "postgres.fence",
                        runbook_timed_params(runbook, FENCE_TIMEOUT_MS),
                        FENCE_TIMEOUT_MS + ANSWER_MARGIN_MS, NULL, err);
}

/* ---- power ---- */

static const struct topology_node *power_agent(const struct topology *topology)
{
    if (topology->power.off == NULL || topology->power.on == NULL)
        return NULL;
    return topology_first(topology, ROLE_POWER);
}

enum status runbook_power(struct runbook *runbook, const struct topology_node *node,
                          const char *word, struct error *err)
{
    const struct topology_node *agent = power_agent(runbook->ha->topology);

    if (agent == NULL)
        return error_set(err, STATUS_UNSUPPORTED, "the topology has no power driver");
    json_t *params = runbook_params(runbook);
    json_object_set_new(params, "node", json_string(node->name));
    json_object_set_new(params, "word", json_string(word));
    return cluster_call(runbook->ha->cluster, agent->name, "power", params, POWER_TIMEOUT_MS, NULL,
                        err);
}

static enum status fence_by_power(struct runbook *runbook, const struct topology_node *node,
                                  struct error *err)
{
    return runbook_power(runbook, node, "off", err);
}

/* ---- script ---- */

/* One argument with every "{node}" replaced. */
static enum status fill_argument(struct arena *arena, const char *text, const char *node,
                                 const char **ret_argument, struct error *err)
{
    static const char mark[] = "{node}";
    OWNED_BUFFER struct buffer argument = BUFFER(ARGUMENT_MAXIMUM);
    const char *next;

    while ((next = strstr(text, mark)) != NULL) {
        buffer_append(&argument, text, (size_t) (next - text));
        buffer_puts(&argument, node);
        text = next + sizeof mark - 1;
    }
    buffer_puts(&argument, text);
    if (argument.overflow)
        return error_set(err, STATUS_INVALID, "an argument of fence-script is longer than %d bytes",
                         ARGUMENT_MAXIMUM);
    *ret_argument = arena_strdup(arena, buffer_text(&argument));
    return STATUS_OK;
}

static enum status fill_arguments(struct arena *arena, const char *const *script, const char *node,
                                  const char ***ret_argv, struct error *err)
{
    size_t count = 0;

    while (script[count] != NULL)
        count++;
    const char **argv = arena_array(arena, count + 1, sizeof *argv);
    for (size_t i = 0; i < count; i++) {
        enum status status = fill_argument(arena, script[i], node, &argv[i], err);
        if (status != STATUS_OK)
            return status;
    }
    *ret_argv = argv;
    return STATUS_OK;
}

static void set_flag(void *argument, short events)
{
    (void) events;
    *(bool *) argument = true;
}

static bool flag_is_set(void *argument)
{
    return *(bool *) argument;
}

/* The loop turns meanwhile, so that leases are renewed. */
static enum status await_script(struct runbook *runbook, const char *const *argv,
                                struct process *child, struct error *err)
{
    struct loop *loop = cluster_loop(runbook->ha->cluster);
    bool ended = false;
    int outcome = 0;

    loop_handle watch = loop_watch(loop, child->pidfd, POLLIN, set_flag, &ended);
    enum status status = cluster_wait(runbook->ha->cluster, flag_is_set, &ended,
                                      deadline_in_ms(SCRIPT_TIMEOUT_MS), err);
    loop_remove(loop, watch);
    if (status != STATUS_OK)
        return error_context(err, "fence script %s", argv[0]);
    status = process_reap(child, deadline_in_ms(FENCE_TIMEOUT_MS), &outcome, err);
    if (status != STATUS_OK)
        return status;
    if (WIFSIGNALED(outcome))
        return error_set(err, STATUS_FAILED, "fence script %s was ended by signal %d", argv[0],
                         WTERMSIG(outcome));
    if (WEXITSTATUS(outcome) != 0)
        return error_set(err, STATUS_FAILED, "fence script %s exited with %d", argv[0],
                         WEXITSTATUS(outcome));
    return STATUS_OK;
}

static enum status fence_by_script(struct runbook *runbook, const struct topology_node *node,
                                   struct error *err)
{
    const char *const *script = runbook->ha->topology->ha.fence_script;
    OWNED_ARENA struct arena *arena = arena_new();
    struct process child = {.pidfd = -1};
    const char **argv;

    if (script == NULL || script[0] == NULL)
        return error_set(err, STATUS_INVALID, "the topology has no fence-script");
    enum status status = fill_arguments(arena, script, node->name, &argv, err);
    if (status == STATUS_OK)
        status = process_start(&(struct process_spec){.argv = argv}, &child, err);
    if (status != STATUS_OK)
        return status;
    status = await_script(runbook, argv, &child, err);
    process_kill(&child);
    return status;
}

/* ---- the declared path ---- */

static const struct {
    const char *name;
    enum status (*way)(struct runbook *runbook, const struct topology_node *node,
                       struct error *err);
} paths[] = {
    {"control", fence_by_control},
    {"power", fence_by_power},
    {"script", fence_by_script},
};

static enum status try_path(struct runbook *runbook, const struct topology_node *node,
                            const char *path, struct fencing *fencing, struct error *err)
{
    struct error problem = {0};
    enum status status = STATUS_UNSUPPORTED;

    fencing->path = path;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (strcmp(paths[i].name, path) == 0)
            status = paths[i].way(runbook, node, &problem);
    fencing->fenced = status == STATUS_OK;
    if (status == STATUS_ABORTED) {
        if (err != NULL)
            *err = problem;
        return status;
    }
    if (fencing->fenced)
        snprintf(fencing->text, sizeof fencing->text, "fenced by %s", path);
    else
        snprintf(fencing->text, sizeof fencing->text, "not fenced by %s: %.400s", path,
                 problem.message);
    return STATUS_OK;
}

/* An agent that is silent cannot be told to fence; then the node itself is switched off. */
static bool falls_back_to_power(struct runbook *runbook, const struct topology_node *node,
                                const struct fencing *fencing)
{
    return !fencing->fenced && strcmp(fencing->path, "control") == 0 &&
           runbook->ha->topology->ha.management_network &&
           !cluster_connected(runbook->ha->cluster, node->name) &&
           power_agent(runbook->ha->topology) != NULL;
}

enum status runbook_fence(struct runbook *runbook, const struct topology_node *node,
                          struct fencing *ret_fencing, struct error *err)
{
    const char *declared = runbook->ha->topology->ha.fence;
    struct fencing fencing = {.path = "none"};
    enum status status = STATUS_OK;

    if (declared == NULL || strcmp(declared, "none") == 0) {
        snprintf(fencing.text, sizeof fencing.text, "unfenced: the topology says fence: none");
    } else {
        status = try_path(runbook, node, declared, &fencing, err);
        if (status == STATUS_OK && falls_back_to_power(runbook, node, &fencing))
            status = try_path(runbook, node, "power", &fencing, err);
    }
    if (status == STATUS_OK)
        *ret_fencing = fencing;
    return status;
}

enum status runbook_fence_and_tell(struct runbook *runbook, const struct topology_node *node,
                                   const char *why, struct fencing *ret_fencing, struct error *err)
{
    enum status status = runbook_fence(runbook, node, ret_fencing, err);

    if (status != STATUS_OK)
        return status;
    runbook_tell_once(
        runbook, "ha.fence", node->name,
        json_pack("{s:s, s:b}", "path", ret_fencing->path, "fenced", ret_fencing->fenced), "%s; %s",
        why, ret_fencing->text);
    return STATUS_OK;
}
