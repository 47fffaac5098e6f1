/* SPDX-License-Identifier: MIT */
/*
 * Synchronous standbys: what a setting demands, and how many members must be heard before a
 * promotion can rule out that an acknowledged commit is lost.
 *
 * quorum_parse() reads synchronous_standby_names in every form that PostgreSQL 13 to 18 accept
 * ("FIRST n (...)", "ANY n (...)", "n (...)", a plain list, which means FIRST 1, quoted names, "*",
 * the empty text) and refuses what PostgreSQL refuses, by the same grammar (syncrep_scanner.l,
 * syncrep_gram.y). Names match without regard to case, as PostgreSQL matches application_name.
 *
 * Pure: no function here asks a server.
 */
#ifndef ORDEAL_TOPOLOGIES_HA_QUORUM_H
#define ORDEAL_TOPOLOGIES_HA_QUORUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/arena.h"
#include "lib/error.h"

enum quorum_method {
    QUORUM_NONE,  /* the empty setting: no commit waits */
    QUORUM_FIRST, /* the k connected ones that stand first */
    QUORUM_ANY    /* any k */
};

struct quorum_set {
    enum quorum_method method;
    size_t k;     /* at least 1; 0 for QUORUM_NONE */
    size_t count; /* names, in the order of the setting, repeated ones included */
    const char *const *names;
    bool wildcard; /* "*" is among the names */
};

/* STATUS_INVALID with the column; `setting` NULL counts as empty. */
MUST_CHECK enum status quorum_parse(struct arena *arena, const char *setting,
                                    struct quorum_set *ret_set, struct error *err);
/* Does the set name this standby? A wildcard names every one. */
bool quorum_names(const struct quorum_set *set, const char *standby);
/* A name that stands twice, or NULL. */
const char *quorum_repeated(const struct quorum_set *set);
/* Different names that can acknowledge a commit of this primary (never itself). */
size_t quorum_size(const struct quorum_set *set, const char *primary);
/* "first", "any" or "none". */
const char *quorum_method_name(enum quorum_method method);

enum { QUORUM_IMPOSSIBLE = 1000000 };
/*
 * How many members of the set must be heard to rule out loss: any k of N may have acknowledged the
 * last commit, so N - k + 1 of them include one that did. The same for FIRST: its k are the first
 * of those that were connected at that moment, and which ones were is not certain afterwards. At
 * least 1. QUORUM_IMPOSSIBLE when no number is enough: the empty set, which makes no commit wait,
 * and a wildcard, whose members nobody knows.
 */
size_t quorum_needed(const struct quorum_set *set, const char *primary);

#endif
