/* SPDX-License-Identifier: MIT */
/*
 * What the samplers of a run wrote, by when they saw and when they did not (docs/formats.md,
 * "samples"). Gaps are those that the sampler marked, and those that the instants of its samples
 * give away.
 *
 *     struct record_samples *samples = record_samples_load(arena, record);
 *     record_samples_gap(record, samples, "n1", "kernel", from_ns, to_ns, &gap, &err)
 */
#ifndef ORDEAL_ORCHESTRATOR_RECORD_SAMPLES_H
#define ORDEAL_ORCHESTRATOR_RECORD_SAMPLES_H

#include "orchestrator/record.h"

struct record_gap {
    int64_t from_ns, to_ns; /* node's clock; after a boot `from` may be the larger one */
    const char *why;        /* "late", "restart", "down", "stopping", "full", "disk", "unmarked" */
};

struct record_stream {
    const char *node, *name; /* "kernel" or "postgres" */
    const char *path;        /* within the run directory */
    const char *problem;     /* why it cannot be read, or NULL */
    size_t count;            /* samples */
    int64_t period_ns;
    int64_t first_ns, last_ns; /* of its samples, node's clock */
    bool ended;                /* in order: the sampler was stopped */
    size_t gap_count, gap_room;
    struct record_gap *gaps;
};

struct record_samples {
    size_t count;
    struct record_stream *streams; /* by file name; none when the run has no samples */
};

struct record_samples *record_samples_load(struct arena *arena, const struct record *record);
const struct record_stream *record_samples_find(const struct record_samples *samples,
                                                const char *node, const char *name);
/*
 * The longest part of [from, to] (client node's clock) without a sample of that stream, in whole
 * gaps: also before its first and after its last one. `why` of it is NULL when the stream has a
 * sample at every period. STATUS_NOT_FOUND: no such stream, or no estimate of its clock.
 */
struct record_blind {
    int64_t ns, error_ns; /* length within [from, to]; error of the clocks */
    const char *why;
};
MUST_CHECK enum status record_samples_gap(const struct record *record,
                                          const struct record_samples *samples, const char *node,
                                          const char *name, int64_t from_ns, int64_t to_ns,
                                          struct record_blind *ret_blind, struct error *err);

/* The longest gap of all streams as one line for people; NULL when the run has no samples. */
const char *record_samples_text(struct arena *arena, const struct record *record);

#endif
