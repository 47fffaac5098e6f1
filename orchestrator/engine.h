/* SPDX-License-Identifier: MIT */
/*
 * One run of one scenario: connect, preflight, baseline, method, recovery, checks, report.
 *
 * Whatever happens on the way, a run that has changed something undoes it, collects what can be
 * had and says how it ended. The thread of control belongs to the HA manager's runbook during the
 * method; steps start, faults are injected and undone in callbacks beneath it.
 */
#ifndef ORDEAL_ORCHESTRATOR_ENGINE_H
#define ORDEAL_ORCHESTRATOR_ENGINE_H

#include "orchestrator/scenario.h"
#include "topologies/topology.h"

struct engine_options {
    const struct topology *topology;
    const struct scenario *scenario;
    const char *folder; /* run directory, made by the caller and empty */
    uint64_t seed;
    int64_t delay_ms;      /* before the method's first step: spreads repeats */
    bool strict;           /* optional steps count */
    const json_t *replays; /* of event run.start: the run that is replayed; NULL: none */
    bool json;             /* the report goes to stdout as one object */
    bool quiet;            /* no report on stdout: a part of a profile or of repeats */
};

/* How a run ended. */
struct engine_result {
    int exit_code;
    const char *outcome; /* completed, refused, aborted */
    bool interrupted;    /* a signal asked for an end, be it during the report: no further run */
    bool unsupported;    /* nothing was done, only because this cluster cannot do it */
};

/*
 * STATUS other than OK only when the run could not even be recorded. All else is in the run
 * directory and in the exit code.
 */
MUST_CHECK enum status engine_run(const struct engine_options *options,
                                  struct engine_result *ret_result, struct error *err);
/*
 * The end of a run whose orchestrator died: options.topology and options.folder are those of that
 * run. STATUS_REFUSED when it has an end, or when the topology is another one.
 */
MUST_CHECK enum status engine_resume(const struct engine_options *options, int *ret_exit_code,
                                     struct error *err);

#endif
