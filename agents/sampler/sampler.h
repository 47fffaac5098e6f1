/* SPDX-License-Identifier: MIT */
/*
 * A running sampler, as the agent sees it: one worker process, watched from the agent's loop. A
 * worker that dies is started again after a second. It ends with its session, and when no
 * orchestrator has been connected for a minute.
 */
#ifndef ORDEAL_AGENTS_SAMPLER_SAMPLER_H
#define ORDEAL_AGENTS_SAMPLER_SAMPLER_H

#include "agents/method.h"
#include "agents/sampler/worker.h"

struct sampler;

/* `on_end(argument)` is called when it has ended for good, with the sampler already freed. */
MUST_CHECK enum status sampler_start(struct agent *agent, const struct sampler_order *order,
                                     void (*on_end)(void *argument), void *argument,
                                     struct sampler **ret_sampler, struct error *err);
/* End in order; killed when that takes longer than a few seconds. */
void sampler_stop(struct sampler *sampler);
/* End now: the session, whose memory it reads, goes. */
void sampler_kill(struct sampler *sampler);
/* Process of PostgreSQL that serves the sampler, also asked in a job; 0: there is none. */
pid_t sampler_session(void);
bool sampler_stopping(const struct sampler *sampler);

#endif
