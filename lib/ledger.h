/* SPDX-License-Identifier: MIT */
/*
 * The ledger: what every client meant to commit, and what it was told.
 *
 * One file a worker, written on the client node, of LEDGER_HEADER_SIZE bytes of header and then
 * fixed records in the order of writing, little-endian. The writer maps the file, so that a record
 * survives the death (kill -9) of the worker and of the agent the moment it is stored; a child
 * process makes it durable in the background. A record whose CRC is wrong ends the file: it is the
 * torn tail, and everything before it counts. The workload's clients and the probes write the same
 * records; what a client is stands in its session records.
 *
 * The present set: which tokens one node really holds, read from its table after the run.
 *
 * All instants are CLOCK_BOOTTIME nanoseconds of the client node.
 */
#ifndef ORDEAL_LIB_LEDGER_H
#define ORDEAL_LIB_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/arena.h"
#include "lib/error.h"

enum { LEDGER_VERSION = 1, LEDGER_HEADER_SIZE = 4096, LEDGER_NODES_MAX = 32 };

enum ledger_kind {
    LEDGER_SESSION = 1, /* connected: node, timeline, class = enum ledger_level, flags = role (every
                           record of a client says its role in flags) */
    LEDGER_SESSION_END, /* connection over: sqlstate when known */
    LEDGER_RESERVE,     /* durable before use: tokens seq .. lsn of this client may be sent */
    LEDGER_INTENT,      /* stored before COMMIT is sent: scheduled, sent (transaction begun) */
    LEDGER_OUTCOME,     /* class, phase, sqlstate, scheduled, done, lsn, timeline; sent: COMMIT, or
                           before it the begin of the transaction or of the connection */
    LEDGER_READ,        /* token (lsn = its client, seq) was seen by this client on node/timeline */
    LEDGER_MISSED,      /* open loop: `seq` scheduled starts could not begin by done */
    LEDGER_BEAT,        /* every 50 ms: the worker ran; sent = when the beat was due, done = now */
    LEDGER_END          /* the worker ended in order */
};

enum ledger_role { /* what a client is */
                   LEDGER_WORKLOAD,
                   LEDGER_ENDPOINT_OLD, /* probe: endpoint, one connection kept */
                   LEDGER_ENDPOINT_NEW, /* probe: endpoint, a new connection each time */
                   LEDGER_DIRECT        /* probe: one node, whatever its role */
};

enum ledger_class { /* docs/load.md */
                    LEDGER_ACKED,
                    LEDGER_WEAK,
                    LEDGER_IN_DOUBT,
                    LEDGER_ABORTED,
                    LEDGER_UNSENT
};

enum ledger_phase {
    LEDGER_CONNECTING,
    LEDGER_IN_TRANSACTION, /* BEGIN and INSERT sent, COMMIT not */
    LEDGER_COMMITTING      /* COMMIT sent */
};

enum ledger_level { /* effective synchronous_commit of the session */
                    LEDGER_LEVEL_UNKNOWN,
                    LEDGER_OFF,
                    LEDGER_LOCAL,
                    LEDGER_REMOTE_WRITE,
                    LEDGER_ON,
                    LEDGER_REMOTE_APPLY
};

/*
 * `flags` is the role of the client (enum ledger_role) in every record that names one. A connection
 * has one SESSION record and one more each time that its timeline or its durability changed; an
 * outcome's timeline is the one that the transaction itself wrote to. An outcome of a client that
 * has no connection names the node that it tried last.
 */
struct ledger_record {
    uint8_t kind, class, phase, flags;
    uint32_t client;
    uint64_t seq; /* dense per client, from 1 */
    int64_t scheduled_ns, sent_ns, done_ns;
    uint64_t lsn;      /* outcome: insert position read inside the transaction, 0 unknown */
    uint32_t timeline; /* of the session's node; 0 unknown (a standby) */
    uint16_t node;     /* index in the header's list */
    char sqlstate[6];  /* five characters or empty */
    uint32_t crc;      /* CRC-32C of the bytes before it */
    uint32_t zero;
};
_Static_assert(sizeof(struct ledger_record) == 72, "a ledger record is 72 bytes on disk");

