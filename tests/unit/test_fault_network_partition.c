/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "faults/fault.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "tests/support/fault_drive.h"
#include "tests/support/net_lab.h"
#include "tests/support/throwaway_postgres.h"

extern const struct fault fault_network_partition;

enum { AGENT_PORT = 7432, DATABASE_PORT = 5432 };

static const struct fault *const fault = &fault_network_partition;
static const struct fault_peer peers[] = {{"n1", "10.9.0.1"},   {"n2", "10.9.0.2"},
                                          {"n3", "10.9.0.3"},   {"s1", "fd09::2"},
                                          {"p1", "10.9.0.254"}, {"text", "n2.example"}};
static struct fault_context context = {.node = "n1",
                                       .uid = "test-cut-1",
                                       .database_port = DATABASE_PORT,
                                       .control_address = "10.9.0.254",
                                       .control_port = AGENT_PORT,
                                       .peer_count = sizeof peers / sizeof peers[0],
                                       .peers = peers};
static struct net_node n2, n3, control;
static int agent, database;

static void setup(void)
{
    net_node_up(&n2, 2);
    net_node_up(&n3, 3);
    net_node_up(&control, 254);
    agent = net_listen(NULL, AGENT_PORT);
    database = net_listen(NULL, DATABASE_PORT);
    net_listen(&n2, AGENT_PORT);
    net_listen(&n2, DATABASE_PORT);
    net_listen(&n3, AGENT_PORT);
    net_listen(&control, AGENT_PORT);
    context.deadline_ns = deadline_in_ms(30000);
}

static void teardown(void)
{
    drive_done();
    net_node_down(&n2);
    net_node_down(&n3);
    net_node_down(&control);
    close(agent);
    close(database);
}

static void nft(const char *script)
{
    const char *argv[] = {"nft", "-f", "-", NULL};
    struct error err = {0};

    ck_assert_msg(
        process_run(&(struct process_spec){.argv = argv, .input = script, .timeout_ms = 5000}, NULL,
                    &err) == STATUS_OK,
        "%s", err.message);
}

static struct fault_context seen_from(const char *node)
{
    struct fault_context other = context;

    other.node = node;
    return other;
}

static void expect_witness(const struct net_node *from, const char *name, const json_t *record,
                           enum effect effect)
{
    struct fault_context other = seen_from(name);
    int back = net_enter(from);

    drive_expect_witness(fault, &other, record, effect);
    net_leave(back);
}

static const struct {
    const char *params, *complaint;
} wrong[] = {
    {"{}", "peers"},
    {"{\"peers\": []}", "peers"},
    {"{\"peers\": \"n2\"}", "peers"},
    {"{\"peers\": [\"n2\"], \"direction\": \"up\"}", "up"},
    {"{\"peers\": [\"n2\"], \"action\": \"dorp\"}", "dorp"},
    {"{\"peers\": [\"n2\"], \"port\": 0}", "port"},
    {"{\"peers\": [\"n2\"], \"port\": 65536}", "port"},
    {"{\"peers\": [\"n2\"], \"prot\": 5432}", "prot"},
};

START_TEST(wrong_parameters_are_refused)
{
    OWNED_JSON json_t *params = json_loads(wrong[_i].params, 0, NULL);
    struct error err = {0};

    ck_assert_ptr_nonnull(params);
    ck_assert_int_eq(fault_validate(fault, params, &err), STATUS_INVALID);
    ck_assert_msg(strstr(err.message, wrong[_i].complaint) != NULL, "%s", err.message);
}
END_TEST

static void expect_prepare_fails(const struct fault_context *with, const char *params_text,
                                 enum status expected, const char *word)
{
    OWNED_JSON json_t *params = drive_params(fault, params_text);
    struct error err = {0};
    json_t *record = NULL;

