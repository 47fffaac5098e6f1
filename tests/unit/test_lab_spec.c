/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/owned.h"
#include "tests/support/suite.h"
#include "topologies/lab/lab.h"
#include "topologies/lab/preflight.h"
#include "topologies/topology.h"

#define MIB (INT64_C(1024) * 1024)

static struct arena *arena;
static struct yaml_errors errors;

static void setup(void)
{
    arena = arena_new();
    errors = (struct yaml_errors){.arena = arena};
}

static void teardown(void)
{
    arena_free(arena);
}

/* A lab file made of a head and of nodes, from a temporary file. */
static enum status load(const char *database, const char *nodes, struct lab_spec **ret_spec)
{
    char path[] = "/tmp/ordeal-lab-XXXXXX";
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    dprintf(fd, "schema: ordeal/lab-1\nname: small\ndatabase: %s\nnodes:\n%s", database, nodes);
    close(fd);
    errors.file = path;
    enum status status = lab_spec_load(arena, path, NULL, ret_spec, &errors, NULL);
    unlink(path);
    return status;
}

#define GOOD_NODES                                                                                 \
    "  - {name: n1, zone: a, roles: [database], memory: 256MiB, volumes: {system: 320MiB, data: "  \
    "1GiB}}\n"                                                                                     \
    "  - {name: n2, zone: b, roles: [database], volumes: {system: 320MiB, data: 1GiB}}\n"          \
    "  - {name: c1, zone: b, roles: client, volumes: {system: 320MiB}}\n"                          \
    "  - {name: p1, zone: a, roles: [power]}\n"

static void expect_error(const char *database, const char *nodes, const char *text)
{
    struct lab_spec *spec = NULL;

    ck_assert_int_eq(load(database, nodes, &spec), STATUS_INVALID);
    for (size_t i = 0; i < errors.count; i++)
        if (strstr(errors.texts[i], text) != NULL)
            return;
    ck_abort_msg("no error says \"%s\"; first: %s", text,
                 errors.count > 0 ? errors.texts[0] : "none");
}

START_TEST(the_shipped_lab_is_whole)
{
    struct lab_spec *spec = NULL;
    struct error err = {0};

    ck_assert_msg(lab_spec_load(arena, "topologies/lab-quorum.yaml", NULL, &spec, &errors, &err) ==
                      STATUS_OK,
                  "%s", errors.count > 0 ? errors.texts[0] : err.message);
    ck_assert_str_eq(spec->name, "quorum");
    ck_assert_uint_eq(spec->node_count, 5);
    ck_assert_str_eq(spec->durability, "quorum");
    ck_assert_int_eq(spec->failover_ms, 30000);
    ck_assert_str_eq(lab_spec_node(spec, "n3")->zone, "c");
    ck_assert_uint_eq(lab_spec_node(spec, "p1")->roles, ROLE_POWER);
    ck_assert_ptr_null(lab_spec_node(spec, "n4"));
}
END_TEST

START_TEST(addresses_follow_roles)
{
    struct lab_spec *spec = NULL;

    ck_assert_int_eq(load("{version: 15}", GOOD_NODES, &spec), STATUS_OK);
    ck_assert_str_eq(lab_spec_node(spec, "n1")->address, "10.77.0.1");
    ck_assert_str_eq(lab_spec_node(spec, "n2")->address, "10.77.0.2");
    ck_assert_str_eq(lab_spec_node(spec, "c1")->address, "10.77.0.11");
    ck_assert_str_eq(lab_spec_node(spec, "p1")->address, "10.77.0.254");
    ck_assert_int_eq(lab_spec_node(spec, "n1")->memory_bytes, 256 * MIB);
    ck_assert_int_eq(lab_spec_node(spec, "n2")->memory_bytes, 0);
    ck_assert_int_eq(spec->port, 5432);
}
END_TEST

START_TEST(another_name_can_be_given)
{
    struct lab_spec *spec = NULL;

    ck_assert_int_eq(
        lab_spec_load(arena, "topologies/lab-quorum.yaml", "mine", &spec, &errors, NULL),
        STATUS_OK);
    ck_assert_str_eq(spec->name, "mine");
    ck_assert_int_eq(
        lab_spec_load(arena, "topologies/lab-quorum.yaml", "../mine", &spec, &errors, NULL),
        STATUS_INVALID);
}
END_TEST

