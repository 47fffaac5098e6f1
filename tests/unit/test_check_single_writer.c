/* SPDX-License-Identifier: MIT */
/* Two writers at once, and everything that only looks like it. */
#include <check.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "tests/support/run_judge.h"
#include "tests/support/suite.h"

static void expect(struct run_builder *run, enum verdict verdict, const char *part)
{
    expect_verdict(run, "single-writer", NULL, verdict, part);
}

START_TEST(one_after_the_other)
{
    expect(run_standard(&(struct run_plan){0}), VERDICT_PASS, "n2 on timeline 2");
}
END_TEST

/* n1's last write is sent at 6783 ms, n2's first acknowledgement comes at 6802 ms. */
START_TEST(adjacent)
{
    expect(run_standard(&(struct run_plan){.old_writer_until = 6800}), VERDICT_PASS, NULL);
}
END_TEST

START_TEST(overlapping)
{
    struct run_builder *run = run_standard(&(struct run_plan){.old_writer_until = 7000});
    struct judged judged = run_judge(run, "single-writer", NULL);

    ck_assert_msg(judged.result.verdict == VERDICT_FAIL, "%s", judged.result.text);
    /* n1 is probed every 20 ms at 3: 6803 to 6983; n2 begins at 6803 (probe of 6801 + 2) */
    ck_assert_msg(strstr(judged.result.text, "n1 (timeline 1) accepted 10 writes") != NULL, "%s",
                  judged.result.text);
    double overlap = json_number_value(judged.result.value);
    ck_assert_msg(overlap > 150 && overlap < 200, "overlap %f", overlap);
    judged_free(&judged);
    run_free(run);
}
END_TEST

/* Sent before the freeze, answered after the thaw: one writer. */
START_TEST(late_answer)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});
    struct ledger_record *record =
        run_outcome(run, 1, run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS));

    record->done_ns = run_client_ns(8000);
    expect(run, VERDICT_PASS, "1 answers to earlier commits came late");
}
END_TEST

START_TEST(fencing_time_is_reported)
{
    struct run_builder *run = run_standard(&(struct run_plan){.old_writer_until = 7000});
    struct judged judged = run_judge(run, "single-writer", NULL);
    const json_t *fencing = json_object_get(judged.result.details, "fencing");
    double ms = json_number_value(json_object_get(fencing, "fencing_ms"));

    ck_assert_str_eq(json_text(fencing, "node", ""), "n1");
    ck_assert_msg(ms > 150 && ms < 200, "fencing %f", ms);
    ms = json_number_value(json_object_get(fencing, "last_write_after_fault_ms"));
    ck_assert_double_eq_tol(ms, 1986, 1);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(weak_commits_are_writes_too)
{
    struct run_builder *run = run_standard(&(struct run_plan){.old_writer_until = 7000});

    for (size_t i = 0; i < run->ledgers[1].count; i++) {
        struct ledger_record *record = &run->ledgers[1].records[i];
        if (record->client == RUN_DIRECT_N1 && record->done_ns > run_client_ns(RUN_FAULT_MS) &&
            record->class == LEDGER_ACKED && record->kind == LEDGER_OUTCOME)
            record->class = LEDGER_WEAK;
    }
    expect(run, VERDICT_FAIL, "n1 (timeline 1)");
}
END_TEST

START_TEST(no_direct_probe_of_a_node)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    for (size_t i = 0; i < run->ledgers[1].count; i++)
        if (run->ledgers[1].records[i].client == RUN_DIRECT_N3)
            run->ledgers[1].records[i].client = 0;
    expect(run, VERDICT_INCONCLUSIVE, "no direct probe ever reached n3");
}
END_TEST

START_TEST(blind_worker)
{
    expect(run_standard(&(struct run_plan){.blind_from = 8000, .blind_until = 8500}),
           VERDICT_INCONCLUSIVE, "the direct probes stood still");
}
END_TEST

/* Before the fault there is one writer by construction. */
START_TEST(blind_before_the_fault)
{
    expect_verdict(run_standard(&(struct run_plan){.blind_from = 2000, .blind_until = 2500}),
                   "single-writer", NULL, VERDICT_PASS, NULL);
}
END_TEST

START_TEST(dead_worker)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    for (size_t i = 0; i < run->ledgers[1].count; i++)
        if (run->ledgers[1].records[i].done_ns > run_client_ns(6000)) {
            run->ledgers[1].count = i;
            break;
        }
    expect(run, VERDICT_INCONCLUSIVE, "stood still");
}
END_TEST

START_TEST(missing_ledger)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    run->ledgers[0].missing = true;
    expect(run, VERDICT_INCONCLUSIVE, "1 ledgers are here");
}
END_TEST

/* The worker runs, but nobody looks at n3 for two seconds. */
START_TEST(a_node_is_not_probed_for_a_while)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    for (size_t i = 0; i < run->ledgers[1].count; i++) {
        struct ledger_record *record = &run->ledgers[1].records[i];
        if (record->client == RUN_DIRECT_N3 && record->scheduled_ns > run_client_ns(6000) &&
            record->scheduled_ns < run_client_ns(8000))
            record->kind = LEDGER_MISSED;
    }
    expect(run, VERDICT_INCONCLUSIVE, "nobody probed n3 for 20");
}
END_TEST

