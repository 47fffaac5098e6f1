/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/outage.h"

#include <stdlib.h>

#include "lib/clock.h"
#include "orchestrator/checks/walk.h"

/* --- reading ---------------------------------------------------------------------------------- */

/*
 * No deadline of a client is shorter than this (the minimum of commit_timeout): an attempt that
 * failed sooner was ended by the other side.
 */
enum { DEADLINE_MIN_MS = 100 };

struct attempt {
    int64_t begun_ns; /* of the transaction under way */
    size_t ack;       /* index + 1 of the client's last acknowledgement */
};

struct reading {
    struct outage *outage;
    size_t room;
    struct series workload_starts, latencies;
    int64_t tick_ns;          /* schedule of the last start of the probe on warm connections */
    struct attempt *attempts; /* by slot */
    size_t slots;
};

static uint32_t timeline_of(const struct walk *walk)
{
    return walk->at->timeline != 0 ? walk->at->timeline : walk->client->timeline;
}

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
    int64_t begun_ns = reading->attempts[walk->slot].begun_ns;
    outage->acks[outage->count++] = (struct ack){
        .done_ns = at->done_ns,
        .sent_ns = at->sent_ns,
        .begun_ns = begun_ns != 0 ? begun_ns : at->sent_ns,
        .scheduled_ns = at->scheduled_ns,
        .lsn = at->lsn,
        .client = at->client,
        .timeline = timeline_of(walk),
        .node = walk->node,
        .workload = walk->client->role == LEDGER_WORKLOAD,
    };
    reading->attempts[walk->slot].ack = outage->count;
    series_add(&reading->latencies, at->done_ns - outage->acks[outage->count - 1].begun_ns);
}

/* The next position that the same client saw on the same timeline closes the last commit's. */
static void close_position(struct reading *reading, const struct walk *walk)
{
    size_t last = reading->attempts[walk->slot].ack;

    if (last == 0 || walk->at->lsn == 0)
        return;
    struct ack *ack = &reading->outage->acks[last - 1];
    if (ack->next_lsn == 0 && ack->timeline == timeline_of(walk))
        ack->next_lsn = walk->at->lsn;
}

/*
 * When an attempt really looked: when its transaction began, or its connection when it found no
 * host. Never its schedule, which may lie far back, since late starts queue.
 */
static int64_t look_of(const struct ledger_record *at)
{
    return at->sent_ns != 0 ? at->sent_ns : at->done_ns;
}

static void sights_add(struct outage *outage, struct sights *sights, int64_t at_ns, uint16_t node)
{
    if (sights->count == sights->room) {
        size_t room = sights->room == 0 ? 1024 : sights->room * 2;
        sights->items =
            arena_grow(outage->arena, sights->items, sights->room, room, sizeof *sights->items);
        sights->room = room;
    }
    sights->items[sights->count++] = (struct sight){.at_ns = at_ns, .node = node};
}

/*
 * What a failed attempt shows. Service was missing at some moment after what it sent last: at that
 * instant is the careful claim. One that found no host asked every host after it began, one in a
 * transaction only its own. That one's end shows that service had ended there, when it was the
 * other side that ended the session; an ERROR, or the client's own deadline, does not.
 */
static void add_failure(struct outage *outage, const struct walk *walk)
{
    const struct ledger_record *at = walk->at;
    bool searching = at->phase == LEDGER_CONNECTING;
    bool cut = at->class == LEDGER_UNSENT || at->class == LEDGER_IN_DOUBT;

    sights_add(outage, &outage->missing, look_of(at), searching ? OUTAGE_ANY_NODE : walk->node);
    if (!searching && cut && at->done_ns - look_of(at) < DEADLINE_MIN_MS * NS_PER_MS)
        sights_add(outage, &outage->cuts, at->done_ns, walk->node);
}

/* A tick that is tried on several hosts is one start. */
static void add_start(struct reading *reading, const struct walk *walk)
{
    const struct ledger_record *at = walk->at;
    bool tick = walk->client->role == LEDGER_ENDPOINT_OLD;

    if (tick && at->scheduled_ns == reading->tick_ns)
        return;
    if (tick)
        reading->tick_ns = at->scheduled_ns;
    series_add(walk->client->role == LEDGER_WORKLOAD ? &reading->workload_starts
                                                     : &reading->outage->starts,
               look_of(at));
}

