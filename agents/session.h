/* SPDX-License-Identifier: MIT */
/*
 * What an agent knows of the run that it serves: the parameters of session.open (docs/formats.md),
 * checked and kept for the time of the session. Methods read it; only session.open changes it.
 */
#ifndef ORDEAL_AGENTS_SESSION_H
#define ORDEAL_AGENTS_SESSION_H

#include <jansson.h>
#include <stdint.h>

#include "faults/fault.h"
#include "lib/arena.h"
#include "lib/error.h"
#include "lib/pg.h"

enum { LEASE_MIN_MS = 500, LEASE_MAX_MS = 60000 }; /* of session.open and heartbeat */

struct session_database {
    int version, port;
    const char *data, *bin;                 /* data folder; folder of the server's programs */
    const char *owner;                      /* user that owns the data folder (looked up) */
    const char *const *start, *const *stop; /* argv arrays, or NULL: pg_ctl of bin */
    const char *cgroup;                     /* group in which the server is started, or NULL */
    const char *superuser, *superuser_password_file, *superuser_database; /* NULL: "postgres" */
    const char *workload, *workload_password_file, *workload_database;
    const char *replication, *replication_password_file;
    const char *ssl_root; /* CA file, or NULL */
};

struct session {
    struct arena *arena; /* owns everything below */
    const char *run;
    const char *node, *address; /* this node */
    const json_t *volumes;      /* under test here: name to path; NULL: none */
    int64_t lease_ms;
    const char *spool; /* folder of this run on this node, exists */
    size_t peer_count;
    const struct fault_peer *peers; /* every node, this one included */
    bool has_database;              /* this topology has a database section */
    bool is_database;               /* and this node serves one */
    struct session_database database;
    size_t endpoint_count;
    const struct fault_peer *endpoint; /* hosts of the endpoint, in order */
    bool endpoint_managed;
    const char *const *power_off, *const *power_cut, *const *power_on; /* or NULL */
    const char *control_address; /* the orchestrator's end of the connection */
    int control_port;            /* the agent's listening port */
};

/* Parse and check; STATUS_INVALID names the member. Creates the spool below state_folder. */
MUST_CHECK enum status session_new(const char *state_folder, const json_t *params,
                                   struct session **ret_session, struct error *err);
void session_free(struct session *session);
/* Connection target for a node of the session as superuser, workload user or replication user. */
enum session_user { SESSION_SUPERUSER, SESSION_WORKLOAD, SESSION_REPLICATION };
struct pg_target session_target(const struct session *session, const char *address,
                                enum session_user user);
const struct fault_peer *session_peer(const struct session *session, const char *name);

#endif
