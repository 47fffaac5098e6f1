/* SPDX-License-Identifier: MIT */
/*
 * process.freeze: processes of PostgreSQL stand still and go on later, by SIGSTOP or in a freezer
 * group of their own.
 *
 * The postmaster is stopped first, so that nothing new is born; then it is looked again until
 * nobody runs. The record names the postmaster, so that undo finds what was born between the look
 * and the stop: children of that very postmaster that are stopped.
 */
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "faults/fault.h"
#include "faults/needs.h"
#include "faults/process_set.h"
#include "faults/tcp_probe.h"
#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { WITNESS_MS = 500, SETTLE_MS = 2 };

static const struct param params[] = {
    {.name = "process",
     .type = PARAM_CHOICE,
     .required = true,
     .choices = "postmaster|backend|checkpointer|walwriter|walsender|walreceiver|startup|children|"
                "everything",
     .help = "which processes of the server, all of that kind; children: all but the postmaster, "
             "everything: both"},
    {.name = "method",
     .type = PARAM_CHOICE,
     .choices = "signal|cgroup",
     .fallback = "signal",
     .help = "signal: SIGSTOP and SIGCONT; cgroup: a freezer group of their own"},
    {0},
};

/* A record, read. */
struct freeze {
    const char *process, *data_directory;
    const char *group, *home; /* of the method cgroup, else NULL */
    bool tree;                /* children or everything: those who are born later count, too */
    bool has_postmaster;
    struct process_id postmaster;
    struct pg_processes recorded;
};

static bool is_tree(const char *process)
{
    return strcmp(process, PROCESS_CHILDREN) == 0 || strcmp(process, PROCESS_EVERYTHING) == 0;
}

static enum status read_record(struct arena *arena, const json_t *record, struct freeze *freeze,
                               struct error *err)
{
    const json_t *postmaster = json_object_get(record, "postmaster");

    *freeze = (struct freeze){
        .process = json_text(record, "process", ""),
        .data_directory = json_text(record, "data_directory", NULL),
        .group = json_text(record, "group", NULL),
        .home = json_text(record, "home", NULL),
        .has_postmaster = json_is_object(postmaster),
        .postmaster = {.pid = (pid_t) json_number(postmaster, "pid", 0),
                       .start_ticks = (uint64_t) json_number(postmaster, "start_ticks", 0)},
    };
    freeze->tree = is_tree(freeze->process);
    if (freeze->data_directory == NULL)
        return error_set(err, STATUS_INVALID, "record: no data_directory");
    if ((freeze->group == NULL) != (freeze->home == NULL))
        return error_set(err, STATUS_INVALID, "record: a group without its home, or the reverse");
    return process_set_from_json(arena, json_object_get(record, "processes"), &freeze->recorded,
                                 err);
}

/* --- supported and prepare ------------------------------------------------------------------- */

static bool uses_cgroup(const json_t *values)
{
    return strcmp(json_text(values, "method", "signal"), "cgroup") == 0;
}

static enum status supported(const struct fault_context *context, const json_t *values,
                             struct error *err)
{
    enum status status = needs_database(context, err);

    if (status == STATUS_OK)
        status = needs_pidfd(err);
    if (status == STATUS_OK)
        status = needs_capability(CAP_KILL, "CAP_KILL", err);
    if (status == STATUS_OK && uses_cgroup(values) && !cgroup_has("freezer")) {
        error_set(err, STATUS_UNSUPPORTED, "node %s has no freezer for control groups",
                  context->node);
        error_hint(err, "Mount cgroup2 or the freezer hierarchy, or use method: signal.");
        status = STATUS_UNSUPPORTED;
    }
    return status;
}

