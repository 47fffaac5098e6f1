/* SPDX-License-Identifier: MIT */
/*
 * Control groups, version 1 (a hierarchy a controller) and 2 (one hierarchy) behind one name.
 *
 * A group is a path below the root ("ordeal-demo/n1/postgres"). On a version 1 host it exists in
 * each of the hierarchies memory, cpu, freezer and blkio that is mounted; on version 2 once. A
 * hybrid host (controllers on v1, an empty v2 beside) counts as v1.
 */
#ifndef ORDEAL_LIB_CGROUP_H
#define ORDEAL_LIB_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/arena.h"
#include "lib/error.h"

enum cgroup_version { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };
enum cgroup_version cgroup_version(void);
/* True when the controller ("memory", "cpu", "freezer", "blkio") can be used. */
bool cgroup_has(const char *controller);

struct cgroup_limits {
    int64_t memory_bytes;      /* 0: no limit */
    int64_t memory_swap_bytes; /* memory + swap together; 0: no limit */
    int64_t cpu_percent;       /* of one core; 0: no limit */
};

/* Create (parents, too); fine when it is there. */
MUST_CHECK enum status cgroup_create(const char *path, struct error *err);
MUST_CHECK enum status cgroup_limit(const char *path, const struct cgroup_limits *limits,
                                    struct error *err);
/*
 * Its share of the processors beside its siblings when they are short: 100 is what every group has,
 * from 1 to 10000. Nothing happens where there is no cpu controller.
 */
MUST_CHECK enum status cgroup_weight(const char *path, int64_t weight, struct error *err);
MUST_CHECK enum status cgroup_join(const char *path, pid_t pid, struct error *err);
/* The group of a process: below the root, of the freezer hierarchy on v1. */
MUST_CHECK enum status cgroup_of(struct arena *arena, pid_t pid, const char **ret_path,
                                 struct error *err);
/* Path of a file of the group in the memory controller's hierarchy; NULL where there is none. */
const char *cgroup_memory_file(struct arena *arena, const char *path, const char *file);
/* Freeze or thaw, and wait until the kernel says so. */
MUST_CHECK enum status cgroup_freeze(const char *path, bool frozen, int64_t deadline_ns,
                                     struct error *err);
MUST_CHECK enum status cgroup_frozen(const char *path, bool *ret_frozen, struct error *err);
/*
 * A group of the freezer's hierarchy alone (version 2: of the one hierarchy), so that what is
 * frozen keeps its other groups and their limits. The parent exists; "" is the root, to which
 * processes can be moved back.
 */
MUST_CHECK enum status cgroup_freezer_create(const char *path, struct error *err);
MUST_CHECK enum status cgroup_freezer_join(const char *path, pid_t pid, struct error *err);
/* Processes in the group itself; STATUS_NOT_FOUND when there is no such group. */
MUST_CHECK enum status cgroup_freezer_members(struct arena *arena, const char *path,
                                              pid_t **ret_pids, size_t *ret_count,
                                              struct error *err);
/* SIGKILL everything in it and below (thawing what is frozen) and wait until it is empty. */
MUST_CHECK enum status cgroup_kill(const char *path, int64_t deadline_ns, struct error *err);
/* Remove it and what is below it, in every hierarchy; fine when it is not there. */
MUST_CHECK enum status cgroup_remove(const char *path, int64_t deadline_ns, struct error *err);

#endif
