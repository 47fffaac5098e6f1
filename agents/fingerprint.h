/* SPDX-License-Identifier: MIT */
/*
 * What a fault could leave behind on a node, read from the kernel and from PostgreSQL: taken before
 * and after a run and compared item by item (docs/residue.md; the comparison is
 * orchestrator/residue.c).
 *
 * A section is an object of items. The key of an item says what it is and stays the same over
 * restarts and boots; its value says how it is. Members of a value whose name begins with "_" are
 * not compared: handles, pids and numbers of devices, for the command that removes the item. What
 * changes by itself (counters, ages) stays out, and so does what belongs to others on the same
 * host.
 */
#ifndef ORDEAL_AGENTS_FINGERPRINT_H
#define ORDEAL_AGENTS_FINGERPRINT_H

#include "agents/method.h"
#include "lib/arena.h"

/* The methods node.fingerprint and node.forget. */
enum status node_fingerprint(const struct method_call *call, json_t **ret_result,
                             struct error *err);
enum status node_forget(const struct method_call *call, json_t **ret_result, struct error *err);

/* What a power cut left of keeping a fingerprint; at the agent's start. */
void fingerprint_tidy(const char *state_folder);

/* Fills one section, or several: sections that cannot be read for want of a program stay out. */
typedef enum status fingerprint_section(const struct method_call *call, json_t *fingerprint,
                                        struct error *err);
fingerprint_section fingerprint_processes;                  /* fingerprint_processes.c */
fingerprint_section fingerprint_mounts, fingerprint_swaps;  /* .._mounts.c; loops, too */
fingerprint_section fingerprint_nft, fingerprint_tc;        /* .._network.c */
fingerprint_section fingerprint_iptables;                   /* .._iptables.c */
fingerprint_section fingerprint_cgroups;                    /* .._cgroups.c; four sections */
fingerprint_section fingerprint_sysctls, fingerprint_files; /* .._sysctls.c, .._files.c */
fingerprint_section fingerprint_postgres;                   /* .._postgres.c; all of them */

/* Add an item; a key that is there already gets " #2", " #3" behind it. Takes the item. */
void fingerprint_add(json_t *section, const char *key, json_t *item);
/* The section of that name, made when it is not there. Borrowed. */
json_t *fingerprint_of(json_t *fingerprint, const char *section);
/* All of a small file without its last line end, NULL when it cannot be read. */
const char *fingerprint_text(struct arena *arena, const char *path);
/* Runs a program; "" when it is not installed, when it fails or this kernel has no such thing. */
MUST_CHECK enum status fingerprint_ask(struct arena *arena, const char *const *argv,
                                       const char **ret_output, struct error *err);
/* "ip filter" ...: tables of nft that iptables made and shows. */
MUST_CHECK enum status fingerprint_iptables_tables(struct arena *arena, json_t **ret_tables,
                                                   struct error *err);

#endif
