/* SPDX-License-Identifier: MIT */
/*
 * Run directories made by hand, so that a test can plant exactly one defect into a run that is
 * whole otherwise.
 *
 *     struct run_builder *run = run_standard(&(struct run_plan){.outage_ms = 1800});
 *     run_absent(run, "n2", 1, 17);                an acknowledged row is gone
 *     run_write(run);                              journal, ledgers, present sets
 *     ... judge run->folder ...
 *     run_free(run);                               removes the directory
 *
 * Instants are ms since the run began. The client node's clock is 1000 s ahead of the
 * orchestrator's, that of n1 2000 s, n2 3000 s, n3 4000 s, so that a forgotten conversion shows.
 *
 * The standard run: n1 is primary on timeline 1, four clients and two probes write through the
 * endpoint every 10 and 5 ms, each node is probed directly every 20 ms. At 5 s n1 is killed, at
 * 5 s + outage n2 acknowledges on timeline 2; n1 comes back as a standby. The load ends at 10 s.
 * With `second_ms` the writer of that moment is killed in turn, and the next node takes over.
 */
#ifndef ORDEAL_TESTS_SUPPORT_RUN_BUILDER_H
#define ORDEAL_TESTS_SUPPORT_RUN_BUILDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/ledger.h"

enum {
    RUN_NODES = 4, /* n1, n2, n3, c1 */
    RUN_WORKLOAD = 4,
    RUN_OLD_PROBE = 1000000,
    RUN_NEW_PROBE,
    RUN_DIRECT_N1,
    RUN_DIRECT_N2,
    RUN_DIRECT_N3,
    RUN_FAULT_MS = 5000,
    RUN_END_MS = 10000
};

struct run_plan {
    bool no_fault;            /* a baseline: nothing is injected */
    bool no_failover;         /* writes come back on n1, timeline 1 */
    bool never_back;          /* writes do not come back */
    int64_t outage_ms;        /* 0: 1800 */
    int64_t load_from_ms;     /* the workload begins */
    int64_t load_until_ms;    /* and ends; 0: RUN_END_MS */
    int64_t old_writer_until; /* n1's direct probe is acknowledged until then; 0: the fault */
    int64_t blind_from, blind_until; /* the worker stands still */
    enum ledger_level level;         /* 0: LEDGER_ON */
    const char *promise;             /* NULL: "quorum" */
    bool stall;                      /* both standbys are frozen until the outage is over */
    json_t *expect;                  /* of the step; taken; NULL: {failover: yes} */
    int64_t second_ms;               /* then the writer of that moment is killed (step "again") */
    int64_t second_outage_ms;        /* and the next node takes over after; 0: 900 */
    bool second_never;               /* it never does */
    json_t *second_expect;           /* of that step; taken; NULL: {failover: yes} */
    json_t *checks;                  /* of the scenario; taken; NULL: {} */
};

struct run_ledger {
    struct ledger_header header;
    struct ledger_record *records;
    size_t count, room;
    bool torn;    /* garbage behind the last record */
    bool missing; /* not written at all */
};

struct run_token {
    uint32_t client;
    uint64_t seq, rows, of, bad; /* rows 0: once and whole */
};

struct run_present {
    struct run_token *tokens;
    size_t count, room;
    bool cut;           /* no end line */
    const char *system; /* its identifier; NULL: that of the others */
    const char *lsn;    /* position when read; NULL: that of the others */
    const char *run;    /* that it says it is of; NULL: this one */
    uint32_t timeline;  /* that it was read on; 0: the final one */
};

struct run_builder {
    char folder[80]; /* below TMPDIR, or /tmp */
    json_t *journal;
    size_t ledger_count;
    struct run_ledger ledgers[4];
    struct run_present present[RUN_NODES - 1];
    uint64_t sequences[RUN_WORKLOAD + 6];
    bool journal_torn;
};

struct run_builder *run_standard(const struct run_plan *plan);
void run_write(struct run_builder *run);
void run_free(struct run_builder *run);

/* --- planting --------------------------------------------------------------------------------- */

int64_t run_client_ns(int64_t at_ms);
int64_t run_node_ns(const char *node, int64_t at_ms);
uint64_t run_lsn(int64_t at_ms); /* of the writer at an instant */
/* Takes members. */
void run_event(struct run_builder *run, int64_t at_ms, const char *event, json_t *members);
/* The last event of that name (borrowed, may be changed), NULL when there is none. */
json_t *run_find(struct run_builder *run, const char *event);
json_t *run_find_where(struct run_builder *run, const char *event, const char *member,
                       const char *value);
void run_drop(struct run_builder *run, const char *event); /* all of that name */
/* The end of a ledger stays last. */
void run_record(struct run_builder *run, size_t ledger, struct ledger_record record);
/*
 * One more transaction: intent, and 1 ms later the outcome, at an instant and at the position of
 * that instant. Not present. Returns its token.
 */
uint64_t run_attempt(struct run_builder *run, uint32_t client, enum ledger_class class,
                     uint16_t node, uint32_t timeline, int64_t at_ms);
/* A client saw a token of another one. */
void run_read(struct run_builder *run, uint32_t client, uint64_t seq, uint16_t node,
              uint32_t timeline, int64_t at_ms);
/* The scenario of the run (borrowed, may be changed), and a step's `expect`. */
json_t *run_scenario(struct run_builder *run);
void run_expect(struct run_builder *run, const char *name, const char *value);
/* A check's parameter; the scenario names that check then. */
void run_param(struct run_builder *run, const char *check, const char *name, int64_t value);
/* A record of the ledgers by its token, NULL when there is none. */
struct ledger_record *run_outcome(struct run_builder *run, uint32_t client, uint64_t seq);
/* The first / last token of a client with that class; 0 when there is none. */
uint64_t run_first(struct run_builder *run, uint32_t client, enum ledger_class class);
uint64_t run_last(struct run_builder *run, uint32_t client, enum ledger_class class);
/* The last token of a client with that class that was done before an instant. */
uint64_t run_last_before(struct run_builder *run, uint32_t client, enum ledger_class class,
                         int64_t at_ms);
/* node NULL: all nodes. Absent or present on a node; odd: rows of `of`, `bad` of them wrong. */
void run_absent(struct run_builder *run, const char *node, uint32_t client, uint64_t seq);
void run_present(struct run_builder *run, const char *node, uint32_t client, uint64_t seq);
void run_odd(struct run_builder *run, const char *node, uint32_t client, uint64_t seq,
             uint64_t rows, uint64_t of, uint64_t bad);
/* A workload client is refused for good from then on: it tries on, and nothing of it arrives. */
void run_stays_away(struct run_builder *run, uint32_t client, int64_t from_ms);

#endif
