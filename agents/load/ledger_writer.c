/* SPDX-License-Identifier: MIT */
#include "agents/load/ledger_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"

_Static_assert(LEDGER_STEP_SIZE % 4096 == 0 && sizeof(struct ledger_record) == 72,
               "steps are whole pages of whole records");

enum { AHEAD_SIZE = 2 * LEDGER_STEP_SIZE, FIRST_SIZE = AHEAD_SIZE + LEDGER_STEP_SIZE };

/* What the worker and its flusher tell each other; positions are offsets in the file. */
struct flush_state {
    _Atomic uint64_t written, durable, allocated;
    _Atomic int failed; /* errno, set once */
    _Atomic bool asked, finish;
};

struct ledger_writer {
    int fd, notify;
    struct flush_state *state;
    struct process flusher;
    uint64_t position, window_end; /* window: the part that is mapped */
    char *window;                  /* its start */
    char *next;                    /* where the next record goes */
};

/* --- the flusher's side ---------------------------------------------------------------------- */

static void fail(struct flush_state *state, int errnum)
{
    int none = 0;

    atomic_compare_exchange_strong(&state->failed, &none, errnum);
}

/* A disk that stalls for seconds must not end the load, and what is under way must find room. */
static void allocate_ahead(const struct ledger_writer *writer)
{
    struct flush_state *state = writer->state;
    uint64_t allocated = atomic_load(&state->allocated);

    if (atomic_load(&state->failed) != 0 || allocated - atomic_load(&state->written) >= AHEAD_SIZE)
        return;
    int errnum = posix_fallocate(writer->fd, (off_t) allocated, LEDGER_STEP_SIZE);
    if (errnum != 0)
        fail(state, errnum);
    else
        atomic_store(&state->allocated, allocated + LEDGER_STEP_SIZE);
}

static void flush(const struct ledger_writer *writer)
{
    struct flush_state *state = writer->state;
    uint64_t written = atomic_load(&state->written);

    if (written == atomic_load(&state->durable))
        return;
    if (fdatasync(writer->fd) != 0) {
        fail(state, errno);
        return;
    }
    atomic_store(&state->durable, written);
    if (atomic_exchange(&state->asked, false))
        eventfd_write(writer->notify, 1);
}

static bool flushed_all(const struct flush_state *state)
{
    return atomic_load(&state->durable) == atomic_load(&state->written);
}

/* The pause is the point: flushes are this far apart, from the end of one to the next. */
static int run_flusher(void *argument)
{
    const struct ledger_writer *writer = argument;
    struct flush_state *state = writer->state;

    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error like a full disk */
    for (;;) {
        bool finish = atomic_load(&state->finish);
        allocate_ahead(writer);
        flush(writer);
        if (finish)
            return flushed_all(state) ? 0 : 1;
        poll(NULL, 0, LEDGER_FLUSH_MS);
    }
}

/* --- the worker's side ----------------------------------------------------------------------- */

/* Map the step that begins at window_end. False when it has not been allocated. */
static bool map_next_window(struct ledger_writer *writer)
{
    if (atomic_load(&writer->state->allocated) < writer->window_end + LEDGER_STEP_SIZE)
        return false;
    void *window = mmap(NULL, LEDGER_STEP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, writer->fd,
                        (off_t) writer->window_end);
    if (window == MAP_FAILED) {
        fail(writer->state, errno);
        return false;
    }
    if (writer->window != NULL)
        munmap(writer->window, LEDGER_STEP_SIZE);
    writer->window = window;
    writer->next = window;
    writer->window_end += LEDGER_STEP_SIZE;
    return true;
}

static enum status make_file(struct ledger_writer *writer, const char *path,
                             const struct ledger_header *header, struct error *err)
{
    writer->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (writer->fd < 0)
        return error_system(err, "creating ledger %s", path);
    errno = posix_fallocate(writer->fd, 0, LEDGER_HEADER_SIZE + FIRST_SIZE);
    if (errno != 0) {
        error_system(err, "allocating %d bytes for ledger %s", LEDGER_HEADER_SIZE + FIRST_SIZE,
                     path);
        error_hint(err, "Make room on the volume of the agent's state folder.");
        return STATUS_SYSTEM;
    }
    ssize_t length = pwrite(writer->fd, header, sizeof(*header), 0);
    if (length != (ssize_t) sizeof(*header) || fsync(writer->fd) != 0)
        return error_system(err, "writing the header of ledger %s", path);
    return STATUS_OK;
}

