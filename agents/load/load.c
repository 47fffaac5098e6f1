/* SPDX-License-Identifier: MIT */
#include "agents/load/load.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "agents/load/worker.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/owned.h"
#include "lib/process.h"

enum {
    STATUS_MS = 200,
    WINDOW = 5 /* states: rate and percentiles are those of the last second */
};

struct load_process {
    struct load *load;
    struct process process;
    struct worker_order order;
    loop_handle watch;
    bool ended;
};

struct load_state { /* of the workload at one instant */
    int64_t at_ns;
    uint64_t acked;
    struct histogram latency;
};

struct load {
    struct arena *arena;
    struct agent *agent;
    const char *spool;
    struct load_plan plan;
    struct load_shared *shared;
    struct load_process processes[LOAD_WORKERS_MAX];
    size_t started, alive;
    bool stopping, orphan;
    loop_handle status_timer, finish_timer;
    size_t state_count;
    struct load_state states[WINDOW + 1]; /* the oldest first */
    void (*on_end)(void *argument);
    void *argument;
};

static void free_load(struct load *load)
{
    loop_remove(agent_loop(load->agent), load->status_timer);
    loop_remove(agent_loop(load->agent), load->finish_timer);
    for (size_t i = 0; i < load->started; i++) {
        loop_remove(agent_loop(load->agent), load->processes[i].watch);
        process_kill(&load->processes[i].process);
        close(load->processes[i].order.control);
    }
    if (load->shared != NULL)
        munmap(load->shared, sizeof(*load->shared));
    arena_free(load->arena);
    free(load);
}

/* --- load.status ----------------------------------------------------------------------------- */

/* Workers that carry what is called the load: the workload or, without one, the endpoint's probes.
 */
static bool counts(const struct load *load, size_t worker)
{
    enum ledger_role first = load->plan.workers[0].groups[0].role;

    return load->plan.workers[worker].groups[0].role == first;
}

static const struct load_state *take_state(struct load *load)
{
    static struct histogram copy; /* large; the agent has one thread */

    if (load->state_count > WINDOW)
        memmove(load->states, load->states + 1, WINDOW * sizeof(load->states[0]));
    else
        load->state_count++;
    struct load_state *state = &load->states[load->state_count - 1];
    memset(state, 0, sizeof(*state));
    state->at_ns = clock_boot_ns();
    for (size_t i = 0; i < load->started; i++) {
        if (!counts(load, i))
            continue;
        state->acked += atomic_load(&load->shared->workers[i].acked);
        histogram_snapshot(&load->shared->workers[i].latency, &copy);
        histogram_merge(&state->latency, &copy);
    }
    return state;
}

struct load_sums {
    uint64_t errors;
    uint64_t writer;
    int64_t last_ack_ns, blind_ns;
    uint32_t in_flight;
};

static struct load_sums sum_up(const struct load *load)
{
    struct load_sums sums = {0};

    for (size_t i = 0; i < load->started; i++) {
        struct load_counters *counters = &load->shared->workers[i];
        int64_t last_ack_ns = atomic_load(&counters->last_ack_ns);
        int64_t blind_ns = atomic_load(&counters->blind_ns);
        if (last_ack_ns > sums.last_ack_ns) {
            sums.last_ack_ns = last_ack_ns;
            sums.writer = atomic_load(&counters->writer);
        }
        sums.blind_ns = blind_ns > sums.blind_ns ? blind_ns : sums.blind_ns;
        if (!counts(load, i))
            continue;
        sums.errors += atomic_load(&counters->errors);
        sums.in_flight += atomic_load(&counters->in_flight);
    }
    return sums;
}