    ck_assert_int_eq(fault->supported(with, params, &err), expected);
    ck_assert_msg(strstr(err.message, word) != NULL, "%s", err.message);
    ck_assert_int_eq(fault->prepare(with, params, &record, &err), expected);
    ck_assert_msg(strstr(err.message, word) != NULL, "%s", err.message);
    ck_assert_ptr_null(record);
}

START_TEST(what_cannot_be_cut_is_refused)
{
    struct fault_context no_control = context;

    no_control.control_address = NULL;
    expect_prepare_fails(&no_control, "{'peers': ['n2']}", STATUS_UNSUPPORTED, "control");
    expect_prepare_fails(&context, "{'peers': ['n2', 'n9']}", STATUS_INVALID, "n9");
    expect_prepare_fails(&context, "{'peers': ['n1']}", STATUS_INVALID, "n1");
}
END_TEST

/* Nothing but an address gets into a ruleset. */
START_TEST(a_peer_without_an_address_is_refused)
{
    OWNED_JSON json_t *params = drive_params(fault, "{'peers': ['text']}");
    struct error err = {0};

    ck_assert_int_eq(fault->supported(&context, params, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "n2.example"));
}
END_TEST

static const struct {
    const char *direction, *action;
} shapes[] = {{"both", "drop"},   {"in", "drop"},   {"out", "drop"},
              {"both", "reject"}, {"in", "reject"}, {"out", "reject"}};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static json_t *prepare_shape(int index, const char *peer)
{
    char params[128];

    snprintf(params, sizeof params, "{'peers': ['%s'], 'direction': '%s', 'action': '%s'}", peer,
             shapes[index].direction, shapes[index].action);
    return drive_prepare(fault, &context, params);
}

/* n2 is cut off, n3 and the orchestrator are not; and afterwards everything is as before. */
START_TEST(one_peer_is_cut_off)
{
    OWNED_JSON json_t *record = prepare_shape(_i, "n2");
    bool reject = strcmp(shapes[_i].action, "reject") == 0;

    drive_expect(fault, &context, record, EFFECT_ABSENT);
    expect_witness(&n2, "n2", record, EFFECT_ABSENT);
    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    ck_assert_int_gt(drive_number("packets"), 0);
    expect_witness(&n2, "n2", record, EFFECT_ACTIVE);
    expect_witness(&n3, "n3", record, EFFECT_UNKNOWN);
    enum tcp_outcome outcome = net_call(&n2, "10.9.0.1", DATABASE_PORT);
    ck_assert_int_ne(outcome, TCP_CONNECTED);
    if (!reject)
        ck_assert_int_eq(outcome, TCP_SILENT);
    else if (strcmp(shapes[_i].direction, "out") != 0)
        ck_assert_int_eq(outcome, TCP_REFUSED);
    ck_assert_int_eq(net_call(&n3, "10.9.0.1", DATABASE_PORT), TCP_CONNECTED);
    ck_assert_int_eq(net_call(&control, "10.9.0.1", AGENT_PORT), TCP_CONNECTED);
    drive_undo(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
    expect_witness(&n2, "n2", record, EFFECT_ABSENT);
    drive_undo(fault, &context, record);
}
END_TEST

START_TEST(rejected_at_home_is_refused_at_once)
{
    OWNED_JSON json_t *record = prepare_shape(3, "n2");

    drive_inject(fault, &context, record);
    ck_assert_int_eq(net_call(NULL, "10.9.0.2", DATABASE_PORT), TCP_REFUSED);
    drive_undo(fault, &context, record);
    ck_assert_int_eq(net_call(NULL, "10.9.0.2", DATABASE_PORT), TCP_CONNECTED);
}
END_TEST

static bool arrives(int fd, int timeout_ms)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    char byte;

    if (poll(&poller, 1, timeout_ms) == 0)
        return false;
    ck_assert_msg(recv(fd, &byte, 1, 0) == 1, "the connection ended: %s", strerror(errno));
    return true;
}

