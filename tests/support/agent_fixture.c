/* SPDX-License-Identifier: MIT */
#include "tests/support/agent_fixture.h"

#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/rpc.h"
#include "tests/support/pki.h"

enum { PATIENCE_MS = 10000, HANDSHAKE_MS = 5000 };

static pid_t guardian;
static int port;
static struct loop *loop;

struct agent_peer {
    struct rpc *rpc;
    SSL_CTX *context;
    bool ready, closed;
    struct error reason;
    int64_t last_id;
    json_t *messages; /* not yet looked at */
    json_t *kept;     /* what agent_notification() gave last */
};

/* --- the program ----------------------------------------------------------------------------- */

static int free_port(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET};
    socklen_t size = sizeof here;
    OWNED_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(fd, (struct sockaddr *) &here, sizeof here), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *) &here, &size), 0);
    return ntohs(here.sin_port);
}

const char *agent_fixture_state(void)
{
    return test_pki_path("state");
}

static void start(void)
{
    char program[PATH_MAX], listen_at[32];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 64);

    ck_assert_int_gt(length, 0);
    program[length] = '\0';
    strcpy(strstr(program, "/tests/"), "/ordeald");
    snprintf(listen_at, sizeof listen_at, "127.0.0.1:%d", port);
    guardian = fork();
    ck_assert_int_ge(guardian, 0);
    if (guardian > 0)
        return;
    int log = open(test_pki_path("log"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(log, STDERR_FILENO);
    execl(program, program, "--node", "n1", "--listen", listen_at, "--ca", test_pki_path("ca.crt"),
          "--certificate", test_pki_path("n1.crt"), "--key", test_pki_path("n1.key"), "--state",
          agent_fixture_state(), (char *) NULL);
    _exit(127);
}

void agent_fixture_start(void)
{
    agent_fixture_start_on(NULL);
}

void agent_fixture_start_on(const char *tmpfs_options)
{
    struct error err;

    test_pki_new();
    if (tmpfs_options != NULL) {
        ck_assert_int_eq(mkdir(agent_fixture_state(), 0700), 0);
        ck_assert_int_eq(mount("tmpfs", agent_fixture_state(), "tmpfs", 0, tmpfs_options), 0);
    }
    ck_assert_int_eq(loop_new(&loop, &err), STATUS_OK);
    port = free_port();
    start();
}

static void end(int number)
{
    if (guardian > 0) {
        kill(guardian, number);
        waitpid(guardian, NULL, 0);
    }
    guardian = 0;
}

void agent_fixture_stop(void)
{
    end(SIGTERM);
    loop_free(loop);
    loop = NULL;
    umount2(agent_fixture_state(), MNT_DETACH);
    test_pki_remove();
}

/* An agent outlives its guardian by a moment, in which it still takes connections. */
static void await_silence(void)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};
    int64_t deadline_ns = deadline_in_ms(10000);

    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (;;) {
        OWNED_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *) &there, sizeof there) != 0)
            return;
        ck_assert_msg(!deadline_passed(deadline_ns), "the agent outlives its guardian");
        poll(NULL, 0, 5);
    }
}

void agent_fixture_restart(void)
{
    end(SIGKILL);
    await_silence();
    start();
}

pid_t agent_fixture_guardian(void)
{
    return guardian;
}

/* The guardian's child that runs `ordeald --agent`. */
static pid_t find_agent(void)
{
    char path[64], command[64] = "";
    int pid = 0;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int) guardian, (int) guardian);
    OWNED_FILE FILE *children = fopen(path, "re");
    while (children != NULL && fscanf(children, "%d", &pid) == 1) {
        snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        OWNED_FILE FILE *file = fopen(path, "re");
        size_t length = file == NULL ? 0 : fread(command, 1, sizeof command - 1, file);
        command[length] = '\0';
        const char *argument = command + strlen(command) + 1;
        if (argument < command + length && strcmp(argument, "--agent") == 0)
            return pid;
        /* a long path: look for the word behind it */
        if (length == sizeof command - 1 && strstr(command, "ordeal-guardian") == NULL)
            return pid;
    }
    return 0;
}

