/* SPDX-License-Identifier: MIT */
#include "lib/histogram.h"

#include <stddef.h>

/* Below two full powers the bucket is the value; above, its power and the next six bits. */
static size_t bucket_of(uint64_t value)
{
    if (value < 2U << HISTOGRAM_BITS)
        return (size_t) value;
    unsigned shift = 63U - (unsigned) __builtin_clzll(value) - HISTOGRAM_BITS;
    return ((size_t) shift << HISTOGRAM_BITS) + (size_t) (value >> shift);
}

static uint64_t middle_of(size_t bucket)
{
    if (bucket < 2U << HISTOGRAM_BITS)
        return bucket;
    unsigned shift = (unsigned) (bucket >> HISTOGRAM_BITS) - 1;
    uint64_t low = (uint64_t) (bucket - ((size_t) shift << HISTOGRAM_BITS)) << shift;
    return low + (UINT64_C(1) << shift) / 2;
}

/* Readers in other processes see whole numbers; no order is needed between them. */
static void add(uint64_t *counter, uint64_t amount)
{
    __atomic_store_n(counter, *counter + amount, __ATOMIC_RELAXED);
}

void histogram_record(struct histogram *histogram, uint64_t value)
{
    add(&histogram->buckets[bucket_of(value)], 1);
    add(&histogram->count, 1);
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
}

void histogram_subtract(struct histogram *from, const struct histogram *earlier)
{
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        from->buckets[i] -= earlier->buckets[i];
    from->count -= earlier->count;
}

/* The count is that of the buckets as they were read, so that percentiles are of these. */
void histogram_snapshot(const struct histogram *live, struct histogram *ret_copy)
{
    ret_copy->count = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        ret_copy->buckets[i] = __atomic_load_n(&live->buckets[i], __ATOMIC_RELAXED);
        ret_copy->count += ret_copy->buckets[i];
    }
}

uint64_t histogram_percentile(const struct histogram *histogram, double percent)
{
    double exact = percent / 100 * (double) histogram->count;
    uint64_t rank = (uint64_t) exact;
    uint64_t seen = 0;

    if ((double) rank < exact || rank == 0)
        rank++;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= rank)
            return middle_of(i);
    }
    return 0;
}
