/* SPDX-License-Identifier: MIT */
/* The files that the lab writes: PostgreSQL's, and the topology. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/owned.h"
#include "tests/support/suite.h"
#include "topologies/lab/files.h"
#include "topologies/lab/postgres.h"
#include "topologies/lab/topology_file.h"
#include "topologies/topology.h"

static struct arena *arena;
static struct lab_node nodes[] = {
    {.name = "n-1", .zone = "a", .address = "10.77.0.1", .roles = ROLE_DATABASE, .data_bytes = 1},
    {.name = "n-2", .zone = "b", .address = "10.77.0.2", .roles = ROLE_DATABASE, .data_bytes = 1},
    {.name = "n3", .zone = "c", .address = "10.77.0.3", .roles = ROLE_DATABASE, .data_bytes = 1},
    {.name = "c1", .zone = "a", .address = "10.77.0.11", .roles = ROLE_CLIENT},
    {.name = "p1", .zone = "a", .address = "10.77.0.254", .roles = ROLE_POWER},
};
static const char *names[] = {"wal_keep_size", "log_directory"};
static const char *values[] = {"256MB", "it's a \\ path"};
static const struct lab_spec spec = {
    .name = "demo",
    .durability = "quorum",
    .failover_ms = 30000,
    .ha = {.manager = "manual",
           .fence = "control",
           .promote = "safe",
           .management_network = true,
           .detect_ms = 1500},
    .version = 15,
    .port = 5433,
    .setting_count = 2,
    .setting_names = names,
    .setting_values = values,
    .node_count = 5,
    .nodes = nodes,
};

static void setup(void)
{
    arena = arena_new();
}

static void teardown(void)
{
    arena_free(arena);
}

static void has(const struct buffer *text, const char *part)
{
    ck_assert_msg(strstr(buffer_text(text), part) != NULL, "no \"%s\" in:\n%s", part,
                  buffer_text(text));
}

START_TEST(each_node_waits_for_the_others)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);

    lab_postgres_settings(&spec, &nodes[1], &text);
    has(&text, "\nsynchronous_standby_names = 'ANY 1 (\"n-1\", \"n3\")'\n");
    has(&text, "\nsynchronous_commit = on\n");
    has(&text, "\nport = 5433\n");
}
END_TEST

START_TEST(settings_of_the_lab_file_come_last_and_quoted)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);

    lab_postgres_settings(&spec, &nodes[0], &text);
    has(&text, "\nwal_keep_size = '256MB'\n");
    has(&text, "\nlog_directory = 'it''s a \\\\ path'\n");
    const char *fixed = strstr(buffer_text(&text), "log_directory = '/var");
    ck_assert_ptr_nonnull(fixed);
    ck_assert(fixed < strstr(buffer_text(&text), "log_directory = 'it"));
}
END_TEST

START_TEST(nobody_comes_in_without_tls_and_a_password)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);
    char *rest = NULL;

    lab_postgres_hba(&text);
    for (char *line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (line[0] == '#' || strncmp(line, "local ", 6) == 0)
            continue;
        ck_assert_msg(strncmp(line, "hostssl ", 8) == 0, "%s", line);
        ck_assert_msg(strstr(line, " scram-sha-256") != NULL, "%s", line);
    }
}
END_TEST

START_TEST(a_standby_is_named_as_its_node_and_its_slot_as_postgres_wants_it)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);

    lab_postgres_follow(&spec, &nodes[1], &nodes[0], &text);
    has(&text, "host=10.77.0.1 port=5433 ");
    has(&text, " application_name=n-2'");
    has(&text, "primary_slot_name = 'n_2'");
    ck_assert_ptr_null(strstr(buffer_text(&text), "password="));
}
END_TEST

START_TEST(first_statements_make_a_slot_for_each_standby)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);
    struct lab_passwords passwords;

    ck_assert_int_eq(lab_passwords_draw(&passwords, NULL), STATUS_OK);
    ck_assert_uint_eq(strlen(passwords.admin), 32);
    ck_assert_str_ne(passwords.admin, passwords.load);
    lab_postgres_first_sql(&spec, &nodes[0], &passwords, &text);
    has(&text, "replication_slot('n_2', true)");
    has(&text, "replication_slot('n3', true)");
    ck_assert_ptr_null(strstr(buffer_text(&text), "'n_1'"));
    has(&text, passwords.replication);
    /* a failing statement must not put a password into the log */
    ck_assert(strstr(buffer_text(&text), "log_min_error_statement = panic") <
              strstr(buffer_text(&text), "PASSWORD"));
}
END_TEST

