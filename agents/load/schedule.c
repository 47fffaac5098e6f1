/* SPDX-License-Identifier: MIT */
#include "agents/load/schedule.h"

#include "lib/clock.h"

void schedule_init(struct schedule *schedule, int64_t begin_ns, double rate, size_t clients,
                   size_t index)
{
    schedule->next_ns = begin_ns;
    schedule->interval_ns = 0;
    if (rate <= 0)
        return;
    double step_ns = (double) NS_PER_SECOND / rate;
    schedule->next_ns += (int64_t) (step_ns * (double) index);
    schedule->interval_ns = (int64_t) (step_ns * (double) clients);
    if (schedule->interval_ns < 1)
        schedule->interval_ns = 1;
}

bool schedule_due(const struct schedule *schedule, int64_t now_ns)
{
    return now_ns >= schedule->next_ns;
}

int64_t schedule_take(struct schedule *schedule, int64_t now_ns)
{
    int64_t taken = schedule->next_ns;

    if (schedule->interval_ns == 0)
        return now_ns;
    schedule->next_ns += schedule->interval_ns;
    return taken;
}

/* Move past all starts at or before the instant. */
static uint64_t drop_until(struct schedule *schedule, int64_t instant_ns)
{
    if (schedule->interval_ns == 0 || schedule->next_ns > instant_ns)
        return 0;
    int64_t count = (instant_ns - schedule->next_ns) / schedule->interval_ns + 1;
    schedule->next_ns += count * schedule->interval_ns;
    return (uint64_t) count;
}

int64_t schedule_take_newest(struct schedule *schedule, int64_t now_ns, uint64_t *ret_missed)
{
    uint64_t due = drop_until(schedule, now_ns);

    *ret_missed = due > 0 ? due - 1 : 0;
    return due > 0 ? schedule->next_ns - schedule->interval_ns : now_ns;
}

uint64_t schedule_drop_late(struct schedule *schedule, int64_t now_ns)
{
    return drop_until(schedule, now_ns - SCHEDULE_LATE_MS * NS_PER_MS);
}

uint64_t schedule_drop_due(struct schedule *schedule, int64_t now_ns)
{
    return drop_until(schedule, now_ns);
}
