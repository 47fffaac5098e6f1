/* SPDX-License-Identifier: MIT */
/*
 * The processes of one PostgreSQL server, from /proc and its data directory: the postmaster named
 * in postmaster.pid (checked: it runs in that directory), and its children by class.
 */
#ifndef ORDEAL_LIB_PG_PROCESSES_H
#define ORDEAL_LIB_PG_PROCESSES_H

#include <stddef.h>

#include "lib/arena.h"
#include "lib/error.h"
#include "lib/process.h"

enum pg_class {
    PG_POSTMASTER,
    PG_BACKEND, /* a client's session, no walsender */
    PG_CHECKPOINTER,
    PG_BGWRITER, /* "background writer" */
    PG_WALWRITER,
    PG_WALSENDER,
    PG_WALRECEIVER,
    PG_STARTUP,
    PG_ARCHIVER,
    PG_LOGGER,
    PG_AUTOVACUUM, /* launcher and workers */
    PG_OTHER       /* parallel and logical workers, extensions */
};

struct pg_process {
    struct process_id id;
    enum pg_class class;
    const char *title; /* the command line as ps shows it, without "postgres: " */
};

struct pg_processes {
    size_t count;
    struct pg_process *items; /* the postmaster first when it is alive */
};

/*
 * STATUS_OK with count 0 when nothing of that server runs. Children whose postmaster is dead are
 * found too: by their working directory, which is the data directory. A file system that failed
 * does not hide its server.
 */
MUST_CHECK enum status pg_processes_list(struct arena *arena, const char *data_directory,
                                         struct pg_processes *ret_processes, struct error *err);
/* The postmaster that postmaster.pid names, if it runs in that directory; 0: there is none. */
pid_t pg_postmaster(const char *data_directory);
/* What a process calls itself; false when it is gone or has no title of PostgreSQL's (yet). */
bool pg_process_class(pid_t pid, enum pg_class *ret_class);
/* Class of a process title ("checkpointer ", "walsender repl 10.0.0.2(5) streaming"). */
enum pg_class pg_class_of_title(const char *title);
const char *pg_class_name(enum pg_class class);
/* STATUS_INVALID with the known names when it is none. */
MUST_CHECK enum status pg_class_from_name(const char *name, enum pg_class *ret_class,
                                          struct error *err);

#endif
