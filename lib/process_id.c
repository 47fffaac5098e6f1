/* SPDX-License-Identifier: MIT */
/* Processes of anybody's: identity by pid and start time, signals through pidfds. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"

struct stat_line {
    char state;
    pid_t parent;
    uint64_t start_ticks;
};

/* proc(5): pid (comm) state ppid ... starttime is field 22; comm may hold blanks and parentheses */
static bool parse_stat(const char *text, struct stat_line *ret_line)
{
    const char *after = strrchr(text, ')');
    int parent;
    unsigned long long start;
    char state;

    if (after == NULL ||
        sscanf(after + 1,
               " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &state, &parent, &start) != 3)
        return false;
    *ret_line = (struct stat_line){.state = state, .parent = parent, .start_ticks = start};
    return true;
}

static bool read_stat(pid_t pid, struct stat_line *ret_line)
{
    char path[48], text[1024];

    snprintf(path, sizeof path, "/proc/%d/stat", (int) pid);
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    if (length <= 0)
        return false;
    text[length] = '\0';
    return parse_stat(text, ret_line);
}

static bool is_dead(char state)
{
    return state == 'Z' || state == 'X' || state == 'x';
}

enum status process_identify(pid_t pid, struct process_id *ret_id, struct error *err)
{
    struct stat_line line;

    if (!read_stat(pid, &line) || is_dead(line.state))
        return error_set(err, STATUS_NOT_FOUND, "no process %d", (int) pid);
    *ret_id = (struct process_id){.pid = pid, .start_ticks = line.start_ticks};
    return STATUS_OK;
}

char process_state(struct process_id id)
{
    struct stat_line line;

    if (id.pid <= 0 || !read_stat(id.pid, &line) || line.start_ticks != id.start_ticks)
        return 0;
    return line.state;
}

bool process_alive(struct process_id id)
{
    char state = process_state(id);

    return state != 0 && !is_dead(state);
}

static bool is_ourselves(pid_t pid)
{
    pid_t ancestor = getpid();

    while (ancestor > 1) {
        struct stat_line line;
        if (ancestor == pid)
            return true;
        if (!read_stat(ancestor, &line))
            return false;
        ancestor = line.parent;
    }
    return false;
}

/* The identity is checked after the pidfd is open, so that it names what the pidfd holds. */
static enum status open_exactly(struct process_id id, int *ret_pidfd, struct error *err)
{
    OWNED_FD int pidfd = (int) syscall(SYS_pidfd_open, id.pid, 0U);

    if (pidfd < 0 && errno != ESRCH && errno != EINVAL)
        return error_system(err, "opening a pidfd of process %d", (int) id.pid);
    if (pidfd < 0 || !process_alive(id))
        return error_set(err, STATUS_NOT_FOUND, "process %d (started at tick %llu) is gone",
                         (int) id.pid, (unsigned long long) id.start_ticks);
    *ret_pidfd = take_fd(&pidfd);
    return STATUS_OK;
}

enum status process_signal(struct process_id id, int signal, struct error *err)
{
    if (id.pid <= 1 || is_ourselves(id.pid))
        return error_set(err, STATUS_REFUSED, "process %d is init, Ordeal itself or its ancestor",
                         (int) id.pid);
    OWNED_FD int pidfd = -1;
    enum status status = open_exactly(id, &pidfd, err);
    if (status != STATUS_OK)
        return status;
    if (syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0U) == 0)
        return STATUS_OK;
    if (errno == ESRCH)
        return error_set(err, STATUS_NOT_FOUND, "process %d is gone", (int) id.pid);
    return error_system(err, "sending signal %d to process %d", signal, (int) id.pid);
}

enum status process_wait_gone(struct process_id id, int64_t deadline_ns, struct error *err)
{
    OWNED_FD int pidfd = -1;
    enum status status = open_exactly(id, &pidfd, err);

    if (status == STATUS_NOT_FOUND) {
        error_clear(err);
        return STATUS_OK;
    }
    if (status != STATUS_OK)
        return status;
    for (;;) {
        struct pollfd fd = {.fd = pidfd, .events = POLLIN};
        if (poll(&fd, 1, deadline_left_ms(deadline_ns)) > 0)
            return STATUS_OK;
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "process %d still runs in state %c", (int) id.pid,
                             process_state(id));
    }
}
