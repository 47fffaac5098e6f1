/* SPDX-License-Identifier: MIT */
#include "topologies/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "lib/tls.h"
#include "topologies/cluster_link.h"

enum {
    LEASE_MS = 5000,
    HEARTBEAT_MS = 500,
    HANDSHAKE_MS = 3000,
    RETRY_MS = 300,
    OPEN_MS = 5000,
    CLOSE_MS = 2000,
    SILENCE_MS = 3000, /* without an answer to a heartbeat: dial again */
    QUICK_BEATS = 5,
    DRIFT_PPM = 50 /* two undisciplined crystals differ by no more */
};

struct link *cluster_link(const struct cluster *cluster, const char *node)
{
    for (size_t i = 0; i < cluster->count; i++)
        if (strcmp(cluster->links[i].node->name, node) == 0)
            return &cluster->links[i];
    return NULL;
}

/* ---- clocks ---- */

/* An estimate grows old: its error now is what it was plus what two clocks may have drifted. */
static int64_t aged_error_ns(const struct link *link, int64_t now_ns)
{
    return link->error_ns + (now_ns - link->estimated_ns) / 1000000 * DRIFT_PPM;
}

/*
 * The node answered `boot_ns` at some instant between sent and received; the middle is wrong by at
 * most half of the round trip.
 */
static void estimate_clock(struct link *link, int64_t sent_ns, int64_t received_ns, int64_t boot_ns)
{
    const struct cluster_events *events = &link->cluster->options.events;
    int64_t error_ns = (received_ns - sent_ns) / 2 + 1;

    if (link->clock_known && error_ns >= aged_error_ns(link, received_ns))
        return;
    link->clock_known = true;
    link->offset_ns = boot_ns - (sent_ns + (received_ns - sent_ns) / 2);
    link->error_ns = error_ns;
    link->estimated_ns = received_ns;
    if (events->clock != NULL)
        events->clock(link->cluster->options.argument, link->node, link->offset_ns, error_ns);
}

enum status cluster_clock(const struct cluster *cluster, const char *node, int64_t *ret_offset_ns,
                          int64_t *ret_error_ns, struct error *err)
{
    const struct link *link = cluster_link(cluster, node);

    if (link == NULL || !link->clock_known)
        return error_set(err, STATUS_NOT_FOUND, "no estimate of the clock of %s", node);
    *ret_offset_ns = link->offset_ns;
    *ret_error_ns = aged_error_ns(link, clock_boot_ns());
    return STATUS_OK;
}

/* ---- heartbeats ---- */

static void send_beat(struct link *link);

static void on_beat(void *argument, enum status status, const json_t *result,
                    const struct error *error)
{
    struct link *link = argument;

    link->beating = false;
    link->silent_beats = 0;
    if (status != STATUS_OK) {
        if (link->state == LINK_READY && status != STATUS_UNREACHABLE)
            link_lost(link, error);
        return;
    }
    int64_t boot_ns = json_number(result, "boot_ns", 0);
    if (boot_ns != 0)
        estimate_clock(link, link->beat_sent_ns, clock_boot_ns(), boot_ns);
    if (link->quick_beats > 0 && link->state == LINK_READY) {
        link->quick_beats--;
        send_beat(link);
    }
}

static void send_beat(struct link *link)
{
    const struct cluster_options *options = &link->cluster->options;
    json_t *params =
        json_pack("{s:s, s:I}", "run", options->run, "lease_ms", (json_int_t) options->lease_ms);

    link->beating = true;
    link->silent_beats = 0;
    link->beat_sent_ns = clock_boot_ns();
    link_request(link, "heartbeat", params, 10 * SILENCE_MS, on_beat, link);
}

/*
 * Silence is counted in heartbeats that became due, not in time: when this process itself was held
 * up, the answer may lie unread in the socket.
 */
static void beat_all(void *argument)
{
    struct cluster *cluster = argument;

    for (size_t i = 0; i < cluster->count; i++) {
        struct link *link = &cluster->links[i];

        if (link->state != LINK_READY)
            continue;
        if (!link->beating) {
            send_beat(link);
        } else if (++link->silent_beats * cluster->options.heartbeat_ms >= SILENCE_MS) {
            struct error silent = {0};

            error_set(&silent, STATUS_UNREACHABLE, "no answer to a heartbeat for %d ms",
                      SILENCE_MS);
            link_lost(link, &silent);
        }
    }
}

/* ---- opening a session ---- */

static void dial(void *argument);

