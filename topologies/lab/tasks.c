/* SPDX-License-Identifier: MIT */
#include "topologies/lab/tasks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"

enum { TASKS_MAX = 16 };

struct running {
    const struct task *task;
    struct process process;
    int report, report_end; /* pipe for a struct error: ours, the child's */
};

/* A struct error is written in one piece: it is shorter than PIPE_BUF. */
static int child(void *argument)
{
    const struct running *running = argument;
    struct error err = {0};

    if (running->task->run(running->task->argument, &err) == STATUS_OK)
        return 0;
    error_context(&err, "%s", running->task->what);
    return write(running->report_end, &err, sizeof(err)) == (ssize_t) sizeof(err) ? 1 : 2;
}

static enum status start(struct running *running, struct error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_system(err, "cannot make a pipe");
    running->report = ends[0];
    running->report_end = ends[1];
    enum status status = process_fork(child, running, &running->process, err);
    close(ends[1]);
    return status;
}

static enum status conclude(struct running *running, struct error *err)
{
    struct error reported = {0};
    int wait_status = 0;
    enum status status = process_reap(&running->process, deadline_in_ms(1000), &wait_status, err);

    if (status != STATUS_OK)
        return status;
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0)
        return STATUS_OK;
    if (read(running->report, &reported, sizeof(reported)) == (ssize_t) sizeof(reported)) {
        if (err != NULL)
            *err = reported;
        return reported.code;
    }
    return error_set(err, STATUS_INTERNAL, "%s: the child died with wait status 0x%x",
                     running->task->what, (unsigned) wait_status);
}

/* Wait for the tasks; the first failure, deadline or signal ends the waiting. */
static enum status await(struct running *running, size_t count, int signal_fd, int64_t deadline_ns,
                         struct error *err)
{
    struct pollfd fds[TASKS_MAX + 1];
    size_t left = count;

    while (left > 0) {
        for (size_t i = 0; i < count; i++)
            fds[i] = (struct pollfd){.fd = running[i].process.pidfd, .events = POLLIN};
        fds[count] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
        int ready = poll(fds, (nfds_t) count + 1, deadline_left_ms(deadline_ns));
        if (ready < 0 && errno != EINTR)
            return error_system(err, "cannot poll");
        if (ready > 0 && fds[count].revents != 0)
            return error_set(err, STATUS_ABORTED, "ended by a signal");
        for (size_t i = 0; i < count && ready > 0; i++) {
            if (fds[i].fd < 0 || fds[i].revents == 0)
                continue;
            enum status status = conclude(&running[i], err);
            if (status != STATUS_OK)
                return status;
            left--;
        }
        for (size_t i = 0; ready == 0 && i < count; i++)
            if (running[i].process.pidfd >= 0)
                return error_set(err, STATUS_TIMEOUT, "%s takes too long", running[i].task->what);
    }
    return STATUS_OK;
}

enum status tasks_run(const struct task *tasks, size_t count, const sigset_t *signals,
                      int64_t deadline_ns, struct error *err)
{
    struct running running[TASKS_MAX];
    enum status status = STATUS_OK;

    if (count > TASKS_MAX)
        return error_set(err, STATUS_INTERNAL, "%zu tasks at once", count);
    OWNED_FD int signal_fd = signals != NULL ? signalfd(-1, signals, SFD_CLOEXEC) : -1;
    for (size_t i = 0; i < count; i++)
        running[i] = (struct running){
            .task = &tasks[i], .process.pidfd = -1, .report = -1, .report_end = -1};
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = start(&running[i], err);
    if (status == STATUS_OK)
        status = await(running, count, signal_fd, deadline_ns, err);
    for (size_t i = 0; i < count; i++) {
        process_kill(&running[i].process);
        if (running[i].report >= 0)
            close(running[i].report);
    }
    return status;
}
