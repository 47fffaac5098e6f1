/* SPDX-License-Identifier: MIT */
#include "topologies/lab/up.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/namespace.h"
#include "lib/owned.h"
#include "topologies/lab/clear.h"
#include "topologies/lab/preflight.h"
#include "topologies/lab/probe.h"
#include "topologies/lab/state.h"
#include "topologies/lab/supervisor.h"
#include "topologies/lab/tasks.h"
#include "topologies/lab/topology_file.h"
#include "topologies/topology.h"

enum { PROVE_MS = 60000, AGENT_TRY_MS = 1000, LOOK_AGAIN_MS = 10 };

const struct lab_node *up_primary(const struct lab_spec *spec, size_t *ret_index)
{
    size_t index = 0;

    while ((spec->nodes[index].roles & ROLE_DATABASE) == 0)
        index++;
    *ret_index = index;
    return &spec->nodes[index];
}

enum status up_on_nodes(struct up *up, unsigned roles, const char *what,
                        enum status (*run)(void *, struct error *), struct error *err)
{
    struct on_node arguments[LAB_NODES_MAX];
    struct task tasks[LAB_NODES_MAX];
    size_t count = 0;

    for (size_t i = 0; i < up->spec->node_count; i++) {
        const struct lab_node *node = &up->spec->nodes[i];

        if ((node->roles & roles) == 0)
            continue;
        arguments[count] = (struct on_node){.up = up, .index = i};
        tasks[count] = (struct task){
            .what = arena_printf(up->arena, "%s %s", what, node->name),
            .run = run,
            .argument = &arguments[count],
        };
        count++;
    }
    return tasks_run(tasks, count, NULL, up->deadline_ns, err);
}

const struct lab_node *up_node(const struct on_node *at)
{
    return &at->up->spec->nodes[at->index];
}

const char *up_reach(const struct on_node *at, const char *path)
{
    return arena_printf(at->up->arena, "/proc/%d/root%s", (int) at->up->pids[at->index], path);
}

/* ---- the end ---- */

/* What a node said, for the detail: its own volume is gone when the error is read. */
static void add_tail(const struct on_node *at, const char *path, struct error *err)
{
    char text[600];

    files_tail(up_reach(at, path), text, sizeof(text));
    if (text[0] != '\0')
        error_detail(err, "%s says: %s", up_node(at)->name, text);
}

static void add_log(struct up *up, size_t index, struct error *err)
{
    struct on_node at = {.up = up, .index = index};
    char text[600];

    if (up_node(&at)->roles != ROLE_POWER) {
        add_tail(&at, NODE_SYSTEM "/node.log", err);
        return;
    }
    files_tail(lab_path(up->arena, up->spec->name, "supervisor.log"), text, sizeof(text));
    error_detail(err, "the supervisor says: %s", text);
}

static enum status await_agents(struct up *up, int64_t deadline_ns, struct error *err)
{
    for (size_t i = 0; i < up->spec->node_count; i++) {
        const struct lab_node *node = &up->spec->nodes[i];

        while (!probe_tcp(node->address, LAB_AGENT_PORT, deadline_in_ms(AGENT_TRY_MS))) {
            if (deadline_passed(deadline_ns)) {
                error_set(err, STATUS_TIMEOUT, "the agent of %s does not answer", node->name);
                add_log(up, i, err);
                return STATUS_TIMEOUT;
            }
            poll(NULL, 0, LOOK_AGAIN_MS);
        }
    }
    return STATUS_OK;
}

static enum status await_quorum(struct up *up, int64_t deadline_ns, struct error *err)
{
    struct on_node at = {.up = up};
    const struct lab_node *primary = up_primary(up->spec, &at.index);
    int databases = 0;

    for (size_t i = 0; i < up->spec->node_count; i++)
        databases += (up->spec->nodes[i].roles & ROLE_DATABASE) != 0;
    enum status status = probe_quorum(up->spec->name, primary->address, (int) up->spec->port,
                                      databases - 1, deadline_ns, err);
    if (status != STATUS_OK)
        add_tail(
            &at,
            arena_printf(up->arena, NODE_DATA "/%d/log/postgresql.log", (int) up->spec->version),
            err);
    return status;
}