/* A client that hangs has no later schedule: it tried until it gave up. */
static void note_workload(struct outage *outage, const struct ledger_record *at, bool failed)
{
    int64_t until_ns = failed && at->done_ns > at->scheduled_ns ? at->done_ns : at->scheduled_ns;

    if (until_ns > outage->workload_until_ns)
        outage->workload_until_ns = until_ns;
}

static void add_attempt(struct reading *reading, const struct walk *walk)
{
    struct outage *outage = reading->outage;
    const struct ledger_record *at = walk->at;
    bool ended = at->kind == LEDGER_OUTCOME;

    if (at->scheduled_ns > outage->work_until_ns)
        outage->work_until_ns = at->scheduled_ns;
    if (walk->client->role == LEDGER_WORKLOAD)
        note_workload(outage, at, ended && at->class != LEDGER_ACKED);
    if (ended && at->class != LEDGER_ACKED)
        add_failure(outage, walk);
    if (ended && at->phase == LEDGER_COMMITTING)
        return; /* its intent told when it began */
    sights_add(outage, &outage->begins, look_of(at),
               ended && at->phase == LEDGER_CONNECTING ? OUTAGE_ANY_NODE : walk->node);
    add_start(reading, walk);
}

static void note_begin(struct reading *reading, const struct walk *walk)
{
    if (walk->slot >= reading->slots) {
        size_t slots = walk->slot * 2 + 64;
        reading->attempts = arena_grow(reading->outage->arena, reading->attempts, reading->slots,
                                       slots, sizeof *reading->attempts);
        reading->slots = slots;
    }
    if (walk->at->kind == LEDGER_INTENT)
        reading->attempts[walk->slot].begun_ns = walk->at->sent_ns;
    else
        close_position(reading, walk);
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

static int compare_sights(const void *left, const void *right)
{
    const struct sight *a = left;
    const struct sight *b = right;

    return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

static void sort_sights(struct sights *sights)
{
    if (sights->count > 1)
        qsort(sights->items, sights->count, sizeof *sights->items, compare_sights);
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

    *outage = (struct outage){.arena = arena, .starts.arena = arena};
    walk_begin(&walk, record, arena);
    while (walk_next(&walk))
        read_record(&reading, &walk);
    if (outage->count > 1)
        qsort(outage->acks, outage->count, sizeof *outage->acks, compare_acks);
    if (outage->starts.count < 2)
        outage->starts = reading.workload_starts;
    series_sort(&outage->starts);
    sort_sights(&outage->begins);
    sort_sights(&outage->cuts);
    sort_sights(&outage->missing);
    series_sort(&reading.latencies);
    outage->spacing_ns = median_spacing(outage);
    outage->latency_ns = series_quantile(&reading.latencies, 50);
}

/* --- the final history ------------------------------------------------------------------------ */

/*
 * On an older timeline a commit belongs to the history when its record lies before the end; where
 * that is open (the client saw no later position) it counts as abandoned.
 */
static bool belongs(const struct ack *ack, const struct evidence_history *history)
{
    uint64_t end;

    if (!history->known || ack->timeline == history->timeline)
        return true;
    return evidence_timeline_end(history, ack->timeline, &end) && ack->lsn != 0 &&
           ack->next_lsn != 0 && ack->next_lsn <= end;
}

static void place_acks(struct outage *outage, const struct evidence_history *history,
                       int64_t from_ns)
{
    outage->unplaced = 0;
    for (size_t i = 0; i < outage->count; i++) {
        struct ack *ack = &outage->acks[i];
        ack->serves = belongs(ack, history);
        if (!ack->serves && ack->lsn == 0 && ack->done_ns > from_ns)
            outage->unplaced++;
    }
}

/* --- the gaps --------------------------------------------------------------------------------- */

static void keep_gap(struct outage *outage, struct gap gap)
{
    if (outage->gap_count == outage->gap_room) {
        size_t room = outage->gap_room == 0 ? 64 : outage->gap_room * 2;
        outage->gaps =
            arena_grow(outage->arena, outage->gaps, outage->gap_room, room, sizeof *outage->gaps);
        outage->gap_room = room;
    }
    outage->gaps[outage->gap_count++] = gap;
}

static void add_gap(struct outage *outage, struct gap gap)
{
    int64_t length_ns = gap.end_ns - gap.begin_ns;
    bool counts = length_ns > 3 * outage->spacing_ns;

    if (length_ns > outage->longest.end_ns - outage->longest.begin_ns ||
        outage->longest.begin_ns == 0)
        outage->longest = gap;
    if (counts)
        outage->union_ns += length_ns;
    if (!counts && gap.to <= gap.from)
        return;
    keep_gap(outage, gap);
}

/* Is this an answer to work that was scheduled before a fault that had begun by then? */
static bool spans_a_fault(const struct ack *ack, const struct evidence_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++) {
        const struct evidence_fault *fault = &faults->items[i];
        if (fault->placed && ack->scheduled_ns < fault->f0_ns && fault->f0_ns <= ack->done_ns)
            return true;
    }
    return false;
}

/* What comes after the last one: the load's end, and a failover that nobody was told of. */
static void add_rest(struct outage *outage, struct gap gap, const struct evidence_history *history)
{
    gap.end_ns = outage->work_until_ns > gap.begin_ns ? outage->work_until_ns : gap.begin_ns;
    gap.to_node = OUTAGE_ANY_NODE;
    gap.to = history->known && history->timeline > gap.from ? history->timeline : gap.from;
    gap.open = gap.end_ns - gap.begin_ns > 3 * outage->spacing_ns;
    add_gap(outage, gap);
}

void outage_find(struct outage *outage, const struct evidence_history *history,
                 const struct evidence_faults *faults, int64_t from_ns)
{
    struct gap next = {0};

    outage->found = outage->count > 0;
    outage->faults = faults;
    outage->gap_count = 0;
    outage->union_ns = 0;
    outage->longest = (struct gap){0};
    place_acks(outage, history, from_ns);
    for (size_t i = 0; i < outage->count; i++) {
        const struct ack *ack = &outage->acks[i];
        bool serves = ack->serves && !spans_a_fault(ack, faults);
        if (i > 0 && !serves && ack->done_ns - next.begin_ns > 3 * outage->spacing_ns)
            continue;
        next.to = ack->serves && ack->timeline > next.from ? ack->timeline : next.from;
        next.end_ns = ack->done_ns;
        next.to_node = ack->node;
        next.ended = true;
        if (i > 0 && ack->done_ns > from_ns)
            add_gap(outage, next);
        else if (i > 0 && next.to > next.from)
            keep_gap(outage, next); /* no outage of the fault, and to be explained all the same */
        next = (struct gap){.begin_ns = ack->done_ns,
                            .from = next.to,
                            .from_node = ack->node,
                            .latency_ns = ack->done_ns - ack->begun_ns};
    }
    if (outage->found)
        add_rest(outage, next, history);
}

/* --- who came back ---------------------------------------------------------------------------- */

static bool is_service(const struct ack *ack, uint32_t timeline, int64_t from_ns)
{
    return ack->serves && ack->timeline >= timeline && ack->scheduled_ns >= from_ns;
}

const struct ack *outage_first(const struct outage *outage, uint32_t timeline, int64_t from_ns)
{
    for (size_t i = 0; i < outage->count; i++)
        if (is_service(&outage->acks[i], timeline, from_ns))
            return &outage->acks[i];
    return NULL;
}

uint32_t outage_timeline_at(const struct outage *outage, int64_t at_ns)
{
    uint32_t timeline = 0;

    for (size_t i = 0; i < outage->count && outage->acks[i].done_ns <= at_ns; i++)
        timeline = outage->acks[i].timeline;
    return timeline;
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
        if (one.back_ns == 0 && is_service(ack, timeline, from_ns))
            one.back_ns = ack->done_ns - from_ns;
    }
    settle(&one, &clients, &times);
    series_sort(&times);
    clients.p50_ns = series_quantile(&times, 50);
    clients.p95_ns = series_quantile(&times, 95);
    clients.max_ns = series_quantile(&times, 100);
    return clients;
}
