/* SPDX-License-Identifier: MIT */
#include <check.h>

#include "lib/json.h"
#include "tests/support/run_judge.h"
#include "tests/support/suite.h"

static void expect(struct run_builder *run, enum verdict verdict, const char *part)
{
    expect_verdict(run, "steady-state", NULL, verdict, part);
}

static struct run_builder *standard(void)
{
    return run_standard(&(struct run_plan){0});
}

START_TEST(healthy)
{
    expect(standard(), VERDICT_PASS, "1 probes");
}
END_TEST

START_TEST(out_of_bounds_afterwards)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "steady-state", "when", "after"), "ok", json_false());
    expect(run, VERDICT_FAIL, "writes.available");
}
END_TEST

START_TEST(out_of_bounds_before)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "steady-state", "when", "before"), "ok", json_false());
    expect(run, VERDICT_INCONCLUSIVE, "before the method");
}
END_TEST

START_TEST(not_asked_afterwards)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "steady-state", "when", "after"), "event",
                        json_string("note"));
    expect(run, VERDICT_INCONCLUSIVE, "0 after");
}
END_TEST

START_TEST(nothing_declared)
{
    struct run_builder *run = standard();

    run_drop(run, "steady-state");
    expect(run, VERDICT_SKIPPED, NULL);
}
END_TEST

START_TEST(declared_and_not_asked)
{
    struct run_builder *run = standard();
    json_t *scenario = json_object_get(run_find(run, "run.start"), "scenario");

    json_object_set_new(scenario, "steady-state", json_pack("[{s:s}]", "probe", "x"));
    run_drop(run, "steady-state");
    expect(run, VERDICT_INCONCLUSIVE, NULL);
}
END_TEST

TEST_MAIN("check steady-state", 30, NULL, NULL, healthy, out_of_bounds_afterwards,
          out_of_bounds_before, not_asked_afterwards, nothing_declared, declared_and_not_asked)