static void link_ready(struct link *link)
{
    const struct cluster_events *events = &link->cluster->options.events;

    link->state = LINK_READY;
    error_clear(&link->reason);
    if (!link->cluster->options.no_session) {
        link->quick_beats = QUICK_BEATS;
        send_beat(link);
    }
    if (events->connection != NULL)
        events->connection(link->cluster->options.argument, link->node, true, NULL);
}

static void on_session(void *argument, enum status status, const json_t *result,
                       const struct error *error)
{
    struct link *link = argument;

    (void) result;
    if (link->state != LINK_OPENING)
        return;
    if (status == STATUS_OK)
        link_ready(link);
    else
        link_lost(link, error);
}

static enum status check_hello(struct link *link, const json_t *result, struct error *err)
{
    const char *node = json_text(result, "node", "");
    const char *boot_id = json_text(result, "boot_id", "");

    if (strcmp(node, link->node->name) != 0)
        return error_set(err, STATUS_PROTOCOL, "the agent there calls itself \"%s\"", node);
    if (json_number(result, "protocol", 0) != RPC_PROTOCOL) {
        error_set(err, STATUS_PROTOCOL, "the agent speaks protocol %" PRId64 ", not %d",
                  json_number(result, "protocol", 0), RPC_PROTOCOL);
        error_hint(err, "Install the same version of ordeal and ordeald.");
        return STATUS_PROTOCOL;
    }
    if (strcmp(boot_id, link->boot_id) != 0) {
        link->clock_known = false;
        snprintf(link->boot_id, sizeof link->boot_id, "%s", boot_id);
    }
    return STATUS_OK;
}

static void on_hello(void *argument, enum status status, const json_t *result,
                     const struct error *error)
{
    struct link *link = argument;
    const struct cluster *cluster = link->cluster;
    struct error wrong = {0};

    if (link->state != LINK_OPENING)
        return;
    if (status != STATUS_OK || check_hello(link, result, &wrong) != STATUS_OK) {
        link_lost(link, status != STATUS_OK ? error : &wrong);
        return;
    }
    if (cluster->options.no_session) {
        link_ready(link);
        return;
    }
    json_t *params = topology_session(cluster->topology, link->node, cluster->options.run,
                                      cluster->options.lease_ms);
    link_request(link, "session.open", params, OPEN_MS, on_session, link);
}

/* ---- the connection ---- */

static void on_ready(void *argument, struct rpc *rpc)
{
    struct link *link = argument;

    (void) rpc;
    link->state = LINK_OPENING;
    link_request(link, "hello", json_pack("{s:i}", "protocol", RPC_PROTOCOL), OPEN_MS, on_hello,
                 link);
}

static void on_message(void *argument, struct rpc *rpc, json_t *message)
{
    struct link *link = argument;
    const struct cluster_options *options = &link->cluster->options;

    (void) rpc;
    if (link_answer(link, message))
        return;
    const char *method = json_text(message, "method", NULL);
    if (method != NULL && options->events.notification != NULL)
        options->events.notification(options->argument, link->node, method,
                                     json_object_get(message, "params"));
}

static void on_closed(void *argument, struct rpc *rpc, const struct error *reason)
{
    (void) rpc;
    link_lost(argument, reason);
}

static const struct rpc_events link_events = {
    .ready = on_ready, .message = on_message, .closed = on_closed};

void link_lost(struct link *link, const struct error *reason)
{
    struct cluster *cluster = link->cluster;
    enum link_state before = link->state;
    struct error why = *reason; /* it may lie in what is freed now */

    rpc_free(link->rpc);
    link->rpc = NULL;
    link->beating = false;
    if (before != LINK_CLOSED) {
        link->state = LINK_WAITING;
        loop_remove(cluster->loop, link->retry);
        link->retry = loop_at(cluster->loop, clock_boot_ns() + RETRY_MS * NS_PER_MS, dial, link);
    }
    link->reason = why;
    link_fail_requests(link, &why);
    if (before == LINK_READY && cluster->options.events.connection != NULL)
        cluster->options.events.connection(cluster->options.argument, link->node, false, &why);
}

/* A socket belongs to the network namespace in which it was made. */
static enum status dial_inside(struct cluster *cluster, const struct topology_node *node,
                               int *ret_fd, struct error *err)
{
    if (cluster->network >= 0 && setns(cluster->network, CLONE_NEWNET) != 0)
        return error_system(err, "entering the network namespace %s",
                            cluster->topology->control.network_namespace);
    enum status status = rpc_dial(node->address, (int) node->agent_port, ret_fd, err);
    if (cluster->network >= 0 && setns(cluster->own_network, CLONE_NEWNET) != 0) {
        if (status == STATUS_OK)
            close(*ret_fd);
        return error_system(err, "returning to our network namespace");
    }
    return status;
}

