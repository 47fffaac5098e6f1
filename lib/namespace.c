/* SPDX-License-Identifier: MIT */
#include "lib/namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "lib/owned.h"

/* clone3 without a stack of its own: the child goes on in a copy of this one, as after fork(). */
enum status namespace_fork(int flags, int (*run)(void *), void *argument,
                           struct process *ret_process, struct error *err)
{
    int pidfd = -1;
    struct clone_args args = {
        .flags = (uint64_t) flags | CLONE_PIDFD,
        .pidfd = (uint64_t) (uintptr_t) &pidfd,
        .exit_signal = SIGCHLD,
    };

    fflush(NULL);
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid < 0)
        return error_system(err, "cannot create namespaces");
    if (pid == 0) {
        sigset_t none;

        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        _exit(run(argument));
    }
    *ret_process = (struct process){.pid = (pid_t) pid, .pidfd = pidfd};
    return STATUS_OK;
}

static const struct {
    int flag;
    const char *name;
} kinds[] = {
    /* The mount namespace comes last, since /proc may be another one behind it. */
    {CLONE_NEWUTS, "uts"},
    {CLONE_NEWIPC, "ipc"},
    {CLONE_NEWNET, "net"},
    {CLONE_NEWPID, "pid"},
    {CLONE_NEWTIME, "time_for_children"},
    {CLONE_NEWNS, "mnt"},
};

enum status namespace_enter(pid_t pid, int flags, struct error *err)
{
    char name[64];

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if ((flags & kinds[i].flag) == 0)
            continue;
        snprintf(name, sizeof(name), "/proc/%d/ns/%s", (int) pid, kinds[i].name);
        OWNED_FD int fd = open(name, O_RDONLY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT && kinds[i].flag == CLONE_NEWTIME)
            continue; /* before Linux 5.6 nobody has clocks of its own */
        if (fd < 0 && (errno == ENOENT || errno == ESRCH))
            return error_set(err, STATUS_NOT_FOUND, "there is no process %d", (int) pid);
        if (fd < 0 || setns(fd, kinds[i].flag) < 0)
            return error_system(err, "cannot enter %s", name);
    }
    return STATUS_OK;
}
