/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/outage.h"

#include <stdlib.h>

#include "lib/clock.h"
#include "orchestrator/checks/walk.h"

/* --- reading ---------------------------------------------------------------------------------- */

struct reading {
    struct outage *outage;
    size_t room;
    struct series workload_starts;
};

static void add_ack(struct reading *reading, const struct walk *walk)
{
    struct outage *outage = reading->outage;
    const struct ledger_record *at = walk->at;

    if (outage->count == reading->room) {
        size_t room = reading->room == 0 ? 1024 : reading->room * 2;
        outage->acks =
            arena_grow(outage->arena, outage->acks, reading->room, room, sizeof *outage->acks);
        reading->room = room;
    }
    outage->acks[outage->count++] = (struct ack){
        .done_ns = at->done_ns,
        .sent_ns = at->sent_ns,
        .scheduled_ns = at->scheduled_ns,
        .client = at->client,
        .timeline = at->timeline != 0 ? at->timeline : walk->client->timeline,
        .workload = walk->client->role == LEDGER_WORKLOAD,
    };
}

/*
 * An intent says when its transaction really began; an attempt that failed before has only its
 * schedule.
 */
static void add_start(struct reading *reading, const struct walk *walk)
{
    const struct ledger_record *at = walk->at;
    bool workload = walk->client->role == LEDGER_WORKLOAD;
    struct series *starts = workload ? &reading->workload_starts : &reading->outage->starts;

    if (at->scheduled_ns > reading->outage->work_until_ns)
        reading->outage->work_until_ns = at->scheduled_ns;
    if (at->kind == LEDGER_INTENT)
        series_add(starts, at->sent_ns != 0 ? at->sent_ns : at->scheduled_ns);
    else if (at->phase != LEDGER_COMMITTING)
        series_add(starts, at->scheduled_ns);
}

static void read_record(struct reading *reading, const struct walk *walk)
{
    const struct ledger_record *at = walk->at;

    if (at->kind == LEDGER_MISSED)
        reading->outage->missed += at->seq;
    if (walk->client == NULL || walk->client->role == LEDGER_DIRECT)
        return;
    if (at->kind == LEDGER_INTENT || at->kind == LEDGER_OUTCOME)
        add_start(reading, walk);
    if (at->kind == LEDGER_OUTCOME && at->class == LEDGER_ACKED)
        add_ack(reading, walk);
}

static int compare_acks(const void *left, const void *right)
{
    const struct ack *a = left;
    const struct ack *b = right;

    return a->done_ns < b->done_ns ? -1 : a->done_ns > b->done_ns;
}

static int64_t median_spacing(const struct outage *outage)
{
    struct series spacings = {.arena = outage->arena};

    for (size_t i = 1; i < outage->starts.count; i++) {
        int64_t spacing_ns = outage->starts.values[i] - outage->starts.values[i - 1];
        if (spacing_ns > 0)
            series_add(&spacings, spacing_ns);
    }
    series_sort(&spacings);
    return series_quantile(&spacings, 50);
}

void outage_read(struct outage *outage, const struct record *record, struct arena *arena)
{
    struct reading reading = {.outage = outage, .workload_starts.arena = arena};
    struct walk walk;

    *outage = (struct outage){.arena = arena, .starts.arena = arena};
    walk_begin(&walk, record, arena);
    while (walk_next(&walk))
        read_record(&reading, &walk);
    if (outage->count > 1)
        qsort(outage->acks, outage->count, sizeof *outage->acks, compare_acks);
    if (outage->starts.count < 2)
        outage->starts = reading.workload_starts;
    series_sort(&outage->starts);
    outage->spacing_ns = median_spacing(outage);
}

/* --- the gap ---------------------------------------------------------------------------------- */

/* Spacing of the starts around an instant. */
static int64_t spacing_at(const struct series *starts, int64_t at_ns)
{
    size_t next = series_find(starts, at_ns);

    if (next == 0 || next == starts->count)
        return 0;
    return starts->values[next] - starts->values[next - 1];
}

static void measure_resolution(struct outage *outage, int64_t end_start_ns)
{
    const struct series *starts = &outage->starts;
    int64_t begin_edge_ns = spacing_at(starts, outage->begin_ns);
    int64_t end_edge_ns = spacing_at(starts, end_start_ns);
    size_t index = series_find(starts, outage->begin_ns - NS_PER_SECOND);

    outage->edge_ns = begin_edge_ns > end_edge_ns ? begin_edge_ns : end_edge_ns;
    outage->resolution_ns =
        outage->edge_ns > outage->spacing_ns ? outage->edge_ns : outage->spacing_ns;
    outage->longest_ns = 0;
    for (size_t i = index + 1;
         i < starts->count && starts->values[i - 1] < outage->end_ns + NS_PER_SECOND; i++)
        if (starts->values[i] - starts->values[i - 1] > outage->longest_ns)
            outage->longest_ns = starts->values[i] - starts->values[i - 1];
}

