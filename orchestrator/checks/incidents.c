/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/incidents.h"

#include <string.h>

#include "lib/clock.h"

/* A fault and the end of writes belong together within it. */
#define SHORTLY_NS NS_PER_SECOND

static bool is_expected(const struct record *record, const struct evidence_fault *fault)
{
    const char *failover = evidence_expectation(record, fault->step, "failover");

    return failover != NULL && strcmp(failover, "yes") == 0;
}

/* What nothing ended goes on. */
static int64_t end_of(const struct gap *gap)
{
    return gap->ended ? gap->end_ns : INT64_MAX;
}

/*
 * Of the faults since the failover before, the last one that began before writes stopped (or
 * shortly after: its interval is not a point), else the first one.
 */
static const struct evidence_fault *choose_of(const struct record *record,
                                              const struct evidence_faults *faults,
                                              const struct gap *gap, int64_t since_ns,
                                              bool expected_only)
{
    const struct evidence_fault *chosen = NULL;
    const struct evidence_fault *first = NULL;

    for (size_t i = 0; i < faults->count; i++) {
        const struct evidence_fault *fault = &faults->items[i];
        if (!fault->placed || fault->f0_ns <= since_ns || fault->f0_ns > end_of(gap) ||
            (expected_only && !is_expected(record, fault)))
            continue;
        if (first == NULL || fault->f0_ns < first->f0_ns)
            first = fault;
        if (fault->f0_ns <= gap->begin_ns + SHORTLY_NS &&
            (chosen == NULL || fault->f0_ns > chosen->f0_ns))
            chosen = fault;
    }
    return chosen == NULL ? first : chosen;
}

/* The fault that a gap counts from: of a failover one that was to bring it, if there is one. */
static const struct evidence_fault *choose_fault(const struct record *record,
                                                 const struct evidence_faults *faults,
                                                 const struct gap *gap, int64_t since_ns)
{
    const struct evidence_fault *chosen = NULL;

    if (gap->to > gap->from)
        chosen = choose_of(record, faults, gap, since_ns, true);
    return chosen != NULL ? chosen : choose_of(record, faults, gap, since_ns, false);
}

/* A fault that came while writes stood still already may bring a failover of its own. */
static int64_t left_over_since(const struct incident *before)
{
    int64_t since_ns = before->gap.begin_ns;

    return before->fault != NULL && before->fault->f0_ns > since_ns ? before->fault->f0_ns
                                                                    : since_ns;
}

static struct incident incident_of(const struct incidents *incidents, const struct record *record,
                                   const struct evidence_faults *faults, const struct gap *gap,
                                   const struct incident *before)
{
    int64_t since_ns = before == NULL ? INT64_MIN : before->gap.end_ns;
    struct incident incident = {.gap = *gap, .failover = gap->to > gap->from, .time_ns = -1};

    outage_measure(&incidents->outage, &incident.gap);
    incident.fault = choose_fault(record, faults, gap, since_ns);
    if (incident.fault == NULL && before != NULL)
        incident.fault = choose_fault(record, faults, gap, left_over_since(before));
    if (incident.fault == NULL && before != NULL) {
        incident.again = incident.failover;
        incident.fault = choose_fault(record, faults, gap, INT64_MIN);
    }
    if (incident.failover && incident.fault != NULL) {
        const struct ack *ack = outage_first(&incidents->outage, gap->to, incident.fault->f0_ns);
        incident.time_ns = ack == NULL ? -1 : ack->done_ns - incident.fault->f0_ns;
    }
    return incident;
}

static bool is_same(const struct gap *one, const struct gap *other)
{
    return one->begin_ns == other->begin_ns && one->end_ns == other->end_ns;
}

static void find_items(struct incidents *incidents, const struct record *record,
                       const struct evidence_faults *faults, int64_t floor_ns, struct arena *arena)
{
    const struct outage *outage = &incidents->outage;
    const struct incident *before = NULL; /* the last failover */

    incidents->items = arena_array(arena, outage->gap_count + 1, sizeof *incidents->items);
    for (size_t i = 0; i < outage->gap_count; i++) {
        const struct gap *gap = &outage->gaps[i];
        bool longest = is_same(gap, &outage->longest);
        if (gap->to <= gap->from && gap->end_ns - gap->begin_ns < floor_ns && !longest)
            continue;
        struct incident *item = &incidents->items[incidents->count++];
        *item = incident_of(incidents, record, faults, gap, before);
        if (item->failover)
            before = item;
        if (longest && incidents->longest == NULL)
            incidents->longest = item;
    }
    if (incidents->longest == NULL && outage->found) { /* so short that it is no outage */
        struct incident *item = &incidents->items[incidents->count++];
        *item = incident_of(incidents, record, faults, &outage->longest, NULL);
        incidents->longest = item;
    }
}

static bool several_timelines(const struct outage *outage)
{
    for (size_t i = 1; i < outage->count; i++)
        if (outage->acks[i].timeline != outage->acks[0].timeline)
            return true;
    return false;
}

void incidents_find(struct incidents *incidents, const struct record *record,
                    const struct evidence_faults *faults, const struct evidence_history *history,
                    int64_t floor_ns, struct arena *arena)
{
    const struct evidence_fault *first = evidence_first_fault(faults);
    int64_t from_ns = first == NULL ? INT64_MIN : first->f0_ns;
    struct outage *outage = &incidents->outage;

    *incidents = (struct incidents){0};
    outage_read(outage, record, arena);
    outage_find(outage, history, faults, from_ns);
    incidents->branches_unknown = !history->known && several_timelines(outage);
    if (outage->count > 0) {
        incidents->old_timeline =
            first == NULL ? outage->acks[0].timeline : outage_timeline_at(outage, from_ns);
        incidents->timeline =
            history->known ? history->timeline : outage->acks[outage->count - 1].timeline;
    }
    find_items(incidents, record, faults, floor_ns, arena);
}

/* Faults of one step, and those that came while writes stood still already, share a failover. */
bool incidents_followed(const struct incidents *incidents, const struct evidence_fault *fault)
{
    for (size_t i = 0; i < incidents->count; i++) {
        const struct incident *item = &incidents->items[i];
        if (!item->failover)
            continue;
        if (item->fault != NULL && strcmp(item->fault->step, fault->step) == 0)
            return true;
        if (fault->f0_ns >= item->gap.begin_ns - SHORTLY_NS && fault->f0_ns <= end_of(&item->gap))
            return true;
    }
    return false;
}
