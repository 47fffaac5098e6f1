/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/rpc.h"
#include "lib/tls.h"
#include "tests/support/pki.h"
#include "tests/support/suite.h"

enum { PATIENCE_MS = 5000, HANDSHAKE_MS = 1000 };

/* One end of the connection under test. */
struct end {
    struct rpc *rpc;
    int ready, messages, closed;
    struct error reason;
    json_t *last;        /* message */
    json_t *answer_with; /* sent for each message */
    bool free_at_message;
};

static struct loop *loop;
static SSL_CTX *server_context, *client_context;
static struct end server, client;

static void setup(void)
{
    struct error err;

    test_pki_new();
    ck_assert_int_eq(loop_new(&loop, &err), STATUS_OK);
    server_context = test_pki_context(TLS_AGENT, "ca.crt", "n1");
    client_context = test_pki_context(TLS_ORCHESTRATOR, "ca.crt", "control");
    server = client = (struct end){0};
}

static void end_done(struct end *end)
{
    rpc_free(end->rpc);
    json_decref(end->last);
    json_decref(end->answer_with);
}

static void teardown(void)
{
    end_done(&server);
    end_done(&client);
    loop_free(loop);
    SSL_CTX_free(server_context);
    SSL_CTX_free(client_context);
    test_pki_remove();
}

static void on_ready(void *argument, struct rpc *rpc)
{
    struct end *end = argument;

    (void) rpc;
    end->ready++;
}

static void on_message(void *argument, struct rpc *rpc, json_t *message)
{
    struct end *end = argument;
    struct error err;

    end->messages++;
    json_decref(end->last);
    end->last = json_incref(message);
    if (end->answer_with != NULL)
        ck_assert_int_eq(rpc_send(rpc, json_incref(end->answer_with), &err), STATUS_OK);
    if (end->free_at_message) {
        rpc_free(rpc);
        end->rpc = NULL;
    }
}

static void on_closed(void *argument, struct rpc *rpc, const struct error *reason)
{
    struct end *end = argument;

    (void) rpc;
    end->closed++;
    end->reason = *reason;
}

static const struct rpc_events events = {
    .ready = on_ready, .message = on_message, .closed = on_closed};

static void take(struct end *end, SSL_CTX *context, int fd, bool is_server, const char *peer)
{
    struct error err = {0};

    ck_assert_msg(rpc_new(loop, context, fd, is_server, peer, HANDSHAKE_MS, &events, end, &end->rpc,
                          &err) == STATUS_OK,
                  "%s", err.message);
}

static void socket_pair(int fds[2])
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
}

static void join(SSL_CTX *client_side, const char *peer)
{
    int fds[2];

    socket_pair(fds);
    take(&server, server_context, fds[0], true, NULL);
    take(&client, client_side, fds[1], false, peer);
}

/* Turn the loop until *count is at least `wanted`. */
static void turn_until(const int *count, int wanted, const char *what)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    struct error err;

    while (*count < wanted) {
        ck_assert_msg(!deadline_passed(deadline_ns), "%s: %d of %d after %d ms", what, *count,
                      wanted, PATIENCE_MS);
        ck_assert_int_eq(loop_turn(loop, 100, &err), STATUS_OK);
    }
}

static void meet(void)
{
    join(client_context, "n1");
    turn_until(&client.ready, 1, "client ready");
    turn_until(&server.ready, 1, "server ready");
}

START_TEST(a_request_is_answered)
{
    OWNED_JSON json_t *id = json_integer(7);
    struct error err;

    meet();
    server.answer_with = rpc_result(id, json_pack("{s:s}", "node", "n1"));
    ck_assert_int_eq(rpc_send(client.rpc, rpc_request(7, "hello", NULL), &err), STATUS_OK);
    turn_until(&client.messages, 1, "answers");
    ck_assert_str_eq(json_text(server.last, "method", ""), "hello");
    ck_assert_int_eq(json_number(client.last, "id", 0), 7);
    ck_assert_str_eq(json_text(json_object_get(client.last, "result"), "node", ""), "n1");
    ck_assert_int_eq(client.closed + server.closed, 0);
}
END_TEST

