/* SPDX-License-Identifier: MIT */
/* Quantiles by nearest rank, and the place of a value in a sorted series. */
#include <check.h>

#include "orchestrator/checks/series.h"
#include "tests/support/suite.h"

static struct series tens(struct arena *arena)
{
    struct series series = {.arena = arena};

    for (int64_t value = 100; value > 0; value -= 10)
        series_add(&series, value);
    series_sort(&series);
    return series;
}

START_TEST(quantiles)
{
    struct arena *arena = arena_new();
    struct series series = tens(arena);
    struct series empty = {.arena = arena};

    ck_assert_int_eq(series_quantile(&series, 0), 10);
    ck_assert_int_eq(series_quantile(&series, 50), 50);
    ck_assert_int_eq(series_quantile(&series, 51), 60);
    ck_assert_int_eq(series_quantile(&series, 95), 100);
    ck_assert_int_eq(series_quantile(&series, 100), 100);
    ck_assert_int_eq(series_quantile(&empty, 50), 0);
    arena_free(arena);
}
END_TEST

/* The first value that is not below: equal ones count. */
START_TEST(places)
{
    struct arena *arena = arena_new();
    struct series series = tens(arena);

    ck_assert_uint_eq(series_find(&series, 5), 0);
    ck_assert_uint_eq(series_find(&series, 30), 2);
    ck_assert_uint_eq(series_find(&series, 31), 3);
    ck_assert_uint_eq(series_find(&series, 100), 9);
    ck_assert_uint_eq(series_find(&series, 101), 10);
    arena_free(arena);
}
END_TEST

TEST_MAIN("check series", 20, NULL, NULL, quantiles, places)
