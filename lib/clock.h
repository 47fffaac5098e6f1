/* SPDX-License-Identifier: MIT */
/*
 * Clocks. Everything that Ordeal measures or waits for uses CLOCK_BOOTTIME, because the wall clock
 * is itself a target and CLOCK_MONOTONIC stops while a machine is suspended.
 */
#ifndef ORDEAL_LIB_CLOCK_H
#define ORDEAL_LIB_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_SECOND INT64_C(1000000000)

int64_t clock_boot_ns(void); /* since boot */
int64_t clock_wall_ns(void); /* since 1970, for people to read only */

/* The kernel's boot id, 36 characters and a NUL. */
enum { BOOT_ID_SIZE = 37 };
MUST_CHECK enum status clock_boot_id(char ret_boot_id[BOOT_ID_SIZE], struct error *err);

/* "2026-11-30T13:33:19.123Z" for a wall-clock instant. */
enum { WALL_TEXT_SIZE = 32 };
void clock_wall_text(int64_t wall_ns, char text[WALL_TEXT_SIZE]);

/* A point of boot time by which something must have happened. */
static inline int64_t deadline_in_ms(int64_t ms)
{
    return clock_boot_ns() + ms * NS_PER_MS;
}

/* Milliseconds left, rounded up, at least 0 and at most INT_MAX: what poll() wants. */
int deadline_left_ms(int64_t deadline_ns);

static inline bool deadline_passed(int64_t deadline_ns)
{
    return clock_boot_ns() >= deadline_ns;
}

#endif
