/* SPDX-License-Identifier: MIT */
/*
 * TLS runs over memory BIOs; this file moves the ciphertext. So a dead peer never raises SIGPIPE,
 * what is pending is known exactly, and reading goes on while writing waits.
 */
#include "lib/rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/tls.h"

enum {
    HEADER_SIZE = 4,
    CHUNK = 16 * 1024,
    CHUNKS_A_TURN = 64,             /* then others of the loop have their turn */
    OUTPUT_MAX = 4 * RPC_FRAME_MAX, /* a peer that does not read is given up */
    INPUT_KEEP = 64 * 1024,         /* of the buffer, after a large frame */
    FAREWELL_MS = 1000,             /* for the last words to a peer that is refused */
    USER_TIMEOUT_MS = 10000,        /* unacknowledged data: the peer is gone */
    KEEPALIVE_IDLE_S = 5,
    KEEPALIVE_INTERVAL_S = 2,
    KEEPALIVE_COUNT = 3,
    BACKLOG = 16
};

enum rpc_state { RPC_CONNECTING, RPC_SHAKING, RPC_READY, RPC_FAREWELL, RPC_CLOSED };

struct rpc {
    struct loop *loop;
    SSL *ssl;
    BIO *incoming, *outgoing; /* ciphertext; owned by ssl */
    int fd;
    bool server;
    char *peer_name;
    enum rpc_state state;
    struct rpc_events events;
    void *argument;
    loop_handle watch, timer;
    struct buffer input;  /* plaintext, not yet a whole frame */
    struct buffer output; /* ciphertext, not yet taken by the kernel */
    struct error reason;  /* why it ends; set before the state leaves RPC_READY */
    int depth;            /* of callbacks running on it */
    bool freed;           /* by a callback; memory goes when depth is 0 */
};

static void on_event(void *argument, short events);
static void on_timer(void *argument);

/* --- the end --------------------------------------------------------------------------------- */

static void release(struct rpc *rpc)
{
    loop_remove(rpc->loop, rpc->watch);
    loop_remove(rpc->loop, rpc->timer);
    SSL_free(rpc->ssl);
    if (rpc->fd >= 0)
        close(rpc->fd);
    buffer_done(&rpc->input);
    buffer_done(&rpc->output);
    free(rpc->peer_name);
    free(rpc);
}

void rpc_free(struct rpc *rpc)
{
    if (rpc == NULL)
        return;
    rpc->state = RPC_CLOSED;
    rpc->freed = true;
    if (rpc->depth == 0)
        release(rpc);
}

static void enter(struct rpc *rpc)
{
    rpc->depth++;
}

static void leave(struct rpc *rpc)
{
    if (--rpc->depth == 0 && rpc->freed)
        release(rpc);
}

static void report_closed(struct rpc *rpc)
{
    if (rpc->state == RPC_CLOSED)
        return;
    rpc->state = RPC_CLOSED;
    loop_remove(rpc->loop, rpc->watch);
    loop_remove(rpc->loop, rpc->timer);
    rpc->watch = rpc->timer = 0;
    close(rpc->fd);
    rpc->fd = -1;
    rpc->events.closed(rpc->argument, rpc, &rpc->reason);
}

static void restart_timer(struct rpc *rpc, int64_t ms)
{
    loop_remove(rpc->loop, rpc->timer);
    rpc->timer = loop_at(rpc->loop, deadline_in_ms(ms), on_timer, rpc);
}

/* errno says what happened to the connection. */
static enum status connection_error(struct error *err, const char *doing)
{
    error_system(err, "%s", doing);
    if (err != NULL)
        err->code = STATUS_UNREACHABLE;
    return STATUS_UNREACHABLE;
}

/* --- moving bytes ---------------------------------------------------------------------------- */

static void take_ciphertext(struct rpc *rpc)
{
    char chunk[CHUNK];
    int length;

    while ((length = BIO_read(rpc->outgoing, chunk, sizeof chunk)) > 0)
        buffer_append(&rpc->output, chunk, (size_t) length);
}

