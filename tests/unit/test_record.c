/* SPDX-License-Identifier: MIT */
/* Journals whole, torn and damaged; ledgers that cannot be read; clocks. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/record.h"
#include "tests/support/run_builder.h"
#include "tests/support/suite.h"

static struct arena *arena;
static struct run_builder *run;
static struct record *record;

static void setup(void)
{
    arena = arena_new();
    run = run_standard(&(struct run_plan){0});
    record = NULL;
}

static void teardown(void)
{
    record_close(record);
    arena_free(arena);
    run_free(run);
}

static void load(void)
{
    struct error err = {0};

    run_write(run);
    ck_assert_msg(record_load(arena, run->folder, &record, &err) == STATUS_OK, "%s", err.message);
}

static void overwrite(const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", run->folder, name);
    OWNED_FILE FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
}

static void expect_refused(const char *journal, const char *part)
{
    struct error err = {0};

    run_write(run);
    overwrite("journal.ndjson", journal);
    ck_assert_int_eq(record_load(arena, run->folder, &record, &err), STATUS_INVALID);
    ck_assert_msg(strstr(err.message, part) != NULL, "%s", err.message);
}

START_TEST(whole)
{
    load();
    ck_assert(record->complete);
    ck_assert(!record->torn);
    ck_assert_str_eq(record->client, "c1");
    ck_assert_int_eq(record->ledger_count, 2);
    ck_assert_str_eq(record->ledgers[1].path, "ledger/c1-worker-1.ledger");
    ck_assert_ptr_null(record->ledgers[1].problem);
    ck_assert(record->ledgers[1].ledger.ended);
}
END_TEST

START_TEST(events_in_order)
{
    size_t index = 0;

    load();
    const json_t *first = record_next(record, "present", &index);
    const json_t *second = record_next(record, "present", &index);
    const json_t *third = record_next(record, "present", &index);
    ck_assert_str_eq(json_text(first, "node", ""), "n1");
    ck_assert_str_eq(json_text(second, "node", ""), "n2");
    ck_assert_ptr_null(record_next(record, "present", &index));
    ck_assert_ptr_eq(record_last(record, "present"), third);
    ck_assert_ptr_null(record_last(record, "nothing"));
}
END_TEST

START_TEST(torn_journal)
{
    run->journal_torn = true;
    load();
    ck_assert(record->torn);
    ck_assert_str_eq(json_text(json_array_get(record->events, 0), "event", ""), "run.start");
}
END_TEST

START_TEST(orchestrator_died)
{
    run_drop(run, "run.end");
    load();
    ck_assert(!record->complete);
}
END_TEST

START_TEST(damaged_in_the_middle)
{
    expect_refused("{\"event\":\"run.start\",\"version\":1}\n{\"event\":\n{\"event\":\"note\"}\n",
                   "line 2 is damaged");
}
END_TEST

START_TEST(no_run)
{
    expect_refused("{\"event\":\"note\"}\n", "does not begin with run.start");
}
END_TEST

START_TEST(empty)
{
    expect_refused("", "does not begin with run.start");
}
END_TEST

START_TEST(unknown_version)
{
    expect_refused("{\"event\":\"run.start\",\"version\":2}\n", "has version 2");
}
END_TEST

START_TEST(no_journal)
{
    struct error err = {0};

    ck_assert_int_eq(record_load(arena, run->folder, &record, &err), STATUS_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.message, "journal.ndjson"));
}
END_TEST

START_TEST(ledger_that_is_none)
{
    run_write(run);
    overwrite("ledger/c1-worker-0.ledger", "not a ledger");
    struct error err = {0};
    ck_assert_int_eq(record_load(arena, run->folder, &record, &err), STATUS_OK);
    ck_assert_ptr_nonnull(record->ledgers[0].problem);
    ck_assert_int_eq(record->ledgers[0].ledger.count, 0);
    ck_assert_ptr_null(record->ledgers[1].problem);
}
END_TEST

START_TEST(clocks)
{
    struct error err = {0};
    int64_t ns;
    int64_t error_ns;

    load();
    ck_assert_int_eq(record_client_ns(record, "n2", run_node_ns("n2", 5000), &ns, &error_ns, &err),
                     STATUS_OK);
    ck_assert_int_eq(ns, run_client_ns(5000));
    ck_assert_int_eq(error_ns, 400000); /* of both estimates */
    ck_assert_int_eq(record_client_ns(record, "c1", 77, &ns, &error_ns, &err), STATUS_OK);
    ck_assert_int_eq(ns, 77);
    ck_assert_int_eq(error_ns, 0);
    const json_t *detect = record_last(record, "ha.detect");
    ck_assert_int_eq(
        record_client_ns(record, NULL, json_number(detect, "t", 0), &ns, &error_ns, &err),
        STATUS_OK);
    ck_assert_int_eq(ns, run_client_ns(6000));
    ck_assert_int_eq(error_ns, 200000);
    ck_assert_int_eq(record_client_ns(record, "n9", 1, &ns, &error_ns, &err), STATUS_NOT_FOUND);
}
END_TEST

/* A node's clock starts anew with its boot: the estimate of that time counts. */
START_TEST(clock_of_a_rebooted_node)
{
    struct error err = {0};
    int64_t ns;
    int64_t error_ns;

    run_event(run, 7000, "clock",
              json_pack("{s:s, s:I, s:I}", "node", "n1", "offset_ns",
                        (json_int_t) (-100 * NS_PER_SECOND), "error_ns", (json_int_t) 1000));
    load();
    ck_assert_int_eq(record_client_ns(record, "n1", run_node_ns("n1", 5000), &ns, &error_ns, &err),
                     STATUS_OK);
    ck_assert_int_eq(ns, run_client_ns(5000));
    int64_t rebooted_ns = run_node_ns("n1", 8000) - 2100 * NS_PER_SECOND;
    ck_assert_int_eq(record_client_ns(record, "n1", rebooted_ns, &ns, &error_ns, &err), STATUS_OK);
    ck_assert_int_eq(ns, run_client_ns(8000));
}
END_TEST

TEST_MAIN("record", 30, setup, teardown, whole, events_in_order, torn_journal, orchestrator_died,
          damaged_in_the_middle, no_run, empty, unknown_version, no_journal, ledger_that_is_none,
          clocks, clock_of_a_rebooted_node)
