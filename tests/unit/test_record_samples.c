/* SPDX-License-Identifier: MIT */
/* Gaps of samples as a check sees them: marked, given away by the instants, before and after. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/record_samples.h"
#include "tests/support/run_builder.h"
#include "tests/support/suite.h"

static struct arena *arena;
static struct run_builder *run;
static struct record *record;
static struct record_samples *samples;
static char path[128];
static FILE *file;

static void setup(void)
{
    struct error err = {0};
    char folder[96];

    arena = arena_new();
    run = run_standard(&(struct run_plan){0});
    run_write(run);
    ck_assert_msg(record_load(arena, run->folder, &record, &err) == STATUS_OK, "%s", err.message);
    snprintf(folder, sizeof folder, "%s/samples", run->folder);
    ck_assert_int_eq(mkdir(folder, 0755), 0);
    snprintf(path, sizeof path, "%s/n2-kernel.ndjson", folder);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
}

static void teardown(void)
{
    char folder[96];

    if (file != NULL)
        fclose(file);
    unlink(path);
    snprintf(folder, sizeof folder, "%s/samples", run->folder);
    rmdir(folder);
    record_close(record);
    arena_free(arena);
    run_free(run);
}

/* --- writing a file; instants are ms since the run began, on the clock of n2 -------------------
 */

static long long at(int64_t ms)
{
    return (long long) run_node_ns("n2", ms);
}

static void put_start(int64_t ms)
{
    fprintf(file,
            "{\"t\":%lld,\"samples\":1,\"stream\":\"kernel\",\"node\":\"n2\",\"period_ms\":100}\n",
            at(ms));
}

static void put_samples(int64_t from_ms, int64_t to_ms)
{
    for (int64_t ms = from_ms; ms <= to_ms; ms += 100)
        fprintf(file, "{\"t\":%lld,\"mem\":{\"free\":1}}\n", at(ms));
}

static void put_gap(int64_t from_ms, int64_t to_ms, const char *why)
{
    fprintf(file, "{\"t\":%lld,\"gap\":{\"from\":%lld,\"to\":%lld,\"why\":\"%s\"}}\n", at(to_ms),
            at(from_ms), at(to_ms), why);
}

static void put_end(int64_t ms)
{
    fprintf(file, "{\"t\":%lld,\"end\":1}\n", at(ms));
}

static void load(void)
{
    fclose(file);
    file = NULL;
    samples = record_samples_load(arena, record);
}

static void expect_blind(int64_t from_ms, int64_t to_ms, int64_t blind_ms, const char *why)
{
    struct record_blind blind;
    struct error err = {0};

    ck_assert_msg(record_samples_gap(record, samples, "n2", "kernel", run_client_ns(from_ms),
                                     run_client_ns(to_ms), &blind, &err) == STATUS_OK,
                  "%s", err.message);
    ck_assert_int_eq(blind.ns / NS_PER_MS, blind_ms);
    if (why == NULL)
        ck_assert_ptr_null(blind.why);
    else
        ck_assert_str_eq(blind.why, why);
}

/* --- tests ------------------------------------------------------------------------------------ */

/* An outage from 5.0 to 6.8 s: the sampler saw all of it, then a part, then nothing of it. */
START_TEST(no_gap)
{
    put_start(0);
    put_samples(0, 10000);
    put_end(10050);
    load();
    ck_assert_uint_eq(samples->count, 1);
    ck_assert_uint_eq(samples->streams[0].count, 101);
    ck_assert(samples->streams[0].ended);
    expect_blind(5000, 6800, 0, NULL);
    ck_assert_str_eq(record_samples_text(arena, record), "1 files, 0 gaps");
}
END_TEST

START_TEST(a_marked_gap)
{
    put_start(0);
    put_samples(0, 6000);
    put_gap(6000, 6900, "late");
    put_samples(6900, 10000);
    put_end(10050);
    load();
    expect_blind(5000, 6800, 800, "late");
    expect_blind(1000, 5000, 0, NULL);
    ck_assert_uint_eq(samples->streams[0].gap_count, 1);
    ck_assert_str_eq(record_samples_text(arena, record),
                     "1 files, 1 gaps, the longest 0.900 s on n2 (kernel: late)");
}
END_TEST

/* A sampler that forgot its mark, or a line that somebody took out. */
START_TEST(an_unmarked_gap)
{
    put_start(0);
    put_samples(0, 4000);
    put_samples(4300, 4900); /* two periods late is no gap */
    put_samples(7000, 10000);
    load();
    expect_blind(0, 4900, 0, NULL);
    expect_blind(5000, 6800, 1800, "unmarked");
    ck_assert(!samples->streams[0].ended);
}
END_TEST

START_TEST(before_the_first_and_after_the_last)
{
    put_start(5500);
    put_samples(5500, 6000);
    load();
    expect_blind(5000, 6000, 500, "before the first sample");
    expect_blind(5600, 6800, 800, "after the last sample");
}
END_TEST

START_TEST(a_restart)
{
    put_start(0);
    put_samples(0, 5000);
    put_start(6500);
    put_gap(5000, 6500, "restart");
    put_samples(6500, 10000);
    fputs("{\"t\":12", file); /* cut off */
    load();
    ck_assert_ptr_null(samples->streams[0].problem);
    ck_assert_uint_eq(samples->streams[0].gap_count, 1);
    expect_blind(5000, 6800, 1500, "restart");
}
END_TEST

/* Nothing that cannot be read counts as seen. */
static void expect_nothing(const char *text)
{
    struct record_blind blind;
    struct error err = {0};

    fputs(text, file);
    load();
    ck_assert_int_eq(record_samples_gap(record, samples, "n2", "kernel", run_client_ns(0),
                                        run_client_ns(1000), &blind, &err),
                     STATUS_NOT_FOUND);
}

START_TEST(rubbish_is_no_evidence)
{
    put_start(0);
    put_samples(0, 10000);
    expect_nothing("rubbish\n");
    ck_assert_ptr_nonnull(samples->streams[0].problem);
    ck_assert_str_eq(record_samples_text(arena, record), "1 files, 0 gaps, 1 cannot be read");
}
END_TEST

START_TEST(another_version_is_no_evidence)
{
    expect_nothing("{\"t\":1,\"samples\":2,\"stream\":\"kernel\",\"node\":\"n2\"}\n{\"t\":2}\n");
}
END_TEST

START_TEST(samples_without_a_head_are_no_evidence)
{
    put_samples(0, 1000);
    expect_nothing("");
}
END_TEST

START_TEST(an_empty_file_is_no_evidence)
{
    expect_nothing("");
    ck_assert_str_eq(samples->streams[0].node, "n2");
    ck_assert_str_eq(samples->streams[0].name, "kernel");
}
END_TEST

START_TEST(no_folder_is_no_evidence)
{
    unlink(path);
    expect_nothing("");
    ck_assert_uint_eq(samples->count, 0);
    ck_assert_ptr_null(record_samples_text(arena, record));
}
END_TEST

TEST_MAIN("samples of a run", 20, setup, teardown, no_gap, a_marked_gap, an_unmarked_gap,
          before_the_first_and_after_the_last, a_restart, rubbish_is_no_evidence,
          another_version_is_no_evidence, samples_without_a_head_are_no_evidence,
          an_empty_file_is_no_evidence, no_folder_is_no_evidence)
