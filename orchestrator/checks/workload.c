/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/workload.h"

#include <stdlib.h>

#include "lib/clock.h"

/*
 * A client that backs off waits for about as long as it was refused, and then has to connect: so
 * long, and this much more, it is given after the outage.
 */
#define SETTLE_NS (2 * NS_PER_SECOND)

static int compare_clients(const void *left, const void *right)
{
    uint32_t a = ((const struct workload_client *) left)->client;
    uint32_t b = ((const struct workload_client *) right)->client;

    return a < b ? -1 : a > b;
}

static void fold(struct workload *workload, const struct workload_client *ack)
{
    struct workload_client *last =
        workload->count == 0 ? NULL : &workload->items[workload->count - 1];

    if (last == NULL || last->client != ack->client) {
        workload->items[workload->count++] = *ack;
        return;
    }
    if (ack->first_ns < last->first_ns)
        last->first_ns = ack->first_ns;
    if (ack->last_ns > last->last_ns)
        last->last_ns = ack->last_ns;
}

void workload_read(struct workload *workload, const struct outage *outage)
{
    size_t count = 0;

    *workload = (struct workload){.until_ns = outage->workload_until_ns};
    workload->items = arena_array(outage->arena, outage->count + 1, sizeof *workload->items);
    for (size_t i = 0; i < outage->count; i++) {
        const struct ack *ack = &outage->acks[i];
        if (ack->workload)
            workload->items[count++] =
                (struct workload_client){.client = ack->client,
                                         .first_ns = ack->done_ns,
                                         .last_ns = ack->serves ? ack->done_ns : 0};
    }
    if (count > 1)
        qsort(workload->items, count, sizeof *workload->items, compare_clients);
    for (size_t i = 0; i < count; i++) {
        struct workload_client ack = workload->items[i];
        fold(workload, &ack);
    }
}

struct workload_return workload_return(const struct workload *workload, const struct gap *gap)
{
    int64_t length_ns = gap->end_ns - gap->begin_ns;
    struct workload_return result = {.looked =
                                         workload->until_ns >= gap->end_ns + length_ns + SETTLE_NS};

    for (size_t i = 0; i < workload->count; i++) {
        const struct workload_client *client = &workload->items[i];
        if (client->first_ns > gap->begin_ns)
            continue;
        result.before++;
        result.back += client->last_ns >= gap->end_ns;
    }
    return result;
}