/* Write what the kernel takes; false when the connection is broken (reason is set). */
static bool flush_output(struct rpc *rpc)
{
    struct error *reason = rpc->state == RPC_FAREWELL ? NULL : &rpc->reason;
    size_t sent = 0;

    take_ciphertext(rpc);
    if (rpc->output.overflow) {
        error_set(reason, STATUS_UNREACHABLE, "the peer does not read what it is sent");
        return false;
    }
    while (sent < rpc->output.length) {
        ssize_t count = send(rpc->fd, rpc->output.data + sent, rpc->output.length - sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0)
            sent += (size_t) count;
        else if (errno == EINTR)
            continue;
        else if (errno == EAGAIN)
            break;
        else {
            connection_error(reason, "sending");
            return false;
        }
    }
    buffer_consume(&rpc->output, sent);
    short events = rpc->output.length > 0 ? POLLIN | POLLOUT : POLLIN;
    loop_set_events(rpc->loop, rpc->watch, events);
    return true;
}

enum intake { INTAKE_MORE, INTAKE_EMPTY, INTAKE_END, INTAKE_BROKEN };

static enum intake read_ciphertext(struct rpc *rpc)
{
    char chunk[CHUNK];
    ssize_t count = recv(rpc->fd, chunk, sizeof chunk, MSG_DONTWAIT);

    if (count > 0 && BIO_write(rpc->incoming, chunk, (int) count) == (int) count)
        return INTAKE_MORE;
    if (count == 0)
        return INTAKE_END;
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return INTAKE_EMPTY;
    connection_error(&rpc->reason, "receiving");
    return INTAKE_BROKEN;
}

/* Nothing more is sent; wait for the peer's end, since closing over unread data resets it. */
static void end_sending(struct rpc *rpc)
{
    if (rpc->output.length == 0)
        shutdown(rpc->fd, SHUT_WR);
}

static void say_goodbye(struct rpc *rpc, int code)
{
    const struct error reason = rpc->reason;
    json_t *message = rpc_error(NULL, code, &reason);

    if (rpc_send(rpc, message, NULL) != STATUS_OK)
        rpc->reason = reason; /* the first one counts */
}

/* The last words of this side, then the end. */
static void refuse(struct rpc *rpc, int code)
{
    if (rpc->state == RPC_READY)
        say_goodbye(rpc, code);
    SSL_shutdown(rpc->ssl);
    ERR_clear_error();
    rpc->state = RPC_FAREWELL;
    restart_timer(rpc, FAREWELL_MS);
    if (flush_output(rpc))
        end_sending(rpc);
    else
        report_closed(rpc);
}

/* --- frames ---------------------------------------------------------------------------------- */

static bool is_message(const json_t *message)
{
    const char *version = json_text(message, "jsonrpc", "");
    const json_t *method = json_object_get(message, "method");
    const json_t *params = json_object_get(message, "params");
    const json_t *id = json_object_get(message, "id");
    bool answer = json_object_get(message, "result") != NULL ||
                  json_is_object(json_object_get(message, "error"));

    if (strcmp(version, "2.0") != 0)
        return false;
    if (method == NULL)
        return answer && (json_is_integer(id) || json_is_null(id));
    return !answer && json_is_string(method) && (params == NULL || json_is_object(params)) &&
           (id == NULL || json_is_integer(id) || json_is_string(id));
}

/* False when the connection is over or the callback freed it. */
static bool deliver(struct rpc *rpc, const char *text, size_t length)
{
    struct error problem;
    OWNED_JSON json_t *message = NULL;

    if (json_parse_text(text, length, &message, &problem) != STATUS_OK) {
        error_set(&rpc->reason, STATUS_PROTOCOL, "the peer sent a frame that is %s",
                  problem.message);
        refuse(rpc, RPC_CODE_PARSE);
        return false;
    }
    if (!is_message(message)) {
        error_set(&rpc->reason, STATUS_PROTOCOL, "the peer sent what is no JSON-RPC 2.0 message");
        refuse(rpc, RPC_CODE_INVALID);
        return false;
    }
    rpc->events.message(rpc->argument, rpc, message);
    return rpc->state == RPC_READY;
}

