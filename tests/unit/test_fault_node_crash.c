/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "faults/fault.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "tests/support/fake_power.h"
#include "tests/support/fault_drive.h"
#include "tests/support/net_lab.h"
#include "tests/support/throwaway_postgres.h"

extern const struct fault fault_node_crash;

enum { AGENT_PORT = 7432, DATABASE_PORT = 5432 };

static const struct fault *const fault = &fault_node_crash;
static const struct fault_peer peers[] = {
    {"p1", "10.9.0.1"}, {"n2", "10.9.0.2"}, {"c1", "10.9.0.3"}};
static struct net_node n2, c1;
static struct fake_power power;
static struct fault_context context = {.node = "p1",
                                       .uid = "test-crash",
                                       .control_port = AGENT_PORT,
                                       .database_port = DATABASE_PORT,
                                       .peer_count = 3,
                                       .peers = peers,
                                       .power = fake_power,
                                       .argument = &power};
static const struct fault_context client = {.node = "c1", .uid = "test-crash"};

static void setup(void)
{
    net_node_up(&n2, 2);
    net_node_up(&c1, 3);
    net_listen(&n2, AGENT_PORT);
    power = (struct fake_power){.node = &n2, .name = "n2", .port = AGENT_PORT};
    context.deadline_ns = deadline_in_ms(20000);
}

static void teardown(void)
{
    drive_done();
    net_node_down(&n2);
    net_node_down(&c1);
}

static void expect_witness(const json_t *record, enum effect effect)
{
    int back = net_enter(&c1);

    drive_expect_witness(fault, &client, record, effect);
    net_leave(back);
}

START_TEST(wrong_parameters_are_refused)
{
    static const char *const wrong[] = {"{\"cut\": \"perhaps\"}", "{\"node\": 3}",
                                        "{\"nod\": \"n2\"}"};
    struct error err = {0};

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        OWNED_JSON json_t *params = json_loads(wrong[i], 0, NULL);
        ck_assert_ptr_nonnull(params);
        ck_assert_int_eq(fault_validate(fault, params, &err), STATUS_INVALID);
    }
}
END_TEST

static void expect_prepare_fails(const char *params_text, enum status expected, const char *word)
{
    OWNED_JSON json_t *params = drive_params(fault, params_text);
    struct error err = {0};
    json_t *record = NULL;

    ck_assert_int_eq(fault->prepare(&context, params, &record, &err), expected);
    ck_assert_msg(strstr(err.message, word) != NULL, "%s", err.message);
    ck_assert_ptr_null(record);
}

START_TEST(impossible_nodes_are_refused)
{
    expect_prepare_fails("{}", STATUS_INVALID, "node");
    expect_prepare_fails("{'node': 'n9'}", STATUS_INVALID, "n9");
    expect_prepare_fails("{'node': 'p1'}", STATUS_REFUSED, "p1");
}
END_TEST

START_TEST(no_power_driver_is_unsupported)
{
    OWNED_JSON json_t *params = drive_params(fault, "{'node': 'n2'}");
    struct fault_context without = context;
    struct error err = {0};

    without.power = NULL;
    ck_assert_int_eq(fault->supported(&without, params, &err), STATUS_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.hint, "power"));
}
END_TEST

START_TEST(off_and_on_again)
{
    bool cut = _i == 1;
    OWNED_JSON json_t *record =
        drive_prepare(fault, &context, cut ? "{'node': 'n2', 'cut': true}" : "{'node': 'n2'}");

    drive_expect(fault, &context, record, EFFECT_ABSENT);
    expect_witness(record, EFFECT_ABSENT);
    drive_inject(fault, &context, record);
    ck_assert_int_eq(power.offs, cut ? 0 : 1);
    ck_assert_int_eq(power.cuts, cut ? 1 : 0);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
    expect_witness(record, EFFECT_ACTIVE);
    drive_undo(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
    expect_witness(record, EFFECT_ABSENT);
    drive_undo(fault, &context, record);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
}
END_TEST

START_TEST(undo_without_inject_takes_nothing_away)
{
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'node': 'n2'}");

    drive_undo(fault, &context, record);
    ck_assert_int_eq(power.offs + power.cuts, 0);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
}
END_TEST

/* The node answers when the undo begins, and the driver has yet to carry out what it was told. */
START_TEST(a_late_off_does_not_outlive_the_undo)
{
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'node': 'n2'}");

    power.slow = true;
    drive_inject(fault, &context, record);
    ck_assert(power.pending);
    drive_undo(fault, &context, record);
    ck_assert(!power.pending);
    ck_assert_int_eq(power.ons, 1);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
}
END_TEST

/* The agent is dead and the machine is not: its kernel refuses, and that is no crash. */
START_TEST(a_refusal_is_a_sign_of_life)
{
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'node': 'n2'}");

    drive_inject(fault, &context, record);
    net_plug(&n2, true);
    while (net_call(NULL, "10.9.0.2", AGENT_PORT) != TCP_REFUSED)
        ck_assert(!deadline_passed(context.deadline_ns));
    drive_expect(fault, &context, record, EFFECT_ABSENT);
}
END_TEST

START_TEST(a_driver_that_fails_is_reported)
{
    OWNED_JSON json_t *record = drive_prepare(fault, &context, "{'node': 'n2'}");
    struct error err = {0};

    power.broken = true;
    ck_assert_int_eq(fault->inject(&context, record, &err), STATUS_FAILED);
    drive_expect(fault, &context, record, EFFECT_ABSENT);
    power.broken = false;
    drive_inject(fault, &context, record);
    power.broken = true;
    ck_assert_int_eq(fault->undo(&context, record, &err), STATUS_FAILED);
    drive_expect(fault, &context, record, EFFECT_ACTIVE);
}
END_TEST

static Suite *suite(const char *skip_reason)
{
    Suite *result = suite_create("fault node.crash");
    TCase *pure = tcase_create("parameters");
    TCase *real = tcase_create("real network");

    tcase_add_test(pure, wrong_parameters_are_refused);
    tcase_add_test(pure, impossible_nodes_are_refused);
    tcase_add_test(pure, no_power_driver_is_unsupported);
    suite_add_tcase(result, pure);
    tcase_add_checked_fixture(real, setup, teardown);
    tcase_set_timeout(real, 60);
    tcase_add_loop_test(real, off_and_on_again, 0, 2);
    tcase_add_test(real, undo_without_inject_takes_nothing_away);
    tcase_add_test(real, a_late_off_does_not_outlive_the_undo);
    tcase_add_test(real, a_refusal_is_a_sign_of_life);
    tcase_add_test(real, a_driver_that_fails_is_reported);
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
