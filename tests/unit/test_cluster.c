/* SPDX-License-Identifier: MIT */
/*
 * The cluster against a scripted agent: a real TLS server on loopback, in the same loop, that
 * answers as the test tells it to.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "lib/rpc.h"
#include "lib/tls.h"
#include "tests/support/suite.h"
#include "topologies/cluster.h"

enum { AGENTS = 2, SKEW_MS = 700000, WAIT_MS = 5000 };

/* What a fake agent does with a request. */
struct fake {
    const char *name;
    int listener, port;
    loop_handle watch;
    struct rpc *rpc;
    int connections, sessions, heartbeats, closed;
    bool mute_heartbeats, refuse_session;
    const char *hello_name;
    json_t *last_params; /* of the last request that is not of the session */
    json_t *held;        /* request of method "hold", unanswered */
};

static char folder[64];
static struct fake fakes[AGENTS];
static struct topology_node nodes[AGENTS];
static struct topology topology;
static struct cluster *cluster;
static SSL_CTX *agent_tls[AGENTS];
static int connected, lost, clocks;
static int64_t last_offset_ns, last_error_ns;
static char last_notification[64];

/* ---- fake agent ---- */

static void answer(struct fake *fake, const json_t *request, json_t *result)
{
    struct error err;

    ck_assert_int_eq(rpc_send(fake->rpc, rpc_result(json_object_get(request, "id"), result), &err),
                     STATUS_OK);
}

static void answer_failure(struct fake *fake, const json_t *request, enum status code,
                           const char *text)
{
    struct error failure = {0}, err;

    error_set(&failure, code, "%s", text);
    ck_assert_int_eq(rpc_send(fake->rpc,
                              rpc_error(json_object_get(request, "id"), RPC_CODE_FAILED, &failure),
                              &err),
                     STATUS_OK);
}

static void notify(struct fake *fake, const char *method, json_t *params)
{
    struct error err;

    ck_assert_int_eq(rpc_send(fake->rpc, rpc_notification(method, params), &err), STATUS_OK);
}

static int64_t skewed_ns(void)
{
    return clock_boot_ns() + SKEW_MS * NS_PER_MS;
}

static bool serve_session(struct fake *fake, const char *method, const json_t *message)
{
    if (strcmp(method, "hello") == 0) {
        answer(fake, message,
               json_pack("{s:s, s:s, s:i, s:s, s:I, s:I}", "node",
                         fake->hello_name != NULL ? fake->hello_name : fake->name, "version", "1",
                         "protocol", RPC_PROTOCOL, "boot_id", "b", "boot_ns",
                         (json_int_t) skewed_ns(), "wall_ns", (json_int_t) 0));
    } else if (strcmp(method, "session.open") == 0) {
        fake->sessions++;
        if (fake->refuse_session)
            answer_failure(fake, message, STATUS_CONFLICT, "run x is active here");
        else
            answer(fake, message, json_object());
    } else if (strcmp(method, "session.close") == 0) {
        fake->closed++;
        answer(fake, message, json_object());
    } else if (strcmp(method, "heartbeat") == 0) {
        fake->heartbeats++;
        if (!fake->mute_heartbeats)
            answer(fake, message, json_pack("{s:I}", "boot_ns", (json_int_t) skewed_ns()));
    } else {
        return false;
    }
    return true;
}

static void serve(struct fake *fake, const char *method, const json_t *message)
{
    if (strcmp(method, "echo") == 0) {
        answer(fake, message, json_incref(json_object_get(message, "params")));
    } else if (strcmp(method, "fail") == 0) {
        answer_failure(fake, message, STATUS_DATABASE, "relation is gone");
    } else if (strcmp(method, "work") == 0) {
        answer(fake, message, json_pack("{s:i}", "job", 7));
        notify(fake, "job.done", json_pack("{s:i, s:{s:s}}", "job", 7, "result", "done", "yes"));
    } else if (strcmp(method, "work.fail") == 0) {
        answer(fake, message, json_pack("{s:i}", "job", 8));
        notify(fake, "job.done",
               json_pack("{s:i, s:{s:s, s:s}}", "job", 8, "error", "code", "timeout", "message",
                         "too slow"));
    } else if (strcmp(method, "hold") == 0) {
        json_decref(fake->held);
        fake->held = json_incref((json_t *) (uintptr_t) message);
    } else if (strcmp(method, "drop") == 0) {
        rpc_free(fake->rpc);
        fake->rpc = NULL;
    } else if (strcmp(method, "shout") == 0) {
        answer(fake, message, json_object());
        notify(fake, "load.status", json_pack("{s:i}", "acked", 5));
    } else {
        answer_failure(fake, message, STATUS_NOT_FOUND, "no such method");
    }
}

