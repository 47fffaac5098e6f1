/* SPDX-License-Identifier: MIT */
#include "agents/load/worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "agents/load/client.h"
#include "agents/load/descriptors.h"
#include "agents/load/warm.h"
#include "lib/clock.h"
#include "lib/owned.h"

enum {
    EVENTS_AT_ONCE = 64,
    RESERVE_WAIT_MS = 30000, /* the first reservations on a very busy disk */
    CLOSE_WAIT_MS = 30000,
    SETTLE_MS = 200, /* time to connect before the schedule begins, */
    SETTLE_PER_CLIENT_MS = 10
};

/* Sources of events that are no clients. */
enum { SOURCE_CLOCK = 0xFFFFFF00, SOURCE_CONTROL, SOURCE_FLUSHED, SOURCE_FLUSHER };

void worker_break(struct worker *worker, const char *format, ...)
{
    struct load_counters *counters = worker->counters;
    va_list args;

    if (counters->error[0] == '\0') {
        va_start(args, format);
        vsnprintf(counters->error, sizeof(counters->error), format, args);
        va_end(args);
    }
    worker->broken = true;
}

bool worker_record(struct worker *worker, struct ledger_record record)
{
    if (ledger_append(worker->ledger, record))
        return true;
    worker_break(worker, "ledger %s has no room for a record", worker->own->path);
    return false;
}

/* xorshift64*, by Vigna (public domain); the state is never 0. */
uint64_t worker_random(struct worker *worker)
{
    worker->random ^= worker->random >> 12;
    worker->random ^= worker->random << 25;
    worker->random ^= worker->random >> 27;
    return worker->random * UINT64_C(2685821657736338717);
}

/* --- events ---------------------------------------------------------------------------------- */

static void watch(struct worker *worker, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};

    /* the number of a closed socket comes back, and then it is not registered any more */
    if (epoll_ctl(worker->epoll, EPOLL_CTL_MOD, fd, &event) != 0 &&
        (errno != ENOENT || epoll_ctl(worker->epoll, EPOLL_CTL_ADD, fd, &event) != 0))
        worker_break(worker, "watching descriptor %d: %s", fd, strerror(errno));
}

void worker_watch(struct worker *worker, int fd, uint32_t events, size_t index, uint32_t generation)
{
    watch(worker, fd, events, (uint64_t) generation << 32 | index);
}

static void all_clients(struct worker *worker, void (*call)(struct client *client))
{
    for (size_t i = 0; i < worker->client_count; i++)
        call(&worker->clients[i]);
}

static void begin_stop(struct worker *worker, int64_t stop_ns)
{
    if (worker->stopping)
        return;
    worker->stopping = true;
    worker->stop_ns = stop_ns;
    all_clients(worker, client_stop);
}

static void on_control(struct worker *worker, int control)
{
    eventfd_t count;

    eventfd_read(control, &count);
    int64_t stop_ns = atomic_load(&worker->shared->stop_ns);
    if (stop_ns != 0)
        begin_stop(worker, stop_ns);
    else if (worker->plan->managed)
        all_clients(worker, client_rerouted);
}

static void on_event(struct worker *worker, int control, const struct epoll_event *event)
{
    uint32_t index = (uint32_t) event->data.u64;

    switch (index) {
    case SOURCE_CLOCK: {
        uint64_t expirations;
        ssize_t ignored = read(worker->clock, &expirations, sizeof(expirations));
        (void) ignored;
        break; /* what is due runs at the top of every turn */
    }
    case SOURCE_CONTROL:
        on_control(worker, control);
        break;
    case SOURCE_FLUSHED:
        ledger_writer_notified(worker->ledger);
        all_clients(worker, client_flushed);
        break;
    case SOURCE_FLUSHER:
        epoll_ctl(worker->epoll, EPOLL_CTL_DEL, ledger_writer_flusher(worker->ledger), NULL);
        worker_break(worker, "the process that flushes ledger %s is gone", worker->own->path);
        break;
    default:
        if (worker->clients[index].generation == (uint32_t) (event->data.u64 >> 32))
            client_ready(&worker->clients[index]);
    }
}

/* --- time ------------------------------------------------------------------------------------ */

