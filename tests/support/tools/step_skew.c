/* SPDX-License-Identifier: MIT */
/*
 * How far apart the nodes of a step carried it out: for each step that several nodes injected, the
 * distance of the earliest and the latest begin (f0) on the client node's clock.
 *
 *   step_skew RUN
 */
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/checks/evidence.h"

struct span {
    int64_t first_ns, last_ns, error_ns;
    size_t count;
};

static struct span span_of(const struct evidence_faults *faults, const char *step)
{
    struct span span = {.first_ns = INT64_MAX, .last_ns = INT64_MIN};

    for (size_t i = 0; i < faults->count; i++) {
        const struct evidence_fault *fault = &faults->items[i];
        if (!fault->placed || strcmp(fault->step, step) != 0)
            continue;
        span.first_ns = fault->f0_ns < span.first_ns ? fault->f0_ns : span.first_ns;
        span.last_ns = fault->f0_ns > span.last_ns ? fault->f0_ns : span.last_ns;
        span.error_ns = fault->error_ns > span.error_ns ? fault->error_ns : span.error_ns;
        span.count++;
    }
    return span;
}

static bool is_first(const struct evidence_faults *faults, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (strcmp(faults->items[i].step, faults->items[index].step) == 0)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct record *record = NULL;
    struct error err = {0};

    if (argc != 2) {
        fprintf(stderr, "usage: step_skew RUN\n");
        return 64;
    }
    if (record_load(arena, argv[1], &record, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    struct evidence_faults faults = evidence_faults(record, arena);
    for (size_t i = 0; i < faults.count; i++) {
        struct span span = span_of(&faults, faults.items[i].step);
        if (is_first(&faults, i) && span.count > 1)
            printf("step %s on %zu nodes: skew %.2f ms (clock error up to %.2f ms)\n",
                   faults.items[i].step, span.count,
                   (double) (span.last_ns - span.first_ns) / NS_PER_MS,
                   (double) span.error_ns / NS_PER_MS);
    }
    record_close(record);
    return 0;
}
