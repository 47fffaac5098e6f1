/* SPDX-License-Identifier: MIT */
#include "agents/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/agent.h"
#include "agents/fingerprint.h"
#include "agents/method_table.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/log.h"
#include "lib/owned.h"

enum {
    HANDSHAKE_MS = 5000,
    LONELY_LEASES = 6 /* so long a session waits for an orchestrator that is gone */
};

/* --- what methods may use -------------------------------------------------------------------- */

struct loop *agent_loop(struct agent *agent)
{
    return agent->loop;
}

const char *agent_state_folder(const struct agent *agent)
{
    return agent->options->state;
}

struct connection *agent_connection(struct agent *agent, int64_t id)
{
    struct connection *connection = agent->connections;

    while (connection != NULL && connection->id != id)
        connection = connection->next;
    return connection;
}

/* Without a connection there is nobody to tell; what counts is asked for again after a reconnect.
 */
void agent_notify(struct agent *agent, const char *method, json_t *params)
{
    struct connection *connection = agent_connection(agent, agent->owner);
    struct error err;

    if (connection == NULL)
        json_decref(params);
    else if (rpc_send(connection->rpc, rpc_notification(method, params), &err) != STATUS_OK)
        log_line(LOG_WARNING, "notification %s: %s", method, err.message);
}

void agent_on_session_end(struct agent *agent, void (*call)(void *argument), void *argument)
{
    if (agent->end_call_count == END_CALLS_MAX)
        abort(); /* one slot a module */
    agent->end_calls[agent->end_call_count].call = call;
    agent->end_calls[agent->end_call_count++].argument = argument;
}

/* --- the session ----------------------------------------------------------------------------- */

void agent_end_session(struct agent *agent)
{
    for (size_t i = 0; i < agent->end_call_count; i++)
        agent->end_calls[i].call(agent->end_calls[i].argument);
    agent->end_call_count = 0;
    loop_remove(agent->loop, agent->lonely);
    jobs_kill(agent);
    session_free(agent->session);
    json_decref(agent->session_params);
    agent->session = NULL;
    agent->session_params = NULL;
    agent->owner = 0;
}

const char *agent_serving_run(struct agent *agent)
{
    return agent->session != NULL && agent_connection(agent, agent->owner) != NULL
               ? agent->session->run
               : NULL;
}

/* One whose undo failed is nobody's any more: whoever comes may ask for it again. */
static bool holds_faults(const struct agent *agent)
{
    for (size_t i = 0; i < guardian_link_count(agent->guardian); i++)
        if (strcmp(guardian_link_record(agent->guardian, i)->state, "failed") != 0)
            return true;
    return false;
}

static enum status refuse_second(const struct agent *agent, struct error *err)
{
    bool connected = agent_connection((struct agent *) (uintptr_t) agent, agent->owner) != NULL;

    if (!connected && !holds_faults(agent))
        return STATUS_OK;
    error_set(err, STATUS_CONFLICT, "node %s serves run %s%s", agent->options->node,
              agent->session->run, connected ? "" : ", whose faults are still open");
    error_hint(err,
               connected ? "Wait until that run ends, or end its orchestrator."
                         : "Its leases lapse within %lld ms; try again then.",
               (long long) agent->session->lease_ms);
    return STATUS_CONFLICT;
}

/* Faults are undone from the state folder's file system: it must survive what is done to others. */
static enum status check_volume(const struct agent *agent, const char *name, const char *path,
                                struct error *err)
{
    struct stat volume, own;

    if (stat(path, &volume) != 0)
        return STATUS_OK; /* a volume that is not there cannot hold anything */
    if (stat(agent->options->state, &own) == 0 && own.st_dev == volume.st_dev) {
        error_set(err, STATUS_REFUSED,
                  "the state folder %s lies on volume %s (%s), which is under "
                  "test",
                  agent->options->state, name, path);
        error_hint(err, "Start ordeald with --state on another file system.");
        return STATUS_REFUSED;
    }
    for (const char *const *protect = agent->options->protect; *protect != NULL; protect++)
        if (stat(*protect, &own) == 0 && own.st_dev == volume.st_dev)
            return error_set(err, STATUS_REFUSED,
                             "volume %s (%s) is on the protected file system "
                             "of %s",
                             name, path, *protect);
    return STATUS_OK;
}

