/* SPDX-License-Identifier: MIT */
#include "topologies/lab/postgres.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "lib/owned.h"
#include "lib/process.h"
#include "topologies/lab/files.h"
#include "topologies/topology.h"

enum { TEXT_MAX = 64 * 1024, INITDB_TIMEOUT_MS = 120000, START_TIMEOUT_MS = 30000 };

#define OS_USER "postgres"

static enum status draw(char text[PASSWORD_TEXT_SIZE], struct error *err)
{
    unsigned char bytes[(PASSWORD_TEXT_SIZE - 1) / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t) sizeof(bytes))
        return error_system(err, "cannot draw a password");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return STATUS_OK;
}

enum status lab_passwords_draw(struct lab_passwords *ret_passwords, struct error *err)
{
    enum status status = draw(ret_passwords->admin, err);

    if (status == STATUS_OK)
        status = draw(ret_passwords->load, err);
    if (status == STATUS_OK)
        status = draw(ret_passwords->replication, err);
    return status;
}

/* ---- texts ---- */

static const char fixed_settings[] =
    "# Written by `ordeal lab up`, for this node alone; included from postgresql.conf.\n"
    "listen_addresses = '*'\n"
    "unix_socket_directories = '/run/postgresql'\n"
    "ssl = on\n"
    "ssl_ca_file = '" NODE_PKI "/ca.crt'\n"
    "ssl_cert_file = '" NODE_POSTGRES "/server.crt'\n"
    "ssl_key_file = '" NODE_POSTGRES "/server.key'\n"
    "password_encryption = 'scram-sha-256'\n"
    "wal_level = replica\n"
    "wal_log_hints = on\n"
    "hot_standby = on\n"
    "max_wal_senders = 16\n"
    "max_replication_slots = 16\n"
    "synchronous_commit = on\n"
    "fsync = on\n"
    "full_page_writes = on\n"
    "lc_messages = 'C'\n"
    "log_line_prefix = '%m [%p] %e %u@%d %a '\n"
    "log_timezone = 'UTC'\n"
    "logging_collector = on\n"
    "log_filename = 'postgresql.log'\n"
    "log_rotation_age = 0\n"
    "log_rotation_size = 0\n"
    "log_replication_commands = on\n";

static void put_sync_names(const struct lab_spec *spec, const struct lab_node *node,
                           struct buffer *text)
{
    const char *separator = "";

    buffer_puts(text, "synchronous_standby_names = 'ANY 1 (");
    for (size_t i = 0; i < spec->node_count; i++) {
        if ((spec->nodes[i].roles & ROLE_DATABASE) == 0 || &spec->nodes[i] == node)
            continue;
        /* Quoted, since a node's name may have a '-'. */
        buffer_printf(text, "%s\"%s\"", separator, spec->nodes[i].name);
        separator = ", ";
    }
    buffer_puts(text, ")'\n");
}

/* A value of postgresql.conf in quotes. */
static void put_quoted(struct buffer *text, const char *value)
{
    buffer_puts(text, "'");
    for (; *value != '\0'; value++) {
        if (*value == '\'' || *value == '\\')
            buffer_append(text, value, 1);
        buffer_append(text, value, 1);
    }
    buffer_puts(text, "'");
}

void lab_postgres_settings(const struct lab_spec *spec, const struct lab_node *node,
                           struct buffer *text)
{
    buffer_puts(text, fixed_settings);
    buffer_printf(text, "log_directory = '" NODE_DATA "/%d/log'\nport = %d\n", (int) spec->version,
                  (int) spec->port);
    put_sync_names(spec, node, text);
    buffer_puts(text, "# From the lab file.\n");
    for (size_t i = 0; i < spec->setting_count; i++) {
        buffer_printf(text, "%s = ", spec->setting_names[i]);
        put_quoted(text, spec->setting_values[i]);
        buffer_puts(text, "\n");
    }
}

