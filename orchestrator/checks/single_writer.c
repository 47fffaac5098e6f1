/* SPDX-License-Identifier: MIT */
/*
 * At most one node accepts writes at any instant.
 *
 * Every node is probed directly by real writes. A writer is a node on a timeline; what it
 * acknowledged, to whomever, spans an interval on the client's clock. A commit happens between its
 * sending and its acknowledgement, so a writer certainly wrote after another one began only when
 * it was *sent* a commit after the other's first acknowledgement: an answer that was delayed by a
 * freeze is no second writer.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "orchestrator/checks/blind.h"
#include "orchestrator/checks/direct_probes.h"
#include "orchestrator/checks/evidence.h"
#include "orchestrator/checks/walk.h"

enum {
    WRITERS_MAX = 64,
    LATE_BEAT_NS = 100000000 /* a beat is due every 50 ms; from twice that on it is a silence */
};

struct writer {
    uint16_t node;
    uint32_t timeline;
    uint64_t rows;
    int64_t first_ns, last_ns; /* first and last acknowledgement */
};

struct overlap { /* of an earlier writer with a later one */
    uint64_t rows, late_answers;
    int64_t last_ns;     /* last acknowledgement of what was sent after the later one began */
    uint64_t other_rows; /* acknowledged by the later one until then */
};

struct single_writer {
    const struct record *record;
    struct arena *arena;
    struct check_result *result;
    struct walk walk;
    int64_t zero_ns; /* what times in texts count from */
    const char *zero_name;
    size_t count;
    struct writer writers[WRITERS_MAX];
    bool too_many;
    struct overlap *overlaps; /* count * count: [earlier][later] */
    bool probed[WALK_NODES_MAX];
    struct direct_probes *directs;
    int64_t longest_pause_ns;   /* of the probes of any node */
    int64_t longest_silence_ns; /* of a worker that probes */
    int64_t spacing_ns;         /* median, between the begins of direct probes of a node */
    struct reasons wrong, doubtful;
};

static bool is_write(const struct walk *walk)
{
    return walk->at->kind == LEDGER_OUTCOME &&
           (walk->at->class == LEDGER_ACKED || walk->at->class == LEDGER_WEAK);
}

static uint32_t timeline_of(const struct walk *walk)
{
    return walk->at->timeline != 0 ? walk->at->timeline : walk->client->timeline;
}

static size_t writer_of(struct single_writer *all)
{
    uint16_t node = all->walk.client->node;
    uint32_t timeline = timeline_of(&all->walk);

    for (size_t i = 0; i < all->count; i++)
        if (all->writers[i].node == node && all->writers[i].timeline == timeline)
            return i;
    if (all->count == WRITERS_MAX) {
        all->too_many = true;
        return WRITERS_MAX - 1;
    }
    all->writers[all->count] = (struct writer){
        .node = node, .timeline = timeline, .first_ns = INT64_MAX, .last_ns = INT64_MIN};
    return all->count++;
}

static void count_write(struct single_writer *all)
{
    struct writer *writer = &all->writers[writer_of(all)];
    int64_t done_ns = all->walk.at->done_ns;

    writer->rows++;
    if (done_ns < writer->first_ns)
        writer->first_ns = done_ns;
    if (done_ns > writer->last_ns)
        writer->last_ns = done_ns;
}

static void read_ledgers(struct single_writer *all)
{
    walk_begin(&all->walk, all->record, all->arena);
    while (walk_next(&all->walk)) {
        const struct walk *walk = &all->walk;
        if (walk->client == NULL)
            continue;
        if (is_write(walk))
            count_write(all);
        if (walk->client->role != LEDGER_DIRECT)
            continue;
        if (walk->at->kind == LEDGER_SESSION)
            all->probed[walk->node] = true;
        direct_probes_add(all->directs, walk);
    }
    direct_probes_sort(all->directs);
    all->spacing_ns = direct_probes_spacing(all->directs);
}

/* --- overlaps --------------------------------------------------------------------------------- */

/* Must `writer` be silent once `other` has begun? */
static bool must_yield(const struct writer *writer, const struct writer *other)
{
    if (writer->node == other->node)
        return false;
    if (writer->timeline != 0 && other->timeline != 0 && writer->timeline != other->timeline)
        return other->timeline > writer->timeline;
    return other->first_ns >= writer->first_ns;
}

