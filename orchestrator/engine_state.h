/* SPDX-License-Identifier: MIT */
/*
 * Insides of a run, shared by the files engine*.c, preflight.c, step.c and injection.c. Nobody else
 * includes this but the test of these insides.
 */
#ifndef ORDEAL_ORCHESTRATOR_ENGINE_STATE_H
#define ORDEAL_ORCHESTRATOR_ENGINE_STATE_H

#include "lib/clock.h"
#include "orchestrator/engine.h"
#include "orchestrator/injection.h"
#include "orchestrator/journal.h"
#include "orchestrator/survey.h"
#include "orchestrator/view.h"
#include "topologies/cluster.h"
#include "topologies/ha/ha.h"

struct record;

enum { LOAD_SAMPLES = 16, STATE_MS = 3000, UNDO_MS = 60000, POWER_MS = 90000 };

/* What one client node says about its load. */
struct load_node {
    const struct topology_node *node;
    bool running, ended, complete;
    int64_t workers;
    int64_t now_ns, acked, p50_us, p99_us, last_ack_ns, blind_ms; /* of load.status */
    double rate;
    uint32_t timeline;
    char writer[40];
};

struct load_sample {
    int64_t at_ns, acked;
};

struct open_stop {
    int64_t false_since_ns; /* 0: it holds */
};

struct engine {
    const struct engine_options *options;
    const struct topology *topology;
    const struct scenario *scenario;
    struct arena *arena;
    char run[80], prefix[16];
    uint64_t random;
    struct journal *journal;
    struct view *view;
    struct cluster *cluster;
    struct ha ha;
    bool ha_begun;

    size_t load_count;
    struct load_node *loads;
    struct load_sample samples[LOAD_SAMPLES];
    size_t sample_count;
    json_t *ledgers; /* what the client nodes said of each at its end */
    bool prepared;   /* the workload's tables exist */
    bool sampling;   /* samplers are wanted on every node */

    struct step_run *steps;
    struct injection *injections;
    int64_t method_ns; /* start of the method, 0 before */
    bool surveying;
    loop_handle survey_timer, stop_timer;
    struct open_stop *stops;
    struct error failed; /* of a step; ends the method */
    json_t *members;     /* last event per node */
    char first_writer[40];
    uint32_t left_timeline; /* that the failover which is expected last leaves behind */

    json_t *fingerprints; /* before, per node */
    const char *outcome;
    struct error reason; /* why refused or aborted */
    int signals;         /* that asked for an end: after the second nothing but undoing goes on */
    bool resumed;        /* the end of a run whose orchestrator died: its clocks are not ours */
    bool winding_up;     /* undoing has begun: nothing stops it any more */
    bool leavable;       /* a part of the winding up that undoes nothing */
    bool changed;        /* something on a node was changed */
    bool clean;          /* every node confirmed */
    bool refused_power;  /* by the preflight, for want of a power driver and of nothing else */
    bool skipped;        /* a step, because a node cannot do it */
    char final_primary[40];
};

/* ---- engine.c ---- */
struct engine *engine_new(const struct engine_options *options);
void engine_free(struct engine *engine);
/* Dials every node, heeds signals; STATUS_OK when all of them answer. */
MUST_CHECK enum status engine_connect(struct engine *engine, struct error *err);
void engine_outcome(struct engine *engine, const char *outcome, const struct error *reason);
/* It ended so only because this cluster cannot do what the scenario asks for: no power driver, or
 * no step that a node supports. */
bool engine_unsupported(const struct engine *engine, int exit_code);
void engine_phase(struct engine *engine, const char *phase);
/* Turn the loop for so long; STATUS_ABORTED as every blocking call. */
MUST_CHECK enum status engine_pause(struct engine *engine, int64_t ms, struct error *err);
/* {"run": ...}, for methods that change a node. */
json_t *engine_params(const struct engine *engine);
bool engine_hurried(const struct engine *engine); /* by a second signal: undo, and nothing else */
/* The parts of the winding up that a second signal cuts short begin and end here. */
void engine_leavable(struct engine *engine, bool yes);
/* A step or a full disk ends the method; the first reason counts. */
void engine_fail(struct engine *engine, const struct error *reason);
/* Asked fresh, journaled as `member` events. */
MUST_CHECK enum status engine_members(struct engine *engine, struct arena *arena,
                                      struct ha_state *ret_state, struct error *err);
void engine_journal_members(struct engine *engine, const struct ha_state *state, bool all);

/* ---- engine_end.c ---- */
void engine_wind_up(struct engine *engine);     /* all put back, evidence, audit */
void engine_close(struct engine *engine);       /* the last event, connections closed */
int engine_report(const struct engine *engine); /* exit code, from the files alone */

/* ---- engine_resume.c ---- */
/* Of a run that died: may the fault of this uid still be active? Only its undo rules that out. */
bool engine_may_be_active(const struct record *record, const char *uid);

/* ---- engine_load.c ---- */
MUST_CHECK enum status load_begin(struct engine *engine, const char *primary, struct error *err);
MUST_CHECK enum status load_baseline(struct engine *engine, struct error *err);
MUST_CHECK enum status load_end(struct engine *engine, struct error *err);
MUST_CHECK enum status load_drop(struct engine *engine, struct error *err);
void load_notified(struct engine *engine, const struct topology_node *node, const char *method,
                   const json_t *params);
int64_t load_last_ack_ns(const struct engine *engine); /* orchestrator's clock, 0: none */
int64_t load_acked_last_second(const struct engine *engine);
double load_rate(const struct engine *engine);
struct probe_view load_view(const struct engine *engine, const struct ha_state *state);
/*
 * A failover is expected from here on: what the load and a look at the primary (0: none) tell as
 * the newest timeline is the one that it leaves behind. Before the first of them it is the
 * baseline's.
 */
void load_expect_move(struct engine *engine, uint32_t timeline);
/* Writes are acknowledged on a newer timeline: the failover that was expected last was seen. */
bool load_moved(const struct engine *engine);

/* ---- engine_method.c ---- */
MUST_CHECK enum status method_run(struct engine *engine, struct error *err);
void steps_advance(struct engine *engine); /* schedule what has become due */

/* ---- engine_recovery.c ---- */
MUST_CHECK enum status recovery_run(struct engine *engine, struct error *err);
void steady_state(struct engine *engine, const char *when);

/* ---- engine_collect.c, engine_integrity.c ---- */
void collect_ledgers(struct engine *engine);
/* A file of a node's spool into a folder of the run directory. */
MUST_CHECK enum status collect_file(struct engine *engine, const char *node, const char *name,
                                    const char *folder, struct error *err);
void collect_run(struct engine *engine);
void collect_integrity(struct engine *engine);
void integrity_run(struct engine *engine, const char *primary);

/* ---- engine_samples.c ---- */
void samples_begin(struct engine *engine);
void samples_connected(struct engine *engine, const struct topology_node *node);
void samples_end(struct engine *engine);
void samples_fetch(struct engine *engine); /* once they have ended */

/* ---- engine_residue.c ---- */
MUST_CHECK enum status residue_before(struct engine *engine, struct error *err);
void residue_after(struct engine *engine);

/* ---- preflight.c ---- */
MUST_CHECK enum status preflight_run(struct engine *engine, struct error *err);
/* One finding for the journal; STATUS_REFUSED when the level is "refuse". */
void preflight_find(struct engine *engine, const char *level, const char *finding, const char *node,
                    const char *text, const char *hint);

#endif
