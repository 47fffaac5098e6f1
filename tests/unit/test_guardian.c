/* SPDX-License-Identifier: MIT */
/*
 * The guardian as a program, with a scripted ordeald: its undo writes down when it ran and what it
 * was given, and fails or hangs while a file says so.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

#include "agents/guardian/journal.h"
#include "agents/guardian_client.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "tests/support/suite.h"

enum { PATIENCE_MS = 8000, LEASE_MS = 60000, SHORT_LEASE_MS = 300, UNDO_TIMEOUT_MS = 700 };

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
static pid_t guardian;
static struct guardian_connection watching = {.fd = -1};

/* --- files of the test ----------------------------------------------------------------------- */

static const char *in_folder(const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *name, const char *text, mode_t mode)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t) strlen(text));
    close(fd);
}

static bool exists(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

static void await_file(const char *name)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);

    while (!exists(name)) {
        ck_assert_msg(!deadline_passed(deadline_ns), "no %s after %d ms", name, PATIENCE_MS);
        poll(NULL, 0, 5);
    }
}

static pid_t read_pid(const char *name)
{
    FILE *file = fopen(in_folder(name), "re");
    int pid = 0;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d", &pid), 1);
    fclose(file);
    return pid;
}

/* How often an undo succeeded; the text that the last one was given is kept. */
static int undo_count(char *text, size_t size)
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
        int fd = open(in_folder(entry->d_name), O_RDONLY | O_CLOEXEC);
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

static void start_guardian(void)
{
    char program[PATH_MAX], state[64], ordeald[64], timeout[16];

    build_path(program, "/ordeal-guardian");
    snprintf(state, sizeof state, "%s/state", folder);
    snprintf(ordeald, sizeof ordeald, "%s/ordeald", folder);
    snprintf(timeout, sizeof timeout, "%d", UNDO_TIMEOUT_MS);
    guardian = fork();
    ck_assert_int_ge(guardian, 0);
    if (guardian > 0)
        return;
    int log = open(in_folder("log"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(log, STDERR_FILENO);
    execl(program, program, "--state", state, "--ordeald", ordeald, "--undo-timeout", timeout, "--",
          "--node", "n1", (char *) NULL);
    _exit(127);
}

static struct guardian_connection dial(void)
{
    struct guardian_connection connection;
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    struct error err = {0};

    while (guardian_connect(in_folder("state"), deadline_ns, &connection, &err) != STATUS_OK) {
        ck_assert_msg(!deadline_passed(deadline_ns), "%s", err.message);
        poll(NULL, 0, 5);
    }
    return connection;
}

/* The text of an `error`, or "" for `ok`. */
static const char *ask_with(struct guardian_connection *connection, const char *request,
                            const char *body)
{
    static struct error err;
    enum status status =
        guardian_ask(connection, request, body, deadline_in_ms(PATIENCE_MS), NULL, &err);

    ck_assert_msg(status == STATUS_OK || status == STATUS_FAILED, "%s: %s", request, err.message);
    return status == STATUS_OK ? "" : err.message;
}

#define ASK(connection, expected, ...)                                                             \
    do {                                                                                           \
        char request_[256];                                                                        \
        snprintf(request_, sizeof request_, __VA_ARGS__);                                          \
        const char *said_ = ask_with(connection, request_, NULL);                                  \
        ck_assert_msg(strcmp(said_, expected) == 0, "%s: '%s'", request_, said_);                  \
    } while (0)

static const char *open_fault(struct guardian_connection *connection, const char *uid, int lease_ms,
                              int hold_ms)
{
    char record[512], request[128];

    snprintf(record, sizeof record,
             "{\"uid\":\"%s\",\"run\":\"run-1\",\"fault\":\"test.fault\",\"hold_ms\":%d}", uid,
             hold_ms);
    snprintf(request, sizeof request, "open %s %d %zu", uid, lease_ms, strlen(record));
    return ask_with(connection, request, record);
}

static void inject(struct guardian_connection *connection, const char *uid, int lease_ms)
{
    ck_assert_str_eq(open_fault(connection, uid, lease_ms, 0), "");
    ASK(connection, "", "injected %s", uid);
}

struct end {
    char uid[41], by[16], state[16];
    int64_t at_ns;
};

/* The next `closed` line on the watching connection. */
static struct end await_end(void)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    struct end end;

    for (;;) {
        char *text = watching.input.length > 0 ? watching.input.data : NULL;
        char *stop = text == NULL ? NULL : memchr(text, '\n', watching.input.length);
        if (stop != NULL) {
            bool found = sscanf(text, "closed %40s %15s %15s %" SCNd64, end.uid, end.by, end.state,
                                &end.at_ns) == 4;
            buffer_consume(&watching.input, (size_t) (stop + 1 - text));
            if (found)
                return end;
            continue;
        }
        struct pollfd fd = {.fd = watching.fd, .events = POLLIN};
        ck_assert_msg(poll(&fd, 1, deadline_left_ms(deadline_ns)) == 1, "no fault was closed");
        char chunk[1024];
        ssize_t count = recv(watching.fd, chunk, sizeof chunk, 0);
        ck_assert_msg(count > 0, "the guardian is gone");
        buffer_append(&watching.input, chunk, (size_t) count);
    }
}

/* The line of a fault in `list`; false when it is not open. */
static bool listed(const char *uid, struct guardian_record *ret_record)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();
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

static void await_state(const char *uid, const char *state)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    struct guardian_record record = {0};

    while (!listed(uid, &record) || strcmp(record.state, state) != 0) {
        ck_assert_msg(!deadline_passed(deadline_ns), "%s is '%s', not %s", uid, record.state,
                      state);
        poll(NULL, 0, 10);
    }
}

