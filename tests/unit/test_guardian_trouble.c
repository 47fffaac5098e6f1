/* SPDX-License-Identifier: MIT */
/* What the guardian does when agent, guardian, writer, helper or disk fail. */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/guardian/journal.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "tests/support/guardian_rig.h"
#include "tests/support/suite.h"

/* --- death of agent and guardian ------------------------------------------------------------- */

START_TEST(a_dead_agent_is_undone_and_replaced)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();

    rig_await_file("agent");
    pid_t agent = rig_pid("agent");
    rig_inject(&connection, "f-1", LEASE_MS);
    rig_inject(&connection, "f-2", LEASE_MS);
    unlink(rig_path("agent"));
    ck_assert_int_eq(kill(agent, SIGKILL), 0);
    ck_assert_str_eq(rig_await_end().by, "death");
    ck_assert_str_eq(rig_await_end().by, "death");
    rig_await_file("agent");
    ck_assert_int_ne(rig_pid("agent"), agent);
}
END_TEST

START_TEST(a_dead_guardian_takes_the_agent_along_and_the_next_undoes)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    struct process_id agent;
    struct error err;

    rig_await_file("agent");
    ck_assert_int_eq(process_identify(rig_pid("agent"), &agent, &err), STATUS_OK);
    rig_inject(&connection, "f-1", LEASE_MS);
    rig_stop(SIGKILL);
    ck_assert_int_eq(process_wait_gone(agent, deadline_in_ms(PATIENCE_MS), &err), STATUS_OK);
    unlink(rig_path("agent"));
    rig_start();
    rig_await_file("agent");
    ck_assert_int_eq(rig_undos(NULL, 0), 1); /* before the agent was started */
    char text[4096] = "";
    int fd = open(rig_path("state/journal"), O_RDONLY | O_CLOEXEC);
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

    rig_await_file("agent");
    rig_stop(SIGKILL);
    unlink(rig_path("agent"));
    strcpy(text, "1 deadbeef open torn"); /* what a power loss left */
    text[20] = '\n';
    journal_format(&line, text + 21);
    rig_write("state/journal", text, 0600);
    rig_start();
    rig_await_file("agent");
    ck_assert_int_eq(rig_undos(NULL, 0), 1);
    int fd = open(rig_path("state/journal"), O_RDONLY | O_CLOEXEC);
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

    rig_await_file("agent");
    rig_stop(SIGKILL);
    unlink(rig_path("agent"));
    journal_format(&line, text);
    rig_write("state/journal", text, 0600);
    rig_write("fail", "", 0600); /* as the helper would */
    rig_start();
    rig_await_file("agent");
    ck_assert(rig_listed("f-9", &record));
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

    rig_await_file("agent");
    rig_stop(SIGKILL);
    unlink(rig_path("agent"));
    size_t one = journal_format(&line, text), length = one;
    for (; length < 1100 * 1024; length += one)
        memcpy(text + length, text, one);
    line.kind = JOURNAL_OPEN;
    strcpy(line.uid, "f-9");
    memcpy(line.boot_id, "7e659d21-9b66-4193-bf19-e163c9db2290", BOOT_ID_SIZE);
    line.record = record;
    line.record_length = sizeof record - 1;
    text[length + journal_format(&line, text + length)] = '\0';
    rig_write("state/journal", text, 0600);
    rig_start();
    rig_await_file("agent");
    ck_assert_int_eq(stat(rig_path("state/journal"), &info), 0);
    ck_assert_int_gt(info.st_size, 1024 * 1024); /* one was open */
    ck_assert_int_eq(rig_undos(NULL, 0), 1);
    rig_stop(SIGKILL);
    unlink(rig_path("agent"));
    rig_start();
    rig_await_file("agent");
    ck_assert_int_eq(stat(rig_path("state/journal"), &info), 0);
    ck_assert_int_eq(info.st_size, 0);
}
END_TEST

START_TEST(sigterm_undoes_and_ends)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    struct process_id agent;
    struct error err;
    int status = 0;

    rig_await_file("agent");
    ck_assert_int_eq(process_identify(rig_pid("agent"), &agent, &err), STATUS_OK);
    rig_inject(&connection, "f-1", LEASE_MS);
    kill(rig_guardian, SIGTERM);
    ck_assert_int_eq(waitpid(rig_guardian, &status, 0), rig_guardian);
    rig_guardian = 0;
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert(!process_alive(agent));
    ck_assert_int_eq(rig_undos(NULL, 0), 1);
    ck_assert(!rig_has("state/guardian.sock"));
}
END_TEST

START_TEST(a_second_guardian_is_refused)
{
    pid_t first = rig_guardian;
    int status = 0;

    rig_start();
    ck_assert_int_eq(waitpid(rig_guardian, &status, 0), rig_guardian);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    rig_guardian = first;
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    rig_inject(&connection, "f-1", LEASE_MS); /* the first one still serves */
}
END_TEST

/* --- trouble --------------------------------------------------------------------------------- */

START_TEST(a_failing_undo_is_visible_and_tried_until_it_succeeds)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    struct guardian_record record;

    rig_inject(&connection, "f-1", LEASE_MS);
    rig_write("fail", "", 0600);
    ASK(&connection, "guardian: it does not work", "undo f-1");
    ck_assert(rig_listed("f-1", &record));
    ck_assert_str_eq(record.state, "failed");
    ck_assert_str_eq(record.text, "it does not work");
    ASK(&connection, "guardian: 1 not undone; f-1: it does not work", "undo-all *");
    unlink(rig_path("fail"));
    ck_assert_str_eq(rig_await_end().uid, "f-1"); /* nobody asked again */
    ck_assert_int_eq(rig_undos(NULL, 0), 1);
}
END_TEST

