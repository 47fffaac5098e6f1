/* SPDX-License-Identifier: MIT */
/*
 * Namespaces of the kernel: a child in new ones, and the way into those of another process.
 *
 * A new PID namespace begins with its init: when that ends, the kernel kills all that live in it,
 * and the mounts of its mount namespace go with the last of them. So a single SIGKILL takes a
 * whole tree away, nested namespaces included.
 */
#ifndef ORDEAL_LIB_NAMESPACE_H
#define ORDEAL_LIB_NAMESPACE_H

#include <linux/sched.h>
#include <sched.h>
#include <sys/types.h>

#include "lib/error.h"
#include "lib/process.h"

/* What makes a host of its own. */
enum {
    NAMESPACE_HOST = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC,
    /* To enter one: with the clocks that its children have. */
    NAMESPACE_INSIDE = NAMESPACE_HOST | CLONE_NEWTIME
};

/*
 * Fork a child in new namespaces (CLONE_NEW* flags) that runs `run(argument)` and exits with its
 * value. Descriptors are inherited, signals are not blocked; it does not die with its parent
 * unless it asks for that. With CLONE_NEWPID it is pid 1 there.
 */
MUST_CHECK enum status namespace_fork(int flags, int (*run)(void *), void *argument,
                                      struct process *ret_process, struct error *err);
/*
 * Move this process into namespaces of process `pid`. A PID namespace counts for children only;
 * after CLONE_NEWNS the working directory is that mount namespace's root.
 */
MUST_CHECK enum status namespace_enter(pid_t pid, int flags, struct error *err);

#endif