static void setup(void)
{
    strcpy(folder, "/tmp/ordeal-guardian-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    write_text("ordeald", script, 0700);
    start_guardian();
    watching = dial();
    ASK(&watching, "", "watch");
}

static void stop_guardian(int number)
{
    if (guardian <= 0)
        return;
    kill(guardian, number);
    waitpid(guardian, NULL, 0);
    guardian = 0;
}

static void teardown(void)
{
    const char *argv[] = {"rm", "-rf", folder, NULL};
    struct error err;

    stop_guardian(SIGKILL);
    guardian_disconnect(&watching);
    umount2(in_folder("state"), MNT_DETACH);
    ck_assert_int_eq(
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = 5000}, NULL, &err),
        STATUS_OK);
}

/* --- records --------------------------------------------------------------------------------- */

START_TEST(a_record_is_on_disk_before_the_answer)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    char text[4096] = "";

    ck_assert_str_eq(open_fault(&connection, "f-1", LEASE_MS, 0), "");
    int fd = open(in_folder("state/journal"), O_RDONLY | O_CLOEXEC);
    ck_assert_int_gt(read(fd, text, sizeof text - 1), 0);
    close(fd);
    struct journal_line line;
    struct error err = {0};
    ck_assert_int_eq(journal_parse(text, strcspn(text, "\n"), &line, &err), STATUS_OK);
    ck_assert_str_eq(line.uid, "f-1");
    ASK(&connection, "", "injected f-1");
    await_state("f-1", "injected");
    ASK(&connection, "", "close f-1 active");
    struct end end = await_end();
    ck_assert_str_eq(end.by, "agent");
    ck_assert_str_eq(end.state, "active");
    ck_assert_int_eq(undo_count(NULL, 0), 0);
}
END_TEST

START_TEST(an_undo_gets_the_record_and_is_answered)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    char text[512];

    inject(&connection, "f-1", LEASE_MS);
    ASK(&connection, "", "undo f-1");
    ck_assert_int_eq(undo_count(text, sizeof text), 1);
    ck_assert_str_eq(text, "{\"uid\":\"f-1\",\"run\":\"run-1\",\"fault\":\"test.fault\","
                           "\"hold_ms\":0}");
    ck_assert_str_eq(await_end().state, "absent");
    ASK(&connection, "guardian: no open fault f-1", "undo f-1");
}
END_TEST

