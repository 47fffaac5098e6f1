/* SPDX-License-Identifier: MIT */
#include "orchestrator/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/residue.h"

enum { NAME_SIZE = 48, FAULTS_MAX = 32, LINE_SIZE = 512, DRAW_MS = 100 };

struct view {
    bool terminal, colour, drawn;
    int64_t started_ns, until_ns, drawn_ns;
    char phase[NAME_SIZE], primary[NAME_SIZE];
    double rate;
    int64_t p99_us;
    size_t fault_count;
    char faults[FAULTS_MAX][NAME_SIZE * 2]; /* "uid" NUL "fault on node" */
};

struct view *view_new(bool terminal, bool colour)
{
    struct view *view = calloc(1, sizeof *view);

    if (view == NULL)
        abort(); /* lib/arena.h says why */
    view->terminal = terminal;
    view->colour = colour;
    view->started_ns = clock_boot_ns();
    return view;
}

struct view *view_for_stderr(void)
{
    const char *term = getenv("TERM");
    bool terminal = isatty(STDERR_FILENO) && term != NULL && strcmp(term, "dumb") != 0;
    const char *no_colour = getenv("NO_COLOR");
    bool plain = no_colour != NULL && no_colour[0] != '\0';

    return view_new(terminal && !plain, terminal && !plain);
}

static void erase(struct view *view)
{
    if (view->drawn)
        fputs("\r\033[K", stderr);
    view->drawn = false;
}

void view_free(struct view *view)
{
    if (view == NULL)
        return;
    erase(view);
    fflush(stderr);
    free(view);
}

/* ---- the status line ---- */

