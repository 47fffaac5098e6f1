/* SPDX-License-Identifier: MIT */
/*
 * process.kill: processes of PostgreSQL get a signal, alone or all at the same time.
 *
 * Pidfds of all victims are open before the first signal, so that "everything" is one tight loop,
 * the postmaster first: nothing is left that could restart a child or clean up after one. Children
 * that were forked between the look and the loop are found by looking again; what started after
 * the postmaster was seen dead belongs to a restart and is left alone.
 */
#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "faults/fault.h"
#include "faults/needs.h"
#include "faults/process_set.h"
#include "faults/tcp_probe.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/kill_point.h"
#include "lib/owned.h"

enum { WAIT_GONE_MS = 5000, WITNESS_MS = 500 };

static const struct param params[] = {
    {.name = "process",
     .type = PARAM_CHOICE,
     .required = true,
     .choices = "postmaster|backend|checkpointer|walwriter|walsender|walreceiver|archiver|startup|"
                "children|everything",
     .help = "which process of the server; children: all but the postmaster, everything: both"},
    {.name = "signal",
     .type = PARAM_CHOICE,
     .choices = "kill|term|quit|int|abort|segv",
     .fallback = "kill",
     .help = "the signal that is sent"},
    {.name = "count",
     .type = PARAM_INTEGER,
     .minimum = 1,
     .maximum = 10000,
     .help = "backends or walsenders: how many of them, 1 when not given"},
    {.name = "choose",
     .type = PARAM_INTEGER,
     .minimum = 0,
     .maximum = INT64_MAX,
     .help = "backends or walsenders: seed that draws them; the oldest when not given"},
    {0},
};

static const struct {
    const char *name;
    int number;
    bool fatal; /* ends every process of PostgreSQL at once */
} signals[] = {
    {"kill", SIGKILL, true},  {"abort", SIGABRT, true}, {"segv", SIGSEGV, true},
    {"term", SIGTERM, false}, {"quit", SIGQUIT, false}, {"int", SIGINT, false},
};

static enum status find_signal(const char *name, size_t *ret_index, struct error *err)
{
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        if (strcmp(signals[i].name, name) == 0) {
            *ret_index = i;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_INVALID, "no signal is called \"%s\"", name);
}

static enum status validate(const json_t *values, struct error *err)
{
    const char *process = json_text(values, "process", "");
    bool many = process_word_is_many(process);

    if (!many && json_object_get(values, "count") != NULL)
        return error_set(err, STATUS_INVALID, "count goes with backend or walsender, not with %s",
                         process);
    if (!many && json_object_get(values, "choose") != NULL)
        return error_set(err, STATUS_INVALID, "choose goes with backend or walsender, not with %s",
                         process);
    if (strcmp(process, "backend") == 0 && strcmp(json_text(values, "signal", ""), "int") == 0) {
        error_set(err, STATUS_INVALID, "signal int does not end a backend");
        error_hint(err, "It only cancels the backend's statement. Use term to end its session.");
        return STATUS_INVALID;
    }
    return STATUS_OK;
}

static enum status supported(const struct fault_context *context, const json_t *values,
                             struct error *err)
{
    enum status status = needs_database(context, err);

    (void) values;
    if (status == STATUS_OK)
        status = needs_pidfd(err);
    if (status == STATUS_OK)
        status = needs_capability(CAP_KILL, "CAP_KILL", err);
    return status;
}

static enum status prepare(const struct fault_context *context, const json_t *values,
                           json_t **ret_record, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct process_choice choice = {
        .process = json_text(values, "process", ""),
        .count = json_number(values, "count", 1),
        .drawn = json_object_get(values, "choose") != NULL,
        .seed = json_number(values, "choose", 0),
        .spared = context->own_session,
    };
    struct pg_processes chosen = {0};
    enum status status = needs_database(context, err);

    if (status == STATUS_OK)
        status = process_choose(arena, context->data_directory, &choice, &chosen, err);
    if (status != STATUS_OK)
        return status;
    json_t *record = process_record(context, choice.process, process_set_to_json(&chosen));
    json_object_set_new(record, "signal", json_string(json_text(values, "signal", "kill")));
    *ret_record = record;
    return STATUS_OK;
}

