/* SPDX-License-Identifier: MIT */
/*
 * Children and other processes.
 *
 * Every child of Ordeal starts here: an argv array (never a shell), close-on-exec descriptors, a
 * process group of its own, death with the parent unless it is told to stay, a deadline and a
 * bounded reap. Another process is named by pid and start time and signalled through a pidfd, so
 * that a reused pid is never hit.
 *
 *     const char *argv[] = {"nft", "list", "tables", NULL};
 *     OWNED_RESULT struct process_result result = {0};
 *     if (process_run(&(struct process_spec){.argv = argv, .timeout_ms = 5000}, &result, err)) ...
 */
#ifndef ORDEAL_LIB_PROCESS_H
#define ORDEAL_LIB_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "lib/error.h"

struct process_spec {
    const char *const *argv; /* NULL-terminated; argv[0] is looked up in PATH */
    const char *const *env;  /* NULL-terminated "NAME=value" additions, or NULL */
    const char *user;        /* run as this user and its groups with its HOME, or NULL */
    const char *directory;   /* working directory, or NULL for "/" */
    const char *cgroup;      /* group to join in every hierarchy (lib/cgroup.h), or NULL */
    const char *input;       /* text for stdin, or NULL for /dev/null */
    int64_t timeout_ms;      /* process_run() only: SIGTERM to the group then, SIGKILL 1 s later */
    bool service;            /* start what outlives us: no death with the parent, a session of its
                                own, default oom_score_adj, stdout and stderr to /dev/null */
    bool inherit_output;     /* stdout and stderr are the parent's, nothing is captured */
};

struct process_result {
    int exit_code; /* -1 when a signal ended it */
    int signal;    /* 0 when it exited */
    bool timed_out;
    struct buffer output, errors; /* at most 1 MiB each */
};

void process_result_done(struct process_result *result);
#define OWNED_RESULT __attribute__((cleanup(process_result_done)))

/*
 * Run to the end. STATUS_OK says that it ran and exited 0; STATUS_FAILED that it ended otherwise
 * (message: program, exit code, last line of its stderr); STATUS_TIMEOUT that the deadline passed.
 * `ret_result` is filled in all three cases and may be NULL.
 */
MUST_CHECK enum status process_run(const struct process_spec *spec,
                                   struct process_result *ret_result, struct error *err);

struct process {
    pid_t pid;
    int pidfd; /* readable when it has ended; owned by the caller */
};

/* Start and return at once; the caller waits on pidfd and reaps with process_reap(). */
MUST_CHECK enum status process_start(const struct process_spec *spec, struct process *ret_process,
                                     struct error *err);
/*
 * Fork a child of this program that runs `run(argument)` and exits with its value; it dies with
 * its parent and has a process group of its own. Descriptors are inherited.
 */
MUST_CHECK enum status process_fork(int (*run)(void *), void *argument, struct process *ret_process,
                                    struct error *err);
/* Wait until the deadline and reap; STATUS_TIMEOUT leaves it running. */
MUST_CHECK enum status process_reap(struct process *process, int64_t deadline_ns, int *ret_wait,
                                    struct error *err);
/* SIGKILL its process group and reap; safe on {0, -1}. */
void process_kill(struct process *process);

/* A process of anybody's, exactly: start time in clock ticks since boot (proc(5), stat field 22).
 */
struct process_id {
    pid_t pid;
    uint64_t start_ticks;
};

/* STATUS_NOT_FOUND when there is no such process or it is a zombie. */
MUST_CHECK enum status process_identify(pid_t pid, struct process_id *ret_id, struct error *err);
/* True when that very process exists and is not a zombie. */
bool process_alive(struct process_id id);
/* State letter of proc(5) ('R', 'S', 'D', 'T', 'Z' ...), 0 when it is gone. */
char process_state(struct process_id id);
/*
 * Signal that very process. STATUS_NOT_FOUND when it is gone; STATUS_REFUSED for pid 1, this
 * process and its ancestors.
 */
MUST_CHECK enum status process_signal(struct process_id id, int signal, struct error *err);
/* Wait until that very process has ended. */
MUST_CHECK enum status process_wait_gone(struct process_id id, int64_t deadline_ns,
                                         struct error *err);

#endif
