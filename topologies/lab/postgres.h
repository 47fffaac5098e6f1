/* SPDX-License-Identifier: MIT */
/*
 * PostgreSQL in the lab: what its nodes are given before they first start.
 *
 * What differs between nodes (synchronous_standby_names, certificates) lies on the system volume
 * and is included from postgresql.conf, so that a rewind or a base backup, which copies the data
 * folder of another node, does not carry the other's settings over.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_POSTGRES_H
#define ORDEAL_TOPOLOGIES_LAB_POSTGRES_H

#include "lib/buffer.h"
#include "topologies/lab/lab.h"

enum { PASSWORD_TEXT_SIZE = 33 };

struct lab_passwords {
    char admin[PASSWORD_TEXT_SIZE], load[PASSWORD_TEXT_SIZE], replication[PASSWORD_TEXT_SIZE];
};

MUST_CHECK enum status lab_passwords_draw(struct lab_passwords *ret_passwords, struct error *err);

/* Texts of the files. */
void lab_postgres_settings(const struct lab_spec *spec, const struct lab_node *node,
                           struct buffer *text);
void lab_postgres_hba(struct buffer *text);
void lab_postgres_ident(struct buffer *text);
/* postgresql.auto.conf of a standby of `primary`. */
void lab_postgres_follow(const struct lab_spec *spec, const struct lab_node *standby,
                         const struct lab_node *primary, struct buffer *text);
/* Statements for the first start: roles, database, a slot a standby. */
void lab_postgres_first_sql(const struct lab_spec *spec, const struct lab_node *primary,
                            const struct lab_passwords *passwords, struct buffer *text);

/* On the node (its namespaces entered): make the data folder, from nothing. */
MUST_CHECK enum status lab_postgres_create(const struct lab_spec *spec,
                                           const struct lab_node *primary,
                                           const struct lab_passwords *passwords,
                                           struct error *err);
/* On the node: start the server, in the node's limited control group; does not wait. */
MUST_CHECK enum status lab_postgres_start(const struct lab_spec *spec, const struct lab_node *node,
                                          struct error *err);

#endif