static void compare_write(struct single_writer *all)
{
    const struct ledger_record *at = all->walk.at;
    size_t own = writer_of(all);

    for (size_t i = 0; i < all->count; i++) {
        const struct writer *other = &all->writers[i];
        struct overlap *overlap = &all->overlaps[own * all->count + i];
        if (must_yield(&all->writers[own], other) && at->done_ns > other->first_ns) {
            if (at->sent_ns < other->first_ns) {
                overlap->late_answers++;
                continue;
            }
            overlap->rows++;
            if (at->done_ns > overlap->last_ns)
                overlap->last_ns = at->done_ns;
        } else if (must_yield(other, &all->writers[own]) && at->done_ns <= other->last_ns) {
            all->overlaps[i * all->count + own].other_rows++;
        }
    }
}

static void find_overlaps(struct single_writer *all)
{
    all->overlaps = arena_array(all->arena, all->count * all->count + 1, sizeof *all->overlaps);
    if (all->count < 2 || all->too_many)
        return;
    walk_begin(&all->walk, all->record, all->arena); /* the same files give the same nodes */
    while (walk_next(&all->walk))
        if (all->walk.client != NULL && is_write(&all->walk))
            compare_write(all);
}

static double offset_ms(const struct single_writer *all, int64_t ns)
{
    return evidence_ms(ns - all->zero_ns);
}

static json_t *writers_json(const struct single_writer *all)
{
    json_t *list = json_array();

    for (size_t i = 0; i < all->count; i++) {
        const struct writer *writer = &all->writers[i];
        json_array_append_new(
            list,
            json_pack("{s:s, s:I, s:I, s:o, s:o}", "node", all->walk.nodes[writer->node],
                      "timeline", (json_int_t) writer->timeline, "rows", (json_int_t) writer->rows,
                      "first_ms", evidence_json_ms(writer->first_ns - all->zero_ns), "last_ms",
                      evidence_json_ms(writer->last_ns - all->zero_ns)));
    }
    return list;
}

/* Returns its length. */
static int64_t name_overlap(struct single_writer *all, size_t own, size_t other)
{
    const struct overlap *overlap = &all->overlaps[own * all->count + other];
    const struct writer *early = &all->writers[own];
    const struct writer *late = &all->writers[other];
    int64_t length_ns = overlap->last_ns - late->first_ns;

    if (overlap->rows == 0)
        return 0;
    reasons_add(&all->wrong,
                "%s (timeline %u) accepted %" PRIu64 " writes until %+.0f ms, after %s (timeline "
                "%u) had begun at %+.0f ms and accepted %" PRIu64 ": overlap %.0f ms",
                all->walk.nodes[early->node], early->timeline, overlap->rows,
                offset_ms(all, overlap->last_ns), all->walk.nodes[late->node], late->timeline,
                offset_ms(all, late->first_ns), overlap->other_rows, evidence_ms(length_ns));
    return length_ns;
}

/* Returns the longest overlap. */
static int64_t name_overlaps(struct single_writer *all)
{
    int64_t longest_ns = 0;

    for (size_t own = 0; own < all->count; own++)
        for (size_t other = 0; other < all->count; other++) {
            int64_t length_ns = name_overlap(all, own, other);
            if (length_ns > longest_ns)
                longest_ns = length_ns;
        }
    return longest_ns;
}

static uint64_t late_answers(const struct single_writer *all)
{
    uint64_t count = 0;

    for (size_t i = 0; i < all->count * all->count; i++)
        count += all->overlaps[i].late_answers;
    return count;
}

/* The writer that was there when the fault came, and how long it went on. */
static void measure_fencing(struct single_writer *all, const struct evidence_fault *fault)
{
    const struct writer *old = NULL;
    const struct writer *newest = NULL;

    for (size_t i = 0; i < all->count; i++) {
        const struct writer *writer = &all->writers[i];
        if (writer->first_ns <= fault->f0_ns && (old == NULL || writer->first_ns > old->first_ns))
            old = writer;
        if (newest == NULL || writer->timeline > newest->timeline)
            newest = writer;
    }
    if (old == NULL || newest == old || newest->node == old->node)
        return;
    int64_t after_ns = old->last_ns - newest->first_ns;
    evidence_detail(all->result, "fencing",
                    json_pack("{s:s, s:o, s:o}", "node", all->walk.nodes[old->node],
                              "last_write_after_fault_ms",
                              evidence_json_ms(old->last_ns - fault->f0_ns), "fencing_ms",
                              evidence_json_ms(after_ns > 0 ? after_ns : 0)));
}