START_TEST(large_messages_pass_both_ways_at_once)
{
    OWNED_MEMORY char *text = malloc(3 * 1024 * 1024);
    struct error err;

    memset(text, 'x', 3 * 1024 * 1024);
    meet();
    for (int i = 0; i < 3; i++) {
        json_t *params = json_pack("{s:s%}", "data", text, (size_t) (3 * 1024 * 1024));
        ck_assert_int_eq(rpc_send(client.rpc, rpc_notification("there", json_incref(params)), &err),
                         STATUS_OK);
        ck_assert_int_eq(rpc_send(server.rpc, rpc_notification("back", params), &err), STATUS_OK);
    }
    turn_until(&server.messages, 3, "messages there");
    turn_until(&client.messages, 3, "messages back");
    const json_t *data = json_object_get(json_object_get(client.last, "params"), "data");
    ck_assert_uint_eq(json_string_length(data), 3 * 1024 * 1024);
}
END_TEST

START_TEST(a_message_above_the_maximum_is_not_sent)
{
    OWNED_MEMORY char *text = malloc(RPC_FRAME_MAX);
    struct error err;

    memset(text, 'x', RPC_FRAME_MAX);
    meet();
    json_t *params = json_pack("{s:s%}", "data", text, (size_t) RPC_FRAME_MAX);
    ck_assert_int_eq(rpc_send(client.rpc, rpc_notification("there", params), &err), STATUS_INVALID);
    ck_assert_int_eq(rpc_send(client.rpc, rpc_request(1, "hello", NULL), &err), STATUS_OK);
    turn_until(&server.messages, 1, "the next message");
}
END_TEST

START_TEST(a_peer_that_does_not_read_is_given_up)
{
    OWNED_MEMORY char *text = malloc(1024 * 1024);
    enum status status = STATUS_OK;
    struct error err = {0};
    int sent = 0;

    memset(text, 'x', 1024 * 1024);
    meet();
    while (status == STATUS_OK && sent < 100) {
        json_t *params = json_pack("{s:s%}", "data", text, (size_t) (1024 * 1024));
        status = rpc_send(server.rpc, rpc_notification("flood", params), &err);
        sent++;
    }
    ck_assert_int_eq(status, STATUS_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(err.message, "does not read"));
    turn_until(&server.closed, 1, "the end");
    ck_assert_int_eq(server.closed, 1);
}
END_TEST

static void expect_refusal(SSL_CTX *context, const char *server_says, const char *client_says)
{
    join(context, "n1");
    turn_until(&server.closed, 1, "server refuses");
    turn_until(&client.closed, 1, "client is told");
    ck_assert_int_eq(server.ready + server.messages, 0);
    ck_assert_msg(strstr(server.reason.message, server_says) != NULL, "server: %s",
                  server.reason.message);
    ck_assert_msg(strstr(client.reason.message, client_says) != NULL, "client: %s",
                  client.reason.message);
    SSL_CTX_free(context);
}

START_TEST(the_agent_role_is_refused)
{
    expect_refusal(test_pki_context(TLS_ORCHESTRATOR, "ca.crt", "n1"), "has the wrong role",
                   "refused our certificate: it has the wrong role");
}
END_TEST

START_TEST(a_foreign_ca_is_refused)
{
    expect_refusal(test_pki_context(TLS_ORCHESTRATOR, "ca.crt", "foreign/control"),
                   "is of a foreign CA", "refused our certificate: it is of a foreign CA");
}
END_TEST

START_TEST(an_expired_certificate_is_refused)
{
    expect_refusal(test_pki_context(TLS_ORCHESTRATOR, "ca.crt", "late"), "has expired",
                   "refused our certificate: it has expired");
}
END_TEST

START_TEST(another_node_is_refused_by_the_client)
{
    join(client_context, "n2");
    turn_until(&client.closed, 1, "client refuses");
    ck_assert_int_eq(client.ready, 0);
    ck_assert_int_eq(client.reason.code, STATUS_REFUSED);
    ck_assert_ptr_nonnull(strstr(client.reason.message, "is that of 'n1', not of 'n2'"));
    turn_until(&server.closed, 1, "server sees the end");
}
END_TEST

/* A client that speaks TLS but breaks the frames above it. */
static SSL *raw_client(int fd)
{
    SSL *ssl = SSL_new(client_context);
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    struct error err;

    SSL_set_fd(ssl, fd);
    SSL_set_connect_state(ssl);
    while (SSL_do_handshake(ssl) != 1) {
        ck_assert(!deadline_passed(deadline_ns));
        ck_assert_int_eq(loop_turn(loop, 10, &err), STATUS_OK);
    }
    return ssl;
}

