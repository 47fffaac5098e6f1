/* SPDX-License-Identifier: MIT */
/* PostgreSQL is made once, copied cold to the standbys, and started. */
#include <fcntl.h>
#include <unistd.h>

#include "lib/namespace.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "topologies/lab/tasks.h"
#include "topologies/lab/up.h"
#include "topologies/topology.h"

/* ---- PostgreSQL ---- */

static enum status create_one(void *argument, struct error *err)
{
    const struct on_node *at = argument;
    enum status status = namespace_enter(at->up->pids[at->index], NAMESPACE_INSIDE, err);

    return status == STATUS_OK
               ? lab_postgres_create(at->up->spec, up_node(at), &at->up->passwords, err)
               : status;
}

enum status up_create_primary(struct up *up, struct error *err)
{
    struct on_node at = {.up = up};
    const struct lab_node *primary = up_primary(up->spec, &at.index);
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
    const char *argv[] = {"cp", "-a", up_reach(from, lab_data(arena, to->up->spec)),
                          up_reach(to, parent), NULL};

    return process_run(&(struct process_spec){.argv = argv, .timeout_ms = UP_TIMEOUT_MS}, NULL,
                       err);
}

/* The primary's slots are not the standby's. */
static enum status drop_slots(const struct on_node *at, struct error *err)
{
    struct arena *arena = at->up->arena;
    const char *slots =
        arena_printf(arena, "%s/pg_replslot", up_reach(at, lab_data(arena, at->up->spec)));
    const char *argv[] = {"find", slots, "-mindepth", "1", "-delete", NULL};

    return process_run(&(struct process_spec){.argv = argv, .timeout_ms = UP_ASK_MS}, NULL, err);
}

static enum status make_standby(const struct on_node *at, const struct lab_node *primary,
                                struct error *err)
{
    struct arena *arena = at->up->arena;
    const char *data = up_reach(at, lab_data(arena, at->up->spec));
    OWNED_BUFFER struct buffer text = BUFFER(UP_TEXT_MAX);
    struct file_owner postgres;
    enum status status = drop_slots(at, err);

    lab_postgres_follow(at->up->spec, up_node(at), primary, &text);
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
    struct on_node from = {.up = at->up};
    const struct lab_node *primary = up_primary(at->up->spec, &from.index);
    enum status status = STATUS_OK;

    if (up_node(at) != primary)
        status = copy_data(&from, at, err);
    if (status == STATUS_OK && up_node(at) != primary)
        status = make_standby(at, primary, err);
    if (status == STATUS_OK)
        status = sync_volume(up_reach(at, NODE_DATA), err);
    if (status == STATUS_OK)
        status = sync_volume(up_reach(at, NODE_SYSTEM), err);
    return status;
}

static enum status run_one(void *argument, struct error *err)
{
    const struct on_node *at = argument;
    enum status status = namespace_enter(at->up->pids[at->index], NAMESPACE_INSIDE, err);

    return status == STATUS_OK ? lab_postgres_start(at->up->spec, up_node(at), err) : status;
}

enum status up_make_standbys(struct up *up, struct error *err)
{
    return up_on_nodes(up, ROLE_DATABASE, "preparing PostgreSQL on", start_one, err);
}

enum status up_start_servers(struct up *up, struct error *err)
{
    return up_on_nodes(up, ROLE_DATABASE, "starting PostgreSQL on", run_one, err);
}