static void dial(void *argument)
{
    struct link *link = argument;
    struct cluster *cluster = link->cluster;
    struct error error = {0};
    int fd = -1;

    link->retry = 0;
    link->state = LINK_DIALLING;
    if (dial_inside(cluster, link->node, &fd, &error) != STATUS_OK) {
        link_lost(link, &error);
    } else if (rpc_new(cluster->loop, cluster->tls, fd, false, link->node->name, HANDSHAKE_MS,
                       &link_events, link, &link->rpc, &error) != STATUS_OK) {
        close(fd);
        link_lost(link, &error);
    }
}

/* ---- life ---- */

static enum status open_namespaces(struct cluster *cluster, struct error *err)
{
    const char *path = cluster->topology->control.network_namespace;

    if (path == NULL)
        return STATUS_OK;
    cluster->network = open(path, O_RDONLY | O_CLOEXEC);
    if (cluster->network < 0) {
        enum status status = error_system(err, "opening the network namespace %s", path);
        error_hint(err, "Is the lab up? Its namespace goes with it.");
        return status;
    }
    cluster->own_network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (cluster->own_network < 0)
        return error_system(err, "opening /proc/self/ns/net");
    return STATUS_OK;
}

static enum status open_all(struct cluster *cluster, struct error *err)
{
    const struct topology *topology = cluster->topology;
    struct tls_files files = {.ca = topology->control.ca,
                              .certificate = topology->control.certificate,
                              .key = topology->control.key};
    enum status status = open_namespaces(cluster, err);

    if (status == STATUS_OK)
        status = tls_context(TLS_ORCHESTRATOR, &files, &cluster->tls, err);
    if (status == STATUS_OK)
        status = loop_new(&cluster->loop, err);
    return status;
}

static void make_links(struct cluster *cluster)
{
    cluster->count = cluster->topology->node_count;
    cluster->links = arena_array(cluster->arena, cluster->count, sizeof *cluster->links);
    for (size_t i = 0; i < cluster->count; i++) {
        struct link *link = &cluster->links[i];

        link->cluster = cluster;
        link->node = &cluster->topology->nodes[i];
        error_set(&link->reason, STATUS_UNREACHABLE, "not connected yet");
        link->retry = loop_at(cluster->loop, clock_boot_ns(), dial, link);
    }
    if (!cluster->options.no_session)
        cluster->beat = loop_every(cluster->loop, cluster->options.heartbeat_ms, beat_all, cluster);
}

static void release(struct cluster *cluster)
{
    for (size_t i = 0; i < cluster->count; i++)
        rpc_free(cluster->links[i].rpc);
    loop_free(cluster->loop);
    SSL_CTX_free(cluster->tls);
    if (cluster->network >= 0)
        close(cluster->network);
    if (cluster->own_network >= 0)
        close(cluster->own_network);
    arena_free(cluster->arena);
}

enum status cluster_new(const struct topology *topology, const struct cluster_options *options,
                        struct cluster **ret_cluster, struct error *err)
{
    struct arena *arena = arena_new();
    struct cluster *cluster = arena_alloc(arena, sizeof *cluster);

    cluster->arena = arena;
    cluster->topology = topology;
    cluster->options = *options;
    cluster->options.run = arena_strdup(arena, options->run);
    cluster->network = cluster->own_network = -1;
    if (cluster->options.lease_ms == 0)
        cluster->options.lease_ms = LEASE_MS;
    if (cluster->options.heartbeat_ms == 0)
        cluster->options.heartbeat_ms = HEARTBEAT_MS;
    enum status status = open_all(cluster, err);
    if (status != STATUS_OK) {
        release(cluster);
        return error_context(err, "connecting to topology %s", topology->name);
    }
    make_links(cluster);
    *ret_cluster = cluster;
    return STATUS_OK;
}

static bool none_open(void *argument)
{
    const struct cluster *cluster = argument;

    for (size_t i = 0; i < cluster->count; i++)
        if (cluster->links[i].state == LINK_READY)
            return false;
    return true;
}

static void close_done(void *argument, enum status status, const json_t *result,
                       const struct error *error)
{
    struct link *link = argument;

    (void) status;
    (void) result;
    (void) error;
    link->state = LINK_CLOSED;
}

