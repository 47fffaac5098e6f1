/* SPDX-License-Identifier: MIT */
/*
 * What a person sees of a run while it runs, on stderr. On a terminal one status line is redrawn
 * beneath the events: phase, countdown, goodput, p99, who is primary, active faults. Otherwise
 * plain lines, an event each.
 */
#ifndef ORDEAL_ORCHESTRATOR_VIEW_H
#define ORDEAL_ORCHESTRATOR_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct view;

/* `terminal`: stderr is one and may be redrawn. `colour`: and may be coloured. */
struct view *view_new(bool terminal, bool colour);
struct view *view_for_stderr(void);
void view_free(struct view *view); /* NULL is allowed; leaves the cursor on a line of its own */
/* An event of the journal: `argument` is the view. */
void view_event(void *argument, const json_t *event);
/* The phase is expected to end then (orchestrator's boot clock); 0: not known. */
void view_until(struct view *view, int64_t end_ns);
void view_load(struct view *view, double rate, int64_t p99_us);
void view_draw(struct view *view);

#endif
