/* SPDX-License-Identifier: MIT */
#include "agents/postgres_methods.h"

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };

static const struct method_param none[] = {{0}};
static const struct method_param timed[] = {{"run", 's', true}, {"timeout_ms", 'i', false}, {0}};
static const struct method_param stop_params[] = {
    {"run", 's', true}, {"mode", 's', false}, {"timeout_ms", 'i', false}, {0}};
static const struct method_param receiver_params[] = {
    {"run", 's', true}, {"source", 's', false}, {"timeout_ms", 'i', false}, {0}};
static const struct method_param slots_params[] = {{"run", 's', true},
                                                   {"ensure", 'a', false},
                                                   {"drop_others", 'b', false},
                                                   {"timeout_ms", 'i', false},
                                                   {0}};
static const struct method_param source_params[] = {
    {"run", 's', true}, {"source", 's', true}, {"timeout_ms", 'i', false}, {0}};
static const struct method_param checksums_params[] = {
    {"run", 's', true}, {"scope", 's', false}, {"timeout_ms", 'i', false}, {0}};
static const struct method_param amcheck_params[] = {
    {"run", 's', true}, {"database", 's', true}, {"timeout_ms", 'i', false}, {0}};
static const struct method_param prepare_params[] = {
    {"run", 's', true}, {"drop", 'b', false}, {"timeout_ms", 'i', false}, {0}};

#define JOB(method_name, longest_ms, allowed, function)                                            \
    {                                                                                              \
        .name = (method_name), .job = true, .timeout_ms = (longest_ms), .params = (allowed),       \
        .call = (function)                                                                         \
    }

const struct method postgres_methods[] = {
    JOB("postgres.state", 10 * SECOND, none, postgres_state),
    JOB("postgres.start", MINUTE, timed, postgres_start),
    JOB("postgres.stop", MINUTE, stop_params, postgres_stop),
    JOB("postgres.fence", 20 * SECOND, timed, postgres_fence),
    JOB("postgres.receiver", 10 * SECOND, receiver_params, postgres_receiver),
    JOB("postgres.promote", MINUTE, timed, postgres_promote),
    JOB("postgres.slots", 20 * SECOND, slots_params, postgres_slots),
    JOB("postgres.rewind", 10 * MINUTE, source_params, postgres_rewind),
    JOB("postgres.rebuild", HOUR, source_params, postgres_rebuild),
    JOB("postgres.quorum-wait", 10 * SECOND, timed, postgres_quorum_wait),
    JOB("load.prepare", MINUTE, prepare_params, postgres_prepare),
    {0},
};

const struct method postgres_check_methods[] = {
    JOB("postgres.preflight", 30 * SECOND, none, postgres_preflight),
    JOB("postgres.tokens", 10 * MINUTE, timed, postgres_tokens),
    JOB("postgres.checksums", HOUR, checksums_params, postgres_checksums),
    JOB("postgres.verify", HOUR, timed, postgres_verify),
    JOB("postgres.amcheck", HOUR, amcheck_params, postgres_amcheck),
    {0},
};
