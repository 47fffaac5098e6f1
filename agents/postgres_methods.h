/* SPDX-License-Identifier: MIT */
/*
 * Methods of the agent that control the PostgreSQL of its node (docs/formats.md, "Wire"). All are
 * jobs: they block until call->deadline_ns at most. The tables are in postgres_methods.c.
 */
#ifndef ORDEAL_AGENTS_POSTGRES_METHODS_H
#define ORDEAL_AGENTS_POSTGRES_METHODS_H

#include "agents/method.h"

extern const struct method postgres_methods[];
extern const struct method postgres_check_methods[];

#define POSTGRES_METHOD(name)                                                                      \
    MUST_CHECK enum status name(const struct method_call *call, json_t **ret_result,               \
                                struct error *err)

POSTGRES_METHOD(postgres_state);
POSTGRES_METHOD(postgres_start);
POSTGRES_METHOD(postgres_stop);
POSTGRES_METHOD(postgres_fence);
POSTGRES_METHOD(postgres_receiver);
POSTGRES_METHOD(postgres_promote);
POSTGRES_METHOD(postgres_rewind);
POSTGRES_METHOD(postgres_rebuild);
POSTGRES_METHOD(postgres_slots);
POSTGRES_METHOD(postgres_preflight);
POSTGRES_METHOD(postgres_quorum_wait);
POSTGRES_METHOD(postgres_tokens);
POSTGRES_METHOD(postgres_checksums);
POSTGRES_METHOD(postgres_verify);
POSTGRES_METHOD(postgres_amcheck);
POSTGRES_METHOD(postgres_prepare);

#endif