static void expect_break(const void *bytes, size_t length, const char *reason)
{
    int fds[2];
    char answer[512] = "";

    socket_pair(fds);
    take(&server, server_context, fds[0], true, NULL);
    SSL *ssl = raw_client(fds[1]);
    turn_until(&server.ready, 1, "server ready");
    ck_assert_int_eq(SSL_write(ssl, bytes, (int) length), (int) length);
    struct error err;
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    int count = 0;
    while (!deadline_passed(deadline_ns) && count <= 4) {
        ck_assert_int_eq(loop_turn(loop, 10, &err), STATUS_OK);
        count = SSL_read(ssl, answer, sizeof answer - 1);
    }
    if (count == 4) /* the header alone */
        count = SSL_read(ssl, answer, sizeof answer - 1);
    ck_assert_ptr_nonnull(strstr(answer, "\"error\""));
    shutdown(fds[1], SHUT_RDWR);
    turn_until(&server.closed, 1, "the end");
    ck_assert_int_eq(server.reason.code, STATUS_PROTOCOL);
    ck_assert_msg(strstr(server.reason.message, reason) != NULL, "%s", server.reason.message);
    ck_assert_int_eq(server.messages, 0);
    SSL_free(ssl);
    close(fds[1]);
}

START_TEST(an_oversized_frame_is_refused_at_its_header)
{
    uint32_t header = htonl(RPC_FRAME_MAX + 1);

    expect_break(&header, sizeof header, "a frame of 8388609 bytes");
}
END_TEST

START_TEST(an_empty_frame_is_refused)
{
    expect_break("\0\0\0\0", 4, "a frame of 0 bytes");
}
END_TEST

START_TEST(a_frame_that_is_no_json_is_refused)
{
    expect_break("\0\0\0\3{x}", 7, "not JSON");
}
END_TEST

START_TEST(json_that_is_no_message_is_refused)
{
    static const char *const texts[] = {"[]",
                                        "{}",
                                        "{\"jsonrpc\":\"2.0\"}",
                                        "{\"jsonrpc\":\"1.0\",\"method\":\"hello\"}",
                                        "{\"jsonrpc\":\"2.0\",\"method\":7}",
                                        "{\"jsonrpc\":\"2.0\",\"method\":\"hello\",\"params\":[]}",
                                        "{\"jsonrpc\":\"2.0\",\"method\":\"hello\",\"id\":{}}"};
    char frame[256] = {0};
    size_t length = strlen(texts[_i]);

    frame[3] = (char) length;
    memcpy(frame + 4, texts[_i], length);
    expect_break(frame, 4 + length, "no JSON-RPC 2.0 message");
}
END_TEST

START_TEST(garbage_instead_of_tls_is_refused)
{
    int fds[2];

    socket_pair(fds);
    take(&server, server_context, fds[0], true, NULL);
    ck_assert_int_eq(write(fds[1], "GET / HTTP/1.1\r\n\r\n", 18), 18);
    shutdown(fds[1], SHUT_WR);
    turn_until(&server.closed, 1, "server refuses");
    ck_assert_int_eq(server.ready, 0);
    ck_assert_int_eq(server.reason.code, STATUS_PROTOCOL);
    close(fds[1]);
}
END_TEST

START_TEST(a_silent_peer_is_given_up)
{
    int fds[2];
    int64_t start_ns = clock_boot_ns();

    socket_pair(fds);
    take(&server, server_context, fds[0], true, NULL);
    turn_until(&server.closed, 1, "server gives up");
    ck_assert_int_eq(server.reason.code, STATUS_TIMEOUT);
    ck_assert_int_ge(clock_boot_ns() - start_ns, HANDSHAKE_MS * NS_PER_MS);
    close(fds[1]);
}
END_TEST

START_TEST(the_end_of_a_peer_is_reported_once)
{
    struct error err;

    meet();
    rpc_free(client.rpc);
    client.rpc = NULL;
    turn_until(&server.closed, 1, "server sees the end");
    ck_assert_int_eq(server.reason.code, STATUS_UNREACHABLE);
    ck_assert_int_eq(rpc_send(server.rpc, rpc_request(1, "hello", NULL), &err), STATUS_UNREACHABLE);
    ck_assert_int_eq(loop_turn(loop, 20, &err), STATUS_OK);
    ck_assert_int_eq(server.closed, 1);
}
END_TEST

START_TEST(it_may_be_freed_by_its_own_callback)
{
    struct error err;

    meet();
    server.free_at_message = true;
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(rpc_send(client.rpc, rpc_request(i, "hello", NULL), &err), STATUS_OK);
    turn_until(&client.closed, 1, "client sees the end");
    ck_assert_int_eq(server.messages, 1);
    ck_assert_int_eq(server.closed, 0);
}
END_TEST

