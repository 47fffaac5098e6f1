/* SPDX-License-Identifier: MIT */
#include "orchestrator/probe.h"

#include <string.h>

enum { AVAILABLE_MS = 1000 };

static double writes_available(const struct probe_view *view)
{
    return view->silent_ms >= 0 && view->silent_ms < AVAILABLE_MS ? 1 : 0;
}

static double writes_rate(const struct probe_view *view)
{
    return view->rate;
}

static double writes_p99(const struct probe_view *view)
{
    return (double) view->p99_us / 1000;
}

static double sync_copies(const struct probe_view *view)
{
    size_t count = 0;

    for (size_t i = 0; view->state != NULL && i < view->state->count; i++)
        count += view->state->members[i].sync && view->state->members[i].streaming;
    return (double) count;
}

static double streaming(const struct probe_view *view)
{
    size_t count = 0;

    for (size_t i = 0; view->state != NULL && i < view->state->count; i++)
        count += view->state->members[i].streaming;
    return (double) count;
}

/* Of the standby that is furthest behind; a standby that is down counts from zero. */
static double lag_bytes(const struct probe_view *view)
{
    uint64_t primary = 0;
    uint64_t lowest = UINT64_MAX;

    for (size_t i = 0; view->state != NULL && i < view->state->count; i++) {
        const struct ha_member *member = &view->state->members[i];

        if (member->primary)
            primary = member->lsn;
        else if (member->lsn < lowest)
            lowest = member->lsn;
    }
    return primary > lowest ? (double) (primary - lowest) : 0;
}

static const struct probe writes_available_probe = {
    .name = "writes.available",
    .summary = "a write through the endpoint was acknowledged within the last second",
    .unit = "",
    .bound = PARAM_BOOLEAN,
    .least = 1,
    .value = writes_available,
};

static const struct probe writes_rate_probe = {
    .name = "writes.rate",
    .summary = "acknowledged writes per second",
    .unit = "/s",
    .bound = PARAM_RATE,
    .value = writes_rate,
};

static const struct probe writes_p99_probe = {
    .name = "writes.p99",
    .summary = "99th percentile of the time from a write's scheduled start to its acknowledgement",
    .unit = "ms",
    .bound = PARAM_DURATION,
    .value = writes_p99,
};

static const struct probe sync_copies_probe = {
    .name = "replication.sync-copies",
    .summary = "standbys of the sync set that stream",
    .unit = "standbys",
    .bound = PARAM_INTEGER,
    .needs_state = true,
    .least = 1,
    .value = sync_copies,
};

static const struct probe streaming_probe = {
    .name = "replication.streaming",
    .summary = "standbys whose own walreceiver streams",
    .unit = "standbys",
    .bound = PARAM_INTEGER,
    .needs_state = true,
    .least = 1,
    .value = streaming,
};

static const struct probe lag_probe = {
    .name = "replication.lag",
    .summary = "bytes of WAL that the standby furthest behind has not received",
    .unit = "bytes",
    .bound = PARAM_SIZE,
    .needs_state = true,
    .value = lag_bytes,
};

static const struct probe *const probes[] = {
    &writes_available_probe,
    &writes_rate_probe,
    &writes_p99_probe,
    &sync_copies_probe,
    &streaming_probe,
    &lag_probe,
    NULL,
};

const struct probe *const *probe_list(void)
{
    return probes;
}

const struct probe *probe_find(const char *name)
{
    for (size_t i = 0; probes[i] != NULL; i++)
        if (strcmp(probes[i]->name, name) == 0)
            return probes[i];
    return NULL;
}

bool probe_holds(const struct probe_use *use, const struct probe_view *view, double *ret_value)
{
    double value = use->probe->value(view);

    *ret_value = value;
    if (use->has_least && value < use->least)
        return false;
    return !use->has_most || value <= use->most;
}