static size_t frame_length(const char *header)
{
    uint32_t length;

    memcpy(&length, header, sizeof length);
    return ntohl(length);
}

static bool deliver_frames(struct rpc *rpc)
{
    while (rpc->input.length >= HEADER_SIZE) {
        size_t length = frame_length(rpc->input.data);
        if (length == 0 || length > RPC_FRAME_MAX) {
            error_set(&rpc->reason, STATUS_PROTOCOL,
                      "the peer announced a frame of %zu bytes; 1 to %d are allowed", length,
                      RPC_FRAME_MAX);
            refuse(rpc, RPC_CODE_INVALID);
            return false;
        }
        if (rpc->input.length < HEADER_SIZE + length)
            break;
        if (!deliver(rpc, rpc->input.data + HEADER_SIZE, length))
            return false;
        buffer_consume(&rpc->input, HEADER_SIZE + length);
    }
    if (rpc->input.length == 0 && rpc->input.capacity > INPUT_KEEP)
        buffer_done(&rpc->input);
    return true;
}

/* Decrypt and deliver; false when the connection is over. */
static bool read_plaintext(struct rpc *rpc)
{
    char chunk[CHUNK];

    for (;;) {
        ERR_clear_error();
        errno = 0;
        int count = SSL_read(rpc->ssl, chunk, sizeof chunk);
        if (count > 0) {
            buffer_append(&rpc->input, chunk, (size_t) count);
            if (!deliver_frames(rpc))
                return false;
            continue;
        }
        if (SSL_get_error(rpc->ssl, count) == SSL_ERROR_WANT_READ)
            return true;
        tls_error(rpc->ssl, count, &rpc->reason, "reading");
        refuse(rpc, RPC_CODE_INVALID);
        return false;
    }
}

static bool shake_hands(struct rpc *rpc)
{
    ERR_clear_error();
    errno = 0;
    int result = SSL_do_handshake(rpc->ssl);

    if (result != 1 && SSL_get_error(rpc->ssl, result) == SSL_ERROR_WANT_READ)
        return true;
    enum tls_role peer = rpc->server ? TLS_ORCHESTRATOR : TLS_AGENT;
    enum status status = result != 1
                             ? tls_error(rpc->ssl, result, &rpc->reason, "greeting the peer")
                             : tls_check_peer(rpc->ssl, peer, rpc->peer_name, &rpc->reason);
    if (status != STATUS_OK) {
        refuse(rpc, RPC_CODE_INVALID);
        return false;
    }
    rpc->state = RPC_READY;
    loop_remove(rpc->loop, rpc->timer);
    rpc->timer = 0;
    if (rpc->events.ready != NULL)
        rpc->events.ready(rpc->argument, rpc);
    return rpc->state == RPC_READY;
}

/* --- events ---------------------------------------------------------------------------------- */

static bool finish_connect(struct rpc *rpc)
{
    int errnum = 0;
    socklen_t size = sizeof errnum;

    getsockopt(rpc->fd, SOL_SOCKET, SO_ERROR, &errnum, &size);
    if (errnum != 0) {
        errno = errnum;
        connection_error(&rpc->reason, "connecting");
        report_closed(rpc);
        return false;
    }
    rpc->state = RPC_SHAKING;
    return true;
}

static bool advance(struct rpc *rpc)
{
    if (rpc->state == RPC_SHAKING && !shake_hands(rpc))
        return false;
    return rpc->state != RPC_READY || read_plaintext(rpc);
}

static void take_in(struct rpc *rpc)
{
    enum intake intake = INTAKE_MORE;

    for (int i = 0; i < CHUNKS_A_TURN && intake == INTAKE_MORE; i++) {
        intake = read_ciphertext(rpc);
        if (intake == INTAKE_MORE && !advance(rpc))
            return;
    }
    if (intake == INTAKE_END)
        error_set(&rpc->reason, STATUS_UNREACHABLE, "the peer closed the connection%s",
                  rpc->state == RPC_READY ? "" : " before it greeted us");
    if (intake == INTAKE_END || intake == INTAKE_BROKEN)
        report_closed(rpc);
}

