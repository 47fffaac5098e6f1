/* SPDX-License-Identifier: MIT */
/*
 * Every process of the local PostgreSQL with its class, CPU time and resident memory.
 *
 * Files are opened once a process; an open one belongs to that very process, so that a pid that
 * comes back is not mixed up. /proc/PID/schedstat says cheaply whether a process has run at all;
 * /proc/PID/stat is read of those that have, and in turns of the others, whose memory may be taken
 * while they sleep. Only the list of the postmaster's children is compared each time; titles are
 * read only of what is new. Nothing here touches the data directory, which may hang.
 */
#ifndef ORDEAL_AGENTS_SAMPLER_PROCESSES_H
#define ORDEAL_AGENTS_SAMPLER_PROCESSES_H

#include "agents/sampler/kernel.h"
#include "lib/pg_processes.h"

enum { PROCESSES_MAX = 4096, PROCESSES_CLASSES = PG_OTHER + 1 };

struct tracked {
    pid_t pid;
    int stat, run; /* /proc/PID/stat, schedstat; run -1: the kernel has none */
    enum pg_class class;
    unsigned looks; /* at its title, while it has none that says what it is */
    int64_t run_ns; /* time on a processor */
    int64_t cpu_us, rss_pages;
};

struct processes {
    struct arena *arena;
    const char *data; /* data directory */
    struct kernel_file children;
    pid_t postmaster; /* the last one, 0: none was known */
    int64_t scan_ns;
    char *list, *last_list; /* of children, KERNEL_TEXT_SIZE each */
    bool refused;           /* a process could not be followed: too many, no descriptor */
    size_t count;
    struct tracked *items; /* by pid */
    pid_t *pids;
    int64_t cpu_us[PROCESSES_CLASSES]; /* sum over all that ever were there */
    int64_t tick_us;
    size_t turn; /* of the reading of stat */
};

void processes_open(struct processes *processes, struct arena *arena, const char *data);
/* Puts members pg, new, p and gone. `postmaster`: as others found it, 0: there is none now. */
void processes_sample(struct processes *processes, struct kernel *kernel, pid_t postmaster,
                      struct line *line);

#endif
