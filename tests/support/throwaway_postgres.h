/* SPDX-License-Identifier: MIT */
/*
 * A real PostgreSQL of one test program: in a temporary folder, owned by user postgres, on a Unix
 * socket and on all addresses of a network namespace that nobody else has.
 *
 *     int main(void)
 *     {
 *         const char *why = throwaway_isolate();    namespaces of its own, loopback up
 *         ...
 *     static void setup(void) { throwaway_start(&server); }
 *     static void teardown(void) { throwaway_stop(&server); }
 *
 * The namespaces (network, IPC, PID, mount) end with the program and take everything with them,
 * also after a test that failed: processes, shared memory, devices, and /tmp, which is a tmpfs of
 * their own. Failures end the test with the reason (ck_abort_msg).
 */
#ifndef ORDEAL_TESTS_SUPPORT_THROWAWAY_POSTGRES_H
#define ORDEAL_TESTS_SUPPORT_THROWAWAY_POSTGRES_H

#include <libpq-fe.h>
#include <stdbool.h>

enum { THROWAWAY_PORT = 5432 };

struct throwaway {
    char folder[64], data[96];
};

/* NULL when this process may go on; else why such tests cannot run here. Call it in main(). */
const char *throwaway_isolate(void);
/* initdb and start; settings like a small production server, no fsync. */
void throwaway_start(struct throwaway *server);
/* Start again what was stopped or killed. */
void throwaway_restart(struct throwaway *server);
/* Stop at once (stopped processes are woken first) and remove the folder. Idempotent. */
void throwaway_stop(struct throwaway *server);
/* A session over the Unix socket, connected; PQfinish() it. */
PGconn *throwaway_connect(const struct throwaway *server);
/* Wait until the server accepts a session again; false after the deadline. */
bool throwaway_wait_ready(const struct throwaway *server, int timeout_ms);

#endif
