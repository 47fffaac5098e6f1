/* SPDX-License-Identifier: MIT */
/* Faults that are listed but not written yet: a real descriptor takes their place when linked. */
#include "faults/fault.h"

#define PENDING(descriptor, word)                                                                  \
    __attribute__((weak)) const struct fault descriptor = {.abi = FAULT_ABI, .name = word};
PENDING(fault_network_partition, "network.partition")
PENDING(fault_node_crash, "node.crash")
PENDING(fault_process_freeze, "process.freeze")
