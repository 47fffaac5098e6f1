/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/series.h"

#include <stdlib.h>

void series_add(struct series *series, int64_t value)
{
    if (series->count == series->room) {
        size_t room = series->room == 0 ? 256 : series->room * 2;
        series->values =
            arena_grow(series->arena, series->values, series->room, room, sizeof *series->values);
        series->room = room;
    }
    series->values[series->count++] = value;
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *) left;
    int64_t b = *(const int64_t *) right;

    return a < b ? -1 : a > b;
}

void series_sort(struct series *series)
{
    if (series->count > 1)
        qsort(series->values, series->count, sizeof *series->values, compare);
}

int64_t series_quantile(const struct series *series, unsigned percent)
{
    if (series->count == 0)
        return 0;
    size_t rank = (series->count * percent + 99) / 100;
    return series->values[rank == 0 ? 0 : rank - 1];
}

size_t series_find(const struct series *series, int64_t value)
{
    return series_lower_bound(series->values, series->count, sizeof *series->values, value);
}

size_t series_lower_bound(const void *first, size_t count, size_t stride, int64_t value)
{
    size_t low = 0;
    size_t high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (*(const int64_t *) ((const char *) first + middle * stride) < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