static void discard_input(struct rpc *rpc)
{
    char chunk[CHUNK];
    ssize_t count = recv(rpc->fd, chunk, sizeof chunk, MSG_DONTWAIT);

    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
        report_closed(rpc);
}

static void handle(struct rpc *rpc, short events)
{
    if (rpc->state == RPC_CONNECTING && (!finish_connect(rpc) || !advance(rpc)))
        return;
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
        if (rpc->state == RPC_FAREWELL)
            discard_input(rpc);
        else
            take_in(rpc);
    }
    if (rpc->state == RPC_CLOSED)
        return;
    if (!flush_output(rpc))
        report_closed(rpc);
    else if (rpc->state == RPC_FAREWELL)
        end_sending(rpc);
}

static void on_event(void *argument, short events)
{
    struct rpc *rpc = argument;

    enter(rpc);
    handle(rpc, events);
    leave(rpc);
}

/* The handshake's deadline, the end of a farewell, or a send that failed. */
static void on_timer(void *argument)
{
    struct rpc *rpc = argument;

    rpc->timer = 0;
    enter(rpc);
    if (rpc->state == RPC_CONNECTING)
        error_set(&rpc->reason, STATUS_TIMEOUT, "connecting: no answer in time");
    else if (rpc->state == RPC_SHAKING)
        error_set(&rpc->reason, STATUS_TIMEOUT, "greeting the peer: no answer in time");
    report_closed(rpc);
    leave(rpc);
}

/* --- making one ------------------------------------------------------------------------------ */

static bool attach_tls(struct rpc *rpc, SSL_CTX *context)
{
    rpc->ssl = SSL_new(context);
    rpc->incoming = BIO_new(BIO_s_mem());
    rpc->outgoing = BIO_new(BIO_s_mem());
    if (rpc->ssl == NULL || rpc->incoming == NULL || rpc->outgoing == NULL) {
        BIO_free(rpc->incoming);
        BIO_free(rpc->outgoing);
        return false;
    }
    /* empty is "not yet", not the end */
    BIO_set_mem_eof_return(rpc->incoming, -1);
    SSL_set_bio(rpc->ssl, rpc->incoming, rpc->outgoing);
    if (rpc->server)
        SSL_set_accept_state(rpc->ssl);
    else
        SSL_set_connect_state(rpc->ssl);
    return true;
}

enum status rpc_new(struct loop *loop, SSL_CTX *context, int fd, bool server, const char *peer_name,
                    int64_t handshake_timeout_ms, const struct rpc_events *events, void *argument,
                    struct rpc **ret_rpc, struct error *err)
{
    struct rpc *rpc = calloc(1, sizeof *rpc);

    if (rpc == NULL || (peer_name != NULL && (rpc->peer_name = strdup(peer_name)) == NULL))
        abort();
    rpc->loop = loop;
    rpc->server = server;
    rpc->fd = -1;
    rpc->events = *events;
    rpc->argument = argument;
    rpc->input = BUFFER(HEADER_SIZE + RPC_FRAME_MAX + CHUNK);
    rpc->output = BUFFER(OUTPUT_MAX);
    if (!attach_tls(rpc, context)) {
        enum status status = tls_error(NULL, 0, err, "starting TLS");
        release(rpc);
        return status;
    }
    rpc->fd = fd;
    /* writable once it is connected, at once when it is already */
    rpc->watch = loop_watch(loop, fd, POLLOUT, on_event, rpc);
    restart_timer(rpc, handshake_timeout_ms);
    *ret_rpc = rpc;
    return STATUS_OK;
}

static enum status parse_address(const char *address, int port, struct sockaddr_storage *ret,
                                 socklen_t *ret_size, struct error *err)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t) port)};

    if (port < 0 || port > UINT16_MAX)
        return error_set(err, STATUS_INVALID, "%d is no port", port);
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1) {
        memcpy(ret, &v4, sizeof v4);
        *ret_size = sizeof v4;
        return STATUS_OK;
    }
    if (inet_pton(AF_INET6, address, &v6.sin6_addr) == 1) {
        memcpy(ret, &v6, sizeof v6);
        *ret_size = sizeof v6;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "'%s' is no IP address", address);
}

