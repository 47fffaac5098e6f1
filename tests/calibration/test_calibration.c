/* SPDX-License-Identifier: MIT */
/*
 * Calibration: a known defect is planted into a whole run, and the report must find exactly it.
 * One row a defect; the table that is printed says what was planted, what was expected and what
 * was found. Neighbours that must not be found stand beside the defects.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/reports/report.h"
#include "tests/support/run_builder.h"
#include "tests/support/suite.h"

struct calibration {
    const char *planted;
    struct run_plan plan;
    void (*plant)(struct run_builder *run);
    enum run_verdict verdict;
    const char *check; /* that must decide; NULL: the run itself */
    enum verdict finding;
    const char *column; /* of the ledger; NULL: none */
    int64_t count;
    const char *words; /* in the check's text, or in the run's reasons */
};

/* --- defects ---------------------------------------------------------------------------------- */

static void acked_row_deleted(struct run_builder *run)
{
    run_absent(run, NULL, 1, 100);
}

static void aborted_row_inserted(struct run_builder *run)
{
    run_present(run, NULL, RUN_DIRECT_N3, run_first(run, RUN_DIRECT_N3, LEDGER_ABORTED));
}

static void unsent_row_inserted(struct run_builder *run)
{
    run_present(run, NULL, 1, run_first(run, 1, LEDGER_UNSENT));
}

static void row_doubled(struct run_builder *run)
{
    run_odd(run, NULL, 1, 100, 2, 1, 0);
}

static void row_torn(struct run_builder *run)
{
    run_odd(run, NULL, 1, 100, 2, 3, 0);
}

static void row_rewritten(struct run_builder *run)
{
    run_odd(run, NULL, 1, 100, 1, 1, 1);
}

static void unknown_rows(struct run_builder *run)
{
    for (uint64_t seq = 1; seq <= 5; seq++)
        run_present(run, NULL, 4242, seq);
}

/* The tokens of the last 50 ms before the kill lie behind the fork, and are gone. */
static void lose_tail(struct run_builder *run, uint8_t class)
{
    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (record->kind != LEDGER_OUTCOME || record->class != LEDGER_ACKED ||
            record->client > RUN_WORKLOAD || record->timeline != 1 ||
            record->scheduled_ns < run_client_ns(RUN_FAULT_MS - 50))
            continue;
        record->class = class;
        run_absent(run, NULL, record->client, record->seq);
    }
    json_t *history = json_array_get(json_object_get(run_find(run, "timeline"), "history"), 0);
    char lsn[32];
    snprintf(lsn, sizeof lsn, "0/%llX", (unsigned long long) run_lsn(RUN_FAULT_MS - 50));
    json_object_set_new(history, "lsn", json_string(lsn));
}

/* What else was written behind that fork is taken out of the ledger's way: probes and direct. */
static void probes_lose_their_tail(struct run_builder *run)
{
    for (size_t ledger = 0; ledger < 2; ledger++)
        for (size_t i = 0; i < run->ledgers[ledger].count; i++) {
            struct ledger_record *record = &run->ledgers[ledger].records[i];
            if (record->kind != LEDGER_OUTCOME || record->class != LEDGER_ACKED ||
                record->client <= RUN_WORKLOAD || record->timeline != 1 ||
                record->scheduled_ns < run_client_ns(RUN_FAULT_MS - 50))
                continue;
            record->class = LEDGER_IN_DOUBT;
            run_absent(run, NULL, record->client, record->seq);
        }
}

static void acked_tail_lost(struct run_builder *run)
{
    lose_tail(run, LEDGER_ACKED);
    probes_lose_their_tail(run);
}

static void weak_tail_lost(struct run_builder *run)
{
    lose_tail(run, LEDGER_WEAK);
    probes_lose_their_tail(run);
}

/* One of the tail came through: what is gone is not the tail. */
static void tail_lost_but_one(struct run_builder *run)
{
    acked_tail_lost(run);
    run_present(run, NULL, 1, run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS));
}

static void effect_absent(struct run_builder *run)
{
    json_object_set_new(json_object_get(run_find(run, "fault.injected"), "effect"), "state",
                        json_string("absent"));
}

static void worker_died(struct run_builder *run)
{
    for (size_t i = 0; i < run->ledgers[1].count; i++)
        if (run->ledgers[1].records[i].done_ns > run_client_ns(6000)) {
            run->ledgers[1].count = i;
            return;
        }
}

static void present_set_cut_off(struct run_builder *run)
{
    run->present[1].cut = true;
}

static void standby_lacks_a_row(struct run_builder *run)
{
    run_absent(run, "n3", 2, 50);
}

static void bound_by(struct run_builder *run, int64_t max_ms)
{
    json_t *scenario = json_object_get(run_find(run, "run.start"), "scenario");
    json_t *params = json_pack("{s:I}", "max", (json_int_t) max_ms);

    json_object_set_new(json_object_get(scenario, "checks"), "failover-time", params);
}

static void bound_of_1500_ms(struct run_builder *run)
{
    bound_by(run, 1500);
}

static void bound_of_2000_ms(struct run_builder *run)
{
    bound_by(run, 2000);
}

