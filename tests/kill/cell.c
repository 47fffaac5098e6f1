/* SPDX-License-Identifier: MIT */
#include "tests/kill/cell.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "faults/tcp_probe.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "orchestrator/residue.h"
#include "tests/kill/caller.h"
#include "tests/kill/strike.h"

enum {
    HOLD_MS = 60000,
    REACH_MS = 20000, /* until the moment comes */
    PATIENCE_MS = 20000,
    PACE_MS = 10,
    SETTLE_MS = 200,
    PROBE_MS = 300,
    WHOLE_MAX = 256 * 1024
};

/* --- the orchestrator, a child that may be killed -------------------------------------------- */

struct orchestrator {
    const struct rig *rig;
    const struct cell *cell;
    const char *run, *uid;
    int output; /* "+": injected; anything else: why it ended early */
};

static enum status inject(const struct orchestrator *self, struct caller *caller, struct error *err)
{
    json_t *params = NULL;
    enum status status =
        json_parse_text(self->cell->params, strlen(self->cell->params), &params, err);

    if (status != STATUS_OK)
        return status;
    return caller_call(caller, "fault.inject",
                       json_pack("{s:s, s:s, s:s, s:o, s:i}", "run", self->run, "uid", self->uid,
                                 "fault", self->cell->fault->name, "params", params, "hold_ms",
                                 self->cell->fault->holds ? HOLD_MS : 0),
                       NULL, err);
}

static enum status start_postgres(const struct rig *rig, struct caller *caller, const char *run,
                                  struct error *err)
{
    if ((rig->node->roles & ROLE_DATABASE) == 0)
        return STATUS_OK;
    return caller_call(caller, "postgres.start",
                       json_pack("{s:s, s:i}", "run", run, "timeout_ms", PATIENCE_MS), NULL, err);
}

/* Inject; hold for as long as somebody listens, or undo. */
static enum status orchestrate(const struct orchestrator *self, struct error *err)
{
    struct caller *caller = NULL;
    enum status status = caller_open(self->rig->topology, self->rig->node, self->run,
                                     deadline_in_ms(PATIENCE_MS), &caller, err);

    if (status == STATUS_OK)
        status = start_postgres(self->rig, caller, self->run, err);
    if (status == STATUS_OK)
        status = inject(self, caller, err);
    if (status != STATUS_OK)
        return status;
    ssize_t ignored = write(self->output, "+", 1);
    (void) ignored;
    if (self->cell->moment->point == NULL) {
        caller_beat(caller, deadline_in_ms(HOLD_MS));
        return STATUS_OK;
    }
    return caller_call(caller, "fault.undo",
                       json_pack("{s:s, s:s}", "run", self->run, "uid", self->uid), NULL, err);
}

static int orchestrator_main(void *argument)
{
    const struct orchestrator *self = argument;
    struct error err = {0};

    if (orchestrate(self, &err) == STATUS_OK)
        return 0;
    ssize_t ignored = write(self->output, err.message, strlen(err.message));
    (void) ignored;
    return 1;
}

/* --- the life of one cell -------------------------------------------------------------------- */

struct life {
    struct rig *rig;
    const struct cell *cell;
    char run[32], uid[32];
    struct gate gate;
    struct process orchestrator;
    int output; /* of the orchestrator; -1 at its end */
    char said[512];
    bool injected;
    struct arrival held;
    int arrivals; /* at the moment's point */
};

static enum status start_orchestrator(struct life *life, struct error *err)
{
    int ends[2];

    if (pipe(ends) != 0)
        return error_system(err, "making a pipe");
    struct orchestrator self = {.rig = life->rig,
                                .cell = life->cell,
                                .run = life->run,
                                .uid = life->uid,
                                .output = ends[1]};
    enum status status = process_fork(orchestrator_main, &self, &life->orchestrator, err);
    close(ends[1]);
    life->output = ends[0];
    return status;
}

static void hear_orchestrator(struct life *life)
{
    size_t length = strlen(life->said);
    ssize_t count = read(life->output, life->said + length, sizeof life->said - 1 - length);

    if (count <= 0) {
        close(life->output);
        life->output = -1;
        return;
    }
    life->said[length + (size_t) count] = '\0';
    life->injected = life->said[0] == '+';
}