void lab_postgres_hba(struct buffer *text)
{
    buffer_puts(text,
                "# Written by `ordeal lab up`: TLS and SCRAM on the network; on the node root and\n"
                "# postgres are the superuser by peer.\n"
                "local all " USER_ADMIN " peer map=ordeal\n"
                "local replication " USER_ADMIN " peer map=ordeal\n"
                "local all all scram-sha-256\n"
                "hostssl all all 10.77.0.0/24 scram-sha-256\n"
                "hostssl all all 127.0.0.1/32 scram-sha-256\n"
                "hostssl replication all 10.77.0.0/24 scram-sha-256\n");
}

void lab_postgres_ident(struct buffer *text)
{
    buffer_puts(text, "ordeal root " USER_ADMIN "\nordeal " OS_USER " " USER_ADMIN "\n");
}

/* A slot's name: the node's, with '-' turned into '_'. */
static void put_slot(struct buffer *text, const char *node)
{
    for (; *node != '\0'; node++)
        buffer_append(text, *node == '-' ? "_" : node, 1);
}

void lab_postgres_follow(const struct lab_spec *spec, const struct lab_node *standby,
                         const struct lab_node *primary, struct buffer *text)
{
    buffer_printf(text,
                  "primary_conninfo = 'host=%s port=%d user=" USER_REPLICATION
                  " passfile=" NODE_POSTGRES "/replication.pgpass sslmode=verify-ca "
                  "sslrootcert=" NODE_PKI "/ca.crt application_name=%s'\n",
                  primary->address, (int) spec->port, standby->name);
    buffer_puts(text, "primary_slot_name = '");
    put_slot(text, standby->name);
    buffer_puts(text, "'\n");
}

/* What pg_rewind reads through, when it is not a superuser's connection. */
static const char *const rewind_functions[] = {
    "pg_ls_dir(text, boolean, boolean)",
    "pg_stat_file(text, boolean)",
    "pg_read_binary_file(text)",
    "pg_read_binary_file(text, bigint, bigint, boolean)",
};

/* One statement a line: how a single-user server reads them. */
void lab_postgres_first_sql(const struct lab_spec *spec, const struct lab_node *primary,
                            const struct lab_passwords *passwords, struct buffer *text)
{
    buffer_puts(text, "SET log_min_error_statement = panic\n"); /* no password in a log */
    buffer_printf(text,
                  "ALTER ROLE " USER_ADMIN " PASSWORD '%s'\n"
                  "CREATE ROLE " USER_LOAD " LOGIN PASSWORD '%s'\n"
                  "CREATE ROLE " USER_REPLICATION " LOGIN REPLICATION PASSWORD '%s'\n"
                  "CREATE DATABASE " DATABASE_LOAD " OWNER " USER_LOAD "\n",
                  passwords->admin, passwords->load, passwords->replication);
    for (size_t i = 0; i < sizeof(rewind_functions) / sizeof(rewind_functions[0]); i++)
        buffer_printf(text, "GRANT EXECUTE ON FUNCTION pg_catalog.%s TO " USER_REPLICATION "\n",
                      rewind_functions[i]);
    for (size_t i = 0; i < spec->node_count; i++) {
        if ((spec->nodes[i].roles & ROLE_DATABASE) == 0 || &spec->nodes[i] == primary)
            continue;
        buffer_puts(text, "SELECT pg_create_physical_replication_slot('");
        put_slot(text, spec->nodes[i].name);
        buffer_puts(text, "', true)\n");
    }
}

/* ---- on the node ---- */

static enum status run_as_postgres(const char *const *argv, const char *input, const char *cgroup,
                                   int64_t timeout_ms, struct process_result *ret_result,
                                   struct error *err)
{
    const char *const env[] = {"LC_ALL=C.UTF-8", "PGCLIENTENCODING=UTF8", NULL};
    struct process_spec spec = {.argv = argv,
                                .env = env,
                                .user = OS_USER,
                                .directory = NODE_DATA,
                                .cgroup = cgroup,
                                .input = input,
                                .timeout_ms = timeout_ms};

