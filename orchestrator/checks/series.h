/* SPDX-License-Identifier: MIT */
/* A growing list of instants or durations (ns), and its quantiles. */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_SERIES_H
#define ORDEAL_ORCHESTRATOR_CHECKS_SERIES_H

#include <stddef.h>
#include <stdint.h>

#include "lib/arena.h"

struct series {
    struct arena *arena;
    size_t count, room;
    int64_t *values;
};

void series_add(struct series *series, int64_t value);
void series_sort(struct series *series);
/* Of a sorted series, nearest rank; `percent` from 0 to 100; 0 when it is empty. */
int64_t series_quantile(const struct series *series, unsigned percent);
/* Index of the first value of a sorted series that is not below `value`. */
size_t series_find(const struct series *series, int64_t value);
/*
 * The same over items of any kind that are sorted by an int64_t of theirs: `first` is that member
 * of the first item, `stride` the size of an item. Not read when `count` is 0.
 */
size_t series_lower_bound(const void *first, size_t count, size_t stride, int64_t value);

#endif