START_TEST(a_large_record_passes_whole)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    size_t size = JOURNAL_RECORD_MAX;
    OWNED_MEMORY char *record = malloc(size + 1), *text = malloc(size + 2);
    char request[128];

    int head = sprintf(record, "{\"uid\":\"f-1\",\"run\":\"r\",\"fault\":\"t\",\"x\":\"");
    memset(record + head, 'x', size - (size_t) head);
    strcpy(record + size - 2, "\"}");
    snprintf(request, sizeof request, "open f-1 %d %zu", LEASE_MS, size);
    ck_assert_str_eq(ask_with(&connection, request, record), "");
    ASK(&connection, "", "injected f-1");
    ASK(&connection, "", "undo f-1");
    ck_assert_int_eq(undo_count(text, size + 2), 1);
    ck_assert_str_eq(text, record);
}
END_TEST

START_TEST(bad_requests_are_refused)
{
    static const struct {
        const char *request, *body, *said;
    } cases[] = {
        {"open F 1000 2", "{}", "guardian: a uid is 1 to 40 of a-z, 0-9 and '-'"},
        {"open f 1000 2", "{}", "guardian: a record has members uid, run and fault"},
        {"open f 1000 33", "{\"uid\":\"g\",\"run\":\"r\",\"fault\":\"t\"}",
         "guardian: a record has members uid, run and fault"},
        {"open f -1 2", "{}", "guardian: '-1' is no lease in ms"},
        {"undo f", NULL, "guardian: no open fault f"},
        {"injected f", NULL, "guardian: no open fault f"},
        {"renew f 100", NULL, "guardian: no open fault f"},
        {"close f absent", NULL, "guardian: no open fault f"},
        {"dance", NULL, "guardian: no such request"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OWNED_GUARDIAN struct guardian_connection connection = dial();
        ck_assert_str_eq(ask_with(&connection, cases[i].request, cases[i].body), cases[i].said);
    }
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    inject(&connection, "f-1", LEASE_MS);
    ck_assert_str_eq(open_fault(&connection, "f-1", LEASE_MS, 0),
                     "guardian: fault f-1 is open already");
    ASK(&connection, "guardian: fault f-1 is injected", "injected f-1");
    ck_assert_int_eq(undo_count(NULL, 0), 0);
}
END_TEST

START_TEST(garbage_does_no_harm)
{
    unsigned seed = 20261130;

    for (int round = 0; round < 200; round++) {
        OWNED_GUARDIAN struct guardian_connection connection = dial();
        char noise[700];
        for (size_t i = 0; i < sizeof noise; i++) {
            seed = seed * 1664525u + 1013904223u;
            noise[i] = (char) (seed >> 24);
        }
        ck_assert_int_gt(send(connection.fd, noise, sizeof noise, MSG_NOSIGNAL), 0);
    }
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    inject(&connection, "f-1", LEASE_MS);
    ASK(&connection, "", "undo f-1");
}
END_TEST

/* --- leases ---------------------------------------------------------------------------------- */

START_TEST(a_lapsed_lease_is_undone_within_a_second)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    struct guardian_record record;

    inject(&connection, "f-1", SHORT_LEASE_MS);
    ck_assert(listed("f-1", &record));
    struct end end = await_end();
    ck_assert_str_eq(end.by, "lease");
    int64_t late_ms = (end.at_ns - record.deadline_ns) / NS_PER_MS;
    printf("undone %" PRId64 " ms after the lease lapsed\n", late_ms);
    ck_assert_int_ge(late_ms, 0);
    ck_assert_int_lt(late_ms, 1000);
    ck_assert_int_eq(undo_count(NULL, 0), 1);
}
END_TEST