static int terminal_width(void)
{
    struct winsize size;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

static void write_faults(const struct view *view, struct buffer *line)
{
    for (size_t i = 0; i < view->fault_count; i++)
        buffer_printf(line, "%s%s", i == 0 ? "  active: " : ", ",
                      view->faults[i] + strlen(view->faults[i]) + 1);
}

void view_draw(struct view *view)
{
    OWNED_BUFFER struct buffer line = BUFFER(4096);
    int64_t now_ns = clock_boot_ns();

    if (view == NULL || !view->terminal || now_ns - view->drawn_ns < DRAW_MS * NS_PER_MS)
        return;
    view->drawn_ns = now_ns;
    buffer_printf(&line, "%s", view->phase);
    if (view->until_ns > now_ns)
        buffer_printf(&line, " %.0f s left", (double) (view->until_ns - now_ns) / NS_PER_SECOND);
    buffer_printf(&line, "  %.0f commits/s  p99 %.1f ms", view->rate, (double) view->p99_us / 1000);
    if (view->primary[0] != '\0')
        buffer_printf(&line, "  primary %s", view->primary);
    write_faults(view, &line);
    int width = terminal_width() - 1;
    fprintf(stderr, "\r\033[K%s%.*s%s", view->colour ? "\033[1m" : "", width, buffer_text(&line),
            view->colour ? "\033[0m" : "");
    fflush(stderr);
    view->drawn = true;
}

void view_until(struct view *view, int64_t end_ns)
{
    view->until_ns = end_ns;
}

void view_load(struct view *view, double rate, int64_t p99_us)
{
    view->rate = rate;
    view->p99_us = p99_us;
    view_draw(view);
}

/* ---- events ---- */

static void add_fault(struct view *view, const json_t *event)
{
    const char *uid = json_text(event, "uid", "");

    if (!json_flag(event, "holds", false) || view->fault_count == FAULTS_MAX ||
        strlen(uid) >= NAME_SIZE)
        return;
    char *slot = view->faults[view->fault_count++];
    snprintf(slot, NAME_SIZE, "%s", uid);
    snprintf(slot + strlen(slot) + 1, NAME_SIZE, "%s on %s", json_text(event, "fault", "?"),
             json_text(event, "node", "?"));
}

static void remove_fault(struct view *view, const json_t *event)
{
    for (size_t i = 0; i < view->fault_count; i++) {
        if (strcmp(view->faults[i], json_text(event, "uid", "")) != 0)
            continue;
        view->fault_count--;
        memmove(view->faults[i], view->faults[i + 1],
                (view->fault_count - i) * sizeof view->faults[0]);
        return;
    }
}

static void tell_phase(struct view *view, const json_t *event, struct buffer *line)
{
    snprintf(view->phase, sizeof view->phase, "%s", json_text(event, "phase", ""));
    buffer_printf(line, "phase %s", view->phase);
}

static void tell_member(struct view *view, const json_t *event, struct buffer *line)
{
    const char *node = json_text(event, "node", "?"), *role = json_text(event, "role", "?");

    if (strcmp(role, "primary") == 0)
        snprintf(view->primary, sizeof view->primary, "%s", node);
    else if (strcmp(view->primary, node) == 0)
        view->primary[0] = '\0';
    buffer_printf(line, "%s is %s, timeline %" PRId64 "%s%s", node, role,
                  json_number(event, "timeline", 0),
                  json_flag(event, "streaming", false) ? ", streams" : "",
                  json_flag(event, "sync", false) ? ", in the sync set" : "");
}

static void tell_preflight(struct view *view, const json_t *event, struct buffer *line)
{
    (void) view;
    buffer_printf(line, "preflight %s: %s%s%s", json_text(event, "level", "?"),
                  json_text(event, "node", ""), json_object_get(event, "node") != NULL ? ": " : "",
                  json_text(event, "text", ""));
}

static void tell_baseline(struct view *view, const json_t *event, struct buffer *line)
{
    (void) view;
    buffer_printf(line, "baseline: %.0f commits/s, p50 %.1f ms, p99 %.1f ms",
                  json_number_value(json_object_get(event, "rate")),
                  (double) json_number(event, "p50_us", 0) / 1000,
                  (double) json_number(event, "p99_us", 0) / 1000);
}

static void tell_step(struct view *view, const json_t *event, struct buffer *line)
{
    const json_t *targets = json_object_get(event, "targets");

    (void) view;
    buffer_printf(line, "step %s: %s", json_text(event, "step", "?"),
                  json_text(event, "fault", "?"));
    for (size_t i = 0; i < json_array_size(targets); i++)
        buffer_printf(line, "%s%s", i == 0 ? " on " : ", ",
                      json_string_value(json_array_get(targets, i)));
}

static void tell_skipped(struct view *view, const json_t *event, struct buffer *line)
{
    (void) view;
    buffer_printf(line, "step %s skipped: %s", json_text(event, "step", "?"),
                  json_text(event, "reason", "?"));
}

static void tell_injected(struct view *view, const json_t *event, struct buffer *line)
{
    const json_t *effect = json_object_get(event, "effect");

    add_fault(view, event);
    buffer_printf(line, "%s on %s: %s, %s", json_text(event, "fault", "?"),
                  json_text(event, "node", "?"), json_text(effect, "state", "unknown"),
                  json_text(effect, "text", ""));
}

static void tell_failed(struct view *view, const json_t *event, struct buffer *line)
{
    (void) view;
    buffer_printf(line, "%s on %s was not injected: %s", json_text(event, "fault", "?"),
                  json_text(event, "node", "?"),
                  json_text(json_object_get(event, "error"), "message", "?"));
}

static void tell_undone(struct view *view, const json_t *event, struct buffer *line)
{
    remove_fault(view, event);
    buffer_printf(line, "%s on %s undone by %s: %s", json_text(event, "fault", "?"),
                  json_text(event, "node", "?"), json_text(event, "by", "?"),
                  json_text(event, "state", "?"));
}

static void tell_recovered(struct view *view, const json_t *event, struct buffer *line)
{
    (void) view;
    buffer_printf(line, "every member is back after %.1f s",
                  (double) json_number(event, "ms", 0) / 1000);
}

/* All of them, with what removes them, are in the summary. */
static void tell_residue(struct view *view, const json_t *event, struct buffer *line)
{
    const json_t *differences = json_object_get(event, "differences");
    OWNED_ARENA struct arena *arena = arena_new();
    size_t count = json_array_size(differences);

    (void) view;
    buffer_printf(line, "%s is %s", json_text(event, "node", "?"),
                  json_flag(event, "clean", false) ? "clean" : "NOT clean");
    if (count > 0)
        buffer_printf(line, ", %zu difference%s; first: %.200s", count, count == 1 ? "" : "s",
                      residue_text(arena, json_array_get(differences, 0)));
}

static void tell_integrity(struct view *view, const json_t *event, struct buffer *line)
{
    const char *skipped = json_text(event, "skipped", NULL);

    (void) view;
    if (skipped != NULL) {
        buffer_printf(line, "%s on %s: not done, %s", json_text(event, "method", "?"),
                      json_text(event, "node", "?"), skipped);
        return;
    }
    buffer_printf(line, "%s on %s: %s, %" PRId64 " examined in %.1f s",
                  json_text(event, "method", "?"), json_text(event, "node", "?"),
                  json_flag(event, "ok", false) ? "sound" : "NOT sound",
                  json_number(event, "examined", 0), (double) json_number(event, "ms", 0) / 1000);
}

static void tell_present(struct view *view, const json_t *event, struct buffer *line)
{
    (void) view;
    buffer_printf(line, "%s holds %" PRId64 " tokens", json_text(event, "node", "?"),
                  json_number(event, "tokens", 0));
}

static void tell_text(struct view *view, const json_t *event, struct buffer *line)
{
    (void) view;
    buffer_printf(line, "%s", json_text(event, "text", "?"));
}

static const struct {
    const char *event;
    void (*tell)(struct view *view, const json_t *event, struct buffer *line);
} tellers[] = {
    {"phase", tell_phase},
    {"member", tell_member},
    {"preflight", tell_preflight},
    {"baseline", tell_baseline},
    {"step.start", tell_step},
    {"step.skipped", tell_skipped},
    {"fault.injected", tell_injected},
    {"fault.failed", tell_failed},
    {"fault.undone", tell_undone},
    {"recovered", tell_recovered},
    {"recovery.timeout", tell_text},
    {"stop-condition", tell_text},
    {"residue", tell_residue},
    {"integrity", tell_integrity},
    {"present", tell_present},
    {"note", tell_text},
};

/* What the HA manager does: "ha.promote n2: ...". */
static bool tell_ha(const json_t *event, const char *name, struct buffer *line)
{
    if (strncmp(name, "ha.", 3) != 0)
        return false;
    buffer_printf(line, "%s %s: %s", name + 3, json_text(event, "node", ""),
                  json_text(event, "text", ""));
    return true;
}

void view_event(void *argument, const json_t *event)
{
    struct view *view = argument;
    const char *name = json_text(event, "event", "");
    OWNED_BUFFER struct buffer line = BUFFER(8192);

    if (view == NULL)
        return;
    for (size_t i = 0; i < sizeof tellers / sizeof tellers[0]; i++)
        if (strcmp(tellers[i].event, name) == 0)
            tellers[i].tell(view, event, &line);
    if (line.length == 0 && !tell_ha(event, name, &line))
        return;
    erase(view);
    fprintf(stderr, "%8.3f  %s\n", (double) (clock_boot_ns() - view->started_ns) / NS_PER_SECOND,
            buffer_text(&line));
    view->drawn_ns = 0;
    view_draw(view);
}
