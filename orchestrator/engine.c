/* SPDX-License-Identifier: MIT */
#include "orchestrator/engine.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "lib/version.h"
#include "orchestrator/command.h"
#include "orchestrator/engine_state.h"

enum { CONNECT_MS = 15000 };

/* ---- small things ---- */

void engine_phase(struct engine *engine, const char *phase)
{
    journal_event(engine->journal, "phase", json_pack("{s:s}", "phase", phase));
    view_until(engine->view, 0);
}

static bool never(void *argument)
{
    (void) argument;
    return false;
}

enum status engine_pause(struct engine *engine, int64_t ms, struct error *err)
{
    enum status status = cluster_wait(engine->cluster, never, NULL, deadline_in_ms(ms), err);

    return status == STATUS_TIMEOUT ? STATUS_OK : status;
}

json_t *engine_params(const struct engine *engine)
{
    return json_pack("{s:s}", "run", engine->run);
}

void engine_fail(struct engine *engine, const struct error *reason)
{
    if (engine->failed.code == STATUS_OK)
        engine->failed = *reason;
}

/* Journal who is what: all of them, or those that changed since the last event. */
void engine_journal_members(struct engine *engine, const struct ha_state *state, bool all)
{
    for (size_t i = 0; i < state->count; i++) {
        const struct ha_member *member = &state->members[i];
        json_t *event = survey_member_json(member);
        OWNED_JSON json_t *shape = json_copy(event);

        json_object_del(shape, "lsn"); /* moves all the time */
        if (all || !json_equal(shape, json_object_get(engine->members, member->node->name))) {
            json_object_set(engine->members, member->node->name, shape);
            journal_event(engine->journal, "member", event);
        } else {
            json_decref(event);
        }
    }
}

enum status engine_members(struct engine *engine, struct arena *arena, struct ha_state *ret_state,
                           struct error *err)
{
    enum status status = engine->ha.driver->state(&engine->ha, arena, ret_state, err);

    if (status == STATUS_OK)
        engine_journal_members(engine, ret_state, true);
    return status;
}

/* ---- what the run is told ---- */

static void on_notification(void *argument, const struct topology_node *node, const char *method,
                            const json_t *params)
{
    struct engine *engine = argument;

    if (strcmp(method, "fault.undone") == 0)
        injection_notified(engine, node, params);
    else
        load_notified(engine, node, method, params);
}

static void on_connection(void *argument, const struct topology_node *node, bool connected,
                          const struct error *reason)
{
    struct engine *engine = argument;

    if (connected) {
        journal_note(engine->journal, "connected to %s", node->name);
        samples_connected(engine, node);
    } else {
        journal_note(engine->journal, "lost %s: %s", node->name, reason->message);
    }
}

static void on_clock(void *argument, const struct topology_node *node, int64_t offset_ns,
                     int64_t error_ns)
{
    struct engine *engine = argument;

    if (engine->resumed)
        return; /* another boot may be behind us: its estimates would be taken for the run's */
    journal_event(engine->journal, "clock",
                  json_pack("{s:s, s:I, s:I}", "node", node->name, "offset_ns",
                            (json_int_t) offset_ns, "error_ns", (json_int_t) error_ns));
}

static void on_ha_event(void *argument, const char *event, const char *node, json_t *details)
{
    struct engine *engine = argument;
    json_t *members = json_pack("{s:s?}", "node", node);

    if (details != NULL) {
        json_object_update_missing(members, details);
        json_decref(details);
    }
    journal_event(engine->journal, event, members);
}

static int64_t on_last_ack(void *argument)
{
    return load_last_ack_ns(argument);
}

/* The first reason stands. */
void engine_outcome(struct engine *engine, const char *outcome, const struct error *reason)
{
    if (engine->reason.message[0] != '\0')
        return;
    engine->outcome = outcome;
    engine->reason = *reason;
}

bool engine_hurried(const struct engine *engine)
{
    return engine->signals > 1;
}

void engine_leavable(struct engine *engine, bool yes)
{
    engine->leavable = yes;
    if (yes && engine_hurried(engine))
        cluster_unshield(engine->cluster);
    else if (!yes)
        cluster_shield(engine->cluster);
}

