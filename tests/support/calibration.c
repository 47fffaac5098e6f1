/* SPDX-License-Identifier: MIT */
#include "tests/support/calibration.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"

static const struct calibration *the_rows; /* Check hands a test nothing but an index */

static const struct report_check *find(const struct report *report, const char *name)
{
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(report->checks[i].check->name, name) == 0)
            return &report->checks[i];
    ck_abort_msg("no check %s", name);
}

static int64_t column_of(const struct report *report, const char *name)
{
    return json_number(report_detail(report, "durability", "ledger"), name, -1);
}

/* "fail durability, lost 20" */
static const char *finding(char text[96], const char *verdict, const struct calibration *row,
                           int64_t count)
{
    int used = snprintf(text, 96, "%s, %s", row->check == NULL ? "run" : row->check, verdict);

    if (row->column != NULL)
        snprintf(text + used, 96 - (size_t) used, ", %s %lld", row->column, (long long) count);
    return text;
}

static void print_row(const struct calibration *row, const char *verdict, int64_t count)
{
    const char *expected =
        row->check == NULL ? run_verdict_name(row->verdict) : verdict_name(row->finding);
    char texts[2][96];

    fprintf(stderr, "table: %-56s %-44s %s\n", row->planted,
            finding(texts[0], expected, row, row->count), finding(texts[1], verdict, row, count));
}

static void judge_row(const struct calibration *row, const struct report *report)
{
    const struct report_check *check = row->check == NULL ? NULL : find(report, row->check);
    const char *text = check == NULL ? reasons_text(&report->reasons) : check->result.text;
    const char *verdict =
        check == NULL ? run_verdict_name(report->verdict) : verdict_name(check->result.verdict);
    int64_t count = row->column == NULL ? 0 : column_of(report, row->column);

    print_row(row, verdict, count);
    ck_assert_msg(report->verdict == row->verdict, "%s: the run is %s (%s): %s", row->planted,
                  run_verdict_name(report->verdict), reasons_text(&report->reasons), text);
    if (check != NULL)
        ck_assert_msg(check->result.verdict == row->finding, "%s: %s", row->planted, text);
    ck_assert_msg(strstr(text, row->words) != NULL, "%s: no \"%s\" in: %s", row->planted,
                  row->words, text);
    ck_assert_msg(count == row->count, "%s: %s is %lld: %s", row->planted, row->column,
                  (long long) count, text);
}

START_TEST(planted)
{
    const struct calibration *row = &the_rows[_i];
    struct run_builder *run = run_standard(&row->plan);
    OWNED_ARENA struct arena *arena = arena_new();
    struct report *report = NULL;
    struct error err = {0};

    if (row->plant != NULL)
        row->plant(run);
    run_write(run);
    ck_assert_msg(report_new(arena, run->folder, &report, &err) == STATUS_OK, "%s", err.message);
    judge_row(row, report);
    report_free(report);
    run_free(run);
}
END_TEST

int calibrate(const char *name, const struct calibration *rows, size_t count)
{
    Suite *suite = suite_create(name);
    TCase *cases = tcase_create("planted");

    the_rows = rows;
    fprintf(stderr, "table: %-56s %-44s %s\n", "PLANTED", "EXPECTED", "FOUND AS");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, planted, 0, (int) count);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
