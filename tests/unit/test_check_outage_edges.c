/* SPDX-License-Identifier: MIT */
/*
 * How exactly an outage is known. The standard run loses n1 at 5 s and is served by n2 from 6.8 s
 * on; here the looks at its two edges are set by hand. A resolution is a claim: half of these tests
 * show what must not count.
 */
#include <check.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "orchestrator/checks/outage.h"
#include "tests/support/run_judge.h"
#include "tests/support/suite.h"

enum { N1, N2, N3 };

/* All instants are ms; the last acknowledgement, of n1, is at 1000, the first one, of n2, at 3000.
 */
static struct arena *arena;
static struct outage outage;
static struct evidence_faults faults;
static struct evidence_fault fault;
static struct ack acks[8];
static struct sight begins[8], cuts[8], missing[8];
static struct gap gap;

static int64_t ns(double ms)
{
    return (int64_t) (ms * NS_PER_MS);
}

static void add_ack(double begun_ms, double done_ms, uint16_t node)
{
    acks[outage.count++] =
        (struct ack){.begun_ns = ns(begun_ms), .done_ns = ns(done_ms), .node = node};
}

static void add(struct sights *sights, double at_ms, uint16_t node)
{
    ck_assert_uint_lt(sights->count, 8);
    sights->items[sights->count++] = (struct sight){ns(at_ms), node};
}

static void setup(void)
{
    arena = arena_new();
    faults = (struct evidence_faults){.items = &fault};
    fault = (struct evidence_fault){0};
    outage = (struct outage){.arena = arena,
                             .acks = acks,
                             .starts.arena = arena,
                             .begins.items = begins,
                             .cuts.items = cuts,
                             .missing.items = missing,
                             .spacing_ns = ns(4),
                             .latency_ns = ns(3),
                             .faults = &faults};
    gap = (struct gap){.begin_ns = ns(1000),
                       .end_ns = ns(3000),
                       .latency_ns = ns(2),
                       .from_node = N1,
                       .to_node = N2,
                       .ended = true};
    add_ack(998, 1000, N1);
}

static void teardown(void)
{
    arena_free(arena);
}

static void assert_begin(double edge_ms)
{
    outage_measure(&outage, &gap);
    ck_assert_double_eq_tol((double) gap.begin_edge_ns / NS_PER_MS, edge_ms, 1e-6);
}

static void assert_end(double edge_ms)
{
    outage_measure(&outage, &gap);
    ck_assert_double_eq_tol((double) gap.end_edge_ns / NS_PER_MS, edge_ms, 1e-6);
}

/* --- the begin -------------------------------------------------------------------------------- */

/* The next attempt might have been answered until it had taken as long as others do. */
START_TEST(the_next_attempt_bounds_with_its_latency)
{
    add(&outage.begins, 999, N1);
    add(&outage.begins, 1001, N1);
    assert_begin(1 + 3);
    gap.latency_ns = ns(7); /* the last one was slower than most */
    assert_begin(1 + 7);
}
END_TEST

START_TEST(an_attempt_that_was_cut_off_bounds_by_its_end)
{
    add(&outage.begins, 999, N1);
    add(&outage.begins, 1001, N1);
    add(&outage.cuts, 1000.4, N1);
    assert_begin(0.4);
}
END_TEST

START_TEST(the_earlier_of_both_counts)
{
    add(&outage.begins, 1001, N1);
    add(&outage.cuts, 1030, N1);
    assert_begin(1 + 3);
}
END_TEST

/* What fails before the last acknowledgement, or elsewhere, says nothing of its host's end. */
START_TEST(other_attempts_do_not_bound_the_begin)
{
    add(&outage.cuts, 990, N1);
    add(&outage.cuts, 1000.2, N3);
    add(&outage.begins, 1000.5, N3);
    add(&outage.begins, 1004, N1);
    assert_begin(4 + 3);
}
END_TEST

START_TEST(a_search_for_a_host_bounds_the_begin)
{
    add(&outage.begins, 1002, OUTAGE_ANY_NODE);
    assert_begin(2 + 3);
}
END_TEST

START_TEST(nobody_looked_at_the_begin)
{
    assert_begin(2000);
    ck_assert_int_eq(gap.resolution_ns, ns(2000)); /* never more than the gap */
}
END_TEST

/* --- the end ---------------------------------------------------------------------------------- */

