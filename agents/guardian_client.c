/* SPDX-License-Identifier: MIT */
#include "agents/guardian_client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/owned.h"

enum { RECORDS_MAX = 64, INPUT_MAX = 1024 * 1024, CHUNK = 4096 };

/* --- the socket ------------------------------------------------------------------------------ */

static enum status dial(const char *state_folder, int *ret_fd, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    OWNED_FD int folder = open(state_folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    OWNED_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (folder < 0)
        return error_system(err, "opening folder %s", state_folder);
    if (fd < 0)
        return error_system(err, "making a socket");
    /* the folder's name may be longer than an address can be */
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/guardian.sock", folder);
    if (connect(fd, (struct sockaddr *) &address, sizeof address) != 0) {
        error_system(err, "connecting to the guardian at %s/guardian.sock", state_folder);
        error_hint(err, "Agents are started by 'ordeald', which starts the guardian first.");
        return STATUS_SYSTEM;
    }
    *ret_fd = take_fd(&fd);
    return STATUS_OK;
}

static enum status guardian_gone(struct error *err)
{
    return error_set(err, STATUS_UNREACHABLE, "the guardian closed the connection");
}

/* Take in what is there. */
static enum status receive(int fd, struct buffer *input, struct error *err)
{
    char chunk[CHUNK];
    ssize_t count = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);

    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
        return guardian_gone(err);
    if (count > 0)
        buffer_append(input, chunk, (size_t) count);
    return input->overflow ? error_set(err, STATUS_PROTOCOL, "the guardian says too much")
                           : STATUS_OK;
}

/* Take the first whole line off the buffer; false when there is none. */
static bool take_line(struct buffer *input, struct buffer *line)
{
    const char *end = input->length == 0 ? NULL : memchr(input->data, '\n', input->length);

    if (end == NULL)
        return false;
    size_t length = (size_t) (end - input->data);
    buffer_reset(line);
    buffer_append(line, input->data, length);
    buffer_consume(input, length + 1);
    return true;
}

/* --- for jobs -------------------------------------------------------------------------------- */

void guardian_disconnect(struct guardian_connection *connection)
{
    if (connection->fd > 0)
        close(connection->fd);
    buffer_done(&connection->input);
    connection->fd = -1;
}

enum status guardian_connect(const char *state_folder, int64_t deadline_ns,
                             struct guardian_connection *ret_connection, struct error *err)
{
    int fd = -1;
    enum status status = dial(state_folder, &fd, err);

    (void) deadline_ns; /* a Unix socket connects at once or not at all */
    if (status == STATUS_OK)
        *ret_connection = (struct guardian_connection){.fd = fd, .input = BUFFER(INPUT_MAX)};
    return status;
}

static enum status await(int fd, short events, int64_t deadline_ns, struct error *err)
{
    struct pollfd ready = {.fd = fd, .events = events};

    while (poll(&ready, 1, deadline_left_ms(deadline_ns)) <= 0)
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "no answer from the guardian in time");
    return STATUS_OK;
}

