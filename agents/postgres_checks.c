/* SPDX-License-Identifier: MIT */
/*
 * Checks of the data themselves, by PostgreSQL's own programs: postgres.verify (a base backup, held
 * against its manifest) and postgres.amcheck (heap and B-tree structure). What they find is their
 * result; an error says that they could not look.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agents/postgres_checks.h"
#include "agents/postgres_files.h"
#include "agents/postgres_local.h"
#include "agents/postgres_methods.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { SPARE_BYTES = 64 * 1024 * 1024, CLEAN_UP_MS = 60 * 1000 };

void postgres_problem_lines(json_t *problems, const char *text, const char *word)
{
    size_t wanted = strlen(word);

    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        if (length > 0 && memmem(line, length, word, wanted) != NULL &&
            json_array_size(problems) < POSTGRES_PROBLEMS_MAX)
            json_array_append_new(problems, json_stringn(line, length));
        line += length + (line[length] == '\n' ? 1 : 0);
    }
}

/* --- verify ----------------------------------------------------------------------------------- */

struct verify {
    const struct method_call *call;
    const struct session *session;
    struct arena *arena;
    const char *folder, *passfile, *conninfo;
    json_t *problems;
    json_int_t files;
};

static enum status require_space(struct verify *verify, struct error *err)
{
    OWNED_PG PGconn *connection = NULL;
    struct statvfs info;
    char text[32] = "";
    enum status status =
        postgres_connect(verify->session, NULL, NULL, verify->call->deadline_ns, &connection, err);

    if (status == STATUS_OK)
        status = pg_query_text(connection, "SELECT sum(pg_database_size(oid)) FROM pg_database",
                               verify->call->deadline_ns, text, sizeof text, err);
    if (status != STATUS_OK)
        return status;
    int64_t needed = strtoll(text, NULL, 10) / 10 * 11 + SPARE_BYTES;
    const char *parent = postgres_parent(verify->arena, verify->session);
    if (statvfs(parent, &info) != 0)
        return error_system(err, "asking for the free space of %s", parent);
    int64_t available = (int64_t) info.f_bavail * (int64_t) info.f_frsize;
    if (available >= needed)
        return STATUS_OK;
    error_set(err, STATUS_REFUSED, "%s has %lld bytes free, a base backup needs %lld", parent,
              (long long) available, (long long) needed);
    error_hint(err, "Free some space, or leave the verification of this node out.");
    return STATUS_REFUSED;
}

/* A page with a wrong checksum fails the backup, too: that is a finding and no error. */
static enum status take_backup(struct verify *verify, struct error *err)
{
    const char *argv[] = {postgres_program(verify->arena, verify->session, "pg_basebackup"),
                          "-D",
                          verify->folder,
                          "-d",
                          verify->conninfo,
                          "-X",
                          "stream",
                          "-c",
                          "fast",
                          "--no-password",
                          "--no-sync",
                          NULL};
    OWNED_RESULT struct process_result result = {0};
    enum status status = postgres_run(verify->session, argv, verify->passfile,
                                      verify->call->deadline_ns, &result, err);

    if (status == STATUS_FAILED &&
        strstr(buffer_text(&result.errors), "checksum error occurred") != NULL) {
        postgres_problem_lines(verify->problems, buffer_text(&result.errors), "");
        return STATUS_OK;
    }
    return status;
}

static enum status count_files(struct verify *verify, struct error *err)
{
    OWNED_JSON json_t *manifest = NULL;
    const char *path = arena_printf(verify->arena, "%s/backup_manifest", verify->folder);
    enum status status = json_read_file(path, &manifest, err);

    if (status == STATUS_OK)
        verify->files = (json_int_t) json_array_size(json_object_get(manifest, "Files"));
    return status;
}

static enum status verify_backup(struct verify *verify, struct error *err)
{
    const char *argv[] = {postgres_program(verify->arena, verify->session, "pg_verifybackup"),
                          verify->folder, NULL};
    OWNED_RESULT struct process_result result = {0};
    enum status status = count_files(verify, err);

