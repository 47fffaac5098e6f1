/* SPDX-License-Identifier: MIT */
#include "faults/freeze.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/kill_point.h"
#include "lib/owned.h"

enum { SETTLE_MS = 2 };

static bool is_tree(const char *process)
{
    return strcmp(process, PROCESS_CHILDREN) == 0 || strcmp(process, PROCESS_EVERYTHING) == 0;
}

enum status freeze_read(struct arena *arena, const json_t *record, struct freeze *freeze,
                        struct error *err)
{
    const json_t *postmaster = json_object_get(record, "postmaster");

    *freeze = (struct freeze){
        .process = json_text(record, "process", ""),
        .data_directory = json_text(record, "data_directory", NULL),
        .group = json_text(record, "group", NULL),
        .home = json_text(record, "home", NULL),
        .has_postmaster = json_is_object(postmaster),
        .postmaster = {.pid = (pid_t) json_number(postmaster, "pid", 0),
                       .start_ticks = (uint64_t) json_number(postmaster, "start_ticks", 0)},
    };
    freeze->tree = is_tree(freeze->process);
    if (freeze->data_directory == NULL)
        return error_set(err, STATUS_INVALID, "record: no data_directory");
    if ((freeze->group == NULL) != (freeze->home == NULL))
        return error_set(err, STATUS_INVALID, "record: a group without its home, or the reverse");
    return process_set_from_json(arena, json_object_get(record, "processes"), &freeze->recorded,
                                 err);
}

/* --- who is meant now ------------------------------------------------------------------------ */

/*
 * A process of that data directory that is not in the record: does it belong to the server of the
 * record? When that postmaster is dead, to it belong all but a new postmaster and its children.
 */
static bool belongs(const struct freeze *freeze, const struct pg_processes *now,
                    struct process_id id)
{
    if (freeze->has_postmaster && process_alive(freeze->postmaster))
        return process_parent(id) == freeze->postmaster.pid;
    bool restarted = now->count > 0 && now->items[0].class == PG_POSTMASTER;
    pid_t postmaster = restarted ? now->items[0].id.pid : 0;
    return !restarted || (id.pid != postmaster && process_parent(id) != postmaster);
}

bool freeze_is_stopped(struct process_id id)
{
    return process_state(id) == 'T';
}

/* Those of the record that live, and for a tree those that were born since. */
enum status freeze_targets(struct arena *arena, const struct freeze *freeze,
                           struct pg_processes *ret_targets, struct error *err)
{
    struct pg_processes now = {0}, targets = {0};
    enum status status = STATUS_OK;

    if (freeze->tree)
        status = pg_processes_list(arena, freeze->data_directory, &now, err);
    if (status != STATUS_OK)
        return status;
    targets.items = arena_array(arena, freeze->recorded.count + now.count, sizeof *targets.items);
    for (size_t i = 0; i < freeze->recorded.count; i++)
        if (process_alive(freeze->recorded.items[i].id))
            targets.items[targets.count++] = freeze->recorded.items[i];
    for (size_t i = 0; i < now.count; i++)
        if (!process_set_has(&freeze->recorded, now.items[i].id) &&
            now.items[i].class != PG_POSTMASTER && belongs(freeze, &now, now.items[i].id))
            targets.items[targets.count++] = now.items[i];
    *ret_targets = targets;
    return STATUS_OK;
}

/* Children of a running postmaster may be born at any time: those are not waited for. */
bool freeze_counts(const struct freeze *freeze, struct process_id id)
{
    return strcmp(freeze->process, PROCESS_EVERYTHING) == 0 ||
           process_set_has(&freeze->recorded, id);
}

/* --- freezing -------------------------------------------------------------------------------- */

/* One way of freezing: is that process at rest, and what to do about it. */
struct way {
    enum status (*is_done)(struct arena *arena, const struct freeze *freeze, struct process_id id,
                           bool *ret_done, struct error *err);
    enum status (*apply)(const struct freeze *freeze, struct process_id id, struct error *err);
};

static enum status stopped_is_done(struct arena *arena, const struct freeze *freeze,
                                   struct process_id id, bool *ret_done, struct error *err)
{
    (void) arena, (void) freeze, (void) err;
    *ret_done = freeze_is_stopped(id);
    return STATUS_OK;
}

static enum status stop(const struct freeze *freeze, struct process_id id, struct error *err)
{
    (void) freeze;
    return process_signal(id, SIGSTOP, err);
}

enum status freeze_is_inside(struct arena *arena, const struct freeze *freeze, struct process_id id,
                             bool *ret_done, struct error *err)
{
    const char *group = NULL;
    enum status status = cgroup_of(arena, id.pid, &group, err);

    if (status == STATUS_OK)
        *ret_done = strcmp(group, freeze->group) == 0;
    return status;
}

/* Signal 0 refuses what must never be frozen. */
static enum status move(const struct freeze *freeze, struct process_id id, struct error *err)
{
    enum status status = process_signal(id, 0, err);

    if (status == STATUS_OK)
        status = cgroup_freezer_join(freeze->group, id.pid, err);
    return status == STATUS_SYSTEM && !process_alive(id) ? STATUS_NOT_FOUND : status;
}

static const struct way way_signal = {stopped_is_done, stop};
static const struct way way_cgroup = {freeze_is_inside, move};

