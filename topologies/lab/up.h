/* SPDX-License-Identifier: MIT */
/*
 * The steps of `lab up`, in the order in which up.c runs them. They run in a child that dies with
 * the command; everything that they start dies with that child until the last step.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_UP_H
#define ORDEAL_TOPOLOGIES_LAB_UP_H

#include "topologies/lab/files.h"
#include "topologies/lab/lab.h"
#include "topologies/lab/postgres.h"

enum {
    UP_TIMEOUT_MS = 180000, /* the whole; a loaded machine is slow, not broken */
    UP_ASK_MS = 60000,      /* one answer of the supervisor */
    UP_TEXT_MAX = 64 * 1024,
};

struct up {
    const struct lab_spec *spec;
    const struct lab_programs *programs;
    struct arena *arena;
    struct lab_passwords passwords;
    pid_t supervisor;
    int64_t started_ns, deadline_ns;
    pid_t pids[LAB_NODES_MAX]; /* of the nodes' inits, on the host */
};

/* A step of `up` on one node. */
struct on_node {
    struct up *up;
    size_t index;
};

/* The first database node, where PostgreSQL is initialised and primary. */
const struct lab_node *up_primary(const struct lab_spec *spec, size_t *ret_index);
const struct lab_node *up_node(const struct on_node *at);
/* Run a step on all nodes with one of the roles at once. */
MUST_CHECK enum status up_on_nodes(struct up *up, unsigned roles, const char *what,
                                   enum status (*run)(void *, struct error *), struct error *err);
/* A path of the node's, as the host reaches it. */
const char *up_reach(const struct on_node *at, const char *path);

/* On the host: up_host.c. */
MUST_CHECK enum status up_make_certificates(struct up *up, struct error *err);
MUST_CHECK enum status up_make_secrets(struct up *up, struct error *err);
MUST_CHECK enum status up_make_volumes(struct up *up, struct error *err);
MUST_CHECK enum status up_make_groups(struct up *up, struct error *err);
/* The supervisor and its nodes: up_nodes.c. */
MUST_CHECK enum status up_start_switch(struct up *up, struct error *err);
MUST_CHECK enum status up_boot_nodes(struct up *up, struct error *err);
MUST_CHECK enum status up_furnish(struct up *up, struct error *err);
MUST_CHECK enum status up_start_agents(struct up *up, struct error *err);
/* PostgreSQL: up_postgres.c. */
MUST_CHECK enum status up_create_primary(struct up *up, struct error *err);
MUST_CHECK enum status up_make_standbys(struct up *up, struct error *err);
MUST_CHECK enum status up_start_servers(struct up *up, struct error *err);

#endif