START_TEST(a_renewed_lease_holds)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    struct guardian_record record;
    int64_t start_ns = clock_boot_ns();

    inject(&connection, "f-1", SHORT_LEASE_MS);
    while (clock_boot_ns() - start_ns < 4 * SHORT_LEASE_MS * NS_PER_MS) {
        ASK(&connection, "", "renew-all run-1 %d", SHORT_LEASE_MS);
        ck_assert(listed("f-1", &record));
        poll(NULL, 0, SHORT_LEASE_MS / 6);
    }
    ASK(&connection, "", "renew-all another-run %d", LEASE_MS);
    ck_assert_str_eq(await_end().by, "lease");
}
END_TEST

START_TEST(no_renewal_reaches_past_the_hold)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    struct guardian_record record;
    int64_t start_ns = clock_boot_ns();

    ck_assert_str_eq(open_fault(&connection, "f-1", 400, 500), "");
    ASK(&connection, "", "injected f-1");
    ASK(&connection, "", "renew f-1 %d", LEASE_MS);
    ck_assert(listed("f-1", &record));
    int64_t reach_ms = (record.deadline_ns - start_ns) / NS_PER_MS;
    ck_assert_int_ge(reach_ms, 2400);
    ck_assert_int_le(reach_ms, 2700);
}
END_TEST

/* --- death of the injector ------------------------------------------------------------------- */

/* A process that opens a fault and then does not go on. */
static pid_t start_injector(int lease_ms, bool close_connection)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid > 0)
        return pid;
    struct guardian_connection connection = dial();
    char text[16];
    snprintf(text, sizeof text, "%d\n", (int) getpid());
    write_text("injector", text, 0600);
    if (open_fault(&connection, "f-1", lease_ms, 0)[0] != '\0')
        _exit(1);
    write_text("opened", "", 0600);
    if (close_connection)
        close(connection.fd);
    for (;;)
        pause();
}

static void expect_killed(pid_t pid)
{
    int status = 0;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

START_TEST(a_dead_injector_is_undone)
{
    pid_t pid = start_injector(LEASE_MS, false);

    await_file("opened");
    kill(pid, SIGKILL);
    ck_assert_str_eq(await_end().by, "death");
    expect_killed(pid);
    ck_assert_int_eq(undo_count(NULL, 0), 1);
}
END_TEST

START_TEST(an_injector_that_lost_its_connection_is_killed_first)
{
    pid_t pid = start_injector(LEASE_MS, true);

    ck_assert_str_eq(await_end().by, "death");
    expect_killed(pid);
    ck_assert(!exists("too-early"));
}
END_TEST

START_TEST(an_injector_that_outlasts_its_lease_is_killed_first)
{
    pid_t pid = start_injector(SHORT_LEASE_MS, false);

    ck_assert_str_eq(await_end().by, "lease");
    expect_killed(pid);
    ck_assert(!exists("too-early"));
}
END_TEST

START_TEST(an_injector_may_undo_its_own_fault)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();

    ck_assert_str_eq(open_fault(&connection, "f-1", LEASE_MS, 0), "");
    ASK(&connection, "", "undo f-1"); /* and this process lives */
    ck_assert_str_eq(await_end().by, "agent");
}
END_TEST

/* --- death of agent and guardian ------------------------------------------------------------- */

START_TEST(a_dead_agent_is_undone_and_replaced)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();

    await_file("agent");
    pid_t agent = read_pid("agent");
    inject(&connection, "f-1", LEASE_MS);
    inject(&connection, "f-2", LEASE_MS);
    unlink(in_folder("agent"));
    ck_assert_int_eq(kill(agent, SIGKILL), 0);
    ck_assert_str_eq(await_end().by, "death");
    ck_assert_str_eq(await_end().by, "death");
    await_file("agent");
    ck_assert_int_ne(read_pid("agent"), agent);
}
END_TEST

