/* SPDX-License-Identifier: MIT */
/*
 * Which processes of PostgreSQL a process fault means, and how a record names them: by pid and
 * start time, so that a reused pid is never hit.
 */
#ifndef ORDEAL_FAULTS_PROCESS_SET_H
#define ORDEAL_FAULTS_PROCESS_SET_H

#include "faults/fault.h"
#include "lib/pg_processes.h"

/* Values of the parameter `process` besides the classes of lib/pg_processes.h. */
#define PROCESS_CHILDREN "children"     /* all but the postmaster */
#define PROCESS_EVERYTHING "everything" /* the postmaster and its children */

struct process_choice {
    const char *process; /* a class, children or everything */
    int64_t count;       /* of a class that has many members: how many; 0: all of them */
    bool drawn;          /* by the seed; false: the oldest */
    int64_t seed;
    pid_t spared; /* not among some of many, while there are others; 0: none */
};

/* Backends and walsenders: a server has many of them. */
bool process_word_is_many(const char *word);
/* The postmaster itself or everything: what takes the listening socket away from clients. */
bool process_word_has_postmaster(const char *word);
/*
 * The processes of that choice, which run now; the postmaster first, then the oldest first. Of
 * the other classes all members are meant. STATUS_NOT_FOUND when there is none.
 */
MUST_CHECK enum status process_choose(struct arena *arena, const char *data_directory,
                                      const struct process_choice *choice,
                                      struct pg_processes *ret_chosen, struct error *err);
/* [{"pid", "start_ticks", "class"}] and back; titles are not kept. */
json_t *process_set_to_json(const struct pg_processes *set);
MUST_CHECK enum status process_set_from_json(struct arena *arena, const json_t *json,
                                             struct pg_processes *ret_set, struct error *err);
bool process_set_has(const struct pg_processes *set, struct process_id id);
/* The parent's pid, 0 when the process is gone. */
pid_t process_parent(struct process_id id);

/*
 * The part that the records of process faults have in common: {"process", "data_directory",
 * "node", "address", "port", "processes"}. Takes `processes`.
 */
json_t *process_record(const struct fault_context *context, const char *process, json_t *processes);

#endif
