/* SPDX-License-Identifier: MIT */
#include "tests/support/guardian_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"

static const char script[] =
    "#!/bin/bash\n"
    "here=${0%/*}\n"
    "if [ \"$1\" = --agent ]; then\n"
    "    echo $$ >$here/agent.new && mv $here/agent.new $here/agent\n"
    "    exec sleep 600\n"
    "fi\n"
    "if [ -e $here/injector ]; then\n"
    "    read -r pid <$here/injector\n"
    "    state=$(sed 's/.*) //; s/ .*//' /proc/$pid/stat 2>/dev/null)\n"
    "    [ -z \"$state\" ] || [ \"$state\" = Z ] || echo $state >$here/too-early\n"
    "fi\n"
    "[ -e $here/hang ] && exec sleep 600\n"
    "[ -e $here/fail ] && { echo 'first line'; echo 'it does not work'; exit 1; }\n"
    "cat >$here/undone.$$\n"
    "echo absent\n";

static char folder[32];
pid_t rig_guardian;
struct guardian_connection rig_watching = {.fd = -1};

/* --- files of the test ----------------------------------------------------------------------- */

const char *rig_path(const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

void rig_write(const char *name, const char *text, mode_t mode)
{
    int fd = open(rig_path(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t) strlen(text));
    close(fd);
}

bool rig_has(const char *name)
{
    return access(rig_path(name), F_OK) == 0;
}

void rig_await_file(const char *name)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);

    while (!rig_has(name)) {
        ck_assert_msg(!deadline_passed(deadline_ns), "no %s after %d ms", name, PATIENCE_MS);
        poll(NULL, 0, 5);
    }
}

pid_t rig_pid(const char *name)
{
    FILE *file = fopen(rig_path(name), "re");
    int pid = 0;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d", &pid), 1);
    fclose(file);
    return pid;
}

/* How often an undo succeeded; the text that the last one was given is kept. */
int rig_undos(char *text, size_t size)
{
    OWNED_DIR DIR *listing = opendir(folder);
    const struct dirent *entry;
    int count = 0;

    while ((entry = readdir(listing)) != NULL) {
        if (strncmp(entry->d_name, "undone.", 7) != 0)
            continue;
        count++;
        if (text == NULL)
            continue;
        int fd = open(rig_path(entry->d_name), O_RDONLY | O_CLOEXEC);
        ssize_t length = read(fd, text, size - 1);
        text[length > 0 ? length : 0] = '\0';
        close(fd);
    }
    return count;
}

/* --- the guardian ---------------------------------------------------------------------------- */

static void build_path(char *path, const char *program)
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 64);

    ck_assert_int_gt(length, 0);
    path[length] = '\0';
    strcpy(strstr(path, "/tests/unit/"), program);
}

