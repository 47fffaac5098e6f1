/* SPDX-License-Identifier: MIT */
/*
 * A run directory, read. Checks and reports see a run only through this.
 *
 * Instants in the journal are the orchestrator's boot clock or, where an event names a `clock`,
 * that node's; record_client_ns() brings them all to the client node's clock with their error.
 */
#ifndef ORDEAL_ORCHESTRATOR_RECORD_H
#define ORDEAL_ORCHESTRATOR_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/arena.h"
#include "lib/error.h"
#include "lib/ledger.h"

struct record_ledger {
    const char *path;    /* within the run directory */
    const char *problem; /* why it cannot be read, or NULL; its ledger is empty then */
    struct ledger ledger;
};

struct record {
    const char *folder;
    const json_t *start; /* event run.start */
    json_t *events;      /* array, in order of the journal */
    bool complete;       /* has run.end; false: the orchestrator died */
    bool torn;           /* the last line of the journal is cut off */
    const char *client;  /* the client node that is the clock of the run, NULL without load */
    size_t ledger_count;
    struct record_ledger *ledgers;
};

MUST_CHECK enum status record_load(struct arena *arena, const char *folder,
                                   struct record **ret_record, struct error *err);
void record_close(struct record *record); /* unmaps ledgers, drops events */
/* Next event of this name at or after *index, which is moved past it; NULL at the end. */
const json_t *record_next(const struct record *record, const char *event, size_t *index);
const json_t *record_last(const struct record *record, const char *event);
/* node: NULL for the orchestrator's clock. STATUS_NOT_FOUND without an estimate. */
MUST_CHECK enum status record_client_ns(const struct record *record, const char *node, int64_t ns,
                                        int64_t *ret_client_ns, int64_t *ret_error_ns,
                                        struct error *err);

#endif
