/* SPDX-License-Identifier: MIT */
#include "orchestrator/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"

enum { LINE_MAX_BYTES = 4 * 1024 * 1024, RESERVE_BYTES = 16 * 1024 * 1024 };

/* Somebody who waits for the disk. */
struct waiting {
    struct waiting *next;
    journal_synced *done;
    void *argument;
};

struct journal {
    int events, schedule;
    struct loop *loop; /* of journal_sync() */
    loop_handle watching;
    struct process syncing;          /* a child that does the fsync; pid 0: none */
    struct waiting *synced, *behind; /* those whom it answers; those whose events came later */
    int reserve; /* room kept for the end of a run on a disk that fills up; -1: none or given up */
    int64_t sequence;
    void (*watch)(void *argument, const json_t *event);
    void *argument;
    struct error failure; /* of the first line that could not be written */
};

static enum status open_file(const char *folder, const char *name, int flags, int *ret_fd,
                             struct error *err)
{
    OWNED_BUFFER struct buffer path = BUFFER(8192);

    buffer_printf(&path, "%s/%s", folder, name);
    int fd = open(buffer_text(&path), flags | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_system(err, "%s %s", (flags & O_CREAT) != 0 ? "creating" : "opening",
                            buffer_text(&path));
    *ret_fd = fd;
    return STATUS_OK;
}

/* Without a name, so that nothing of it stays; a file system that cannot do it has no reserve. */
static int keep_reserve(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 && posix_fallocate(fd, 0, RESERVE_BYTES) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static enum status open_as(const char *folder, int flags,
                           void (*watch)(void *argument, const json_t *event), void *argument,
                           struct journal **ret_journal, struct error *err)
{
    struct journal *journal = calloc(1, sizeof *journal);

    if (journal == NULL)
        abort(); /* lib/arena.h says why */
    journal->events = journal->schedule = journal->reserve = -1;
    journal->watch = watch;
    journal->argument = argument;
    enum status status = open_file(folder, "journal.ndjson", flags, &journal->events, err);
    if (status == STATUS_OK)
        status = open_file(folder, "schedule.txt", flags, &journal->schedule, err);
    if (status != STATUS_OK) {
        journal_close(journal);
        return status;
    }
    journal->reserve = keep_reserve(folder);
    *ret_journal = journal;
    return STATUS_OK;
}

enum status journal_open(const char *folder, void (*watch)(void *argument, const json_t *event),
                         void *argument, struct journal **ret_journal, struct error *err)
{
    return open_as(folder, O_WRONLY | O_CREAT | O_EXCL, watch, argument, ret_journal, err);
}

/* A last line that was cut off would swallow the next one. */
static enum status drop_torn_line(int fd, struct error *err)
{
    off_t end = lseek(fd, 0, SEEK_END);
    char byte;

    while (end > 0 && pread(fd, &byte, 1, end - 1) == 1 && byte != '\n')
        end--;
    if (ftruncate(fd, end) != 0)
        return error_system(err, "cutting journal.ndjson at its last whole line");
    return STATUS_OK;
}

enum status journal_reopen(const char *folder, int64_t sequence,
                           void (*watch)(void *argument, const json_t *event), void *argument,
                           struct journal **ret_journal, struct error *err)
{
    struct journal *journal = NULL;
    enum status status = open_as(folder, O_RDWR, watch, argument, &journal, err);

    if (status == STATUS_OK)
        status = drop_torn_line(journal->events, err);
    if (status != STATUS_OK) {
        journal_close(journal);
        return status;
    }
    journal->sequence = sequence;
    *ret_journal = journal;
    return STATUS_OK;
}

static void forget(struct waiting *list)
{
    while (list != NULL) {
        struct waiting *next = list->next;

        free(list);
        list = next;
    }
}

void journal_leave_loop(struct journal *journal)
{
    if (journal->syncing.pid != 0) {
        loop_remove(journal->loop, journal->watching);
        process_kill(&journal->syncing);
    }
    forget(journal->synced);
    forget(journal->behind);
    journal->syncing = (struct process){0};
    journal->synced = journal->behind = NULL;
    journal->loop = NULL;
}

void journal_close(struct journal *journal)
{
    if (journal == NULL)
        return;
    if (journal->events >= 0) {
        fsync(journal->events);
        close(journal->events);
    }
    if (journal->schedule >= 0) {
        fsync(journal->schedule);
        close(journal->schedule);
    }
    if (journal->reserve >= 0)
        close(journal->reserve);
    journal_leave_loop(journal);
    free(journal);
}

/* Whole or not at all: half a line in the middle would make the journal unreadable. */
static bool append(int fd, const struct buffer *line)
{
    off_t before = lseek(fd, 0, SEEK_END);
    ssize_t written = write(fd, buffer_text(line), line->length);

    if (written == (ssize_t) line->length)
        return true;
    int errnum = written < 0 ? errno : ENOSPC;
    if (written > 0 && ftruncate(fd, before) != 0)
        errnum = errno;
    errno = errnum;
    return false;
}

/* The first failure ends the run; the reserve holds what is still to be said about its end. */
static void write_line(struct journal *journal, int fd, const char *what, const struct buffer *line)
{
    if (append(fd, line))
        return;
    if (journal->failure.code == STATUS_OK) {
        error_system(&journal->failure, "writing %s", what);
        error_hint(&journal->failure, "Is the disk under the run directory full?");
    }
    if (journal->reserve < 0)
        return;
    close(journal->reserve);
    journal->reserve = -1;
    if (!append(fd, line))
        error_detail(&journal->failure, "the reserve did not help: lines are missing");
}

void journal_event(struct journal *journal, const char *event, json_t *members)
{
    OWNED_BUFFER struct buffer line = BUFFER(LINE_MAX_BYTES);
    OWNED_JSON json_t *object =
        json_pack("{s:I, s:I, s:s}", "seq", (json_int_t) ++journal->sequence, "t",
                  (json_int_t) clock_boot_ns(), "event", event);

    if (members != NULL) {
        json_object_update_missing(object, members);
        json_decref(members);
    }
    OWNED_MEMORY char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(12));
    if (text == NULL)
        abort(); /* no memory, or an event that is no JSON: a bug */
    buffer_printf(&line, "%s\n", text);
    write_line(journal, journal->events, "journal.ndjson", &line);
    if (journal->watch != NULL)
        journal->watch(journal->argument, object);
}

void journal_note(struct journal *journal, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    journal_event(journal, "note", json_pack("{s:s}", "text", text));
}

void journal_schedule(struct journal *journal, int64_t offset_ms, const char *step,
                      const char *action, const char *fault, const char *node, const json_t *params)
{
    OWNED_BUFFER struct buffer line = BUFFER(LINE_MAX_BYTES);
    OWNED_MEMORY char *text =
        json_dumps(params, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(12));

    buffer_printf(&line, "%" PRId64 " %s %s %s %s %s\n", offset_ms, step, action, fault, node,
                  text != NULL ? text : "{}");
    write_line(journal, journal->schedule, "schedule.txt", &line);
}

/* ---- durable ---- */

/* In the child: the exit status tells errno. */
static int sync_events(void *argument)
{
    const struct journal *journal = argument;

    return fdatasync(journal->events) == 0 ? 0 : errno;
}

static void fail_syncing(struct journal *journal, const struct error *reason)
{
    if (journal->failure.code == STATUS_OK)
        journal->failure = *reason;
}

static void tell_all(struct journal *journal)
{
    struct waiting *list = journal->synced;
    const struct error *reason = journal->failure.code != STATUS_OK ? &journal->failure : NULL;

    journal->synced = NULL;
    for (const struct waiting *waiting = list; waiting != NULL; waiting = waiting->next)
        waiting->done(waiting->argument, reason);
    forget(list);
}

static void begin_syncing(struct journal *journal);

static void on_synced(void *argument, short events)
{
    struct journal *journal = argument;
    struct error error = {0};
    int wait = 0;

    (void) events;
    loop_remove(journal->loop, journal->watching);
    if (process_reap(&journal->syncing, clock_boot_ns(), &wait, &error) != STATUS_OK) {
        fail_syncing(journal, &error);
    } else if (!WIFEXITED(wait) || WEXITSTATUS(wait) != 0) {
        errno = WIFEXITED(wait) ? WEXITSTATUS(wait) : EINTR;
        error_system(&error, "making journal.ndjson durable");
        fail_syncing(journal, &error);
    }
    journal->syncing = (struct process){0};
    tell_all(journal);
    if (journal->behind != NULL && journal->syncing.pid == 0)
        begin_syncing(journal);
}

static void on_refused(void *argument)
{
    struct journal *journal = argument;

    tell_all(journal);
}

static void begin_syncing(struct journal *journal)
{
    struct error error = {0};

    journal->synced = journal->behind;
    journal->behind = NULL;
    if (process_fork(sync_events, journal, &journal->syncing, &error) == STATUS_OK) {
        journal->watching =
            loop_watch(journal->loop, journal->syncing.pidfd, POLLIN, on_synced, journal);
        return;
    }
    fail_syncing(journal, &error);
    journal->syncing = (struct process){0};
    loop_at(journal->loop, clock_boot_ns(), on_refused, journal);
}

void journal_sync(struct journal *journal, struct loop *loop, journal_synced *done, void *argument)
{
    struct waiting *waiting = calloc(1, sizeof *waiting);

    if (waiting == NULL)
        abort();
    *waiting = (struct waiting){.next = journal->behind, .done = done, .argument = argument};
    journal->behind = waiting;
    journal->loop = loop;
    if (journal->syncing.pid == 0 && journal->synced == NULL)
        begin_syncing(journal);
}

enum status journal_failure(const struct journal *journal, struct error *err)
{
    if (journal->failure.code != STATUS_OK && err != NULL)
        *err = journal->failure;
    return journal->failure.code;
}
