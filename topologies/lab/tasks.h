/* SPDX-License-Identifier: MIT */
/*
 * Work on several nodes at once: a forked child a task, which may enter namespaces.
 *
 * A task that fails ends the others. So does a signal of the set `signals`, which the caller has
 * blocked (STATUS_ABORTED); NULL: none.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_TASKS_H
#define ORDEAL_TOPOLOGIES_LAB_TASKS_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

struct task {
    const char *what; /* context of its errors: "starting PostgreSQL on n1" */
    enum status (*run)(void *argument, struct error *err);
    void *argument;
};

MUST_CHECK enum status tasks_run(const struct task *tasks, size_t count, const sigset_t *signals,
                                 int64_t deadline_ns, struct error *err);

#endif