START_TEST(a_dead_guardian_takes_the_agent_along_and_the_next_undoes)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    struct process_id agent;
    struct error err;

    await_file("agent");
    ck_assert_int_eq(process_identify(read_pid("agent"), &agent, &err), STATUS_OK);
    inject(&connection, "f-1", LEASE_MS);
    stop_guardian(SIGKILL);
    ck_assert_int_eq(process_wait_gone(agent, deadline_in_ms(PATIENCE_MS), &err), STATUS_OK);
    unlink(in_folder("agent"));
    start_guardian();
    await_file("agent");
    ck_assert_int_eq(undo_count(NULL, 0), 1); /* before the agent was started */
    char text[4096] = "";
    int fd = open(in_folder("state/journal"), O_RDONLY | O_CLOEXEC);
    ck_assert_int_gt(read(fd, text, sizeof text - 1), 0);
    close(fd);
    ck_assert_ptr_nonnull(strstr(text, " restart absent\n"));
}
END_TEST

START_TEST(a_record_of_another_boot_is_undone)
{
    static char text[JOURNAL_LINE_MAX + 32];
    static const char record[] = "{\"uid\":\"f-9\",\"run\":\"r\",\"fault\":\"t\"}";
    struct journal_line line = {.kind = JOURNAL_OPEN,
                                .uid = "f-9",
                                .boot_id = "00000000-0000-0000-0000-000000000000",
                                .deadline_ns = INT64_MAX,
                                .record = record,
                                .record_length = sizeof record - 1};

    await_file("agent");
    stop_guardian(SIGKILL);
    unlink(in_folder("agent"));
    strcpy(text, "1 deadbeef open torn"); /* what a power loss left */
    text[20] = '\n';
    journal_format(&line, text + 21);
    write_text("state/journal", text, 0600);
    start_guardian();
    await_file("agent");
    ck_assert_int_eq(undo_count(NULL, 0), 1);
    int fd = open(in_folder("state/journal"), O_RDONLY | O_CLOEXEC);
    memset(text, 0, sizeof text);
    ck_assert_int_gt(read(fd, text, sizeof text - 1), 0);
    close(fd);
    ck_assert_ptr_nonnull(strstr(text, " boot absent\n"));
}
END_TEST

START_TEST(a_record_that_nobody_understands_stays_visible)
{
    static char text[JOURNAL_LINE_MAX];
    static const char future[] = "{\"version\":9}";
    struct journal_line line = {.kind = JOURNAL_OPEN,
                                .uid = "f-9",
                                .boot_id = "00000000-0000-0000-0000-000000000000",
                                .record = future,
                                .record_length = sizeof future - 1};
    struct guardian_record record;

    await_file("agent");
    stop_guardian(SIGKILL);
    unlink(in_folder("agent"));
    journal_format(&line, text);
    write_text("state/journal", text, 0600);
    write_text("fail", "", 0600); /* as the helper would */
    start_guardian();
    await_file("agent");
    ck_assert(listed("f-9", &record));
    ck_assert_str_eq(record.run, "?");
    ck_assert_str_eq(record.text, "it does not work");
}
END_TEST

START_TEST(a_long_history_is_dropped_when_nothing_is_open)
{
    static char text[2 * 1024 * 1024];
    static const char record[] = "{\"uid\":\"f-9\",\"run\":\"r\",\"fault\":\"t\"}";
    struct journal_line line = {
        .kind = JOURNAL_CLOSED, .uid = "f-8", .who = "agent", .state = "absent"};
    struct stat info;

    await_file("agent");
    stop_guardian(SIGKILL);
    unlink(in_folder("agent"));
    size_t one = journal_format(&line, text), length = one;
    for (; length < 1100 * 1024; length += one)
        memcpy(text + length, text, one);
    line.kind = JOURNAL_OPEN;
    strcpy(line.uid, "f-9");
    memcpy(line.boot_id, "7e659d21-9b66-4193-bf19-e163c9db2290", BOOT_ID_SIZE);
    line.record = record;
    line.record_length = sizeof record - 1;
    text[length + journal_format(&line, text + length)] = '\0';
    write_text("state/journal", text, 0600);
    start_guardian();
    await_file("agent");
    ck_assert_int_eq(stat(in_folder("state/journal"), &info), 0);
    ck_assert_int_gt(info.st_size, 1024 * 1024); /* one was open */
    ck_assert_int_eq(undo_count(NULL, 0), 1);
    stop_guardian(SIGKILL);
    unlink(in_folder("agent"));
    start_guardian();
    await_file("agent");
    ck_assert_int_eq(stat(in_folder("state/journal"), &info), 0);
    ck_assert_int_eq(info.st_size, 0);
}
END_TEST

