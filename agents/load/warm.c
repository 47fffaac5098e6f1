/* SPDX-License-Identifier: MIT */
#include "agents/load/warm.h"

#include "agents/load/client.h"
#include "lib/clock.h"

enum { NO_HOST = -1 };

struct warm_host {
    int node;
    size_t first, count; /* in worker->clients */
    size_t turn;         /* whose it is */
};

struct warm {
    struct worker *worker;
    const struct warm_hands *hands;
    struct client *ticker;
    bool closed; /* managed endpoint: as it was seen last */
    int writer;  /* endpoint by hosts: who took the last write, or NO_HOST */
    size_t host_count;
    struct warm_host hosts[LEDGER_NODES_MAX];
};

/* --- hosts ------------------------------------------------------------------------------------ */

static void add_client(struct warm *warm, struct client *client)
{
    struct warm_host *last = warm->host_count > 0 ? &warm->hosts[warm->host_count - 1] : NULL;

    if (client->group->pace == LOAD_TICK)
        warm->ticker = client;
    if (client->group->pace != LOAD_WARM)
        return;
    if (last == NULL || last->node != client->group->node) {
        last = &warm->hosts[warm->host_count++];
        *last = (struct warm_host){.node = client->group->node, .first = client->index};
    }
    last->count++;
}

struct warm *warm_new(struct worker *worker, const struct warm_hands *hands, struct arena *arena)
{
    struct warm *warm = arena_alloc(arena, sizeof(*warm));

    *warm = (struct warm){.worker = worker, .hands = hands, .writer = NO_HOST};
    for (size_t i = 0; i < worker->client_count; i++)
        add_client(warm, &worker->clients[i]);
    return warm->ticker != NULL ? warm : NULL;
}

static int open_host(const struct warm *warm)
{
    return atomic_load_explicit(&warm->worker->shared->route, memory_order_relaxed);
}

/* --- ticks ------------------------------------------------------------------------------------ */

/* Begin on a free connection of the host, each in turn; false when none is free. */
static bool begin_at(struct warm *warm, struct warm_host *host)
{
    for (size_t i = 0; i < host->count; i++) {
        struct client *client =
            &warm->worker->clients[host->first + (host->turn + i) % host->count];
        if (!warm->hands->is_free(client))
            continue;
        host->turn = (host->turn + i + 1) % host->count;
        warm->hands->take(client, warm->ticker->scheduled_ns);
        return true;
    }
    return false;
}

/* With NO_HOST: at every host. */
static bool begin_on(struct warm *warm, int node)
{
    bool begun = false;

    for (size_t i = 0; i < warm->host_count; i++)
        if (node == NO_HOST || warm->hosts[i].node == node)
            begun = begin_at(warm, &warm->hosts[i]) || begun;
    return begun;
}

/* The endpoint has opened: it led nowhere until then, as a look would have told. */
static void note_opening(struct warm *warm)
{
    struct client *ticker = warm->ticker;
    int64_t scheduled_ns = ticker->scheduled_ns;
    int64_t opened_ns = atomic_load(&warm->worker->shared->routed_ns);

    warm->closed = false;
    ticker->scheduled_ns = opened_ns;
    warm->hands->found_no_host(ticker, opened_ns);
    ticker->scheduled_ns = scheduled_ns;
    ticker->has_start = true;
}

/* False: the start waits. */
static bool serve_managed(struct warm *warm)
{
    int host = open_host(warm);

    if (host == LOAD_ROUTE_CLOSED) {
        warm->closed = true;
        warm->hands->found_no_host(warm->ticker, clock_boot_ns());
        return !warm->ticker->has_start;
    }
    if (warm->closed)
        note_opening(warm);
    return begin_on(warm, host);
}

static bool serve_hosts(struct warm *warm)
{
    int writer = warm->writer;

    return (writer != NO_HOST && begin_on(warm, writer)) || begin_on(warm, NO_HOST);
}

static void serve(struct warm *warm)
{
    struct client *ticker = warm->ticker;

    if (!ticker->has_start || warm->worker->stopping)
        return;
    if (warm->worker->plan->managed ? serve_managed(warm) : serve_hosts(warm))
        ticker->has_start = false;
}

void warm_tick(struct warm *warm)
{
    struct client *ticker = warm->ticker;
    int64_t now = clock_boot_ns();
    uint64_t missed = 0;

    if (schedule_due(&ticker->schedule, now)) {
        int64_t scheduled_ns = schedule_take_newest(&ticker->schedule, now, &missed);
        warm->hands->missed(ticker, missed + (ticker->has_start ? 1 : 0));
        ticker->scheduled_ns = scheduled_ns;
        ticker->has_start = true;
        serve(warm);
    }
    warm->hands->arm(ticker, ticker->schedule.next_ns);
}

/* Not before the schedule has begun. */
void warm_rerouted(struct warm *warm)
{
    struct client *ticker = warm->ticker;
    int64_t now = clock_boot_ns();

    if (ticker->schedule.next_ns - now > ticker->schedule.interval_ns)
        return;
    if (!ticker->has_start)
        ticker->scheduled_ns = now;
    ticker->has_start = true;
    serve(warm);
}

void warm_idle(struct warm *warm)
{
    serve(warm);
}

/* --- what became of them ---------------------------------------------------------------------- */

void warm_outcome(struct warm *warm, const struct client *client, enum ledger_class class)
{
    if (class == LEDGER_ACKED || class == LEDGER_WEAK)
        warm->writer = client->node;
    else if (warm->writer == client->node)
        warm->writer = NO_HOST;
}

bool warm_is_wanted(const struct warm *warm, const struct client *client)
{
    if (warm->worker->plan->managed)
        return open_host(warm) == client->node;
    return warm->writer == NO_HOST || warm->writer == client->node;
}

/* With other hosts to choose from, a refusal of one says nothing of the endpoint. */
bool warm_take_refused(struct warm *warm, const struct client *client, int64_t *ret_scheduled_ns)
{
    struct client *ticker = warm->ticker;

    if (!ticker->has_start || !warm->worker->plan->managed || !warm_is_wanted(warm, client))
        return false;
    ticker->has_start = false;
    *ret_scheduled_ns = ticker->scheduled_ns;
    return true;
}
