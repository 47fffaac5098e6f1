/* SPDX-License-Identifier: MIT */
/*
 * How exactly a gap is known: for how long nobody could have noticed that service had ended, and
 * for how long nobody could have noticed that it was back. docs/verdicts.md has the reasons.
 */
#include <string.h>

#include "lib/clock.h"
#include "orchestrator/checks/outage.h"

enum {
    RESEND_MS = 200
}; /* TCP sends again after this at the earliest, and then ever more seldom */

/* --- sights ----------------------------------------------------------------------------------- */

static bool shows(const struct sight *sight, uint16_t node)
{
    return sight->node == node || sight->node == OUTAGE_ANY_NODE || node == OUTAGE_ANY_NODE;
}

/* Index of the first one that is not before an instant. */
static size_t find(const struct sights *sights, int64_t at_ns)
{
    return sights->count == 0 ? 0
                              : series_lower_bound(&sights->items[0].at_ns, sights->count,
                                                   sizeof sights->items[0], at_ns);
}

/* The first one of a node after an instant; INT64_MAX: none. */
static int64_t first_after(const struct sights *sights, int64_t at_ns, uint16_t node)
{
    for (size_t i = find(sights, at_ns + 1); i < sights->count; i++)
        if (shows(&sights->items[i], node))
            return sights->items[i].at_ns;
    return INT64_MAX;
}

/* The last one of a node at or before an instant, but after `from_ns`, which is the answer else. */
static int64_t last_before(const struct sights *sights, int64_t at_ns, uint16_t node,
                           int64_t from_ns)
{
    for (size_t i = find(sights, at_ns + 1); i > 0 && sights->items[i - 1].at_ns > from_ns; i--)
        if (shows(&sights->items[i - 1], node))
            return sights->items[i - 1].at_ns;
    return from_ns;
}

/* --- the begin -------------------------------------------------------------------------------- */

/*
 * Service had ended when its host cut an attempt off. Without that: when the next attempt would
 * have been answered, had it taken as long as the last one that was, or as most do.
 */
static int64_t begin_edge(const struct outage *outage, const struct gap *gap)
{
    int64_t cut_ns = first_after(&outage->cuts, gap->begin_ns, gap->from_node);
    int64_t next_ns = first_after(&outage->begins, gap->begin_ns, gap->from_node);
    int64_t latency_ns =
        gap->latency_ns > outage->latency_ns ? gap->latency_ns : outage->latency_ns;
    int64_t seen_ns = gap->end_ns;

    if (next_ns < seen_ns - latency_ns)
        seen_ns = next_ns + latency_ns;
    if (cut_ns < seen_ns)
        seen_ns = cut_ns;
    return seen_ns - gap->begin_ns;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* Did a fault in it lose packets? Then who waits longer may just not have been heard. */
static bool loses_packets(const struct outage *outage, const struct gap *gap)
{
    for (size_t i = 0; i < outage->faults->count; i++) {
        const struct evidence_fault *fault = &outage->faults->items[i];
        if (fault->fault != NULL && strncmp(fault->fault, "network.", 8) == 0 &&
            (!fault->placed || (fault->f0_ns < gap->end_ns &&
                                (fault->undone_ns == 0 || fault->undone_ns > gap->begin_ns))))
            return true;
    }
    return false;
}

static size_t first_ack(const struct outage *outage, int64_t done_ns)
{
    return outage->count == 0 ? 0
                              : series_lower_bound(&outage->acks[0].done_ns, outage->count,
                                                   sizeof outage->acks[0], done_ns);
}

/*
 * A write that is under way is a look that lasts: its host answers as soon as it can. So nobody
 * looked only from the last time that service was seen missing until the first write began that
 * was answered then. Answers come one after the other: a write shows nothing finer than how much
 * later than the first one its own answer came.
 */
static int64_t end_edge(const struct outage *outage, const struct gap *gap)
{
    bool lossy = loses_packets(outage, gap);
    int64_t edge_ns =
        gap->end_ns - last_before(&outage->missing, gap->end_ns, gap->to_node, gap->begin_ns);

    if (gap->open)
        return 0;
    for (size_t i = first_ack(outage, gap->end_ns);
         i < outage->count && outage->acks[i].done_ns - gap->end_ns < edge_ns; i++) {
        const struct ack *ack = &outage->acks[i];
        if (ack->node != gap->to_node ||
            (lossy && ack->done_ns - ack->begun_ns >= RESEND_MS * NS_PER_MS))
            continue;
        int64_t later_ns = ack->done_ns - gap->end_ns;
        int64_t unseen_ns = ack->begun_ns - last_before(&outage->missing, ack->begun_ns,
                                                        gap->to_node, gap->begin_ns);
        if (unseen_ns < later_ns)
            unseen_ns = later_ns;
        edge_ns = unseen_ns < edge_ns ? unseen_ns : edge_ns;
    }
    return edge_ns;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int64_t longest_spacing(const struct outage *outage, const struct gap *gap)
{
    const struct series *starts = &outage->starts;
    int64_t longest_ns = 0;

    for (size_t i = series_find(starts, gap->begin_ns - NS_PER_SECOND) + 1;
         i < starts->count && starts->values[i - 1] < gap->end_ns + NS_PER_SECOND; i++)
        if (starts->values[i] - starts->values[i - 1] > longest_ns)
            longest_ns = starts->values[i] - starts->values[i - 1];
    return longest_ns;
}

/* Both edges, and never finer than the probes are spaced. */
void outage_measure(const struct outage *outage, struct gap *gap)
{
    int64_t length_ns = gap->end_ns - gap->begin_ns;

    gap->begin_edge_ns = begin_edge(outage, gap);
    gap->end_edge_ns = end_edge(outage, gap);
    gap->edge_ns = gap->begin_edge_ns + gap->end_edge_ns;
    if (gap->edge_ns > length_ns)
        gap->edge_ns = length_ns;
    gap->resolution_ns = gap->edge_ns > outage->spacing_ns ? gap->edge_ns : outage->spacing_ns;
    gap->longest_ns = longest_spacing(outage, gap);
}
