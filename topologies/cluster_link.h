/* SPDX-License-Identifier: MIT */
/*
 * Insides of the cluster, shared by cluster.c (connections, sessions, heartbeats, clocks) and
 * cluster_call.c (requests and who waits for them). Nobody else includes this.
 */
#ifndef ORDEAL_TOPOLOGIES_CLUSTER_LINK_H
#define ORDEAL_TOPOLOGIES_CLUSTER_LINK_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "lib/arena.h"
#include "lib/clock.h"
#include "lib/rpc.h"
#include "topologies/cluster.h"

enum link_state {
    LINK_WAITING, /* for the next attempt */
    LINK_DIALLING,
    LINK_OPENING, /* hello and session.open */
    LINK_READY,
    LINK_CLOSED /* session.close was answered: no heartbeats, no new attempt */
};

typedef void request_done(void *argument, enum status status, const json_t *result,
                          const struct error *error);

/* One request that has no answer yet. */
struct pending {
    struct pending *next;
    struct link *link;
    int64_t id, job; /* job: 0 until the agent has named one */
    char *method;
    int64_t timeout_ms;
    loop_handle timer;
    bool unsent; /* never went out: the timer tells the caller */
    request_done *done;
    void *argument;
};

struct link {
    struct cluster *cluster;
    const struct topology_node *node;
    enum link_state state;
    struct rpc *rpc;
    loop_handle retry;
    struct error reason; /* why it is not connected */
    bool beating;        /* a heartbeat is under way */
    int silent_beats;    /* heartbeats that became due since it was sent */
    int64_t beat_sent_ns;
    int quick_beats; /* left to send at once, for a first estimate of the clock */
    char boot_id[BOOT_ID_SIZE];
    bool clock_known;
    int64_t offset_ns, error_ns, estimated_ns;
};

struct cluster {
    struct arena *arena; /* owns this */
    const struct topology *topology;
    struct cluster_options options;
    struct loop *loop;
    SSL_CTX *tls;
    int own_network, network; /* namespaces: ours and the topology's, or -1 */
    size_t count;
    struct link *links;
    struct pending *pending;
    int64_t last_id;
    loop_handle beat;
    bool turning; /* inside the loop: a blocking call would nest */
    bool aborted, shielded;
    struct error reason; /* of the abort */
};

struct link *cluster_link(const struct cluster *cluster, const char *node);
/* Send on this link whatever its state; calls `done` once, later. */
void link_request(struct link *link, const char *method, json_t *params, int64_t timeout_ms,
                  request_done *done, void *argument);
/* A response or job.done; false when the message is something else. */
bool link_answer(struct link *link, const json_t *message);
/* Everything that waits for this link fails with this reason. */
void link_fail_requests(struct link *link, const struct error *reason);
/* The connection is over or unusable; another attempt follows unless the session was closed. */
void link_lost(struct link *link, const struct error *reason);

#endif
