/* SPDX-License-Identifier: MIT */
/*
 * postgres.rewind and postgres.rebuild: a node that is not the primary any more becomes its
 * standby. Both leave the server stopped, with the node's own configuration, a standby.signal, the
 * primary as its source and no slots of its own.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agents/postgres_files.h"
#include "agents/postgres_local.h"
#include "agents/postgres_methods.h"
#include "agents/postgres_slots.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

struct rejoin {
    const struct method_call *call;
    const struct session *session;
    struct arena *arena;
    const struct fault_peer *source;
    const char *passfile, *slot;
    int64_t source_bytes; /* all databases of the source */
};

static enum status wait_slot_free(struct rejoin *rejoin, PGconn *connection, struct error *err)
{
    const char *values[] = {rejoin->slot};
    int64_t deadline_ns = rejoin->call->deadline_ns;

    do {
        OWNED_PG_RESULT PGresult *result = NULL;
        enum status status = pg_query_params(
            connection,
            "SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1 AND active", 1,
            values, deadline_ns, &result, err);
        if (status != STATUS_OK || PQntuples(result) == 0)
            return status;
    } while (postgres_wait_turn(deadline_ns));
    return error_set(err, STATUS_TIMEOUT, "slot %s is still in use on %s", rejoin->slot,
                     rejoin->source->name);
}

/*
 * The source must be a primary, must have our slot before WAL that we need can go, and its control
 * file must name its timeline: pg_rewind compares control files, which lag behind a promotion until
 * the next checkpoint.
 */
static enum status prepare_source(struct rejoin *rejoin, struct error *err)
{
    int64_t deadline_ns = rejoin->call->deadline_ns;
    OWNED_PG PGconn *connection = NULL;
    bool in_recovery = false;
    char bytes[32] = "";
    enum status status = postgres_connect(rejoin->session, rejoin->source->address, NULL,
                                          deadline_ns, &connection, err);

    if (status == STATUS_OK)
        status = postgres_in_recovery(connection, deadline_ns, &in_recovery, err);
    if (status == STATUS_OK && in_recovery)
        status = error_set(err, STATUS_REFUSED, "%s is no primary", rejoin->source->name);
    if (status == STATUS_OK)
        status = postgres_slot_ensure(connection, rejoin->slot, deadline_ns, err);
    if (status == STATUS_OK)
        status = wait_slot_free(rejoin, connection, err);
    if (status == STATUS_OK)
        status = pg_query(connection, "CHECKPOINT", deadline_ns, NULL, err);
    if (status == STATUS_OK)
        status = pg_query_text(connection, "SELECT sum(pg_database_size(oid)) FROM pg_database",
                               deadline_ns, bytes, sizeof bytes, err);
    rejoin->source_bytes = strtoll(bytes, NULL, 10);
    return status;
}

static enum status begin(struct rejoin *rejoin, struct error *err)
{
    const char *source = json_text(rejoin->call->params, "source", "");
    enum status status = postgres_require_stopped(rejoin->session, err);

    if (status == STATUS_OK)
        status = postgres_wait_reaped(rejoin->session, rejoin->call->deadline_ns, err);
    if (status == STATUS_OK)
        status = postgres_peer(rejoin->session, source, &rejoin->source, err);
    if (status == STATUS_OK && strcmp(source, rejoin->session->node) == 0)
        status = error_set(err, STATUS_INVALID, "%s cannot be its own source", source);
    rejoin->slot = postgres_slot_name(rejoin->arena, rejoin->session->node);
    if (status == STATUS_OK)
        status = postgres_passfile(rejoin->arena, rejoin->session, &rejoin->passfile, err);
    if (status == STATUS_OK)
        status = prepare_source(rejoin, err);
    if (status == STATUS_OK)
        status =
            postgres_files_keep(rejoin->arena, rejoin->session, rejoin->call->deadline_ns, err);
    return status;
}

static enum status finish(struct rejoin *rejoin, struct error *err)
{
    int64_t deadline_ns = rejoin->call->deadline_ns;
    const char *conninfo = postgres_conninfo(rejoin->arena, rejoin->session, rejoin->source,
                                             SESSION_REPLICATION, NULL, rejoin->passfile);
    enum status status = postgres_files_restore(rejoin->arena, rejoin->session, deadline_ns, err);

