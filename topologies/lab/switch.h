/* SPDX-License-Identifier: MIT */
/*
 * The lab's network: a bridge in a network namespace of its own, a veth pair a node.
 *
 * All functions act on the network namespace of the caller. On the switch a node's link bears the
 * node's name; in the node it is eth0. Hardware addresses follow from the IP address, so that a
 * node that boots again is found by those that remember it.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_SWITCH_H
#define ORDEAL_TOPOLOGIES_LAB_SWITCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "lib/error.h"

#define SWITCH_NAME "switch"

MUST_CHECK enum status switch_create(const char *address, struct error *err);
/* A link from the switch to process `pid` (of this PID namespace), which is in the node's. */
MUST_CHECK enum status switch_connect(const char *node, const char *address, pid_t pid,
                                      struct error *err);
/* Pull the plug: what the node sends from now on goes nowhere. */
MUST_CHECK enum status switch_unplug(const char *node, struct error *err);
bool switch_has(const char *node);
/*
 * Of a node that is dead. Its network namespace can outlive it: sockets that were left without a
 * process go on sending into the void for up to 100 s (tcp_orphan_retries).
 */
MUST_CHECK enum status switch_remove(const char *node, struct error *err);
/* In the node: lo and eth0 up. */
MUST_CHECK enum status switch_node_up(const char *address, struct error *err);

#endif