static enum status prove(void *argument, struct error *err)
{
    struct up *up = argument;
    int64_t deadline_ns = deadline_in_ms(PROVE_MS);
    enum status status = namespace_enter(up->supervisor, CLONE_NEWNET, err);

    if (status == STATUS_OK)
        status = await_agents(up, deadline_ns, err);
    return status == STATUS_OK ? await_quorum(up, deadline_ns, err) : status;
}

static enum status await_all(struct up *up, struct error *err)
{
    const struct task task = {"waiting for the lab", prove, up};

    return tasks_run(&task, 1, NULL, up->deadline_ns, err);
}

/* topology.yaml is what says that the lab is up: it comes last, whole. */
static enum status announce(struct up *up, struct error *err)
{
    OWNED_BUFFER struct buffer text = BUFFER(UP_TEXT_MAX);
    const char *path = lab_path(up->arena, up->spec->name, "topology.yaml");
    const char *new_path = lab_path(up->arena, up->spec->name, "topology.yaml.new");

    topology_file_text(up->spec, up->programs, up->supervisor, &text);
    enum status status = files_write(new_path, buffer_text(&text), 0600, FILES_ROOT, err);
    if (status == STATUS_OK)
        status = supervisor_ask(up->spec->name, json_pack("{s:s}", "request", "keep"), UP_ASK_MS,
                                NULL, err);
    if (status == STATUS_OK && rename(new_path, path) < 0)
        status = error_system(err, "cannot create %s", path);
    return status;
}

static const struct {
    const char *done;
    enum status (*run)(struct up *up, struct error *err);
} steps[] = {
    {"certificates issued", up_make_certificates},
    {"passwords drawn", up_make_secrets},
    {"volumes made", up_make_volumes},
    {"control groups made", up_make_groups},
    {"switch up", up_start_switch},
    {"nodes booted", up_boot_nodes},
    {"files written", up_furnish},
    {"agents started", up_start_agents},
    {"PostgreSQL initialised", up_create_primary},
    {"standbys copied, volumes synced", up_make_standbys},
    {"servers started", up_start_servers},
    {"agents answer, standbys stream, a commit has waited for them", await_all},
    {"topology written", announce},
};

static enum status build(void *argument, struct error *err)
{
    struct up *up = argument;
    int64_t last_ns = up->started_ns;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        enum status status = steps[i].run(up, err);
        if (status != STATUS_OK)
            return status;
        int64_t now_ns = clock_boot_ns();
        fprintf(stderr, "%6.3f s  %s (%.0f ms)\n", (double) (now_ns - up->started_ns) / 1e9,
                steps[i].done, (double) (now_ns - last_ns) / 1e6);
        last_ns = now_ns;
    }
    return STATUS_OK;
}

static void block_signals(sigset_t *ret_blocked, sigset_t *ret_before)
{
    sigemptyset(ret_blocked);
    sigaddset(ret_blocked, SIGINT);
    sigaddset(ret_blocked, SIGTERM);
    sigaddset(ret_blocked, SIGHUP);
    sigprocmask(SIG_BLOCK, ret_blocked, ret_before);
}

/* A second signal does not stop the clearing away: it waits until that is done. */
static enum status build_or_clear(struct up *up, struct error *err)
{
    sigset_t blocked, before;
    struct error trouble = {0};
    const struct task task = {arena_printf(up->arena, "lab %s", up->spec->name), build, up};

    block_signals(&blocked, &before);
    enum status status = tasks_run(&task, 1, &blocked, up->deadline_ns, err);
    if (status != STATUS_OK && lab_clear(up->spec->name, &trouble) != STATUS_OK)
        error_detail(err, "and clearing it away failed: %s", trouble.message);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

enum status lab_up(const struct lab_spec *spec, const struct lab_programs *programs,
                   int64_t started_ns, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_FD int lock = -1;
    struct up up = {.spec = spec,
                    .programs = programs,
                    .arena = arena,
                    .started_ns = started_ns,
                    .deadline_ns = deadline_in_ms(UP_TIMEOUT_MS)};
    enum status status = lab_preflight(spec, programs, err);

    if (status == STATUS_OK)
        status = lab_passwords_draw(&up.passwords, err);
    if (status == STATUS_OK)
        status = state_create(spec->name, &lock, err);
    return status == STATUS_OK ? build_or_clear(&up, err) : status;
}
