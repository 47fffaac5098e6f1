/* SPDX-License-Identifier: MIT */
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/loop.h"
#include "tests/support/suite.h"

static struct loop *loop;
static int calls;
static loop_handle other;

static void setup(void)
{
    struct error err;

    calls = 0;
    ck_assert_int_eq(loop_new(&loop, &err), STATUS_OK);
}

static void teardown(void)
{
    loop_free(loop);
}

static void count(void *argument)
{
    (void) argument;
    calls++;
}

static void stop(void *argument)
{
    (void) argument;
    loop_stop(loop);
}

static void remove_other(void *argument, short events)
{
    (void) argument;
    (void) events;
    calls++;
    loop_remove(loop, other);
}

static void on_signal(void *argument, int number)
{
    (void) argument;
    calls += number == SIGUSR1;
}

START_TEST(timers_run_once_or_repeat)
{
    struct error err;
    int64_t start = clock_boot_ns();

    loop_every(loop, 10, count, NULL);
    loop_at(loop, start + 55 * NS_PER_MS, stop, NULL);
    ck_assert_int_eq(loop_run(loop, &err), STATUS_OK);
    ck_assert_int_ge(clock_boot_ns() - start, 55 * NS_PER_MS);
    ck_assert_int_ge(calls, 1);
    ck_assert_int_le(calls, (int) ((clock_boot_ns() - start) / (10 * NS_PER_MS)));
}
END_TEST

START_TEST(missed_ticks_are_not_made_up)
{
    struct error err;

    loop_every(loop, 1, count, NULL);
    usleep(50000);
    ck_assert_int_eq(loop_turn(loop, 0, &err), STATUS_OK);
    ck_assert_int_eq(calls, 1);
}
END_TEST

START_TEST(a_removed_watch_is_not_called_in_the_same_turn)
{
    struct error err;
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(write(ends[1], "x", 1), 1);
    loop_watch(loop, ends[0], POLLIN, remove_other, NULL);
    other = loop_watch(loop, ends[0], POLLIN, remove_other, NULL);
    ck_assert_int_eq(loop_turn(loop, 1000, &err), STATUS_OK);
    ck_assert_int_eq(calls, 1);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(signals_arrive_as_calls)
{
    struct error err;

    loop_on_signal(loop, SIGUSR1, on_signal, NULL);
    kill(getpid(), SIGUSR1);
    ck_assert_int_eq(loop_turn(loop, 1000, &err), STATUS_OK);
    ck_assert_int_eq(calls, 1);
}
END_TEST

START_TEST(a_turn_without_work_ends_at_its_timeout)
{
    struct error err;
    int64_t start = clock_boot_ns();

    ck_assert_int_eq(loop_turn(loop, 20, &err), STATUS_OK);
    ck_assert_int_ge(clock_boot_ns() - start, 19 * NS_PER_MS);
}
END_TEST

TEST_MAIN("loop", 20, setup, teardown, timers_run_once_or_repeat, missed_ticks_are_not_made_up,
          a_removed_watch_is_not_called_in_the_same_turn, signals_arrive_as_calls,
          a_turn_without_work_ends_at_its_timeout)
