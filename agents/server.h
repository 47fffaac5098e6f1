/* SPDX-License-Identifier: MIT */
/*
 * The agent: listens for the orchestrator, carries out typed requests, and nothing else.
 *
 * One poll loop. Inline methods run in it and return at once; jobs run in forked children. One
 * session at a time; its faults live at the guardian, which is this process's parent.
 */
#ifndef ORDEAL_AGENTS_SERVER_H
#define ORDEAL_AGENTS_SERVER_H

#include "lib/error.h"
#include "lib/tls.h"

struct agent_options {
    const char *node, *address;
    int port;
    struct tls_files files;
    const char *state;
    const char *const *protect; /* NULL-terminated: file systems that are no one's target */
};

/* Runs until SIGTERM (STATUS_OK) or until it cannot go on. */
MUST_CHECK enum status agent_run(const struct agent_options *options, struct error *err);

#endif