struct ledger_header {
    char magic[16]; /* "ordeal-ledger-1\n" */
    uint32_t version, record_size;
    char run[64], client_node[64];
    uint32_t worker, node_count;
    char nodes[LEDGER_NODES_MAX][64];
};
_Static_assert(sizeof(struct ledger_header) <= LEDGER_HEADER_SIZE, "header fits");

/* A whole file in memory (mapped); records point into the mapping. */
struct ledger {
    struct ledger_header header;
    size_t count;
    const struct ledger_record *records;
    bool ended;     /* its last record is LEDGER_END */
    bool torn_tail; /* stopped at a bad CRC, and something else than zeros is there or after it */
    void *map;
    size_t map_size;
};

/*
 * STATUS_INVALID: no ledger, or a record with a right CRC and an impossible value. What a torn tail
 * ends is no error. Classes, phases, roles and nodes of the records are in range.
 */
MUST_CHECK enum status ledger_open(const char *path, struct ledger *ret_ledger, struct error *err);
void ledger_close(struct ledger *ledger);
uint32_t ledger_crc(const struct ledger_record *record);
const char *ledger_class_name(enum ledger_class class); /* "acked", "weak", "in-doubt" ... */
const char *ledger_level_name(enum ledger_level level); /* "on" ... "unknown" */
enum ledger_level ledger_level_from_name(const char *name);

/*
 * Class of an outcome from phase, command tag, severity, SQLSTATE and notices; never from message
 * text (docs/load.md). Pure.
 */
struct ledger_evidence {
    enum ledger_phase phase;
    bool connection_lost; /* EOF, reset, our deadline: the session is over */
    const char *tag;      /* command tag of COMMIT, or NULL */
    const char *severity; /* of the error, not localised (PG_DIAG_SEVERITY_NONLOCALIZED), or NULL */
    const char *sqlstate; /* of the error, or NULL */
    bool sync_wait_notice; /* a notice raised in the synchronous wait (source function
                              SyncRepWaitForLSN) since COMMIT was sent */
    bool warnings_hidden;  /* the server was told to keep such a notice to itself */
};
enum ledger_class ledger_classify(const struct ledger_evidence *evidence);

/*
 * Digest of a row of ordeal.journal, stored with it as a signed bigint: FNV-1a (64 bits, offset
 * basis 14695981039346656037, prime 1099511628211) of the text "client:seq:row:payload", numbers
 * in decimal. Who writes a row and who verifies it must share this function.
 */
int64_t ledger_digest(uint64_t client, uint64_t seq, unsigned row, const char *payload,
                      size_t payload_length);

/* --- present sets: text, see docs/formats.md ------------------------------------------------- */

struct present_range {
    uint32_t client;
    uint64_t first, last; /* tokens present exactly once and whole */
};

struct present_odd { /* a token that is not exactly its rows, once */
    uint32_t client;
    uint64_t seq;
    uint64_t rows, expected; /* rows found; rows that one transaction writes */
    uint64_t bad;            /* rows whose payload or digest is wrong */
};

struct present {
    const char *run, *node, *system_identifier;
    uint32_t timeline;
    bool in_recovery;
    uint64_t lsn; /* replayed (standby) or current (primary) position when read */
    size_t range_count, odd_count;
    const struct present_range *ranges; /* sorted by client, first */
    const struct present_odd *odd;      /* sorted by client, seq */
    uint64_t tokens;                    /* distinct ones, whole and odd together */
};

/* STATUS_INVALID when the file is malformed or has no "end" line (was cut off). */
MUST_CHECK enum status present_load(struct arena *arena, const char *path,
                                    struct present *ret_present, struct error *err);
/* Is the token there, once and whole? */
bool present_has(const struct present *present, uint32_t client, uint64_t seq);

#endif