static json_t *status_params(struct load *load)
{
    const struct load_state *now = take_state(load);
    const struct load_state *before = &load->states[0];
    struct load_sums sums = sum_up(load);
    double seconds = (double) (now->at_ns - before->at_ns) / (double) NS_PER_SECOND;
    double rate = seconds > 0 ? (double) (now->acked - before->acked) / seconds : 0;
    struct histogram window = now->latency;
    const char *writer = sums.writer != 0 ? load->plan.nodes[(sums.writer >> 32) - 1].name : NULL;

    histogram_subtract(&window, &before->latency);
    return json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:s?, s:I, s:I, s:I, s:I, s:I}", "now_ns",
                     (json_int_t) now->at_ns, "acked", (json_int_t) now->acked, "rate", rate,
                     "p50_us", (json_int_t) histogram_percentile(&window, 50), "p99_us",
                     (json_int_t) histogram_percentile(&window, 99), "last_ack_ns",
                     (json_int_t) sums.last_ack_ns, "writer", writer, "timeline",
                     (json_int_t) (sums.writer & UINT32_MAX), "in_flight",
                     (json_int_t) sums.in_flight, "errors", (json_int_t) sums.errors,
                     "workers_alive", (json_int_t) load->alive, "blind_ms",
                     (json_int_t) (sums.blind_ns / NS_PER_MS));
}

static void tell_status(void *argument)
{
    struct load *load = argument;

    if (!load->orphan)
        agent_notify(load->agent, "load.status", status_params(load));
}

/* --- load.ended ------------------------------------------------------------------------------ */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static json_t *ended_worker(const char *name, bool complete, const char *error)
{
    return json_pack("{s:s, s:b, s:s?}", "file", name, "complete", complete, "error",
                     complete ? NULL : error);
}

/* A ledger of an earlier agent: only the file itself can say whether it has an end. */
static json_t *ended_file(const char *spool, const char *client_node, unsigned number)
{
    char name[256];
    char path[4096];
    struct ledger ledger = {0};
    struct error err = {0};

    snprintf(name, sizeof(name), "%s-worker-%u.ledger", client_node, number);
    snprintf(path, sizeof(path), "%s/%s", spool, name);
    if (ledger_open(path, &ledger, &err) != STATUS_OK)
        return ended_worker(name, false, err.message);
    json_t *ended = ended_worker(name, ledger.ended, "the worker did not end in order");
    ledger_close(&ledger);
    return ended;
}

static const struct load_counters *own_worker(const struct load *load, unsigned number)
{
    for (size_t i = 0; load != NULL && i < load->started; i++)
        if (load->plan.workers[i].number == number)
            return &load->shared->workers[i];
    return NULL;
}

json_t *load_ended(const struct load *load, const char *spool, const char *client_node)
{
    json_t *ledgers = json_array();
    unsigned last = load_last_worker(spool, client_node);

    /* a worker that died before it made its ledger is missed, too */
    if (load != NULL && load->started > 0 && load->plan.workers[load->started - 1].number > last)
        last = load->plan.workers[load->started - 1].number;
    bool all = last > 0;

    for (unsigned number = 1; number <= last; number++) {
        const struct load_counters *counters = own_worker(load, number);
        json_t *ended;
        if (counters == NULL) {
            ended = ended_file(spool, client_node, number);
        } else {
            char name[256];
            snprintf(name, sizeof(name), "%s-worker-%u.ledger", client_node, number);
            ended = ended_worker(name, atomic_load(&counters->complete),
                                 counters->error[0] != '\0' ? counters->error
                                                            : "the worker was killed");
        }
        all = all && json_is_true(json_object_get(ended, "complete"));
        json_array_append_new(ledgers, ended);
    }
    return json_pack("{s:i, s:b, s:o}", "workers", (int) json_array_size(ledgers), "complete", all,
                     "ledgers", ledgers);
}

/* --- workers --------------------------------------------------------------------------------- */

static void finish_if_over(struct load *load)
{
    void (*on_end)(void *) = load->on_end;
    void *argument = load->argument;

    if (load->alive > 0 || !(load->stopping || load->orphan))
        return;
    if (!load->orphan)
        agent_notify(load->agent, "load.ended",
                     load_ended(load, load->spool, load->plan.client_node));
    free_load(load);
    on_end(argument);
}

