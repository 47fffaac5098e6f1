/* SPDX-License-Identifier: MIT */
/*
 * What the kernel says of the node: memory, vmstat, pressure, the server's control group, disks and
 * network, as members of a line. Files are opened once and read with pread(); one that fails is
 * opened again after a second.
 */
#ifndef ORDEAL_AGENTS_SAMPLER_KERNEL_H
#define ORDEAL_AGENTS_SAMPLER_KERNEL_H

#include "agents/sampler/line.h"
#include "agents/sampler/parse.h"
#include "lib/arena.h"
#include "lib/cgroup.h"

enum { KERNEL_TEXT_SIZE = 64 * 1024, KERNEL_DISKS = 256, KERNEL_NETS = 64 };

/* A file that is read again and again. */
struct kernel_file {
    const char *path; /* NULL: there is none */
    int fd;
    int64_t retry_ns; /* when it may be opened again */
};

/* Counters as they were last put: only what has changed is put again. */
struct kernel_devices {
    size_t count, room;
    struct device_line *last;
};

struct kernel {
    struct arena *arena;
    char *text; /* KERNEL_TEXT_SIZE */
    enum cgroup_version version;
    struct kernel_file meminfo, vmstat, pressure[3], diskstats, net;
    struct kernel_devices disks, nets;
    bool group_given; /* by the topology, else it is that of the postmaster */
    char group[256];  /* of the server; "": not known (yet) */
    struct kernel_file group_current, group_swap, group_failures, group_events, group_stat,
        group_pressure;
};

void kernel_open(struct kernel *kernel, struct arena *arena);
/* Which group is sampled; cheap when it is the same as before. */
void kernel_follow_group(struct kernel *kernel, const char *group);
void kernel_sample(struct kernel *kernel, struct line *line);

/* NUL-terminated text of the file now; NULL when it cannot be read. Also for other modules. */
const char *kernel_read(struct kernel *kernel, struct kernel_file *file);

/* Each puts members from a text, so that recorded ones can be tested. */
void kernel_put_meminfo(struct line *line, const char *text);
void kernel_put_vmstat(struct line *line, const char *text);
void kernel_put_pressure(struct line *line, const char *name, const char *text);
void kernel_put_disks(struct line *line, struct kernel_devices *devices, const char *text);
void kernel_put_net(struct line *line, struct kernel_devices *devices, const char *text);
void kernel_put_group_events(struct line *line, enum cgroup_version version, const char *text);
void kernel_put_group_stat(struct line *line, enum cgroup_version version, const char *text);

#endif
