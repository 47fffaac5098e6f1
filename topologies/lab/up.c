/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/namespace.h"
#include "lib/owned.h"
#include "lib/tls.h"
#include "topologies/lab/clear.h"
#include "topologies/lab/files.h"
#include "topologies/lab/postgres.h"
#include "topologies/lab/preflight.h"
#include "topologies/lab/probe.h"
#include "topologies/lab/state.h"
#include "topologies/lab/supervisor.h"
#include "topologies/lab/tasks.h"
#include "topologies/lab/topology_file.h"
#include "topologies/lab/volume.h"
#include "topologies/topology.h"

enum {
    CERTIFICATE_DAYS = 3650,
    UP_TIMEOUT_MS = 180000, /* the whole; a loaded machine is slow, not broken */
    ASK_MS = 60000,
    TOPOLOGY_MAX = 64 * 1024,
};

static const struct file_owner root_owner = {0, 0};

struct up {
    const struct lab_spec *spec;
    const struct lab_programs *programs;
    struct arena *arena;
    struct lab_passwords passwords;
    pid_t supervisor;
    int64_t started_ns, deadline_ns;
    pid_t pids[LAB_NODES_MAX]; /* of the nodes' inits, on the host */
};

/* A step of `up` on one node. */
struct on_node {
    struct up *up;
    size_t index;
};

/* There is one: a lab file without is refused. */
static const struct lab_node *first_database(const struct lab_spec *spec, size_t *ret_index)
{
    size_t index = 0;

    while ((spec->nodes[index].roles & ROLE_DATABASE) == 0)
        index++;
    *ret_index = index;
    return &spec->nodes[index];
}

/* Run a step on all nodes with one of the roles at once; `skip` names one that is left out. */
static enum status on_nodes(struct up *up, unsigned roles, const struct lab_node *skip,
                            const char *what, enum status (*run)(void *, struct error *),
                            struct error *err)
{
    struct on_node arguments[LAB_NODES_MAX];
    struct task tasks[LAB_NODES_MAX];
    size_t count = 0;

    for (size_t i = 0; i < up->spec->node_count; i++) {
        const struct lab_node *node = &up->spec->nodes[i];

        if ((node->roles & roles) == 0 || node == skip)
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

enum { ALL_BUT_POWER = ROLE_DATABASE | ROLE_CLIENT };

static const struct lab_node *node_of(const struct on_node *at)
{
    return &at->up->spec->nodes[at->index];
}

/* A path of the node's, as the host reaches it. */
static const char *reach(struct arena *arena, const struct on_node *at, const char *path)
{
    return arena_printf(arena, "/proc/%d/root%s", (int) at->up->pids[at->index], path);
}

/* ---- on the host ---- */

static enum status issue(const struct up *up, const char *folder, const struct lab_node *node,
                         struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    enum status status = pki_issue(folder, node->name, TLS_AGENT, CERTIFICATE_DAYS, err);

    if (status == STATUS_OK && (node->roles & ROLE_DATABASE) != 0)
        status = pki_issue_server(folder, arena_printf(arena, "postgresql-%s", node->name),
                                  node->address, CERTIFICATE_DAYS, err);
    (void) up;
    return status;
}

static enum status make_certificates(struct up *up, struct error *err)
{
    const char *folder = lab_path(up->arena, up->spec->name, "pki");
    enum status status = pki_init(folder, CERTIFICATE_DAYS, err);

    if (status == STATUS_OK)
        status = pki_issue(folder, "orchestrator", TLS_ORCHESTRATOR, CERTIFICATE_DAYS, err);
    for (size_t i = 0; i < up->spec->node_count && status == STATUS_OK; i++)
        status = issue(up, folder, &up->spec->nodes[i], err);
    return status;
}

static enum status make_secrets(struct up *up, struct error *err)
{
    const char *folder = lab_path(up->arena, up->spec->name, "secrets");
    const struct {
        const char *name, *password;
    } files[] = {{"admin.pass", up->passwords.admin},
                 {"load.pass", up->passwords.load},
                 {"replication.pass", up->passwords.replication}};
    enum status status = files_folder(folder, 0700, root_owner, err);

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && status == STATUS_OK; i++)
        status =
            files_write(arena_printf(up->arena, "%s/%s", folder, files[i].name),
                        arena_printf(up->arena, "%s\n", files[i].password), 0600, root_owner, err);
    return status;
}

static enum status make_images(void *argument, struct error *err)
{
    const struct on_node *at = argument;
    const struct lab_node *node = node_of(at);
    struct arena *arena = at->up->arena;
    const char *folder = lab_path(arena, at->up->spec->name, node->name);
    enum status status =
        volume_create(arena_printf(arena, "%s/system.img", folder), node->system_bytes, err);

