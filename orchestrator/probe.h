/* SPDX-License-Identifier: MIT */
/*
 * What a scenario can ask about the cluster: steady state before and after, stop conditions during.
 */
#ifndef ORDEAL_ORCHESTRATOR_PROBE_H
#define ORDEAL_ORCHESTRATOR_PROBE_H

#include "lib/param.h"
#include "topologies/ha/ha.h"

/* What a probe looks at. */
struct probe_view {
    const struct ha_state *state; /* NULL: not asked */
    int64_t silent_ms;            /* since the last acknowledged write; -1: none is known */
    double rate;                  /* acknowledged writes per second, of all client nodes */
    int64_t p99_us;
};

struct probe {
    const char *name, *summary;
    const char *unit;      /* of the value; "" for yes or no */
    enum param_type bound; /* of at-least and at-most; PARAM_BOOLEAN: takes none */
    bool needs_state;      /* cannot be a stop condition, which looks every 200 ms */
    double least;          /* at-least when none is given; 0 with `most` 0: one is needed */
    double (*value)(const struct probe_view *view);
};

/* One use of a probe. */
struct probe_use {
    const struct probe *probe;
    bool has_least, has_most;
    double least, most;
    int64_t false_for_ms; /* stop condition: so long */
};

const struct probe *probe_find(const char *name);
const struct probe *const *probe_list(void); /* ends with NULL */
/* Is it as it should be? `ret_value` gets what was seen. */
bool probe_holds(const struct probe_use *use, const struct probe_view *view, double *ret_value);

#endif