static struct topology *load(const char *text)
{
    char path[] = "/tmp/ordeal-topology-XXXXXX";
    int fd = mkstemp(path);
    struct topology *topology = NULL;
    struct yaml_errors errors = {.arena = arena, .file = path};
    struct error err = {0};

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t) strlen(text));
    close(fd);
    enum status status = topology_load(arena, path, &topology, &errors, &err);
    unlink(path);
    ck_assert_msg(status == STATUS_OK, "%s", errors.count > 0 ? errors.texts[0] : err.message);
    return topology;
}

START_TEST(the_topology_is_an_ordinary_one)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);
    struct lab_programs programs = {.ordeal = "/opt/a \"b\"/ordeal", .agent = "/opt/ordeald"};

    topology_file_text(&spec, &programs, 4711, &text);
    const struct topology *topology = load(buffer_text(&text));
    ck_assert_str_eq(topology->control.network_namespace, "/proc/4711/ns/net");
    ck_assert_str_eq(topology->power.cut[0], programs.ordeal);
    ck_assert_str_eq(topology->power.cut[3], "cut");
    ck_assert_str_eq(topology->power.cut[4], "{node}");
    ck_assert_str_eq(topology->power.cut[6], "demo");
    ck_assert_ptr_null(topology->power.cut[7]);
    ck_assert_uint_eq(topology->endpoint.count, 3);
    ck_assert(topology->endpoint.managed);
    ck_assert_int_eq(topology->ha.detect_ms, 1500);
    ck_assert(topology->ha.management_network && !topology->ha.allow_loss);
    ck_assert_int_eq(topology->promise.failover_ms, 30000);
    ck_assert_int_eq(topology->database.port, 5433);
}
END_TEST

START_TEST(only_data_is_under_test)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);
    struct lab_programs programs = {.ordeal = "/opt/ordeal", .agent = "/opt/ordeald"};

    topology_file_text(&spec, &programs, 1, &text);
    const struct topology *topology = load(buffer_text(&text));
    const struct topology_node *database = topology_node(topology, "n-2");
    ck_assert_uint_eq(database->volume_count, 1);
    ck_assert_str_eq(database->volumes[0].path, NODE_DATA);
    ck_assert_str_eq(database->cgroup, "ordeal-demo/n-2/postgres");
    ck_assert_uint_eq(topology_node(topology, "c1")->volume_count, 0);
    ck_assert_str_eq(topology_first(topology, ROLE_POWER)->address, "10.77.0.254");
}
END_TEST

START_TEST(the_tail_of_a_log_begins_with_a_whole_line)
{
    char path[] = "/tmp/ordeal-tail-XXXXXX", text[16];
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    dprintf(fd, "first line\nsecond\nthird\n");
    close(fd);
    files_tail(path, text, sizeof(text));
    ck_assert_str_eq(text, "second\nthird");
    unlink(path);
    files_tail(path, text, sizeof(text));
    ck_assert_str_eq(text, "");
}
END_TEST

TEST_MAIN("lab_texts", 10, setup, teardown, each_node_waits_for_the_others,
          settings_of_the_lab_file_come_last_and_quoted, nobody_comes_in_without_tls_and_a_password,
          a_standby_is_named_as_its_node_and_its_slot_as_postgres_wants_it,
          first_statements_make_a_slot_for_each_standby, the_topology_is_an_ordinary_one,
          only_data_is_under_test, the_tail_of_a_log_begins_with_a_whole_line)
