/* SPDX-License-Identifier: MIT */
/* The supervisor's control socket: both sides of it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/log.h"
#include "lib/owned.h"
#include "topologies/lab/state.h"
#include "topologies/lab/supervisor.h"
#include "topologies/lab/supervisor_state.h"
#include "topologies/topology.h"

enum { REQUEST_MAX = 4096, ANSWER_MAX = 64 * 1024, BACKLOG = 16 };

struct client {
    struct supervisor *supervisor;
    int fd;
    loop_handle watch;
    size_t length;
    char text[REQUEST_MAX];
};

/* ---- answers ---- */

static void send_line(int client, json_t *json)
{
    OWNED_MEMORY char *text = json_dumps(json, JSON_COMPACT);

    json_decref(json);
    if (client < 0)
        return;
    /* One write: an answer is far shorter than a socket's buffer. */
    if (text == NULL || send(client, text, strlen(text), MSG_NOSIGNAL) < 0 ||
        send(client, "\n", 1, MSG_NOSIGNAL) < 0)
        log_line(LOG_WARNING, "the one who asked is gone");
    close(client);
}

void control_answer(int client, json_t *result)
{
    send_line(client, json_pack("{s:o}", "result", result != NULL ? result : json_object()));
}

void control_refuse(int client, const struct error *err)
{
    send_line(client, json_pack("{s:o}", "error", json_from_error(err)));
}

/* ---- requests ---- */

/* What the lab file says of a node; the asker has not read it. */
static json_t *describe(const struct lab_node *node)
{
    return json_pack("{s:s, s:s, s:s, s:b}", "name", node->name, "zone", node->zone, "address",
                     node->address, "database", (node->roles & ROLE_DATABASE) != 0);
}

static json_t *status_of(const struct slot *slot)
{
    json_t *status = describe(slot->node);

    json_object_set_new(status, "power", json_string(slot_state_name(slot->state)));
    json_object_set_new(status, "pid", json_integer(slot->host_pid));
    json_object_set_new(status, "since_ns", json_integer(slot->since_ns));
    json_object_set_new(status, "boots", json_integer(slot->boot_count));
    return status;
}

static json_t *power_node_status(const struct supervisor *supervisor)
{
    json_t *status = describe(supervisor->power_node);

    json_object_set_new(status, "power", json_string("on"));
    json_object_set_new(status, "since_ns", json_integer(supervisor->started_ns));
    return status;
}

static void on_status(struct supervisor *supervisor, const json_t *request, int client)
{
    json_t *nodes = json_array();

    (void) request;
    for (size_t i = 0; i < supervisor->slot_count; i++)
        json_array_append_new(nodes, status_of(&supervisor->slots[i]));
    json_array_append_new(nodes, power_node_status(supervisor));
    control_answer(client, json_pack("{s:s, s:I, s:i, s:o}", "name", supervisor->spec->name,
                                     "started_ns", (json_int_t) supervisor->started_ns, "port",
                                     (int) supervisor->spec->port, "nodes", nodes));
}

static struct slot *slot_of(struct supervisor *supervisor, const json_t *request, int client)
{
    const char *node = json_text(request, "node", "");
    struct slot *slot = supervisor_slot(supervisor, node);
    struct error err = {0};

    if (slot == NULL) {
        error_set(&err, STATUS_NOT_FOUND, "lab %s has no node \"%s\" with power of its own",
                  supervisor->spec->name, node);
        control_refuse(client, &err);
    }
    return slot;
}

static void on_power(struct supervisor *supervisor, const json_t *request, int client)
{
    struct slot *slot = slot_of(supervisor, request, client);
    const char *word = json_text(request, "word", "");
    struct error err = {0};

    if (slot == NULL)
        return;
    if (strcmp(word, "on") == 0) {
        slot_boot(slot, true, client);
    } else if (strcmp(word, "off") == 0 || strcmp(word, "cut") == 0) {
        slot_stop(slot, strcmp(word, "cut") == 0, client);
    } else {
        error_set(&err, STATUS_USAGE, "power has the words off, cut and on, not \"%s\"", word);
        control_refuse(client, &err);
    }
}

static void on_boot(struct supervisor *supervisor, const json_t *request, int client)
{
    struct slot *slot = slot_of(supervisor, request, client);

    if (slot != NULL)
        slot_boot(slot, false, client);
}

static void on_agent(struct supervisor *supervisor, const json_t *request, int client)
{
    struct error err = {0};

    if (strcmp(json_text(request, "node", ""), supervisor->power_node->name) == 0) {
        supervisor->power_agent_wanted = true;
        power_agent_start(supervisor);
        control_answer(client, NULL);
        return;
    }
    struct slot *slot = slot_of(supervisor, request, client);
    if (slot == NULL)
        return;
    if (slot_agent(slot, &err) == STATUS_OK)
        control_answer(client, NULL);
    else
        control_refuse(client, &err);
}

static void on_keep(struct supervisor *supervisor, const json_t *request, int client)
{
    (void) supervisor;
    (void) request;
    prctl(PR_SET_PDEATHSIG, 0);
    control_answer(client, NULL);
}

static const struct {
    const char *name;
    void (*call)(struct supervisor *supervisor, const json_t *request, int client);
} requests[] = {
    {"status", on_status}, {"power", on_power}, {"boot", on_boot},
    {"agent", on_agent},   {"keep", on_keep},
};

