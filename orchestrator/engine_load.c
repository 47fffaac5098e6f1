/* SPDX-License-Identifier: MIT */
/*
 * The load of a run: started on every client node, watched, ended in order. Clients and rate are
 * shared evenly; probes run on the first client node, whose clock is the clock of the run.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/engine_state.h"

enum { PREPARE_MS = 30000, START_MS = 30000, FIRST_ACK_MS = 20000, STOP_MARGIN_MS = 20000 };

/* ---- what the client nodes say ---- */

static struct load_node *find_load(struct engine *engine, const struct topology_node *node)
{
    for (size_t i = 0; i < engine->load_count; i++)
        if (engine->loads[i].node == node)
            return &engine->loads[i];
    return NULL;
}

static int64_t acked_total(const struct engine *engine)
{
    int64_t acked = 0;

    for (size_t i = 0; i < engine->load_count; i++)
        acked += engine->loads[i].acked;
    return acked;
}

static int64_t worst_p99_us(const struct engine *engine)
{
    int64_t worst = 0;

    for (size_t i = 0; i < engine->load_count; i++)
        if (engine->loads[i].p99_us > worst)
            worst = engine->loads[i].p99_us;
    return worst;
}

static void keep_sample(struct engine *engine)
{
    struct load_sample sample = {.at_ns = clock_boot_ns(), .acked = acked_total(engine)};

    if (engine->sample_count == LOAD_SAMPLES) {
        memmove(engine->samples, engine->samples + 1,
                (LOAD_SAMPLES - 1) * sizeof engine->samples[0]);
        engine->sample_count--;
    }
    engine->samples[engine->sample_count++] = sample;
}

static void take_status(struct engine *engine, struct load_node *load, const json_t *params)
{
    const char *writer = json_text(params, "writer", "");

    load->now_ns = json_number(params, "now_ns", 0);
    load->acked = json_number(params, "acked", 0);
    load->rate = json_number_value(json_object_get(params, "rate"));
    load->p50_us = json_number(params, "p50_us", 0);
    load->p99_us = json_number(params, "p99_us", 0);
    load->last_ack_ns = json_number(params, "last_ack_ns", 0);
    load->blind_ms = json_number(params, "blind_ms", 0);
    load->timeline = (uint32_t) json_number(params, "timeline", 0);
    snprintf(load->writer, sizeof load->writer, "%s", writer);
    keep_sample(engine);
    view_load(engine->view, load_rate(engine), worst_p99_us(engine));
}

static void take_end(struct engine *engine, struct load_node *load, const json_t *params)
{
    const json_t *item;
    size_t index;

    load->ended = true;
    load->workers = json_number(params, "workers", 0);
    load->complete = json_flag(params, "complete", false);
    json_array_foreach(json_object_get(params, "ledgers"), index, item)
    {
        json_t *copy = json_deep_copy(item);
        json_object_set_new(copy, "node", json_string(load->node->name));
        json_array_append_new(engine->ledgers, copy);
    }
}

void load_notified(struct engine *engine, const struct topology_node *node, const char *method,
                   const json_t *params)
{
    struct load_node *load = find_load(engine, node);

    if (load == NULL)
        return;
    if (strcmp(method, "load.status") == 0)
        take_status(engine, load, params);
    else if (strcmp(method, "load.ended") == 0 && !load->ended)
        take_end(engine, load, params);
}

int64_t load_last_ack_ns(const struct engine *engine)
{
    int64_t latest_ns = 0;
    int64_t offset_ns, error_ns;

    for (size_t i = 0; i < engine->load_count; i++) {
        const struct load_node *load = &engine->loads[i];

        if (load->last_ack_ns == 0 || cluster_clock(engine->cluster, load->node->name, &offset_ns,
                                                    &error_ns, NULL) != STATUS_OK)
            continue;
        if (load->last_ack_ns - offset_ns > latest_ns)
            latest_ns = load->last_ack_ns - offset_ns;
    }
    return latest_ns;
}

double load_rate(const struct engine *engine)
{
    double rate = 0;

    for (size_t i = 0; i < engine->load_count; i++)
        rate += engine->loads[i].rate;
    return rate;
}

/* Between the newest sample and the one a second before it. */
int64_t load_acked_last_second(const struct engine *engine)
{
    if (engine->sample_count == 0)
        return 0;
    const struct load_sample *newest = &engine->samples[engine->sample_count - 1];
    for (size_t i = engine->sample_count; i > 0; i--) {
        const struct load_sample *older = &engine->samples[i - 1];
        if (newest->at_ns - older->at_ns >= NS_PER_SECOND)
            return newest->acked - older->acked;
    }
    return newest->acked - engine->samples[0].acked;
}

