/* SPDX-License-Identifier: MIT */
#include "topologies/lab/state.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "topologies/lab/lab.h"

enum { OPEN_MAX_FTW = 16, POLL_MS = 10 };

const char *lab_path(struct arena *arena, const char *name, const char *below)
{
    return arena_printf(arena, "%s/%s%s%s", LAB_ROOT, name, below[0] != '\0' ? "/" : "", below);
}

/* ---- the folder ---- */

static enum status make_folder(const char *path, mode_t mode, struct error *err)
{
    if (mkdir(path, mode) == 0 || errno == EEXIST)
        return STATUS_OK;
    return error_system(err, "cannot create %s", path);
}

/* True when the descriptor is what the path names now, not a folder that was removed meanwhile. */
static bool is_current(int fd, const char *path)
{
    struct stat opened, named;

    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

enum status state_create(const char *name, int *ret_lock, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *path = lab_path(arena, name, "");
    enum status status = make_folder("/var/lib/ordeal", 0755, err);

    if (status == STATUS_OK)
        status = make_folder(LAB_ROOT, 0755, err);
    if (status != STATUS_OK)
        return status;
    if (mkdir(path, 0700) < 0)
        return errno == EEXIST ? error_set(err, STATUS_EXISTS, "there is a lab %s already", name)
                               : error_system(err, "cannot create %s", path);
    OWNED_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || !is_current(fd, path))
        return error_set(err, STATUS_CONFLICT, "another process took %s down in this moment", path);
    *ret_lock = take_fd(&fd);
    return STATUS_OK;
}

enum status state_lock(const char *name, int64_t deadline_ns, int *ret_lock, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *path = lab_path(arena, name, "");

    for (;;) {
        OWNED_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0 && errno == ENOENT)
            return error_set(err, STATUS_NOT_FOUND, "there is no lab %s", name);
        if (fd < 0)
            return error_system(err, "cannot open %s", path);
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_current(fd, path)) {
            *ret_lock = take_fd(&fd);
            return STATUS_OK;
        }
        if (deadline_passed(deadline_ns))
            break;
        poll(NULL, 0, POLL_MS);
    }
    error_set(err, STATUS_CONFLICT, "another command brings lab %s up or down", name);
    error_hint(err, "Wait for it, or end it first.");
    return STATUS_CONFLICT;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void) about;
    (void) kind;
    (void) where;
    return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

enum status state_remove(const char *name, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *path = lab_path(arena, name, "");

    if (nftw(path, remove_entry, OPEN_MAX_FTW, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) < 0 &&
        errno != ENOENT)
        return error_system(err, "cannot remove %s", path);
    /* Parents that still hold something stay: that is what rmdir() is for. */
    if (rmdir(LAB_ROOT) == 0)
        rmdir("/var/lib/ordeal");
    return STATUS_OK;
}

/* ---- lab.json ---- */

enum status state_write(const char *name, const struct lab_state *state, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *json = json_pack(
        "{s:i, s:i, s:I, s:s, s:I, s:s}", "version", 1, "pid", (int) state->supervisor.pid,
        "start_ticks", (json_int_t) state->supervisor.start_ticks, "boot_id", state->boot_id,
        "started_ns", (json_int_t) state->started_ns, "nodes", state->nodes);

    return json_write_file(lab_path(arena, name, "lab.json"), json, err);
}

static enum status parse(const json_t *json, struct lab_state *ret_state, struct error *err)
{
    int version = 0, pid = 0;
    json_int_t ticks = 0, started_ns = 0;
    const char *boot_id = "", *nodes = "";
    enum status status = json_read(json, "lab.json", err, "{s:i, s:i, s:I, s:s, s:I, s:s !}",
                                   "version", &version, "pid", &pid, "start_ticks", &ticks,
                                   "boot_id", &boot_id, "started_ns", &started_ns, "nodes", &nodes);

    if (status == STATUS_OK && version != 1)
        status = error_set(err, STATUS_INVALID, "lab.json has version %d, known is 1", version);
    if (status != STATUS_OK)
        return status;
    ret_state->supervisor = (struct process_id){.pid = pid, .start_ticks = (uint64_t) ticks};
    ret_state->started_ns = started_ns;
    snprintf(ret_state->boot_id, sizeof(ret_state->boot_id), "%s", boot_id);
    snprintf(ret_state->nodes, sizeof(ret_state->nodes), "%s", nodes);
    return STATUS_OK;
}

enum status state_read(const char *name, struct lab_state *ret_state, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *json = NULL;
    const char *path = lab_path(arena, name, "lab.json");
    struct lab_state state = {0};
    char boot_id[BOOT_ID_SIZE] = "";

    if (access(path, F_OK) < 0)
        return error_set(err, STATUS_NOT_FOUND, "lab %s is not up", name);
    enum status status = json_read_file(path, &json, err);
    if (status == STATUS_OK)
        status = parse(json, &state, err);
    if (status == STATUS_OK)
        status = clock_boot_id(boot_id, err);
    if (status != STATUS_OK)
        return status;
    state.alive = strcmp(boot_id, state.boot_id) == 0 && process_alive(state.supervisor);
    state.up = state.alive && access(lab_path(arena, name, "topology.yaml"), F_OK) == 0;
    *ret_state = state;
    return STATUS_OK;
}
