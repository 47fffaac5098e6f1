/* SPDX-License-Identifier: MIT */
/* What a transaction's durability is worth is asked after everything that may change it. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/load_rig.h"

/* The durability in force is read with every transaction: a reload begins a new session record. */
START_TEST(changed_durability_is_recorded)
{
    load_rig_make_plan(false, "{\"clients\": 1, \"rate\": 100}", NULL);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 20, 10000);
    load_rig_execute("ALTER SYSTEM SET synchronous_commit = local");
    load_rig_execute("SELECT pg_reload_conf()");
    uint64_t before = load_rig_acked(0);
    await(load_rig_acked(0) >= before + 50, 10000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    enum ledger_level seen[2];
    size_t count = 0;
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_SESSION && count++ < 2)
            seen[count - 1] = (enum ledger_level) ledger.records[i].class;
    ck_assert_uint_eq(count, 2);
    ck_assert_int_eq(seen[0], LEDGER_ON);
    ck_assert_int_eq(seen[1], LEDGER_LOCAL);
    ledger_close(&ledger);
}
END_TEST

/* A trigger may set something for its transaction alone, and as late as at the commit. */
static void plant_trigger(const char *set)
{
    char sql[512];

    snprintf(sql, sizeof(sql),
             "CREATE FUNCTION ordeal.meddle() RETURNS trigger LANGUAGE plpgsql AS"
             " $$BEGIN PERFORM set_config(%s, true); RETURN NULL; END$$",
             set);
    load_rig_execute(sql);
    load_rig_execute("CREATE CONSTRAINT TRIGGER meddle AFTER INSERT ON ordeal.journal DEFERRABLE"
                     " INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ordeal.meddle()");
}

static enum ledger_level level_of_last_session(const struct ledger *ledger)
{
    enum ledger_level level = LEDGER_LEVEL_UNKNOWN;

    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->records[i].kind == LEDGER_SESSION)
            level = (enum ledger_level) ledger->records[i].class;
    return level;
}

START_TEST(a_deferred_trigger_weakens)
{
    plant_trigger("'synchronous_commit', 'local'");
    load_rig_make_plan(false, "{\"clients\": 2, \"rate\": 100}", NULL);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 20, 10000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    ck_assert_int_eq(level_of_last_session(&ledger), LEDGER_LOCAL);
    load_rig_check_against_table(&ledger);
    ledger_close(&ledger);
}
END_TEST

START_TEST(hidden_warnings_are_no_plain_acknowledgement)
{
    plant_trigger("'client_min_messages', 'error'");
    load_rig_make_plan(false, "{\"clients\": 2, \"rate\": 100}", NULL);
    load_rig_start_workers();
    await(atomic_load(&load_rig_shared->workers[0].errors) >= 20, 10000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    ck_assert_uint_ge(load_rig_count_class(&ledger, LEDGER_WEAK), 20);
    ck_assert_uint_eq(load_rig_count_class(&ledger, LEDGER_ACKED), 0);
    ck_assert_int_eq(level_of_last_session(&ledger), LEDGER_LEVEL_UNKNOWN);
    load_rig_check_against_table(&ledger);
    ledger_close(&ledger);
}
END_TEST

static Suite *suite(const char *skip_reason)
{
    Suite *result = suite_create("load in force");
    TCase *cases = load_rig_case(result, skip_reason);

    tcase_add_test(cases, changed_durability_is_recorded);
    tcase_add_test(cases, a_deferred_trigger_weakens);
    tcase_add_test(cases, hidden_warnings_are_no_plain_acknowledgement);
    return result;
}

int main(void)
{
    SRunner *runner = srunner_create(suite(throwaway_isolate()));

    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