/* Neither FIN nor RST: who waits for an answer keeps waiting, and gets it after the heal. */
START_TEST(connections_fall_silent_and_go_on)
{
    OWNED_JSON json_t *record = prepare_shape(0, "n2");
    int client = net_connect(&n2, "10.9.0.1", DATABASE_PORT);
    int server = accept4(database, NULL, NULL, SOCK_CLOEXEC);

    ck_assert_int_ge(server, 0);
    drive_inject(fault, &context, record);
    ck_assert_int_eq(send(client, "x", 1, 0), 1);
    ck_assert_int_eq(send(server, "y", 1, 0), 1);
    ck_assert(!arrives(server, 500));
    ck_assert(!arrives(client, 100));
    drive_undo(fault, &context, record);
    ck_assert(arrives(server, 10000));
    ck_assert(arrives(client, 10000));
    close(client);
    close(server);
}
END_TEST

/* The orchestrator's own host is among the peers: its control connection goes on, all else not. */
START_TEST(the_control_connection_is_exempt)
{
    int client = net_connect(&control, "10.9.0.1", AGENT_PORT);
    int server = accept4(agent, NULL, NULL, SOCK_CLOEXEC);
    OWNED_JSON json_t *record = prepare_shape(_i, "p1");

    drive_inject(fault, &context, record);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(send(client, "x", 1, 0), 1);
        ck_assert(arrives(server, 2000));
        ck_assert_int_eq(send(server, "y", 1, 0), 1);
        ck_assert(arrives(client, 2000));
    }
    ck_assert_int_eq(net_call(&control, "10.9.0.1", AGENT_PORT), TCP_CONNECTED);
    ck_assert_int_ne(net_call(&control, "10.9.0.1", DATABASE_PORT), TCP_CONNECTED);
    /* from that address the agent's port would tell a lie: the witness takes another */
    expect_witness(&control, "p1", record,
                   strcmp(shapes[_i].action, "reject") == 0 &&
                           strcmp(shapes[_i].direction, "out") != 0
                       ? EFFECT_UNKNOWN
                       : EFFECT_ACTIVE);
    drive_undo(fault, &context, record);
    close(client);
    close(server);
}
END_TEST

START_TEST(one_port_alone)
{
    OWNED_JSON json_t *record =
        drive_prepare(fault, &context, "{'peers': ['n2', 'n3'], 'port': 5432}");

    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    expect_witness(&n2, "n2", record, EFFECT_ACTIVE);
    ck_assert_int_eq(net_call(&n2, "10.9.0.1", AGENT_PORT), TCP_CONNECTED);
    ck_assert_int_eq(net_call(&n2, "10.9.0.1", DATABASE_PORT), TCP_SILENT);
    ck_assert_int_eq(net_call(NULL, "10.9.0.2", DATABASE_PORT), TCP_SILENT);
    drive_undo(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
}
END_TEST

/* The table stands, and nothing is lost by it: that must not be taken for an effect. */
START_TEST(a_rule_that_matches_nothing_is_found_out)
{
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'peers': ['n2'], 'port': 9}");

    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
    ck_assert_ptr_nonnull(strstr(drive_text(), "port 9"));
    expect_witness(&n2, "n2", record, EFFECT_ABSENT);
    drive_undo(fault, &context, record);
}
END_TEST

START_TEST(an_emptied_table_is_found_out)
{
    OWNED_JSON json_t *record = prepare_shape(0, "n2");

    drive_inject(fault, &context, record);
    nft("flush chain inet ordeal_test_cut_1 in\n");
    drive_expect(fault, &context, record, EFFECT_PARTIAL);
    nft("flush chain inet ordeal_test_cut_1 out\n");
    drive_expect(fault, &context, record, EFFECT_ABSENT);
    expect_witness(&n2, "n2", record, EFFECT_ABSENT);
    drive_undo(fault, &context, record);
}
END_TEST

