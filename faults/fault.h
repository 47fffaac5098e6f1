/* SPDX-License-Identifier: MIT */
/*
 * The fault contract.
 *
 * A fault is one file that ends in one descriptor and one line in faults.def. The agent drives it:
 *
 *     validate -> supported -> prepare -> RECORD DURABLE (guardian) -> inject -> observe: active?
 *         ... lease renewals ...  -> undo -> observe: absent? -> record closed
 *
 * prepare() looks, and changes nothing: it returns the record, a JSON object with everything that
 * inject(), observe() and undo() need and exact handles only (pid and start time, the name of a
 * table that nobody else uses, a prior value), never "whatever matches". Nothing is injected before
 * the guardian has made that record durable. undo() works from the record alone, in a fresh process
 * after a crash, any number of times, also when inject() never ran or stopped half-way.
 *
 * A fault knows neither agent nor orchestrator: what it needs comes through the context. It blocks
 * as it likes within its deadline; it runs in a job process, never in a poll loop.
 */
#ifndef ORDEAL_FAULTS_FAULT_H
#define ORDEAL_FAULTS_FAULT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/error.h"
#include "lib/param.h"

enum { FAULT_ABI = 1 };

/* A node as a fault sees it. */
struct fault_peer {
    const char *name, *address;
};

struct fault_context {
    const char *node;           /* the node this runs on */
    const char *uid;            /* of the fault: [a-z0-9-]{1,40}, unique for ever */
    int64_t deadline_ns;        /* boot time; every call returns by then */
    const char *data_directory; /* of PostgreSQL on this node; NULL on others */
    int database_port;
    pid_t own_session; /* backend of Ordeal's that only looks: the last to be chosen; 0: none */
    const char *control_address; /* the orchestrator's end of the control connection */
    int control_port;            /* the agent's listening port */
    size_t peer_count;
    const struct fault_peer *peers; /* every node of the topology, this one included */
    /*
     * Power driver of the topology (executor EXECUTE_POWER only, else NULL): `word` is off, cut or
     * on; returns when the node is really in that state.
     */
    enum status (*power)(void *argument, const char *word, const char *node, int64_t deadline_ns,
                         struct error *err);
    void *argument;
};

enum effect { EFFECT_UNKNOWN, EFFECT_ABSENT, EFFECT_PARTIAL, EFFECT_ACTIVE };

struct observation {
    enum effect effect;
    char text[256];  /* one line for people: "3 of 3 processes are gone" */
    json_t *numbers; /* object, or NULL; the caller owns it */
};

enum fault_executor {
    EXECUTE_NODE, /* by the agent of the target node */
    EXECUTE_POWER /* by the power agent, for a node that cannot keep a lease itself */
};

struct fault {
    int abi; /* FAULT_ABI */
    const char *name, *summary;
    enum fault_executor executor;
    bool holds;           /* true: lasts until undo, `for:` is compulsory; false: an instant */
    bool reversible;      /* false: undo cannot bring back what was lost */
    const char *restores; /* what restores service when it is irreversible: "restart, rejoin" */
    const char *loses;    /* what can be lost, for `ordeal plan` */
    const char *excludes; /* group: two active faults of one group on one target are refused */
    const struct param *params;

    /* Pure: what param tables cannot say. Optional. */
    enum status (*validate)(const json_t *params, struct error *err);
    /* No side effect: STATUS_UNSUPPORTED with the reason and a remedy. */
    enum status (*supported)(const struct fault_context *context, const json_t *params,
                             struct error *err);
    enum status (*prepare)(const struct fault_context *context, const json_t *params,
                           json_t **ret_record, struct error *err);
    enum status (*inject)(const struct fault_context *context, const json_t *record,
                          struct error *err);
    /* Asks the kernel or PostgreSQL, not our memory. */
    enum status (*observe)(const struct fault_context *context, const json_t *record,
                           struct observation *ret_observation, struct error *err);
    enum status (*undo)(const struct fault_context *context, const json_t *record,
                        struct error *err);
    /*
     * Optional: the same question asked on another node (context->node is the witness's), which
     * sees the effect better. Same answers as observe().
     */
    enum status (*witness)(const struct fault_context *context, const json_t *record,
                           struct observation *ret_observation, struct error *err);
};

/* NULL when there is none; the list ends with NULL and is in faults.def's order. */
const struct fault *fault_find(const char *name);
const struct fault *const *fault_list(void);
/* Parameters complete and valid (param_complete(), then validate()). */
MUST_CHECK enum status fault_validate(const struct fault *fault, json_t *params, struct error *err);
const char *effect_name(enum effect effect); /* "active" ... */
enum effect effect_from_name(const char *name);
void observation_set(struct observation *observation, enum effect effect, json_t *numbers,
                     const char *format, ...) PRINTF_LIKE(4, 5);

#endif