static void close_sessions(struct cluster *cluster)
{
    struct error ignored = {0};

    cluster_shield(cluster);
    if (cluster->options.no_session)
        return;
    for (size_t i = 0; i < cluster->count; i++) {
        json_t *params;

        if (cluster->links[i].state != LINK_READY)
            continue;
        params = json_pack("{s:s, s:b}", "run", cluster->options.run, "purge", false);
        link_request(&cluster->links[i], "session.close", params, CLOSE_MS, close_done,
                     &cluster->links[i]);
    }
    /* a session that did not close lapses with its lease */
    if (cluster_wait(cluster, none_open, cluster, deadline_in_ms(CLOSE_MS), &ignored) != STATUS_OK)
        error_clear(&ignored);
}

void cluster_free(struct cluster *cluster)
{
    struct error over = {0};

    if (cluster == NULL)
        return;
    close_sessions(cluster);
    error_set(&over, STATUS_ABORTED, "the cluster's connections are closed");
    cluster->options.events = (struct cluster_events){0};
    for (size_t i = 0; i < cluster->count; i++)
        link_fail_requests(&cluster->links[i], &over);
    release(cluster);
}

struct loop *cluster_loop(struct cluster *cluster)
{
    return cluster->loop;
}

const char *cluster_run(const struct cluster *cluster)
{
    return cluster->options.run;
}

bool cluster_connected(const struct cluster *cluster, const char *node)
{
    const struct link *link = cluster_link(cluster, node);

    return link != NULL && link->state == LINK_READY;
}

/* ---- waiting for connections ---- */

struct connect_wait {
    const struct cluster *cluster;
    const char *node; /* NULL: all */
    bool hopeless;    /* one was refused in a way that another attempt will not change */
};

static bool concerns(const struct connect_wait *wait, const struct link *link)
{
    return wait->node == NULL || strcmp(link->node->name, wait->node) == 0;
}

/* Another attempt will not change these. */
static bool is_final(enum status code)
{
    return code == STATUS_REFUSED || code == STATUS_PROTOCOL || code == STATUS_CONFLICT ||
           code == STATUS_INVALID;
}

static bool connect_over(void *argument)
{
    struct connect_wait *wait = argument;
    bool all = true;

    for (size_t i = 0; i < wait->cluster->count; i++) {
        const struct link *link = &wait->cluster->links[i];

        if (!concerns(wait, link) || link->state == LINK_READY)
            continue;
        all = false;
        if (link->state == LINK_WAITING && is_final(link->reason.code))
            wait->hopeless = true;
    }
    return all || wait->hopeless;
}

static enum status say_missing(const struct connect_wait *wait, struct error *err)
{
    OWNED_BUFFER struct buffer text = BUFFER(sizeof err->message);
    const struct link *first = NULL;

    for (size_t i = 0; i < wait->cluster->count; i++) {
        const struct link *link = &wait->cluster->links[i];

        if (!concerns(wait, link) || link->state == LINK_READY ||
            (wait->hopeless && !is_final(link->reason.code)))
            continue; /* those that were only late do not matter beside one that refused */
        buffer_printf(&text, "%s%s at %s:%" PRId64 ": %s", first != NULL ? "; " : "",
                      link->node->name, link->node->address, link->node->agent_port,
                      link->reason.message);
        if (first == NULL || is_final(link->reason.code))
            first = link;
    }
    if (first == NULL)
        return error_set(err, STATUS_NOT_FOUND, "unknown node %s", wait->node);
    enum status code = is_final(first->reason.code) ? first->reason.code : STATUS_UNREACHABLE;
    error_set(err, code, "no session with %s", buffer_text(&text));
    error_hint(err, "%s",
               first->reason.hint[0] != '\0'
                   ? first->reason.hint
                   : "Is ordeald running there, and does the topology file name its address?");
    return code;
}

enum status cluster_wait_connected(struct cluster *cluster, const char *node, int64_t deadline_ns,
                                   struct error *err)
{
    struct connect_wait wait = {.cluster = cluster, .node = node};

    if (node != NULL && cluster_link(cluster, node) == NULL)
        return error_set(err, STATUS_NOT_FOUND, "unknown node %s", node);
    enum status status = cluster_wait(cluster, connect_over, &wait, deadline_ns, err);
    if (status == STATUS_TIMEOUT || wait.hopeless)
        return say_missing(&wait, err);
    return status;
}
