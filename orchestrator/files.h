/* SPDX-License-Identifier: MIT */
/*
 * What commands share: the topology that is meant, scenario files with all their errors, run
 * directories, and a connection for a command that is not a run.
 */
#ifndef ORDEAL_ORCHESTRATOR_FILES_H
#define ORDEAL_ORCHESTRATOR_FILES_H

#include "orchestrator/command.h"
#include "orchestrator/scenario.h"
#include "topologies/cluster.h"

/* Print every error to stderr. */
void files_complain(const struct yaml_errors *errors);
/* -t, or the lab that is up if there is exactly one. Errors of the file are printed here. */
MUST_CHECK enum status files_topology(struct arena *arena, const struct invocation *invocation,
                                      struct topology **ret_topology, struct error *err);
/* -t, or the file that a recorded run names, if it is there, or the lab that is up. */
MUST_CHECK enum status files_topology_of(struct arena *arena, const struct invocation *invocation,
                                         const json_t *run_start, struct topology **ret_topology,
                                         struct error *err);
/* A path or the name of a shipped one. Errors of the file are printed here. */
MUST_CHECK enum status files_scenario(struct arena *arena, const char *name,
                                      const struct topology *topology,
                                      struct scenario_file *ret_file, struct error *err);
/*
 * Make a run directory with its folders: `wanted` (refused when it is not empty), or
 * runs/TIME-NAME. A part of a profile or of repeats lies in the `wanted` of the whole.
 */
MUST_CHECK enum status files_run_folder(struct arena *arena, const char *wanted, const char *name,
                                        const char **ret_folder, struct error *err);
/* The same without the folders of a run: what repeats and profiles put theirs into. */
MUST_CHECK enum status files_outer_folder(struct arena *arena, const char *wanted, const char *name,
                                          const char **ret_folder, struct error *err);
/* Sessions with every node under a run id of its own ("recover-1a2b3c"), or with those that answer.
 */
MUST_CHECK enum status files_connect(struct arena *arena, const struct topology *topology,
                                     const char *what, bool all, struct cluster **ret_cluster,
                                     struct error *err);
/* Connections to the nodes that answer, beside whatever run holds them: to look and to undo. */
MUST_CHECK enum status files_look(struct arena *arena, const struct topology *topology,
                                  const char *what, struct cluster **ret_cluster,
                                  struct error *err);
/* The run whose orchestrator is connected to any node now, or NULL. */
MUST_CHECK enum status files_find_run(struct cluster *look, const struct topology *topology,
                                      struct arena *arena, const char **ret_run, struct error *err);
/* A seed from --seed, from the scenario, or drawn. */
MUST_CHECK enum status files_seed(const struct invocation *invocation,
                                  const struct scenario *scenario, uint64_t *ret_seed,
                                  struct error *err);

#endif