/* An armed clock that rings too early costs one turn; so it is set only to ring earlier. */
static void set_clock(struct worker *worker)
{
    int64_t next_ns = timers_next(&worker->timers);

    if (next_ns >= worker->clock_at_ns && worker->clock_at_ns > clock_boot_ns())
        return;
    struct itimerspec when = {
        .it_value = {.tv_sec = next_ns / NS_PER_SECOND, .tv_nsec = next_ns % NS_PER_SECOND}};
    worker->clock_at_ns = next_ns;
    timerfd_settime(worker->clock, TFD_TIMER_ABSTIME, &when, NULL);
}

/* A worker that comes late to its beat could not see what happened meanwhile. */
static void beat(void *argument)
{
    struct worker *worker = argument;
    int64_t now = clock_boot_ns();
    int64_t due = worker->beat.at_ns;

    worker_record(worker,
                  (struct ledger_record){.kind = LEDGER_BEAT, .sent_ns = due, .done_ns = now});
    if (now - due > BEAT_MS * NS_PER_MS)
        atomic_fetch_add(&worker->counters->blind_ns, now - due);
    int64_t next = due + BEAT_MS * NS_PER_MS;
    timer_arm(&worker->timers, &worker->beat, next > now ? next : now + BEAT_MS * NS_PER_MS);
}

static void read_tick(void *argument)
{
    struct worker *worker = argument;

    timer_arm(&worker->timers, &worker->read_tick, deadline_in_ms(READ_MS));
    worker->read_due = true;
    for (size_t i = 0; i < worker->client_count && worker->read_due; i++) {
        worker->reader = (worker->reader + 1) % worker->client_count;
        if (client_read(&worker->clients[worker->reader]))
            return;
    }
}

/* --- the loop -------------------------------------------------------------------------------- */

static void turn(struct worker *worker, int control)
{
    struct epoll_event events[EVENTS_AT_ONCE];

    timers_run(&worker->timers, clock_boot_ns());
    set_clock(worker);
    int count = epoll_wait(worker->epoll, events, EVENTS_AT_ONCE, -1);
    for (int i = 0; i < count; i++)
        on_event(worker, control, &events[i]);
    int failed = ledger_writer_failed(worker->ledger);
    if (failed != 0 && !worker->broken)
        worker_break(worker, "ledger %s: %s", worker->own->path, strerror(failed));
    if (worker->broken)
        begin_stop(worker, deadline_in_ms(worker->plan->drain_ms));
}

static void run(struct worker *worker, int control)
{
    while (worker->running > 0) {
        turn(worker, control);
        if (worker->stopping && deadline_passed(worker->stop_ns))
            all_clients(worker, client_abandon);
    }
}

/* --- beginning and end ----------------------------------------------------------------------- */

static void make_clients(struct worker *worker)
{
    const struct load_worker_plan *own = worker->own;
    unsigned rows = 1, payload = 0;
    size_t index = 0;

    for (size_t i = 0; i < own->group_count; i++) {
        worker->client_count += own->groups[i].clients;
        rows = own->groups[i].rows > rows ? own->groups[i].rows : rows;
        payload = own->groups[i].payload > payload ? own->groups[i].payload : payload;
    }
    worker->clients = arena_array(worker->arena, worker->client_count, sizeof(struct client));
    worker->running = worker->client_count;
    statement_init(&worker->statement, worker->arena, rows, payload);
    timers_init(&worker->timers, worker->arena, worker->client_count + 2);
    for (size_t i = 0; i < own->group_count; i++)
        for (size_t j = 0; j < own->groups[i].clients; j++, index++)
            client_init(&worker->clients[index], worker, &own->groups[i], index,
                        own->groups[i].first_client + (uint32_t) j);
    worker->warm = warm_new(worker, &client_hands, worker->arena);
}

static enum status open_ledger(struct worker *worker, struct error *err)
{
    const struct load_plan *plan = worker->plan;
    struct ledger_header header = {.version = LEDGER_VERSION,
                                   .record_size = sizeof(struct ledger_record),
                                   .worker = worker->own->number,
                                   .node_count = (uint32_t) plan->node_count};

    memcpy(header.magic, "ordeal-ledger-1\n", sizeof(header.magic));
    snprintf(header.run, sizeof(header.run), "%s", plan->run);
    snprintf(header.client_node, sizeof(header.client_node), "%s", plan->client_node);
    for (size_t i = 0; i < plan->node_count; i++)
        snprintf(header.nodes[i], sizeof(header.nodes[i]), "%s", plan->nodes[i].name);
    return ledger_writer_open(worker->own->path, &header, &worker->ledger, err);
}

