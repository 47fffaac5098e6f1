/* SPDX-License-Identifier: MIT */
/*
 * Places in the life of a fault at which a test may hold the process, kill something, and let it go
 * on; or have the next step left out.
 *
 *     KILL_POINT("before-inject");
 *     status = SKIP_POINT("inject") ? STATUS_OK : fault->inject(...);
 *
 * In the product both are nothing: no symbol, no text, no branch. With ORDEAL_KILL_POINTS (the test
 * variant in BUILD/variants/kill) a process that comes to a point connects to the socket
 * kill-points/HOSTNAME beside its own program, says the point's name and waits for one word, `go`
 * or `skip`. Nobody listens, or the listener has gone: it goes on at once. The listener knows the
 * process by its credentials (SO_PEERCRED, SO_PEERPIDFD).
 */
#ifndef ORDEAL_LIB_KILL_POINT_H
#define ORDEAL_LIB_KILL_POINT_H

#include <stdbool.h>

#ifdef ORDEAL_KILL_POINTS
/* True when the listener said `skip`. */
bool kill_point(const char *name);
#define KILL_POINT(name) ((void) kill_point(name))
#define SKIP_POINT(name) kill_point(name)
#else
#define KILL_POINT(name) ((void) 0)
#define SKIP_POINT(name) false
#endif

#endif