static const char *signal_words(const struct engine *engine)
{
    if (engine_hurried(engine))
        return "leaving as soon as everything is undone";
    return engine->winding_up ? "everything is being put back already" : "undoing what is active";
}

/* The first ends the run in order; the second gives up all that undoes nothing. */
static void on_signal(void *argument, int signal)
{
    struct engine *engine = argument;
    struct error reason = {0};

    engine->signals++;
    error_set(&reason, STATUS_ABORTED, "interrupted by %s",
              signal == SIGINT    ? "SIGINT"
              : signal == SIGTERM ? "SIGTERM"
                                  : "SIGHUP");
    journal_note(engine->journal, "%s; %s", reason.message, signal_words(engine));
    if (engine->changed)
        engine_outcome(engine, "aborted", &reason);
    cluster_abort(engine->cluster, &reason);
    if (engine_hurried(engine) && engine->leavable)
        cluster_unshield(engine->cluster);
}

/* ---- beginning ---- */

/* "20261130-141233-primary-kill-1a2b3c": sortable, readable and unique. */
static void name_run(struct engine *engine)
{
    unsigned char noise[6];
    char wall[WALL_TEXT_SIZE];

    if (getrandom(noise, sizeof noise, 0) != (ssize_t) sizeof noise)
        abort(); /* the kernel has always enough for six bytes */
    clock_wall_text(clock_wall_ns(), wall);
    for (size_t i = 0; i < sizeof noise; i++)
        snprintf(engine->prefix + 2 * i, 3, "%02x", noise[i]);
    snprintf(engine->run, sizeof engine->run, "%.4s%.2s%.2s-%.2s%.2s%.2s-%.40s-%.6s", wall,
             wall + 5, wall + 8, wall + 11, wall + 14, wall + 17, engine->scenario->name,
             engine->prefix);
}

static json_t *role_names(unsigned roles)
{
    static const struct {
        unsigned role;
        const char *name;
    } names[] = {{ROLE_DATABASE, "database"},
                 {ROLE_CLIENT, "client"},
                 {ROLE_POWER, "power"},
                 {ROLE_DCS, "dcs"},
                 {ROLE_ARCHIVE, "archive"}};
    json_t *list = json_array();

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((roles & names[i].role) != 0)
            json_array_append_new(list, json_string(names[i].name));
    return list;
}

static json_t *topology_json(const struct topology *topology)
{
    json_t *nodes = json_array(), *hosts = json_array();
    OWNED_MEMORY char *path = realpath(topology->file, NULL);

    for (size_t i = 0; i < topology->node_count; i++) {
        const struct topology_node *node = &topology->nodes[i];

        json_array_append_new(nodes, json_pack("{s:s, s:s, s:s, s:o}", "name", node->name,
                                               "address", node->address, "zone", node->zone,
                                               "roles", role_names(node->roles)));
    }
    for (size_t i = 0; i < topology->endpoint.count; i++)
        json_array_append_new(hosts, json_string(topology->endpoint.hosts[i]->name));
    return json_pack(
        "{s:s, s:s, s:s, s:{s:I}, s:{s:s, s:I}, s:{s:s, s:s, s:b, s:I}, s:{s:o, s:b}, s:o}", "name",
        topology->name, "kind", topology->kind, "file", path != NULL ? path : topology->file,
        "database", "version", (json_int_t) topology->database.version, "promise", "durability",
        topology->promise.durability, "failover_ms", (json_int_t) topology->promise.failover_ms,
        "ha", "manager", topology->ha.manager, "fence", topology->ha.fence, "allow_loss",
        topology->ha.allow_loss, "detect_ms", (json_int_t) topology->ha.detect_ms, "endpoint",
        "hosts", hosts, "managed", topology->endpoint.managed, "nodes", nodes);
}