static void on_worker_ended(void *argument, short events)
{
    struct load_process *process = argument;
    struct load *load = process->load;
    const struct load_worker_plan *plan = &load->plan.workers[process->order.index];
    const struct load_counters *counters = &load->shared->workers[process->order.index];
    int wait_status = 0;

    (void) events;
    loop_remove(agent_loop(load->agent), process->watch);
    if (process_reap(&process->process, deadline_in_ms(0), &wait_status, NULL) != STATUS_OK)
        process_kill(&process->process);
    process->ended = true;
    load->alive--;
    if (WIFSIGNALED(wait_status))
        log_line(LOG_WARNING, "load worker %u was ended by signal %d", plan->number,
                 WTERMSIG(wait_status));
    else if (counters->error[0] != '\0')
        log_line(LOG_WARNING, "load worker %u: %s", plan->number, counters->error);
    if (counters->problem[0] != '\0')
        log_line(LOG_WARNING, "load worker %u, connecting: %s", plan->number, counters->problem);
    finish_if_over(load);
}

static void poke(struct load *load)
{
    for (size_t i = 0; i < load->started; i++)
        if (!load->processes[i].ended)
            eventfd_write(load->processes[i].order.control, 1);
}

static enum status start_worker(struct load *load, size_t index, struct error *err)
{
    struct load_process *process = &load->processes[index];
    int control = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (control < 0)
        return error_system(err, "making an eventfd");
    process->load = load;
    process->order = (struct worker_order){
        .plan = &load->plan, .index = index, .shared = load->shared, .control = control};
    enum status status = process_fork(worker_main, &process->order, &process->process, err);
    if (status != STATUS_OK) {
        close(control);
        return error_context(err, "starting load worker %u", load->plan.workers[index].number);
    }
    load->started++;
    load->alive++;
    process->watch = loop_watch(agent_loop(load->agent), process->process.pidfd, POLLIN,
                                on_worker_ended, process);
    return STATUS_OK;
}

/* --- from session to plan -------------------------------------------------------------------- */

static enum status add_node(struct load *load, const struct session *session,
                            const struct fault_peer *peer, struct error *err)
{
    struct load_plan *plan = &load->plan;
    struct pg_target target = session_target(session, peer->address, SESSION_WORKLOAD);

    if (plan->node_count == LEDGER_NODES_MAX)
        return error_set(err, STATUS_INVALID, "a ledger holds at most %d nodes", LEDGER_NODES_MAX);
    if (strlen(peer->name) >= sizeof(((struct ledger_header *) NULL)->nodes[0]))
        return error_set(err, STATUS_INVALID, "node name %s is too long for a ledger", peer->name);
    target.application = "ordeal-load";
    plan->nodes[plan->node_count++] = (struct load_node){.name = peer->name, .target = target};
    return STATUS_OK;
}

/* The session may end before the last worker does: the load keeps what it needs of it. */
static void keep_texts(struct load *load)
{
    for (size_t i = 0; i < load->plan.node_count; i++) {
        struct load_node *node = &load->plan.nodes[i];
        node->name = arena_strdup(load->arena, node->name);
        node->target.host = arena_strdup(load->arena, node->target.host);
        node->target.database = arena_strdup(load->arena, node->target.database);
        node->target.user = arena_strdup(load->arena, node->target.user);
        if (node->target.password_file != NULL)
            node->target.password_file = arena_strdup(load->arena, node->target.password_file);
        if (node->target.ssl_root != NULL)
            node->target.ssl_root = arena_strdup(load->arena, node->target.ssl_root);
    }
}

