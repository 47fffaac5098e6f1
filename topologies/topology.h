/* SPDX-License-Identifier: MIT */
/*
 * The model of a topology file (schema ordeal/topology-1; docs/topologies.md, docs/formats.md).
 */
#ifndef ORDEAL_TOPOLOGIES_TOPOLOGY_H
#define ORDEAL_TOPOLOGIES_TOPOLOGY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/arena.h"
#include "lib/error.h"
#include "lib/yaml.h"

enum topology_role {
    ROLE_DATABASE = 1,
    ROLE_CLIENT = 2,
    ROLE_POWER = 4,
    ROLE_DCS = 8,
    ROLE_ARCHIVE = 16
};

struct topology_volume {
    const char *name, *path; /* "data" -> "/var/lib/postgresql": under test */
};

struct topology_node {
    const char *name, *address, *zone;
    int64_t agent_port;
    unsigned roles; /* enum topology_role, or-ed */
    size_t volume_count;
    const struct topology_volume *volumes;
    const char *cgroup; /* group in which its PostgreSQL is started, or NULL */
};

struct topology_credential {
    const char *user, *password_file; /* the file lies on the nodes */
    const char *database;             /* NULL: "postgres" */
};

struct topology {
    const char *file, *name;
    /* Who made the cluster and takes it down: "lab", or "external". For people; decides nothing. */
    const char *kind;
    struct {
        const char *durability; /* "quorum" (remote flush by the sync set), "local", "none" */
        int64_t failover_ms;    /* 0: no promise */
    } promise;
    struct {
        const char *manager, *fence; /* control | power | script | none */
        bool management_network;     /* the control connection is one */
        bool allow_loss;             /* promote: allow-loss */
        int64_t detect_ms;           /* manual: no acknowledged write for so long */
        const char *const *fence_script;
    } ha;
    struct {
        int64_t version, port;
        const char *data, *bin;                 /* bin: folder of the server's programs */
        const char *const *start, *const *stop; /* argv arrays; NULL: pg_ctl of bin */
        const char *replication_user, *replication_password_file;
        const char *ssl_root; /* CA of the servers' certificates, on the nodes */
        struct topology_credential superuser, workload;
    } database;
    struct {
        size_t count;
        const struct topology_node **hosts;
        bool managed; /* routing: manager — the HA driver opens and moves it */
    } endpoint;
    struct {
        const char *network_namespace;      /* file to enter before dialling agents, or NULL */
        const char *ca, *certificate, *key; /* the orchestrator's, on its host */
    } control;
    struct { /* power driver: argv arrays in which "{node}" is replaced; NULL: none */
        const char *const *off, *const *cut, *const *on;
    } power;
    size_t node_count;
    const struct topology_node *nodes;
};

/* Everything wrong is in `errors`, the status is STATUS_INVALID then. */
MUST_CHECK enum status topology_load(struct arena *arena, const char *path,
                                     struct topology **ret_topology, struct yaml_errors *errors,
                                     struct error *err);
const struct topology_node *topology_node(const struct topology *topology, const char *name);
/* First node with the role, or NULL. */
const struct topology_node *topology_first(const struct topology *topology,
                                           enum topology_role role);
/* Can it take nodes away and bring them back? */
bool topology_has_power(const struct topology *topology);
/* Parameters of session.open for a node. */
json_t *topology_session(const struct topology *topology, const struct topology_node *node,
                         const char *run, int64_t lease_ms);

#endif
