/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/owned.h"
#include "topologies/topology.h"

static struct arena *arena;
static struct yaml_errors errors;
static char path[64];

static const char *const whole =
    "schema: ordeal/topology-1\n"
    "name: demo\n"
    "promise: { durability: quorum, failover: 30s }\n"
    "ha: { manager: manual, fence: control, management-network: yes, detect: 750ms, promote: safe "
    "}\n"
    "control: { network-namespace: /proc/1/ns/net, ca: pki/ca.crt, certificate: /p/o.crt, key: "
    "/p/o.key }\n"
    "database:\n"
    "  version: 15\n"
    "  data: /var/lib/postgresql/15/main\n"
    "  service: { start: [pg_ctlcluster, \"15\", main, start], stop: [pg_ctlcluster, \"15\", main, "
    "stop] }\n"
    "  superuser: { user: admin, password-file: /etc/admin.pass }\n"
    "  workload: { user: load, password-file: /etc/load.pass, database: ordeal }\n"
    "  replication: { user: repl, password-file: /etc/repl.pass }\n"
    "endpoint: { hosts: [n1, n2], routing: manager }\n"
    "power: { off: [prog, off, \"{node}\"], on: [prog, on, \"{node}\"] }\n"
    "nodes:\n"
    "  - { name: n1, address: 10.77.0.1, zone: a, roles: [database], cgroup: demo/n1, volumes: { "
    "data: /var/lib/postgresql } }\n"
    "  - { name: n2, address: 10.77.0.2, zone: b, roles: [database], agent-port: 9999 }\n"
    "  - { name: c1, address: 10.77.0.11, zone: a, roles: client }\n"
    "  - { name: p1, address: 10.77.0.12, roles: [power] }\n";

static void setup(void)
{
    arena = arena_new();
    errors = (struct yaml_errors){.arena = arena};
    snprintf(path, sizeof path, "/tmp/ordeal-test-topology-%d.yaml", (int) getpid());
}

static void teardown(void)
{
    unlink(path);
    arena_free(arena);
}

static struct topology *load(const char *text)
{
    struct topology *topology = NULL;
    struct error err = {0};
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    enum status status = topology_load(arena, path, &topology, &errors, &err);
    ck_assert_int_eq(status, errors.count == 0 ? STATUS_OK : STATUS_INVALID);
    return topology;
}

/* The whole file with one text replaced by another. */
static const char *changed(const char *from, const char *to)
{
    const char *at = strstr(whole, from);

    ck_assert_msg(at != NULL, "not in the sample: %s", from);
    return arena_printf(arena, "%.*s%s%s", (int) (at - whole), whole, to, at + strlen(from));
}

static bool complained(const char *text)
{
    for (size_t i = 0; i < errors.count; i++)
        if (strstr(errors.texts[i], text) != NULL)
            return true;
    return false;
}