static void on_fake_message(void *argument, struct rpc *rpc, json_t *message)
{
    struct fake *fake = argument;
    const char *method = json_text(message, "method", "");

    (void) rpc;
    if (serve_session(fake, method, message))
        return;
    json_decref(fake->last_params);
    fake->last_params = json_incref(json_object_get(message, "params"));
    serve(fake, method, message);
}

static void on_fake_closed(void *argument, struct rpc *rpc, const struct error *reason)
{
    struct fake *fake = argument;

    (void) reason;
    rpc_free(rpc);
    if (fake->rpc == rpc)
        fake->rpc = NULL;
}

static const struct rpc_events fake_events = {.message = on_fake_message, .closed = on_fake_closed};

static void on_accept(void *argument, short events)
{
    struct fake *fake = argument;
    struct error err;
    int fd = accept4(fake->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void) events;
    if (fd < 0)
        return;
    fake->connections++;
    rpc_free(fake->rpc);
    ck_assert_int_eq(rpc_new(cluster_loop(cluster), agent_tls[fake - fakes], fd, true, NULL, 3000,
                             &fake_events, fake, &fake->rpc, &err),
                     STATUS_OK);
}

/* ---- fixture ---- */

static const char *in_folder(const char *name)
{
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void make_fake(int index, const char *name)
{
    struct fake *fake = &fakes[index];
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    struct error err;
    char certificate[32], key[32];

    *fake = (struct fake){.name = name};
    ck_assert_int_eq(pki_issue(folder, name, TLS_AGENT, 1, &err), STATUS_OK);
    snprintf(certificate, sizeof certificate, "%s.crt", name);
    snprintf(key, sizeof key, "%s.key", name);
    struct tls_files files = {in_folder("ca.crt"), in_folder(certificate), in_folder(key)};
    ck_assert_int_eq(tls_context(TLS_AGENT, &files, &agent_tls[index], &err), STATUS_OK);
    ck_assert_int_eq(rpc_listen("127.0.0.1", 0, &fake->listener, &err), STATUS_OK);
    ck_assert_int_eq(getsockname(fake->listener, (struct sockaddr *) &address, &size), 0);
    fake->port = ntohs(address.sin_port);
    nodes[index] = (struct topology_node){
        .name = name, .address = "127.0.0.1", .agent_port = fake->port, .roles = ROLE_CLIENT};
}

static void setup(void)
{
    struct error err;

    signal(SIGPIPE, SIG_IGN);
    strcpy(folder, "/tmp/ordeal-cluster-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(pki_init(folder, 1, &err), STATUS_OK);
    ck_assert_int_eq(pki_issue(folder, "orchestrator", TLS_ORCHESTRATOR, 1, &err), STATUS_OK);
    make_fake(0, "n1");
    make_fake(1, "n2");
    topology = (struct topology){.name = "test", .node_count = AGENTS, .nodes = nodes};
    topology.control.ca = in_folder("ca.crt");
    topology.control.certificate = in_folder("orchestrator.crt");
    topology.control.key = in_folder("orchestrator.key");
    connected = lost = clocks = 0;
    last_notification[0] = '\0';
}

static void teardown(void)
{
    const char *argv[] = {"rm", "-rf", folder, NULL};
    struct error err;

    cluster_free(cluster);
    cluster = NULL;
    for (int i = 0; i < AGENTS; i++) {
        close(fakes[i].listener);
        SSL_CTX_free(agent_tls[i]);
        json_decref(fakes[i].held);
        json_decref(fakes[i].last_params);
    }
    ck_assert_int_eq(
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = 5000}, NULL, &err),
        STATUS_OK);
}

static void on_notification(void *argument, const struct topology_node *node, const char *method,
                            const json_t *params)
{
    (void) argument;
    snprintf(last_notification, sizeof last_notification, "%s %s %d", node->name, method,
             (int) json_number(params, "acked", -1));
}

static void on_connection(void *argument, const struct topology_node *node, bool up,
                          const struct error *reason)
{
    (void) argument;
    (void) node;
    ck_assert(up == (reason == NULL));
    if (up)
        connected++;
    else
        lost++;
}

static void on_clock(void *argument, const struct topology_node *node, int64_t offset_ns,
                     int64_t error_ns)
{
    (void) argument;
    (void) node;
    clocks++;
    last_offset_ns = offset_ns;
    last_error_ns = error_ns;
}

