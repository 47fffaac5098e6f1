/* SPDX-License-Identifier: MIT */
/* The probes write again: the outage is over only when the workload does, too. */
#include <check.h>
#include <string.h>

#include "lib/clock.h"
#include "tests/support/run_judge.h"
#include "tests/support/suite.h"

/* Writes are back at 5904 ms, and the load goes on for 4 s. */
static struct run_builder *away(uint32_t clients, int64_t outage_ms)
{
    struct run_builder *run = run_standard(&(struct run_plan){.outage_ms = outage_ms});

    for (uint32_t client = 1; client <= clients; client++)
        run_stays_away(run, client, RUN_FAULT_MS);
    return run;
}

START_TEST(no_client_comes_back)
{
    expect_verdict(away(RUN_WORKLOAD, 900), "failover-time", NULL, VERDICT_FAIL,
                   "no workload client came back (of 4)");
}
END_TEST

START_TEST(some_clients_never_come_back)
{
    expect_verdict(away(1, 900), "failover-time", NULL, VERDICT_INCONCLUSIVE,
                   "1 of 4 workload clients never came back");
    expect_verdict(away(3, 900), "failover-time", NULL, VERDICT_INCONCLUSIVE,
                   "3 of 4 workload clients never came back");
}
END_TEST

START_TEST(all_clients_come_back)
{
    expect_verdict(away(0, 900), "failover-time", NULL, VERDICT_PASS, NULL);
}
END_TEST

/* Back at 6803 ms: 1.8 s and 2 s more are not over when the load ends at 10 s. */
START_TEST(the_load_ends_soon_after_the_outage)
{
    expect_verdict(away(RUN_WORKLOAD, 1800), "failover-time", NULL, VERDICT_INCONCLUSIVE,
                   "the load ended before any of 4 workload clients");
    expect_verdict(away(1, 1800), "failover-time", NULL, VERDICT_PASS, NULL);
}
END_TEST

/* It was back at once after the first outage, and stays away after the second. */
START_TEST(each_outage_is_looked_at)
{
    struct run_plan plan = {.outage_ms = 300, .second_ms = 6500, .second_outage_ms = 400};
    struct run_builder *run = run_standard(&plan);

    for (uint32_t client = 1; client <= RUN_WORKLOAD; client++)
        run_stays_away(run, client, 6500);
    expect_verdict(run, "failover-time", NULL, VERDICT_FAIL, "no workload client came back");
    expect_verdict(run_standard(&plan), "failover-time", NULL, VERDICT_PASS, NULL);
}
END_TEST

/* Restarted in place: no failover, and the same question. */
START_TEST(no_client_comes_back_in_place)
{
    struct run_builder *run =
        run_standard(&(struct run_plan){.no_failover = true, .outage_ms = 900});

    for (uint32_t client = 1; client <= RUN_WORKLOAD; client++)
        run_stays_away(run, client, RUN_FAULT_MS);
    expect_verdict(run, "failover-time", NULL, VERDICT_FAIL, "no workload client came back");
}
END_TEST

/* One client hangs in its last attempt until the load ends: it tried all the time. */
START_TEST(clients_that_hang)
{
    struct run_builder *run = away(RUN_WORKLOAD, 900);
    struct run_ledger *ledger = &run->ledgers[0];

    for (size_t i = 0; i < ledger->count; i++) {
        struct ledger_record *record = &ledger->records[i];
        if (record->kind != LEDGER_OUTCOME || record->client > RUN_WORKLOAD ||
            record->scheduled_ns < run_client_ns(5100))
            continue;
        *record = (struct ledger_record){.kind = LEDGER_BEAT, .done_ns = record->done_ns};
    }
    run_record(run, 0,
               (struct ledger_record){.kind = LEDGER_OUTCOME,
                                      .class = LEDGER_UNSENT,
                                      .phase = LEDGER_CONNECTING,
                                      .client = 1,
                                      .seq = 90000,
                                      .scheduled_ns = run_client_ns(5101),
                                      .done_ns = run_client_ns(9990)});
    expect_verdict(run, "failover-time", NULL, VERDICT_FAIL, "no workload client came back");
}
END_TEST

/* What a client is told on an abandoned branch brings it back to nothing. */
START_TEST(answered_on_a_branch)
{
    struct run_builder *run = away(RUN_WORKLOAD, 900);

    run_attempt(run, 1, LEDGER_ACKED, 0, 1, 7000);
    expect_verdict(run, "failover-time", NULL, VERDICT_FAIL, "no workload client came back");
}
END_TEST

/* A client that was never served before says nothing of those that were. */
START_TEST(a_client_that_was_not_there_before)
{
    struct run_builder *run = away(0, 900);

    for (uint32_t client = 2; client <= RUN_WORKLOAD; client++)
        run_stays_away(run, client, RUN_FAULT_MS);
    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (record->client == 1 && record->kind == LEDGER_OUTCOME &&
            record->done_ns < run_client_ns(5500))
            record->class = LEDGER_IN_DOUBT;
    }
    expect_verdict(run, "failover-time", NULL, VERDICT_FAIL, "no workload client came back (of 3)");
}
END_TEST

TEST_MAIN("check failover-time, return of the workload", 60, NULL, NULL, no_client_comes_back,
          some_clients_never_come_back, all_clients_come_back, the_load_ends_soon_after_the_outage,
          each_outage_is_looked_at, no_client_comes_back_in_place, clients_that_hang,
          answered_on_a_branch, a_client_that_was_not_there_before)
