/* SPDX-License-Identifier: MIT */
/*
 * The lab's supervisor: init of the outer PID namespace, in which everything of a lab lives.
 *
 * It holds the switch, boots nodes and takes their power away, and keeps the power node's agent
 * running. Killing it ends the whole lab. It listens on LAB_ROOT/NAME/control.sock: one connection
 * a request, one line of JSON each way.
 *
 *     {"request": "status"}                                what `lab status` prints
 *     {"request": "power", "node": "n1", "word": "off"}    off, cut, on; answers when it is done
 *     {"request": "boot", "node": "n1"}                    as "on", but without the agent
 *     {"request": "agent", "node": "n1"}                   start the agent (and keep it running)
 *     {"request": "keep"}                                  from now on outlive the one who began it
 *
 * Answers: {"result": {...}} or {"error": {code, message, ...}}. Until "keep" the supervisor dies
 * with the process that started it, so that a killed `lab up` leaves nothing running.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_SUPERVISOR_H
#define ORDEAL_TOPOLOGIES_LAB_SUPERVISOR_H

#include "lib/process.h"
#include "topologies/lab/lab.h"

/* Returns when it is ready to be asked. */
MUST_CHECK enum status supervisor_start(const struct lab_spec *spec,
                                        const struct lab_programs *programs,
                                        struct process *ret_process, struct error *err);
/* Ask the supervisor of a lab and wait for the answer; the result may be NULL. */
MUST_CHECK enum status supervisor_ask(const char *lab, json_t *request, int64_t timeout_ms,
                                      json_t **ret_result, struct error *err);

#endif
