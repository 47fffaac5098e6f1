/* SPDX-License-Identifier: MIT */
#include "agents/load/timers.h"

#include <stdlib.h>

void timers_init(struct timers *timers, struct arena *arena, size_t room)
{
    timers->count = 0;
    timers->room = room;
    timers->heap = arena_array(arena, room + 1, sizeof(struct timer *));
}

static void put(struct timers *timers, size_t place, struct timer *timer)
{
    timers->heap[place] = timer;
    timer->place = place;
}

static void sift_up(struct timers *timers, struct timer *timer)
{
    size_t place = timer->place;

    for (; place > 1 && timers->heap[place / 2]->at_ns > timer->at_ns; place /= 2)
        put(timers, place, timers->heap[place / 2]);
    put(timers, place, timer);
}

static void sift_down(struct timers *timers, struct timer *timer)
{
    size_t place = timer->place;

    for (;;) {
        size_t child = place * 2;
        if (child > timers->count)
            break;
        if (child < timers->count && timers->heap[child + 1]->at_ns < timers->heap[child]->at_ns)
            child++;
        if (timers->heap[child]->at_ns >= timer->at_ns)
            break;
        put(timers, place, timers->heap[child]);
        place = child;
    }
    put(timers, place, timer);
}

void timer_arm(struct timers *timers, struct timer *timer, int64_t at_ns)
{
    timer->at_ns = at_ns;
    if (timer->place == 0) {
        if (timers->count == timers->room)
            abort(); /* the worker counted its timers wrong */
        put(timers, ++timers->count, timer);
    }
    sift_up(timers, timer);
    sift_down(timers, timer);
}

void timer_disarm(struct timers *timers, struct timer *timer)
{
    size_t place = timer->place;

    if (place == 0)
        return;
    timer->place = 0;
    struct timer *last = timers->heap[timers->count--];
    if (last == timer)
        return;
    put(timers, place, last);
    sift_up(timers, last);
    sift_down(timers, last);
}

int64_t timers_next(const struct timers *timers)
{
    return timers->count > 0 ? timers->heap[1]->at_ns : INT64_MAX;
}

void timers_run(struct timers *timers, int64_t now_ns)
{
    /* not more than there are now: a callback that arms itself for the past must not hold us */
    for (size_t left = timers->count; left > 0 && timers_next(timers) <= now_ns; left--) {
        struct timer *timer = timers->heap[1];
        timer_disarm(timers, timer);
        timer->call(timer->argument);
    }
}
