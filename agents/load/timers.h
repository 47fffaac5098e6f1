/* SPDX-License-Identifier: MIT */
/*
 * Timers of a worker: a binary heap of places that their owners embed, so that arming one costs no
 * allocation. A timer is armed at most once; arming it again moves it.
 */
#ifndef ORDEAL_AGENTS_LOAD_TIMERS_H
#define ORDEAL_AGENTS_LOAD_TIMERS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/arena.h"

struct timer {
    int64_t at_ns;
    size_t place; /* in the heap from 1; 0: not armed */
    void (*call)(void *argument);
    void *argument;
};

struct timers {
    size_t count, room;
    struct timer **heap; /* heap[1] is the earliest */
};

/* For at most `room` timers at once. */
void timers_init(struct timers *timers, struct arena *arena, size_t room);
void timer_arm(struct timers *timers, struct timer *timer, int64_t at_ns);
void timer_disarm(struct timers *timers, struct timer *timer);
/* INT64_MAX when none is armed. */
int64_t timers_next(const struct timers *timers);
/* Disarm and call all that are due at `now_ns`; those that are armed meanwhile come next time. */
void timers_run(struct timers *timers, int64_t now_ns);

#endif
