/* SPDX-License-Identifier: MIT */
#include "agents/sampler/worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agents/load/descriptors.h"
#include "agents/sampler/processes.h"
#include "agents/sampler/stream.h"
#include "agents/sampler/views.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/owned.h"

enum {
    LINE_SIZE = 256 * 1024,
    KERNEL_HALF = 512 * 1024,
    VIEWS_HALF = 256 * 1024,
    WRITER_STACK_SIZE = 256 * 1024,
    WRITE_MS = 200, /* so much of the samples is lost at most when we are killed */
    JOIN_MS = 500
};

struct worker {
    const struct sampler_order *order;
    struct arena *arena;
    struct kernel kernel;
    struct processes processes;
    bool has_processes, has_views;
    struct stream kernel_stream, views_stream;
    struct views views;
    struct line line;
    pthread_t writer;
    atomic_bool ending;
};

const char *sampler_file(struct arena *arena, const struct session *session, bool postgres)
{
    if (postgres && !session->is_database)
        return NULL;
    return arena_printf(arena, "%s-%s.ndjson", session->node, postgres ? "postgres" : "kernel");
}

/* --- the writer ------------------------------------------------------------------------------- */

static void *write_streams(void *argument)
{
    struct worker *worker = argument;

    while (!atomic_load(&worker->ending)) {
        poll(NULL, 0, WRITE_MS);
        stream_write(&worker->kernel_stream);
        if (worker->has_views)
            stream_write(&worker->views_stream);
    }
    return NULL;
}

static enum status start_writer(struct worker *worker, struct error *err)
{
    pthread_attr_t attributes;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, WRITER_STACK_SIZE);
    errno = pthread_create(&worker->writer, &attributes, write_streams, worker);
    pthread_attr_destroy(&attributes);
    return errno == 0 ? STATUS_OK : error_system(err, "starting the thread that writes samples");
}

/* --- opening ---------------------------------------------------------------------------------- */

static enum status open_stream(struct worker *worker, bool postgres, int64_t period_ms,
                               size_t half_size, struct stream *stream, struct error *err)
{
    const struct session *session = worker->order->session;
    char boot_id[BOOT_ID_SIZE];
    enum status status = clock_boot_id(boot_id, err);

    if (status != STATUS_OK)
        return status;
    const char *path = arena_printf(worker->arena, "%s/%s", session->spool,
                                    sampler_file(worker->arena, session, postgres));
    const char *intro = arena_printf(
        worker->arena,
        "\"samples\":1,\"stream\":\"%s\",\"node\":\"%s\",\"run\":\"%s\",\"boot_id\":\"%s\","
        "\"period_ms\":%lld,\"page_bytes\":%ld,\"cgroup_version\":%d",
        postgres ? "postgres" : "kernel", session->node, session->run, boot_id,
        (long long) period_ms, sysconf(_SC_PAGESIZE), (int) cgroup_version());
    return stream_open(path, intro, period_ms, half_size, stream, err);
}

static enum status open_all(struct worker *worker, struct error *err)
{
    const struct sampler_order *order = worker->order;
    const struct session *session = order->session;
    enum status status =
        open_stream(worker, false, order->period_ms, KERNEL_HALF, &worker->kernel_stream, err);

    worker->has_views = session->is_database;
    worker->has_processes = session->is_database && order->processes;
    if (status == STATUS_OK && worker->has_views)
        status = open_stream(worker, true, order->views_ms, VIEWS_HALF, &worker->views_stream, err);
    if (status != STATUS_OK)
        return status;
    worker->line = (struct line){.data = arena_alloc(worker->arena, LINE_SIZE), .size = LINE_SIZE};
    kernel_open(&worker->kernel, worker->arena);
    if (session->is_database && session->database.cgroup != NULL) {
        worker->kernel.group_given = true;
        kernel_follow_group(&worker->kernel, session->database.cgroup);
    }
    if (worker->has_processes)
        processes_open(&worker->processes, worker->arena, session->database.data);
    worker->views = (struct views){.session = session,
                                   .stream = &worker->views_stream,
                                   .period_ms = order->views_ms,
                                   .backend = order->backend,
                                   .stop = order->control};
    return STATUS_OK;
}

/* --- the kernel's thread ---------------------------------------------------------------------- */

static void sample(struct worker *worker)
{
    int64_t now = clock_boot_ns();
    struct line *line = &worker->line;

    stream_begin(line, now);
    kernel_sample(&worker->kernel, line);
    if (worker->has_processes)
        processes_sample(&worker->processes, &worker->kernel, worker->views.postmaster, line);
    line_pair(line, "took_us", (clock_boot_ns() - now) / 1000);
    stream_put(&worker->kernel_stream, now, true, line);
}

/* Samples that were missed are not made up: the gap says so. */
static void run(struct worker *worker)
{
    struct pollfd control = {.fd = worker->order->control, .events = POLLIN};
    int64_t due_ns = clock_boot_ns();

    while (poll(&control, 1, deadline_left_ms(due_ns)) <= 0) {
        if (!deadline_passed(due_ns))
            continue;
        sample(worker);
        while (deadline_passed(due_ns))
            due_ns += worker->order->period_ms * NS_PER_MS;
    }
}

static void end(struct worker *worker)
{
    if (worker->has_views)
        views_join(&worker->views, deadline_in_ms(JOIN_MS));
    atomic_store(&worker->ending, true);
    pthread_join(worker->writer, NULL);
    stream_end(&worker->kernel_stream, clock_boot_ns());
    if (worker->has_views)
        stream_end(&worker->views_stream, clock_boot_ns());
}

static enum status work(struct worker *worker, struct error *err)
{
    enum status status = open_all(worker, err);

    if (status != STATUS_OK)
        return status;
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        log_line(LOG_WARNING, "the sampler's memory is not locked: %s", strerror(errno));
    status = start_writer(worker, err);
    if (status == STATUS_OK && worker->has_views)
        status = views_start(&worker->views, err);
    if (status != STATUS_OK)
        return status;
    run(worker);
    end(worker);
    return STATUS_OK;
}

int sampler_worker_main(void *argument)
{
    const struct sampler_order *order = argument;
    OWNED_ARENA struct arena *arena = arena_new();
    struct worker *worker = arena_alloc(arena, sizeof *worker);
    struct error err = {0};

    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    descriptors_close_all_but(&order->control, 1);
    worker->order = order;
    worker->arena = arena;
    if (work(worker, &err) == STATUS_OK)
        _exit(0); /* a thread that still waits for PostgreSQL uses this memory */
    log_line(LOG_WARNING, "sampler: %s", err.message);
    _exit(1);
}