/* An instant is undone only when its injection was cut short. */
static bool must_be_cut_short(const struct cell *cell)
{
    return cell->moment->of_undo && !cell->fault->holds;
}

static void take_arrival(struct life *life, struct arrival *arrival)
{
    const struct moment *moment = life->cell->moment;

    if (must_be_cut_short(life->cell) && strcmp(arrival->point, "after-inject") == 0)
        kill(arrival->pid, SIGKILL);
    if (life->held.fd < 0 && moment->point != NULL && strcmp(arrival->point, moment->point) == 0 &&
        ++life->arrivals == moment->nth) {
        life->held = *arrival;
        return;
    }
    gate_answer(arrival, "go");
}

/* Wait a little, letting everybody go on who comes to a point that is not the moment's. */
static void serve(struct life *life)
{
    struct pollfd fds[] = {{.fd = life->gate.listener, .events = POLLIN},
                           {.fd = life->output, .events = POLLIN}};
    struct arrival arrival;

    poll(fds, 2, PACE_MS);
    while (gate_take(&life->gate, &arrival))
        take_arrival(life, &arrival);
    if ((fds[1].revents & (POLLIN | POLLHUP)) != 0)
        hear_orchestrator(life);
}

static bool has_come(const struct life *life)
{
    return life->cell->moment->point == NULL ? life->injected : life->held.fd >= 0;
}

static enum status await_moment(struct life *life, struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(REACH_MS);

    while (!has_come(life)) {
        bool over = life->output < 0 && !must_be_cut_short(life->cell);
        serve(life);
        if (has_come(life))
            return STATUS_OK;
        if (over || deadline_passed(deadline_ns))
            return error_set(err, STATUS_FAILED, "it never came to '%s' (%s)",
                             life->cell->moment->name, life->said);
    }
    return STATUS_OK;
}

/* --- clean ----------------------------------------------------------------------------------- */

static enum status look_at_rig(const struct rig *rig, struct buffer *text, struct error *err)
{
    enum status status = look_whole(&rig->place, text, err);

    if (status == STATUS_OK && rig->target.node != NULL)
        status = look_whole(&rig->target, text, err);
    return status;
}

static bool target_answers(struct rig *rig)
{
    enum tcp_outcome outcome = TCP_SILENT;

    if (rig->target.node == NULL)
        return true;
    return place_find(&rig->target) &&
           tcp_probe(rig->target_address, (int) rig->node->agent_port, PROBE_MS, &outcome, NULL) ==
               STATUS_OK &&
           (outcome == TCP_CONNECTED || outcome == TCP_REFUSED);
}

/* The first line in which two texts differ. */
static void name_difference(const char *before, const char *now, struct error *err)
{
    while (*before != '\0' && *now != '\0') {
        size_t one = strcspn(before, "\n"), other = strcspn(now, "\n");
        if (one != other || memcmp(before, now, one) != 0)
            break;
        before += one + (before[one] == '\n');
        now += other + (now[other] == '\n');
    }
    error_set(err, STATUS_FAILED, "'%.*s' was '%.*s'", (int) strcspn(now, "\n"), now,
              (int) strcspn(before, "\n"), before);
}

/* Cheap questions first; `err` says what is not clean yet. */
static enum status check_clean(struct life *life, struct error *err)
{
    OWNED_BUFFER struct buffer text = BUFFER(WHOLE_MAX);
    struct family family;
    struct entry entry;

    look_journal(&life->rig->place, life->uid, &entry);
    if (entry.opened && !entry.closed)
        return error_set(err, STATUS_FAILED, "its record is open");
    look_family(&life->rig->place, &family);
    if (family.workers > 0)
        return error_set(err, STATUS_FAILED, "%zu jobs or helpers are at work", family.workers);
    if (family.stopped > 0)
        return error_set(err, STATUS_FAILED, "%zu processes are stopped", family.stopped);
    if (!target_answers(life->rig))
        return error_set(err, STATUS_FAILED, "%s does not answer", life->rig->target.node);
    enum status status = look_at_rig(life->rig, &text, err);
    if (status == STATUS_OK && strcmp(buffer_text(&text), life->rig->whole) != 0) {
        name_difference(life->rig->whole, buffer_text(&text), err);
        status = STATUS_FAILED;
    }
    return status;
}