void rig_start(void)
{
    char program[PATH_MAX], state[64], ordeald[64], timeout[16];

    build_path(program, "/ordeal-guardian");
    snprintf(state, sizeof state, "%s/state", folder);
    snprintf(ordeald, sizeof ordeald, "%s/ordeald", folder);
    snprintf(timeout, sizeof timeout, "%d", UNDO_TIMEOUT_MS);
    rig_guardian = fork();
    ck_assert_int_ge(rig_guardian, 0);
    if (rig_guardian > 0)
        return;
    int log = open(rig_path("log"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(log, STDERR_FILENO);
    execl(program, program, "--state", state, "--ordeald", ordeald, "--undo-timeout", timeout, "--",
          "--node", "n1", (char *) NULL);
    _exit(127);
}

struct guardian_connection rig_dial(void)
{
    struct guardian_connection connection;
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    struct error err = {0};

    while (guardian_connect(rig_path("state"), deadline_ns, &connection, &err) != STATUS_OK) {
        ck_assert_msg(!deadline_passed(deadline_ns), "%s", err.message);
        poll(NULL, 0, 5);
    }
    return connection;
}

/* The text of a refusal, or "" for `ok`. */
const char *rig_ask(struct guardian_connection *connection, const char *request, const char *body)
{
    static struct error err;
    enum status status =
        guardian_ask(connection, request, body, deadline_in_ms(PATIENCE_MS), NULL, &err);

    ck_assert_msg(status == STATUS_OK || status == STATUS_FAILED || status == STATUS_CONFLICT ||
                      status == STATUS_NOT_FOUND,
                  "%s: %s", request, err.message);
    return status == STATUS_OK ? "" : err.message;
}

const char *rig_open(struct guardian_connection *connection, const char *uid, int lease_ms,
                     int hold_ms)
{
    char record[512], request[128];

    snprintf(record, sizeof record,
             "{\"uid\":\"%s\",\"run\":\"run-1\",\"fault\":\"test.fault\",\"hold_ms\":%d}", uid,
             hold_ms);
    snprintf(request, sizeof request, "open %s %d %zu", uid, lease_ms, strlen(record));
    return rig_ask(connection, request, record);
}

void rig_inject(struct guardian_connection *connection, const char *uid, int lease_ms)
{
    ck_assert_str_eq(rig_open(connection, uid, lease_ms, 0), "");
    ASK(connection, "", "injected %s", uid);
}

/* The next `closed` line on the rig_watching connection. */
struct end rig_await_end(void)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    struct end end;

    for (;;) {
        char *text = rig_watching.input.length > 0 ? rig_watching.input.data : NULL;
        char *stop = text == NULL ? NULL : memchr(text, '\n', rig_watching.input.length);
        if (stop != NULL) {
            bool found = sscanf(text, "closed %40s %15s %15s %" SCNd64, end.uid, end.by, end.state,
                                &end.at_ns) == 4;
            buffer_consume(&rig_watching.input, (size_t) (stop + 1 - text));
            if (found)
                return end;
            continue;
        }
        struct pollfd fd = {.fd = rig_watching.fd, .events = POLLIN};
        ck_assert_msg(poll(&fd, 1, deadline_left_ms(deadline_ns)) == 1, "no fault was closed");
        char chunk[1024];
        ssize_t count = recv(rig_watching.fd, chunk, sizeof chunk, 0);
        ck_assert_msg(count > 0, "the guardian is gone");
        buffer_append(&rig_watching.input, chunk, (size_t) count);
    }
}

/* The line of a fault in `list`; false when it is not open. */
bool rig_listed(const char *uid, struct guardian_record *ret_record)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    OWNED_BUFFER struct buffer lines = BUFFER(65536);
    struct error err;

    ck_assert_int_eq(
        guardian_ask(&connection, "list", NULL, deadline_in_ms(PATIENCE_MS), &lines, &err),
        STATUS_OK);
    char *rest = lines.data;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        if (guardian_record_parse(line, ret_record) && strcmp(ret_record->uid, uid) == 0)
            return true;
    return false;
}

void rig_await_state(const char *uid, const char *state)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    struct guardian_record record = {0};

    while (!rig_listed(uid, &record) || strcmp(record.state, state) != 0) {
        ck_assert_msg(!deadline_passed(deadline_ns), "%s is '%s', not %s", uid, record.state,
                      state);
        poll(NULL, 0, 10);
    }
}

void rig_setup(void)
{
    strcpy(folder, "/tmp/ordeal-guardian-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    rig_write("ordeald", script, 0700);
    rig_start();
    rig_watching = rig_dial();
    ASK(&rig_watching, "", "watch");
}

void rig_stop(int number)
{
    if (rig_guardian <= 0)
        return;
    kill(rig_guardian, number);
    waitpid(rig_guardian, NULL, 0);
    rig_guardian = 0;
}

void rig_teardown(void)
{
    const char *argv[] = {"rm", "-rf", folder, NULL};
    struct error err;

    rig_stop(SIGKILL);
    guardian_disconnect(&rig_watching);
    umount2(rig_path("state"), MNT_DETACH);
    ck_assert_int_eq(
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = 5000}, NULL, &err),
        STATUS_OK);
}
