/* SPDX-License-Identifier: MIT */
#include "agents/guardian/clients.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "agents/guardian/records.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

enum {
    BACKLOG = 16,
    WORDS_MAX = 4,
    LINE_SIZE = 256,
    INPUT_FIRST = 1024,
    INPUT_MAX = JOURNAL_RECORD_MAX + LINE_SIZE,
    OUTPUT_MAX = 256 * 1024
};

static const char socket_name[] = "guardian.sock";

/* --- connections ----------------------------------------------------------------------------- */

enum status clients_listen(struct guardian *guardian, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    for (int i = 0; i < CLIENTS_MAX; i++)
        guardian->clients[i].fd = guardian->clients[i].pidfd = -1;
    guardian->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (guardian->listen_fd < 0)
        return error_system(err, "making a socket");
    /* the state folder's name may be longer than an address can be */
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", guardian->folder_fd,
             socket_name);
    unlinkat(guardian->folder_fd, socket_name, 0);
    mode_t before = umask(0177);
    int result = bind(guardian->listen_fd, (struct sockaddr *) &address, sizeof address);
    umask(before);
    if (result != 0 || listen(guardian->listen_fd, BACKLOG) != 0)
        return error_system(err, "listening on %s/%s", guardian->options.state, socket_name);
    return STATUS_OK;
}

/*
 * The process at the other end. Where the kernel cannot name it by descriptor, its pid is only
 * believed as long as its end of the connection is open.
 */
static int peer_pidfd(int fd)
{
    int pidfd = -1;
    socklen_t size = sizeof pidfd;
    struct ucred peer = {0};
    struct pollfd state = {.fd = fd, .events = POLLRDHUP};

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
        return pidfd;
    size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0)
        return -1;
    pidfd = (int) syscall(SYS_pidfd_open, peer.pid, 0U);
    if (pidfd >= 0 && poll(&state, 1, 0) != 0) {
        close(pidfd);
        return -1;
    }
    return pidfd;
}

static void drop(struct guardian *guardian, struct client *client)
{
    char injecting[JOURNAL_UID_SIZE];

    memcpy(injecting, client->injecting, sizeof injecting);
    close(client->fd);
    if (client->pidfd >= 0)
        close(client->pidfd);
    free(client->input);
    free(client->output);
    *client = (struct client){.fd = -1, .pidfd = -1};
    struct record *record = injecting[0] == '\0' ? NULL : records_find(guardian, injecting);
    if (record != NULL && (record->state == RECORD_OPENING || record->state == RECORD_ARMED)) {
        say("fault %s (%s): its injector has gone before it was injected; undoing", record->uid,
            record->fault);
        record_undo(guardian, record, "death");
    }
}

static void accept_client(struct guardian *guardian, void *object, short events)
{
    struct client *client = guardian->clients;
    int fd = accept4(guardian->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void) object;
    (void) events;
    if (fd < 0)
        return;
    while (client < guardian->clients + CLIENTS_MAX && client->fd >= 0)
        client++;
    if (client == guardian->clients + CLIENTS_MAX) {
        close(fd);
        return;
    }
    *client = (struct client){.fd = fd, .pidfd = peer_pidfd(fd)};
}

/* --- answers --------------------------------------------------------------------------------- */

static void flush(struct client *client)
{
    while (client->output_length > 0) {
        ssize_t count =
            send(client->fd, client->output, client->output_length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count <= 0)
            return; /* full: later; dead: its end is seen when reading */
        client->output_length -= (size_t) count;
        memmove(client->output, client->output + count, client->output_length);
    }
}

/* A client that does not read gets no more; its end of the connection is closed. */
static void answer(struct client *client, const char *format, ...) PRINTF_LIKE(2, 3);
static void answer(struct client *client, const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (length < 0)
        return;
    size_t size = (size_t) length < sizeof line - 1 ? (size_t) length : sizeof line - 2;
    line[size++] = '\n';
    if (client->output_length + size > client->output_capacity) {
        size_t capacity = client->output_length + size + 4096;
        char *output = capacity > OUTPUT_MAX ? NULL : realloc(client->output, capacity);
        if (output == NULL) {
            shutdown(client->fd, SHUT_RDWR);
            return;
        }
        client->output = output;
        client->output_capacity = capacity;
    }
    memcpy(client->output + client->output_length, line, size);
    client->output_length += size;
    flush(client);
}

