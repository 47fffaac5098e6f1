/* SPDX-License-Identifier: MIT */
/*
 * A few nodes on one bridge, each in a network namespace of its own, for tests of what the network
 * does. The caller stands in a namespace of its own already (throwaway_isolate()) and is the node
 * that has the bridge.
 *
 * No process lives in the other namespaces: a node is a descriptor of its namespace, and its
 * services are listening sockets that the test holds; the kernel accepts for them.
 */
#ifndef ORDEAL_TESTS_SUPPORT_NET_LAB_H
#define ORDEAL_TESTS_SUPPORT_NET_LAB_H

#include <stdbool.h>

#include "faults/tcp_probe.h"

enum { NET_LISTENERS = 4 };

struct net_node {
    int number, netns; /* descriptor */
    int listeners[NET_LISTENERS], listener_count;
};

/* The bridge in the namespace of the caller: 10.9.0.1/24 and fd09::1/64. */
void net_hub_up(void);
/* A node 10.9.0.NUMBER and fd09::NUMBER on the bridge, seen to answer. */
void net_node_up(struct net_node *node, int number);
void net_node_down(struct net_node *node);
/* A service on all addresses; node NULL: the caller's own. Returns the socket. */
int net_listen(struct net_node *node, int port);
/* The cable out or in: nothing is said to anybody. */
void net_plug(const struct net_node *node, bool plugged);

/* Go to a node's namespace and come back. */
int net_enter(const struct net_node *node);
void net_leave(int back);
enum tcp_outcome net_call(const struct net_node *from, const char *address, int port);
/* A connected socket from that node. */
int net_connect(const struct net_node *from, const char *address, int port);

#endif