/* --- inject ---------------------------------------------------------------------------------- */

struct victims {
    size_t count;
    int *pidfds; /* -1: it is gone already */
};

static void close_victims(struct victims *victims)
{
    for (size_t i = 0; i < victims->count; i++)
        owned_close_fd(&victims->pidfds[i]);
}

/* Signal 0 tells what process_signal() refuses to touch. */
static enum status open_victim(struct process_id id, int *ret_pidfd, struct error *err)
{
    enum status status = process_signal(id, 0, err);

    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (status != STATUS_OK)
        return status;
    OWNED_FD int pidfd = (int) syscall(SYS_pidfd_open, id.pid, 0U);
    if (pidfd >= 0 && process_alive(id))
        *ret_pidfd = take_fd(&pidfd);
    return STATUS_OK;
}

static enum status open_victims(struct arena *arena, const struct pg_processes *set,
                                struct victims *victims, struct error *err)
{
    size_t open = 0;

    victims->pidfds = arena_array(arena, set->count, sizeof *victims->pidfds);
    for (; victims->count < set->count; victims->count++) {
        int *pidfd = &victims->pidfds[victims->count];
        *pidfd = -1;
        enum status status = open_victim(set->items[victims->count].id, pidfd, err);
        if (status != STATUS_OK)
            return status;
        open += *pidfd >= 0;
    }
    if (open == 0)
        return error_set(err, STATUS_NOT_FOUND,
                         "all %zu processes that were to be signalled are gone", set->count);
    return STATUS_OK;
}

/* All of them, also after one was refused: what is left of a half-killed server is no fault. */
static enum status signal_all(const struct victims *victims, int number, struct error *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < victims->count; i++) {
        if (victims->pidfds[i] >= 0 &&
            syscall(SYS_pidfd_send_signal, victims->pidfds[i], number, NULL, 0U) != 0 &&
            errno != ESRCH)
            status = error_system(err, "sending signal %d", number);
        KILL_POINT("inside-inject");
    }
    return status;
}