    if (status == STATUS_OK)
        status =
            postgres_files_make_standby(rejoin->arena, rejoin->session, conninfo, deadline_ns, err);
    return status;
}

/* The last part of what a program said goes into the detail. */
static enum status run(struct rejoin *rejoin, const char *const *argv, struct error *err)
{
    enum { TAIL = 900 };
    OWNED_RESULT struct process_result result = {0};
    enum status status = postgres_run(rejoin->session, argv, rejoin->passfile,
                                      rejoin->call->deadline_ns, &result, err);

    if (status != STATUS_OK) {
        const char *text = buffer_text(&result.errors);
        size_t length = result.errors.length;
        error_detail(err, "%s", length > TAIL ? text + length - TAIL : text);
    }
    return status;
}

/* --- rewind ----------------------------------------------------------------------------------- */

/* Packages keep postgresql.conf elsewhere and name it when they start the server. */
static const char *config_file(struct rejoin *rejoin)
{
    static const char option[] = "config_file=";
    const char *data = rejoin->session->database.data;
    const char *path = arena_printf(rejoin->arena, "%s/postmaster.opts", data);
    char line[4096] = "";

    if (access(arena_printf(rejoin->arena, "%s/postgresql.conf", data), F_OK) == 0)
        return NULL;
    if (!postgres_file_line(path, 1, line, sizeof line))
        return NULL;
    const char *at = strstr(line, option);
    if (at == NULL)
        return NULL;
    at += strlen(option);
    return arena_strndup(rejoin->arena, at, strcspn(at, "\" \n"));
}

static bool has_restore_command(struct rejoin *rejoin, const char *config)
{
    const char *argv[8] = {postgres_program(rejoin->arena, rejoin->session, "postgres"), "-D",
                           rejoin->session->database.data, "-C", "restore_command"};
    OWNED_RESULT struct process_result result = {0};

    if (config != NULL) {
        argv[5] = "-c";
        argv[6] = arena_printf(rejoin->arena, "config_file=%s", config);
    }
    return postgres_run(rejoin->session, argv, NULL, rejoin->call->deadline_ns, &result, NULL) ==
               STATUS_OK &&
           strspn(buffer_text(&result.output), " \n") < result.output.length;
}

static enum status run_rewind(struct rejoin *rejoin, struct error *err)
{
    const char *config = config_file(rejoin);
    const char *conninfo = postgres_conninfo(rejoin->arena, rejoin->session, rejoin->source,
                                             SESSION_SUPERUSER, "ordeal-rewind", rejoin->passfile);
    const char *argv[8] = {postgres_program(rejoin->arena, rejoin->session, "pg_rewind"), "-D",
                           rejoin->session->database.data,
                           arena_printf(rejoin->arena, "--source-server=%s", conninfo)};
    size_t count = 4;

    if (config != NULL && rejoin->session->database.version >= 15)
        argv[count++] = arena_printf(rejoin->arena, "--config-file=%s", config);
    if (has_restore_command(rejoin, config))
        argv[count++] = "--restore-target-wal";
    return run(rejoin, argv, err);
}

static json_t *answer(const struct rejoin *rejoin, const char *how)
{
    return json_pack("{s:s, s:s, s:s, s:I}", "how", how, "source", rejoin->source->name, "slot",
                     rejoin->slot, "done_ns", (json_int_t) clock_boot_ns());
}

enum status postgres_rewind(const struct method_call *call, json_t **ret_result, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct rejoin rejoin = {.call = call, .session = call->session, .arena = arena};
    enum status status = begin(&rejoin, err);

    if (status == STATUS_OK)
        status = run_rewind(&rejoin, err);
    if (status == STATUS_OK)
        status = finish(&rejoin, err);
    if (status != STATUS_OK)
        return error_context(err, "rewinding %s", call->session->node);
    *ret_result = answer(&rejoin, "rewind");
    return STATUS_OK;
}

/* --- rebuild ---------------------------------------------------------------------------------- */