START_TEST(sigterm_undoes_and_ends)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    struct process_id agent;
    struct error err;
    int status = 0;

    await_file("agent");
    ck_assert_int_eq(process_identify(read_pid("agent"), &agent, &err), STATUS_OK);
    inject(&connection, "f-1", LEASE_MS);
    kill(guardian, SIGTERM);
    ck_assert_int_eq(waitpid(guardian, &status, 0), guardian);
    guardian = 0;
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert(!process_alive(agent));
    ck_assert_int_eq(undo_count(NULL, 0), 1);
    ck_assert(!exists("state/guardian.sock"));
}
END_TEST

START_TEST(a_second_guardian_is_refused)
{
    pid_t first = guardian;
    int status = 0;

    start_guardian();
    ck_assert_int_eq(waitpid(guardian, &status, 0), guardian);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    guardian = first;
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    inject(&connection, "f-1", LEASE_MS); /* the first one still serves */
}
END_TEST

/* --- trouble --------------------------------------------------------------------------------- */

START_TEST(a_failing_undo_is_visible_and_tried_until_it_succeeds)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    struct guardian_record record;

    inject(&connection, "f-1", LEASE_MS);
    write_text("fail", "", 0600);
    ASK(&connection, "guardian: it does not work", "undo f-1");
    ck_assert(listed("f-1", &record));
    ck_assert_str_eq(record.state, "failed");
    ck_assert_str_eq(record.text, "it does not work");
    ASK(&connection, "guardian: 1 not undone; f-1: it does not work", "undo-all *");
    unlink(in_folder("fail"));
    ck_assert_str_eq(await_end().uid, "f-1"); /* nobody asked again */
    ck_assert_int_eq(undo_count(NULL, 0), 1);
}
END_TEST

START_TEST(an_undo_that_hangs_is_ended)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();

    inject(&connection, "f-1", LEASE_MS);
    write_text("hang", "", 0600);
    int64_t start_ns = clock_boot_ns();
    ASK(&connection, "guardian: the helper was ended by signal 9", "undo f-1");
    int64_t took_ms = (clock_boot_ns() - start_ns) / NS_PER_MS;
    ck_assert_int_ge(took_ms, UNDO_TIMEOUT_MS - 1);
    ck_assert_int_le(took_ms, UNDO_TIMEOUT_MS + 1000);
    unlink(in_folder("hang"));
    ck_assert_str_eq(await_end().uid, "f-1");
}
END_TEST

START_TEST(undo_all_is_of_one_run)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    struct guardian_record record;
    static const char other[] = "{\"uid\":\"f-3\",\"run\":\"run-2\",\"fault\":\"test\"}";

    inject(&connection, "f-1", LEASE_MS);
    inject(&connection, "f-2", LEASE_MS);
    ck_assert_str_eq(ask_with(&connection, "open f-3 60000 42", other), "");
    ASK(&connection, "", "injected f-3");
    ASK(&connection, "", "undo-all run-1");
    ck_assert(!listed("f-1", &record) && !listed("f-2", &record));
    ck_assert(listed("f-3", &record));
    ASK(&connection, "", "undo-all run-1");
    ASK(&connection, "", "undo-all *");
    ck_assert(!listed("f-3", &record));
}
END_TEST

/* The child of the guardian that is no agent and no helper. */
static pid_t find_writer(void)
{
    char path[64];
    pid_t agent = read_pid("agent");
    int pid = 0, found = 0;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int) guardian, (int) guardian);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fscanf(file, "%d", &pid) == 1)
        if (pid != agent)
            found = pid;
    fclose(file);
    ck_assert_int_gt(found, 0);
    return found;
}

