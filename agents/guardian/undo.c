/* SPDX-License-Identifier: MIT */
#include "agents/guardian/undo.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/guardian/clients.h"
#include "agents/guardian/records.h"

enum { RETRY_FIRST_MS = 250, RETRY_MAX_MS = 10000, DOUBLINGS_MAX = 6, PIPE_DEFAULT = 65536 };

static _Noreturn void run_helper(const struct guardian *guardian, int input, int output)
{
    static char undo_word[] = "--undo";
    char *argv[] = {guardian->options.ordeald, undo_word, NULL};

    if (dup2(input, 0) >= 0 && dup2(output, 1) >= 0)
        execv(argv[0], argv);
    dprintf(output, "executing %s: %s\n", guardian->options.ordeald, strerror(errno));
    _exit(127);
}

void undo_failed(struct guardian *guardian, struct record *record, const char *reason)
{
    unsigned earlier = record->attempts > 0 ? record->attempts - 1 : 0;
    unsigned doublings = earlier < DOUBLINGS_MAX ? earlier : DOUBLINGS_MAX;
    int64_t pause_ms = (int64_t) RETRY_FIRST_MS << doublings;

    snprintf(record->said, sizeof record->said, "%s", reason);
    record->state = RECORD_FAILED;
    record->retry_ns = deadline_in_ms(pause_ms < RETRY_MAX_MS ? pause_ms : RETRY_MAX_MS);
    say("fault %s (%s): undoing failed at attempt %u, again in %lld ms: %s", record->uid,
        record->fault, record->attempts, (long long) deadline_left_ms(record->retry_ns), reason);
    clients_changed(guardian, record);
}

/* The pipe takes the whole record at once, so that nothing has to wait for the helper. */
static bool feed(int fd, const char *text)
{
    size_t length = strlen(text);

    if (length > PIPE_DEFAULT && fcntl(fd, F_SETPIPE_SZ, JOURNAL_RECORD_MAX) < 0)
        return false;
    return write(fd, text, length) == (ssize_t) length;
}

static void start_failed(struct guardian *guardian, struct record *record, const char *step)
{
    char reason[REASON_SIZE];

    snprintf(reason, sizeof reason, "%s: %s", step, strerror(errno));
    undo_failed(guardian, record, reason);
}

void undo_start(struct guardian *guardian, struct record *record)
{
    int input[2], output[2];

    record->attempts++;
    if (pipe2(input, O_CLOEXEC) != 0) {
        start_failed(guardian, record, "making a pipe");
        return;
    }
    if (pipe2(output, O_CLOEXEC) != 0) {
        start_failed(guardian, record, "making a pipe");
        close(input[0]), close(input[1]);
        return;
    }
    bool fed = feed(input[1], record->text);
    pid_t pid = fed ? fork_child(&record->helper.pidfd) : -1;
    if (pid == 0)
        run_helper(guardian, input[0], output[1]);
    if (pid < 0)
        start_failed(guardian, record, "starting the undo helper");
    close(input[0]), close(input[1]), close(output[1]);
    if (pid < 0) {
        close(output[0]);
        return;
    }
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    record->helper.pid = pid;
    record->helper_output = output[0];
    record->said_length = 0;
    record->helper_deadline_ns = deadline_in_ms(guardian->options.undo_timeout_ms);
    record->state = RECORD_UNDOING;
    clients_changed(guardian, record);
}

/* Keep the last line, cut at its size. */
static void take_output(struct record *record)
{
    char chunk[256];
    ssize_t count;

    while ((count = read(record->helper_output, chunk, sizeof chunk)) > 0)
        for (ssize_t i = 0; i < count; i++) {
            if (record->said_length > 0 && record->said[record->said_length - 1] == '\n')
                record->said_length = 0;
            if (record->said_length < sizeof record->said - 1)
                record->said[record->said_length++] = chunk[i];
        }
}

static void take_last_line(struct record *record)
{
    take_output(record);
    close(record->helper_output);
    record->helper_output = -1;
    if (record->said_length > 0 && record->said[record->said_length - 1] == '\n')
        record->said_length--;
    record->said[record->said_length] = '\0';
    for (char *c = record->said; *c != '\0'; c++)
        if ((unsigned char) *c < ' ')
            *c = ' ';
}

static void on_helper_dead(struct guardian *guardian, void *object, short events)
{
    struct record *record = object;
    char reason[REASON_SIZE];

    (void) events;
    take_last_line(record);
    int status = reap_child(&record->helper);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        bool word = record->said[0] != '\0' && strlen(record->said) < JOURNAL_WORD_SIZE &&
                    strchr(record->said, ' ') == NULL;
        say("fault %s (%s): undone (%s)", record->uid, record->fault, record->who);
        record_close(guardian, record, word ? record->said : "unknown");
        return;
    }
    if (WIFSIGNALED(status))
        snprintf(reason, sizeof reason, "the helper was ended by signal %d", WTERMSIG(status));
    else
        snprintf(reason, sizeof reason, "%s",
                 record->said[0] != '\0' ? record->said : "the helper did not say why");
    undo_failed(guardian, record, reason);
}

void undo_watch(struct guardian *guardian, struct record *record, struct watches *watches)
{
    (void) guardian;
    watch(watches, record->helper.pidfd, POLLIN, on_helper_dead, record);
    watch_due(watches, record->helper_deadline_ns);
}

void undo_tick(struct guardian *guardian, struct record *record, int64_t now_ns)
{
    (void) guardian;
    if (now_ns < record->helper_deadline_ns)
        return;
    say("fault %s (%s): the undo helper is over its deadline; killing it", record->uid,
        record->fault);
    signal_child(&record->helper, SIGKILL);
    record->helper_deadline_ns = INT64_MAX;
}
