/* SPDX-License-Identifier: MIT */
/*
 * A real ordeald (guardian and agent) of one test, on 127.0.0.1 with a free port and a temporary
 * state folder, and a small orchestrator that talks to it.
 *
 *     agent_fixture_start();                                   node n1
 *     struct agent_peer *peer = agent_peer_new("control");     connected with that certificate
 *     json_t *result = agent_call(peer, "hello", params);      the job's result for job methods
 *     agent_fixture_stop();
 *
 * What goes wrong fails the test with the reason.
 */
#ifndef ORDEAL_TESTS_SUPPORT_AGENT_FIXTURE_H
#define ORDEAL_TESTS_SUPPORT_AGENT_FIXTURE_H

#include <jansson.h>
#include <sys/types.h>

#include "lib/error.h"

void agent_fixture_start(void);
/* The same with the state folder on a disk of its own: a tmpfs with these options ("size=1m"). */
void agent_fixture_start_on(const char *tmpfs_options);
/* SIGTERM and wait; removes everything. */
void agent_fixture_stop(void);
/* SIGKILL the guardian (the agent dies with it) and start both again on the same state. */
void agent_fixture_restart(void);
const char *agent_fixture_state(void); /* the state folder */
pid_t agent_fixture_guardian(void);
/* The agent of now, waited for; `other_than`: a pid that it is not (0: any). */
pid_t agent_fixture_agent(pid_t other_than);
/* Everything on the standard error of both so far. */
const char *agent_fixture_log(void);

struct agent_peer;
/* Connected, or ended: then agent_peer_reason() says why. */
struct agent_peer *agent_peer_new(const char *certificate);
void agent_peer_free(struct agent_peer *peer);
/* Waits until the connection has ended. */
const struct error *agent_peer_reason(struct agent_peer *peer);

/* Takes params (NULL: {}). The result, the caller's; on failure, also when the connection ends, the
 * error is filled. */
MUST_CHECK enum status agent_try(struct agent_peer *peer, const char *method, json_t *params,
                                 json_t **ret_result, struct error *err);
/* Send it and return; what it answers is not looked for. */
void agent_post(struct agent_peer *peer, const char *method, json_t *params);
/* agent_try(); a failure fails the test. json_decref() the result. */
json_t *agent_call(struct agent_peer *peer, const char *method, json_t *params);
/* Its message, with the status's name in front: "refused: ...". A success fails the test. */
const char *agent_refusal(struct agent_peer *peer, const char *method, json_t *params);
/* Wait for a notification; its params, borrowed until the next call. */
const json_t *agent_notification(struct agent_peer *peer, const char *method);
/* Parameters of session.open for n1 alone; `data` NULL: no database. */
json_t *agent_session(const char *run, int lease_ms, const char *data);

#endif
