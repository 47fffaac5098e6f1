/* SPDX-License-Identifier: MIT */
/*
 * A running load, as the agent sees it: its worker processes, watched from the agent's loop, and
 * the notifications load.status and load.ended.
 *
 * Workers die with the agent; their ledgers stay in the spool and are listed by a later agent, too.
 */
#ifndef ORDEAL_AGENTS_LOAD_LOAD_H
#define ORDEAL_AGENTS_LOAD_LOAD_H

#include "agents/load/plan.h"
#include "agents/method.h"

struct load;

/*
 * Start the workers. `on_end(argument)` is called when the last one has ended after load_stop() or
 * load_orphan(), with the load already freed.
 */
MUST_CHECK enum status load_start(struct agent *agent, const struct session *session,
                                  const struct load_request *request,
                                  void (*on_end)(void *argument), void *argument,
                                  struct load **ret_load, struct error *err);
/* Names of the ledgers in the spool: a new array of strings. */
json_t *load_files(const struct load *load);
/* Open the endpoint on a node, or close it (host NULL). Existing connections stay. */
MUST_CHECK enum status load_route(struct load *load, const char *host, struct error *err);
/* End in order: load.ended follows. */
void load_stop(struct load *load);
/* The session is over: end soon, and tell nobody. */
void load_orphan(struct load *load);
bool load_is_orphan(const struct load *load);
/* End now; the ledgers get no END. Does not call on_end. */
void load_kill(struct load *load);
/* Members of load.ended for the ledgers of a spool; those of `load` (or NULL) are known to it. */
json_t *load_ended(const struct load *load, const char *spool, const char *client_node);

#endif