/* One group in which all of them are: what undo brings them back to. */
static enum status find_home(struct arena *arena, const struct pg_processes *set,
                             const char **ret_home, struct error *err)
{
    const char *home = NULL, *other = NULL;

    for (size_t i = 0; i < set->count; i++) {
        enum status status = cgroup_of(arena, set->items[i].id.pid, &other, err);
        if (status == STATUS_NOT_FOUND)
            continue;
        if (status != STATUS_OK)
            return status;
        if (home != NULL && strcmp(home, other) != 0) {
            error_set(err, STATUS_UNSUPPORTED, "the processes are in different groups: /%s and /%s",
                      home, other);
            error_hint(err, "Use method: signal.");
            return STATUS_UNSUPPORTED;
        }
        home = other;
    }
    if (home == NULL)
        return error_set(err, STATUS_NOT_FOUND, "the processes that were to be frozen are gone");
    *ret_home = home;
    return STATUS_OK;
}

static enum status record_group(struct arena *arena, const char *uid,
                                const struct pg_processes *set, json_t *record, struct error *err)
{
    const char *home = "";
    enum status status = find_home(arena, set, &home, err);

    if (status != STATUS_OK)
        return status;
    const char *group = arena_printf(arena, "%s%sordeal-%s", home, *home == '\0' ? "" : "/", uid);
    json_object_set_new(record, "home", json_string(home));
    json_object_set_new(record, "group", json_string(group));
    return STATUS_OK;
}

static json_t *postmaster_of(const struct pg_processes *all)
{
    if (all->count == 0 || all->items[0].class != PG_POSTMASTER)
        return json_null();
    return json_pack("{s:i, s:I}", "pid", (int) all->items[0].id.pid, "start_ticks",
                     (json_int_t) all->items[0].id.start_ticks);
}

static enum status prepare(const struct fault_context *context, const json_t *values,
                           json_t **ret_record, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct process_choice choice = {.process = json_text(values, "process", "")};
    struct pg_processes chosen = {0}, all = {0};
    enum status status = needs_database(context, err);

    if (status == STATUS_OK)
        status = pg_processes_list(arena, context->data_directory, &all, err);
    if (status == STATUS_OK)
        status = process_choose(arena, context->data_directory, &choice, &chosen, err);
    if (status != STATUS_OK)
        return status;
    OWNED_JSON json_t *record =
        process_record(context, choice.process, process_set_to_json(&chosen));
    json_object_set_new(record, "postmaster", postmaster_of(&all));
    if (uses_cgroup(values))
        status = record_group(arena, context->uid, &chosen, record, err);
    if (status == STATUS_OK)
        *ret_record = json_incref(record);
    return status;
}

/* --- who is meant now ------------------------------------------------------------------------ */

/*
 * A process of that data directory that is not in the record: does it belong to the server of the
 * record? When that postmaster is dead, to it belong all but a new postmaster and its children.
 */
static bool belongs(const struct freeze *freeze, const struct pg_processes *now,
                    struct process_id id)
{
    if (freeze->has_postmaster && process_alive(freeze->postmaster))
        return process_parent(id) == freeze->postmaster.pid;
    bool restarted = now->count > 0 && now->items[0].class == PG_POSTMASTER;
    pid_t postmaster = restarted ? now->items[0].id.pid : 0;
    return !restarted || (id.pid != postmaster && process_parent(id) != postmaster);
}

static bool is_stopped(struct process_id id)
{
    return process_state(id) == 'T';
}

/* Those of the record that live, and for a tree those that were born since. */
static enum status find_targets(struct arena *arena, const struct freeze *freeze,
                                struct pg_processes *ret_targets, struct error *err)
{
    struct pg_processes now = {0}, targets = {0};
    enum status status = STATUS_OK;

    if (freeze->tree)
        status = pg_processes_list(arena, freeze->data_directory, &now, err);
    if (status != STATUS_OK)
        return status;
    targets.items = arena_array(arena, freeze->recorded.count + now.count, sizeof *targets.items);
    for (size_t i = 0; i < freeze->recorded.count; i++)
        if (process_alive(freeze->recorded.items[i].id))
            targets.items[targets.count++] = freeze->recorded.items[i];
    for (size_t i = 0; i < now.count; i++)
        if (!process_set_has(&freeze->recorded, now.items[i].id) &&
            now.items[i].class != PG_POSTMASTER && belongs(freeze, &now, now.items[i].id))
            targets.items[targets.count++] = now.items[i];
    *ret_targets = targets;
    return STATUS_OK;
}

