/* SPDX-License-Identifier: MIT */
/*
 * What a fault could leave behind on a node, read from the kernel: taken before and after a run and
 * compared section by section with json_equal() (docs/formats.md, `node.fingerprint`).
 *
 * So everything is in one order, and what changes by itself stays out: pids, handles, counters,
 * ages, numbers of loop devices, and what belongs to others on the same host.
 */
#ifndef ORDEAL_AGENTS_FINGERPRINT_H
#define ORDEAL_AGENTS_FINGERPRINT_H

#include "agents/method.h"

/* The method node.fingerprint. */
enum status node_fingerprint(const struct method_call *call, json_t **ret_result,
                             struct error *err);

/* The sections, for tests. Each makes a new value. */
typedef enum status fingerprint_section(const struct method_call *call, json_t **ret_value,
                                        struct error *err);
fingerprint_section fingerprint_processes, fingerprint_mounts, fingerprint_loops,
    fingerprint_sysctls, fingerprint_swaps;                                /* fingerprint_host.c */
fingerprint_section fingerprint_nft, fingerprint_iptables, fingerprint_tc; /* .._network.c */
fingerprint_section fingerprint_cgroups;                                   /* .._cgroups.c */

/* The items in the order of their text; takes the array, gives a new one. */
json_t *fingerprint_sorted(json_t *array);

#endif