START_TEST(since_no_host_was_found_until_the_first_write_began)
{
    add(&outage.missing, 2990, OUTAGE_ANY_NODE);
    add_ack(2993, 3000, N2);
    assert_end(3);
}
END_TEST

/* n2 may have been there all the time in which only n1 was asked. */
START_TEST(a_failure_elsewhere_does_not_bound_the_end)
{
    add(&outage.missing, 2900, N2);
    add(&outage.missing, 2992, N1);
    add_ack(2993, 3000, N2);
    assert_end(93);
}
END_TEST

/* Seen missing after that write began: service came back between that and its answer. */
START_TEST(a_failure_while_the_write_was_under_way)
{
    add(&outage.missing, 2985, OUTAGE_ANY_NODE);
    add_ack(2993, 3000, N2);
    assert_end(8);
    add(&outage.missing, 2994, OUTAGE_ANY_NODE);
    assert_end(6);
    add(&outage.missing, 3001, OUTAGE_ANY_NODE);
    assert_end(6);
}
END_TEST

/* A slow answer does not make the look later: the probe that began first was looking. */
START_TEST(who_began_first_looked)
{
    add(&outage.missing, 2950, OUTAGE_ANY_NODE);
    add_ack(2993, 3000, N2);
    add_ack(2951, 3000.5, N2);
    assert_end(1);
}
END_TEST

/* It looked, but its own answer came 20 ms after the first one: that is how exact it is. */
START_TEST(a_late_answer_is_no_finer_than_it_is_late)
{
    add(&outage.missing, 2950, OUTAGE_ANY_NODE);
    add_ack(2993, 3000, N2);
    add_ack(2951, 3020, N2);
    assert_end(20);
}
END_TEST

START_TEST(who_waited_elsewhere_did_not_look)
{
    add(&outage.missing, 2950, OUTAGE_ANY_NODE);
    add_ack(2993, 3000, N2);
    add_ack(2951, 3000.5, N1);
    assert_end(43);
}
END_TEST

/* A stall: nobody was refused, and all waited for the same thing. */
START_TEST(who_waited_through_it_saw_the_end)
{
    gap.to_node = N1;
    add_ack(1002, 3000, N1);
    assert_end(2);
}
END_TEST

START_TEST(where_packets_are_lost_waiting_is_not_looking)
{
    gap.to_node = N1;
    add_ack(1002, 3000, N1);
    faults.count = 1;
    fault = (struct evidence_fault){
        .fault = "network.partition", .placed = true, .f0_ns = ns(999), .undone_ns = ns(2900)};
    assert_end(2000);
    add(&outage.missing, 2800, N1);
    assert_end(200);
    /* who waited for less than it takes to send again was heard */
    add_ack(2950, 3001, N1);
    assert_end(150);
    fault.undone_ns = ns(900); /* it was over before */
    assert_end(2);
    fault.undone_ns = 0;
    fault.fault = "process.freeze"; /* loses none */
    assert_end(2);
}
END_TEST

START_TEST(an_open_gap_has_no_end_edge)
{
    gap.open = true;
    add(&outage.begins, 1001, N1);
    assert_end(0);
}
END_TEST

START_TEST(never_finer_than_the_probes)
{
    add(&outage.cuts, 1000.1, N1);
    add(&outage.missing, 2992.9, OUTAGE_ANY_NODE);
    add_ack(2993, 3000, N2);
    outage_measure(&outage, &gap);
    ck_assert_int_eq(gap.edge_ns, ns(0.2));
    ck_assert_int_eq(gap.resolution_ns, ns(4));
}
END_TEST

/* --- what the ledger says --------------------------------------------------------------------- */

static double edge(struct run_builder *run, const char *name)
{
    struct judged judged = run_judge(run, "failover-time", NULL);
    double value = json_number_value(
        json_object_get(json_object_get(judged.result.details, "probe_spacing_ms"), name));

    judged_free(&judged);
    return value;
}

/* In the standard run the last acknowledgement is at 4996, the next attempt at 4999. */
static void plant(struct run_builder *run, enum ledger_class class, enum ledger_phase phase,
                  uint16_t node, double sent_ms, double done_ms)
{
    struct ledger_record record = {.kind = LEDGER_INTENT,
                                   .flags = LEDGER_ENDPOINT_OLD,
                                   .client = RUN_OLD_PROBE + 500,
                                   .seq = ++run->sequences[0],
                                   .node = node,
                                   .scheduled_ns = run_client_ns(0) + ns(sent_ms),
                                   .sent_ns = run_client_ns(0) + ns(sent_ms)};

    if (phase == LEDGER_COMMITTING)
        run_record(run, 0, record);
    record.kind = LEDGER_OUTCOME;
    record.class = (uint8_t) class;
    record.phase = (uint8_t) phase;
    record.done_ns = run_client_ns(0) + ns(done_ms);
    run_record(run, 0, record);
}