START_TEST(a_dead_writer_is_replaced)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial();

    await_file("agent");
    kill(find_writer(), SIGKILL);
    inject(&connection, "f-1", LEASE_MS);
    kill(find_writer(), SIGKILL);
    ASK(&connection, "", "undo f-1");
    ck_assert_int_eq(undo_count(NULL, 0), 1);
}
END_TEST

START_TEST(a_stopped_writer_holds_up_nobody_else)
{
    OWNED_GUARDIAN struct guardian_connection connection = dial(), stuck = dial();
    struct guardian_record record;

    await_file("agent");
    inject(&connection, "f-1", LEASE_MS);
    pid_t writer = find_writer();
    kill(writer, SIGSTOP); /* a disk that does not answer */
    static const char request[] =
        "open f-2 60000 42\n{\"uid\":\"f-2\",\"run\":\"run-1\",\"fault\":\"test\"}";
    ck_assert_int_gt(send(stuck.fd, request, sizeof request - 1, MSG_NOSIGNAL), 0);
    int64_t start_ns = clock_boot_ns();
    ASK(&connection, "", "renew-all run-1 %d", LEASE_MS);
    ck_assert(listed("f-2", &record));
    ck_assert_str_eq(record.state, "opening");
    ck_assert_int_lt(clock_boot_ns() - start_ns, 500 * NS_PER_MS);
    kill(writer, SIGCONT);
    await_state("f-2", "armed");
    ASK(&stuck, "", "undo f-2"); /* reads the answer of `open` */
    ck_assert_str_eq(await_end().uid, "f-2");
}
END_TEST

START_TEST(a_full_disk_refuses_the_fault)
{
    static const char filler[65536];
    const char *said = "";
    char uid[16];

    await_file("agent");
    stop_guardian(SIGKILL);
    guardian_disconnect(&watching);
    if (mount("tmpfs", in_folder("state"), "tmpfs", 0, "size=16k") != 0)
        return; /* no right to mount here; the lab's tests have it */
    start_guardian();
    OWNED_GUARDIAN struct guardian_connection connection = dial();
    int fd = open(in_folder("state/filler"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_gt(write(fd, filler, 65536), 0);
    close(fd);
    for (int i = 0; i < 100 && said[0] == '\0'; i++) {
        snprintf(uid, sizeof uid, "f-%d", i);
        said = open_fault(&connection, uid, LEASE_MS, 0);
        if (said[0] == '\0')
            ASK(&connection, "", "injected %s", uid);
    }
    ck_assert_str_eq(said, "guardian: writing the journal: No space left on device");
    struct guardian_record record;
    ck_assert(!listed(uid, &record));
    unlink(in_folder("state/filler"));
    ck_assert_str_eq(open_fault(&connection, "after", LEASE_MS, 0), ""); /* behind a torn line */
    ASK(&connection, "", "undo after");
}
END_TEST

TEST_MAIN("guardian", 40, setup, teardown, a_record_is_on_disk_before_the_answer,
          an_undo_gets_the_record_and_is_answered, a_large_record_passes_whole,
          bad_requests_are_refused, garbage_does_no_harm, a_lapsed_lease_is_undone_within_a_second,
          a_renewed_lease_holds, no_renewal_reaches_past_the_hold, a_dead_injector_is_undone,
          an_injector_that_lost_its_connection_is_killed_first,
          an_injector_that_outlasts_its_lease_is_killed_first, an_injector_may_undo_its_own_fault,
          a_dead_agent_is_undone_and_replaced,
          a_dead_guardian_takes_the_agent_along_and_the_next_undoes,
          a_record_of_another_boot_is_undone, a_record_that_nobody_understands_stays_visible,
          a_long_history_is_dropped_when_nothing_is_open, sigterm_undoes_and_ends,
          a_second_guardian_is_refused, a_failing_undo_is_visible_and_tried_until_it_succeeds,
          an_undo_that_hangs_is_ended, undo_all_is_of_one_run, a_dead_writer_is_replaced,
          a_stopped_writer_holds_up_nobody_else, a_full_disk_refuses_the_fault)