struct probe_view load_view(const struct engine *engine, const struct ha_state *state)
{
    int64_t last_ns = load_last_ack_ns(engine);

    return (struct probe_view){.state = state,
                               .silent_ms =
                                   last_ns == 0 ? -1 : (clock_boot_ns() - last_ns) / NS_PER_MS,
                               .rate = load_rate(engine),
                               .p99_us = worst_p99_us(engine)};
}

void load_expect_move(struct engine *engine, uint32_t timeline)
{
    for (size_t i = 0; i < engine->load_count; i++)
        if (engine->loads[i].timeline > timeline)
            timeline = engine->loads[i].timeline;
    if (timeline > engine->left_timeline)
        engine->left_timeline = timeline;
}

bool load_moved(const struct engine *engine)
{
    for (size_t i = 0; i < engine->load_count; i++) {
        const struct load_node *load = &engine->loads[i];

        if (load->timeline > engine->left_timeline && load->last_ack_ns != 0)
            return true;
    }
    return false;
}

/* ---- start ---- */

/* The part of a whole that the index-th of `count` nodes gets. */
static int64_t share(int64_t whole, size_t count, size_t index)
{
    return whole * (int64_t) (index + 1) / (int64_t) count -
           whole * (int64_t) index / (int64_t) count;
}

static json_t *start_params(const struct engine *engine, size_t index)
{
    json_t *workload = json_deep_copy(engine->scenario->workload);
    int64_t clients = json_number(workload, "clients", 1);
    int64_t mine = share(clients, engine->load_count, index);
    int64_t first = 1;
    double rate = json_number_value(json_object_get(workload, "rate"));

    for (size_t i = 0; i < index; i++)
        first += share(clients, engine->load_count, i);
    json_object_set_new(workload, "clients", json_integer(mine));
    json_object_set_new(workload, "rate", json_real(rate * (double) mine / (double) clients));
    json_object_set_new(workload, "first_client", json_integer(first));
    json_t *params = json_pack("{s:s, s:o, s:I}", "run", engine->run, "workload", workload, "seed",
                               (json_int_t) engine->options->seed);
    if (index == 0)
        json_object_set(params, "probes", engine->scenario->probes);
    return params;
}

static enum status on_each_load(struct engine *engine, const char *method,
                                json_t *(*params)(const struct engine *engine, size_t index),
                                struct error *err)
{
    struct cluster_request *requests =
        arena_array(engine->arena, engine->load_count, sizeof *requests);
    enum status status = STATUS_OK;

    for (size_t i = 0; i < engine->load_count; i++)
        requests[i] = (struct cluster_request){.node = engine->loads[i].node->name,
                                               .method = method,
                                               .params = params(engine, i),
                                               .timeout_ms = START_MS};
    cluster_call_all(engine->cluster, requests, engine->load_count);
    for (size_t i = 0; i < engine->load_count; i++) {
        json_decref(requests[i].result);
        if (requests[i].status != STATUS_OK && status == STATUS_OK) {
            status = requests[i].status;
            *err = requests[i].error;
        }
    }
    return status;
}

static void journal_load_start(struct engine *engine)
{
    json_t *nodes = json_array();

    for (size_t i = 0; i < engine->load_count; i++) {
        engine->loads[i].running = true;
        json_array_append_new(nodes, json_string(engine->loads[i].node->name));
    }
    journal_event(engine->journal, "load.start",
                  json_pack("{s:s, s:o, s:o, s:o}", "node", engine->loads[0].node->name, "workload",
                            json_deep_copy(engine->scenario->workload), "probes",
                            json_deep_copy(engine->scenario->probes), "nodes", nodes));
}

/*
 * Not to be left in the middle: a job that still makes the tables, or workers that nobody knows of,
 * would outlive what takes them away. A signal is heeded right after.
 */
enum status load_begin(struct engine *engine, const char *primary, struct error *err)
{
    cluster_shield(engine->cluster);
    engine->prepared = true; /* also when it stops half-way */
    enum status status = cluster_call(engine->cluster, primary, "load.prepare",
                                      engine_params(engine), PREPARE_MS, NULL, err);