static void journal_start(struct engine *engine)
{
    char wall[WALL_TEXT_SIZE];
    const json_t *replays = engine->options->replays;

    clock_wall_text(clock_wall_ns(), wall);
    json_t *start = json_pack(
        "{s:i, s:s, s:s, s:o, s:o, s:I, s:s, s:b, s:I}", "version", 1, "ordeal", ORDEAL_VERSION,
        "run", engine->run, "scenario", scenario_json(engine->scenario), "topology",
        topology_json(engine->topology), "seed", (json_int_t) engine->options->seed, "wall", wall,
        "strict", engine->options->strict, "delay_ms", (json_int_t) engine->options->delay_ms);
    if (replays != NULL)
        json_object_set_new(start, "replays", json_deep_copy(replays));
    journal_event(engine->journal, "run.start", start);
}

static void list_loads(struct engine *engine)
{
    const struct topology *topology = engine->topology;

    size_t clients = (size_t) json_number(engine->scenario->workload, "clients", 1);

    /* a node without a client would have no load to carry */
    engine->loads = arena_array(engine->arena, topology->node_count, sizeof *engine->loads);
    for (size_t i = 0; i < topology->node_count && engine->load_count < clients; i++)
        if ((topology->nodes[i].roles & ROLE_CLIENT) != 0)
            engine->loads[engine->load_count++].node = &topology->nodes[i];
}

struct engine *engine_new(const struct engine_options *options)
{
    struct arena *arena = arena_new();
    struct engine *engine = arena_alloc(arena, sizeof *engine);

    engine->arena = arena;
    engine->options = options;
    engine->topology = options->topology;
    engine->scenario = options->scenario;
    engine->random = options->seed;
    engine->members = json_object();
    engine->fingerprints = json_object();
    engine->outcome = "completed";
    engine->clean = true;
    engine->view = view_for_stderr();
    name_run(engine);
    list_loads(engine);
    engine->ledgers = json_array();
    return engine;
}

void engine_free(struct engine *engine)
{
    for (struct injection *injection = engine->injections; injection != NULL;
         injection = injection->next) {
        json_decref(injection->params);
        json_decref(injection->result);
        json_decref(injection->witness);
        json_decref(injection->standbys);
    }
    json_decref(engine->members);
    json_decref(engine->ledgers);
    json_decref(engine->fingerprints);
    journal_close(engine->journal);
    view_free(engine->view);
    arena_free(engine->arena);
}

static enum status find_driver(struct engine *engine, struct error *err)
{
    const char *name = engine->scenario->manager_must ? "observe" : engine->topology->ha.manager;

    engine->ha = (struct ha){.driver = ha_find(name),
                             .cluster = engine->cluster,
                             .topology = engine->topology,
                             .event = on_ha_event,
                             .argument = engine,
                             .last_ack = on_last_ack};
    if (engine->ha.driver != NULL)
        return STATUS_OK;
    error_set(err, STATUS_REFUSED, "the topology's HA manager %s is not known", name);
    error_hint(err, "Known are observe and manual.");
    return STATUS_REFUSED;
}

enum status engine_connect(struct engine *engine, struct error *err)
{
    struct cluster_options options = {
        .run = engine->run,
        .events = {.notification = on_notification, .connection = on_connection, .clock = on_clock},
        .argument = engine};
    enum status status = cluster_new(engine->topology, &options, &engine->cluster, err);

    if (status != STATUS_OK)
        return status;
    loop_on_signal(cluster_loop(engine->cluster), SIGINT, on_signal, engine);
    loop_on_signal(cluster_loop(engine->cluster), SIGTERM, on_signal, engine);
    loop_on_signal(cluster_loop(engine->cluster), SIGHUP, on_signal, engine);
    status = find_driver(engine, err);
    if (status == STATUS_OK)
        status = cluster_wait_connected(engine->cluster, NULL, deadline_in_ms(CONNECT_MS), err);
    return status;
}

/* ---- the run ---- */

static bool clocks_known(void *argument)
{
    struct engine *engine = argument;
    int64_t offset_ns, error_ns;

    for (size_t i = 0; i < engine->topology->node_count; i++)
        if (cluster_clock(engine->cluster, engine->topology->nodes[i].name, &offset_ns, &error_ns,
                          NULL) != STATUS_OK)
            return false;
    return true;
}