static enum status check_volumes(const struct agent *agent, const json_t *params, struct error *err)
{
    json_t *volumes = json_object_get(json_object_get(params, "node"), "volumes");
    const char *name;
    json_t *path;

    json_object_foreach(volumes, name, path)
    {
        if (!json_is_string(path))
            return error_set(err, STATUS_INVALID, "session.open: volume '%.64s' is no path", name);
        enum status status = check_volume(agent, name, json_string_value(path), err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* The same run comes back: its session goes on, with the connection it has now. */
static void adopt(struct agent *agent)
{
    const struct connection *connection = agent->serving;
    struct session *session = agent->session;

    session->control_address = arena_strdup(session->arena, connection->peer);
    session->control_port = agent->options->port;
    agent->owner = connection->id;
    loop_remove(agent->loop, agent->lonely);
}

static enum status new_session(struct agent *agent, const json_t *params, struct error *err)
{
    struct session *session = NULL;
    enum status status = check_volumes(agent, params, err);

    if (status == STATUS_OK)
        status = session_new(agent->options->state, params, &session, err);
    if (status != STATUS_OK)
        return status;
    if (strcmp(session->node, agent->options->node) != 0) {
        status = error_set(err, STATUS_REFUSED, "this is node %s, not %s", agent->options->node,
                           session->node);
        session_free(session);
        return status;
    }
    if (agent->session != NULL)
        agent_end_session(agent);
    agent->session = session;
    agent->session_params = json_deep_copy(params);
    adopt(agent);
    log_line(LOG_INFO, "session of run %s from %s", session->run, session->control_address);
    return STATUS_OK;
}

enum status agent_open_session(struct agent *agent, const json_t *params, struct error *err)
{
    const char *run = json_text(params, "run", "");

    if (agent->session == NULL)
        return new_session(agent, params, err);
    if (strcmp(agent->session->run, run) != 0) {
        enum status status = refuse_second(agent, err);
        return status == STATUS_OK ? new_session(agent, params, err) : status;
    }
    if (!json_equal(agent->session_params, params))
        return error_set(err, STATUS_CONFLICT, "run %s is open here with other parameters", run);
    adopt(agent);
    log_line(LOG_INFO, "run %s is back from %s", run, agent->session->control_address);
    return STATUS_OK;
}

/* --- requests -------------------------------------------------------------------------------- */

static enum status call_method(struct agent *agent, const struct method *method,
                               const json_t *params, json_t **ret_result, struct error *err)
{
    struct method_call call = {.agent = agent,
                               .session = agent->session,
                               .state_folder = agent->options->state,
                               .params = params};
    int64_t job = 0;

    if (!method->no_session && (agent->session == NULL || agent->serving->id != agent->owner))
        return error_set(err, STATUS_REFUSED, "%s needs a session; open one first", method->name);
    const char *run = json_text(params, "run", NULL);
    if (!method->no_session && run != NULL && strcmp(run, agent->session->run) != 0)
        return error_set(err, STATUS_CONFLICT, "%s for run %s, but run %s is open", method->name,
                         run, agent->session->run);
    enum status status =
        policy_check(&agent->policy, agent->options->state, method->name, params, err);
    if (status != STATUS_OK)
        return status;
    if (!method->job)
        return method->call(&call, ret_result, err);
    if (method->before != NULL)
        method->before(&call);
    status = job_start(agent, method, params, &job, err);
    if (status == STATUS_OK)
        *ret_result = json_pack("{s:I}", "job", (json_int_t) job);
    return status;
}

/* The answer to a request; NULL for a notification, which agents ignore. */
static json_t *carry_out(struct agent *agent, const json_t *message)
{
    const json_t *id = json_object_get(message, "id");
    const char *name = json_text(message, "method", "");
    const json_t *given = json_object_get(message, "params");
    OWNED_JSON json_t *none = json_object();
    const json_t *params = given != NULL ? given : none;
    const struct method *method = method_find(name);
    struct error err = {0};
    json_t *result = NULL;

    if (id == NULL)
        return NULL;
    if (method == NULL) {
        error_set(&err, STATUS_UNSUPPORTED, "this agent has no method '%.64s'", name);
        return rpc_error(id, RPC_CODE_METHOD, &err);
    }
    if (method_check(method, params, &err) != STATUS_OK)
        return rpc_error(id, RPC_CODE_PARAMS, &err);
    if (call_method(agent, method, params, &result, &err) != STATUS_OK)
        return rpc_error(id, RPC_CODE_FAILED, &err);
    return rpc_result(id, result);
}

/* --- connections ----------------------------------------------------------------------------- */

/* Its faults went with their leases; now its load ends and its jobs, too. The spool stays. */
static void on_lonely(void *argument)
{
    struct agent *agent = argument;

    log_line(LOG_WARNING, "the orchestrator of run %s does not come back", agent->session->run);
    agent_end_session(agent);
}

static void lose_owner(struct agent *agent)
{
    agent->owner = 0;
    agent->lonely = loop_at(agent->loop, deadline_in_ms(LONELY_LEASES * agent->session->lease_ms),
                            on_lonely, agent);
}

static void connection_free(struct connection *connection)
{
    struct agent *agent = connection->agent;
    struct connection **link = &agent->connections;

    while (*link != connection)
        link = &(*link)->next;
    *link = connection->next;
    if (agent->owner == connection->id)
        lose_owner(agent);
    rpc_free(connection->rpc);
    free(connection);
}

static void on_message(void *argument, struct rpc *rpc, json_t *message)
{
    struct connection *connection = argument;
    struct error err;

    connection->agent->serving = connection;
    json_t *answer = carry_out(connection->agent, message);
    connection->agent->serving = NULL;
    if (answer != NULL && rpc_send(rpc, answer, &err) != STATUS_OK)
        log_line(LOG_WARNING, "answering %s: %s", connection->peer, err.message);
}

static void on_closed(void *argument, struct rpc *rpc, const struct error *reason)
{
    struct connection *connection = argument;

    (void) rpc;
    log_line(reason->code == STATUS_UNREACHABLE ? LOG_INFO : LOG_WARNING, "connection from %s: %s",
             connection->peer, reason->message);
    connection_free(connection);
}

/*
 * An agent that listens on [::] sees IPv4 peers as ::ffff:A.B.C.D; the firewall rule that exempts
 * the control connection must name the address that is in the packets.
 */
static void peer_text(const struct sockaddr_storage *address, char text[INET6_ADDRSTRLEN])
{
    struct in6_addr six = {0};
    const void *raw = &six;
    int family = address->ss_family;

    memcpy(&six, &((const struct sockaddr_in6 *) address)->sin6_addr, sizeof six);
    if (family == AF_INET) {
        raw = &((const struct sockaddr_in *) address)->sin_addr;
    } else if (IN6_IS_ADDR_V4MAPPED(&six)) {
        family = AF_INET;
        raw = &six.s6_addr[12];
    }
    if (inet_ntop(family, raw, text, INET6_ADDRSTRLEN) == NULL)
        memcpy(text, "?", sizeof "?");
}

static size_t connection_count(const struct agent *agent)
{
    size_t count = 0;

    for (const struct connection *one = agent->connections; one != NULL; one = one->next)
        count++;
    return count;
}

static void accept_connection(void *argument, short events)
{
    static const struct rpc_events rpc_events = {.message = on_message, .closed = on_closed};
    struct agent *agent = argument;
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    OWNED_FD int fd =
        accept4(agent->listener, (struct sockaddr *) &address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct error err;

    (void) events;
    if (fd < 0)
        return;
    if (connection_count(agent) >= CONNECTIONS_MAX) {
        log_line(LOG_WARNING, "more than %d connections; one is closed", CONNECTIONS_MAX);
        return;
    }
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        abort();
    connection->agent = agent;
    connection->id = ++agent->last_connection;
    peer_text(&address, connection->peer);
    connection->next = agent->connections;
    agent->connections = connection;
    if (rpc_new(agent->loop, agent->tls, fd, true, NULL, HANDSHAKE_MS, &rpc_events, connection,
                &connection->rpc, &err) != STATUS_OK) {
        log_error(&err);
        connection_free(connection);
        return;
    }
    take_fd(&fd);
}

/* --- the process ----------------------------------------------------------------------------- */

static void on_fault_closed(void *argument, const char *uid, const char *by, const char *state,
                            int64_t at_ns, const char *run)
{
    struct agent *agent = argument;

    log_line(LOG_INFO, "fault %s of run %s is closed by %s: %s", uid, run, by, state);
    if (strcmp(by, "agent") != 0)
        agent_notify(agent, "fault.undone",
                     json_pack("{s:s, s:s, s:s, s:I}", "uid", uid, "by", by, "state", state,
                               "at_ns", (json_int_t) at_ns));
}

static void on_guardian_lost(void *argument, const struct error *reason)
{
    struct agent *agent = argument;

    agent->fatal = *reason;
    loop_stop(agent->loop);
}

static void on_terminate(void *argument, int number)
{
    struct agent *agent = argument;

    log_line(LOG_INFO, "signal %d", number);
    loop_stop(agent->loop);
}

/* What the guardian's lock does not cover: locks are not inherited. */
static void protect_self(void)
{
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        log_line(LOG_WARNING, "memory is not locked: %s", strerror(errno));
}

static enum status prepare(struct agent *agent, struct error *err)
{
    static const struct guardian_events events = {.closed = on_fault_closed,
                                                  .lost = on_guardian_lost};
    const struct agent_options *options = agent->options;
    enum status status = clock_boot_id(agent->boot_id, err);

    if (status == STATUS_OK)
        status = policy_load(options->state, &agent->policy, err);
    if (status == STATUS_OK)
        status = tls_context(TLS_AGENT, &options->files, &agent->tls, err);
    if (status == STATUS_OK)
        status = loop_new(&agent->loop, err);
    if (status == STATUS_OK)
        status =
            guardian_link_new(agent->loop, options->state, &events, agent, &agent->guardian, err);
    if (status == STATUS_OK)
        status = rpc_listen(options->address, options->port, &agent->listener, err);
    if (status != STATUS_OK)
        return status;
    loop_watch(agent->loop, agent->listener, POLLIN, accept_connection, agent);
    loop_on_signal(agent->loop, SIGTERM, on_terminate, agent);
    loop_on_signal(agent->loop, SIGINT, on_terminate, agent);
    return STATUS_OK;
}

static void release(struct agent *agent)
{
    agent_end_session(agent);
    for (struct connection *next, *one = agent->connections; one != NULL; one = next) {
        next = one->next;
        rpc_free(one->rpc);
        free(one);
    }
    guardian_link_free(agent->guardian);
    if (agent->listener >= 0)
        close(agent->listener);
    loop_free(agent->loop);
    SSL_CTX_free(agent->tls);
    policy_done(&agent->policy);
}

enum status agent_run(const struct agent_options *options, struct error *err)
{
    struct agent agent = {.options = options, .listener = -1};
    enum status status = prepare(&agent, err);

    if (status == STATUS_OK) {
        fingerprint_tidy(options->state);
        protect_self();
        log_line(LOG_INFO, "listening on %s port %d", options->address, options->port);
        status = loop_run(agent.loop, err);
    }
    if (status == STATUS_OK && agent.fatal.code != STATUS_OK) {
        if (err != NULL)
            *err = agent.fatal;
        status = agent.fatal.code;
    }
    release(&agent);
    return status;
}
