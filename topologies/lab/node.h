/* SPDX-License-Identifier: MIT */
/*
 * Inside a node: pid 1 of its namespaces.
 *
 * It builds the node's view of the file system, says so on its channel to the supervisor, reaps
 * orphans and keeps the agent running. PostgreSQL it does not start: that is for the HA manager.
 *
 * The channel (SOCK_SEQPACKET) carries texts. From the supervisor: "go" (the link is there),
 * "agent" (start it). To the supervisor: "up PID" (its pid on the host), "error TEXT".
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_NODE_H
#define ORDEAL_TOPOLOGIES_LAB_NODE_H

#include "topologies/lab/lab.h"

struct node_boot {
    const struct lab_spec *spec;
    const struct lab_node *node;
    const char *agent; /* path of ordeald on the host */
    int channel;       /* this side */
    /* Opened by the supervisor: through a mount that the node is to see read only, a loop device
       could not write. data_image is -1 without a data volume. */
    int system_image, data_image;
    int host_proc;      /* /proc of the host's PID namespace */
    int64_t boot_count; /* from 1 */
};

enum { NODE_MESSAGE_MAX = 1200 };

/* For namespace_fork(): argument is a struct node_boot; does not return while the node is up. */
int node_main(void *argument);
/* argv of an agent, NULL-terminated: `pki` and `state` are its folders. */
const char *const *node_agent_argv(struct arena *arena, const struct lab_node *node,
                                   const char *program, const char *pki, const char *state);

#endif