START_TEST(reads_everything)
{
    struct topology *topology = load(whole);

    ck_assert_msg(topology != NULL, "%s", errors.count > 0 ? errors.texts[0] : "");
    ck_assert_str_eq(topology->name, "demo");
    ck_assert_str_eq(topology->kind, "external");
    ck_assert_str_eq(topology->promise.durability, "quorum");
    ck_assert_int_eq(topology->promise.failover_ms, 30000);
    ck_assert_str_eq(topology->ha.manager, "manual");
    ck_assert_str_eq(topology->ha.fence, "control");
    ck_assert(topology->ha.management_network);
    ck_assert(!topology->ha.allow_loss);
    ck_assert_int_eq(topology->ha.detect_ms, 750);
    ck_assert_str_eq(topology->control.ca, "/tmp/pki/ca.crt");
    ck_assert_str_eq(topology->control.key, "/p/o.key");
    ck_assert_int_eq(topology->database.port, 5432);
    ck_assert_str_eq(topology->database.bin, "/usr/lib/postgresql/15/bin");
    ck_assert_str_eq(topology->database.start[1], "15");
    ck_assert_str_eq(topology->database.workload.database, "ordeal");
    ck_assert_str_eq(topology->database.replication_user, "repl");
    ck_assert_uint_eq(topology->endpoint.count, 2);
    ck_assert(topology->endpoint.managed);
    ck_assert_ptr_eq(topology->endpoint.hosts[1], topology_node(topology, "n2"));
    ck_assert_str_eq(topology->power.off[2], "{node}");
    ck_assert_ptr_null(topology->power.cut);
    ck_assert_uint_eq(topology->node_count, 4);
    const struct topology_node *node = topology_node(topology, "n1");
    ck_assert_uint_eq(node->roles, ROLE_DATABASE);
    ck_assert_int_eq(node->agent_port, 7432);
    ck_assert_str_eq(node->volumes[0].path, "/var/lib/postgresql");
    ck_assert_int_eq(topology_node(topology, "n2")->agent_port, 9999);
    ck_assert_ptr_eq(topology_first(topology, ROLE_CLIENT), topology_node(topology, "c1"));
    ck_assert_ptr_null(topology_first(topology, ROLE_ARCHIVE));
    ck_assert_ptr_null(topology_node(topology, "n9"));
}
END_TEST

START_TEST(endpoint_defaults_to_every_database_node)
{
    struct topology *topology =
        load(changed("endpoint: { hosts: [n1, n2], routing: manager }", ""));

    ck_assert_uint_eq(topology->endpoint.count, 2);
    ck_assert(!topology->endpoint.managed);
}
END_TEST

static const char *const mistakes[][3] = {
    {"ordeal/topology-1", "ordeal/topology-9", ":1:9: schema ordeal/topology-9 is not known here"},
    {"hosts: [n1, n2]", "hosts: [n1, n22]", "unknown node n22, did you mean n2?"},
    {"hosts: [n1, n2]", "hosts: [n1, c1]", "endpoint host c1 does not have the role database"},
    {"roles: client", "roles: clent", "unknown role clent, did you mean client?"},
    {"name: n2", "name: n1", "node n1 is there already, line 16"},
    {"name: n2", "name: N_2", "node name N_2 must have 1 to 32"},
    {"address: 10.77.0.2", "address: n2.example", "address n2.example is not an IPv4 or IPv6"},
    {"10.77.0.11", "10.77.0.1", "nodes n1 and c1 have the same address 10.77.0.1"},
    {"data: /var/lib/postgresql }", "data: postgresql }", "volume data must be an absolute path"},
    {"  version: 15", "  version: 12", "version: 12 is out of range, it must be from 13 to 18"},
    {"data: /var/lib/postgresql/15", "data: var/lib",
     "data: var/lib/main must be an absolute path"},
    {"fence: control", "fence: script", "fence: script needs the key fence-script"},
    {"fence: control", "fence: contrl", "unknown fence contrl, did you mean control?"},
    {"durability: quorum", "durability: 1", "unknown durability 1, known are: quorum, local, none"},
    {"failover: 30s", "failover: 30", "failover: \"30\" is not a duration: the unit is missing"},
    {"roles: [power]", "roles: [archive]", "no node has the role power to do it"},
    {"  superuser: { user: admin,", "  superuser: {", "missing key user"},
    {"control: {", "controll: {", "unknown key controll, did you mean control?"},
    {"control: {", "controll: {", "missing key control"},
    {"name: demo", "name: demo\nkind: rented", "unknown kind rented, known are: external, lab"},
    {"manager: manual", "manager: manuel", "unknown HA manager manuel, did you mean manual?"},
    {"manager: manual", "manager: x", "unknown HA manager x: observe (what manages the cluster"},
    {"manager: manual", "manager: observe", "say routing: hosts"},
    {"management-network: yes", "management-network: no",
     "fence: control needs management-network: yes"},
    {"start: [pg_ctlcluster, \"15\", main, start]", "start: []", "start: a program and its"},
    {"roles: [database], agent-port", "roles: [database, client], agent-port",
     "n2 has the roles database and client: the ledger would be lost"},
    {"roles: [database], agent-port", "roles: [database, power], agent-port",
     "n2 has the roles database and power: nobody would switch it on again"},
};

