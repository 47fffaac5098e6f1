/* SPDX-License-Identifier: MIT */
/*
 * When a client starts its transactions.
 *
 * Open loop: starts at fixed instants, evenly spread over all clients of a group, whatever became
 * of the ones before. A start that finds its client busy waits, and its latency counts from the
 * instant for which it was scheduled. One that could not begin for SCHEDULE_LATE_MS is given up
 * and counted as missed, so that an outage is not followed by a burst of all that it held back.
 *
 * Closed loop (rate 0): a start is due whenever the client is free.
 */
#ifndef ORDEAL_AGENTS_LOAD_SCHEDULE_H
#define ORDEAL_AGENTS_LOAD_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCHEDULE_LATE_MS = 1000 };

struct schedule {
    int64_t next_ns;
    int64_t interval_ns; /* 0: closed loop */
};

/* Client `index` of `clients`, which start `rate` transactions a second together. */
void schedule_init(struct schedule *schedule, int64_t begin_ns, double rate, size_t clients,
                   size_t index);
bool schedule_due(const struct schedule *schedule, int64_t now_ns);
/* The instant of the next start, which must be due; moves on to the one after it. */
int64_t schedule_take(struct schedule *schedule, int64_t now_ns);
/* Of all starts that are due the newest, which there must be; ret_missed: how many went before. */
int64_t schedule_take_newest(struct schedule *schedule, int64_t now_ns, uint64_t *ret_missed);
/* Give up starts that are too late; returns how many. */
uint64_t schedule_drop_late(struct schedule *schedule, int64_t now_ns);
/* Give up all that are due; returns how many. For the end of a load. */
uint64_t schedule_drop_due(struct schedule *schedule, int64_t now_ns);

#endif