static enum status transmit(int fd, const char *data, size_t length, int64_t deadline_ns,
                            struct error *err)
{
    while (length > 0) {
        ssize_t count = send(fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) {
            data += count;
            length -= (size_t) count;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return guardian_gone(err);
        enum status status = await(fd, POLLOUT, deadline_ns, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status read_line(struct guardian_connection *connection, struct buffer *line,
                             int64_t deadline_ns, struct error *err)
{
    while (!take_line(&connection->input, line)) {
        enum status status = await(connection->fd, POLLIN, deadline_ns, err);
        if (status == STATUS_OK)
            status = receive(connection->fd, &connection->input, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* STATUS_OK: the line is no refusal. */
static enum status read_refusal(const char *line, struct error *err)
{
    static const struct {
        const char *word;
        enum status status;
    } kinds[] = {
        {"error ", STATUS_FAILED}, {"conflict ", STATUS_CONFLICT}, {"absent ", STATUS_NOT_FOUND}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i].word);
        if (strncmp(line, kinds[i].word, length) == 0)
            return error_set(err, kinds[i].status, "guardian: %s", line + length);
    }
    return STATUS_OK;
}

static enum status read_answer(struct guardian_connection *connection, int64_t deadline_ns,
                               struct buffer *lines, struct error *err)
{
    OWNED_BUFFER struct buffer line = BUFFER(INPUT_MAX);

    for (;;) {
        enum status status = read_line(connection, &line, deadline_ns, err);
        if (status != STATUS_OK)
            return status;
        if (strcmp(buffer_text(&line), "ok") == 0)
            return STATUS_OK;
        status = read_refusal(buffer_text(&line), err);
        if (status != STATUS_OK)
            return status;
        if (lines != NULL)
            buffer_printf(lines, "%s\n", buffer_text(&line));
    }
}

enum status guardian_ask(struct guardian_connection *connection, const char *request,
                         const char *body, int64_t deadline_ns, struct buffer *lines,
                         struct error *err)
{
    OWNED_BUFFER struct buffer text = BUFFER(INPUT_MAX);

    buffer_printf(&text, "%s\n%s", request, body != NULL ? body : "");
    if (text.overflow)
        return error_set(err, STATUS_INVALID, "a record that is too long");
    enum status status = transmit(connection->fd, text.data, text.length, deadline_ns, err);
    return status != STATUS_OK ? status : read_answer(connection, deadline_ns, lines, err);
}

/* Copy the next word; false when there is none or it is too long. */
static bool next_word(const char **cursor, char *word, size_t size)
{
    size_t length = strcspn(*cursor, " ");

    if (length == 0 || length >= size)
        return false;
    memcpy(word, *cursor, length);
    word[length] = '\0';
    *cursor += length;
    *cursor += **cursor == ' ';
    return true;
}

static bool next_number(const char **cursor, int64_t *ret_number)
{
    char word[24], *end;

    if (!next_word(cursor, word, sizeof word))
        return false;
    *ret_number = strtoll(word, &end, 10);
    return *end == '\0';
}

/* The cursor behind the first word, when that is `kind`. */
static const char *behind(const char *line, const char *kind)
{
    size_t length = strlen(kind);

    return strncmp(line, kind, length) == 0 && line[length] == ' ' ? line + length + 1 : NULL;
}

bool guardian_record_parse(const char *line, struct guardian_record *ret_record)
{
    const char *cursor = behind(line, "record");
    struct guardian_record record = {0};

    if (cursor == NULL || !next_word(&cursor, record.uid, sizeof record.uid) ||
        !next_word(&cursor, record.state, sizeof record.state) ||
        !next_number(&cursor, &record.deadline_ns) ||
        !next_word(&cursor, record.run, sizeof record.run) ||
        !next_word(&cursor, record.fault, sizeof record.fault))
        return false;
    snprintf(record.text, sizeof record.text, "%s", cursor);
    *ret_record = record;
    return true;
}

json_t *guardian_record_json(const struct guardian_record *record)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:I}", "uid", record->uid, "run", record->run,
                             "fault", record->fault, "state", record->state, "deadline_ns",
                             (json_int_t) record->deadline_ns);

    if (record->text[0] != '\0')
        json_object_set_new(json, "text", json_string(record->text));
    return json;
}

/* --- for the poll loop ----------------------------------------------------------------------- */

struct guardian_link {
    struct loop *loop;
    int fd;
    loop_handle watch;
    struct guardian_events events;
    void *argument;
    struct buffer input, output;
    struct guardian_record records[RECORDS_MAX];
    size_t count;
};

static struct guardian_record *find_record(struct guardian_link *link, const char *uid)
{
    for (size_t i = 0; i < link->count; i++)
        if (strcmp(link->records[i].uid, uid) == 0)
            return &link->records[i];
    return NULL;
}

static void keep(struct guardian_link *link, const struct guardian_record *record)
{
    struct guardian_record *old = find_record(link, record->uid);

    if (old != NULL)
        *old = *record;
    else if (link->count < RECORDS_MAX)
        link->records[link->count++] = *record;
}

static void forget(struct guardian_link *link, const char *uid)
{
    struct guardian_record *old = find_record(link, uid);

    if (old != NULL)
        *old = link->records[--link->count];
}

static void take_closed(struct guardian_link *link, const char *cursor)
{
    struct guardian_record gone = {0};
    char by[16];
    int64_t at_ns = 0;

    if (!next_word(&cursor, gone.uid, sizeof gone.uid) || !next_word(&cursor, by, sizeof by) ||
        !next_word(&cursor, gone.state, sizeof gone.state) || !next_number(&cursor, &at_ns) ||
        !next_word(&cursor, gone.run, sizeof gone.run))
        return;
    forget(link, gone.uid);
    link->events.closed(link->argument, gone.uid, by, gone.state, at_ns, gone.run);
}

static void take_event(struct guardian_link *link, const char *line)
{
    const char *closed = behind(line, "closed");
    struct guardian_record record;

    if (guardian_record_parse(line, &record))
        keep(link, &record);
    else if (closed != NULL)
        take_closed(link, closed);
}

static enum status flush(struct guardian_link *link, struct error *err)
{
    while (link->output.length > 0) {
        ssize_t count =
            send(link->fd, link->output.data, link->output.length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (count <= 0)
            return guardian_gone(err);
        buffer_consume(&link->output, (size_t) count);
    }
    loop_set_events(link->loop, link->watch, link->output.length > 0 ? POLLIN | POLLOUT : POLLIN);
    return STATUS_OK;
}

static enum status take_events(struct guardian_link *link, struct error *err)
{
    OWNED_BUFFER struct buffer line = BUFFER(INPUT_MAX);
    enum status status = receive(link->fd, &link->input, err);

    while (status == STATUS_OK && take_line(&link->input, &line))
        take_event(link, buffer_text(&line));
    return status;
}

static void on_guardian(void *argument, short events)
{
    struct guardian_link *link = argument;
    struct error err;
    enum status status = flush(link, &err);

    if (status == STATUS_OK && (events & ~POLLOUT) != 0)
        status = take_events(link, &err);
    if (status == STATUS_OK)
        return;
    loop_remove(link->loop, link->watch);
    link->watch = 0;
    link->events.lost(link->argument, &err);
}

enum status guardian_link_new(struct loop *loop, const char *state_folder,
                              const struct guardian_events *events, void *argument,
                              struct guardian_link **ret_link, struct error *err)
{
    int fd = -1;
    enum status status = dial(state_folder, &fd, err);

    if (status != STATUS_OK)
        return status;
    struct guardian_link *link = calloc(1, sizeof *link);
    if (link == NULL)
        abort();
    link->loop = loop;
    link->fd = fd;
    link->events = *events;
    link->argument = argument;
    link->input = BUFFER(INPUT_MAX);
    link->output = BUFFER(INPUT_MAX);
    buffer_puts(&link->output, "watch\n");
    link->watch = loop_watch(loop, fd, POLLIN | POLLOUT, on_guardian, link);
    *ret_link = link;
    return STATUS_OK;
}

void guardian_link_free(struct guardian_link *link)
{
    if (link == NULL)
        return;
    loop_remove(link->loop, link->watch);
    close(link->fd);
    buffer_done(&link->input);
    buffer_done(&link->output);
    free(link);
}

void guardian_link_renew(struct guardian_link *link, const char *run, int64_t lease_ms)
{
    buffer_printf(&link->output, "renew-all %s %" PRId64 "\n", run, lease_ms);
    loop_set_events(link->loop, link->watch, POLLIN | POLLOUT);
}

size_t guardian_link_count(const struct guardian_link *link)
{
    return link->count;
}

const struct guardian_record *guardian_link_record(const struct guardian_link *link, size_t index)
{
    return &link->records[index];
}
