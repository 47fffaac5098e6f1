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
#include <string.h>

#include "faults/fault.h"
#include "faults/freeze.h"
#include "faults/needs.h"
#include "faults/process_set.h"
#include "faults/tcp_probe.h"
#include "lib/cgroup.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { WITNESS_MS = 500 };

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

/* --- inject and undo ------------------------------------------------------------------------- */

static enum status inject(const struct fault_context *context, const json_t *record,
                          struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct freeze freeze;
    enum status status = freeze_read(arena, record, &freeze, err);

    return status == STATUS_OK ? freeze_apply(&freeze, context->deadline_ns, err) : status;
}

static enum status undo(const struct fault_context *context, const json_t *record,
                        struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct freeze freeze;
    enum status status = freeze_read(arena, record, &freeze, err);

    return status == STATUS_OK ? freeze_release(&freeze, context->deadline_ns, err) : status;
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

    *ret_rest = freeze_is_stopped(id);
    if (freeze->group == NULL)
        return STATUS_OK;
    enum status status = freeze_is_inside(arena, freeze, id, &inside, err);
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
    enum status status = freeze_read(arena, record, &freeze, err);

    (void) context;
    if (status == STATUS_OK && freeze.group != NULL)
        status = group_is_frozen(arena, freeze.group, &group_frozen, err);
    if (status == STATUS_OK)
        status = freeze_targets(arena, &freeze, &targets, err);
    for (size_t i = 0; i < targets.count && status == STATUS_OK; i++) {
        bool rest = false;
        status = is_at_rest(arena, &freeze, group_frozen, targets.items[i].id, &rest, err);
        alive += rest || freeze_counts(&freeze, targets.items[i].id);
        frozen += rest;
    }
    if (status == STATUS_OK)
        describe(ret_observation, &freeze, alive, frozen);
    return status;
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