    if (status == STATUS_OK)
        status = postgres_run(verify->session, argv, NULL, verify->call->deadline_ns, &result, err);
    if (status != STATUS_FAILED || result.exit_code != 1)
        return status;
    postgres_problem_lines(verify->problems, buffer_text(&result.errors), "");
    return STATUS_OK;
}

static enum status begin_verify(struct verify *verify, struct error *err)
{
    const struct session *session = verify->session;
    const struct fault_peer here = {session->node, session->address};
    enum status status = require_space(verify, err);

    verify->folder = arena_printf(verify->arena, "%s/ordeal-%s.verify",
                                  postgres_parent(verify->arena, session), session->node);
    if (status == STATUS_OK)
        status = postgres_files_remove(session, verify->folder, verify->call->deadline_ns, err);
    if (status == STATUS_OK)
        status = postgres_files_create(session, verify->folder, err);
    if (status == STATUS_OK)
        status = postgres_passfile_once(verify->arena, session, &verify->passfile, err);
    if (status == STATUS_OK)
        verify->conninfo = postgres_conninfo(verify->arena, session, &here, SESSION_REPLICATION,
                                             "ordeal-verify", verify->passfile);
    return status;
}

enum status postgres_verify(const struct method_call *call, json_t **ret_result, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *problems = json_array();
    struct verify verify = {
        .call = call, .session = call->session, .arena = arena, .problems = problems};
    struct error removal = {0};
    enum status status = begin_verify(&verify, err);

    if (status == STATUS_OK)
        status = take_backup(&verify, err);
    if (status == STATUS_OK && json_array_size(problems) == 0)
        status = verify_backup(&verify, err);
    /* whatever happened, also after the deadline */
    if (verify.passfile != NULL)
        unlink(verify.passfile);
    enum status removed =
        postgres_files_remove(call->session, verify.folder, deadline_in_ms(CLEAN_UP_MS), &removal);
    if (status == STATUS_OK && removed != STATUS_OK) {
        if (err != NULL)
            *err = removal;
        status = removed;
    }
    if (status != STATUS_OK)
        return error_context(err, "verifying a base backup of %s", call->session->node);
    const char *first = json_string_value(json_array_get(problems, 0));
    *ret_result = json_pack("{s:I, s:b, s:s?, s:O}", "files", verify.files, "ok", first == NULL,
                            "text", first, "problems", problems);
    return STATUS_OK;
}

/* --- amcheck ---------------------------------------------------------------------------------- */

#define AMCHECK_SCHEMA "ordeal_amcheck"

static enum status query_flag(PGconn *connection, const char *sql, int64_t deadline_ns,
                              bool *ret_flag, struct error *err)
{
    char text[8] = "";
    enum status status = pg_query_text(connection, sql, deadline_ns, text, sizeof text, err);

    if (status == STATUS_OK)
        *ret_flag = text[0] == 't';
    return status;
}

/* In a schema of our own, by which a leftover is known to be ours. */
static enum status make_extension(PGconn *connection, int64_t deadline_ns, struct error *err)
{
    bool in_recovery = false;
    enum status status = postgres_in_recovery(connection, deadline_ns, &in_recovery, err);

    if (status != STATUS_OK)
        return status;
    if (in_recovery) {
        error_set(err, STATUS_UNSUPPORTED, "database %s has no extension amcheck",
                  PQdb(connection));
        error_hint(err, "Check the primary first, or create the extension there.");
        return STATUS_UNSUPPORTED;
    }
    return pg_query(connection,
                    "CREATE SCHEMA IF NOT EXISTS " AMCHECK_SCHEMA ";"
                    "CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA " AMCHECK_SCHEMA,
                    deadline_ns, NULL, err);
}

static enum status ensure_extension(PGconn *connection, int64_t deadline_ns, bool *ret_ours,
                                    struct error *err)
{
    bool installed = false, ours = false;
    enum status status =
        query_flag(connection, "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'amcheck')",
                   deadline_ns, &installed, err);

