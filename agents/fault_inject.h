/* SPDX-License-Identifier: MIT */
/* The way of a fault from an order to an effect that was seen; see faults/fault.h. */
#ifndef ORDEAL_AGENTS_FAULT_INJECT_H
#define ORDEAL_AGENTS_FAULT_INJECT_H

#include "agents/session.h"
#include "faults/fault.h"

struct fault_order {
    const struct session *session;
    const char *state_folder, *uid;
    const struct fault *fault;
    int64_t hold_ms; /* 0: an instant without a deadline of its own */
    int64_t at_ns;   /* boot clock: not before; 0: at once */
    int64_t deadline_ns;
};

MUST_CHECK enum status fault_check_uid(const char *uid, struct error *err);
/* A copy of the parameters, complete and valid. */
MUST_CHECK enum status fault_take_params(const struct fault *fault, const json_t *given,
                                         json_t **ret_params, struct error *err);
MUST_CHECK enum status fault_check_supported(const struct fault *fault,
                                             const struct fault_context *context,
                                             const json_t *params, struct error *err);
/*
 * {uid, record, f0_ns, f1_ns, effect{state, text, numbers}}; f1_ns is null when no effect was seen.
 * A uid that was injected before gets the same answer again.
 */
MUST_CHECK enum status fault_inject(const struct fault_order *order, const json_t *params,
                                    json_t **ret_result, struct error *err);

#endif