    if (status == STATUS_OK && node->data_bytes > 0)
        status = volume_create(arena_printf(arena, "%s/data.img", folder), node->data_bytes, err);
    return status;
}

static enum status make_volumes(struct up *up, struct error *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < up->spec->node_count && status == STATUS_OK; i++)
        status = files_folder(lab_path(up->arena, up->spec->name, up->spec->nodes[i].name), 0700,
                              root_owner, err);
    if (status == STATUS_OK)
        status = on_nodes(up, ALL_BUT_POWER, NULL, "making the volumes of", make_images, err);
    return status;
}

static enum status make_group(const struct up *up, const struct lab_node *node, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *limited = lab_cgroup(arena, up->spec->name, node->name, "postgres");
    struct cgroup_limits limits = {
        .memory_bytes = node->memory_bytes,
        .memory_swap_bytes = node->memory_bytes > 0 && node->swap_bytes >= 0
                                 ? node->memory_bytes + node->swap_bytes
                                 : 0,
        .cpu_percent = node->cpu_percent,
    };
    enum status status = cgroup_create(lab_cgroup(arena, up->spec->name, node->name, "agent"), err);

    if (status == STATUS_OK && node->roles != ROLE_POWER)
        status = cgroup_create(limited, err);
    if (status == STATUS_OK && node->roles != ROLE_POWER)
        status = cgroup_limit(limited, &limits, err);
    return status;
}

static enum status make_groups(struct up *up, struct error *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < up->spec->node_count && status == STATUS_OK; i++)
        status = make_group(up, &up->spec->nodes[i], err);
    return status;
}

static enum status write_state(struct up *up, struct error *err)
{
    struct lab_state state = {.started_ns = up->started_ns};
    enum status status = process_identify(up->supervisor, &state.supervisor, err);

    if (status == STATUS_OK)
        status = clock_boot_id(state.boot_id, err);
    return status == STATUS_OK ? state_write(up->spec->name, &state, err) : status;
}

static enum status start_switch(struct up *up, struct error *err)
{
    struct process process = {.pidfd = -1};
    enum status status = supervisor_start(up->spec, up->programs, &process, err);

    if (status != STATUS_OK)
        return status;
    up->supervisor = process.pid;
    close(process.pidfd);
    return write_state(up, err);
}

/* ---- nodes ---- */

static enum status boot_one(void *argument, struct error *err)
{
    const struct on_node *at = argument;

    return supervisor_ask(at->up->spec->name,
                          json_pack("{s:s, s:s}", "request", "boot", "node", node_of(at)->name),
                          ASK_MS, NULL, err);
}

static enum status note_pids(struct up *up, struct error *err)
{
    OWNED_JSON json_t *answer = NULL;
    enum status status = supervisor_ask(up->spec->name, json_pack("{s:s}", "request", "status"),
                                        ASK_MS, &answer, err);
    size_t index = 0;
    json_t *node = NULL;

    if (status != STATUS_OK)
        return status;
    json_array_foreach(json_object_get(answer, "nodes"), index, node)
    {
        const struct lab_node *known = lab_spec_node(up->spec, json_text(node, "name", ""));

        if (known != NULL)
            up->pids[known - up->spec->nodes] = (pid_t) json_number(node, "pid", 0);
    }
    return STATUS_OK;
}