static void answer_record(struct client *client, const struct record *record)
{
    answer(client, "record %s %s %" PRId64 " %s %s %s", record->uid,
           record_state_name(record->state), record->deadline_ns, record->run, record->fault,
           record->state == RECORD_FAILED ? record->said : "");
}

/* What is left of a run: nothing, something that is being undone, or what failed. */
static void answer_undo_all(struct guardian *guardian, struct client *client)
{
    const struct record *failed = NULL;
    int count = 0;

    for (int i = 0; i < RECORDS_MAX; i++) {
        const struct record *record = &guardian->records[i];
        if (!record_of_run(record, client->subject))
            continue;
        if (record->state != RECORD_FAILED)
            return;
        failed = record;
        count++;
    }
    client->wait = WAIT_NOTHING;
    if (failed == NULL)
        answer(client, "ok");
    else
        answer(client, "error %d not undone; %s: %s", count, failed->uid, failed->said);
}

static bool waits(const struct client *client, enum client_wait wait, const struct record *record)
{
    return client->fd >= 0 && client->wait == wait && strcmp(client->subject, record->uid) == 0;
}

void clients_changed(struct guardian *guardian, const struct record *record)
{
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &guardian->clients[i];
        if (client->fd < 0)
            continue;
        if (client->watching)
            answer_record(client, record);
        if (record->state != RECORD_FAILED)
            continue;
        if (waits(client, WAIT_UNDO, record) || waits(client, WAIT_CLOSE, record)) {
            client->wait = WAIT_NOTHING;
            answer(client, "error %s", record->said);
        } else if (client->wait == WAIT_UNDO_ALL)
            answer_undo_all(guardian, client);
    }
}

void clients_closed(struct guardian *guardian, const struct record *record, int64_t at_ns)
{
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &guardian->clients[i];
        if (client->fd < 0)
            continue;
        if (client->watching)
            answer(client, "closed %s %s %s %" PRId64 " %s", record->uid, record->who,
                   record->effect, at_ns, record->run);
        if (waits(client, WAIT_UNDO, record) || waits(client, WAIT_CLOSE, record)) {
            client->wait = WAIT_NOTHING;
            answer(client, "ok");
        } else if (client->wait == WAIT_UNDO_ALL)
            answer_undo_all(guardian, client);
    }
}

bool clients_opened(struct guardian *guardian, const struct record *record, const char *error)
{
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &guardian->clients[i];
        if (!waits(client, WAIT_OPEN, record))
            continue;
        client->wait = WAIT_NOTHING;
        if (error == NULL)
            answer(client, "ok");
        else {
            client->injecting[0] = '\0';
            answer(client, "error %s", error);
        }
        return true;
    }
    return false;
}

/* --- requests -------------------------------------------------------------------------------- */

struct request {
    const char *words[WORDS_MAX];
    char *body; /* of `open`: the record */
};

static bool parse_number(const char *word, int64_t maximum, int64_t *ret_number)
{
    char *end;

    if (word == NULL)
        return false;
    errno = 0;
    *ret_number = strtoll(word, &end, 10);
    return errno == 0 && end != word && *end == '\0' && *ret_number >= 0 && *ret_number <= maximum;
}

static bool parse_lease(struct client *client, const char *word, int64_t *ret_lease_ms)
{
    if (parse_number(word, INT32_MAX, ret_lease_ms))
        return true;
    answer(client, "error '%.40s' is no lease in ms", word);
    return false;
}

static struct record *named_record(struct guardian *guardian, struct client *client,
                                   const char *uid)
{
    struct record *record = records_find(guardian, uid);

    if (record == NULL)
        answer(client, "absent no open fault %.40s", uid);
    return record;
}

static void wait_for(struct client *client, enum client_wait wait, const char *subject)
{
    client->wait = wait;
    snprintf(client->subject, sizeof client->subject, "%s", subject);
}

static void request_open(struct guardian *guardian, struct client *client,
                         const struct request *request)
{
    struct error err;
    int64_t lease_ms;

    if (!parse_lease(client, request->words[2], &lease_ms))
        return;
    if (client->injecting[0] != '\0' || client->pidfd < 0) {
        answer(client, "error %s",
               client->pidfd < 0 ? "the process at this connection cannot be named"
                                 : "this connection has an open fault already");
        return;
    }
    /* the injector's death is waited for, so the record gets a descriptor of its own */
    int injector = (int) syscall(SYS_fcntl, client->pidfd, 1030 /* F_DUPFD_CLOEXEC */, 3);
    if (records_open(guardian, request->words[1], lease_ms, request->body, injector, &err) !=
        STATUS_OK) {
        if (injector >= 0)
            close(injector);
        answer(client, "%s %s", err.code == STATUS_CONFLICT ? "conflict" : "error", err.message);
        return;
    }
    snprintf(client->injecting, sizeof client->injecting, "%s", request->words[1]);
    wait_for(client, WAIT_OPEN, request->words[1]);
}

