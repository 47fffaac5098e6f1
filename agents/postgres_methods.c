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
static const struct method_param prepare_params[] = {
    {"run", 's', true}, {"drop", 'b', false}, {"timeout_ms", 'i', false}, {0}};

const struct method postgres_methods[] = {
    {"postgres.state", true, false, 10 * SECOND, none, postgres_state},
    {"postgres.start", true, false, MINUTE, timed, postgres_start},
    {"postgres.stop", true, false, MINUTE, stop_params, postgres_stop},
    {"postgres.fence", true, false, 20 * SECOND, timed, postgres_fence},
    {"postgres.receiver", true, false, 10 * SECOND, receiver_params, postgres_receiver},
    {"postgres.promote", true, false, MINUTE, timed, postgres_promote},
    {"postgres.slots", true, false, 20 * SECOND, slots_params, postgres_slots},
    {"postgres.rewind", true, false, 10 * MINUTE, source_params, postgres_rewind},
    {"postgres.rebuild", true, false, HOUR, source_params, postgres_rebuild},
    {"postgres.quorum-wait", true, false, 10 * SECOND, timed, postgres_quorum_wait},
    {"load.prepare", true, false, MINUTE, prepare_params, postgres_prepare},
    {0},
};

const struct method postgres_check_methods[] = {
    {"postgres.tokens", true, false, 10 * MINUTE, timed, postgres_tokens},
    {0},
};
