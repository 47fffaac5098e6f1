/* SPDX-License-Identifier: MIT */
/*
 * The write outage as the clients felt it: acknowledgements through the endpoint, the gaps between
 * them, and how finely anybody looked. Definitions: design section 9, docs/verdicts.md.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_OUTAGE_H
#define ORDEAL_ORCHESTRATOR_CHECKS_OUTAGE_H

#include "orchestrator/checks/evidence.h"
#include "orchestrator/checks/series.h"

struct ack {
    int64_t done_ns, sent_ns, begun_ns, scheduled_ns; /* sent: the COMMIT */
    uint32_t client, timeline;
    bool workload; /* of a workload client, else of an endpoint probe */
};

struct outage {
    struct arena *arena;
    size_t count;
    struct ack *acks;       /* acknowledged through the endpoint, by done_ns */
    struct series starts;   /* real begins of attempts of the endpoint probes (of the workload
                               when there are none) */
    struct series failures; /* ends of attempts that were not acknowledged, all clients */
    int64_t work_until_ns;  /* the last scheduled start */
    uint64_t missed;        /* starts that could not begin in time */
    int64_t spacing_ns;     /* median spacing of the starts */
    int64_t latency_ns;     /* median, of acknowledged transactions */

    /* Filled by outage_find(). */
    bool found;               /* there are acknowledgements to look between */
    bool open;                /* the longest gap has no end: writes did not come back */
    int64_t begin_ns, end_ns; /* of the outage; end: the last start when it is open */
    int64_t resolution_ns;    /* its error: both edges, or the median spacing when that is more */
    int64_t begin_edge_ns;    /* until the next attempt after the last acknowledgement */
    int64_t end_edge_ns;      /* since service was last seen missing before the first one */
    int64_t edge_ns;          /* both */
    int64_t longest_ns;       /* longest spacing of starts from 1 s before to 1 s after */
    int64_t union_ns;         /* all gaps longer than three times the median spacing */
};

void outage_read(struct outage *outage, const struct record *record, struct arena *arena);
/*
 * The longest gap that ends after `from_ns`. Its end is the first acknowledgement on
 * `timeline` (0: any) of work that was scheduled at or after `from_ns`.
 */
void outage_find(struct outage *outage, int64_t from_ns, uint32_t timeline);
/* First acknowledgement on a timeline of work scheduled at or after an instant, or NULL. */
const struct ack *outage_first(const struct outage *outage, uint32_t timeline, int64_t from_ns);
/* Timeline of the last acknowledgement at or before an instant, 0 when there is none. */
uint32_t outage_timeline_at(const struct outage *outage, int64_t at_ns);

struct outage_clients {
    uint64_t count, never_back; /* workload clients that were acknowledged before the instant */
    int64_t p50_ns, p95_ns, max_ns;
};
/* Per client: first acknowledgement on a timeline of work scheduled after `from_ns`, minus it. */
struct outage_clients outage_clients(const struct outage *outage, uint32_t timeline,
                                     int64_t from_ns);

#endif