/* Children of a running postmaster may be born at any time: those are not waited for. */
static bool counts(const struct freeze *freeze, struct process_id id)
{
    return strcmp(freeze->process, PROCESS_EVERYTHING) == 0 ||
           process_set_has(&freeze->recorded, id);
}

/* --- inject ---------------------------------------------------------------------------------- */

/* One way of freezing: is that process at rest, and what to do about it. */
struct way {
    enum status (*is_done)(struct arena *arena, const struct freeze *freeze, struct process_id id,
                           bool *ret_done, struct error *err);
    enum status (*apply)(const struct freeze *freeze, struct process_id id, struct error *err);
};

static enum status stopped_is_done(struct arena *arena, const struct freeze *freeze,
                                   struct process_id id, bool *ret_done, struct error *err)
{
    (void) arena, (void) freeze, (void) err;
    *ret_done = is_stopped(id);
    return STATUS_OK;
}

static enum status stop(const struct freeze *freeze, struct process_id id, struct error *err)
{
    (void) freeze;
    return process_signal(id, SIGSTOP, err);
}

static enum status moved_is_done(struct arena *arena, const struct freeze *freeze,
                                 struct process_id id, bool *ret_done, struct error *err)
{
    const char *group = NULL;
    enum status status = cgroup_of(arena, id.pid, &group, err);

    if (status == STATUS_OK)
        *ret_done = strcmp(group, freeze->group) == 0;
    return status;
}

/* Signal 0 refuses what must never be frozen. */
static enum status move(const struct freeze *freeze, struct process_id id, struct error *err)
{
    enum status status = process_signal(id, 0, err);

    if (status == STATUS_OK)
        status = cgroup_freezer_join(freeze->group, id.pid, err);
    return status == STATUS_SYSTEM && !process_alive(id) ? STATUS_NOT_FOUND : status;
}

static const struct way way_signal = {stopped_is_done, stop};
static const struct way way_cgroup = {moved_is_done, move};

/* Apply the way to all who are not done; the last of those who count is told. */
static enum status apply_once(struct arena *arena, const struct freeze *freeze,
                              const struct way *way, struct process_id *ret_last,
                              size_t *ret_pending, struct error *err)
{
    struct pg_processes targets = {0};
    enum status status = find_targets(arena, freeze, &targets, err);

    *ret_pending = 0;
    if (status == STATUS_OK && targets.count == 0)
        return error_set(err, STATUS_NOT_FOUND, "the processes that were to be frozen are gone");
    for (size_t i = 0; i < targets.count && status == STATUS_OK; i++) {
        struct process_id id = targets.items[i].id;
        bool done = false;
        status = way->is_done(arena, freeze, id, &done, err);
        if (status == STATUS_OK && !done) {
            *ret_pending += counts(freeze, id);
            *ret_last = id;
            status = way->apply(freeze, id, err);
        }
        if (status == STATUS_NOT_FOUND) /* it ended meanwhile */
            status = STATUS_OK;
    }
    return status;
}

/* Look again until nobody is left to do: who was born before the postmaster stood still is found.
 */
static enum status apply_to_all(const struct freeze *freeze, const struct way *way,
                                int64_t deadline_ns, struct error *err)
{
    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        struct process_id last = {0};
        size_t pending = 0;
        enum status status = apply_once(arena, freeze, way, &last, &pending, err);
        if (status != STATUS_OK || pending == 0)
            return status;
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "process %d is in state %c and does not stop",
                             (int) last.pid, process_state(last));
        poll(NULL, 0, SETTLE_MS);
    }
}

static enum status inject(const struct fault_context *context, const json_t *record,
                          struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct freeze freeze;
    enum status status = read_record(arena, record, &freeze, err);

    if (status != STATUS_OK)
        return status;
    if (freeze.group == NULL)
        return apply_to_all(&freeze, &way_signal, context->deadline_ns, err);
    status = cgroup_freezer_create(freeze.group, err);
    if (status == STATUS_OK)
        status = apply_to_all(&freeze, &way_cgroup, context->deadline_ns, err);
    if (status == STATUS_OK)
        status = cgroup_freeze(freeze.group, true, context->deadline_ns, err);
    return status;
}