pid_t agent_fixture_agent(pid_t other_than)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    pid_t pid;

    while ((pid = find_agent()) == 0 || pid == other_than) {
        ck_assert_msg(!deadline_passed(deadline_ns), "no agent: %s", agent_fixture_log());
        poll(NULL, 0, 5);
    }
    return pid;
}

const char *agent_fixture_log(void)
{
    static char text[64 * 1024];
    OWNED_FD int fd = open(test_pki_path("log"), O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

    text[length > 0 ? length : 0] = '\0';
    return text;
}

/* --- the other end --------------------------------------------------------------------------- */

static void on_ready(void *argument, struct rpc *rpc)
{
    (void) rpc;
    ((struct agent_peer *) argument)->ready = true;
}

static void on_message(void *argument, struct rpc *rpc, json_t *message)
{
    (void) rpc;
    json_array_append(((struct agent_peer *) argument)->messages, message);
}

static void on_closed(void *argument, struct rpc *rpc, const struct error *reason)
{
    struct agent_peer *peer = argument;

    (void) rpc;
    peer->closed = true;
    peer->reason = *reason;
}

static void connect_peer(struct agent_peer *peer)
{
    static const struct rpc_events events = {
        .ready = on_ready, .message = on_message, .closed = on_closed};
    struct error err = {0};
    int fd = -1;

    peer->closed = false;
    ck_assert_msg(rpc_dial("127.0.0.1", port, &fd, &err) == STATUS_OK, "%s", err.message);
    ck_assert_msg(rpc_new(loop, peer->context, fd, false, "n1", HANDSHAKE_MS, &events, peer,
                          &peer->rpc, &err) == STATUS_OK,
                  "%s", err.message);
    while (!peer->ready && !peer->closed)
        ck_assert_int_eq(loop_turn(loop, 100, &err), STATUS_OK);
}

/* Not listening yet is no reason to give up. */
struct agent_peer *agent_peer_new(const char *certificate)
{
    struct agent_peer *peer = calloc(1, sizeof *peer);
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);

    peer->context = test_pki_context(TLS_ORCHESTRATOR, "ca.crt", certificate);
    peer->messages = json_array();
    for (;;) {
        connect_peer(peer);
        if (!peer->closed || strstr(peer->reason.message, "connecting") == NULL)
            return peer;
        ck_assert_msg(!deadline_passed(deadline_ns), "%s\n%s", peer->reason.message,
                      agent_fixture_log());
        rpc_free(peer->rpc);
        poll(NULL, 0, 10);
    }
}

void agent_peer_free(struct agent_peer *peer)
{
    if (peer == NULL)
        return;
    rpc_free(peer->rpc);
    SSL_CTX_free(peer->context);
    json_decref(peer->messages);
    json_decref(peer->kept);
    free(peer);
}

const struct error *agent_peer_reason(struct agent_peer *peer)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    struct error err;

    while (!peer->closed) {
        ck_assert_msg(!deadline_passed(deadline_ns), "the connection is still open");
        ck_assert_int_eq(loop_turn(loop, 100, &err), STATUS_OK);
    }
    return &peer->reason;
}

/* --- calls ----------------------------------------------------------------------------------- */

/* Take the first message that fits; NULL when there is none (yet). */
static json_t *take(struct agent_peer *peer, bool (*fits)(const json_t *message, const void *what),
                    const void *what)
{
    for (size_t i = 0; i < json_array_size(peer->messages); i++) {
        json_t *message = json_array_get(peer->messages, i);
        if (!fits(message, what))
            continue;
        json_incref(message);
        json_array_remove(peer->messages, i);
        return message;
    }
    return NULL;
}

/* NULL when the connection has ended. */
static json_t *await(struct agent_peer *peer, bool (*fits)(const json_t *message, const void *what),
                     const void *what, const char *name)
{
    int64_t deadline_ns = deadline_in_ms(6 * PATIENCE_MS);
    struct error err;
    json_t *message;

    while ((message = take(peer, fits, what)) == NULL) {
        if (peer->closed)
            return NULL;
        ck_assert_msg(!deadline_passed(deadline_ns), "%s: no answer", name);
        ck_assert_int_eq(loop_turn(loop, 100, &err), STATUS_OK);
    }
    return message;
}

static bool answers(const json_t *message, const void *what)
{
    return json_object_get(message, "method") == NULL &&
           json_number(message, "id", -1) == *(const int64_t *) what;
}

