/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/outage.h"

#include <stdlib.h>

#include "lib/clock.h"
#include "orchestrator/checks/walk.h"

/* --- reading ---------------------------------------------------------------------------------- */

struct reading {
    struct outage *outage;
    size_t room;
    struct series workload_starts, latencies;
    int64_t *begun; /* of the transaction under way, by slot */
    size_t slots;
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
        .begun_ns = reading->begun[walk->slot] != 0 ? reading->begun[walk->slot] : at->sent_ns,
        .scheduled_ns = at->scheduled_ns,
        .client = at->client,
        .timeline = at->timeline != 0 ? at->timeline : walk->client->timeline,
        .workload = walk->client->role == LEDGER_WORKLOAD,
    };
    series_add(&reading->latencies, at->done_ns - outage->acks[outage->count - 1].begun_ns);
}

/*
 * When an attempt really looked: when its transaction began, or its connection when it found no
 * host. Never its schedule, which may lie far back, since late starts queue.
 */
static int64_t look_of(const struct ledger_record *at)
{
    return at->sent_ns != 0 ? at->sent_ns : at->done_ns;
}

static void add_attempt(struct reading *reading, const struct walk *walk)
{
    const struct ledger_record *at = walk->at;
    bool workload = walk->client->role == LEDGER_WORKLOAD;
    bool ended = at->kind == LEDGER_OUTCOME;

    if (at->scheduled_ns > reading->outage->work_until_ns)
        reading->outage->work_until_ns = at->scheduled_ns;
    if (ended && at->class != LEDGER_ACKED)
        series_add(&reading->outage->failures, at->done_ns);
    if (ended && at->phase == LEDGER_COMMITTING)
        return; /* its intent told when it began */
    series_add(workload ? &reading->workload_starts : &reading->outage->starts, look_of(at));
}

static void note_begin(struct reading *reading, const struct walk *walk)
{
    if (walk->slot >= reading->slots) {
        size_t slots = walk->slot * 2 + 64;
        reading->begun = arena_grow(reading->outage->arena, reading->begun, reading->slots, slots,
                                    sizeof *reading->begun);
        reading->slots = slots;
    }
    if (walk->at->kind == LEDGER_INTENT)
        reading->begun[walk->slot] = walk->at->sent_ns;
}

static void read_record(struct reading *reading, const struct walk *walk)
{
    const struct ledger_record *at = walk->at;

    if (walk->client == NULL || walk->client->role == LEDGER_DIRECT)
        return;
    if (at->kind == LEDGER_MISSED)
        reading->outage->missed += at->seq;
    if (at->kind != LEDGER_INTENT && at->kind != LEDGER_OUTCOME)
        return;
    note_begin(reading, walk);
    add_attempt(reading, walk);
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
    struct reading reading = {
        .outage = outage, .workload_starts.arena = arena, .latencies.arena = arena};
    struct walk walk;

    *outage = (struct outage){.arena = arena, .starts.arena = arena, .failures.arena = arena};
    walk_begin(&walk, record, arena);
    while (walk_next(&walk))
        read_record(&reading, &walk);
    if (outage->count > 1)
        qsort(outage->acks, outage->count, sizeof *outage->acks, compare_acks);
    if (outage->starts.count < 2)
        outage->starts = reading.workload_starts;
    series_sort(&outage->starts);
    series_sort(&outage->failures);
    series_sort(&reading.latencies);
    outage->spacing_ns = median_spacing(outage);
    outage->latency_ns = series_quantile(&reading.latencies, 50);
}

/* --- the gap ---------------------------------------------------------------------------------- */

/* Was an attempt under way when service came back, so that it could not be seen late? */
static bool somebody_waited(const struct outage *outage, int64_t longer_than_ns)
{
    for (size_t i = 0; i < outage->count; i++)
        if (outage->acks[i].done_ns >= outage->end_ns &&
            outage->acks[i].begun_ns <= outage->end_ns - longer_than_ns)
            return true;
    return false;
}

static int64_t longest_spacing(const struct outage *outage)
{
    const struct series *starts = &outage->starts;
    int64_t longest_ns = 0;

    for (size_t i = series_find(starts, outage->begin_ns - NS_PER_SECOND) + 1;
         i < starts->count && starts->values[i - 1] < outage->end_ns + NS_PER_SECOND; i++)
        if (starts->values[i] - starts->values[i - 1] > longest_ns)
            longest_ns = starts->values[i] - starts->values[i - 1];
    return longest_ns;
}

/*
 * Service stopped between the last acknowledgement and the next attempt. It came back between the
 * moment at which it was last seen missing and the first acknowledgement: that moment is the end
 * of the last failure before that transaction began, unless somebody waited through it.
 */
static void measure_resolution(struct outage *outage, int64_t begun_ns)
{
    int64_t length_ns = outage->end_ns - outage->begin_ns;
    int64_t slow_ns = 4 * outage->latency_ns;
    size_t next = series_find(&outage->starts, outage->begin_ns + 1);
    size_t failure = series_find(&outage->failures, begun_ns + 1);

    outage->begin_edge_ns = length_ns;
    if (next < outage->starts.count && outage->starts.values[next] < outage->end_ns)
        outage->begin_edge_ns = outage->starts.values[next] - outage->begin_ns;
    outage->end_edge_ns = length_ns;
    if (failure > 0 && outage->failures.values[failure - 1] > outage->begin_ns)
        outage->end_edge_ns = begun_ns - outage->failures.values[failure - 1];
    if (outage->end_edge_ns > slow_ns && somebody_waited(outage, slow_ns))
        outage->end_edge_ns = slow_ns;
    if (outage->open)
        outage->end_edge_ns = 0;
    outage->edge_ns = outage->begin_edge_ns + outage->end_edge_ns;
    if (outage->edge_ns > length_ns)
        outage->edge_ns = length_ns;
    outage->resolution_ns =
        outage->edge_ns > outage->spacing_ns ? outage->edge_ns : outage->spacing_ns;
    outage->longest_ns = longest_spacing(outage);
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
    int64_t begun_ns;

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
        begun_ns = outage->acks[index].begun_ns;
    } else {
        outage->open = outage->work_until_ns - outage->begin_ns > 3 * outage->spacing_ns;
        outage->end_ns =
            outage->work_until_ns > outage->begin_ns ? outage->work_until_ns : outage->begin_ns;
        begun_ns = outage->end_ns;
    }
    measure_resolution(outage, begun_ns);
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