static enum status boot_nodes(struct up *up, struct error *err)
{
    enum status status = on_nodes(up, ALL_BUT_POWER, NULL, "booting", boot_one, err);

    return status == STATUS_OK ? note_pids(up, err) : status;
}

struct placed {
    const char *from, *to; /* below the state folder; on the node */
    mode_t mode;
    bool postgres; /* owner */
};

static enum status place(const struct on_node *at, const struct placed *files, size_t count,
                         struct file_owner postgres, struct error *err)
{
    struct arena *arena = at->up->arena;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = files_copy(lab_path(arena, at->up->spec->name, files[i].from),
                            reach(arena, at, files[i].to), files[i].mode,
                            files[i].postgres ? postgres : root_owner, err);
    return status;
}

static enum status place_common(const struct on_node *at, struct file_owner postgres,
                                struct error *err)
{
    struct arena *arena = at->up->arena;
    const char *name = node_of(at)->name;
    const char *certificate = arena_printf(arena, "pki/%s.crt", name);
    const char *key = arena_printf(arena, "pki/%s.key", name);
    const struct placed files[] = {
        {"pki/ca.crt", NODE_PKI "/ca.crt", 0644, false},
        {certificate, arena_printf(arena, NODE_PKI "/%s.crt", name), 0644, false},
        {key, arena_printf(arena, NODE_PKI "/%s.key", name), 0600, false},
        {"secrets/load.pass", NODE_SECRETS "/load.pass", 0600, false},
        {"secrets/admin.pass", NODE_SECRETS "/admin.pass", 0600, false},
    };
    const char *const folders[] = {NODE_PKI, NODE_SECRETS, NODE_AGENT};
    const mode_t modes[] = {0755, 0700, 0700};
    enum status status = STATUS_OK;

    for (size_t i = 0; i < 3 && status == STATUS_OK; i++)
        status = files_folder(reach(arena, at, folders[i]), modes[i], root_owner, err);
    return status == STATUS_OK ? place(at, files, sizeof(files) / sizeof(files[0]), postgres, err)
                               : status;
}

static enum status place_settings(const struct on_node *at, struct file_owner postgres,
                                  struct error *err)
{
    struct arena *arena = at->up->arena;
    OWNED_BUFFER struct buffer text = BUFFER(TOPOLOGY_MAX);

    lab_postgres_settings(at->up->spec, node_of(at), &text);
    enum status status = files_write(reach(arena, at, NODE_POSTGRES "/ordeal.conf"),
                                     buffer_text(&text), 0600, postgres, err);
    if (status != STATUS_OK)
        return status;
    return files_write(
        reach(arena, at, NODE_POSTGRES "/replication.pgpass"),
        arena_printf(arena, "*:*:*:" USER_REPLICATION ":%s\n", at->up->passwords.replication), 0600,
        postgres, err);
}

static enum status place_postgres(const struct on_node *at, struct file_owner postgres,
                                  struct error *err)
{
    struct arena *arena = at->up->arena;
    const char *name = node_of(at)->name;
    int version = (int) at->up->spec->version;
    const struct placed files[] = {
        {arena_printf(arena, "pki/postgresql-%s.crt", name), NODE_POSTGRES "/server.crt", 0644,
         true},
        {arena_printf(arena, "pki/postgresql-%s.key", name), NODE_POSTGRES "/server.key", 0600,
         true},
        {"secrets/replication.pass", NODE_SECRETS "/replication.pass", 0600, false},
    };
    const char *const folders[] = {NODE_POSTGRES, NODE_DATA,
                                   arena_printf(arena, NODE_DATA "/%d", version),
                                   arena_printf(arena, NODE_DATA "/%d/log", version)};
    enum status status = STATUS_OK;

    for (size_t i = 0; i < 4 && status == STATUS_OK; i++)
        status = files_folder(reach(arena, at, folders[i]), i == 0 ? 0700 : 0755, postgres, err);
    if (status == STATUS_OK)
        status = place(at, files, sizeof(files) / sizeof(files[0]), postgres, err);
    return status == STATUS_OK ? place_settings(at, postgres, err) : status;
}