static void tune(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS},
    };

    /* each makes a lost peer known sooner; none is needed for correctness */
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

enum status rpc_dial(const char *address, int port, int *ret_fd, struct error *err)
{
    struct sockaddr_storage target = {0};
    socklen_t size = 0;
    enum status status = parse_address(address, port, &target, &size, err);

    if (status != STATUS_OK)
        return status;
    OWNED_FD int fd = socket(target.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_system(err, "making a socket");
    tune(fd);
    if (connect(fd, (struct sockaddr *) &target, size) != 0 && errno != EINPROGRESS)
        return connection_error(err, "connecting");
    *ret_fd = take_fd(&fd);
    return STATUS_OK;
}

enum status rpc_listen(const char *address, int port, int *ret_fd, struct error *err)
{
    struct sockaddr_storage here = {0};
    socklen_t size = 0;
    int yes = 1;
    enum status status = parse_address(address, port, &here, &size, err);

    if (status != STATUS_OK)
        return status;
    OWNED_FD int fd = socket(here.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_system(err, "making a socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    tune(fd); /* accepted sockets inherit it */
    if (bind(fd, (struct sockaddr *) &here, size) != 0 || listen(fd, BACKLOG) != 0)
        return error_system(err, "listening on %s port %d", address, port);
    *ret_fd = take_fd(&fd);
    return STATUS_OK;
}

/* --- messages -------------------------------------------------------------------------------- */

/* A failure inside a callback's call must not call back: the timer reports it. */
static enum status fail_later(struct rpc *rpc, struct error *err)
{
    *err = rpc->reason;
    err->code = STATUS_UNREACHABLE;
    rpc->state = RPC_FAREWELL;
    restart_timer(rpc, 0);
    return STATUS_UNREACHABLE;
}

static enum status send_frame(struct rpc *rpc, const char *text, size_t length, struct error *err)
{
    uint32_t header = htonl((uint32_t) length);
    struct error unused;

    if (err == NULL)
        err = &unused;
    if (SSL_write(rpc->ssl, &header, sizeof header) != (int) sizeof header ||
        SSL_write(rpc->ssl, text, (int) length) != (int) length) {
        tls_error(rpc->ssl, 0, &rpc->reason, "sending");
        return fail_later(rpc, err);
    }
    return flush_output(rpc) ? STATUS_OK : fail_later(rpc, err);
}

enum status rpc_send(struct rpc *rpc, json_t *message, struct error *err)
{
    OWNED_JSON json_t *owned = message;
    OWNED_MEMORY char *text = NULL;

    if (rpc->state != RPC_READY)
        return error_set(err, STATUS_UNREACHABLE, "the connection is not open");
    text = json_dumps(owned, JSON_COMPACT);
    if (text == NULL)
        return error_set(err, STATUS_INTERNAL, "a message that is no JSON");
    size_t length = strlen(text);
    if (length > RPC_FRAME_MAX)
        return error_set(err, STATUS_INVALID, "a message of %zu bytes; at most %d are allowed",
                         length, RPC_FRAME_MAX);
    return send_frame(rpc, text, length, err);
}

json_t *rpc_request(int64_t id, const char *method, json_t *params)
{
    return json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", (json_int_t) id, "method",
                     method, "params", params != NULL ? params : json_object());
}

json_t *rpc_notification(const char *method, json_t *params)
{
    return json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params",
                     params != NULL ? params : json_object());
}

/* jansson counts references in the object itself; the prototypes here promise more than that */
static json_t *id_of(const json_t *id)
{
    return id == NULL ? json_null() : json_incref((json_t *) (uintptr_t) id);
}

json_t *rpc_result(const json_t *id, json_t *result)
{
    return json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", id_of(id), "result",
                     result != NULL ? result : json_object());
}

json_t *rpc_error(const json_t *id, int code, const struct error *error)
{
    json_t *data = json_from_error(error);

    return json_pack("{s:s, s:o, s:{s:i, s:O, s:o}}", "jsonrpc", "2.0", "id", id_of(id), "error",
                     "code", code, "message", json_object_get(data, "message"), "data", data);
}