static enum status wait_gone(const struct pg_processes *set, int64_t deadline_ns, struct error *err)
{
    for (size_t i = 0; i < set->count; i++) {
        enum status status = process_wait_gone(set->items[i].id, deadline_ns, err);
        if (status == STATUS_TIMEOUT)
            return STATUS_OK; /* observe() tells who is left */
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static uint64_t ticks_now(void)
{
    return (uint64_t) clock_boot_ns() / (uint64_t) (NS_PER_SECOND / sysconf(_SC_CLK_TCK));
}

/* Children that were born between the look and the signals, until none is left. */
static enum status sweep(const char *data_directory, int signal, int64_t deadline_ns,
                         struct error *err)
{
    uint64_t dead_ticks = ticks_now();

    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        struct pg_processes all = {0};
        size_t left = 0;
        enum status status = pg_processes_list(arena, data_directory, &all, err);
        for (size_t i = 0; i < all.count && status == STATUS_OK; i++) {
            if (all.items[i].id.start_ticks > dead_ticks)
                continue;
            left++;
            status = process_signal(all.items[i].id, signal, err);
            if (status == STATUS_OK || status == STATUS_NOT_FOUND)
                status = process_wait_gone(all.items[i].id, deadline_ns, err);
        }
        if (status != STATUS_OK || left == 0)
            return status;
    }
}

static int64_t earlier(int64_t one_ns, int64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

static enum status inject(const struct fault_context *context, const json_t *record,
                          struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    __attribute__((cleanup(close_victims))) struct victims victims = {0};
    struct pg_processes set = {0};
    size_t signal = 0;
    enum status status =
        process_set_from_json(arena, json_object_get(record, "processes"), &set, err);

    if (status == STATUS_OK)
        status = find_signal(json_text(record, "signal", ""), &signal, err);
    if (status == STATUS_OK)
        status = open_victims(arena, &set, &victims, err);
    if (status != STATUS_OK)
        return status;
    status = signal_all(&victims, signals[signal].number, err);
    if (status != STATUS_OK)
        return status;
    int64_t deadline_ns = earlier(deadline_in_ms(WAIT_GONE_MS), context->deadline_ns);
    status = wait_gone(&set, deadline_ns, err);
    if (status == STATUS_OK && signals[signal].fatal &&
        strcmp(json_text(record, "process", ""), PROCESS_EVERYTHING) == 0)
        status = sweep(json_text(record, "data_directory", ""), signals[signal].number, deadline_ns,
                       err);
    return status;
}

/* --- observe, undo, witness ------------------------------------------------------------------ */

/* Has the server of that record been started again since? */
static enum status look_for_restart(struct arena *arena, const json_t *record,
                                    const struct pg_processes *set, bool *ret_restarted,
                                    struct error *err)
{
    struct pg_processes now = {0};
    enum status status =
        pg_processes_list(arena, json_text(record, "data_directory", ""), &now, err);

    if (status != STATUS_OK)
        return status;
    *ret_restarted = process_word_has_postmaster(json_text(record, "process", "")) &&
                     now.count > 0 && now.items[0].class == PG_POSTMASTER &&
                     !process_set_has(set, now.items[0].id);
    return STATUS_OK;
}

static enum status observe(const struct fault_context *context, const json_t *record,
                           struct observation *ret_observation, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes set = {0};
    bool restarted = false;
    size_t gone = 0;
    enum status status =
        process_set_from_json(arena, json_object_get(record, "processes"), &set, err);

    (void) context;
    if (status == STATUS_OK)
        status = look_for_restart(arena, record, &set, &restarted, err);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < set.count; i++)
        gone += !process_alive(set.items[i].id);
    enum effect effect = gone == 0           ? EFFECT_ABSENT
                         : gone == set.count ? EFFECT_ACTIVE
                                             : EFFECT_PARTIAL;
    json_t *numbers = json_pack("{s:I, s:I, s:b}", "signalled", (json_int_t) set.count, "gone",
                                (json_int_t) gone, "restarted", restarted);
    observation_set(ret_observation, effect, numbers, "%zu of %zu processes are gone%s", gone,
                    set.count, restarted ? ", a new postmaster runs" : "");
    return STATUS_OK;
}

/* A process that is dead cannot be brought back; what restores service is the run's recovery. */
static enum status undo(const struct fault_context *context, const json_t *record,
                        struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes set = {0};

    (void) context;
    KILL_POINT("inside-undo");
    return process_set_from_json(arena, json_object_get(record, "processes"), &set, err);
}

static enum status witness(const struct fault_context *context, const json_t *record,
                           struct observation *ret_observation, struct error *err)
{
    const char *address = json_text(record, "address", NULL);
    int port = (int) json_number(record, "port", 0);
    enum tcp_outcome outcome = TCP_SILENT;

    if (!process_word_has_postmaster(json_text(record, "process", "")) || address == NULL) {
        observation_set(ret_observation, EFFECT_UNKNOWN, NULL,
                        "%s cannot see the death of a child of the postmaster", context->node);
        return STATUS_OK;
    }
    enum status status = tcp_probe(address, port, WITNESS_MS, &outcome, err);
    if (status != STATUS_OK)
        return status;
    /* accepted: killed and started again, or never killed; silent: a fault of the network */
    observation_set(ret_observation, outcome == TCP_REFUSED ? EFFECT_ACTIVE : EFFECT_UNKNOWN,
                    json_pack("{s:s}", "connect", tcp_outcome_name(outcome)),
                    "connect from %s to %s port %d: %s", context->node, address, port,
                    tcp_outcome_name(outcome));
    return STATUS_OK;
}

const struct fault fault_process_kill = {
    .abi = FAULT_ABI,
    .name = "process.kill",
    .summary = "processes of PostgreSQL get a signal, one or all at the same time",
    .executor = EXECUTE_NODE,
    .holds = false,
    .reversible = false,
    .restores = "restart, by PostgreSQL itself after the death of a child, else by the HA manager",
    .loses = "sessions and transactions in flight; with synchronous_commit = off also the last "
             "acknowledged commits",
    .params = params,
    .validate = validate,
    .supported = supported,
    .prepare = prepare,
    .inject = inject,
    .observe = observe,
    .undo = undo,
    .witness = witness,
};
