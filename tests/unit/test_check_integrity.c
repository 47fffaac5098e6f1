/* SPDX-License-Identifier: MIT */
#include <check.h>

#include "lib/json.h"
#include "tests/support/run_judge.h"
#include "tests/support/suite.h"

static void expect(struct run_builder *run, enum verdict verdict, const char *part)
{
    expect_verdict(run, "integrity", NULL, verdict, part);
}

static struct run_builder *standard(void)
{
    return run_standard(&(struct run_plan){0});
}

START_TEST(sound)
{
    expect(standard(), VERDICT_PASS, "4 examinations");
}
END_TEST

START_TEST(a_bad_block)
{
    struct run_builder *run = standard();
    json_t *event = run_find_where(run, "integrity", "node", "n3");

    json_object_set_new(event, "ok", json_false());
    json_object_set_new(event, "problems", json_pack("[s]", "block 7 of base/5/16384"));
    expect(run, VERDICT_FAIL, "checksums on n3: 1 problems, first: block 7");
}
END_TEST

START_TEST(a_problem_contradicts_its_ok)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "integrity", "method", "amcheck"), "problems",
                        json_pack("[s]", "heap tuple lacks its index tuple"));
    expect(run, VERDICT_FAIL, "amcheck on n2");
}
END_TEST

START_TEST(budget_exceeded)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "integrity", "method", "verify"), "error",
                        json_pack("{s:s, s:s}", "code", "timeout", "message", "after 120 s"));
    expect(run, VERDICT_INCONCLUSIVE, "verify on n2 did not finish: after 120 s");
}
END_TEST

START_TEST(a_standby_is_missing)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "integrity", "node", "n3"), "node", json_string("n9"));
    expect(run, VERDICT_INCONCLUSIVE, "the pages of n3 were not checked");
}
END_TEST

START_TEST(nothing_examined)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "integrity", "node", "n3"), "examined",
                        json_integer(0));
    expect(run, VERDICT_INCONCLUSIVE, "examined nothing");
}
END_TEST

START_TEST(nothing_recorded)
{
    struct run_builder *run = standard();

    run_drop(run, "integrity");
    expect(run, VERDICT_INCONCLUSIVE, "no base backup of n2");
}
END_TEST

START_TEST(one_method_is_waived)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "integrity", "method", "amcheck"), "event",
                        json_string("note"));
    expect_verdict(run, "integrity", json_pack("{s:b}", "amcheck", 0), VERDICT_PASS, NULL);
}
END_TEST

START_TEST(everything_is_waived)
{
    expect_verdict(standard(), "integrity",
                   json_pack("{s:b, s:b, s:b}", "amcheck", 0, "verify", 0, "checksums", 0),
                   VERDICT_SKIPPED, NULL);
}
END_TEST

static void skip_checksums(struct run_builder *run, const char *node)
{
    json_t *event = run_find_where(run, "integrity", "node", node);

    json_object_clear(event);
    json_object_update_new(event, json_pack("{s:s, s:s, s:s, s:s}", "event", "integrity", "node",
                                            node, "method", "checksums", "skipped", "observed"));
}

START_TEST(what_observe_leaves_out_is_told)
{
    struct run_builder *run = standard();

    skip_checksums(run, "n3");
    expect(run, VERDICT_PASS, "3 examinations");
}
END_TEST

START_TEST(nothing_but_what_was_left_out)
{
    struct run_builder *run = standard();

    skip_checksums(run, "n1");
    skip_checksums(run, "n3");
    expect_verdict(run, "integrity", json_pack("{s:b, s:b}", "amcheck", 0, "verify", 0),
                   VERDICT_PASS, "2 examinations");
    run = standard();
    skip_checksums(run, "n1");
    skip_checksums(run, "n3");
    for (size_t i = json_array_size(run->journal); i > 0; i--)
        if (strcmp(json_text(json_array_get(run->journal, i - 1), "node", ""), "n2") == 0 &&
            strcmp(json_text(json_array_get(run->journal, i - 1), "event", ""), "integrity") == 0)
            json_array_remove(run->journal, i - 1);
    expect_verdict(run, "integrity", json_pack("{s:b, s:b}", "amcheck", 0, "verify", 0),
                   VERDICT_INCONCLUSIVE, "nothing was examined");
}
END_TEST

/* It says that it failed, and not where: that is no pass. */
START_TEST(not_ok_without_a_problem)
{
    struct run_builder *run = run_standard(&(struct run_plan){0});

    json_object_set_new(run_find(run, "integrity"), "ok", json_false());
    expect_verdict(run, "integrity", NULL, VERDICT_FAIL, "0 problems");
}
END_TEST

TEST_MAIN("check integrity", 30, NULL, NULL, sound, a_bad_block, a_problem_contradicts_its_ok,
          budget_exceeded, a_standby_is_missing, nothing_examined, nothing_recorded,
          one_method_is_waived, everything_is_waived, what_observe_leaves_out_is_told,
          nothing_but_what_was_left_out, not_ok_without_a_problem)