static enum status open_loop(struct worker *worker, int control, struct error *err)
{
    worker->epoll = epoll_create1(EPOLL_CLOEXEC);
    worker->clock = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (worker->epoll < 0 || worker->clock < 0)
        return error_system(err, "making the event loop of a load worker");
    watch(worker, worker->clock, EPOLLIN, SOURCE_CLOCK);
    watch(worker, control, EPOLLIN, SOURCE_CONTROL);
    watch(worker, ledger_writer_descriptor(worker->ledger), EPOLLIN, SOURCE_FLUSHED);
    watch(worker, ledger_writer_flusher(worker->ledger), EPOLLIN, SOURCE_FLUSHER);
    return STATUS_OK;
}

/* No client may begin before its first tokens are on the disk. */
static enum status reserve_tokens(struct worker *worker, struct error *err)
{
    struct pollfd event = {.fd = ledger_writer_descriptor(worker->ledger), .events = POLLIN};
    int64_t deadline_ns = deadline_in_ms(RESERVE_WAIT_MS);

    all_clients(worker, client_reserve);
    uint64_t position = ledger_writer_position(worker->ledger);
    while (!ledger_writer_durable(worker->ledger, position)) {
        if (ledger_writer_failed(worker->ledger) != 0 || deadline_passed(deadline_ns))
            return error_set(err, STATUS_SYSTEM,
                             "the first tokens of ledger %s did not reach the disk in %d ms (%s)",
                             worker->own->path, RESERVE_WAIT_MS,
                             strerror(ledger_writer_failed(worker->ledger)));
        poll(&event, 1, deadline_left_ms(deadline_ns));
        ledger_writer_notified(worker->ledger);
        ledger_writer_ask(worker->ledger);
    }
    return STATUS_OK;
}

static void start_clients(struct worker *worker)
{
    int64_t settle_ms = SETTLE_MS + (int64_t) worker->client_count * SETTLE_PER_CLIENT_MS;
    int64_t begin_ns = deadline_in_ms(settle_ms);

    worker->beat = (struct timer){.call = beat, .argument = worker};
    worker->read_tick = (struct timer){.call = read_tick, .argument = worker};
    timer_arm(&worker->timers, &worker->beat, deadline_in_ms(BEAT_MS));
    timer_arm(&worker->timers, &worker->read_tick, begin_ns);
    for (size_t i = 0; i < worker->client_count; i++)
        client_start(&worker->clients[i], begin_ns);
}

/* A ledger without END says that its worker did not end in order. */
static enum status close_ledger(struct worker *worker, struct error *err)
{
    if (!worker->broken)
        worker_record(worker,
                      (struct ledger_record){.kind = LEDGER_END, .done_ns = clock_boot_ns()});
    enum status status = ledger_writer_close(worker->ledger, deadline_in_ms(CLOSE_WAIT_MS), err);
    worker->ledger = NULL;
    if (status == STATUS_OK && worker->broken)
        return error_set(err, STATUS_FAILED, "%s", worker->counters->error);
    return status;
}

static enum status work(struct worker *worker, int control, struct error *err)
{
    make_clients(worker);
    enum status status = open_ledger(worker, err);
    if (status != STATUS_OK)
        return status;
    status = open_loop(worker, control, err);
    if (status == STATUS_OK)
        status = reserve_tokens(worker, err);
    if (status != STATUS_OK) {
        worker->broken = true;
        enum status ignored = close_ledger(worker, NULL);
        (void) ignored;
        return status;
    }
    start_clients(worker);
    run(worker, control);
    return close_ledger(worker, err);
}

int worker_main(void *argument)
{
    const struct worker_order *order = argument;
    OWNED_ARENA struct arena *arena = arena_new();
    struct worker worker = {.plan = order->plan,
                            .own = &order->plan->workers[order->index],
                            .shared = order->shared,
                            .counters = &order->shared->workers[order->index],
                            .arena = arena,
                            .epoll = -1,
                            .clock = -1,
                            .random = (order->plan->seed + order->index) << 1 | 1};
    struct error err = {0};

    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error like a full disk */
    descriptors_close_all_but(&order->control, 1);
    enum status status = work(&worker, order->control, &err);
    if (status != STATUS_OK) {
        worker_break(&worker, "%s", err.message); /* kept when it is the first reason */
        return 1;
    }
    atomic_store(&worker.counters->complete, true);
    return 0;
}
