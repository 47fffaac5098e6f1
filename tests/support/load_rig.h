/* SPDX-License-Identifier: MIT */
/*
 * Load workers as processes of a test, against a throw-away PostgreSQL, and their ledgers held
 * against the table with SQL.
 *
 *     load_rig_make_plan(false, "{\"clients\": 2, \"rate\": 100}", NULL);
 *     load_rig_start_workers();
 *     await(load_rig_acked(0) >= 20, 10000);
 *     load_rig_stop_workers(5000);
 *     struct ledger ledger = load_rig_open_ledger(0);
 */
#ifndef ORDEAL_TESTS_SUPPORT_LOAD_RIG_H
#define ORDEAL_TESTS_SUPPORT_LOAD_RIG_H

#include <check.h>
#include <unistd.h>

#include "agents/load/worker.h"
#include "lib/clock.h"
#include "lib/process.h"
#include "tests/support/throwaway_postgres.h"

extern struct throwaway load_rig_server;
extern struct load_plan load_rig_plan;
extern struct load_shared *load_rig_shared;
extern struct process load_rig_processes[LOAD_WORKERS_MAX];
extern PGconn *load_rig_admin;

int64_t load_rig_number(const char *sql);
void load_rig_execute(const char *sql);
void load_rig_start_server(void);
void load_rig_stop_server(void);
void load_rig_setup(void);
void load_rig_teardown(void);
/* workload, probes: JSON as in load.start, or NULL. */
void load_rig_make_plan(bool managed, const char *workload, const char *probes);
void load_rig_start_workers(void);
void load_rig_poke(void);
void load_rig_stop_workers(int64_t drain_ms); /* in order, and all of them complete */
uint64_t load_rig_acked(size_t worker);
struct ledger load_rig_open_ledger(size_t worker);
size_t load_rig_count_kind(const struct ledger *ledger, enum ledger_kind kind);
size_t load_rig_count_class(const struct ledger *ledger, enum ledger_class class);
const struct ledger_record *load_rig_find(const struct ledger *ledger, enum ledger_kind kind,
                                          uint32_t client, uint64_t seq);
bool load_rig_reserved(const struct ledger *ledger, uint32_t client, uint64_t seq);
/* Statements over the ledgers that were loaded: tokens acknowledged and absent, present and never
 * meant. */
#define LOAD_RIG_LOST                                                                              \
    "SELECT count(*) FROM (SELECT client, seq FROM outcome WHERE class = 0"                        \
    " EXCEPT SELECT client, seq FROM ordeal.journal) lost"
#define LOAD_RIG_UNKNOWN                                                                           \
    "SELECT count(*) FROM (SELECT client, seq FROM ordeal.journal EXCEPT SELECT * FROM intent) u"

/* All ledgers that were loaded hold what the table holds. */
void load_rig_load_outcomes(const struct ledger *ledger);
void load_rig_compare_with_table(void);
void load_rig_check_against_table(const struct ledger *ledger); /* both */
void load_rig_check_digests(void);
/* The suite's one case: the server once for all tests, the rest for each. */
TCase *load_rig_case(Suite *suite, const char *skip_reason);

/* Wait until `condition` holds, at most so long; says what it was waiting for. */
#define await(condition, timeout_ms)                                                               \
    do {                                                                                           \
        int64_t await_until_ns = deadline_in_ms(timeout_ms);                                       \
        while (!(condition)) {                                                                     \
            ck_assert_msg(!deadline_passed(await_until_ns), "waited in vain for %s", #condition);  \
            usleep(5000);                                                                          \
        }                                                                                          \
    } while (0)

#endif
