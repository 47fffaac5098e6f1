/* SPDX-License-Identifier: MIT */
/*
 * The data folder of a stopped server as files: what belongs to this node and survives a copy from
 * another one, and what makes it a standby.
 *
 * pg_rewind and pg_basebackup bring the source's configuration along. A node's own files are kept
 * in a folder beside the data folder before the copy and put back after it; the folder stays until
 * then, so that a second attempt after a failure still has them.
 */
#ifndef ORDEAL_AGENTS_POSTGRES_FILES_H
#define ORDEAL_AGENTS_POSTGRES_FILES_H

#include "agents/session.h"
#include "lib/arena.h"

/* Keep *.conf, *.crt, *.key and *.pem of the data folder; what an earlier attempt kept wins. */
MUST_CHECK enum status postgres_files_keep(struct arena *arena, const struct session *session,
                                           int64_t deadline_ns, struct error *err);
/* Put them back and remove the kept copies; fine when nothing was kept. */
MUST_CHECK enum status postgres_files_restore(struct arena *arena, const struct session *session,
                                              int64_t deadline_ns, struct error *err);
/* standby.signal, and the source in postgresql.auto.conf; no replication slots of its own. */
MUST_CHECK enum status postgres_files_make_standby(struct arena *arena,
                                                   const struct session *session,
                                                   const char *conninfo, int64_t deadline_ns,
                                                   struct error *err);
/* A folder of the data folder's owner, 0700; fine when it is there. */
MUST_CHECK enum status postgres_files_create(const struct session *session, const char *path,
                                             struct error *err);
/* Remove what is in a folder, as the data folder's owner; fine when it is not there. */
MUST_CHECK enum status postgres_files_empty(const struct session *session, const char *path,
                                            int64_t deadline_ns, struct error *err);
/* The folder, too. */
MUST_CHECK enum status postgres_files_remove(const struct session *session, const char *path,
                                             int64_t deadline_ns, struct error *err);

#endif