static size_t first_ack_after(const struct outage *outage, int64_t at_ns)
{
    size_t index = 0;

    while (index < outage->count && outage->acks[index].done_ns <= at_ns)
        index++;
    return index;
}

/* Acknowledgements [index - 1] and [index] enclose the gap; index == count: it has no end. */
static size_t longest_gap(struct outage *outage, size_t from)
{
    size_t best = from == 0 ? 1 : from;
    int64_t best_ns = -1;

    outage->union_ns = 0;
    for (size_t i = best; i <= outage->count; i++) {
        int64_t end_ns = i < outage->count ? outage->acks[i].done_ns : outage->work_until_ns;
        int64_t gap_ns = end_ns - outage->acks[i - 1].done_ns;
        if (gap_ns > 3 * outage->spacing_ns)
            outage->union_ns += gap_ns;
        if (gap_ns > best_ns) {
            best = i;
            best_ns = gap_ns;
        }
    }
    return best;
}

void outage_find(struct outage *outage, int64_t from_ns, uint32_t timeline)
{
    int64_t end_start_ns;

    outage->found = false;
    outage->open = false;
    if (outage->count == 0)
        return;
    outage->found = true;
    size_t index = longest_gap(outage, first_ack_after(outage, from_ns));
    outage->begin_ns = outage->acks[index - 1].done_ns;
    while (index < outage->count && (outage->acks[index].scheduled_ns < from_ns ||
                                     (timeline != 0 && outage->acks[index].timeline != timeline)))
        index++;
    if (index < outage->count) {
        outage->end_ns = outage->acks[index].done_ns;
        end_start_ns = outage->acks[index].sent_ns;
    } else {
        outage->open = outage->work_until_ns - outage->begin_ns > 3 * outage->spacing_ns;
        outage->end_ns =
            outage->work_until_ns > outage->begin_ns ? outage->work_until_ns : outage->begin_ns;
        end_start_ns = outage->end_ns;
    }
    measure_resolution(outage, end_start_ns);
}

const struct ack *outage_first(const struct outage *outage, uint32_t timeline, int64_t from_ns)
{
    for (size_t i = 0; i < outage->count; i++)
        if (outage->acks[i].timeline == timeline && outage->acks[i].scheduled_ns >= from_ns)
            return &outage->acks[i];
    return NULL;
}

uint32_t outage_timeline_at(const struct outage *outage, int64_t at_ns)
{
    size_t index = first_ack_after(outage, at_ns);

    return index == 0 ? 0 : outage->acks[index - 1].timeline;
}

/* --- clients ---------------------------------------------------------------------------------- */

struct returning {
    uint32_t client;
    bool before;
    int64_t back_ns; /* 0: not yet */
};

static int compare_clients(const void *left, const void *right)
{
    uint32_t a = ((const struct ack *) left)->client;
    uint32_t b = ((const struct ack *) right)->client;

    return a != b ? (a < b ? -1 : 1) : compare_acks(left, right);
}

static void settle(const struct returning *one, struct outage_clients *clients,
                   struct series *times)
{
    if (!one->before)
        return;
    clients->count++;
    if (one->back_ns == 0)
        clients->never_back++;
    else
        series_add(times, one->back_ns);
}

struct outage_clients outage_clients(const struct outage *outage, uint32_t timeline,
                                     int64_t from_ns)
{
    struct outage_clients clients = {0};
    struct series times = {.arena = outage->arena};
    struct ack *acks =
        arena_grow(outage->arena, outage->acks, outage->count, outage->count + 1, sizeof *acks);
    struct returning one = {0};

    if (outage->count > 1)
        qsort(acks, outage->count, sizeof *acks, compare_clients);
    for (size_t i = 0; i < outage->count; i++) {
        const struct ack *ack = &acks[i];
        if (!ack->workload)
            continue;
        if (ack->client != one.client) {
            settle(&one, &clients, &times);
            one = (struct returning){.client = ack->client};
        }
        one.before = one.before || ack->done_ns <= from_ns;
        if (one.back_ns == 0 && ack->scheduled_ns >= from_ns &&
            (timeline == 0 || ack->timeline == timeline))
            one.back_ns = ack->done_ns - from_ns;
    }
    settle(&one, &clients, &times);
    series_sort(&times);
    clients.p50_ns = series_quantile(&times, 50);
    clients.p95_ns = series_quantile(&times, 95);
    clients.max_ns = series_quantile(&times, 100);
    return clients;
}