/* Both standbys froze, and writes stalled as they should. */
static void stall_expected(struct run_builder *run)
{
    json_t *scenario = json_object_get(run_find(run, "run.start"), "scenario");
    json_t *step = json_array_get(json_object_get(scenario, "method"), 0);

    json_object_set_new(json_object_get(step, "expect"), "writes", json_string("stall"));
    bound_by(run, 1000);
}

/* In the middle of the outage the old primary acknowledges two writes behind the fork. */
static void branch_answers(struct run_builder *run)
{
    for (int64_t at_ms = 5900; at_ms <= 5905; at_ms += 5)
        run_record(run, 0,
                   (struct ledger_record){.kind = LEDGER_OUTCOME,
                                          .class = LEDGER_ACKED,
                                          .phase = LEDGER_COMMITTING,
                                          .client = 1,
                                          .seq = 90000 + (uint64_t) at_ms,
                                          .scheduled_ns = run_client_ns(at_ms),
                                          .sent_ns = run_client_ns(at_ms),
                                          .done_ns = run_client_ns(at_ms + 1),
                                          .lsn = run_lsn(at_ms),
                                          .timeline = 1});
    bound_by(run, 1500);
}

static void nothing(struct run_builder *run)
{
    (void) run;
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct calibration calibrations[] = {
    {"nothing", {0}, nothing, RUN_PASS, "durability", VERDICT_PASS, "lost", 0, "lost 0"},
    {"acked row deleted",
     {0},
     acked_row_deleted,
     RUN_FAIL,
     "durability",
     VERDICT_FAIL,
     "lost",
     1,
     "CORRUPTION"},
    {"acked tail lost with the primary",
     {0},
     acked_tail_lost,
     RUN_FAIL,
     "durability",
     VERDICT_FAIL,
     "lost",
     20,
     "exactly the tail"},
    {"the tail lost but for one row",
     {0},
     tail_lost_but_one,
     RUN_FAIL,
     "durability",
     VERDICT_FAIL,
     "lost",
     19,
     "CORRUPTION: not the tail"},
    {"tail acknowledged below the promise",
     {.level = LEDGER_LOCAL},
     acked_tail_lost,
     RUN_FAIL,
     "durability",
     VERDICT_FAIL,
     "below_promise_lost",
     20,
     "synchronous_commit = local"},
    {"weak tail lost",
     {0},
     weak_tail_lost,
     RUN_PASS,
     "durability",
     VERDICT_PASS,
     "weak_lost",
     20,
     "weak 20 (20 lost)"},
    {"aborted row inserted",
     {0},
     aborted_row_inserted,
     RUN_FAIL,
     "durability",
     VERDICT_FAIL,
     "resurrected",
     1,
     "aborted or unsent"},
    {"unsent row inserted",
     {0},
     unsent_row_inserted,
     RUN_FAIL,
     "durability",
     VERDICT_FAIL,
     "resurrected",
     1,
     "aborted or unsent"},
    {"row doubled",
     {0},
     row_doubled,
     RUN_FAIL,
     "durability",
     VERDICT_FAIL,
     "duplicate",
     1,
     "1 duplicate"},
    {"one of three rows missing",
     {0},
     row_torn,
     RUN_FAIL,
     "durability",
     VERDICT_FAIL,
     "torn",
     1,
     "1 torn"},
    {"row rewritten",
     {0},
     row_rewritten,
     RUN_FAIL,
     "durability",
     VERDICT_FAIL,
     "garbage",
     1,
     "1 garbage"},
    {"rows nobody sent",
     {0},
     unknown_rows,
     RUN_FAIL,
     "durability",
     VERDICT_FAIL,
     "garbage",
     5,
     "5 garbage"},
    {"standby lacks a row",
     {0},
     standby_lacks_a_row,
     RUN_FAIL,
     "durability",
     VERDICT_FAIL,
     "standby_differences",
     1,
     "n3 lacks 1"},
    {"present set cut off",
     {0},
     present_set_cut_off,
     RUN_INCONCLUSIVE,
     "durability",
     VERDICT_INCONCLUSIVE,
     NULL,
     0,
     "cut off"},
    {"idle cluster",
     {.load_from_ms = RUN_END_MS - 1},
     nothing,
     RUN_INCONCLUSIVE,
     "durability",
     VERDICT_INCONCLUSIVE,
     NULL,
     0,
     "too little was at stake"},
    {"two writers, 200 ms",
     {.old_writer_until = 7000},
     nothing,
     RUN_FAIL,
     "single-writer",
     VERDICT_FAIL,
     NULL,
     0,
     "n1 (timeline 1) accepted 10 writes"},
    {"two writers, one after the other",
     {.old_writer_until = 6800},
     nothing,
     RUN_PASS,
     "single-writer",
     VERDICT_PASS,
     NULL,
     0,
     "n2 on timeline 2"},
    {"direct probes stand still",
     {.blind_from = 8000, .blind_until = 8400},
     nothing,
     RUN_INCONCLUSIVE,
     "single-writer",
     VERDICT_INCONCLUSIVE,
     NULL,
     0,
     "stood still"},
    {"worker of the direct probes died",
     {0},
     worker_died,
     RUN_INCONCLUSIVE,
     "single-writer",
     VERDICT_INCONCLUSIVE,
     NULL,
     0,
     "stood still"},
    {"beats missing across the outage",
     {.blind_from = 6600, .blind_until = 7000},
     nothing,
     RUN_INCONCLUSIVE,
     "failover-time",
     VERDICT_INCONCLUSIVE,
     NULL,
     0,
     "across the outage"},
    {"failover never comes",
     {.never_back = true},
     nothing,
     RUN_FAIL,
     "failover-time",
     VERDICT_FAIL,
     NULL,
     0,
     "did not happen"},
    {"workload stopped before the fault",
     {.load_until_ms = 4000},
     nothing,
     RUN_INCONCLUSIVE,
     "failover-time",
     VERDICT_INCONCLUSIVE,
     NULL,
     0,
     "no work was scheduled"},
    {"two failovers, both in time",
     {.second_ms = 8000},
     bound_of_2000_ms,
     RUN_PASS,
     "failover-time",
     VERDICT_PASS,
     NULL,
     0,
     "slowest of 2"},
    {"two failovers, the first too late",
     {.second_ms = 8000},
     bound_of_1500_ms,
     RUN_FAIL,
     "failover-time",
     VERDICT_FAIL,
     NULL,
     0,
     "over the bound"},
    {"a stall, then a failover in time",
     {.no_failover = true, .stall = true, .second_ms = 8000},
     stall_expected,
     RUN_PASS,
     "failover-time",
     VERDICT_PASS,
     NULL,
     0,
     "failover 0.90"},
    {"a stall, then a failover too late",
     {.no_failover = true, .stall = true, .second_ms = 8000, .second_outage_ms = 1200},
     stall_expected,
     RUN_FAIL,
     "failover-time",
     VERDICT_FAIL,
     NULL,
     0,
     "over the bound"},
    {"an abandoned branch answers in the outage",
     {0},
     branch_answers,
     RUN_FAIL,
     "failover-time",
     VERDICT_FAIL,
     NULL,
     0,
     "over the bound"},
    {"fault without effect",
     {0},
     effect_absent,
     RUN_INCONCLUSIVE,
     NULL,
     VERDICT_PASS,
     NULL,
     0,
     "did not bite"},
};

static const struct report_check *find(const struct report *report, const char *name)
{
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(report->checks[i].check->name, name) == 0)
            return &report->checks[i];
    ck_abort_msg("no check %s", name);
}