static enum status furnish_one(void *argument, struct error *err)
{
    const struct on_node *at = argument;
    struct file_owner postgres;
    enum status status = files_owner("postgres", &postgres, err);

    if (status == STATUS_OK)
        status = place_common(at, postgres, err);
    if (status == STATUS_OK && (node_of(at)->roles & ROLE_DATABASE) != 0)
        status = place_postgres(at, postgres, err);
    return status;
}

static enum status furnish(struct up *up, struct error *err)
{
    return on_nodes(up, ALL_BUT_POWER, NULL, "writing files to", furnish_one, err);
}

static enum status start_agents(struct up *up, struct error *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < up->spec->node_count && status == STATUS_OK; i++)
        status = supervisor_ask(
            up->spec->name,
            json_pack("{s:s, s:s}", "request", "agent", "node", up->spec->nodes[i].name), ASK_MS,
            NULL, err);
    return status;
}

/* ---- PostgreSQL ---- */

static enum status create_one(void *argument, struct error *err)
{
    const struct on_node *at = argument;
    enum status status = namespace_enter(at->up->pids[at->index], NAMESPACE_HOST, err);

    return status == STATUS_OK
               ? lab_postgres_create(at->up->spec, node_of(at), &at->up->passwords, err)
               : status;
}

static enum status create_primary(struct up *up, struct error *err)
{
    struct on_node at = {.up = up};
    const struct lab_node *primary = first_database(up->spec, &at.index);
    const struct task task = {
        .what = arena_printf(up->arena, "initialising PostgreSQL on %s", primary->name),
        .run = create_one,
        .argument = &at};

    return tasks_run(&task, 1, NULL, up->deadline_ns, err);
}

static enum status sync_volume(const char *path, struct error *err)
{
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || syncfs(fd) < 0)
        return error_system(err, "cannot sync %s", path);
    return STATUS_OK;
}

static enum status copy_data(const struct on_node *from, const struct on_node *to,
                             struct error *err)
{
    struct arena *arena = to->up->arena;
    const char *parent = arena_printf(arena, NODE_DATA "/%d", (int) to->up->spec->version);
    const char *argv[] = {"cp", "-a", reach(arena, from, lab_data(arena, to->up->spec)),
                          reach(arena, to, parent), NULL};

    return process_run(&(struct process_spec){.argv = argv, .timeout_ms = UP_TIMEOUT_MS}, NULL,
                       err);
}

/* The primary's slots are not the standby's. */
static enum status drop_slots(const struct on_node *at, struct error *err)
{
    struct arena *arena = at->up->arena;
    const char *slots =
        arena_printf(arena, "%s/pg_replslot", reach(arena, at, lab_data(arena, at->up->spec)));
    const char *argv[] = {"find", slots, "-mindepth", "1", "-delete", NULL};

    return process_run(&(struct process_spec){.argv = argv, .timeout_ms = ASK_MS}, NULL, err);
}

static enum status make_standby(const struct on_node *at, const struct lab_node *primary,
                                struct error *err)
{
    struct arena *arena = at->up->arena;
    const char *data = reach(arena, at, lab_data(arena, at->up->spec));
    OWNED_BUFFER struct buffer text = BUFFER(TOPOLOGY_MAX);
    struct file_owner postgres;
    enum status status = drop_slots(at, err);

    lab_postgres_follow(at->up->spec, node_of(at), primary, &text);
    if (status == STATUS_OK)
        status = files_owner("postgres", &postgres, err);
    if (status == STATUS_OK)
        status =
            files_write(arena_printf(arena, "%s/standby.signal", data), "", 0600, postgres, err);
    if (status == STATUS_OK)
        status = files_write(arena_printf(arena, "%s/postgresql.auto.conf", data),
                             buffer_text(&text), 0600, postgres, err);
    return status;
}

/* What was copied was not synced: a power cut right after `up` must not find it missing. */
static enum status start_one(void *argument, struct error *err)
{
    const struct on_node *at = argument;
    struct arena *arena = at->up->arena;
    struct on_node from = {.up = at->up};
    const struct lab_node *primary = first_database(at->up->spec, &from.index);
    enum status status = STATUS_OK;