/* A peer that is dead anyway is silent whatever the rules say, when only its packets are cut. */
START_TEST(silence_alone_proves_nothing)
{
    OWNED_JSON json_t *record = prepare_shape(1, "n2");

    net_plug(&n2, false);
    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_UNKNOWN);
    drive_undo(fault, &context, record);
}
END_TEST

START_TEST(nobody_elses_rules_are_touched)
{
    const char *argv[] = {"nft", "list", "table", "inet", "foreign", NULL};
    OWNED_JSON json_t *record = prepare_shape(0, "n2");

    nft("table inet foreign {\nchain c {\ntype filter hook input priority 0; policy "
        "accept;\n}\n}\n");
    drive_undo(fault, &context, record);
    drive_inject(fault, &context, record);
    drive_inject(fault, &context, record); /* again, as after a lost answer */
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    drive_undo(fault, &context, record);
    ck_assert_int_eq(
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = 5000}, NULL, NULL),
        STATUS_OK);
    nft("delete table inet foreign\n");
}
END_TEST

START_TEST(a_record_that_names_a_foreign_table_is_refused)
{
    static const char *const names[] = {"foreign", "ordeal_x; flush ruleset", "", "ordeal_A"};
    OWNED_JSON json_t *record = prepare_shape(0, "n2");
    struct error err = {0};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_object_set_new(record, "table", json_string(names[i]));
        ck_assert_int_eq(fault->inject(&context, record, &err), STATUS_INVALID);
        ck_assert_int_eq(fault->undo(&context, record, &err), STATUS_INVALID);
    }
}
END_TEST

START_TEST(peers_of_version_6)
{
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'peers': ['s1']}");

    drive_expect(fault, &context, record, EFFECT_ABSENT);
    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    ck_assert_int_eq(net_call(&n2, "fd09::1", DATABASE_PORT), TCP_SILENT);
    ck_assert_int_eq(net_call(&n2, "10.9.0.1", DATABASE_PORT), TCP_CONNECTED);
    drive_undo(fault, &context, record);
    ck_assert_int_eq(net_call(&n2, "fd09::1", DATABASE_PORT), TCP_CONNECTED);
}
END_TEST

static Suite *suite(const char *skip_reason)
{
    Suite *result = suite_create("fault network.partition");
    TCase *pure = tcase_create("parameters");
    TCase *real = tcase_create("real network");

    tcase_add_loop_test(pure, wrong_parameters_are_refused, 0,
                        (int) (sizeof wrong / sizeof wrong[0]));
    suite_add_tcase(result, pure);
    tcase_add_checked_fixture(real, setup, teardown);
    tcase_set_timeout(real, 60);
    tcase_add_test(real, what_cannot_be_cut_is_refused);
    tcase_add_test(real, a_peer_without_an_address_is_refused);
    tcase_add_loop_test(real, one_peer_is_cut_off, 0, SHAPES);
    tcase_add_test(real, rejected_at_home_is_refused_at_once);
    tcase_add_test(real, connections_fall_silent_and_go_on);
    tcase_add_loop_test(real, the_control_connection_is_exempt, 0, SHAPES);
    tcase_add_test(real, one_port_alone);
    tcase_add_test(real, a_rule_that_matches_nothing_is_found_out);
    tcase_add_test(real, an_emptied_table_is_found_out);
    tcase_add_test(real, silence_alone_proves_nothing);
    tcase_add_test(real, nobody_elses_rules_are_touched);
    tcase_add_test(real, a_record_that_names_a_foreign_table_is_refused);
    tcase_add_test(real, peers_of_version_6);
    if (skip_reason == NULL)
        suite_add_tcase(result, real);
    else
        printf("not run in a real network: %s\n", skip_reason);
    return result;
}

int main(void)
{
    const char *skip_reason = throwaway_isolate();

    if (skip_reason == NULL)
        net_hub_up();
    SRunner *runner = srunner_create(suite(skip_reason));

    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
