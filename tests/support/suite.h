/* SPDX-License-Identifier: MIT */
/*
 * One line a test: the main program of a unit test from a list of its tests.
 *
 *     TEST_MAIN("loop", 20, setup, teardown, timers_run_once, signals_arrive)
 */
#ifndef ORDEAL_TESTS_SUPPORT_SUITE_H
#define ORDEAL_TESTS_SUPPORT_SUITE_H

#include <check.h>
#include <stddef.h>

static inline int run_suite(const char *name, double timeout_s, void (*setup)(void),
                            void (*teardown)(void), const TTest *const *tests, size_t count)
{
    Suite *suite = suite_create(name);
    TCase *cases = tcase_create(name);

    tcase_set_timeout(cases, timeout_s);
    if (setup != NULL || teardown != NULL)
        tcase_add_checked_fixture(cases, setup, teardown);
    for (size_t i = 0; i < count; i++)
        tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

#define TEST_MAIN(name, timeout_s, setup, teardown, ...)                                           \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
        return run_suite(name, timeout_s, setup, teardown, tests, sizeof tests / sizeof tests[0]); \
    }

#endif
