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
    {"postgres.preflight", true, false, 30 * SECOND, none, postgres_preflight},
    {"postgres.tokens", true, false, 10 * MINUTE, timed, postgres_tokens},
    {"postgres.checksums", true, false, HOUR, checksums_params, postgres_checksums},
    {"postgres.verify", true, false, HOUR, timed, postgres_verify},
    {"postgres.amcheck", true, false, HOUR, amcheck_params, postgres_amcheck},
    {0},
};