START_TEST(names_the_mistake)
{
    ck_assert_ptr_null(load(changed(mistakes[_i][0], mistakes[_i][1])));
    ck_assert_msg(complained(mistakes[_i][2]), "expected: %s, got: %s", mistakes[_i][2],
                  errors.count > 0 ? errors.texts[0] : "nothing");
}
END_TEST

START_TEST(power_fence_needs_power)
{
    const char *text = changed("fence: control", "fence: power");

    ck_assert_ptr_nonnull(load(text));
    *strstr((char *) (uintptr_t) text, "power: {") = '#';
    ck_assert_ptr_null(load(text));
    ck_assert(complained("fence: power needs the key power"));
}
END_TEST

START_TEST(reports_all_mistakes_at_once)
{
    ck_assert_ptr_null(load("schema: ordeal/topology-1\nname: x\nnodes: []\nfoo: 1\n"));
    ck_assert_uint_eq(errors.count, 3);
    ck_assert(complained("unknown key foo"));
    ck_assert(complained("missing key control"));
    ck_assert(complained("nodes must be a list of 1 to 32 nodes"));
}
END_TEST

START_TEST(not_even_a_mapping)
{
    ck_assert_ptr_null(load("- a\n"));
    ck_assert_uint_eq(errors.count, 1);
}
END_TEST

START_TEST(session_says_what_an_agent_needs)
{
    struct topology *topology = load(whole);
    OWNED_JSON json_t *n1 = topology_session(topology, topology_node(topology, "n1"), "r-1", 5000);
    OWNED_JSON json_t *p1 = topology_session(topology, topology_node(topology, "p1"), "r-1", 5000);
    const char *run, *cgroup, *user, *password, *off;
    int protocol, lease, serves, managed;
    json_t *peers, *start, *volumes;

    ck_assert_ptr_nonnull(n1);
    ck_assert_int_eq(
        json_unpack(n1,
                    "{s:i, s:s, s:i, s:{s:b, s:s, s:o}, s:o, s:{s:{s:s, s:s}, s:o}, s:{s:b}, s:n}",
                    "protocol", &protocol, "run", &run, "lease_ms", &lease, "node",
                    "serves_database", &serves, "cgroup", &cgroup, "volumes", &volumes, "peers",
                    &peers, "database", "workload", "user", &user, "password_file", &password,
                    "start", &start, "endpoint", "managed", &managed, "power"),
        0);
    ck_assert_str_eq(run, "r-1");
    ck_assert_int_eq(lease, 5000);
    ck_assert(serves);
    ck_assert(managed);
    ck_assert_str_eq(user, "load");
    ck_assert_str_eq(password, "/etc/load.pass");
    ck_assert_uint_eq(json_array_size(peers), 4);
    ck_assert_uint_eq(json_array_size(start), 4);
    ck_assert_uint_eq(json_object_size(volumes), 1);
    ck_assert_int_eq(json_unpack(p1, "{s:{s:b}, s:{s:[s*], s:n}}", "node", "serves_database",
                                 &serves, "power", "off", &off, "cut"),
                     0);
    ck_assert(!serves);
    ck_assert_str_eq(off, "prog");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topology");
    TCase *topology = tcase_create("topology");

    tcase_add_checked_fixture(topology, setup, teardown);
    tcase_add_test(topology, reads_everything);
    tcase_add_test(topology, endpoint_defaults_to_every_database_node);
    tcase_add_loop_test(topology, names_the_mistake, 0, sizeof mistakes / sizeof mistakes[0]);
    tcase_add_test(topology, power_fence_needs_power);
    tcase_add_test(topology, reports_all_mistakes_at_once);
    tcase_add_test(topology, not_even_a_mapping);
    tcase_add_test(topology, session_says_what_an_agent_needs);
    suite_add_tcase(suite, topology);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