/* --- was anybody looking? --------------------------------------------------------------------- */

static void judge_probes(struct single_writer *all, const char *name, int64_t from_ns,
                         int64_t to_ns, int64_t limit_ns)
{
    uint16_t node = walk_node(&all->walk, name);

    if (!all->probed[node]) {
        reasons_add(&all->doubtful, "no direct probe ever reached %s", name);
        evidence_unjudged(all->result, "%s: never probed", name);
        return;
    }
    int64_t pause_ns = direct_probes_pause(all->directs, node, from_ns, to_ns);
    if (pause_ns > limit_ns)
        reasons_add(&all->doubtful, "nobody probed %s for %.0f ms", name, evidence_ms(pause_ns));
    if (pause_ns > all->longest_pause_ns)
        all->longest_pause_ns = pause_ns;
}

static void judge_sight(struct single_writer *all, const struct evidence_fault *fault,
                        int64_t limit_ns, int64_t pause_ns)
{
    const char *const *nodes = evidence_database_nodes(all->record, all->arena);
    int64_t from_ns = 0;
    int64_t to_ns = 0;

    if (!blind_span(all->record, &from_ns, &to_ns)) {
        reasons_add(&all->doubtful, "no worker left a sign of life");
        return;
    }
    if (fault != NULL && fault->f0_ns > from_ns)
        from_ns = fault->f0_ns;
    all->longest_silence_ns =
        blind_find(all->record, 1U << LEDGER_DIRECT, from_ns, to_ns, LATE_BEAT_NS).longest_ns;
    struct blind blind = blind_find(all->record, 1U << LEDGER_DIRECT, from_ns, to_ns, limit_ns);
    if (blind.count > 0)
        reasons_add(&all->doubtful,
                    "the direct probes stood still %" PRIu64 " times, %.0f ms at "
                    "%+.0f ms",
                    blind.count, evidence_ms(blind.longest_ns), offset_ms(all, blind.at_ns));
    if (nodes[0] == NULL)
        reasons_add(&all->doubtful, "the run does not say which nodes are databases");
    for (size_t i = 0; nodes[i] != NULL; i++)
        judge_probes(all, nodes[i], from_ns, to_ns, pause_ns);
}

static void judge_ledgers(struct single_writer *all)
{
    for (size_t i = 0; i < all->record->ledger_count; i++)
        if (all->record->ledgers[i].problem != NULL)
            reasons_add(&all->doubtful, "%s cannot be read", all->record->ledgers[i].path);
    int64_t workers = json_number(record_last(all->record, "load.end"), "workers", -1);
    if (workers < 0)
        reasons_add(&all->doubtful, "the end of the load was not recorded");
    else if ((size_t) workers > all->record->ledger_count)
        reasons_add(&all->doubtful, "%lld workers ran and %zu ledgers are here",
                    (long long) workers, all->record->ledger_count);
    if (all->count == 0)
        reasons_add(&all->doubtful, "no write was acknowledged");
    if (all->too_many)
        reasons_add(&all->doubtful, "more than %d writers", WRITERS_MAX);
}

/* --- verdict ---------------------------------------------------------------------------------- */

static const char *succession(const struct single_writer *all)
{
    const char *text = "";

    for (size_t i = 0; i < all->count && i < 4; i++) {
        const struct writer *writer = &all->writers[i];
        text = arena_printf(all->arena, "%s%s%s on timeline %u from %+.0f to %+.0f ms", text,
                            i == 0 ? "" : ", ", all->walk.nodes[writer->node], writer->timeline,
                            offset_ms(all, writer->first_ns), offset_ms(all, writer->last_ns));
    }
    return arena_printf(all->arena, "%s (0: %s)", text, all->zero_name);
}

