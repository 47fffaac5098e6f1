/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <poll.h>
#include <signal.h>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "topologies/lab/clear.h"
#include "topologies/lab/state.h"
#include "topologies/lab/volume.h"

enum { LOCK_MS = 5000, KILL_MS = 30000, LOOPS_MS = 120000, REMOVE_MS = 5000, LOOK_AGAIN_MS = 10 };

/* The init of the outer PID namespace takes all others with it. */
static enum status kill_supervisor(const char *name, struct error *err)
{
    struct lab_state state = {0};
    enum status status = state_read(name, &state, err);

    if (status == STATUS_NOT_FOUND || (status == STATUS_OK && !state.alive))
        return STATUS_OK;
    if (status != STATUS_OK)
        return status;
    status = process_signal(state.supervisor, SIGKILL, err);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/*
 * What is frozen dies only when thawed, and until then the supervisor cannot end either. A lab
 * whose `up` was killed early has no lab.json; its processes are found here, too.
 */
static enum status kill_groups(const char *group, struct error *err)
{
    enum status status = cgroup_kill(group, deadline_in_ms(KILL_MS), err);

    return status == STATUS_UNSUPPORTED ? STATUS_OK : status;
}

static enum status await_end(const char *name, struct error *err)
{
    struct lab_state state = {0};

    if (state_read(name, &state, NULL) != STATUS_OK || !state.alive)
        return STATUS_OK;
    return process_wait_gone(state.supervisor, deadline_in_ms(KILL_MS), err);
}

/* The last unmount writes what is dirty: that can take seconds. */
static enum status await_loops(const char *name, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    int64_t deadline_ns = deadline_in_ms(LOOPS_MS);
    int count = 0;

    for (;;) {
        enum status status = volume_count_loops(lab_path(arena, name, ""), &count, err);
        if (status != STATUS_OK || count == 0)
            return status;
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "%d loop devices of lab %s are still in use",
                             count, name);
        poll(NULL, 0, LOOK_AGAIN_MS);
    }
}

/* A mkfs whose parent was killed may still be making a file in this moment. */
static enum status remove_folder(const char *name, struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(REMOVE_MS);
    enum status status;

    do
        status = state_remove(name, err);
    while (status != STATUS_OK && (err == NULL || err->errnum == ENOTEMPTY) &&
           !deadline_passed(deadline_ns));
    return status;
}

enum status lab_clear(const char *name, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *group = lab_cgroup(arena, name, NULL, NULL);
    enum status status = kill_supervisor(name, err);

    if (status == STATUS_OK)
        status = kill_groups(group, err);
    if (status == STATUS_OK)
        status = await_end(name, err);
    if (status == STATUS_OK)
        status = await_loops(name, err);
    if (status == STATUS_OK)
        status = cgroup_remove(group, deadline_in_ms(KILL_MS), err);
    if (status == STATUS_UNSUPPORTED)
        status = STATUS_OK; /* no control groups: none to remove */
    return status == STATUS_OK ? remove_folder(name, err) : status;
}

enum status lab_down(const char *name, bool *ret_was_up, struct error *err)
{
    OWNED_FD int lock = -1;
    enum status status = state_lock(name, deadline_in_ms(LOCK_MS), &lock, err);

    if (status == STATUS_NOT_FOUND) {
        *ret_was_up = false;
        return STATUS_OK;
    }
    if (status == STATUS_OK)
        status = lab_clear(name, err);
    if (status == STATUS_OK)
        *ret_was_up = true;
    return status;
}
