/* SPDX-License-Identifier: MIT */
/* The supervisor starts, nodes boot and get their files, agents start. */
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "topologies/lab/state.h"
#include "topologies/lab/supervisor.h"
#include "topologies/lab/up.h"
#include "topologies/topology.h"

enum { ALL_BUT_POWER = ROLE_DATABASE | ROLE_CLIENT };

static enum status write_state(struct up *up, struct error *err)
{
    struct lab_state state = {.started_ns = up->started_ns};
    enum status status = process_identify(up->supervisor, &state.supervisor, err);

    if (status == STATUS_OK)
        status = clock_boot_id(state.boot_id, err);
    return status == STATUS_OK ? state_write(up->spec->name, &state, err) : status;
}

enum status up_start_switch(struct up *up, struct error *err)
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
                          json_pack("{s:s, s:s}", "request", "boot", "node", up_node(at)->name),
                          UP_ASK_MS, NULL, err);
}

static enum status note_pids(struct up *up, struct error *err)
{
    OWNED_JSON json_t *answer = NULL;
    enum status status = supervisor_ask(up->spec->name, json_pack("{s:s}", "request", "status"),
                                        UP_ASK_MS, &answer, err);
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

enum status up_boot_nodes(struct up *up, struct error *err)
{
    enum status status = up_on_nodes(up, ALL_BUT_POWER, "booting", boot_one, err);

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
                            up_reach(at, files[i].to), files[i].mode,
                            files[i].postgres ? postgres : FILES_ROOT, err);
    return status;
}

static enum status place_common(const struct on_node *at, struct file_owner postgres,
                                struct error *err)
{
    struct arena *arena = at->up->arena;
    const char *name = up_node(at)->name;
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
        status = files_folder(up_reach(at, folders[i]), modes[i], FILES_ROOT, err);
    return status == STATUS_OK ? place(at, files, sizeof(files) / sizeof(files[0]), postgres, err)
                               : status;
}

static enum status place_settings(const struct on_node *at, struct file_owner postgres,
                                  struct error *err)
{
    struct arena *arena = at->up->arena;
    OWNED_BUFFER struct buffer text = BUFFER(UP_TEXT_MAX);

    lab_postgres_settings(at->up->spec, up_node(at), &text);
    enum status status = files_write(up_reach(at, NODE_POSTGRES "/ordeal.conf"), buffer_text(&text),
                                     0600, postgres, err);
    if (status != STATUS_OK)
        return status;
    return files_write(
        up_reach(at, NODE_POSTGRES "/replication.pgpass"),
        arena_printf(arena, "*:*:*:" USER_REPLICATION ":%s\n", at->up->passwords.replication), 0600,
        postgres, err);
}

static enum status place_postgres(const struct on_node *at, struct file_owner postgres,
                                  struct error *err)
{
    struct arena *arena = at->up->arena;
    const char *name = up_node(at)->name;
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
        status = files_folder(up_reach(at, folders[i]), i == 0 ? 0700 : 0755, postgres, err);
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
    if (status == STATUS_OK && (up_node(at)->roles & ROLE_DATABASE) != 0)
        status = place_postgres(at, postgres, err);
    return status;
}

enum status up_furnish(struct up *up, struct error *err)
{
    return up_on_nodes(up, ALL_BUT_POWER, "writing files to", furnish_one, err);
}

enum status up_start_agents(struct up *up, struct error *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < up->spec->node_count && status == STATUS_OK; i++)
        status = supervisor_ask(
            up->spec->name,
            json_pack("{s:s, s:s}", "request", "agent", "node", up->spec->nodes[i].name), UP_ASK_MS,
            NULL, err);
    return status;
}