/* --- observe --------------------------------------------------------------------------------- */

/* A group that is not there holds nobody, and nobody is frozen in it. */
static enum status group_is_frozen(struct arena *arena, const char *group, bool *ret_frozen,
                                   struct error *err)
{
    pid_t *members = NULL;
    size_t count = 0;
    enum status status = cgroup_freezer_members(arena, group, &members, &count, err);

    *ret_frozen = false;
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    return status == STATUS_OK ? cgroup_frozen(group, ret_frozen, err) : status;
}

static enum status is_at_rest(struct arena *arena, const struct freeze *freeze, bool group_frozen,
                              struct process_id id, bool *ret_rest, struct error *err)
{
    bool inside = false;

    *ret_rest = is_stopped(id);
    if (freeze->group == NULL)
        return STATUS_OK;
    enum status status = moved_is_done(arena, freeze, id, &inside, err);
    *ret_rest = group_frozen && inside;
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static void describe(struct observation *observation, const struct freeze *freeze, size_t alive,
                     size_t frozen)
{
    size_t gone = 0;
    enum effect effect = frozen == 0      ? EFFECT_ABSENT
                         : frozen < alive ? EFFECT_PARTIAL
                                          : EFFECT_ACTIVE;

    for (size_t i = 0; i < freeze->recorded.count; i++)
        gone += !process_alive(freeze->recorded.items[i].id);
    json_t *numbers = json_pack("{s:I, s:I, s:I}", "alive", (json_int_t) alive, "frozen",
                                (json_int_t) frozen, "gone", (json_int_t) gone);
    observation_set(observation, effect, numbers,
                    "%zu of %zu processes stand still (state %s), %zu ended since the look", frozen,
                    alive, freeze->group == NULL ? "T" : "frozen", gone);
}

static enum status observe(const struct fault_context *context, const json_t *record,
                           struct observation *ret_observation, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes targets = {0};
    struct freeze freeze;
    bool group_frozen = false;
    size_t alive = 0, frozen = 0;
    enum status status = read_record(arena, record, &freeze, err);

    (void) context;
    if (status == STATUS_OK && freeze.group != NULL)
        status = group_is_frozen(arena, freeze.group, &group_frozen, err);
    if (status == STATUS_OK)
        status = find_targets(arena, &freeze, &targets, err);
    for (size_t i = 0; i < targets.count && status == STATUS_OK; i++) {
        bool rest = false;
        status = is_at_rest(arena, &freeze, group_frozen, targets.items[i].id, &rest, err);
        alive += rest || counts(&freeze, targets.items[i].id);
        frozen += rest;
    }
    if (status == STATUS_OK)
        describe(ret_observation, &freeze, alive, frozen);
    return status;
}

/* --- undo ------------------------------------------------------------------------------------ */

/* Of those who are not in the record only the stopped ones are meant. */
static enum status wake_once(struct arena *arena, const struct freeze *freeze,
                             struct process_id *ret_last, size_t *ret_stopped, struct error *err)
{
    struct pg_processes targets = {0};
    enum status status = find_targets(arena, freeze, &targets, err);

    *ret_stopped = 0;
    for (size_t i = 0; i < targets.count && status == STATUS_OK; i++) {
        if (!is_stopped(targets.items[i].id))
            continue;
        *ret_last = targets.items[i].id;
        (*ret_stopped)++;
        status = process_signal(targets.items[i].id, SIGCONT, err);
        if (status == STATUS_NOT_FOUND)
            status = STATUS_OK;
    }
    return status;
}

static enum status wake(const struct freeze *freeze, int64_t deadline_ns, struct error *err)
{
    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        struct process_id last = {0};
        size_t stopped = 0;
        enum status status = wake_once(arena, freeze, &last, &stopped, err);
        if (status != STATUS_OK || stopped == 0)
            return status;
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "process %d stays stopped after SIGCONT",
                             (int) last.pid);
    }
}