static const struct {
    const char *what;
    enum ledger_class class;
    enum ledger_phase phase;
    uint16_t node;
    double sent_ms, done_ms, edge_ms;
} begin_cases[] = {
    {"nothing", LEDGER_UNSENT, LEDGER_CONNECTING, N1, 1, 2, 5},
    {"cut off in the commit", LEDGER_IN_DOUBT, LEDGER_COMMITTING, N1, 4994, 4996.5, 0.5},
    {"cut off in the transaction", LEDGER_UNSENT, LEDGER_IN_TRANSACTION, N1, 4994, 4996.5, 0.5},
    {"an ERROR", LEDGER_ABORTED, LEDGER_IN_TRANSACTION, N1, 4994, 4996.5, 5},
    {"our own deadline", LEDGER_IN_DOUBT, LEDGER_COMMITTING, N1, 4890, 4996.5, 5},
    {"another host", LEDGER_IN_DOUBT, LEDGER_COMMITTING, N2, 4994, 4996.5, 5},
    {"a search that began before", LEDGER_UNSENT, LEDGER_CONNECTING, N1, 4994, 4996.5, 5},
    {"a search that began after", LEDGER_UNSENT, LEDGER_CONNECTING, N1, 4997, 4997, 3},
};

START_TEST(ends_that_bound_the_begin)
{
    for (size_t i = 0; i < sizeof(begin_cases) / sizeof(begin_cases[0]); i++) {
        struct run_builder *run = run_standard(&(struct run_plan){0});
        plant(run, begin_cases[i].class, begin_cases[i].phase, begin_cases[i].node,
              begin_cases[i].sent_ms, begin_cases[i].done_ms);
        double found_ms = edge(run, "begin_edge");
        ck_assert_msg(found_ms > begin_cases[i].edge_ms - 0.01 &&
                          found_ms < begin_cases[i].edge_ms + 0.01,
                      "%s: %g ms, not %g", begin_cases[i].what, found_ms, begin_cases[i].edge_ms);
        run_free(run);
    }
}
END_TEST

/* A tick that is tried on six hosts is one start: it does not make the probes look denser. */
START_TEST(one_tick_on_several_hosts_is_one_start)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    double median_ms = edge(run, "median");
    for (int i = 0; i < 6000; i++) {
        plant(run, LEDGER_ABORTED, LEDGER_IN_TRANSACTION, N3, 2000 + i, 2000.1 + i);
        /* the end of the ledger stays behind it */
        struct ledger_record *last = &run->ledgers[0].records[run->ledgers[0].count - 2];
        last->client += (uint32_t) (i % 6);
        last->scheduled_ns = run_client_ns(2000 + i / 6 * 6);
        last->sent_ns = run_client_ns(2000 + i / 6 * 6) + i % 6 * 1000;
        last->seq = (uint64_t) i / 6 + 1;
    }
    double denser_ms = edge(run, "median");
    ck_assert_msg(denser_ms >= median_ms / 5, "%g ms after %g ms", denser_ms, median_ms);
    run_free(run);
}
END_TEST

TEST_MAIN("outage edges", 60, setup, teardown, the_next_attempt_bounds_with_its_latency,
          an_attempt_that_was_cut_off_bounds_by_its_end, the_earlier_of_both_counts,
          other_attempts_do_not_bound_the_begin, a_search_for_a_host_bounds_the_begin,
          nobody_looked_at_the_begin, since_no_host_was_found_until_the_first_write_began,
          a_failure_elsewhere_does_not_bound_the_end, a_failure_while_the_write_was_under_way,
          who_began_first_looked, a_late_answer_is_no_finer_than_it_is_late,
          who_waited_elsewhere_did_not_look, who_waited_through_it_saw_the_end,
          where_packets_are_lost_waiting_is_not_looking, an_open_gap_has_no_end_edge,
          never_finer_than_the_probes, ends_that_bound_the_begin,
          one_tick_on_several_hosts_is_one_start)
