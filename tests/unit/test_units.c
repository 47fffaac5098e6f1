/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stdlib.h>

#include "lib/units.h"

struct row {
    const char *text;
    int64_t value; /* -1: must be refused */
};

static const struct row durations[] = {
    {"0", 0},
    {"0s", 0},
    {"500ms", 500},
    {"30s", 30000},
    {"5m", 300000},
    {"2h", 7200000},
    {"1.5s", 1500},
    {"0.001s", 1},
    {"1.50s", 1500},
    {"30", -1},
    {"", -1},
    {"s", -1},
    {"-1s", -1},
    {"1 s", -1},
    {"1s ", -1},
    {"1.5ms", -1},
    {"1.s", -1},
    {".5s", -1},
    {"1sec", -1},
    {"9223372036854775807h", -1},
    {"99999999999999999999s", -1},
    {"1e3s", -1},
    {"+1s", -1},
    {"0.0005s", -1},
    {"1d", -1},
    {"0x10s", -1},
    {"00010s", 10000},
};

START_TEST(duration)
{
    const struct row *row = &durations[_i];
    struct error err = {0};
    int64_t value = -7;
    enum status status = units_duration(row->text, &value, &err);

    if (row->value < 0) {
        ck_assert_int_eq(status, STATUS_INVALID);
        ck_assert_int_eq(value, -7);
        ck_assert_ptr_nonnull(strstr(err.message, row->text));
    } else {
        ck_assert_msg(status == STATUS_OK, "%s: %s", row->text, err.message);
        ck_assert_int_eq(value, row->value);
    }
}
END_TEST

static const struct row sizes[] = {
    {"0", 0},
    {"4096B", 4096},
    {"512KiB", 524288},
    {"64MiB", 67108864},
    {"1GiB", 1073741824},
    {"0.5KiB", 512},
    {"1.5GiB", 1610612736},
    {"64MB", -1},
    {"64", -1},
    {"1TiB", INT64_C(1) << 40},
    {"9999999999TiB", -1},
    {"0.3B", -1},
};

START_TEST(size)
{
    const struct row *row = &sizes[_i];
    struct error err = {0};
    int64_t value = -7;
    enum status status = units_size(row->text, &value, &err);

    ck_assert_int_eq(status, row->value < 0 ? STATUS_INVALID : STATUS_OK);
    ck_assert_int_eq(value, row->value < 0 ? -7 : row->value);
}
END_TEST

START_TEST(rates_and_percentages)
{
    struct error err = {0};
    double value = -7;

    ck_assert_int_eq(units_rate("100/s", &value, &err), STATUS_OK);
    ck_assert_double_eq_tol(value, 100, 1e-9);
    ck_assert_int_eq(units_rate("6/m", &value, &err), STATUS_OK);
    ck_assert_double_eq_tol(value, 0.1, 1e-9);
    ck_assert_int_eq(units_rate("2.5/s", &value, &err), STATUS_OK);
    ck_assert_double_eq_tol(value, 2.5, 1e-9);
    ck_assert_int_eq(units_percentage("80%", &value, &err), STATUS_OK);
    ck_assert_double_eq_tol(value, 80, 1e-9);
    static const char *const wrong[] = {"100", "100/h", "/s", "-1/s", "80", "%", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_int_eq(units_rate(wrong[i], &value, &err), STATUS_INVALID);
        ck_assert_int_eq(units_percentage(wrong[i], &value, &err), STATUS_INVALID);
    }
    ck_assert_double_eq_tol(value, 80, 1e-9);
}
END_TEST

START_TEST(integers)
{
    struct error err = {0};
    int64_t value = -7;

    ck_assert_int_eq(units_integer("9223372036854775807", &value, &err), STATUS_OK);
    ck_assert_int_eq(value, INT64_MAX);
    static const char *const wrong[] = {"9223372036854775808", "-1", "1.0", "1k", "", " 1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_int_eq(units_integer(wrong[i], &value, &err), STATUS_INVALID);
    ck_assert_int_eq(value, INT64_MAX);
}
END_TEST

START_TEST(missing_unit_has_a_hint)
{
    struct error err = {0};
    int64_t value;

    ck_assert_int_eq(units_duration("30", &value, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "unit is missing"));
    ck_assert_ptr_nonnull(strstr(err.hint, "30s"));
}
END_TEST

/* What is written is read back as the same value. */
START_TEST(texts_round_trip)
{
    static const int64_t values[] = {0,    1,     250,   999,     1000,    1500,   1520,
                                     1523, 60000, 90000, 3600000, 5400000, 120500, 7200001};
    struct error err = {0};
    char text[32];

    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        int64_t value = -1;

        units_duration_text(values[i], text, sizeof text);
        ck_assert_int_eq(units_duration(text, &value, &err), STATUS_OK);
        ck_assert_int_eq(value, values[i]);
        units_size_text(values[i], text, sizeof text);
        ck_assert_int_eq(units_size(text, &value, &err), STATUS_OK);
        ck_assert_int_eq(value, values[i]);
    }
    ck_assert_str_eq(units_duration_text(1500, text, sizeof text), "1.5s");
    ck_assert_str_eq(units_duration_text(120000, text, sizeof text), "2m");
    ck_assert_str_eq(units_duration_text(90000, text, sizeof text), "90s");
    ck_assert_str_eq(units_duration_text(250, text, sizeof text), "250ms");
    ck_assert_str_eq(units_size_text(67108864, text, sizeof text), "64MiB");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("units");
    TCase *units = tcase_create("units");

    tcase_add_loop_test(units, duration, 0, sizeof durations / sizeof durations[0]);
    tcase_add_loop_test(units, size, 0, sizeof sizes / sizeof sizes[0]);
    tcase_add_test(units, rates_and_percentages);
    tcase_add_test(units, integers);
    tcase_add_test(units, missing_unit_has_a_hint);
    tcase_add_test(units, texts_round_trip);
    suite_add_tcase(suite, units);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
