/* SPDX-License-Identifier: MIT */
/*
 * The one poll loop of a process: descriptors, timers, signals and children as callbacks.
 *
 * Callbacks may add and remove anything, themselves included. Watches are named by handles, 0 is
 * never one. Signals arrive through a signalfd: loop_on_signal() blocks the signal in the process;
 * process_start() and process_fork() restore the mask in children.
 */
#ifndef ORDEAL_LIB_LOOP_H
#define ORDEAL_LIB_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

struct loop;
typedef uint64_t loop_handle;

MUST_CHECK enum status loop_new(struct loop **ret_loop, struct error *err);
void loop_free(struct loop *loop); /* closes nothing that callers passed in */

/* `events` are poll(2)'s; the callback gets what happened (POLLHUP and POLLERR included). */
loop_handle loop_watch(struct loop *loop, int fd, short events,
                       void (*call)(void *argument, short events), void *argument);
void loop_set_events(struct loop *loop, loop_handle handle, short events);
/* Once, at or after the instant of boot time. */
loop_handle loop_at(struct loop *loop, int64_t deadline_ns, void (*call)(void *argument),
                    void *argument);
/* Every interval; ticks that were missed are not made up. */
loop_handle loop_every(struct loop *loop, int64_t interval_ms, void (*call)(void *argument),
                       void *argument);
loop_handle loop_on_signal(struct loop *loop, int signal, void (*call)(void *argument, int signal),
                           void *argument);
void loop_remove(struct loop *loop, loop_handle handle); /* unknown handles are ignored */

/* Wait for at most timeout_ms (-1: for ever) and run what is due. */
MUST_CHECK enum status loop_turn(struct loop *loop, int timeout_ms, struct error *err);
/* Turn until loop_stop(). */
MUST_CHECK enum status loop_run(struct loop *loop, struct error *err);
void loop_stop(struct loop *loop);

#endif
