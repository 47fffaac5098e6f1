/* SPDX-License-Identifier: MIT */
/*
 * Is a node as it was? Two fingerprints of it (node.fingerprint, docs/formats.md) compared item by
 * item. A pure function: what differs, in words, and the command that puts it back
 * (docs/residue.md).
 *
 *     json_t *found = residue_differences(&(struct residue_question){...});
 *
 * A difference is an object: class, change (added, removed, changed, unknown), what, before, after
 * (texts or null), ours (by its name: what others did is reported as well, without that claim),
 * remedy (a line for a shell on that node, or null).
 */
#ifndef ORDEAL_ORCHESTRATOR_RESIDUE_H
#define ORDEAL_ORCHESTRATOR_RESIDUE_H

#include <jansson.h>
#include <stdbool.h>

#include "lib/arena.h"
#include "topologies/topology.h"

struct residue_question {
    /* NULL: nobody looked before. Then only what can be nobody else's, or right for nobody, counts.
     */
    const json_t *before;
    const json_t *after;
    /* What was known of the cluster before, by the server that was primary then; NULL: nothing. */
    const json_t *cluster_before;
    const struct topology *topology;
    const char *manager; /* the HA driver of the run: what it changes is natural */
};

/* An array, empty when the node is as it was; the caller's. */
json_t *residue_differences(const struct residue_question *question);
/* The one difference of a node of which nothing is known. */
json_t *residue_unknown(const char *why);
/* Those of `left` that are also in `right`: what stayed between two looks. A new array. */
json_t *residue_common(const json_t *left, const json_t *right);
/* Is there something among them that could not be looked at? */
bool residue_is_blind(const json_t *differences);
/* Can this fingerprint tell of the cluster as a whole? */
bool residue_tells_cluster(const json_t *fingerprint);
/* One line without the remedy; a text of an older run is given as it is. */
const char *residue_text(struct arena *arena, const json_t *difference);

#endif
