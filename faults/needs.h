/* SPDX-License-Identifier: MIT */
/*
 * What several faults need of a node, each with the remedy when it is missing. The supported()
 * functions of the faults are made of these; none has a side effect.
 */
#ifndef ORDEAL_FAULTS_NEEDS_H
#define ORDEAL_FAULTS_NEEDS_H

#include "faults/fault.h"
#include "lib/arena.h"

/* The node serves a PostgreSQL and its data directory is known. */
MUST_CHECK enum status needs_database(const struct fault_context *context, struct error *err);
/* An effective capability of this process: CAP_KILL, "CAP_KILL". */
MUST_CHECK enum status needs_capability(int capability, const char *name, struct error *err);
/* Processes can be signalled through pidfds (kernel 5.3). */
MUST_CHECK enum status needs_pidfd(struct error *err);
/* A program on PATH; `package` is where Debian has it. */
MUST_CHECK enum status needs_program(const char *name, const char *package, struct error *err);

/* The address of a node of the topology; NULL when it has no such node. */
const char *context_address(const struct fault_context *context, const char *node);

#endif