/* Before anything is changed. Every failure here is a refusal, not an abort. */
static enum status begin(struct engine *engine, struct error *err)
{
    engine_phase(engine, "preflight");
    enum status status = engine_connect(engine, err);

    if (status != STATUS_OK) {
        preflight_find(engine, "refuse", "connect", NULL, err->message, err->hint);
        return status;
    }
    status = cluster_wait(engine->cluster, clocks_known, engine, deadline_in_ms(CONNECT_MS), err);
    if (status == STATUS_OK)
        status = preflight_run(engine, err);
    if (status == STATUS_OK)
        status = residue_before(engine, err);
    return status;
}

static enum status work(struct engine *engine, struct error *err)
{
    engine_phase(engine, "prepare");
    samples_begin(engine);
    enum status status = load_begin(engine, engine->first_writer, err);

    if (status == STATUS_OK) { /* a driver that routes opens the endpoint here */
        status = engine->ha.driver->begin(&engine->ha, err);
        engine->ha_begun = status == STATUS_OK;
    }
    if (status == STATUS_OK)
        status = load_baseline(engine, err);
    if (status == STATUS_OK) {
        steady_state(engine, "before");
        status = method_run(engine, err);
    }
    return status;
}

static void conduct(struct engine *engine)
{
    struct error error = {0};
    enum status status = begin(engine, &error);

    if (status != STATUS_OK) {
        engine_outcome(engine, status == STATUS_ABORTED ? "aborted" : "refused", &error);
    } else {
        engine->changed = true;
        if (work(engine, &error) != STATUS_OK)
            engine_outcome(engine, "aborted", &error);
        engine_wind_up(engine);
    }
    engine_close(engine);
}

/* ---- signals outside the loop ---- */

static sigset_t ending_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

/* A signal during the report, which is finished all the same: everything is undone by then. */
static bool take_late_signals(void)
{
    const sigset_t set = ending_signals();
    const struct timespec now = {0};
    bool any = false;

    while (sigtimedwait(&set, NULL, &now) > 0)
        any = true;
    return any;
}

/* Every fault step that it has was skipped: nothing was sent, nothing failed. */
static bool all_skipped(const struct engine *engine)
{
    for (const struct injection *injection = engine->injections; injection != NULL;
         injection = injection->next)
        if (injection->sent || injection->failed)
            return false;
    return engine->skipped && strcmp(engine->outcome, "completed") == 0;
}

/* A verdict that says more than "could not be done" stands: fail, aborted, not recovered. */
bool engine_unsupported(const struct engine *engine, int exit_code)
{
    if (exit_code == EXIT_REFUSED)
        return engine->refused_power;
    return exit_code == EXIT_INCONCLUSIVE && all_skipped(engine);
}

static enum status run_blocked(const struct engine_options *options,
                               struct engine_result *ret_result, struct error *err)
{
    struct engine *engine = engine_new(options);
    enum status status =
        journal_open(options->folder, view_event, engine->view, &engine->journal, err);

    if (status != STATUS_OK) {
        engine_free(engine);
        return status;
    }
    journal_start(engine);
    conduct(engine);
    journal_close(engine->journal);
    engine->journal = NULL;
    view_free(engine->view);
    engine->view = NULL;
    int exit_code = engine_report(engine);
    *ret_result = (struct engine_result){.exit_code = exit_code,
                                         .outcome = engine->outcome,
                                         .interrupted = engine->signals > 0,
                                         .unsupported = engine_unsupported(engine, exit_code)};
    engine_free(engine);
    return STATUS_OK;
}

/* Before the first event and after the last one a signal waits: it never ends a run unsaid. */
enum status engine_run(const struct engine_options *options, struct engine_result *ret_result,
                       struct error *err)
{
    const sigset_t set = ending_signals();
    sigset_t before;

    sigprocmask(SIG_BLOCK, &set, &before);
    enum status status = run_blocked(options, ret_result, err);
    if (take_late_signals() && status == STATUS_OK)
        ret_result->interrupted = true;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}