START_TEST(an_undo_that_hangs_is_ended)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();

    rig_inject(&connection, "f-1", LEASE_MS);
    rig_write("hang", "", 0600);
    int64_t start_ns = clock_boot_ns();
    ASK(&connection, "guardian: the helper was ended by signal 9", "undo f-1");
    int64_t took_ms = (clock_boot_ns() - start_ns) / NS_PER_MS;
    ck_assert_int_ge(took_ms, UNDO_TIMEOUT_MS - 1);
    ck_assert_int_le(took_ms, UNDO_TIMEOUT_MS + 1000);
    unlink(rig_path("hang"));
    ck_assert_str_eq(rig_await_end().uid, "f-1");
}
END_TEST

START_TEST(undo_all_is_of_one_run)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    struct guardian_record record;
    static const char other[] = "{\"uid\":\"f-3\",\"run\":\"run-2\",\"fault\":\"test\"}";

    rig_inject(&connection, "f-1", LEASE_MS);
    rig_inject(&connection, "f-2", LEASE_MS);
    ck_assert_str_eq(rig_ask(&connection, "open f-3 60000 42", other), "");
    ASK(&connection, "", "injected f-3");
    ASK(&connection, "", "undo-all run-1");
    ck_assert(!rig_listed("f-1", &record) && !rig_listed("f-2", &record));
    ck_assert(rig_listed("f-3", &record));
    ASK(&connection, "", "undo-all run-1");
    ASK(&connection, "", "undo-all *");
    ck_assert(!rig_listed("f-3", &record));
}
END_TEST

/* The child of the guardian that is no agent and no helper. */
static pid_t find_writer(void)
{
    char path[64];
    pid_t agent = rig_pid("agent");
    int pid = 0, found = 0;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int) rig_guardian,
             (int) rig_guardian);
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
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();

    rig_await_file("agent");
    kill(find_writer(), SIGKILL);
    rig_inject(&connection, "f-1", LEASE_MS);
    kill(find_writer(), SIGKILL);
    ASK(&connection, "", "undo f-1");
    ck_assert_int_eq(rig_undos(NULL, 0), 1);
}
END_TEST

START_TEST(a_stopped_writer_holds_up_nobody_else)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial(), stuck = rig_dial();
    struct guardian_record record;

    rig_await_file("agent");
    rig_inject(&connection, "f-1", LEASE_MS);
    pid_t writer = find_writer();
    kill(writer, SIGSTOP); /* a disk that does not answer */
    static const char request[] =
        "open f-2 60000 42\n{\"uid\":\"f-2\",\"run\":\"run-1\",\"fault\":\"test\"}";
    ck_assert_int_gt(send(stuck.fd, request, sizeof request - 1, MSG_NOSIGNAL), 0);
    int64_t start_ns = clock_boot_ns();
    ASK(&connection, "", "renew-all run-1 %d", LEASE_MS);
    ck_assert(rig_listed("f-2", &record));
    ck_assert_str_eq(record.state, "opening");
    ck_assert_int_lt(clock_boot_ns() - start_ns, 500 * NS_PER_MS);
    kill(writer, SIGCONT);
    rig_await_state("f-2", "armed");
    ASK(&stuck, "", "undo f-2"); /* reads the answer of `open` */
    ck_assert_str_eq(rig_await_end().uid, "f-2");
}
END_TEST

START_TEST(a_full_disk_refuses_the_fault)
{
    static const char filler[65536];
    const char *said = "";
    char uid[16];

    rig_await_file("agent");
    rig_stop(SIGKILL);
    guardian_disconnect(&rig_watching);
    if (mount("tmpfs", rig_path("state"), "tmpfs", 0, "size=16k") != 0)
        return; /* no right to mount here; the lab's tests have it */
    rig_start();
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    int fd = open(rig_path("state/filler"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_gt(write(fd, filler, 65536), 0);
    close(fd);
    for (int i = 0; i < 100 && said[0] == '\0'; i++) {
        snprintf(uid, sizeof uid, "f-%d", i);
        said = rig_open(&connection, uid, LEASE_MS, 0);
        if (said[0] == '\0')
            ASK(&connection, "", "injected %s", uid);
    }
    ck_assert_str_eq(said, "guardian: writing the journal: No space left on device");
    struct guardian_record record;
    ck_assert(!rig_listed(uid, &record));
    unlink(rig_path("state/filler"));
    ck_assert_str_eq(rig_open(&connection, "after", LEASE_MS, 0), ""); /* behind a torn line */
    ASK(&connection, "", "undo after");
}
END_TEST

TEST_MAIN("guardian trouble", 40, rig_setup, rig_teardown, a_dead_agent_is_undone_and_replaced,
          a_dead_guardian_takes_the_agent_along_and_the_next_undoes,
          a_record_of_another_boot_is_undone, a_record_that_nobody_understands_stays_visible,
          a_long_history_is_dropped_when_nothing_is_open, sigterm_undoes_and_ends,
          a_second_guardian_is_refused, a_failing_undo_is_visible_and_tried_until_it_succeeds,
          an_undo_that_hangs_is_ended, undo_all_is_of_one_run, a_dead_writer_is_replaced,
          a_stopped_writer_holds_up_nobody_else, a_full_disk_refuses_the_fault)
