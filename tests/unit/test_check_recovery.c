/* SPDX-License-Identifier: MIT */
#include <check.h>

#include "lib/json.h"
#include "tests/support/run_judge.h"
#include "tests/support/suite.h"

static void expect(struct run_builder *run, int max_ms, enum verdict verdict, const char *part)
{
    expect_verdict(run, "recovery", json_pack("{s:i}", "max", max_ms), verdict, part);
}

static struct run_builder *standard(void)
{
    return run_standard(&(struct run_plan){0});
}

/* It takes 3.2 s in a built run. */
START_TEST(in_time)
{
    expect(standard(), 3200, VERDICT_PASS, "3.200 s");
}
END_TEST

START_TEST(too_late)
{
    expect(standard(), 3199, VERDICT_FAIL, "too late");
}
END_TEST

START_TEST(a_member_does_not_come_back)
{
    struct run_builder *run = standard();

    run_event(
        run, 11850, "recovery.timeout",
        json_pack("{s:[s, {s:s, s:s}]}", "missing", "n1", "node", "n3", "text", "does not stream"));
    expect(run, 60000, VERDICT_FAIL, "n1, n3 (does not stream)");
}
END_TEST

START_TEST(whose_work_it_was)
{
    struct run_builder *run = standard();

    run_event(run, 11850, "recovery.timeout",
              json_pack("{s:[s], s:s}", "missing", "n1", "whose", "what manages this cluster"));
    expect(run, 60000, VERDICT_FAIL,
           "n1; to repair that was the work of what manages this cluster");
}
END_TEST

START_TEST(not_recorded)
{
    struct run_builder *run = standard();

    run_drop(run, "recovered");
    expect(run, 60000, VERDICT_INCONCLUSIVE, "neither");
}
END_TEST

START_TEST(time_not_recorded)
{
    struct run_builder *run = standard();

    json_object_del(run_find(run, "recovered"), "ms");
    expect(run, 60000, VERDICT_INCONCLUSIVE, "was not recorded");
}
END_TEST

TEST_MAIN("check recovery", 30, NULL, NULL, in_time, too_late, a_member_does_not_come_back,
          whose_work_it_was, not_recorded, time_not_recorded)