static enum status await_clean(struct life *life, int64_t since_ns, int64_t *ret_ms,
                               struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    int64_t bound_ms = KILL_LEASE_MS + KILL_GRACE_MS;

    for (;;) {
        enum status status = check_clean(life, err);
        *ret_ms = (clock_boot_ns() - since_ns) / NS_PER_MS;
        if (status == STATUS_OK && *ret_ms <= bound_ms)
            return STATUS_OK;
        if (status == STATUS_OK)
            return error_set(err, STATUS_TIMEOUT, "clean only after %lld ms", (long long) *ret_ms);
        if (deadline_passed(deadline_ns))
            return error_context(err, "after %d ms", PATIENCE_MS);
        serve(life);
    }
}

/* Seen from outside, too: else there would be nothing to clean. */
static enum status check_effect(struct life *life, struct error *err)
{
    struct error seen;

    if (life->cell->moment->point != NULL)
        return STATUS_OK;
    OWNED_BUFFER struct buffer text = BUFFER(WHOLE_MAX);
    if (!target_answers(life->rig))
        return STATUS_OK;
    enum status status = look_at_rig(life->rig, &text, &seen);
    if (status != STATUS_OK || strcmp(buffer_text(&text), life->rig->whole) != 0)
        return STATUS_OK;
    return error_set(err, STATUS_FAILED, "it holds, and nothing of it is seen on the node");
}

/* A record whose line was not synced when the power went is not there, one that was is. */
static enum status check_power_cut(const struct life *life, struct error *err)
{
    const struct moment *moment = life->cell->moment;
    struct entry entry;

    if (life->cell->victim != VICTIM_POWER || moment->point == NULL || moment->nth != 1)
        return STATUS_OK;
    look_journal(&life->rig->place, life->uid, &entry);
    if (strcmp(moment->point, "journal-written") == 0)
        return entry.opened ? error_set(err, STATUS_FAILED, "what was not synced survived the cut")
                            : STATUS_OK;
    if (!entry.opened || strcmp(entry.who, "boot") != 0)
        return error_set(err, STATUS_FAILED, "its record is %s, closed by '%s' and not by the boot",
                         entry.opened ? "there" : "gone", entry.who);
    return STATUS_OK;
}

/* --- and as the product sees it -------------------------------------------------------------- */

/*
 * What belongs to the server goes with it when it is killed. The power node sees processes and
 * queueing disciplines of the whole lab, and the tables with which other workers cut a network.
 */
static bool is_compared(const struct rig *rig, const json_t *difference)
{
    const char *class = json_text(difference, "class", "");
    static const char *const servers[] = {
        "postgres", "file_settings", "settings",     "slots",   "replay",    "role_settings",
        "prepared", "subscriptions", "publications", "schemas", "databases", "roles"};

    if (rig->place.power && (strcmp(class, "processes") == 0 || strcmp(class, "tc") == 0 ||
                             strstr(json_text(difference, "what", ""), "inet kill_") != NULL))
        return false;
    for (size_t i = 0; i < sizeof servers / sizeof servers[0]; i++)
        if (strcmp(class, servers[i]) == 0)
            return false;
    return true;
}

/*
 * Differences that pass: swap is the whole host's, and somebody else may use it; an end stands in
 * the journal, where we saw it, a moment before it is durable and the guardian knows.
 */
static bool may_pass(const char *class)
{
    return strcmp(class, "swaps") == 0 || strcmp(class, "open_records") == 0;
}

/* By the rules of the audit at the end of a run, which know what is natural. */
static enum status compare_sections(const struct rig *rig, const json_t *now, bool passing,
                                    struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *found =
        residue_differences(&(struct residue_question){.before = rig->fingerprint,
                                                       .after = now,
                                                       .topology = rig->topology,
                                                       .manager = rig->topology->ha.manager});

    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *difference = json_array_get(found, i);
        const char *class = json_text(difference, "class", "");
        if (is_compared(rig, difference) && may_pass(class) == passing)
            return error_set(err, STATUS_FAILED, "%s: %s", class, residue_text(arena, difference));
    }
    return STATUS_OK;
}

