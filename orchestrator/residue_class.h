/* SPDX-License-Identifier: MIT */
/*
 * Insides of residue.c: what it knows of each section of a fingerprint. A new section gets one
 * entry in residue_host.c, residue_network.c or residue_postgres.c, and a line in docs/residue.md.
 */
#ifndef ORDEAL_ORCHESTRATOR_RESIDUE_CLASS_H
#define ORDEAL_ORCHESTRATOR_RESIDUE_CLASS_H

#include "orchestrator/residue.h"

enum { RESIDUE_ADDED = 1, RESIDUE_REMOVED = 2, RESIDUE_CHANGED = 4, RESIDUE_ANY = 7 };

struct residue_item {
    const struct residue_question *question;
    struct arena *arena;
    const char *key;
    unsigned change;                      /* one of the above */
    bool known;                           /* somebody looked at the section before */
    const json_t *before, *after;         /* NULL when it was, or is, not there */
    const json_t *all_before, *all_after; /* the whole sections; never NULL */
};

struct residue_class {
    const char *name; /* of the section */
    unsigned reports; /* which changes are residue */
    bool cluster;     /* compared between the primary of before and the one of now */
    /* Each may be NULL. natural: no residue after all. ours: by its name. alone: counts also when
     * nobody looked before; without it nothing does. what: without it the name and the key. */
    bool (*natural)(const struct residue_item *item);
    bool (*ours)(const struct residue_item *item);
    bool (*alone)(const struct residue_item *item);
    const char *(*what)(const struct residue_item *item);
    const char *(*remedy)(const struct residue_item *item);
};

/* Each ends with an entry without a name. */
extern const struct residue_class residue_host_classes[], residue_network_classes[],
    residue_postgres_classes[];

/* A member of the item as it is, or as it was when it is gone. */
const char *residue_member(const struct residue_item *item, const char *name);
const char *residue_old(const struct residue_item *item, const char *name);
bool residue_named_ours(const char *name); /* begins with "ordeal" */

/* ---- residue_words.c ---- */
const char *residue_shell(struct arena *arena, const char *word);
const char *residue_identifier(struct arena *arena, const char *name);
const char *residue_literal(struct arena *arena, const char *text);
/* psql as the superuser with the statement, and a second one when it is not NULL. `database` NULL:
 * the superuser's own. */
const char *residue_psql(const struct residue_item *item, const char *database,
                         const char *statement, const char *second);

#endif
