/* SPDX-License-Identifier: MIT */
/* The histogram's stated error, against an exact sort. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/histogram.h"
#include "tests/support/suite.h"

static struct histogram histogram, other;

static void setup(void)
{
    memset(&histogram, 0, sizeof(histogram));
    memset(&other, 0, sizeof(other));
}

static bool near(uint64_t reported, uint64_t exact)
{
    double distance = fabs((double) reported - (double) exact);

    return distance <= HISTOGRAM_ERROR * (double) exact;
}

START_TEST(empty)
{
    ck_assert_uint_eq(histogram_percentile(&histogram, 50), 0);
}
END_TEST

/* Every power of two, its neighbours and its middle; small values exactly. */
START_TEST(error_of_single_values)
{
    for (unsigned power = 0; power < 64; power++)
        for (int step = -1; step <= 2; step++) {
            uint64_t value = UINT64_C(1) << power;
            value += step == 2 ? value / 2 + 1 : (uint64_t) step;
            memset(&histogram, 0, sizeof(histogram));
            histogram_record(&histogram, value);
            uint64_t reported = histogram_percentile(&histogram, 100);
            ck_assert_msg(near(reported, value), "%llu for %llu", (unsigned long long) reported,
                          (unsigned long long) value);
            if (value < 128)
                ck_assert_uint_eq(reported, value);
        }
    histogram_record(&histogram, UINT64_MAX);
    ck_assert(near(histogram_percentile(&histogram, 100), UINT64_MAX));
}
END_TEST

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *) left;
    uint64_t b = *(const uint64_t *) right;

    return (a > b) - (a < b);
}

enum { SAMPLES = 10007 };

/* Spread over nine powers of ten, always the same. */
static void draw(uint64_t samples[SAMPLES])
{
    uint64_t state = 88172645463325252;

    for (int i = 0; i < SAMPLES; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        samples[i] = (uint64_t) pow(10, (double) (state % 9000) / 1000);
        histogram_record(i % 2 == 0 ? &histogram : &other, samples[i]);
    }
    qsort(samples, SAMPLES, sizeof(samples[0]), compare);
}

START_TEST(percentiles_of_a_merge)
{
    static const double percents[] = {0.01, 1, 25, 50, 90, 99, 99.9, 99.99, 100};
    static uint64_t samples[SAMPLES];

    draw(samples);
    histogram_merge(&histogram, &other);
    ck_assert_uint_eq(histogram.count, SAMPLES);
    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
        size_t rank = (size_t) ceil(percents[i] / 100 * SAMPLES);
        uint64_t exact = samples[rank - 1];
        uint64_t reported = histogram_percentile(&histogram, percents[i]);
        ck_assert_msg(near(reported, exact), "p%g: %llu for %llu", percents[i],
                      (unsigned long long) reported, (unsigned long long) exact);
    }
}
END_TEST

START_TEST(what_came_since)
{
    struct histogram now;

    histogram_record(&histogram, 1000);
    histogram_snapshot(&histogram, &other);
    ck_assert_uint_eq(other.count, 1);
    histogram_record(&histogram, 7);
    histogram_record(&histogram, 9);
    histogram_snapshot(&histogram, &now);
    histogram_subtract(&now, &other);
    ck_assert_uint_eq(now.count, 2);
    ck_assert_uint_eq(histogram_percentile(&now, 50), 7);
    ck_assert_uint_eq(histogram_percentile(&now, 51), 9);
    ck_assert_uint_eq(histogram_percentile(&now, 100), 9);
}
END_TEST

TEST_MAIN("histogram", 20, setup, NULL, empty, error_of_single_values, percentiles_of_a_merge,
          what_came_since)