static enum status compare_fingerprint(const struct rig *rig, struct caller *caller,
                                       struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);

    for (;;) {
        OWNED_JSON json_t *now = NULL;
        enum status status = caller_call(caller, "node.fingerprint", NULL, &now, err);
        if (status == STATUS_OK)
            status = compare_sections(rig, now, false, err);
        if (status != STATUS_OK)
            return status;
        status = compare_sections(rig, now, true, err);
        if (status == STATUS_OK || deadline_passed(deadline_ns))
            return status;
        caller_beat(caller, deadline_in_ms(SETTLE_MS));
    }
}

static enum status ask_agent(struct life *life, struct error *err)
{
    struct rig *rig = life->rig;
    struct caller *caller = NULL;
    enum status status =
        caller_open(rig->topology, rig->node, life->run, deadline_in_ms(PATIENCE_MS), &caller, err);

    if (status == STATUS_OK)
        status = compare_fingerprint(rig, caller, err);
    if (status == STATUS_OK && !place_find(&rig->place))
        status = error_set(err, STATUS_NOT_FOUND, "%s has gone", rig->node->name);
    caller_close(caller);
    return status;
}

enum status rig_learn(struct rig *rig, struct error *err)
{
    OWNED_BUFFER struct buffer text = BUFFER(WHOLE_MAX);
    struct caller *caller = NULL;
    enum status status = STATUS_OK;

    if (!place_find(&rig->place) || (rig->target.node != NULL && !place_find(&rig->target)))
        return error_set(err, STATUS_NOT_FOUND, "%s is off", rig->node->name);
    status = caller_open(rig->topology, rig->node, "kill-learn", deadline_in_ms(PATIENCE_MS),
                         &caller, err);
    if (status == STATUS_OK)
        status = start_postgres(rig, caller, "kill-learn", err);
    if (status == STATUS_OK)
        status = caller_call(caller, "node.fingerprint", NULL, &rig->fingerprint, err);
    if (status == STATUS_OK)
        status = look_at_rig(rig, &text, err);
    caller_close(caller);
    if (status == STATUS_OK && (rig->whole = strdup(buffer_text(&text))) == NULL)
        abort();
    return status;
}

void rig_forget(struct rig *rig)
{
    free(rig->whole);
    json_decref(rig->fingerprint);
    rig->whole = NULL;
    rig->fingerprint = NULL;
}

/* --- all of it ------------------------------------------------------------------------------- */

static enum status live(struct life *life, int64_t *ret_ms, struct error *err)
{
    enum status status = start_orchestrator(life, err);

    if (status == STATUS_OK)
        status = await_moment(life, err);
    if (status == STATUS_OK)
        status = check_effect(life, err);
    if (status == STATUS_OK)
        status = strike(life->rig, life->cell->victim, &life->orchestrator, err);
    int64_t since_ns = clock_boot_ns();
    gate_answer(&life->held, "go");
    if (status == STATUS_OK)
        status = await_clean(life, since_ns, ret_ms, err);
    if (status == STATUS_OK)
        status = check_power_cut(life, err);
    return status;
}

enum status cell_run(struct rig *rig, const struct cell *cell, int64_t *ret_ms, struct error *err)
{
    struct life life = {
        .rig = rig, .cell = cell, .orchestrator.pidfd = -1, .output = -1, .held.fd = -1};
    struct error heal_error;

    /* a uid is unique for ever, also in a lab that had a table before */
    snprintf(life.run, sizeof life.run, "kill-%lld-%d", (long long) (clock_boot_ns() / NS_PER_MS),
             cell->number);
    snprintf(life.uid, sizeof life.uid, "%s", life.run);
    enum status status =
        gate_open(rig->folder, rig->place.power ? rig->lab : rig->node->name, &life.gate, err);
    if (status != STATUS_OK)
        return status;
    status = live(&life, ret_ms, err);
    gate_close(&life.gate);
    if (strike_heal(rig, cell->victim, &heal_error) != STATUS_OK && status == STATUS_OK) {
        *err = heal_error;
        status = heal_error.code;
    }
    process_kill(&life.orchestrator);
    owned_close_fd(&life.output);
    return status == STATUS_OK ? ask_agent(&life, err) : status;
}