static bool ends_job(const json_t *message, const void *what)
{
    return strcmp(json_text(message, "method", ""), "job.done") == 0 &&
           json_number(json_object_get(message, "params"), "job", -1) == *(const int64_t *) what;
}

static bool is_called(const json_t *message, const void *what)
{
    return strcmp(json_text(message, "method", ""), what) == 0;
}

static enum status lost(const struct agent_peer *peer, struct error *err)
{
    *err = peer->reason;
    return err->code;
}

void agent_post(struct agent_peer *peer, const char *method, json_t *params)
{
    struct error err;

    ck_assert_msg(rpc_send(peer->rpc, rpc_request(++peer->last_id, method, params), &err) ==
                      STATUS_OK,
                  "%s", err.message);
}

enum status agent_try(struct agent_peer *peer, const char *method, json_t *params,
                      json_t **ret_result, struct error *err)
{
    int64_t id = ++peer->last_id;
    enum status status = rpc_send(peer->rpc, rpc_request(id, method, params), err);

    if (status != STATUS_OK)
        return status;
    OWNED_JSON json_t *answer = await(peer, answers, &id, method);
    if (answer == NULL)
        return lost(peer, err);
    const json_t *error = json_object_get(answer, "error");
    if (error != NULL)
        return json_to_error(json_object_get(error, "data"), err);
    json_t *result = json_object_get(answer, "result");
    int64_t job = json_number(result, "job", 0);
    if (job == 0) {
        *ret_result = json_incref(result);
        return STATUS_OK;
    }
    OWNED_JSON json_t *done = await(peer, ends_job, &job, method);
    if (done == NULL)
        return lost(peer, err);
    const json_t *outcome = json_object_get(done, "params");
    if (json_object_get(outcome, "error") != NULL)
        return json_to_error(json_object_get(outcome, "error"), err);
    *ret_result = json_incref(json_object_get(outcome, "result"));
    return STATUS_OK;
}

json_t *agent_call(struct agent_peer *peer, const char *method, json_t *params)
{
    struct error err = {0};
    json_t *result = NULL;
    enum status status = agent_try(peer, method, params, &result, &err);

    ck_assert_msg(status == STATUS_OK, "%s: %s (%s)", method, err.message, err.detail);
    return result;
}

const char *agent_refusal(struct agent_peer *peer, const char *method, json_t *params)
{
    static char text[1200];
    struct error err = {0};
    OWNED_JSON json_t *result = NULL;

    ck_assert_msg(agent_try(peer, method, params, &result, &err) != STATUS_OK, "%s was not refused",
                  method);
    snprintf(text, sizeof text, "%s: %s", status_name(err.code), err.message);
    return text;
}

const json_t *agent_notification(struct agent_peer *peer, const char *method)
{
    json_decref(peer->kept);
    peer->kept = await(peer, is_called, method, method);
    ck_assert_msg(peer->kept != NULL, "%s: %s", method, peer->reason.message);
    return json_object_get(peer->kept, "params");
}

static json_t *database(const char *data)
{
    if (data == NULL)
        return json_null();
    return json_pack("{s:i, s:i, s:s, s:s, s:n, s:n, s:{s:s, s:n, s:s}, s:{s:s, s:n, s:s}, s:n, "
                     "s:n}",
                     "version", 15, "port", 5432, "data", data, "bin", "/usr/lib/postgresql/15/bin",
                     "start", "stop", "superuser", "user", "ordeal_admin", "password_file",
                     "database", "postgres", "workload", "user", "ordeal_load", "password_file",
                     "database", "ordeal", "replication", "ssl_root");
}

json_t *agent_session(const char *run, int lease_ms, const char *data)
{
    return json_pack("{s:i, s:s, s:i, s:{s:s, s:s, s:b, s:n, s:{}}, s:[{s:s, s:s}], s:o, s:n, "
                     "s:{s:[], s:b}}",
                     "protocol", RPC_PROTOCOL, "run", run, "lease_ms", lease_ms, "node", "name",
                     "n1", "address", "127.0.0.1", "serves_database", data != NULL, "cgroup",
                     "volumes", "peers", "name", "n1", "address", "127.0.0.1", "database",
                     database(data), "power", "endpoint", "hosts", "managed", 0);
}