static void start(void)
{
    struct cluster_options options = {.run = "r-1",
                                      .heartbeat_ms = 20,
                                      .events = {.notification = on_notification,
                                                 .connection = on_connection,
                                                 .clock = on_clock}};
    struct error err = {0};

    ck_assert_msg(cluster_new(&topology, &options, &cluster, &err) == STATUS_OK, "%s", err.message);
    for (int i = 0; i < AGENTS; i++)
        fakes[i].watch =
            loop_watch(cluster_loop(cluster), fakes[i].listener, POLLIN, on_accept, &fakes[i]);
}

static void start_connected(void)
{
    struct error err = {0};

    start();
    ck_assert_msg(cluster_wait_connected(cluster, NULL, deadline_in_ms(WAIT_MS), &err) == STATUS_OK,
                  "%s", err.message);
}

/* The fakes live in the same loop: when the cluster goes, their sockets must be gone before. */
static void stop(void)
{
    for (int i = 0; i < AGENTS; i++) {
        loop_remove(cluster_loop(cluster), fakes[i].watch);
        rpc_free(fakes[i].rpc);
        fakes[i].rpc = NULL;
    }
    cluster_free(cluster);
    cluster = NULL;
}

/* ---- tests ---- */

static bool clocks_known(void *argument)
{
    int64_t offset_ns, error_ns;
    struct error err;

    (void) argument;
    return cluster_clock(cluster, "n1", &offset_ns, &error_ns, &err) == STATUS_OK &&
           cluster_clock(cluster, "n2", &offset_ns, &error_ns, &err) == STATUS_OK;
}

START_TEST(connects_and_knows_the_clocks)
{
    struct error err = {0};
    int64_t offset_ns = 0, error_ns = 0;

    start_connected();
    ck_assert(cluster_connected(cluster, "n1"));
    ck_assert(!cluster_connected(cluster, "n9"));
    ck_assert_int_eq(connected, AGENTS);
    ck_assert_str_eq(cluster_run(cluster), "r-1");
    ck_assert_int_eq(cluster_wait(cluster, clocks_known, NULL, deadline_in_ms(WAIT_MS), &err),
                     STATUS_OK);
    ck_assert_int_ge(clocks, AGENTS);
    ck_assert_int_eq(cluster_clock(cluster, "n1", &offset_ns, &error_ns, &err), STATUS_OK);
    int64_t wrong_ns = llabs(offset_ns - SKEW_MS * NS_PER_MS);
    ck_assert_msg(wrong_ns <= error_ns, "off by %lld ns, said %lld", (long long) wrong_ns,
                  (long long) error_ns);
    ck_assert_int_lt(error_ns, 100 * NS_PER_MS);
    stop();
}
END_TEST

START_TEST(calls_and_jobs)
{
    OWNED_JSON json_t *echo = NULL;
    OWNED_JSON json_t *work = NULL;
    struct error err = {0};

    start_connected();
    ck_assert_int_eq(
        cluster_call(cluster, "n1", "echo", json_pack("{s:i}", "a", 5), 1000, &echo, &err),
        STATUS_OK);
    ck_assert_int_eq(json_number(echo, "a", 0), 5);
    ck_assert_int_eq(cluster_call(cluster, "n2", "work", NULL, 1000, &work, &err), STATUS_OK);
    ck_assert_str_eq(json_text(work, "done", ""), "yes");
    ck_assert_int_eq(cluster_call(cluster, "n1", "fail", NULL, 1000, NULL, &err), STATUS_DATABASE);
    ck_assert_str_eq(err.message, "n1: fail: relation is gone");
    ck_assert_int_eq(cluster_call(cluster, "n1", "work.fail", NULL, 1000, NULL, &err),
                     STATUS_TIMEOUT);
    ck_assert_str_eq(err.message, "n1: work.fail: too slow");
    stop();
}
END_TEST

START_TEST(a_call_has_a_deadline)
{
    struct error err = {0};
    int64_t before_ns;

    start_connected();
    before_ns = clock_boot_ns();
    ck_assert_int_eq(cluster_call(cluster, "n1", "hold", NULL, 100, NULL, &err), STATUS_TIMEOUT);
    ck_assert_int_ge(clock_boot_ns() - before_ns, 100 * NS_PER_MS);
    ck_assert_str_eq(err.message, "n1: hold: no answer within 100 ms");
    /* the answer that comes too late harms nobody */
    answer(&fakes[0], fakes[0].held, json_object());
    ck_assert_int_eq(cluster_call(cluster, "n1", "echo", NULL, 1000, NULL, &err), STATUS_OK);
    stop();
}
END_TEST