static void dispatch(struct supervisor *supervisor, const char *text, size_t length, int client)
{
    OWNED_JSON json_t *request = NULL;
    struct error err = {0};

    if (json_parse_text(text, length, &request, &err) != STATUS_OK) {
        control_refuse(client, &err);
        return;
    }
    const char *name = json_text(request, "request", "");
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        if (strcmp(requests[i].name, name) == 0) {
            requests[i].call(supervisor, request, client);
            return;
        }
    error_set(&err, STATUS_PROTOCOL, "the supervisor knows no request \"%s\"", name);
    control_refuse(client, &err);
}

static void on_client(void *argument, short events)
{
    struct client *client = argument;
    ssize_t length = recv(client->fd, client->text + client->length,
                          sizeof(client->text) - client->length, MSG_DONTWAIT);

    (void) events;
    if (length > 0)
        client->length += (size_t) length;
    const char *end = memchr(client->text, '\n', client->length);
    if (end == NULL && length > 0 && client->length < sizeof(client->text))
        return; /* the rest will come */
    loop_remove(client->supervisor->loop, client->watch);
    if (end != NULL)
        dispatch(client->supervisor, client->text, (size_t) (end - client->text), client->fd);
    else
        close(client->fd);
    free(client);
}

static void on_listener(void *argument, short events)
{
    struct supervisor *supervisor = argument;
    int fd = accept4(supervisor->listener, NULL, NULL, SOCK_CLOEXEC);
    struct client *client = fd < 0 ? NULL : calloc(1, sizeof(*client));

    (void) events;
    if (client == NULL) {
        owned_close_fd(&fd);
        return;
    }
    client->supervisor = supervisor;
    client->fd = fd;
    client->watch = loop_watch(supervisor->loop, fd, POLLIN, on_client, client);
}

static enum status make_address(const char *lab, struct sockaddr_un *ret_address, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *path = lab_path(arena, lab, "control.sock");

    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(ret_address->sun_path))
        return error_set(err, STATUS_INVALID, "%s is too long for a socket", path);
    memcpy(ret_address->sun_path, path, strlen(path) + 1);
    return STATUS_OK;
}

enum status control_listen(struct supervisor *supervisor, struct error *err)
{
    struct sockaddr_un address;
    enum status status = make_address(supervisor->spec->name, &address, err);

    if (status != STATUS_OK)
        return status;
    OWNED_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0 ||
        chmod(address.sun_path, 0600) < 0 || listen(fd, BACKLOG) < 0)
        return error_system(err, "cannot listen on %s", address.sun_path);
    supervisor->listener = take_fd(&fd);
    loop_watch(supervisor->loop, supervisor->listener, POLLIN, on_listener, supervisor);
    return STATUS_OK;
}

/* ---- the other side ---- */

static enum status dial(const char *lab, int *ret_fd, struct error *err)
{
    struct sockaddr_un address;
    enum status status = make_address(lab, &address, err);

    if (status != STATUS_OK)
        return status;
    OWNED_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_system(err, "cannot make a socket");
    if (connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0) {
        error_set(err, STATUS_NOT_FOUND, "lab %s is not up", lab);
        error_hint(err, "\"ordeal lab up\" brings a lab up; \"ordeal lab down\" clears one away "
                        "that broke.");
        return STATUS_NOT_FOUND;
    }
    *ret_fd = take_fd(&fd);
    return STATUS_OK;
}

static enum status read_answer(int fd, int64_t deadline_ns, struct buffer *text, struct error *err)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    char chunk[4096];

    for (;;) {
        int ready = poll(&poll_fd, 1, deadline_left_ms(deadline_ns));
        if (ready < 0 && errno != EINTR)
            return error_system(err, "cannot poll");
        if (ready == 0)
            return error_set(err, STATUS_TIMEOUT, "the lab's supervisor does not answer");
        if (ready < 0)
            continue;
        ssize_t length = recv(fd, chunk, sizeof(chunk), 0);
        if (length < 0)
            return error_system(err, "cannot read the supervisor's answer");
        if (length == 0)
            return STATUS_OK;
        buffer_append(text, chunk, (size_t) length);
    }
}

static enum status unpack(const struct buffer *text, json_t **ret_result, struct error *err)
{
    OWNED_JSON json_t *answer = NULL;

    if (text->length == 0)
        return error_set(err, STATUS_UNREACHABLE, "the lab's supervisor died");
    enum status status = json_parse_text(buffer_text(text), text->length, &answer, err);
    if (status != STATUS_OK)
        return status;
    if (json_object_get(answer, "error") != NULL)
        return json_to_error(json_object_get(answer, "error"), err);
    if (ret_result != NULL)
        *ret_result = json_incref(json_object_get(answer, "result"));
    return STATUS_OK;
}

enum status supervisor_ask(const char *lab, json_t *request, int64_t timeout_ms,
                           json_t **ret_result, struct error *err)
{
    OWNED_JSON json_t *owned = request;
    OWNED_MEMORY char *line = json_dumps(owned, JSON_COMPACT);
    OWNED_BUFFER struct buffer text = BUFFER(ANSWER_MAX);
    OWNED_FD int fd = -1;
    enum status status = dial(lab, &fd, err);

    if (status != STATUS_OK)
        return status;
    if (line == NULL || send(fd, line, strlen(line), MSG_NOSIGNAL) < 0 ||
        send(fd, "\n", 1, MSG_NOSIGNAL) < 0)
        return error_system(err, "cannot ask the lab's supervisor");
    status = read_answer(fd, deadline_in_ms(timeout_ms), &text, err);
    return status == STATUS_OK ? unpack(&text, ret_result, err) : status;
}
