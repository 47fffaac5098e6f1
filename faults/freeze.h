/* SPDX-License-Identifier: MIT */
/*
 * How processes of PostgreSQL are brought to a stand and go on again: SIGSTOP and SIGCONT, or a
 * freezer group of their own. The record of process.freeze is read here; whom it means changes with
 * time, since a server that runs has children without end.
 */
#ifndef ORDEAL_FAULTS_FREEZE_H
#define ORDEAL_FAULTS_FREEZE_H

#include "faults/process_set.h"

/* A record, read. */
struct freeze {
    const char *process, *data_directory;
    const char *group, *home; /* of the method cgroup, else NULL */
    bool tree;                /* children or everything: those who are born later count, too */
    bool has_postmaster;
    struct process_id postmaster;
    struct pg_processes recorded;
};

/* Strings are the record's. */
MUST_CHECK enum status freeze_read(struct arena *arena, const json_t *record,
                                   struct freeze *ret_freeze, struct error *err);
/* Those of the record that live, and for a tree those that were born since. */
MUST_CHECK enum status freeze_targets(struct arena *arena, const struct freeze *freeze,
                                      struct pg_processes *ret_targets, struct error *err);
/*
 * Must that target stand still for the fault to be whole? Children of a running postmaster may be
 * born at any time: those do not count.
 */
bool freeze_counts(const struct freeze *freeze, struct process_id id);
bool freeze_is_stopped(struct process_id id);
/* Is that process in the freezer group of the fault? */
MUST_CHECK enum status freeze_is_inside(struct arena *arena, const struct freeze *freeze,
                                        struct process_id id, bool *ret_inside, struct error *err);
/* Freeze until nobody who counts runs; and the reverse, idempotent. */
MUST_CHECK enum status freeze_apply(const struct freeze *freeze, int64_t deadline_ns,
                                    struct error *err);
MUST_CHECK enum status freeze_release(const struct freeze *freeze, int64_t deadline_ns,
                                      struct error *err);

#endif
