/* SPDX-License-Identifier: MIT */
/*
 * What a node sees: the host's root file system, read only, under its own volumes, /proc, /tmp,
 * /run and /dev/shm, and a boot id of its own.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_NODE_MOUNTS_H
#define ORDEAL_TOPOLOGIES_LAB_NODE_MOUNTS_H

#include "topologies/lab/node.h"

/* Where a node finds the folder of Ordeal's programs, wherever that lies on the host. */
#define NODE_PROGRAMS "/run/ordeal/bin"

/* In the node's own mount namespace, whose mounts do not propagate. */
MUST_CHECK enum status node_mount_all(const struct node_boot *boot, struct error *err);

#endif