START_TEST(calls_go_out_together)
{
    struct cluster_request requests[] = {
        {.node = "n1", .method = "echo", .params = json_pack("{s:i}", "a", 1), .timeout_ms = 1000},
        {.node = "n2", .method = "fail", .timeout_ms = 1000},
        {.node = "n1", .method = "hold", .timeout_ms = 100},
        {.node = "n2", .method = "work", .timeout_ms = 1000},
    };

    start_connected();
    cluster_call_all(cluster, requests, 4);
    ck_assert_int_eq(requests[0].status, STATUS_OK);
    ck_assert_int_eq(json_number(requests[0].result, "a", 0), 1);
    ck_assert_int_eq(requests[1].status, STATUS_DATABASE);
    ck_assert_ptr_null(requests[1].result);
    ck_assert_int_eq(requests[2].status, STATUS_TIMEOUT);
    ck_assert_int_eq(requests[3].status, STATUS_OK);
    json_decref(requests[0].result);
    json_decref(requests[3].result);
    stop();
}
END_TEST

static int posted;
static enum status posted_status;

static void on_posted(void *argument, enum status status, const json_t *result,
                      const struct error *error)
{
    (void) argument;
    (void) result;
    (void) error;
    posted++;
    posted_status = status;
}

static bool posted_once(void *argument)
{
    (void) argument;
    return posted == 1;
}

START_TEST(a_lost_connection_fails_requests_and_comes_back)
{
    struct error err = {0};

    start_connected();
    posted = 0;
    cluster_post(cluster, "n1", "hold", NULL, 10000, on_posted, NULL);
    ck_assert_int_eq(posted, 0);
    ck_assert_int_eq(cluster_call(cluster, "n1", "drop", NULL, 5000, NULL, &err),
                     STATUS_UNREACHABLE);
    ck_assert_int_eq(cluster_wait(cluster, posted_once, NULL, deadline_in_ms(WAIT_MS), &err),
                     STATUS_OK);
    ck_assert_int_eq(posted_status, STATUS_UNREACHABLE);
    ck_assert_int_eq(lost, 1);
    ck_assert(!cluster_connected(cluster, "n1"));
    ck_assert(cluster_connected(cluster, "n2"));
    /* at once, without waiting for the timeout */
    int64_t before_ns = clock_boot_ns();
    ck_assert_int_eq(cluster_call(cluster, "n1", "echo", NULL, 5000, NULL, &err),
                     STATUS_UNREACHABLE);
    ck_assert_int_lt(clock_boot_ns() - before_ns, 1000 * NS_PER_MS);
    ck_assert_int_eq(cluster_wait_connected(cluster, "n1", deadline_in_ms(WAIT_MS), &err),
                     STATUS_OK);
    ck_assert_int_eq(fakes[0].sessions, 2);
    ck_assert_int_eq(cluster_call(cluster, "n1", "echo", NULL, 5000, NULL, &err), STATUS_OK);
    stop();
}
END_TEST

static bool lost_one(void *argument)
{
    (void) argument;
    return lost == 1;
}

START_TEST(silence_is_noticed)
{
    struct error err = {0};

    start_connected();
    fakes[1].mute_heartbeats = true;
    ck_assert_int_eq(cluster_wait(cluster, lost_one, NULL, deadline_in_ms(20000), &err), STATUS_OK);
    fakes[1].mute_heartbeats = false;
    ck_assert_int_eq(cluster_wait_connected(cluster, "n2", deadline_in_ms(WAIT_MS), &err),
                     STATUS_OK);
    stop();
}
END_TEST