static enum status start_flusher(struct ledger_writer *writer, struct error *err)
{
    writer->notify = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (writer->notify < 0)
        return error_system(err, "making an eventfd");
    writer->state = mmap(NULL, sizeof(*writer->state), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (writer->state == MAP_FAILED) {
        writer->state = NULL;
        return error_system(err, "mapping the flusher's state");
    }
    atomic_store(&writer->state->written, LEDGER_HEADER_SIZE);
    atomic_store(&writer->state->durable, LEDGER_HEADER_SIZE);
    atomic_store(&writer->state->allocated, LEDGER_HEADER_SIZE + FIRST_SIZE);
    return process_fork(run_flusher, writer, &writer->flusher, err);
}

static void release(struct ledger_writer *writer)
{
    process_kill(&writer->flusher);
    if (writer->window != NULL)
        munmap(writer->window, LEDGER_STEP_SIZE);
    if (writer->state != NULL)
        munmap(writer->state, sizeof(*writer->state));
    if (writer->notify >= 0)
        close(writer->notify);
    if (writer->fd >= 0)
        close(writer->fd);
    free(writer);
}

enum status ledger_writer_open(const char *path, const struct ledger_header *header,
                               struct ledger_writer **ret_writer, struct error *err)
{
    struct ledger_writer *writer = calloc(1, sizeof(*writer));

    if (writer == NULL)
        abort();
    *writer = (struct ledger_writer){.fd = -1,
                                     .notify = -1,
                                     .flusher = {0, -1},
                                     .position = LEDGER_HEADER_SIZE,
                                     .window_end = LEDGER_HEADER_SIZE};
    enum status status = make_file(writer, path, header, err);
    if (status == STATUS_OK)
        status = start_flusher(writer, err);
    if (status == STATUS_OK && !map_next_window(writer))
        status = error_system(err, "mapping ledger %s", path);
    if (status != STATUS_OK) {
        release(writer);
        return status;
    }
    *ret_writer = writer;
    return STATUS_OK;
}

bool ledger_append(struct ledger_writer *writer, struct ledger_record record)
{
    if (writer->position == writer->window_end && !map_next_window(writer)) {
        fail(writer->state, ENOSPC);
        return false;
    }
    record.crc = ledger_crc(&record);
    memcpy(writer->next, &record, sizeof(record));
    writer->next += sizeof(record);
    writer->position += sizeof(record);
    atomic_store_explicit(&writer->state->written, writer->position, memory_order_release);
    return true;
}

uint64_t ledger_writer_position(const struct ledger_writer *writer)
{
    return writer->position;
}

bool ledger_writer_durable(const struct ledger_writer *writer, uint64_t position)
{
    return atomic_load(&writer->state->durable) >= position;
}

void ledger_writer_ask(struct ledger_writer *writer)
{
    atomic_store(&writer->state->asked, true);
}

int ledger_writer_descriptor(const struct ledger_writer *writer)
{
    return writer->notify;
}

void ledger_writer_notified(struct ledger_writer *writer)
{
    eventfd_t count;

    eventfd_read(writer->notify, &count);
}

int ledger_writer_flusher(const struct ledger_writer *writer)
{
    return writer->flusher.pidfd;
}

int ledger_writer_failed(const struct ledger_writer *writer)
{
    return atomic_load_explicit(&writer->state->failed, memory_order_relaxed);
}

enum status ledger_writer_close(struct ledger_writer *writer, int64_t deadline_ns,
                                struct error *err)
{
    int wait_status = 0;

    atomic_store(&writer->state->finish, true);
    enum status status = process_reap(&writer->flusher, deadline_ns, &wait_status, err);
    if (status == STATUS_OK && wait_status != 0)
        status =
            error_set(err, STATUS_SYSTEM, "the last flush of the ledger failed: %s",
                      ledger_writer_failed(writer) != 0 ? strerror(ledger_writer_failed(writer))
                                                        : "the process that flushes it is gone");
    if (status == STATUS_OK &&
        (ftruncate(writer->fd, (off_t) writer->position) != 0 || fsync(writer->fd) != 0))
        status = error_system(err, "cutting the ledger to its length");
    release(writer);
    return status;
}
