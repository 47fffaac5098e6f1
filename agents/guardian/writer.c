/* SPDX-License-Identifier: MIT */
#include "agents/guardian/writer.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/guardian/records.h"
#include "lib/kill_point.h"

enum { STOP_MS = 2000 };

/* --- the child ------------------------------------------------------------------------------- */

static bool write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t count = write(fd, text, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        text += count;
        length -= (size_t) count;
    }
    return true;
}

/* After a torn line the next one must begin on a line of its own. */
static bool end_torn_line(int fd)
{
    struct stat info;
    char last = '\n';

    if (fstat(fd, &info) != 0)
        return false;
    if (info.st_size > 0 && pread(fd, &last, 1, info.st_size - 1) != 1)
        return false;
    return last == '\n' || write_all(fd, "\n", 1);
}

static int append(int fd, const char *text, size_t length)
{
    errno = 0;
    bool written = end_torn_line(fd) && write_all(fd, text, length);
    KILL_POINT("journal-written");
    if (!written || fdatasync(fd) != 0)
        return errno != 0 ? errno : EIO;
    KILL_POINT("journal-durable");
    return 0;
}

static _Noreturn void write_for_ever(int channel, int journal)
{
    static char line[JOURNAL_LINE_MAX];

    (void) mlockall(MCL_CURRENT | MCL_FUTURE);
    for (;;) {
        ssize_t length = recv(channel, line, sizeof line, 0);
        if (length < 0 && errno == EINTR)
            continue;
        if (length <= 0)
            _exit(0);
        int errnum = append(journal, line, (size_t) length);
        if (send(channel, &errnum, sizeof errnum, MSG_NOSIGNAL) != (ssize_t) sizeof errnum)
            _exit(1);
    }
}

/* --- the guardian's side --------------------------------------------------------------------- */

static void send_pending(struct guardian *guardian)
{
    for (struct pending *one = guardian->first_pending; one != NULL; one = one->next) {
        if (one->sent)
            continue;
        ssize_t count =
            send(guardian->writer_fd, one->line, one->length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count != (ssize_t) one->length)
            return; /* full: later; dead: its end is seen on the descriptor */
        one->sent = true;
    }
}

enum status writer_start(struct guardian *guardian, struct error *err)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return error_system(err, "making a channel to the journal's writer");
    pid_t pid = fork_child(&guardian->writer.pidfd);
    if (pid == 0) {
        close(ends[0]);
        write_for_ever(ends[1], guardian->journal_fd);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return error_system(err, "starting the journal's writer");
    }
    guardian->writer.pid = pid;
    guardian->writer_fd = ends[0];
    for (struct pending *one = guardian->first_pending; one != NULL; one = one->next)
        one->sent = false;
    send_pending(guardian);
    return STATUS_OK;
}

void writer_append(struct guardian *guardian, const struct journal_line *line)
{
    char text[JOURNAL_LINE_MAX];
    size_t length = journal_format(line, text);
    struct pending *one = calloc(1, sizeof *one + length);
    struct pending **link = &guardian->first_pending;

    if (one == NULL)
        abort(); /* the next guardian undoes what is open */
    one->kind = line->kind;
    memcpy(one->uid, line->uid, sizeof one->uid);
    one->length = length;
    memcpy(one->line, text, length);
    while (*link != NULL)
        link = &(*link)->next;
    *link = one;
    send_pending(guardian);
}

static void replace_writer(struct guardian *guardian)
{
    struct error err;

    say("the journal's writer died; starting another");
    close(guardian->writer_fd);
    guardian->writer_fd = -1;
    signal_child(&guardian->writer, SIGKILL);
    reap_child(&guardian->writer);
    if (writer_start(guardian, &err) == STATUS_OK)
        return;
    say("%s", err.message);
    abort(); /* without a journal nothing can be promised; the next guardian undoes */
}

static void on_writer(struct guardian *guardian, void *object, short events)
{
    int errnum;

    (void) object;
    if ((events & POLLOUT) != 0)
        send_pending(guardian);
    if ((events & ~POLLOUT) == 0)
        return;
    ssize_t count = recv(guardian->writer_fd, &errnum, sizeof errnum, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    struct pending *done = guardian->first_pending;
    if (count != (ssize_t) sizeof errnum || done == NULL) {
        replace_writer(guardian);
        return;
    }
    guardian->first_pending = done->next;
    records_written(guardian, done->kind, done->uid, errnum);
    free(done);
}

void writer_watch(struct guardian *guardian, struct watches *watches)
{
    bool waiting = false;

    for (struct pending *one = guardian->first_pending; one != NULL; one = one->next)
        waiting = waiting || !one->sent;
    watch(watches, guardian->writer_fd, (short) (waiting ? POLLIN | POLLOUT : POLLIN), on_writer,
          NULL);
}

void writer_stop(struct guardian *guardian)
{
    int64_t deadline_ns = deadline_in_ms(STOP_MS);

    while (guardian->first_pending != NULL && !deadline_passed(deadline_ns)) {
        struct pollfd fd = {.fd = guardian->writer_fd, .events = POLLIN};
        if (poll(&fd, 1, deadline_left_ms(deadline_ns)) > 0)
            on_writer(guardian, NULL, fd.revents);
    }
    close(guardian->writer_fd);
    struct pollfd fd = {.fd = guardian->writer.pidfd, .events = POLLIN};
    if (poll(&fd, 1, STOP_MS) == 0)
        signal_child(&guardian->writer, SIGKILL);
    reap_child(&guardian->writer);
}