START_TEST(refusals_are_named_at_once)
{
    struct error err = {0};
    int64_t before_ns = clock_boot_ns();

    fakes[1].refuse_session = true;
    start();
    ck_assert_int_eq(cluster_wait_connected(cluster, NULL, deadline_in_ms(60000), &err),
                     STATUS_CONFLICT);
    ck_assert_ptr_nonnull(strstr(err.message, "n2 at 127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(err.message, "run x is active here"));
    ck_assert_int_lt(clock_boot_ns() - before_ns, 10000 * NS_PER_MS);
    stop();
}
END_TEST

START_TEST(another_node_behind_the_address)
{
    struct error err = {0};

    fakes[0].hello_name = "n7";
    start();
    ck_assert_int_eq(cluster_wait_connected(cluster, "n1", deadline_in_ms(WAIT_MS), &err),
                     STATUS_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(err.message, "the agent there calls itself \"n7\""));
    stop();
}
END_TEST

START_TEST(nobody_listens)
{
    struct error err = {0};

    nodes[0].agent_port = 1;
    start();
    ck_assert_int_eq(cluster_wait_connected(cluster, NULL, deadline_in_ms(700), &err),
                     STATUS_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(err.message, "n1 at 127.0.0.1:1"));
    ck_assert_ptr_nonnull(strstr(err.message, "refused"));
    ck_assert_ptr_null(strstr(err.message, "n2"));
    stop();
}
END_TEST

START_TEST(certificate_of_another_authority)
{
    struct error err = {0};
    char other[80];

    snprintf(other, sizeof other, "%s/other", folder);
    ck_assert_int_eq(pki_init(other, 1, &err), STATUS_OK);
    ck_assert_int_eq(pki_issue(other, "orchestrator", TLS_ORCHESTRATOR, 1, &err), STATUS_OK);
    topology.control.certificate = in_folder("other/orchestrator.crt");
    topology.control.key = in_folder("other/orchestrator.key");
    start();
    ck_assert_int_ne(cluster_wait_connected(cluster, NULL, deadline_in_ms(3000), &err), STATUS_OK);
    ck_assert_int_eq(fakes[0].sessions, 0);
    ck_assert_ptr_nonnull(strstr(err.message, "certificate"));
    stop();
}
END_TEST

static void abort_now(void *argument)
{
    struct error reason = {0};

    (void) argument;
    error_set(&reason, STATUS_ABORTED, "interrupted by SIGINT");
    cluster_abort(cluster, &reason);
}

START_TEST(an_abort_ends_every_wait_until_the_shield)
{
    struct error err = {0};

    start_connected();
    loop_at(cluster_loop(cluster), deadline_in_ms(50), abort_now, NULL);
    ck_assert_int_eq(cluster_call(cluster, "n1", "hold", NULL, 60000, NULL, &err), STATUS_ABORTED);
    ck_assert_str_eq(err.message, "interrupted by SIGINT");
    ck_assert_int_eq(cluster_call(cluster, "n1", "echo", NULL, 1000, NULL, &err), STATUS_ABORTED);
    cluster_shield(cluster);
    ck_assert_int_eq(cluster_call(cluster, "n1", "echo", NULL, 1000, NULL, &err), STATUS_OK);
    stop();
}
END_TEST

static enum status nested_status;

static void call_from_callback(void *argument)
{
    struct error err;

    (void) argument;
    nested_status = cluster_call(cluster, "n1", "echo", NULL, 1000, NULL, &err);
    posted = 1;
}

START_TEST(blocking_inside_a_callback_is_a_bug)
{
    struct error err = {0};

    start_connected();
    posted = 0;
    loop_at(cluster_loop(cluster), clock_boot_ns(), call_from_callback, NULL);
    ck_assert_int_eq(cluster_wait(cluster, posted_once, NULL, deadline_in_ms(WAIT_MS), &err),
                     STATUS_OK);
    ck_assert_int_eq(nested_status, STATUS_INTERNAL);
    stop();
}
END_TEST

static bool notified(void *argument)
{
    (void) argument;
    return last_notification[0] != '\0';
}

START_TEST(notifications_reach_the_run)
{
    struct error err = {0};

    start_connected();
    ck_assert_int_eq(cluster_call(cluster, "n2", "shout", NULL, 1000, NULL, &err), STATUS_OK);
    ck_assert_int_eq(cluster_wait(cluster, notified, NULL, deadline_in_ms(WAIT_MS), &err),
                     STATUS_OK);
    ck_assert_str_eq(last_notification, "n2 load.status 5");
    stop();
}
END_TEST

START_TEST(a_closed_session_stays_closed)
{
    struct error err = {0};

    start_connected();
    ck_assert_int_eq(cluster_call(cluster, "n1", "session.close",
                                  json_pack("{s:s, s:b}", "run", "r-1", "purge", 1), 1000, NULL,
                                  &err),
                     STATUS_OK);
    ck_assert(!cluster_connected(cluster, "n1"));
    ck_assert_int_eq(cluster_call(cluster, "n1", "echo", NULL, 1000, NULL, &err),
                     STATUS_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(err.message, "session is closed"));
    ck_assert_int_eq(fakes[0].closed, 1);
    stop();
}
END_TEST

TEST_MAIN("cluster", 60, setup, teardown, connects_and_knows_the_clocks, calls_and_jobs,
          a_call_has_a_deadline, calls_go_out_together,
          a_lost_connection_fails_requests_and_comes_back, silence_is_noticed,
          refusals_are_named_at_once, another_node_behind_the_address, nobody_listens,
          certificate_of_another_authority, an_abort_ends_every_wait_until_the_shield,
          blocking_inside_a_callback_is_a_bug, notifications_reach_the_run,
          a_closed_session_stays_closed)
