/* SPDX-License-Identifier: MIT */
/*
 * What TCP says about a host: the way in which a fault of the network, of a node or of its
 * PostgreSQL is seen from outside the injector.
 *
 * Four answers are told apart, since they mean different things: the peer's program accepted, its
 * kernel answered with a reset (alive, nobody listens), something between said that it cannot be
 * reached, or nobody said anything.
 */
#ifndef ORDEAL_FAULTS_TCP_PROBE_H
#define ORDEAL_FAULTS_TCP_PROBE_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/error.h"

enum tcp_outcome { TCP_SILENT, TCP_UNREACHABLE, TCP_REFUSED, TCP_CONNECTED };

struct tcp_probe {
    const char *address; /* IPv4 or IPv6 in numbers */
    int port;
    enum tcp_outcome outcome; /* filled */
};

/* All at the same time; none takes longer than timeout_ms. */
MUST_CHECK enum status tcp_probe_all(struct tcp_probe *probes, size_t count, int timeout_ms,
                                     struct error *err);
MUST_CHECK enum status tcp_probe(const char *address, int port, int timeout_ms,
                                 enum tcp_outcome *ret_outcome, struct error *err);
/*
 * Does a PostgreSQL answer there? Connects and asks whether TLS is on offer, which a postmaster
 * answers with one byte before any authentication. *ret_answered is false when the connection or
 * the byte does not come in time.
 */
MUST_CHECK enum status tcp_probe_postgres(const char *address, int port, int timeout_ms,
                                          enum tcp_outcome *ret_outcome, bool *ret_answered,
                                          struct error *err);
/* "silent", "unreachable", "refused", "connected" */
const char *tcp_outcome_name(enum tcp_outcome outcome);
/* Is the text an address in numbers, and of which family (AF_INET, AF_INET6; 0: it is none)? */
int tcp_address_family(const char *address);

#endif