/* A probe that hangs in a frozen node is a probe under way. */
START_TEST(a_probe_that_hangs_is_no_pause)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    for (size_t i = 0; i < run->ledgers[1].count; i++) {
        struct ledger_record *record = &run->ledgers[1].records[i];
        if (record->client != RUN_DIRECT_N3 || record->scheduled_ns < run_client_ns(6000) ||
            record->scheduled_ns > run_client_ns(8000))
            continue;
        if (record->scheduled_ns < run_client_ns(6020))
            record->done_ns = run_client_ns(8000);
        else
            record->kind = LEDGER_MISSED;
    }
    expect(run, VERDICT_PASS, NULL);
}
END_TEST

START_TEST(baseline)
{
    expect(run_standard(&(struct run_plan){.no_fault = true}), VERDICT_PASS, "begin of the load");
}
END_TEST

START_TEST(resolution_is_the_probe_interval)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});
    struct judged judged = run_judge(run, "single-writer", NULL);

    ck_assert_double_eq_tol(json_number_value(judged.result.resolution), 20.0, 1.0);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(a_short_silence_widens_the_resolution)
{
    struct run_builder *run =
        run_standard(&(struct run_plan){.blind_from = 8000, .blind_until = 8200});
    struct judged judged = run_judge(run, "single-writer", NULL);

    ck_assert_int_eq(judged.result.verdict, VERDICT_PASS);
    ck_assert_double_ge(json_number_value(judged.result.resolution), 200.0);
    judged_free(&judged);
    run_free(run);
}
END_TEST

START_TEST(one_row_is_an_overlap)
{
    expect(run_standard(&(struct run_plan){.old_writer_until = 6820}), VERDICT_FAIL,
           "n1 (timeline 1) accepted 1 writes");
}
END_TEST

START_TEST(nobody_wrote)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    for (size_t ledger = 0; ledger < 2; ledger++)
        for (size_t i = 0; i < run->ledgers[ledger].count; i++)
            if (run->ledgers[ledger].records[i].class == LEDGER_ACKED &&
                run->ledgers[ledger].records[i].kind == LEDGER_OUTCOME)
                run->ledgers[ledger].records[i].class = LEDGER_IN_DOUBT;
    expect(run, VERDICT_INCONCLUSIVE, "no write was acknowledged");
}
END_TEST

/* The probes of n3 within a time become records that nobody looks at. */
static void skip_n3(struct run_builder *run, int64_t from_ms, int64_t until_ms)
{
    for (size_t i = 0; i < run->ledgers[1].count; i++) {
        struct ledger_record *record = &run->ledgers[1].records[i];
        if (record->client == RUN_DIRECT_N3 && record->scheduled_ns > run_client_ns(from_ms) &&
            record->scheduled_ns < run_client_ns(until_ms))
            record->kind = LEDGER_MISSED;
    }
}

START_TEST(a_node_is_not_probed_any_more)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    skip_n3(run, 8000, RUN_END_MS);
    expect(run, VERDICT_INCONCLUSIVE, "nobody probed n3 for 20");
}
END_TEST

/* A connection that found no host saw the node at its end, not all the time before. */
START_TEST(a_failed_connection_is_one_look)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    skip_n3(run, 6000, 8000);
    run_record(run, 1,
               (struct ledger_record){.kind = LEDGER_OUTCOME,
                                      .class = LEDGER_UNSENT,
                                      .phase = LEDGER_CONNECTING,
                                      .flags = LEDGER_DIRECT,
                                      .client = RUN_DIRECT_N3,
                                      .seq = 9999,
                                      .node = 2,
                                      .scheduled_ns = run_client_ns(6010),
                                      .sent_ns = run_client_ns(6010),
                                      .done_ns = run_client_ns(7990)});
    expect(run, VERDICT_INCONCLUSIVE, "nobody probed n3 for 20");
}
END_TEST

/* A beat is due every 50 ms; 300 ms of silence is the limit, and still looking. */
START_TEST(silence_at_the_limit)
{
    expect(run_standard(&(struct run_plan){.blind_from = 8001, .blind_until = 8300}), VERDICT_PASS,
           NULL);
    expect(run_standard(&(struct run_plan){.blind_from = 8001, .blind_until = 8350}),
           VERDICT_INCONCLUSIVE, "stood still");
}
END_TEST

TEST_MAIN("check single-writer", 60, NULL, NULL, one_after_the_other, adjacent, overlapping,
          late_answer, fencing_time_is_reported, weak_commits_are_writes_too,
          no_direct_probe_of_a_node, blind_worker, blind_before_the_fault, dead_worker,
          missing_ledger, a_node_is_not_probed_for_a_while, a_probe_that_hangs_is_no_pause,
          baseline, resolution_is_the_probe_interval, a_short_silence_widens_the_resolution,
          one_row_is_an_overlap, nobody_wrote, a_node_is_not_probed_any_more,
          a_failed_connection_is_one_look, silence_at_the_limit)
