/* SPDX-License-Identifier: MIT */
/*
 * The lab as an ordinary topology file (ordeal/topology-1).
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_TOPOLOGY_FILE_H
#define ORDEAL_TOPOLOGIES_LAB_TOPOLOGY_FILE_H

#include "lib/buffer.h"
#include "topologies/lab/lab.h"

/* `supervisor`: the pid whose network namespace is the switch. */
void topology_file_text(const struct lab_spec *spec, const struct lab_programs *programs,
                        pid_t supervisor, struct buffer *text);

#endif