/* Apply the way to all who are not done; the last of those who count is told. */
static enum status apply_once(struct arena *arena, const struct freeze *freeze,
                              const struct way *way, struct process_id *ret_last,
                              size_t *ret_pending, struct error *err)
{
    struct pg_processes targets = {0};
    enum status status = freeze_targets(arena, freeze, &targets, err);

    *ret_pending = 0;
    if (status == STATUS_OK && targets.count == 0)
        return error_set(err, STATUS_NOT_FOUND, "the processes that were to be frozen are gone");
    for (size_t i = 0; i < targets.count && status == STATUS_OK; i++) {
        struct process_id id = targets.items[i].id;
        bool done = false;
        status = way->is_done(arena, freeze, id, &done, err);
        if (status == STATUS_OK && !done) {
            *ret_pending += freeze_counts(freeze, id);
            *ret_last = id;
            status = way->apply(freeze, id, err);
            KILL_POINT("inside-inject");
        }
        if (status == STATUS_NOT_FOUND) /* it ended meanwhile */
            status = STATUS_OK;
    }
    return status;
}

/* Look again until nobody is left to do: who was born before the postmaster stood still is found.
 */
static enum status apply_way(const struct freeze *freeze, const struct way *way,
                             int64_t deadline_ns, struct error *err)
{
    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        struct process_id last = {0};
        size_t pending = 0;
        enum status status = apply_once(arena, freeze, way, &last, &pending, err);
        if (status != STATUS_OK || pending == 0)
            return status;
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "process %d is in state %c and does not stop",
                             (int) last.pid, process_state(last));
        poll(NULL, 0, SETTLE_MS);
    }
}

enum status freeze_apply(const struct freeze *freeze, int64_t deadline_ns, struct error *err)
{
    if (freeze->group == NULL)
        return apply_way(freeze, &way_signal, deadline_ns, err);
    enum status status = cgroup_freezer_create(freeze->group, err);
    if (status == STATUS_OK)
        status = apply_way(freeze, &way_cgroup, deadline_ns, err);
    if (status == STATUS_OK)
        status = cgroup_freeze(freeze->group, true, deadline_ns, err);
    return status;
}

/* --- thawing --------------------------------------------------------------------------------- */

/*
 * One that is in the kernel (state D) or was not scheduled since has its SIGSTOP still pending and
 * would stop later: SIGCONT takes that back, so everybody gets one whatever the state.
 */
static enum status wake_all(struct arena *arena, const struct freeze *freeze, struct error *err)
{
    struct pg_processes targets = {0};
    enum status status = freeze_targets(arena, freeze, &targets, err);

    for (size_t i = 0; i < targets.count && status == STATUS_OK; i++) {
        status = process_signal(targets.items[i].id, SIGCONT, err);
        KILL_POINT("inside-undo");
        if (status == STATUS_NOT_FOUND)
            status = STATUS_OK;
    }
    return status;
}

/* Of those who are not in the record only the stopped ones are meant. */
static enum status wake_once(struct arena *arena, const struct freeze *freeze,
                             struct process_id *ret_last, size_t *ret_stopped, struct error *err)
{
    struct pg_processes targets = {0};
    enum status status = freeze_targets(arena, freeze, &targets, err);

    *ret_stopped = 0;
    for (size_t i = 0; i < targets.count && status == STATUS_OK; i++) {
        if (!freeze_is_stopped(targets.items[i].id))
            continue;
        *ret_last = targets.items[i].id;
        (*ret_stopped)++;
        status = process_signal(targets.items[i].id, SIGCONT, err);
        if (status == STATUS_NOT_FOUND)
            status = STATUS_OK;
    }
    return status;
}

static enum status wake(const struct freeze *freeze, int64_t deadline_ns, struct error *err)
{
    OWNED_ARENA struct arena *first = arena_new();
    enum status signalled = wake_all(first, freeze, err);

    if (signalled != STATUS_OK)
        return signalled;
    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        struct process_id last = {0};
        size_t stopped = 0;
        enum status status = wake_once(arena, freeze, &last, &stopped, err);
        if (status != STATUS_OK || stopped == 0)
            return status;
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "process %d stays stopped after SIGCONT",
                             (int) last.pid);
        poll(NULL, 0, SETTLE_MS);
    }
}

/* Everybody out, also children that were born in the group, until it is empty. */
static enum status move_home(const struct freeze *freeze, int64_t deadline_ns, struct error *err)
{
    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        pid_t *pids = NULL;
        size_t count = 0;
        struct process_id id;
        enum status status = cgroup_freezer_members(arena, freeze->group, &pids, &count, err);
        if (status != STATUS_OK || count == 0)
            return status;
        for (size_t i = 0; i < count && status == STATUS_OK; i++) {
            status = cgroup_freezer_join(freeze->home, pids[i], err);
            if (status != STATUS_OK && process_identify(pids[i], &id, NULL) != STATUS_OK)
                status = STATUS_OK; /* it ended meanwhile */
        }
        if (status != STATUS_OK)
            return status;
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "%zu processes stay in the group %s", count,
                             freeze->group);
    }
}

static enum status dissolve_group(const struct freeze *freeze, int64_t deadline_ns,
                                  struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    pid_t *pids = NULL;
    size_t count = 0;
    enum status status = cgroup_freezer_members(arena, freeze->group, &pids, &count, err);

    if (status == STATUS_OK)
        status = cgroup_freeze(freeze->group, false, deadline_ns, err);
    KILL_POINT("inside-undo");
    if (status == STATUS_OK)
        status = move_home(freeze, deadline_ns, err);
    if (status == STATUS_OK)
        status = cgroup_remove(freeze->group, deadline_ns, err);
    if (status != STATUS_NOT_FOUND)
        return status;
    error_clear(err); /* never made, or removed already */
    return STATUS_OK;
}

enum status freeze_release(const struct freeze *freeze, int64_t deadline_ns, struct error *err)
{
    return freeze->group == NULL ? wake(freeze, deadline_ns, err)
                                 : dissolve_group(freeze, deadline_ns, err);
}