    if (node_of(at) != primary)
        status = copy_data(&from, at, err);
    if (status == STATUS_OK && node_of(at) != primary)
        status = make_standby(at, primary, err);
    if (status == STATUS_OK)
        status = sync_volume(reach(arena, at, NODE_DATA), err);
    if (status == STATUS_OK)
        status = sync_volume(reach(arena, at, NODE_SYSTEM), err);
    return status;
}

static enum status run_one(void *argument, struct error *err)
{
    const struct on_node *at = argument;
    enum status status = namespace_enter(at->up->pids[at->index], NAMESPACE_HOST, err);

    return status == STATUS_OK ? lab_postgres_start(at->up->spec, node_of(at), err) : status;
}

static enum status make_standbys(struct up *up, struct error *err)
{
    return on_nodes(up, ROLE_DATABASE, NULL, "preparing PostgreSQL on", start_one, err);
}

static enum status start_servers(struct up *up, struct error *err)
{
    return on_nodes(up, ROLE_DATABASE, NULL, "starting PostgreSQL on", run_one, err);
}

/* ---- the end ---- */

static enum status await_agents(const struct up *up, struct error *err)
{
    for (size_t i = 0; i < up->spec->node_count; i++) {
        const struct lab_node *node = &up->spec->nodes[i];

        while (!probe_tcp(node->address, LAB_AGENT_PORT, deadline_in_ms(1000))) {
            if (deadline_passed(up->deadline_ns))
                return error_set(err, STATUS_TIMEOUT, "the agent of %s does not answer",
                                 node->name);
            usleep(10000);
        }
    }
    return STATUS_OK;
}

static enum status prove(void *argument, struct error *err)
{
    const struct up *up = argument;
    size_t index = 0;
    int databases = 0;
    const struct lab_node *primary = first_database(up->spec, &index);
    enum status status = namespace_enter(up->supervisor, CLONE_NEWNET, err);

    for (size_t i = 0; i < up->spec->node_count; i++)
        databases += (up->spec->nodes[i].roles & ROLE_DATABASE) != 0;
    if (status == STATUS_OK)
        status = await_agents(up, err);
    if (status == STATUS_OK)
        status = probe_quorum(up->spec->name, primary->address, (int) up->spec->port, databases - 1,
                              up->deadline_ns, err);
    return status;
}

static enum status await_all(struct up *up, struct error *err)
{
    const struct task task = {"waiting for the lab", prove, up};

    return tasks_run(&task, 1, NULL, up->deadline_ns, err);
}

/* topology.yaml is what says that the lab is up: it comes last, whole. */
static enum status announce(struct up *up, struct error *err)
{
    OWNED_BUFFER struct buffer text = BUFFER(TOPOLOGY_MAX);
    const char *path = lab_path(up->arena, up->spec->name, "topology.yaml");
    const char *new_path = lab_path(up->arena, up->spec->name, "topology.yaml.new");

    topology_file_text(up->spec, up->programs, up->supervisor, &text);
    enum status status = files_write(new_path, buffer_text(&text), 0600, root_owner, err);
    if (status == STATUS_OK)
        status = supervisor_ask(up->spec->name, json_pack("{s:s}", "request", "keep"), ASK_MS, NULL,
                                err);
    if (status == STATUS_OK && rename(new_path, path) < 0)
        status = error_system(err, "cannot create %s", path);
    return status;
}

static const struct {
    const char *done;
    enum status (*run)(struct up *up, struct error *err);
} steps[] = {
    {"certificates issued", make_certificates},
    {"passwords drawn", make_secrets},
    {"volumes made", make_volumes},
    {"control groups made", make_groups},
    {"switch up", start_switch},
    {"nodes booted", boot_nodes},
    {"files written", furnish},
    {"agents started", start_agents},
    {"PostgreSQL initialised", create_primary},
    {"standbys copied, volumes synced", make_standbys},
    {"servers started", start_servers},
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