static void request_injected(struct guardian *guardian, struct client *client,
                             const struct request *request)
{
    struct record *record = named_record(guardian, client, request->words[1]);

    if (record == NULL)
        return;
    if (record->state != RECORD_ARMED || strcmp(client->injecting, record->uid) != 0) {
        answer(client, "error fault %s is %s", record->uid, record_state_name(record->state));
        return;
    }
    client->injecting[0] = '\0';
    record_injected(guardian, record);
    answer(client, "ok");
}

static void request_renew(struct guardian *guardian, struct client *client,
                          const struct request *request)
{
    struct record *record = named_record(guardian, client, request->words[1]);
    int64_t lease_ms;

    if (record == NULL || !parse_lease(client, request->words[2], &lease_ms))
        return;
    record_renew(guardian, record, lease_ms);
    answer(client, "ok");
}

static void request_renew_all(struct guardian *guardian, struct client *client,
                              const struct request *request)
{
    int64_t lease_ms;

    if (!parse_lease(client, request->words[2], &lease_ms))
        return;
    for (int i = 0; i < RECORDS_MAX; i++)
        if (record_of_run(&guardian->records[i], request->words[1]))
            record_renew(guardian, &guardian->records[i], lease_ms);
    answer(client, "ok");
}

static void request_close(struct guardian *guardian, struct client *client,
                          const struct request *request)
{
    struct record *record = named_record(guardian, client, request->words[1]);

    if (record == NULL)
        return;
    if (strlen(request->words[2]) >= JOURNAL_WORD_SIZE) {
        answer(client, "error '%.40s' is too long for a state", request->words[2]);
        return;
    }
    if (record->state != RECORD_ARMED && record->state != RECORD_INJECTED) {
        answer(client, "error fault %s is %s", record->uid, record_state_name(record->state));
        return;
    }
    wait_for(client, WAIT_CLOSE, record->uid);
    if (strcmp(client->injecting, record->uid) == 0)
        client->injecting[0] = '\0';
    record_close(guardian, record, request->words[2]);
}

/* The injector may ask for its own fault: it must not be killed for that. */
static void forget_injector(struct client *client, struct record *record)
{
    if (strcmp(client->injecting, record->uid) != 0)
        return;
    client->injecting[0] = '\0';
    close(record->injector);
    record->injector = -1;
}

static void request_undo(struct guardian *guardian, struct client *client,
                         const struct request *request)
{
    struct record *record = named_record(guardian, client, request->words[1]);

    if (record == NULL)
        return;
    wait_for(client, WAIT_UNDO, record->uid);
    if (record->state == RECORD_ARMED)
        forget_injector(client, record);
    record_undo(guardian, record, "agent");
}

static void request_undo_all(struct guardian *guardian, struct client *client,
                             const struct request *request)
{
    wait_for(client, WAIT_UNDO_ALL, request->words[1]);
    for (int i = 0; i < RECORDS_MAX; i++)
        if (record_of_run(&guardian->records[i], client->subject))
            record_undo(guardian, &guardian->records[i], "agent");
    if (client->fd >= 0 && client->wait == WAIT_UNDO_ALL)
        answer_undo_all(guardian, client);
}

static void request_list(struct guardian *guardian, struct client *client,
                         const struct request *request)
{
    (void) request;
    for (int i = 0; i < RECORDS_MAX; i++)
        if (guardian->records[i].state != RECORD_FREE)
            answer_record(client, &guardian->records[i]);
    answer(client, "ok");
}

static void request_watch(struct guardian *guardian, struct client *client,
                          const struct request *request)
{
    request_list(guardian, client, request);
    client->watching = true;
}

static const struct {
    const char *name;
    int words;
    bool body; /* the last word is the length of what follows the line */
    void (*call)(struct guardian *guardian, struct client *client, const struct request *request);
} requests[] = {
    {"open", 4, true, request_open},          {"injected", 2, false, request_injected},
    {"renew", 3, false, request_renew},       {"renew-all", 3, false, request_renew_all},
    {"close", 3, false, request_close},       {"undo", 2, false, request_undo},
    {"undo-all", 2, false, request_undo_all}, {"list", 1, false, request_list},
    {"watch", 1, false, request_watch},
};

