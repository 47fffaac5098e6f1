/* SPDX-License-Identifier: MIT */
#include "agents/load/plan.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "lib/param.h"

enum {
    PROBE_PAYLOAD = 8,
    NEW_INTERVAL_MS = 100, /* endpoint: a new connection this often, */
    NEW_SLOTS = 8,         /* at most so many at once */
    DIRECT_NEW_INTERVAL_MS = 1000,
    DIRECT_NEW_SLOTS = 5 /* so that a connection may take its whole second */
};

static const struct param workload_params[] = {
    {"kind", PARAM_CHOICE, .choices = "ledger", .fallback = "ledger", .help = "what it does"},
    {"clients", PARAM_INTEGER, .fallback = "16", .minimum = 1, .maximum = LOAD_CLIENTS_MAX,
     .help = "connections that write at the same time"},
    {"rate", PARAM_RATE, .fallback = "100/s", .minimum = 0, .maximum = 1000000,
     .help = "transactions a second of all clients; 0: as many as possible"},
    {"rows", PARAM_INTEGER, .fallback = "1", .minimum = 1, .maximum = 1000,
     .help = "rows that a transaction inserts"},
    {"payload", PARAM_SIZE, .fallback = "64B", .minimum = 0, .maximum = 1048576,
     .help = "bytes of text in a row"},
    {"first_client", PARAM_INTEGER, .fallback = "1", .minimum = 1,
     .maximum = LOAD_FIRST_PROBE - LOAD_CLIENTS_MAX, .help = "number of the first client"},
    {"drain", PARAM_DURATION, .fallback = "5s", .minimum = 0, .maximum = 600000,
     .help = "at the end, how long to wait for what is in flight"},
    {"commit_timeout", PARAM_DURATION, .fallback = "10s", .minimum = 100, .maximum = 3600000,
     .help = "a commit without an answer is left, in doubt, after this"},
    {0}};

static const struct param probe_params[] = {
    {"interval_ms", PARAM_INTEGER, .fallback = "4", .minimum = 1, .maximum = 60000,
     .help = "a write through the endpoint this often"},
    {"connections", PARAM_INTEGER, .fallback = "8", .minimum = 1, .maximum = 64,
     .help = "warm connections to each host, which share these writes"},
    {"direct_interval_ms", PARAM_INTEGER, .fallback = "20", .minimum = 1, .maximum = 60000,
     .help = "a write to each database node this often"},
    {"first_client", PARAM_INTEGER, .fallback = "1000000", .minimum = LOAD_FIRST_PROBE,
     .maximum = 2000000000, .help = "number of the first probe"},
    {"nodes", PARAM_NODES, .help = "database nodes to write to directly; absent: the endpoint's"},
    {0}};

static enum status complete(const char *what, const struct param *params, const json_t *given,
                            struct arena *arena, json_t **ret_values, struct error *err)
{
    json_t *values = json_deep_copy(given);

    arena_adopt(arena, values, (void (*)(void *)) json_decref);
    if (param_complete(params, values, err) != STATUS_OK)
        return error_context(err, "%s", what);
    *ret_values = values;
    return STATUS_OK;
}

int load_plan_node(const struct load_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->node_count; i++)
        if (strcmp(plan->nodes[i].name, name) == 0)
            return (int) i;
    return -1;
}

static double per_second(int64_t interval_ms)
{
    return 1000.0 / (double) interval_ms;
}

/* --- workload -------------------------------------------------------------------------------- */

static struct load_worker_plan *add_worker(struct load_plan *plan)
{
    return &plan->workers[plan->worker_count++];
}

static enum status plan_workload(struct load_plan *plan, const json_t *values, struct error *err)
{
    struct load_group group = {.role = LEDGER_WORKLOAD,
                               .of = (size_t) json_number(values, "clients", 0),
                               .rate = json_number_value(json_object_get(values, "rate")),
                               .rows = (unsigned) json_number(values, "rows", 0),
                               .payload = (unsigned) json_number(values, "payload", 0),
                               .node = -1};
    uint32_t first = (uint32_t) json_number(values, "first_client", 0);

    if ((uint64_t) group.rows * (group.payload + 128) > LOAD_STATEMENT_MAX)
        return error_set(err, STATUS_INVALID,
                         "workload: %u rows of %u bytes make a statement of more than %d bytes",
                         group.rows, group.payload, LOAD_STATEMENT_MAX);
    plan->drain_ms = json_number(values, "drain", 0);
    plan->commit_timeout_ms = json_number(values, "commit_timeout", 0);
    while (group.offset < group.of) {
        size_t left = group.of - group.offset;
        group.clients = left < LOAD_CLIENTS_PER_WORKER ? left : LOAD_CLIENTS_PER_WORKER;
        group.first_client = first + (uint32_t) group.offset;
        struct load_worker_plan *worker = add_worker(plan);
        worker->group_count = 1;
        worker->groups[0] = group;
        group.offset += group.clients;
    }
    return STATUS_OK;
}

/* --- probes ---------------------------------------------------------------------------------- */

static void add_probe(struct load_worker_plan *worker, struct load_group group, uint32_t *next)
{
    group.first_client = *next;
    group.of = group.clients;
    group.rows = 1;
    group.payload = PROBE_PAYLOAD;
    *next += (uint32_t) group.clients;
    worker->groups[worker->group_count++] = group;
}

static void plan_direct(struct load_worker_plan *kept, struct load_worker_plan *made, int node,
                        int64_t interval_ms, uint32_t *next)
{
    struct load_group group = {
        .role = LEDGER_DIRECT, .clients = 1, .rate = per_second(interval_ms), .node = node};

    add_probe(kept, group, next);
    group.clients = DIRECT_NEW_SLOTS;
    group.rate = per_second(DIRECT_NEW_INTERVAL_MS);
    group.one_shot = true;
    add_probe(made, group, next);
}