    if (status == STATUS_OK)
        status = on_each_load(engine, "load.start", start_params, err);
    cluster_unshield(engine->cluster);
    if (status != STATUS_OK)
        return error_context(err, "starting the load");
    journal_load_start(engine);
    return STATUS_OK;
}

/* ---- baseline ---- */

static bool acknowledged(void *argument)
{
    return load_last_ack_ns(argument) != 0;
}

static void journal_baseline(struct engine *engine, int64_t from_ns, int64_t acked)
{
    const struct load_node *load = &engine->loads[0];
    double seconds = (double) (load->now_ns - from_ns) / NS_PER_SECOND;

    journal_event(engine->journal, "baseline",
                  json_pack("{s:I, s:I, s:I, s:f, s:I, s:I}", "from", (json_int_t) from_ns, "to",
                            (json_int_t) load->now_ns, "acked", (json_int_t) acked, "rate",
                            seconds > 0 ? (double) acked / seconds : 0.0, "p50_us",
                            (json_int_t) load->p50_us, "p99_us",
                            (json_int_t) worst_p99_us(engine)));
}

enum status load_baseline(struct engine *engine, struct error *err)
{
    engine_phase(engine, "baseline");
    enum status status =
        cluster_wait(engine->cluster, acknowledged, engine, deadline_in_ms(FIRST_ACK_MS), err);

    if (status == STATUS_TIMEOUT) {
        error_set(err, STATUS_TIMEOUT, "no write through the endpoint was acknowledged within %d s",
                  FIRST_ACK_MS / 1000);
        error_hint(err, "Does the workload's user reach its database from the client node, and "
                        "does a standby of the sync set stream?");
    }
    if (status != STATUS_OK)
        return status;
    int64_t from_ns = engine->loads[0].now_ns;
    int64_t acked = acked_total(engine);
    view_until(engine->view, deadline_in_ms(engine->scenario->baseline_ms));
    status = engine_pause(engine, engine->scenario->baseline_ms, err);
    if (status != STATUS_OK)
        return status;
    engine->left_timeline = engine->loads[0].timeline;
    journal_baseline(engine, from_ns, acked_total(engine) - acked);
    return STATUS_OK;
}

/* ---- end ---- */

static json_t *stop_params(const struct engine *engine, size_t index)
{
    (void) index;
    return engine_params(engine);
}

static bool all_ended(void *argument)
{
    const struct engine *engine = argument;

    for (size_t i = 0; i < engine->load_count; i++)
        if (engine->loads[i].running && !engine->loads[i].ended)
            return false;
    return true;
}

static void journal_load_end(struct engine *engine)
{
    int64_t workers = 0;
    bool complete = true;

    for (size_t i = 0; i < engine->load_count; i++) {
        if (!engine->loads[i].ended) /* how many ledgers it has is not known */
            workers = -1;
        else if (workers >= 0)
            workers += engine->loads[i].workers;
        complete = complete && engine->loads[i].ended && engine->loads[i].complete;
    }
    journal_event(engine->journal, "load.end",
                  json_pack("{s:s, s:I, s:b, s:O}", "node", engine->loads[0].node->name, "workers",
                            (json_int_t) workers, "complete", complete, "ledgers",
                            engine->ledgers));
}

enum status load_end(struct engine *engine, struct error *err)
{
    int64_t drain_ms = json_number(engine->scenario->workload, "drain", 0);

    if (engine->load_count == 0 || !engine->loads[0].running)
        return STATUS_OK;
    enum status status = on_each_load(engine, "load.stop", stop_params, err);
    if (status == STATUS_OK)
        status = cluster_wait(engine->cluster, all_ended, engine,
                              deadline_in_ms(drain_ms + STOP_MARGIN_MS), err);
    journal_load_end(engine);
    for (size_t i = 0; i < engine->load_count; i++)
        engine->loads[i].running = false;
    if (status != STATUS_OK)
        return error_context(err, "ending the load");
    return STATUS_OK;
}

enum status load_drop(struct engine *engine, struct error *err)
{
    json_t *params = engine_params(engine);

    if (!engine->prepared || engine->final_primary[0] == '\0') {
        json_decref(params);
        if (engine->prepared)
            return error_set(err, STATUS_NOT_FOUND, "there is no primary to drop them on");
        return STATUS_OK;
    }
    json_object_set_new(params, "drop", json_true());
    return cluster_call(engine->cluster, engine->final_primary, "load.prepare", params, PREPARE_MS,
                        NULL, err);
}