/* Random bytes above TLS never crash it and never pass as a message. */
START_TEST(random_frames_do_no_harm)
{
    int fds[2];
    unsigned seed = 20261130u + (unsigned) _i;
    unsigned char noise[600];
    struct error err;

    socket_pair(fds);
    take(&server, server_context, fds[0], true, NULL);
    SSL *ssl = raw_client(fds[1]);
    for (size_t i = 0; i < sizeof noise; i++) {
        seed = seed * 1664525u + 1013904223u;
        noise[i] = (unsigned char) (seed >> 24);
    }
    noise[0] = noise[1] = 0; /* a length that is allowed, so that the content is looked at */
    noise[2] &= 1;
    ck_assert_int_eq(SSL_write(ssl, noise, sizeof noise), (int) sizeof noise);
    ck_assert_int_eq(loop_turn(loop, 10, &err), STATUS_OK);
    shutdown(fds[1], SHUT_RDWR);
    turn_until(&server.closed, 1, "the end");
    ck_assert_int_eq(server.messages, 0);
    SSL_free(ssl);
    close(fds[1]);
}
END_TEST

START_TEST(dial_and_listen_speak_tcp)
{
    struct sockaddr_in here;
    socklen_t size = sizeof here;
    struct error err = {0};
    int listener, dialled, accepted = -1;

    ck_assert_int_eq(rpc_listen("127.0.0.1", 0, &listener, &err), STATUS_OK);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *) &here, &size), 0);
    ck_assert_int_eq(rpc_dial("127.0.0.1", ntohs(here.sin_port), &dialled, &err), STATUS_OK);
    take(&client, client_context, dialled, false, "n1");
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    while (accepted < 0 && !deadline_passed(deadline_ns))
        accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    take(&server, server_context, accepted, true, NULL);
    turn_until(&client.ready, 1, "client ready");
    close(listener);
    ck_assert_int_eq(rpc_dial("no address", 1, &dialled, &err), STATUS_INVALID);
}
END_TEST

START_TEST(a_closed_port_is_unreachable)
{
    struct sockaddr_in here;
    socklen_t size = sizeof here;
    struct error err = {0};
    int listener, dialled;

    ck_assert_int_eq(rpc_listen("127.0.0.1", 0, &listener, &err), STATUS_OK);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *) &here, &size), 0);
    close(listener);
    if (rpc_dial("127.0.0.1", ntohs(here.sin_port), &dialled, &err) == STATUS_OK) {
        take(&client, client_context, dialled, false, "n1");
        turn_until(&client.closed, 1, "the refusal");
        err = client.reason;
    }
    ck_assert_int_eq(err.code, STATUS_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(err.message, "Connection refused"));
}
END_TEST

START_TEST(errors_travel_whole)
{
    struct error err = {0}, back = {0};
    OWNED_JSON json_t *id = json_integer(3);

    error_set(&err, STATUS_CONFLICT, "fault \xff excludes it");
    error_hint(&err, "Wait.");
    OWNED_JSON json_t *message = rpc_error(id, RPC_CODE_FAILED, &err);
    ck_assert_ptr_nonnull(message);
    const json_t *error = json_object_get(message, "error");
    ck_assert_int_eq(json_number(error, "code", 0), RPC_CODE_FAILED);
    ck_assert_int_eq(json_to_error(json_object_get(error, "data"), &back), STATUS_CONFLICT);
    ck_assert_str_eq(back.message, "fault ? excludes it");
    ck_assert_str_eq(back.hint, "Wait.");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc");
    TCase *cases = tcase_create("rpc");
    const TTest *const tests[] = {a_request_is_answered,
                                  large_messages_pass_both_ways_at_once,
                                  a_message_above_the_maximum_is_not_sent,
                                  a_peer_that_does_not_read_is_given_up,
                                  the_agent_role_is_refused,
                                  a_foreign_ca_is_refused,
                                  an_expired_certificate_is_refused,
                                  another_node_is_refused_by_the_client,
                                  an_oversized_frame_is_refused_at_its_header,
                                  an_empty_frame_is_refused,
                                  a_frame_that_is_no_json_is_refused,
                                  garbage_instead_of_tls_is_refused,
                                  a_silent_peer_is_given_up,
                                  the_end_of_a_peer_is_reported_once,
                                  it_may_be_freed_by_its_own_callback,
                                  dial_and_listen_speak_tcp,
                                  a_closed_port_is_unreachable,
                                  errors_travel_whole};

    tcase_set_timeout(cases, 20);
    tcase_add_checked_fixture(cases, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        tcase_add_test(cases, tests[i]);
    tcase_add_loop_test(cases, json_that_is_no_message_is_refused, 0, 7);
    tcase_add_loop_test(cases, random_frames_do_no_harm, 0, 20);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