/* The ticks come first: a moved endpoint is theirs to see before anybody connects to it. */
static void plan_warm(const struct load_plan *plan, struct load_worker_plan *warm,
                      const json_t *values, uint32_t *next)
{
    struct load_group group = {.role = LEDGER_ENDPOINT_OLD,
                               .pace = LOAD_TICK,
                               .clients = 1,
                               .rate = per_second(json_number(values, "interval_ms", 0)),
                               .node = -1};

    add_probe(warm, group, next);
    group.pace = LOAD_WARM;
    group.rate = 0;
    group.clients = (size_t) json_number(values, "connections", 0);
    for (size_t i = 0; i < plan->endpoint_count; i++) {
        group.node = plan->endpoint[i];
        add_probe(warm, group, next);
    }
}

static enum status plan_probes(struct load_plan *plan, const json_t *values, unsigned last_worker,
                               struct error *err)
{
    /* tokens of an earlier start of the same run are never used again */
    uint32_t next =
        (uint32_t) json_number(values, "first_client", 0) + last_worker * LOAD_PROBES_PER_START;
    struct load_worker_plan *warm = add_worker(plan);
    struct load_worker_plan *kept = add_worker(plan);
    struct load_worker_plan *made = add_worker(plan);
    int64_t interval_ms = json_number(values, "direct_interval_ms", 0);
    const json_t *nodes = json_object_get(values, "nodes");

    plan_warm(plan, warm, values, &next);
    add_probe(made,
              (struct load_group){.role = LEDGER_ENDPOINT_NEW,
                                  .clients = NEW_SLOTS,
                                  .rate = per_second(NEW_INTERVAL_MS),
                                  .node = -1,
                                  .one_shot = true},
              &next);
    for (size_t i = 0; nodes == NULL && i < plan->endpoint_count; i++)
        plan_direct(kept, made, plan->endpoint[i], interval_ms, &next);
    for (size_t i = 0; i < json_array_size(nodes) && i < LEDGER_NODES_MAX; i++) {
        const char *name = json_string_value(json_array_get(nodes, i));
        int node = load_plan_node(plan, name);
        if (node < 0)
            return error_set(err, STATUS_INVALID, "probes: no node %s in this topology", name);
        plan_direct(kept, made, node, interval_ms, &next);
    }
    return STATUS_OK;
}

/* --- files and the whole --------------------------------------------------------------------- */

/* N of "NODE-worker-N.ledger", 0 for every other name. */
static unsigned worker_of(const char *name, const char *client_node)
{
    static const char middle[] = "-worker-";
    size_t length = strlen(client_node);
    char *end;

    if (strncmp(name, client_node, length) != 0 ||
        strncmp(name + length, middle, sizeof(middle) - 1) != 0)
        return 0;
    unsigned long number = strtoul(name + length + sizeof(middle) - 1, &end, 10);
    return strcmp(end, ".ledger") == 0 && number <= UINT16_MAX ? (unsigned) number : 0;
}

unsigned load_last_worker(const char *spool, const char *client_node)
{
    OWNED_DIR DIR *dir = opendir(spool);
    unsigned last = 0;

    if (dir == NULL)
        return 0;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        unsigned number = worker_of(entry->d_name, client_node);
        last = number > last ? number : last;
    }
    return last;
}

static enum status plan_route(struct load_plan *plan, const json_t *route, struct error *err)
{
    const char *host = NULL;
    int open = 0;

    plan->route = LOAD_ROUTE_CLOSED;
    if (route == NULL)
        return STATUS_OK;
    if (json_read(route, "route", err, "{s:b, s?s !}", "open", &open, "host", &host) != STATUS_OK)
        return STATUS_INVALID;
    if (!open)
        return STATUS_OK;
    plan->route = host != NULL ? load_plan_node(plan, host) : -1;
    if (plan->route < 0)
        return error_set(err, STATUS_INVALID, "route: no node %s in this topology",
                         host != NULL ? host : "(none named)");
    return STATUS_OK;
}

enum status load_plan_fill(struct load_plan *plan, struct arena *arena,
                           const struct load_request *request, const char *spool, struct error *err)
{
    unsigned last = load_last_worker(spool, plan->client_node);
    enum status status = plan_route(plan, request->route, err);
    json_t *values = NULL;

    plan->seed = request->seed;
    plan->drain_ms = 5000;
    plan->commit_timeout_ms = 10000;
    if (plan->endpoint_count == 0)
        return error_set(err, STATUS_INVALID, "the topology has no endpoint to write to");
    if (status == STATUS_OK && request->workload != NULL) {
        status = complete("workload", workload_params, request->workload, arena, &values, err);
        if (status == STATUS_OK)
            status = plan_workload(plan, values, err);
    }
    if (status == STATUS_OK && request->probes != NULL) {
        status = complete("probes", probe_params, request->probes, arena, &values, err);
        if (status == STATUS_OK)
            status = plan_probes(plan, values, last, err);
    }
    if (status == STATUS_OK && plan->worker_count == 0)
        status = error_set(err, STATUS_INVALID, "neither a workload nor probes to start");
    for (size_t i = 0; status == STATUS_OK && i < plan->worker_count; i++) {
        plan->workers[i].number = last + 1 + (unsigned) i;
        plan->workers[i].path = arena_printf(arena, "%s/%s-worker-%u.ledger", spool,
                                             plan->client_node, plan->workers[i].number);
    }
    return status;
}
