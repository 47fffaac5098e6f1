/* SPDX-License-Identifier: MIT */
/*
 * The contract of faults/fault.h, held against every fault that is registered, on real processes
 * and a real network in namespaces of the test's own.
 *
 * A new fault needs one line in `targets`: parameters with which it can be injected here. The node
 * of the test is n1 (10.9.0.1); it runs a PostgreSQL, has the peer n2 (10.9.0.2) and a power driver
 * for n2.
 */
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "faults/fault.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "tests/support/fake_power.h"
#include "tests/support/fault_drive.h"
#include "tests/support/net_lab.h"
#include "tests/support/throwaway_postgres.h"

enum { AGENT_PORT = 7432 };

static const struct {
    const char *fault, *params;
} targets[] = {
    {"process.kill", "{'process': 'everything'}"},
    {"process.freeze", "{'process': 'everything'}"},
    {"network.partition", "{'peers': ['n2']}"},
    {"node.crash", "{'node': 'n2'}"},
};

static const struct fault_peer peers[] = {
    {"n1", "10.9.0.1"}, {"n2", "10.9.0.2"}, {"p1", "10.9.0.254"}};
static struct throwaway server;
static struct net_node n2;
static struct fake_power power;
static struct fault_context context;
static int agent;

static void setup(void)
{
    throwaway_start(&server);
    net_node_up(&n2, 2);
    net_listen(&n2, AGENT_PORT);
    agent = net_listen(NULL, AGENT_PORT);
    power = (struct fake_power){.node = &n2, .name = "n2", .port = AGENT_PORT};
    context = (struct fault_context){.node = "n1",
                                     .uid = "test-contract-1",
                                     .deadline_ns = deadline_in_ms(30000),
                                     .data_directory = server.data,
                                     .database_port = THROWAWAY_PORT,
                                     .control_address = "10.9.0.254",
                                     .control_port = AGENT_PORT,
                                     .peer_count = sizeof peers / sizeof peers[0],
                                     .peers = peers,
                                     .power = fake_power,
                                     .argument = &power};
}

static void teardown(void)
{
    drive_done();
    close(agent);
    net_node_down(&n2);
    throwaway_stop(&server);
}

static const char *target_of(const struct fault *fault)
{
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        if (strcmp(targets[i].fault, fault->name) == 0)
            return targets[i].params;
    ck_abort_msg("%s has no line in `targets`", fault->name);
}

static json_t *prepared(const struct fault *fault)
{
    return drive_prepare(fault, &context, target_of(fault));
}

/* --- what needs no target -------------------------------------------------------------------- */

static bool is_name(const char *name)
{
    const char *dot = strchr(name, '.');

    return dot != NULL && dot != name && dot[1] != '\0' &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz.-")] == '\0';
}

static bool is_line(const char *text)
{
    return text != NULL && *text != '\0' && text[strlen(text) - 1] != '.' &&
           strchr(text, '\n') == NULL;
}

START_TEST(the_descriptor_is_complete)
{
    const struct fault *fault = fault_list()[_i];

    ck_assert_int_eq(fault->abi, FAULT_ABI);
    ck_assert_msg(is_name(fault->name), "%s", fault->name);
    ck_assert_ptr_eq(fault_find(fault->name), fault);
    ck_assert(is_line(fault->summary) && is_line(fault->loses));
    ck_assert_msg(fault->reversible || is_line(fault->restores), "what restores service?");
    ck_assert(fault->supported != NULL && fault->prepare != NULL && fault->inject != NULL &&
              fault->observe != NULL && fault->undo != NULL && fault->params != NULL);
    for (const struct param *param = fault->params; param->type != PARAM_END; param++)
        ck_assert_msg(is_line(param->help), "%s %s", fault->name, param->name);
}
END_TEST

START_TEST(it_is_found_under_its_name)
{
    const struct fault *fault = fault_list()[_i];
    char path[128];

    snprintf(path, sizeof path, "docs/faults/%s.md", fault->name);
    ck_assert_msg(access(path, R_OK) == 0, "%s is missing", path);
    snprintf(path, sizeof path, "faults/%s.c", fault->name);
    for (char *c = path + strlen("faults/"); c[2] != '\0'; c++)
        if (*c == '.' || *c == '-')
            *c = '_';
    ck_assert_msg(access(path, R_OK) == 0, "%s is missing", path);
}
END_TEST

static void expect_invalid(const struct fault *fault, json_t *params, const char *word)
{
    struct error err = {0};

    ck_assert_int_eq(fault_validate(fault, params, &err), STATUS_INVALID);
    ck_assert_msg(strstr(err.message, word) != NULL, "\"%s\" does not name %s", err.message, word);
    ck_assert_msg(strstr(err.message, fault->name) != NULL, "\"%s\"", err.message);
}

START_TEST(bad_parameters_are_refused_by_name)
{
    const struct fault *fault = fault_list()[_i];

    OWNED_JSON json_t *unknown = drive_params(fault, target_of(fault));
    json_object_set_new(unknown, "no-such-parameter", json_true());
    expect_invalid(fault, unknown, "no-such-parameter");
    for (const struct param *param = fault->params; param->type != PARAM_END; param++) {
        OWNED_JSON json_t *params = drive_params(fault, target_of(fault));
        json_object_set_new(params, param->name, json_object());
        expect_invalid(fault, params, param->name);
        if (!param->required)
            continue;
        json_object_del(params, param->name);
        expect_invalid(fault, params, param->name);
    }
}
END_TEST