enum { REQUEST_COUNT = sizeof requests / sizeof requests[0] };

/* Split a copy of the line; the number of words, WORDS_MAX + 1 when there are more. */
static int split(char *line, struct request *request)
{
    int count = 0;

    for (char *rest = line, *word; (word = strsep(&rest, " ")) != NULL;) {
        if (count == WORDS_MAX)
            return WORDS_MAX + 1;
        request->words[count++] = word;
    }
    return count;
}

static int find_request(const struct request *request, int words)
{
    for (int i = 0; words > 0 && i < REQUEST_COUNT; i++)
        if (strcmp(request->words[0], requests[i].name) == 0 && words == requests[i].words)
            return i;
    return -1;
}

static void consume(struct client *client, size_t length)
{
    client->input_length -= length;
    memmove(client->input, client->input + length, client->input_length);
}

static void refuse(struct client *client, const char *text)
{
    answer(client, "error %s", text);
    shutdown(client->fd, SHUT_RDWR); /* what follows cannot be understood */
    client->input_length = 0;
}

/* Carry out one request; false when it is not complete yet. */
static bool take_request(struct guardian *guardian, struct client *client)
{
    static char body[JOURNAL_RECORD_MAX + 1];
    char line[LINE_SIZE];
    struct request request = {.body = body};
    const char *end = memchr(client->input, '\n', client->input_length);
    int64_t body_length = 0;

    if (end == NULL && client->input_length < sizeof line)
        return false;
    size_t length = end == NULL ? sizeof line : (size_t) (end - client->input);
    if (length >= sizeof line) {
        refuse(client, "a request that is too long");
        return false;
    }
    memcpy(line, client->input, length);
    line[length] = '\0';
    int found = find_request(&request, split(line, &request));
    if (found < 0 || (requests[found].body &&
                      !parse_number(request.words[3], JOURNAL_RECORD_MAX, &body_length))) {
        refuse(client, found < 0 ? "no such request" : "a record that is too long");
        return false;
    }
    if (client->input_length < length + 1 + (size_t) body_length)
        return false;
    memcpy(body, client->input + length + 1, (size_t) body_length);
    body[body_length] = '\0';
    consume(client, length + 1 + (size_t) body_length);
    requests[found].call(guardian, client, &request);
    return true;
}

/* Room for more; 0 when the client has said all that it may before it is answered. */
static size_t input_room(struct client *client)
{
    if (client->input_length < client->input_capacity)
        return client->input_capacity - client->input_length;
    size_t capacity = client->input_capacity == 0 ? INPUT_FIRST : 2 * client->input_capacity;
    if (capacity > INPUT_MAX)
        capacity = INPUT_MAX;
    char *input = capacity > client->input_length ? realloc(client->input, capacity) : NULL;
    if (input == NULL)
        return 0;
    client->input = input;
    client->input_capacity = capacity;
    return capacity - client->input_length;
}

static void on_client(struct guardian *guardian, void *object, short events)
{
    struct client *client = object;
    size_t room = input_room(client);

    if ((events & POLLOUT) != 0)
        flush(client);
    if ((events & POLLIN) != 0 && room > 0) {
        ssize_t count = recv(client->fd, client->input + client->input_length, room, MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
            drop(guardian, client);
            return;
        }
        client->input_length += count > 0 ? (size_t) count : 0;
    } else if ((events & (POLLHUP | POLLERR | POLLNVAL)) != 0)
        drop(guardian, client);
}

static void take_requests(struct guardian *guardian)
{
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &guardian->clients[i];
        while (client->fd >= 0 && client->wait == WAIT_NOTHING && client->input_length > 0 &&
               take_request(guardian, client))
            ;
    }
}

void clients_watch(struct guardian *guardian, struct watches *watches)
{
    take_requests(guardian); /* those that had to wait for an answer of an earlier one */
    watch(watches, guardian->listen_fd, POLLIN, accept_client, NULL);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &guardian->clients[i];
        if (client->fd < 0)
            continue;
        short events = client->input_length < INPUT_MAX ? POLLIN : 0;
        if (client->output_length > 0)
            events |= POLLOUT;
        watch(watches, client->fd, events, on_client, client);
    }
}