static void conclude(struct single_writer *all)
{
    uint64_t late = late_answers(all);
    const char *answers = late == 0 ? ""
                                    : arena_printf(all->arena,
                                                   "; %" PRIu64 " answers to earlier commits came "
                                                   "late",
                                                   late);

    if (all->wrong.count > 0)
        check_conclude(all->result, VERDICT_FAIL, "%s (0: %s)", reasons_text(&all->wrong),
                       all->zero_name);
    else if (all->doubtful.count > 0)
        check_conclude(all->result, VERDICT_INCONCLUSIVE, "%s; %s", reasons_text(&all->doubtful),
                       succession(all));
    else
        check_conclude(all->result, VERDICT_PASS, "%s%s", succession(all), answers);
}

/* A writer that began and ended between two looks would not have been seen. */
static int64_t resolution_ns(const struct single_writer *all)
{
    int64_t longest_ns = all->spacing_ns;

    if (all->longest_pause_ns > longest_ns)
        longest_ns = all->longest_pause_ns;
    return all->longest_silence_ns > longest_ns ? all->longest_silence_ns : longest_ns;
}

static void set_zero(struct single_writer *all, const struct evidence_fault *fault)
{
    int64_t to_ns;

    if (fault != NULL) {
        all->zero_ns = fault->f0_ns;
        all->zero_name = "the fault";
        return;
    }
    if (!blind_span(all->record, &all->zero_ns, &to_ns))
        all->zero_ns = 0;
    all->zero_name = "begin of the load";
}

static enum status judge(const struct record *record, const json_t *params, struct arena *arena,
                         struct check_result *ret_result, struct error *err)
{
    struct single_writer *all = arena_alloc(arena, sizeof *all);
    struct evidence_faults faults = evidence_faults(record, arena);
    const struct evidence_fault *fault = evidence_first_fault(&faults);
    int64_t limit_ns = json_number(params, "blind-after", 300) * NS_PER_MS;
    int64_t pause_ns = json_number(params, "pause-after", 1500) * NS_PER_MS;

    (void) err;
    all->record = record;
    all->arena = arena;
    all->result = ret_result;
    all->wrong.arena = arena;
    all->doubtful.arena = arena;
    all->directs = direct_probes_new(arena);
    set_zero(all, fault);
    read_ledgers(all);
    find_overlaps(all);
    int64_t overlap_ns = name_overlaps(all);
    judge_ledgers(all);
    judge_sight(all, fault, limit_ns, pause_ns);
    if (fault != NULL)
        measure_fencing(all, fault);
    ret_result->value = evidence_json_ms(overlap_ns);
    ret_result->bound = json_integer(0);
    ret_result->unit = "ms";
    if (all->spacing_ns > 0)
        ret_result->resolution = evidence_json_ms(resolution_ns(all));
    ret_result->evidence = "ledger/";
    evidence_detail(ret_result, "writers", writers_json(all));
    evidence_detail(ret_result, "probe_spacing_ms", evidence_json_ms(all->spacing_ns));
    evidence_detail(ret_result, "longest_pause_ms", evidence_json_ms(all->longest_pause_ns));
    evidence_detail(ret_result, "longest_silence_ms", evidence_json_ms(all->longest_silence_ns));
    evidence_detail(ret_result, "late_answers", json_integer((json_int_t) late_answers(all)));
    conclude(all);
    return STATUS_OK;
}

static const struct param params[] = {
    {.name = "blind-after",
     .type = PARAM_DURATION,
     .fallback = "300ms",
     .minimum = 1,
     .maximum = 60000,
     .help = "longest silence of a worker that still counts as looking (a beat is 50 ms)"},
    {.name = "pause-after",
     .type = PARAM_DURATION,
     .fallback = "1500ms",
     .minimum = 1,
     .maximum = 60000,
     .help =
         "longest time in which no direct probe of a node is under way; a connection that finds "
         "no host takes 1 s"},
    {.name = NULL},
};

const struct check check_single_writer = {
    .name = "single-writer",
    .summary = "at most one node accepts writes at any instant",
    .negative_control = "tests/calibration/test_calibration_writes.c: two writers for 200 ms",
    .params = params,
    .judge = judge,
};
