/* SPDX-License-Identifier: MIT */
/*
 * JSON-RPC 2.0 over mutual TLS on a poll loop: frames of a 4-byte big-endian length (at most
 * RPC_FRAME_MAX) and one object. The same connection type serves both sides.
 *
 * Methods, parameters and notifications are listed in docs/formats.md.
 */
#ifndef ORDEAL_LIB_RPC_H
#define ORDEAL_LIB_RPC_H

#include <jansson.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"
#include "lib/loop.h"

enum { RPC_FRAME_MAX = 8 * 1024 * 1024, RPC_PROTOCOL = 1 };

struct rpc;

struct rpc_events {
    /* The handshake is done and the peer's certificate is accepted. */
    void (*ready)(void *argument, struct rpc *rpc);
    /* A valid JSON-RPC object; borrowed for the time of the call. */
    void (*message)(void *argument, struct rpc *rpc, json_t *message);
    /* The connection is over, for the given reason; rpc_free() it from here or later. Called once.
     */
    void (*closed)(void *argument, struct rpc *rpc, const struct error *reason);
};

/* Take over a connected or connecting non-blocking socket. peer_name: expected CN, or NULL. */
MUST_CHECK enum status rpc_new(struct loop *loop, SSL_CTX *context, int fd, bool server,
                               const char *peer_name, int64_t handshake_timeout_ms,
                               const struct rpc_events *events, void *argument,
                               struct rpc **ret_rpc, struct error *err);
/* Start a TCP connection to address:port (non-blocking; TCP_USER_TIMEOUT and keepalive set). */
MUST_CHECK enum status rpc_dial(const char *address, int port, int *ret_fd, struct error *err);
MUST_CHECK enum status rpc_listen(const char *address, int port, int *ret_fd, struct error *err);
void rpc_free(struct rpc *rpc);

/* Queue a message; takes the reference. STATUS_UNREACHABLE when the connection is over. */
MUST_CHECK enum status rpc_send(struct rpc *rpc, json_t *message, struct error *err);
json_t *rpc_request(int64_t id, const char *method, json_t *params); /* takes params */
json_t *rpc_notification(const char *method, json_t *params);        /* takes params */
json_t *rpc_result(const json_t *id, json_t *result);                /* takes result */
json_t *rpc_error(const json_t *id, int code,
                  const struct error *error); /* error.data carries it */

enum {
    RPC_CODE_PARSE = -32700,
    RPC_CODE_INVALID = -32600,
    RPC_CODE_METHOD = -32601,
    RPC_CODE_PARAMS = -32602,
    RPC_CODE_FAILED = -32000
};

#endif