/* What is wrong with a lab file, and what must be said about it. */
static const struct {
    const char *database, *nodes, *text;
} wrong[] = {
    {"{version: 12}", GOOD_NODES, "version"},
    {"{version: 15, prot: 1}", GOOD_NODES, "port"},
    {"{version: 15, settings: {\"a;b\": 1}}", GOOD_NODES, "is not a setting"},
    {"{version: 15, settings: [1]}", GOOD_NODES, "settings must be a mapping"},
    {"{version: 15}",
     GOOD_NODES "  - {name: n1, zone: c, roles: [client], volumes: {system: 320MiB}}\n",
     "n1 is there already"},
    {"{version: 15}",
     GOOD_NODES "  - {name: N-1, zone: c, roles: [client], volumes: {system: 320MiB}}\n",
     "node name \"N-1\""},
    {"{version: 15}",
     GOOD_NODES "  - {name: switch, zone: c, roles: [client], volumes: {system: 320MiB}}\n",
     "not be \"switch\""},
    {"{version: 15}",
     GOOD_NODES "  - {name: c2, zone: c, roles: [clinet], volumes: {system: 320MiB}}\n",
     "unknown role clinet"},
    {"{version: 15}", GOOD_NODES "  - {name: c2, zone: c, roles: [client]}\n", "needs volumes"},
    {"{version: 15}",
     GOOD_NODES "  - {name: n3, zone: c, roles: [database], volumes: {system: 320MiB}}\n",
     "data: SIZE"},
    {"{version: 15}",
     GOOD_NODES "  - {name: c2, zone: c, roles: [client], volumes: {system: 32MiB}}\n", "system"},
    {"{version: 15}",
     GOOD_NODES "  - {name: c2, zone: c, roles: [client], cpu: 50%, volumes: {system: 320MiB}}\n",
     "limit PostgreSQL only"},
    {"{version: 15}", GOOD_NODES "  - {name: p2, zone: c, roles: [power]}\n", "one power node"},
    {"{version: 15}", GOOD_NODES "  - {name: p2, zone: c, roles: [power], boot-clock-offset: 5s}\n",
     "the host's clocks"},
    {"{version: 15}",
     GOOD_NODES "  - {name: c2, zone: c, roles: [client], boot-clock-offset: -5s,"
                " volumes: {system: 320MiB}}\n",
     "boot-clock-offset"},
    {"{version: 15}",
     GOOD_NODES "  - {name: p2, zone: c, roles: [power, client], volumes: {system: 320MiB}}\n",
     "no other role"},
    {"{version: 15}",
     "  - {name: n1, zone: a, roles: [database], volumes: {system: 320MiB, data: 1GiB}}\n"
     "  - {name: p1, zone: a, roles: [power]}\n",
     "2 to 10 database nodes"},
};

START_TEST(what_is_wrong_is_said)
{
    expect_error(wrong[_i].database, wrong[_i].nodes, wrong[_i].text);
}
END_TEST

START_TEST(all_errors_are_said_at_once)
{
    struct lab_spec *spec = NULL;

    ck_assert_int_eq(
        load("{version: 12, prot: 1}", "  - {name: N, zone: A, roles: [nobody]}\n", &spec),
        STATUS_INVALID);
    ck_assert_uint_ge(errors.count, 5);
    for (size_t i = 0; i < errors.count; i++)
        ck_assert_ptr_nonnull(strstr(errors.texts[i], "/tmp/ordeal-lab-"));
}
END_TEST

START_TEST(too_little_room_is_refused_with_figures)
{
    struct lab_spec *spec = NULL;
    struct error err = {0};
    const int64_t disk = (3 * 320 + 2 * 1024 + 256) * MIB;

    ck_assert_int_eq(load("{version: 15}", GOOD_NODES, &spec), STATUS_OK);
    ck_assert_int_eq(preflight_memory(spec, 256 * MIB, &err), STATUS_OK);
    ck_assert_int_eq(preflight_memory(spec, 256 * MIB - 1, &err), STATUS_REFUSED);
    ck_assert_ptr_nonnull(strstr(err.message, "needs 256 MiB, there are 255 MiB"));
    ck_assert_int_eq(preflight_disk(spec, disk, &err), STATUS_OK);
    ck_assert_int_eq(preflight_disk(spec, disk - 1, &err), STATUS_REFUSED);
    ck_assert_ptr_nonnull(strstr(err.message, "too little disk"));
    ck_assert_ptr_nonnull(strstr(err.hint, "-t FILE"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lab_spec");
    TCase *cases = tcase_create("lab_spec");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, the_shipped_lab_is_whole);
    tcase_add_test(cases, addresses_follow_roles);
    tcase_add_test(cases, another_name_can_be_given);
    tcase_add_loop_test(cases, what_is_wrong_is_said, 0, sizeof(wrong) / sizeof(wrong[0]));
    tcase_add_test(cases, all_errors_are_said_at_once);
    tcase_add_test(cases, too_little_room_is_refused_with_figures);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