START_TEST(a_record_that_is_none_is_refused)
{
    const struct fault *fault = fault_list()[_i];
    OWNED_JSON json_t *empty = json_object();
    struct observation observation = {0};
    struct error err = {0};
    struct fault_context bare = {.node = "n1", .uid = "x", .deadline_ns = deadline_in_ms(1000)};

    ck_assert_int_eq(fault->inject(&bare, empty, &err), STATUS_INVALID);
    ck_assert_int_eq(fault->observe(&bare, empty, &observation, &err), STATUS_INVALID);
    ck_assert_int_eq(fault->undo(&bare, empty, &err), STATUS_INVALID);
    ck_assert_int_ne(err.message[0], '\0');
}
END_TEST

/* --- the life of a fault --------------------------------------------------------------------- */

START_TEST(prepare_changes_nothing)
{
    const struct fault *fault = fault_list()[_i];
    OWNED_JSON json_t *record = prepared(fault);

    drive_expect(fault, &context, record, EFFECT_ABSENT);
    PQfinish(throwaway_connect(&server));
    ck_assert_int_eq(net_call(&n2, "10.9.0.1", AGENT_PORT), TCP_CONNECTED);
    ck_assert_int_eq(net_call(NULL, "10.9.0.2", AGENT_PORT), TCP_CONNECTED);
}
END_TEST

START_TEST(undo_without_inject_is_fine_and_harmless)
{
    const struct fault *fault = fault_list()[_i];
    OWNED_JSON json_t *record = prepared(fault);

    drive_undo(fault, &context, record);
    drive_undo(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
    PQfinish(throwaway_connect(&server));
    ck_assert_int_eq(net_call(NULL, "10.9.0.2", AGENT_PORT), TCP_CONNECTED);
    ck_assert_int_eq(power.offs + power.cuts, 0);
    /* an undo may ask for power that is there: a slow "off" may still be on its way */
    ck_assert(power.ons == 0 || fault->executor == EXECUTE_POWER);
}
END_TEST

/* An instant has no end: what it did is still seen after its (empty) undo. */
static enum effect effect_after_undo(const struct fault *fault)
{
    return fault->holds ? EFFECT_ABSENT : EFFECT_ACTIVE;
}

START_TEST(it_bites_and_is_undone)
{
    const struct fault *fault = fault_list()[_i];
    OWNED_JSON json_t *record = prepared(fault);

    drive_inject(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    drive_expect(fault, &context, record, EFFECT_ACTIVE); /* looking does not change it */
    drive_undo(fault, &context, record);
    drive_expect(fault, &context, record, effect_after_undo(fault));
    drive_undo(fault, &context, record);
    drive_expect(fault, &context, record, effect_after_undo(fault));
    if (fault->reversible)
        PQfinish(throwaway_connect(&server));
}
END_TEST

/* As the guardian's helper does it after a crash: nothing is known but the record and the power. */
START_TEST(undo_needs_only_the_record)
{
    const struct fault *fault = fault_list()[_i];
    OWNED_JSON json_t *record = prepared(fault);
    struct fault_context bare = {.node = "n1",
                                 .uid = context.uid,
                                 .deadline_ns = context.deadline_ns,
                                 .power = fake_power,
                                 .argument = &power};

    drive_inject(fault, &context, record);
    drive_undo(fault, &bare, record);
    drive_expect(fault, &bare, record, effect_after_undo(fault));
}
END_TEST

/* A record and its effect survive many looks by another node. */
START_TEST(a_witness_agrees)
{
    const struct fault *fault = fault_list()[_i];

    if (fault->witness == NULL)
        return;
    OWNED_JSON json_t *record = prepared(fault);
    struct fault_context other = context;
    other.node = fault->executor == EXECUTE_POWER ? "p1" : "n2";
    struct net_node *stands = fault->executor == EXECUTE_POWER ? NULL : &n2;
    drive_inject(fault, &context, record);
    int back = net_enter(stands);
    drive_expect_witness(fault, &other, record, EFFECT_ACTIVE);
    net_leave(back);
    drive_undo(fault, &context, record);
}
END_TEST

static Suite *suite(const char *skip_reason, int faults)
{
    Suite *result = suite_create("fault contract");
    TCase *pure = tcase_create("descriptors");
    TCase *real = tcase_create("life");

    tcase_add_loop_test(pure, the_descriptor_is_complete, 0, faults);
    tcase_add_loop_test(pure, it_is_found_under_its_name, 0, faults);
    tcase_add_loop_test(pure, bad_parameters_are_refused_by_name, 0, faults);
    tcase_add_loop_test(pure, a_record_that_is_none_is_refused, 0, faults);
    suite_add_tcase(result, pure);
    tcase_add_checked_fixture(real, setup, teardown);
    tcase_set_timeout(real, 60);
    tcase_add_loop_test(real, prepare_changes_nothing, 0, faults);
    tcase_add_loop_test(real, undo_without_inject_is_fine_and_harmless, 0, faults);
    tcase_add_loop_test(real, it_bites_and_is_undone, 0, faults);
    tcase_add_loop_test(real, undo_needs_only_the_record, 0, faults);
    tcase_add_loop_test(real, a_witness_agrees, 0, faults);
    if (skip_reason == NULL)
        suite_add_tcase(result, real);
    else
        printf("not run with real targets: %s\n", skip_reason);
    return result;
}

int main(void)
{
    const char *skip_reason = throwaway_isolate();
    int faults = 0;

    while (fault_list()[faults] != NULL)
        faults++;
    if (skip_reason == NULL)
        net_hub_up();
    SRunner *runner = srunner_create(suite(skip_reason, faults));
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
