/* SPDX-License-Identifier: MIT */
/*
 * Which nodes a step acts on: an expression in the scenario, resolved when the step starts, since
 * the primary of that moment is not the primary of the plan.
 *
 *     target: { role: standby, zone: b, mode: all }
 *     target: n2            target: [n2, n3]          target: primary
 *     target: others        (peers of a partition: every node that the step does not act on)
 *
 * Without a mode one node is taken: the smallest blast radius. Where the mode leaves a choice, the
 * run's seed makes it.
 */
#ifndef ORDEAL_ORCHESTRATOR_TARGET_H
#define ORDEAL_ORCHESTRATOR_TARGET_H

#include <jansson.h>
#include <stdint.h>

#include "lib/yaml.h"
#include "topologies/ha/ha.h"
#include "topologies/topology.h"

enum target_mode { TARGET_ONE, TARGET_ALL, TARGET_COUNT, TARGET_PERCENT };

struct target {
    const char *const *nodes; /* names, NULL-terminated; NULL: by role and zone */
    const char *role;         /* NULL: any node */
    const char *zone;         /* NULL: any zone */
    const char *process;      /* passed on to the fault, or NULL */
    const char *link;         /* "primary -> standby": role of this side and of the peers */
    enum target_mode mode;
    int64_t count;
    double percent;
};

/*
 * Read from a scenario; `topology` may be NULL, then names of nodes and zones are not checked.
 * `fallback` is the mode that counts when none is given.
 */
void target_read(const struct yaml_node *node, const struct topology *topology,
                 enum target_mode fallback, struct yaml_errors *errors, struct target *ret_target);
/* From a command line: a node, a role, "others", or KEY=VALUE,KEY=VALUE of the keys above. */
MUST_CHECK enum status target_parse(struct arena *arena, const char *text,
                                    const struct topology *topology, struct target *ret_target,
                                    struct error *err);
/* One side of a link as a target by role. */
struct target target_link_side(struct arena *arena, const struct target *target, bool far_side);

struct target_scope {
    const struct topology *topology;
    const struct ha_state *state;               /* who is primary, in sync, running */
    const struct topology_node *const *exclude; /* not these */
    size_t exclude_count;
    uint64_t *random; /* state of the generator; moved on by each choice */
};

struct target_nodes {
    size_t count;
    const struct topology_node **nodes; /* in the topology's order */
};

/* STATUS_NOT_FOUND when no node fits: the message says what was asked for and what there is. */
MUST_CHECK enum status target_resolve(struct arena *arena, const struct target *target,
                                      const struct target_scope *scope,
                                      struct target_nodes *ret_nodes, struct error *err);
json_t *target_json(const struct target *target);
/* "role standby in zone b, all" */
const char *target_text(struct arena *arena, const struct target *target);
/* splitmix64: one seed gives one sequence on every machine. */
uint64_t random_next(uint64_t *state);

#endif