    if (status == STATUS_OK && !installed) {
        status = make_extension(connection, deadline_ns, err);
        ours = status == STATUS_OK;
    } else if (status == STATUS_OK) { /* left behind by a run that was cut short? */
        status = query_flag(connection,
                            "SELECT NOT pg_is_in_recovery() AND EXISTS (SELECT FROM pg_namespace"
                            " WHERE nspname = '" AMCHECK_SCHEMA "')",
                            deadline_ns, &ours, err);
    }
    *ret_ours = ours;
    return status;
}

/* "12/12 relations (100%), ..." is the last thing that the progress says. */
static json_int_t count_relations(const char *errors)
{
    const char *last = NULL;

    for (const char *at = errors; (at = strstr(at, " relations (")) != NULL; at++)
        last = at;
    if (last == NULL)
        return 0;
    while (last > errors && last[-1] >= '0' && last[-1] <= '9')
        last--;
    return strtoll(last, NULL, 10);
}

/* Exit code 2: it looked and found something. */
static enum status run_amcheck(const struct method_call *call, const char *database,
                               json_t *problems, json_int_t *ret_relations, struct error *err)
{
    enum { FOUND = 2 };
    OWNED_ARENA struct arena *arena = arena_new();
    const struct session *session = call->session;
    const struct fault_peer here = {session->node, session->address};
    const char *passfile = NULL;
    OWNED_RESULT struct process_result result = {0};
    enum status status = postgres_passfile_once(arena, session, &passfile, err);

    if (status != STATUS_OK)
        return status;
    const char *conninfo =
        postgres_conninfo(arena, session, &here, SESSION_SUPERUSER, "ordeal-amcheck", passfile);
    const char *argv[] = {postgres_program(arena, session, "pg_amcheck"),
                          "--heapallindexed",
                          "--no-password",
                          "--progress",
                          "--jobs=1",
                          arena_printf(arena, "%s dbname='%s'", conninfo, database),
                          NULL};
    status = postgres_run(session, argv, passfile, call->deadline_ns, &result, err);
    unlink(passfile);
    *ret_relations = count_relations(buffer_text(&result.errors));
    if (status != STATUS_FAILED || result.exit_code != FOUND)
        return status;
    postgres_problem_lines(problems, buffer_text(&result.output), "");
    return STATUS_OK;
}

static enum status drop_extension(PGconn *connection, struct error *err)
{
    return pg_query(connection,
                    "DROP EXTENSION IF EXISTS amcheck; DROP SCHEMA IF EXISTS " AMCHECK_SCHEMA,
                    deadline_in_ms(CLEAN_UP_MS), NULL, err);
}

enum status postgres_amcheck(const struct method_call *call, json_t **ret_result, struct error *err)
{
    const char *database = json_text(call->params, "database", "");
    OWNED_JSON json_t *problems = json_array();
    OWNED_PG PGconn *connection = NULL;
    json_int_t relations = 0;
    bool ours = false;
    struct error removal = {0};

    if (database[strcspn(database, "'\\")] != '\0')
        return error_set(err, STATUS_INVALID, "database \"%s\" has a quote in its name", database);
    enum status status =
        postgres_connect(call->session, NULL, database, call->deadline_ns, &connection, err);
    if (status == STATUS_OK)
        status = ensure_extension(connection, call->deadline_ns, &ours, err);
    if (status == STATUS_OK)
        status = run_amcheck(call, database, problems, &relations, err);
    if (ours && drop_extension(connection, &removal) != STATUS_OK && status == STATUS_OK) {
        status = removal.code;
        if (err != NULL)
            *err = removal;
    }
    if (status != STATUS_OK)
        return error_context(err, "pg_amcheck of %s on %s", database, call->session->node);
    *ret_result = json_pack("{s:I, s:O}", "relations", relations, "problems", problems);
    return STATUS_OK;
}
