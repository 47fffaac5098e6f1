/* SPDX-License-Identifier: MIT */
/*
 * The model of a scenario file (schema ordeal/scenario-1) and of a profile (ordeal/profile-1);
 * docs/scenarios.md. Everything that can be known without a cluster is checked
 * when the file is read, and everything wrong is reported at once.
 */
#ifndef ORDEAL_ORCHESTRATOR_SCENARIO_H
#define ORDEAL_ORCHESTRATOR_SCENARIO_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "faults/fault.h"
#include "lib/yaml.h"
#include "orchestrator/probe.h"
#include "orchestrator/target.h"
#include "topologies/topology.h"

enum step_kind { STEP_FAULT, STEP_POWER, STEP_PAUSE };
enum step_timing {
    STEP_IN_TURN,  /* after the step before has ended; the first at once */
    STEP_AT_START, /* offset from the start of the method */
    STEP_AT_STEP,  /* offset from the start of another step */
    STEP_AFTER     /* after another step has ended */
};

/* A parameter that names nodes: resolved when the step starts. */
struct step_nodes {
    const char *name;
    struct target target;
};

struct step {
    const char *name;
    enum step_kind kind;
    const struct fault *fault;
    const struct yaml_node *at;
    struct target target;
    json_t *params; /* without those that name nodes */
    size_t node_count;
    struct step_nodes *nodes;
    int64_t hold_ms;  /* for: */
    int64_t pause_ms; /* of a pause */
    enum step_timing timing;
    size_t reference; /* index of the other step */
    int64_t offset_ms;
    const char *expect_failover; /* "yes", "no", "any" */
    const char *expect_writes;   /* "continue", "stall", "any" */
    bool optional;
};

struct scenario {
    const char *file, *name, *title, *description;
    bool has_seed;
    int64_t seed;
    int64_t repeat, spread_ms;
    json_t *workload, *probes; /* as load.start takes them */
    const char *rate_text;     /* as written */
    int64_t baseline_ms, settle_ms, recovery_ms;
    bool manager_must; /* ha: { acts: no } */
    bool optional;     /* the profile that it is part of goes on without it */
    int64_t minimum_exposure;
    bool has_minimum_exposure;
    size_t steady_count, stop_count, step_count;
    struct probe_use *steady, *stops;
    struct step *steps;
    json_t *checks; /* name -> parameters, complete */
};

struct profile {
    const char *file, *name, *title;
    size_t count;
    struct scenario **scenarios;
};

/* A file is one or the other. */
struct scenario_file {
    struct scenario *scenario;
    struct profile *profile;
};

/*
 * `topology` may be NULL: then names of nodes and zones are not checked. Everything wrong is in
 * `errors`, the status is STATUS_INVALID then. JSON values belong to the arena.
 */
MUST_CHECK enum status scenario_load(struct arena *arena, const char *path,
                                     const struct topology *topology,
                                     struct scenario_file *ret_file, struct yaml_errors *errors,
                                     struct error *err);
/* "primary-kill" -> the shipped file; a path stays what it is. */
const char *scenario_find(struct arena *arena, const char *name);
/* The whole resolved scenario for the journal. */
json_t *scenario_json(const struct scenario *scenario);
/* Does any step expect a failover for certain? */
bool scenario_expects_failover(const struct scenario *scenario);

/*
 * A scenario file that reads as the recorded one (what scenario_json() gave), without its method:
 * for the replay of a run. New reference.
 */
json_t *scenario_file_json(const json_t *recorded);
/* What a workload takes; its rate is a text in a file and a number when it is recorded. */
extern const struct param scenario_workload_params[];

/* Parts of the reader, one file each. */
struct scenario_reading {
    struct arena *arena;
    struct yaml_errors *errors;
    const struct topology *topology;
    struct scenario *scenario;
};
void scenario_read_steps(struct scenario_reading *reading, const struct yaml_node *method);
void scenario_read_checks(struct scenario_reading *reading, const struct yaml_node *checks);
/* Let the arena own a JSON value. */
json_t *scenario_own(struct arena *arena, json_t *json);

#endif