/* Everybody out, also children that were born in the group, until it is empty. */
static enum status move_home(const struct freeze *freeze, int64_t deadline_ns, struct error *err)
{
    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        pid_t *pids = NULL;
        size_t count = 0;
        struct process_id id;
        enum status status = cgroup_freezer_members(arena, freeze->group, &pids, &count, err);
        if (status != STATUS_OK || count == 0)
            return status;
        for (size_t i = 0; i < count && status == STATUS_OK; i++) {
            status = cgroup_freezer_join(freeze->home, pids[i], err);
            if (status != STATUS_OK && process_identify(pids[i], &id, NULL) != STATUS_OK)
                status = STATUS_OK; /* it ended meanwhile */
        }
        if (status != STATUS_OK)
            return status;
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "%zu processes stay in the group %s", count,
                             freeze->group);
    }
}

static enum status dissolve_group(const struct freeze *freeze, int64_t deadline_ns,
                                  struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    pid_t *pids = NULL;
    size_t count = 0;
    enum status status = cgroup_freezer_members(arena, freeze->group, &pids, &count, err);

    if (status == STATUS_OK)
        status = cgroup_freeze(freeze->group, false, deadline_ns, err);
    if (status == STATUS_OK)
        status = move_home(freeze, deadline_ns, err);
    if (status == STATUS_OK)
        status = cgroup_remove(freeze->group, deadline_ns, err);
    if (status != STATUS_NOT_FOUND)
        return status;
    error_clear(err); /* never made, or removed already */
    return STATUS_OK;
}

static enum status undo(const struct fault_context *context, const json_t *record,
                        struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct freeze freeze;
    enum status status = read_record(arena, record, &freeze, err);

    if (status != STATUS_OK)
        return status;
    return freeze.group == NULL ? wake(&freeze, context->deadline_ns, err)
                                : dissolve_group(&freeze, context->deadline_ns, err);
}

/* --- witness --------------------------------------------------------------------------------- */

/* The kernel still completes the handshake for a frozen postmaster; only an answer tells. */
static enum status witness(const struct fault_context *context, const json_t *record,
                           struct observation *ret_observation, struct error *err)
{
    const char *address = json_text(record, "address", NULL);
    int port = (int) json_number(record, "port", 0);
    enum tcp_outcome outcome = TCP_SILENT;
    bool answered = false;

    if (!process_word_has_postmaster(json_text(record, "process", "")) || address == NULL) {
        observation_set(ret_observation, EFFECT_UNKNOWN, NULL,
                        "%s cannot see that a child of the postmaster stands still", context->node);
        return STATUS_OK;
    }
    enum status status = tcp_probe_postgres(address, port, WITNESS_MS, &outcome, &answered, err);
    if (status != STATUS_OK)
        return status;
    bool mute = outcome == TCP_SILENT || (outcome == TCP_CONNECTED && !answered);
    observation_set(
        ret_observation,
        answered ? EFFECT_ABSENT
        : mute   ? EFFECT_ACTIVE
                 : EFFECT_UNKNOWN,
        json_pack("{s:s, s:b}", "connect", tcp_outcome_name(outcome), "answered", answered),
        "PostgreSQL at %s port %d: %s, %s within %d ms", address, port, tcp_outcome_name(outcome),
        answered ? "an answer" : "no answer", WITNESS_MS);
    return STATUS_OK;
}

const struct fault fault_process_freeze = {
    .abi = FAULT_ABI,
    .name = "process.freeze",
    .summary = "processes of PostgreSQL stand still, with their connections open, and go on later",
    .executor = EXECUTE_NODE,
    .holds = true,
    .reversible = true,
    .loses = "nothing by itself; sessions may time out, and a manager may promote another node "
             "while this one believes that it leads",
    .excludes = "process",
    .params = params,
    .supported = supported,
    .prepare = prepare,
    .inject = inject,
    .observe = observe,
    .undo = undo,
    .witness = witness,
};
