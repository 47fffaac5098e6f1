/* SPDX-License-Identifier: MIT */
/*
 * The lab: a highly available PostgreSQL on this one host, without a container engine.
 *
 * A lab file (schema ordeal/lab-1) says which nodes there are. lab_up() builds them from
 * namespaces, loop devices and a switch in a network namespace of its own, and writes an ordinary
 * topology file; from then on everything is as on any other cluster. See README.md beside this
 * file for the picture.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_LAB_H
#define ORDEAL_TOPOLOGIES_LAB_LAB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/arena.h"
#include "lib/error.h"
#include "lib/yaml.h"

#define LAB_ROOT "/var/lib/ordeal/labs"

/* Paths on a node. The system volume is mounted on the first, the data volume on the second. */
#define NODE_SYSTEM "/var/lib/ordeal"
#define NODE_DATA "/var/lib/postgresql"
#define NODE_PKI NODE_SYSTEM "/pki"
#define NODE_SECRETS NODE_SYSTEM "/secrets"
#define NODE_AGENT NODE_SYSTEM "/agent"
#define NODE_POSTGRES NODE_SYSTEM "/postgresql"

#define USER_ADMIN "ordeal_admin"
#define USER_LOAD "ordeal_load"
#define USER_REPLICATION "ordeal_replication"
#define DATABASE_LOAD "ordeal"

enum { LAB_AGENT_PORT = 7432, LAB_NODES_MAX = 16 };

struct lab_node {
    const char *name, *zone, *address;
    unsigned roles;                   /* enum topology_role, or-ed */
    int64_t memory_bytes;             /* limit of PostgreSQL's control group; 0: none */
    int64_t swap_bytes;               /* on top of memory; -1: no limit */
    int64_t cpu_percent;              /* of one core; 0: no limit */
    int64_t system_bytes, data_bytes; /* volumes; data 0: none */
    int64_t boot_clock_offset_ms;     /* its boot and monotonic clocks before the host's */
};

struct lab_spec {
    const char *file, *name;
    const char *durability;
    int64_t failover_ms;
    struct {
        const char *manager, *fence, *promote;
        bool management_network;
        int64_t detect_ms;
    } ha;
    int64_t version, port;
    size_t setting_count;
    const char **setting_names, **setting_values; /* of postgresql.conf, from the lab file */
    size_t node_count;
    struct lab_node *nodes;
};

/* Everything wrong is in `errors`, the status is STATUS_INVALID then. `name` NULL: the file's. */
MUST_CHECK enum status lab_spec_load(struct arena *arena, const char *path, const char *name,
                                     struct lab_spec **ret_spec, struct yaml_errors *errors,
                                     struct error *err);
MUST_CHECK enum status lab_check_name(const char *name, struct error *err);
const struct lab_node *lab_spec_node(const struct lab_spec *spec, const char *name);
/* "/usr/lib/postgresql/15/bin", "/var/lib/postgresql/15/main", "ordeal-NAME/NODE/WHAT". */
const char *lab_bin(struct arena *arena, const struct lab_spec *spec);
const char *lab_data(struct arena *arena, const struct lab_spec *spec);
const char *lab_cgroup(struct arena *arena, const char *lab, const char *node, const char *what);

struct lab_programs {
    const char *ordeal, *agent; /* absolute */
};

/*
 * Bring the lab up; what it does goes to stderr, a line a step. STATUS_REFUSED or
 * STATUS_UNSUPPORTED: nothing was changed. After any other failure, and after SIGINT or SIGTERM
 * (STATUS_ABORTED), what was begun is taken down again.
 */
MUST_CHECK enum status lab_up(const struct lab_spec *spec, const struct lab_programs *programs,
                              int64_t started_ns, struct error *err);
/* Take a lab down, whatever is left of it. `ret_was_up`: there was something. */
MUST_CHECK enum status lab_down(const char *name, bool *ret_was_up, struct error *err);
/* What `lab status` shows, as JSON; see docs/lab.md. */
MUST_CHECK enum status lab_status(const char *name, json_t **ret_status, struct error *err);
/* word: off, cut, on. Returns when the node is off (or has booted). */
MUST_CHECK enum status lab_power(const char *name, const char *node, const char *word,
                                 struct error *err);
/* Run argv in a node (or in the switch: the power node), on this terminal. */
MUST_CHECK enum status lab_exec(const char *name, const char *node, const char *const *argv,
                                int *ret_exit_code, struct error *err);

/* Names of the labs that are up (or of all that left a state folder), sorted. */
MUST_CHECK enum status lab_list(struct arena *arena, bool only_up, const char ***ret_names,
                                size_t *ret_count, struct error *err);
/* The lab that is up, if there is exactly one: STATUS_NOT_FOUND or STATUS_CONFLICT otherwise. */
MUST_CHECK enum status lab_find_up(struct arena *arena, const char **ret_topology_path,
                                   struct error *err);
/* The only lab of lab_list(); a hint says what to do when there is none or several. */
MUST_CHECK enum status lab_find_name(struct arena *arena, bool only_up, const char **ret_name,
                                     struct error *err);

#endif
