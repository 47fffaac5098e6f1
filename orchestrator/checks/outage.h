/* SPDX-License-Identifier: MIT */
/*
 * The write outage as the clients felt it: acknowledgements through the endpoint, the gaps between
 * them, and how finely anybody looked. Definitions: docs/verdicts.md.
 */
#ifndef ORDEAL_ORCHESTRATOR_CHECKS_OUTAGE_H
#define ORDEAL_ORCHESTRATOR_CHECKS_OUTAGE_H

#include "orchestrator/checks/evidence.h"
#include "orchestrator/checks/series.h"

struct ack {
    int64_t done_ns, sent_ns, begun_ns, scheduled_ns; /* sent: the COMMIT */
    uint64_t lsn, next_lsn;                           /* its record lies between them; 0: unknown */
    uint32_t client, timeline;
    uint16_t node; /* index in the walk's nodes */
    bool workload; /* of a workload client, else of an endpoint probe */
    bool serves;   /* of the final primary's history, so that it can end an outage */
};

/* Between two acknowledgements. */
struct gap {
    int64_t begin_ns, end_ns; /* end: the last scheduled start when nothing ended it */
    uint32_t from, to;        /* timelines; to > from: a failover happened in it */
    uint16_t from_node;       /* of the acknowledgement before it */
    uint16_t to_node;         /* of the one that ended it */
    int64_t latency_ns;       /* how long the acknowledgement before it had taken */
    bool ended;               /* by an acknowledgement; else the load's end is its end */
    bool open;                /* not ended, and longer than a gap between two attempts */
    /* what follows: outage_measure */
    int64_t resolution_ns; /* error: both edges, or the median spacing when that is more */
    int64_t begin_edge_ns; /* from the last acknowledgement until it was seen that service ended */
    int64_t end_edge_ns;   /* since service was last seen missing before the first one */
    int64_t edge_ns;       /* both */
    int64_t longest_ns;    /* longest spacing of starts from 1 s before to 1 s after */
};

enum { OUTAGE_ANY_NODE = UINT16_MAX };

struct sight {
    int64_t at_ns;
    uint16_t node; /* what was seen holds for this one, or for OUTAGE_ANY_NODE */
};

struct sights {
    size_t count, room;
    struct sight *items; /* by at_ns */
};

struct outage {
    struct arena *arena;
    size_t count;
    struct ack *acks;          /* acknowledged through the endpoint, by done_ns */
    struct series starts;      /* real begins of attempts of the endpoint probes (of the workload
                                  when there are none) */
    struct sights begins;      /* of attempts of all clients */
    struct sights cuts;        /* ends of attempts that the other side ended */
    struct sights missing;     /* the host, or every one, took no write at some moment after it */
    int64_t work_until_ns;     /* the last scheduled start */
    int64_t workload_until_ns; /* until then workload clients had work, or still tried */
    uint64_t missed;           /* starts that could not begin in time */
    int64_t spacing_ns;        /* median spacing of the starts */
    int64_t latency_ns;        /* median time of an acknowledged transaction */

    /* outage_find */
    const struct evidence_faults *faults;
    bool found; /* something was acknowledged at all */
    size_t gap_count, gap_room;
    struct gap *gaps;   /* longer than three times the median spacing, or with a failover in it */
    struct gap longest; /* after `from_ns`, however short */
    int64_t union_ns;   /* all of those longer than three times the median spacing */
    uint64_t unplaced;  /* acknowledged on an older timeline at an unknown position */
};

void outage_read(struct outage *outage, const struct record *record, struct arena *arena);
/*
 * The gaps that end after `from_ns`, and the failovers before it. Only an acknowledgement of the
 * final history ends one, and only of work that was scheduled after the last fault that began
 * before it. One that is not (on an abandoned branch, or a late answer) is service only while there
 * is no gap yet.
 */
void outage_find(struct outage *outage, const struct evidence_history *history,
                 const struct evidence_faults *faults, int64_t from_ns);
/* Fill in the error of a gap. */
void outage_measure(const struct outage *outage, struct gap *gap);
/* First one in the final history on a timeline (or a later one), of work that was scheduled at or
   after an instant; NULL: none. */
const struct ack *outage_first(const struct outage *outage, uint32_t timeline, int64_t from_ns);
/* Timeline of the last acknowledgement at or before an instant, 0 when there is none. */
uint32_t outage_timeline_at(const struct outage *outage, int64_t at_ns);

struct outage_clients {
    uint64_t count, never_back; /* workload clients that were acknowledged before the instant */
    int64_t p50_ns, p95_ns, max_ns;
};
/* Per client: the first one as outage_first tells, minus the instant. */
struct outage_clients outage_clients(const struct outage *outage, uint32_t timeline,
                                     int64_t from_ns);

#endif