    return process_run(&spec, ret_result, err);
}

/* Nothing is synced here: the volume is, as a whole, before the server starts for good. */
static enum status init_data(const char *bin, const char *data, const char *cgroup,
                             struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *argv[] = {arena_printf(arena, "%s/initdb", bin),
                          "--pgdata",
                          data,
                          "--username",
                          USER_ADMIN,
                          "--data-checksums",
                          "--no-sync",
                          "--encoding=UTF8",
                          "--locale=C.UTF-8",
                          "--auth-local=peer",
                          "--auth-host=reject",
                          NULL};

    return run_as_postgres(argv, NULL, cgroup, INITDB_TIMEOUT_MS, NULL, err);
}

static enum status write_config(const char *data, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_BUFFER struct buffer hba = BUFFER(TEXT_MAX), ident = BUFFER(TEXT_MAX);
    struct file_owner owner;
    enum status status = files_owner(OS_USER, &owner, err);

    lab_postgres_hba(&hba);
    lab_postgres_ident(&ident);
    if (status == STATUS_OK)
        status = files_append(arena_printf(arena, "%s/postgresql.conf", data),
                              "\ninclude '" NODE_POSTGRES "/ordeal.conf'\n", err);
    if (status == STATUS_OK)
        status = files_write(arena_printf(arena, "%s/pg_hba.conf", data), buffer_text(&hba), 0600,
                             owner, err);
    if (status == STATUS_OK)
        status = files_write(arena_printf(arena, "%s/pg_ident.conf", data), buffer_text(&ident),
                             0600, owner, err);
    return status;
}

/* A single-user server goes on after an error and exits 0: its stderr says what it was. */
static enum status find_error(const struct buffer *errors, struct error *err)
{
    const char *at = strstr(buffer_text(errors), "ERROR:");

    if (at == NULL)
        at = strstr(buffer_text(errors), "FATAL:");
    if (at == NULL)
        return STATUS_OK;
    return error_set(err, STATUS_DATABASE, "the first statements failed: %.*s",
                     (int) strcspn(at, "\n"), at);
}

static enum status run_first_sql(const char *bin, const char *data, const char *cgroup,
                                 const char *sql, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_RESULT struct process_result result = {0};
    const char *argv[] = {arena_printf(arena, "%s/postgres", bin),
                          "--single",
                          "-D",
                          data,
                          "-c",
                          "fsync=off",
                          "-c",
                          "synchronous_standby_names=",
                          "postgres",
                          NULL};
    enum status status = run_as_postgres(argv, sql, cgroup, INITDB_TIMEOUT_MS, &result, err);

    return status == STATUS_OK ? find_error(&result.errors, err) : status;
}

enum status lab_postgres_create(const struct lab_spec *spec, const struct lab_node *primary,
                                const struct lab_passwords *passwords, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_BUFFER struct buffer sql = BUFFER(TEXT_MAX);
    const char *bin = lab_bin(arena, spec), *data = lab_data(arena, spec);
    const char *cgroup = lab_cgroup(arena, spec->name, primary->name, "postgres");
    enum status status = init_data(bin, data, cgroup, err);

    if (status == STATUS_OK)
        status = write_config(data, err);
    lab_postgres_first_sql(spec, primary, passwords, &sql);
    if (status == STATUS_OK)
        status = run_first_sql(bin, data, cgroup, buffer_text(&sql), err);
    return status;
}

enum status lab_postgres_start(const struct lab_spec *spec, const struct lab_node *node,
                               struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *argv[] = {arena_printf(arena, "%s/pg_ctl", lab_bin(arena, spec)),
                          "-D",
                          lab_data(arena, spec),
                          "-l",
                          arena_printf(arena, NODE_DATA "/%d/log/start.log", (int) spec->version),
                          "-s",
                          "-W",
                          "start",
                          NULL};

    return run_as_postgres(argv, NULL, lab_cgroup(arena, spec->name, node->name, "postgres"),
                           START_TIMEOUT_MS, NULL, err);
}
