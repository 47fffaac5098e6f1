/* SPDX-License-Identifier: MIT */
/*
 * The guardian: a tiny process that owns the journal and the deadlines of every fault of a node.
 *
 * It is the parent of the agent. It makes a record durable before a fault is injected, and undoes
 * the fault when the agent asks, when its lease lapses, when agent or injector die, and after a
 * restart or a boot, with retries until it succeeds. Undoing is the work of a helper (`ordeald
 * --undo`), writing that of another child, so that this process links almost nothing, locks its
 * memory and never waits for a disk.
 *
 * Everything happens in one poll loop: each module adds what it waits for to `struct watches` and
 * is called back; see guardian.c. The protocol that agents speak is in docs/formats.md.
 */
#ifndef ORDEAL_AGENTS_GUARDIAN_GUARDIAN_H
#define ORDEAL_AGENTS_GUARDIAN_GUARDIAN_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agents/guardian/journal.h"
#include "lib/clock.h"
#include "lib/error.h"

enum {
    RECORDS_MAX = 64,
    CLIENTS_MAX = 32,
    WATCHES_MAX = 4 * RECORDS_MAX,
    NAME_SIZE = 80,
    REASON_SIZE = 200,
    GRACE_MS = 2000,        /* a lease never reaches further past the end of the hold */
    UNDO_TIMEOUT_MS = 60000 /* of one attempt */
};

struct guardian;

/* What one turn of the loop waits for. */
struct watches {
    struct pollfd fds[WATCHES_MAX];
    struct {
        void (*call)(struct guardian *guardian, void *object, short events);
        void *object;
    } calls[WATCHES_MAX];
    int count;
    int64_t due_ns; /* earliest deadline */
};

void watch(struct watches *watches, int fd, short events,
           void (*call)(struct guardian *guardian, void *object, short events), void *object);
void watch_due(struct watches *watches, int64_t due_ns);

enum record_state {
    RECORD_FREE,
    RECORD_OPENING, /* its line is not durable yet */
    RECORD_ARMED,
    RECORD_INJECTED,
    RECORD_KILLING, /* waiting for the injector's death, then undo */
    RECORD_UNDOING,
    RECORD_FAILED, /* an attempt failed; another follows */
    RECORD_CLOSING /* the closing line is not durable yet */
};

struct child {
    pid_t pid; /* 0: none */
    int pidfd;
};

struct record {
    enum record_state state;
    char uid[JOURNAL_UID_SIZE], run[NAME_SIZE], fault[NAME_SIZE];
    char excludes[NAME_SIZE];      /* one record at a time may have this word; "": any number */
    char *text;                    /* the record as JSON */
    int64_t deadline_ns, limit_ns; /* limit: the lease reaches no further */
    int injector;                  /* pidfd until it said `injected`, else -1 */
    bool abandoned;                /* its injector is gone before the record was durable */
    char who[JOURNAL_WORD_SIZE], effect[JOURNAL_WORD_SIZE];
    struct child helper;
    int helper_output;
    char said[REASON_SIZE]; /* last line of the helper */
    size_t said_length;
    unsigned attempts;
    int64_t helper_deadline_ns, retry_ns;
};

enum client_wait { WAIT_NOTHING, WAIT_OPEN, WAIT_UNDO, WAIT_UNDO_ALL, WAIT_CLOSE };

struct client {
    int fd;    /* -1: a free slot */
    int pidfd; /* of the process at the other end */
    char *input, *output;
    size_t input_length, input_capacity, output_length, output_capacity;
    bool watching; /* gets every change */
    enum client_wait wait;
    char subject[NAME_SIZE];          /* uid or run that it waits for */
    char injecting[JOURNAL_UID_SIZE]; /* its record until `injected` */
};

struct pending {
    struct pending *next;
    enum journal_kind kind;
    char uid[JOURNAL_UID_SIZE];
    bool sent;
    size_t length;
    char line[];
};

struct options {
    const char *state;
    char *ordeald, **agent_arguments;
    int undo_timeout_ms;
};

struct guardian {
    struct options options;
    int folder_fd, journal_fd, listen_fd, signal_fd;
    char boot_id[BOOT_ID_SIZE];
    struct record records[RECORDS_MAX];
    struct client clients[CLIENTS_MAX];
    struct child writer;
    int writer_fd;
    struct pending *first_pending;
    struct child agent;
    int64_t agent_started_ns, agent_retry_ns, agent_backoff_ms;
    bool stopping;
    int64_t stop_deadline_ns;
};

/* One line on stderr. */
void say(const char *format, ...) PRINTF_LIKE(1, 2);
/*
 * Fork a child that dies with the guardian and has default signals and a process group of its own;
 * 0 in the child, -1 with errno.
 */
pid_t fork_child(int *ret_pidfd);
/* Take the exit status of a child that has ended. */
int reap_child(struct child *child);
void signal_child(const struct child *child, int number);

#endif