static enum status plan_session(struct load *load, const struct session *session,
                                const struct load_request *request, struct error *err)
{
    struct load_plan *plan = &load->plan;
    enum status status = STATUS_OK;

    if (!session->has_database)
        return error_set(err, STATUS_INVALID, "the topology has no database to load");
    plan->run = arena_strdup(load->arena, session->run);
    plan->client_node = arena_strdup(load->arena, session->node);
    plan->managed = session->endpoint_managed;
    for (size_t i = 0; i < session->peer_count && status == STATUS_OK; i++)
        status = add_node(load, session, &session->peers[i], err);
    if (status != STATUS_OK)
        return status;
    keep_texts(load);
    for (size_t i = 0; i < session->endpoint_count; i++) {
        int node = load_plan_node(plan, session->endpoint[i].name);
        if (node < 0)
            return error_set(err, STATUS_INVALID, "endpoint host %s is no node",
                             session->endpoint[i].name);
        plan->endpoint[plan->endpoint_count++] = (uint16_t) node;
    }
    return load_plan_fill(plan, load->arena, request, load->spool, err);
}

static enum status make_shared(struct load *load, struct error *err)
{
    void *page = mmap(NULL, sizeof(*load->shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return error_system(err, "mapping the page of the load workers");
    load->shared = page;
    atomic_store(&load->shared->route, load->plan.route);
    return STATUS_OK;
}

enum status load_start(struct agent *agent, const struct session *session,
                       const struct load_request *request, void (*on_end)(void *argument),
                       void *argument, struct load **ret_load, struct error *err)
{
    struct load *load = calloc(1, sizeof(*load));

    if (load == NULL)
        abort();
    load->arena = arena_new();
    load->agent = agent;
    load->on_end = on_end;
    load->argument = argument;
    load->spool = arena_strdup(load->arena, session->spool);
    enum status status = plan_session(load, session, request, err);
    if (status == STATUS_OK)
        status = make_shared(load, err);
    for (size_t i = 0; status == STATUS_OK && i < load->plan.worker_count; i++)
        status = start_worker(load, i, err);
    if (status != STATUS_OK) {
        free_load(load);
        return status;
    }
    load->status_timer = loop_every(agent_loop(agent), STATUS_MS, tell_status, load);
    *ret_load = load;
    return STATUS_OK;
}

json_t *load_files(const struct load *load)
{
    json_t *files = json_array();

    for (size_t i = 0; i < load->plan.worker_count; i++)
        json_array_append_new(files, json_string(base_name(load->plan.workers[i].path)));
    return files;
}

/* --- orders ---------------------------------------------------------------------------------- */

enum status load_route(struct load *load, const char *host, struct error *err)
{
    int node = host != NULL ? load_plan_node(&load->plan, host) : LOAD_ROUTE_CLOSED;

    if (host != NULL && node < 0)
        return error_set(err, STATUS_INVALID, "no node %s in this topology", host);
    atomic_store(&load->shared->routed_ns, clock_boot_ns());
    atomic_store(&load->shared->route, node);
    poke(load);
    return STATUS_OK;
}

static void order_stop(struct load *load, int64_t drain_ms)
{
    atomic_store(&load->shared->stop_ns, deadline_in_ms(drain_ms));
    poke(load);
}

/* The answer to load.stop goes out before the notification, also when no worker is left. */
static void finish_later(void *argument)
{
    finish_if_over(argument);
}

void load_stop(struct load *load)
{
    if (load->stopping)
        return;
    load->stopping = true;
    order_stop(load, load->plan.drain_ms);
    if (load->alive == 0)
        load->finish_timer = loop_at(agent_loop(load->agent), clock_boot_ns(), finish_later, load);
}

void load_orphan(struct load *load)
{
    enum { ORPHAN_DRAIN_MS = 1000 };

    load->orphan = true;
    loop_remove(agent_loop(load->agent), load->status_timer);
    order_stop(load, ORPHAN_DRAIN_MS);
    finish_if_over(load);
}

bool load_is_orphan(const struct load *load)
{
    return load->orphan;
}

void load_kill(struct load *load)
{
    free_load(load);
}