static bool is_mount_point(const char *path)
{
    struct statx info;

    return statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_INO, &info) == 0 &&
           (info.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0 &&
           (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* Where pg_wal leads when it is a link to another volume, else NULL. */
static const char *wal_folder(struct rejoin *rejoin)
{
    char target[PATH_MAX];
    ssize_t length =
        readlink(arena_printf(rejoin->arena, "%s/pg_wal", rejoin->session->database.data), target,
                 sizeof target);

    if (length <= 0 || target[0] != '/' || length == (ssize_t) sizeof target)
        return NULL;
    return arena_strndup(rejoin->arena, target, (size_t) length);
}

/* Room for a second copy, with a tenth to spare? */
static bool fits_beside(struct rejoin *rejoin)
{
    struct statvfs info;

    if (statvfs(postgres_parent(rejoin->arena, rejoin->session), &info) != 0)
        return false;
    return (int64_t) info.f_bavail * (int64_t) info.f_frsize > rejoin->source_bytes / 10 * 11;
}

static enum status run_basebackup(struct rejoin *rejoin, const char *target, const char *wal,
                                  struct error *err)
{
    const char *conninfo =
        postgres_conninfo(rejoin->arena, rejoin->session, rejoin->source, SESSION_REPLICATION,
                          "ordeal-rebuild", rejoin->passfile);
    const char *argv[16] = {postgres_program(rejoin->arena, rejoin->session, "pg_basebackup"),
                            "-D",
                            target,
                            "-d",
                            conninfo,
                            "-X",
                            "stream",
                            "-c",
                            "fast",
                            "-S",
                            rejoin->slot,
                            "--no-password"};

    if (wal != NULL)
        argv[12] = arena_printf(rejoin->arena, "--waldir=%s", wal);
    return run(rejoin, argv, err);
}

/* A mount point cannot be renamed, and two copies may not fit: empty it and copy into it. */
static enum status rebuild_in_place(struct rejoin *rejoin, const char *wal, struct error *err)
{
    const char *data = rejoin->session->database.data;
    int64_t deadline_ns = rejoin->call->deadline_ns;
    enum status status = STATUS_OK;

    if (wal != NULL)
        status = postgres_files_empty(rejoin->session, wal, deadline_ns, err);
    if (status == STATUS_OK)
        status = postgres_files_empty(rejoin->session, data, deadline_ns, err);
    if (status == STATUS_OK)
        status = postgres_files_create(rejoin->session, data, err);
    return status == STATUS_OK ? run_basebackup(rejoin, data, wal, err) : status;
}

static enum status swap(struct rejoin *rejoin, const char *fresh, const char *old,
                        struct error *err)
{
    const char *data = rejoin->session->database.data;

    if (access(data, F_OK) == 0 && rename(data, old) != 0)
        return error_system(err, "renaming %s", data);
    if (rename(fresh, data) != 0)
        return error_system(err, "renaming %s", fresh);
    return STATUS_OK;
}

/* The old data stay until the copy is whole. */
static enum status rebuild_beside(struct rejoin *rejoin, struct error *err)
{
    const char *data = rejoin->session->database.data;
    const char *fresh = arena_printf(rejoin->arena, "%s.ordeal-new", data);
    const char *old = arena_printf(rejoin->arena, "%s.ordeal-old", data);
    int64_t deadline_ns = rejoin->call->deadline_ns;
    enum status status = postgres_files_remove(rejoin->session, fresh, deadline_ns, err);

    if (status == STATUS_OK)
        status = postgres_files_remove(rejoin->session, old, deadline_ns, err);
    if (status == STATUS_OK)
        status = postgres_files_create(rejoin->session, fresh, err);
    if (status == STATUS_OK)
        status = run_basebackup(rejoin, fresh, NULL, err);
    if (status == STATUS_OK)
        status = swap(rejoin, fresh, old, err);
    if (status == STATUS_OK)
        status = postgres_files_remove(rejoin->session, old, deadline_ns, err);
    return status;
}

enum status postgres_rebuild(const struct method_call *call, json_t **ret_result, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct rejoin rejoin = {.call = call, .session = call->session, .arena = arena};
    const char *data = call->session->database.data;
    enum status status = begin(&rejoin, err);

    if (status == STATUS_OK) {
        const char *wal = wal_folder(&rejoin);
        bool in_place = wal != NULL || is_mount_point(data) || !fits_beside(&rejoin);
        status = in_place ? rebuild_in_place(&rejoin, wal, err) : rebuild_beside(&rejoin, err);
    }
    if (status == STATUS_OK)
        status = finish(&rejoin, err);
    if (status != STATUS_OK)
        return error_context(err, "rebuilding %s", call->session->node);
    *ret_result = answer(&rejoin, "rebuild");
    return STATUS_OK;
}
