/* SPDX-License-Identifier: MIT */
/*
 * Looking at a lab from its switch: the caller is in the switch's network namespace.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_PROBE_H
#define ORDEAL_TOPOLOGIES_LAB_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

/* Does somebody accept a connection there? */
bool probe_tcp(const char *address, int port, int64_t deadline_ns);

struct probe_server {
    bool running, in_recovery;
    bool silent; /* nobody answers on the port */
    int64_t timeline;
    char error[256]; /* when it is not running or cannot be asked */
};

/* Ask the server on an address as the superuser whose secrets lie in the lab's state folder. */
void probe_postgres(const char *lab, const char *address, int port, int64_t deadline_ns,
                    struct probe_server *ret_server);
/*
 * Until the deadline: `standbys` standbys stream with sync_state quorum, and then a commit of the
 * workload's user has waited for one of them.
 */
MUST_CHECK enum status probe_quorum(const char *lab, const char *address, int port, int standbys,
                                    int64_t deadline_ns, struct error *err);

#endif