static void print_row(const struct calibration *row, const struct report *report,
                      const struct report_check *check, int64_t count)
{
    char expected[64];
    char found[64];

    snprintf(expected, sizeof expected, "%s %s", run_verdict_name(row->verdict),
             row->column == NULL ? "" : row->column);
    snprintf(found, sizeof found, "%s %s", run_verdict_name(report->verdict),
             check == NULL ? "did not bite" : check->check->name);
    fprintf(stderr, "%-36s expected %-32s %4lld  found %-28s %4lld\n", row->planted, expected,
            (long long) row->count, found, (long long) count);
}

static int64_t column(const struct report *report, const char *name)
{
    return name == NULL ? 0 : json_number(report_detail(report, "durability", "ledger"), name, -1);
}

START_TEST(planted)
{
    const struct calibration *row = &calibrations[_i];
    struct run_builder *run = run_standard(&row->plan);
    OWNED_ARENA struct arena *arena = arena_new();
    struct report *report = NULL;
    struct error err = {0};

    row->plant(run);
    run_write(run);
    ck_assert_msg(report_new(arena, run->folder, &report, &err) == STATUS_OK, "%s", err.message);
    const struct report_check *check = row->check == NULL ? NULL : find(report, row->check);
    const char *text = check == NULL ? reasons_text(&report->reasons) : check->result.text;
    print_row(row, report, check, column(report, row->column));
    ck_assert_msg(report->verdict == row->verdict, "%s: the run is %s: %s", row->planted,
                  run_verdict_name(report->verdict), text);
    if (check != NULL)
        ck_assert_msg(check->result.verdict == row->finding, "%s: %s", row->planted, text);
    ck_assert_msg(strstr(text, row->words) != NULL, "%s: no \"%s\" in: %s", row->planted,
                  row->words, text);
    ck_assert_int_eq(column(report, row->column), row->count);
    report_free(report);
    run_free(run);
}
END_TEST

/* Every check has a row in which it must fail, or says where its negative control is. */
START_TEST(every_check_has_a_negative_control)
{
    const struct check *const *list = check_list();

    for (; *list != NULL; list++) {
        char path[128];
        snprintf(path, sizeof path, "%.*s", (int) strcspn((*list)->negative_control, ":"),
                 (*list)->negative_control);
        ck_assert_msg(access(path, R_OK) == 0, "%s: no file %s", (*list)->name, path);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("calibration");
    TCase *cases = tcase_create("planted");

    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, planted, 0, sizeof calibrations / sizeof calibrations[0]);
    tcase_add_test(cases, every_check_has_a_negative_control);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
