/* SPDX-License-Identifier: MIT */
/* The other end of lib/kill_point.h: processes of one host come here with the point they are at. */
#ifndef ORDEAL_TESTS_KILL_GATE_H
#define ORDEAL_TESTS_KILL_GATE_H

#include <stdbool.h>
#include <sys/types.h>

#include "lib/error.h"

struct gate {
    int listener; /* -1: closed; processes go on by themselves */
    char path[256];
};

/* One process at a point. It stays there until it is answered. */
struct arrival {
    int fd; /* -1: nobody */
    pid_t pid;
    char point[32];
};

/* `host`: the node's host name. */
MUST_CHECK enum status gate_open(const char *folder, const char *host, struct gate *ret_gate,
                                 struct error *err);
void gate_close(struct gate *gate);
/* False when nobody is waiting at the gate. */
bool gate_take(struct gate *gate, struct arrival *ret_arrival);
/* "go" or "skip"; also to a process that has died meanwhile. */
void gate_answer(struct arrival *arrival, const char *word);

#endif
