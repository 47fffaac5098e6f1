/* SPDX-License-Identifier: MIT */
/*
 * Log-linear histogram of whole numbers (latencies in microseconds) with a stated error.
 *
 * Values below 128 are exact. Above, each power of two is cut into 64 buckets, and a bucket is
 * reported by its middle: what comes out is at most 1/128 (0.8 %) away from what went in, over all
 * of uint64_t. Nothing is clamped and nothing is allocated. One writer may record while others take
 * snapshots, also through shared memory.
 */
#ifndef ORDEAL_LIB_HISTOGRAM_H
#define ORDEAL_LIB_HISTOGRAM_H

#include <stdint.h>

enum {
    HISTOGRAM_BITS = 6, /* 64 buckets a power of two */
    HISTOGRAM_BUCKETS = (64 - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS
};

/* Largest relative distance between a value and the one that is reported for it. */
#define HISTOGRAM_ERROR (1.0 / 128)

struct histogram {
    uint64_t count;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_record(struct histogram *histogram, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);
/* Take away an earlier state of the same histogram: what is left came since. */
void histogram_subtract(struct histogram *from, const struct histogram *earlier);
/* A consistent copy of one that is being written. */
void histogram_snapshot(const struct histogram *live, struct histogram *ret_copy);
/* The smallest value that at least `percent` of the records do not exceed; 0 when it is empty. */
uint64_t histogram_percentile(const struct histogram *histogram, double percent);

#endif
