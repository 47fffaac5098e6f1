/* SPDX-License-Identifier: MIT */
/*
 * The runbook of `ha: manual`: its state and its steps. Steps act on the cluster
 * through cluster.h only and tell the run's journal what they did (docs/formats.md, events ha.*).
 * What to do is decided by decide.h and elect.h, which act on nothing.
 *
 * A step returns an error only when the run was aborted or the orchestrator itself failed. What the
 * cluster refuses is told once and tried again at the next call.
 */
#ifndef ORDEAL_TOPOLOGIES_HA_RUNBOOK_H
#define ORDEAL_TOPOLOGIES_HA_RUNBOOK_H

#include "topologies/ha/decide.h"

enum stage {
    STAGE_CALM,      /* the remembered primary is the primary, or nothing was done about it yet */
    STAGE_PROMOTING, /* a promotion of `chosen` was asked for; its outcome is not known */
    STAGE_OPENING    /* there is a new primary; the endpoint is not open on it */
};

enum { SAID_SIZE = 1024 };

/* The last thing of a kind that was told of a node. */
struct said {
    const char *event, *node;
    char text[SAID_SIZE];
};

/* A member that is being brought back, and when something was last done or seen to move. */
struct care {
    struct patient patient;
    int64_t moved_ns;
    uint32_t timeline; /* of the last look */
    uint64_t lsn;
    char problem[512]; /* of the last step that failed */
};

struct runbook {
    struct ha *ha;
    struct arena *arena;  /* for the life of the driver */
    struct memory memory; /* its texts are in `knowledge`, renewed with each primary */
    struct arena *knowledge;
    enum stage stage;
    bool allow_loss; /* the election of `chosen` was not safe, and the topology allows that */
    const struct topology_node *chosen;
    const struct topology_node *routed; /* where the endpoint is open; NULL: closed */
    int64_t opened_ns;                  /* since then */
    int64_t looked_ns;                  /* last look at all members */
    int64_t accepted_ns;                /* last look at which the primary accepted */
    int64_t starting_ns;                /* since when its server is up without accepting; 0: not */
    bool alarmed;                       /* this outage has been told */
    size_t said_count;
    struct said *said; /* of this outage */
    size_t care_count;
    struct care *cares; /* the database nodes, in order */
};

/* ---- tell ---- */

/* Takes details (may be NULL: {}); adds the text. */
void runbook_tell(struct runbook *runbook, const char *event, const char *node, json_t *details,
                  const char *format, ...) PRINTF_LIKE(5, 6);
/* The same, unless the last such event of that node in this outage reads the same. Takes details.
 */
void runbook_tell_once(struct runbook *runbook, const char *event, const char *node,
                       json_t *details, const char *format, ...) PRINTF_LIKE(5, 6);
/* {"run": ...} for a method that changes a node; with a timeout for the agent, too. */
json_t *runbook_params(struct runbook *runbook);
json_t *runbook_timed_params(struct runbook *runbook, int64_t timeout_ms);
/* The slot of a standby: its name with "-" turned into "_". */
char *runbook_slot(struct arena *arena, const struct topology_node *node);
/* Turn the loop for that long. */
MUST_CHECK enum status runbook_pause(struct runbook *runbook, int64_t ms, struct error *err);
struct care *runbook_care(struct runbook *runbook, const struct topology_node *node);
/* Ask all members and learn from what they say; the state lives in `arena`. */
MUST_CHECK enum status runbook_look(struct runbook *runbook, struct arena *arena,
                                    struct ha_state *ret_state, struct error *err);
/* Everything is about this primary from now on. */
void runbook_remember(struct runbook *runbook, const struct ha_state *state,
                      const struct ha_member *primary);

/*
 * Did a commit on this primary wait for its quorum and get it? STATUS_FAILED: it was acknowledged
 * without anything that shows a wait. Where the topology promises no quorum, an acknowledgement is
 * enough.
 */
MUST_CHECK enum status runbook_judge_commit(const struct runbook *runbook, const json_t *result,
                                            struct error *err);

/* ---- endpoint ---- */

/* On all client nodes that are connected; only noted when the topology routes by itself. */
MUST_CHECK enum status runbook_close_endpoint(struct runbook *runbook, struct error *err);
MUST_CHECK enum status runbook_open_endpoint(struct runbook *runbook,
                                             const struct topology_node *node, struct error *err);

/* ---- fencing ---- */

struct fencing {
    const char *path; /* control, power, script, none */
    bool fenced;      /* seen to be done */
    char text[512];
};
/* By the path that the topology declares; what went wrong stands in the text. */
MUST_CHECK enum status runbook_fence(struct runbook *runbook, const struct topology_node *node,
                                     struct fencing *ret_fencing, struct error *err);
/* runbook_fence(), told. A primary that was replaced is marked as deposed. */
MUST_CHECK enum status runbook_fence_and_tell(struct runbook *runbook,
                                              const struct topology_node *node, const char *why,
                                              struct fencing *ret_fencing, struct error *err);
/* The power agent's word for a node: off, cut, on. STATUS_UNSUPPORTED without a power driver. */
MUST_CHECK enum status runbook_power(struct runbook *runbook, const struct topology_node *node,
                                     const char *word, struct error *err);

/* ---- failover ---- */

/* From fencing to the open endpoint, as far as it goes now. `state` is the look that decided. */
MUST_CHECK enum status runbook_fail_over(struct runbook *runbook, const struct ha_state *state,
                                         const struct ha_member *primary, const char *why,
                                         struct error *err);
/* Go on with a failover that stands in STAGE_PROMOTING or STAGE_OPENING. */
MUST_CHECK enum status runbook_fail_over_further(struct runbook *runbook,
                                                 const struct ha_state *state, struct error *err);
/* Decide about a look and do it; asks the primary for a commit where that decides. */
MUST_CHECK enum status runbook_act(struct runbook *runbook, const struct ha_state *state,
                                   bool writes_known, struct error *err);

/* ---- recovery ---- */

/* Until ha_healthy() and an open endpoint; STATUS_TIMEOUT says what is missing. */
MUST_CHECK enum status runbook_recover(struct runbook *runbook, int64_t deadline_ns,
                                       struct error *err);

#endif
