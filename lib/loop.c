/* SPDX-License-Identifier: MIT */
#include "lib/loop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "lib/clock.h"

enum entry_kind { ENTRY_FREE, ENTRY_FD, ENTRY_TIMER, ENTRY_SIGNAL };

struct entry {
    enum entry_kind kind;
    loop_handle handle;
    void *argument;
    int fd;
    short events;
    int signal;
    int64_t due_ns, interval_ns; /* interval 0: once */
    void (*on_fd)(void *, short);
    void (*on_time)(void *);
    void (*on_signal)(void *, int);
};

struct loop {
    struct entry *entries;
    size_t count, capacity;
    loop_handle last_handle;
    struct pollfd *fds;      /* of one turn; fds[0] is the signalfd */
    loop_handle *fd_handles; /* beside fds */
    size_t fd_capacity;
    int signal_fd;
    sigset_t signals;
    bool stopped;
};

enum status loop_new(struct loop **ret_loop, struct error *err)
{
    struct loop *loop = calloc(1, sizeof *loop);

    if (loop == NULL)
        abort();
    sigemptyset(&loop->signals);
    loop->signal_fd = signalfd(-1, &loop->signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (loop->signal_fd < 0) {
        free(loop);
        return error_system(err, "making a signalfd");
    }
    *ret_loop = loop;
    return STATUS_OK;
}

void loop_free(struct loop *loop)
{
    if (loop == NULL)
        return;
    close(loop->signal_fd);
    free(loop->entries);
    free(loop->fds);
    free(loop->fd_handles);
    free(loop);
}

static void *grown(void *memory, size_t count, size_t size)
{
    void *larger = reallocarray(memory, count, size);

    if (larger == NULL)
        abort();
    return larger;
}

static struct entry *find(struct loop *loop, loop_handle handle)
{
    for (size_t i = 0; i < loop->count; i++)
        if (loop->entries[i].kind != ENTRY_FREE && loop->entries[i].handle == handle)
            return &loop->entries[i];
    return NULL;
}

static loop_handle add(struct loop *loop, struct entry entry)
{
    size_t slot = 0;

    while (slot < loop->count && loop->entries[slot].kind != ENTRY_FREE)
        slot++;
    if (slot == loop->count) {
        if (loop->count == loop->capacity) {
            loop->capacity = loop->capacity == 0 ? 16 : loop->capacity * 2;
            loop->entries = grown(loop->entries, loop->capacity, sizeof *loop->entries);
        }
        loop->count++;
    }
    entry.handle = ++loop->last_handle;
    loop->entries[slot] = entry;
    return entry.handle;
}

loop_handle loop_watch(struct loop *loop, int fd, short events,
                       void (*call)(void *argument, short events), void *argument)
{
    return add(
        loop,
        (struct entry){
            .kind = ENTRY_FD, .fd = fd, .events = events, .on_fd = call, .argument = argument});
}

void loop_set_events(struct loop *loop, loop_handle handle, short events)
{
    struct entry *entry = find(loop, handle);

    if (entry != NULL)
        entry->events = events;
}

loop_handle loop_at(struct loop *loop, int64_t deadline_ns, void (*call)(void *argument),
                    void *argument)
{
    return add(loop, (struct entry){.kind = ENTRY_TIMER,
                                    .due_ns = deadline_ns,
                                    .on_time = call,
                                    .argument = argument});
}

loop_handle loop_every(struct loop *loop, int64_t interval_ms, void (*call)(void *argument),
                       void *argument)
{
    int64_t interval_ns = interval_ms * NS_PER_MS;

    return add(loop, (struct entry){.kind = ENTRY_TIMER,
                                    .due_ns = clock_boot_ns() + interval_ns,
                                    .interval_ns = interval_ns,
                                    .on_time = call,
                                    .argument = argument});
}

loop_handle loop_on_signal(struct loop *loop, int signal, void (*call)(void *argument, int signal),
                           void *argument)
{
    sigset_t one;

    sigemptyset(&one);
    sigaddset(&one, signal);
    sigprocmask(SIG_BLOCK, &one, NULL);
    sigaddset(&loop->signals, signal);
    signalfd(loop->signal_fd, &loop->signals, 0);
    return add(
        loop, (struct entry){
                  .kind = ENTRY_SIGNAL, .signal = signal, .on_signal = call, .argument = argument});
}

void loop_remove(struct loop *loop, loop_handle handle)
{
    struct entry *entry = handle == 0 ? NULL : find(loop, handle);

    if (entry != NULL)
        entry->kind = ENTRY_FREE;
}

static size_t collect_fds(struct loop *loop)
{
    size_t used = 1;

    if (loop->fd_capacity < loop->count + 1) {
        loop->fd_capacity = loop->count + 16;
        loop->fds = grown(loop->fds, loop->fd_capacity, sizeof *loop->fds);
        loop->fd_handles = grown(loop->fd_handles, loop->fd_capacity, sizeof *loop->fd_handles);
    }
    loop->fds[0] = (struct pollfd){.fd = loop->signal_fd, .events = POLLIN};
    for (size_t i = 0; i < loop->count; i++) {
        const struct entry *entry = &loop->entries[i];
        if (entry->kind != ENTRY_FD)
            continue;
        loop->fds[used] = (struct pollfd){.fd = entry->fd, .events = entry->events};
        loop->fd_handles[used++] = entry->handle;
    }
    return used;
}

static int wait_ms(const struct loop *loop, int timeout_ms)
{
    int64_t next = INT64_MAX;

    for (size_t i = 0; i < loop->count; i++)
        if (loop->entries[i].kind == ENTRY_TIMER && loop->entries[i].due_ns < next)
            next = loop->entries[i].due_ns;
    if (next == INT64_MAX)
        return timeout_ms;
    int left_ms = deadline_left_ms(next);
    return timeout_ms >= 0 && timeout_ms < left_ms ? timeout_ms : left_ms;
}

static void run_signals(struct loop *loop)
{
    struct signalfd_siginfo info;

    while (read(loop->signal_fd, &info, sizeof info) == (ssize_t) sizeof info) {
        loop_handle newest = loop->last_handle;
        for (size_t i = 0; i < loop->count; i++) {
            struct entry entry = loop->entries[i];
            if (entry.kind == ENTRY_SIGNAL && entry.signal == (int) info.ssi_signo &&
                entry.handle <= newest)
                entry.on_signal(entry.argument, entry.signal);
        }
    }
}

static void run_fds(struct loop *loop, size_t used)
{
    for (size_t i = 1; i < used; i++) {
        if (loop->fds[i].revents == 0)
            continue;
        /* an earlier callback may have removed it */
        struct entry *entry = find(loop, loop->fd_handles[i]);
        if (entry != NULL)
            entry->on_fd(entry->argument, loop->fds[i].revents);
    }
}

static void run_timers(struct loop *loop)
{
    int64_t now = clock_boot_ns();
    loop_handle newest = loop->last_handle;

    for (size_t i = 0; i < loop->count; i++) {
        struct entry *entry = &loop->entries[i];
        if (entry->kind != ENTRY_TIMER || entry->due_ns > now || entry->handle > newest)
            continue;
        struct entry due = *entry;
        if (due.interval_ns == 0)
            entry->kind = ENTRY_FREE;
        else
            entry->due_ns += ((now - due.due_ns) / due.interval_ns + 1) * due.interval_ns;
        due.on_time(due.argument);
    }
}

enum status loop_turn(struct loop *loop, int timeout_ms, struct error *err)
{
    size_t used = collect_fds(loop);
    int ready = poll(loop->fds, used, wait_ms(loop, timeout_ms));

    if (ready < 0 && errno != EINTR)
        return error_system(err, "polling");
    if (ready > 0) {
        if (loop->fds[0].revents != 0)
            run_signals(loop);
        run_fds(loop, used);
    }
    run_timers(loop);
    return STATUS_OK;
}

enum status loop_run(struct loop *loop, struct error *err)
{
    loop->stopped = false;
    while (!loop->stopped) {
        enum status status = loop_turn(loop, -1, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

void loop_stop(struct loop *loop)
{
    loop->stopped = true;
}
