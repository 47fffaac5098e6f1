/* SPDX-License-Identifier: MIT */
/* Records, leases and injectors of the guardian. */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
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

/* --- records --------------------------------------------------------------------------------- */

START_TEST(a_record_is_on_disk_before_the_answer)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    char text[4096] = "";

    ck_assert_str_eq(rig_open(&connection, "f-1", LEASE_MS, 0), "");
    int fd = open(rig_path("state/journal"), O_RDONLY | O_CLOEXEC);
    ck_assert_int_gt(read(fd, text, sizeof text - 1), 0);
    close(fd);
    struct journal_line line;
    struct error err = {0};
    ck_assert_int_eq(journal_parse(text, strcspn(text, "\n"), &line, &err), STATUS_OK);
    ck_assert_str_eq(line.uid, "f-1");
    ASK(&connection, "", "injected f-1");
    rig_await_state("f-1", "injected");
    ASK(&connection, "", "close f-1 active");
    struct end end = rig_await_end();
    ck_assert_str_eq(end.by, "agent");
    ck_assert_str_eq(end.state, "active");
    ck_assert_int_eq(rig_undos(NULL, 0), 0);
}
END_TEST

START_TEST(an_undo_gets_the_record_and_is_answered)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    char text[512];

    rig_inject(&connection, "f-1", LEASE_MS);
    ASK(&connection, "", "undo f-1");
    ck_assert_int_eq(rig_undos(text, sizeof text), 1);
    ck_assert_str_eq(text, "{\"uid\":\"f-1\",\"run\":\"run-1\",\"fault\":\"test.fault\","
                           "\"hold_ms\":0}");
    ck_assert_str_eq(rig_await_end().state, "absent");
    ASK(&connection, "guardian: no open fault f-1", "undo f-1");
}
END_TEST

START_TEST(a_large_record_passes_whole)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    size_t size = JOURNAL_RECORD_MAX;
    OWNED_MEMORY char *record = malloc(size + 1), *text = malloc(size + 2);
    char request[128];

    int head = sprintf(record, "{\"uid\":\"f-1\",\"run\":\"r\",\"fault\":\"t\",\"x\":\"");
    memset(record + head, 'x', size - (size_t) head);
    strcpy(record + size - 2, "\"}");
    snprintf(request, sizeof request, "open f-1 %d %zu", LEASE_MS, size);
    ck_assert_str_eq(rig_ask(&connection, request, record), "");
    ASK(&connection, "", "injected f-1");
    ASK(&connection, "", "undo f-1");
    ck_assert_int_eq(rig_undos(text, size + 2), 1);
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
        OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
        ck_assert_str_eq(rig_ask(&connection, cases[i].request, cases[i].body), cases[i].said);
    }
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    rig_inject(&connection, "f-1", LEASE_MS);
    ck_assert_str_eq(rig_open(&connection, "f-1", LEASE_MS, 0),
                     "guardian: fault f-1 is open already");
    ASK(&connection, "guardian: fault f-1 is injected", "injected f-1");
    ck_assert_int_eq(rig_undos(NULL, 0), 0);
}
END_TEST

static const char *open_excluding(struct guardian_connection *connection, const char *uid,
                                  const char *excludes)
{
    char request[128], record[256];
    int length = snprintf(record, sizeof record,
                          "{\"uid\":\"%s\",\"run\":\"r\",\"fault\":\"t.%s\",\"excludes\":\"%s\"}",
                          uid, uid, excludes);

    snprintf(request, sizeof request, "open %s %d %d", uid, LEASE_MS, length);
    return rig_ask(connection, request, record);
}

START_TEST(what_excludes_each_other_is_open_one_at_a_time)
{
    OWNED_GUARDIAN struct guardian_connection first = rig_dial(), second = rig_dial(),
                                              third = rig_dial(), fourth = rig_dial(),
                                              fifth = rig_dial();

    ck_assert_str_eq(open_excluding(&first, "f-1", "power:n1"), "");
    ck_assert_str_eq(open_excluding(&second, "f-2", "power:n2"), "");
    ck_assert_str_eq(open_excluding(&third, "f-3", "power:n1"),
                     "guardian: t.f-3 excludes t.f-1, which is armed (f-1)");
    ck_assert_str_eq(open_excluding(&third, "f-3", ""), "");
    ck_assert_str_eq(open_excluding(&fourth, "f-4", ""), "");
    ASK(&first, "", "injected f-1");
    ASK(&first, "", "undo f-1");
    ck_assert_str_eq(open_excluding(&first, "f-5", "power:n1"), "");
    ck_assert_str_eq(open_excluding(&fifth, "f-6", "a\\u0062"),
                     "guardian: a record's excludes is a plain text of at most 79");
    /* an injector whose connection ends before that is killed: this process */
    ASK(&second, "", "injected f-2");
    ASK(&third, "", "injected f-3");
    ASK(&fourth, "", "injected f-4");
    ASK(&first, "", "injected f-5");
}
END_TEST

START_TEST(garbage_does_no_harm)
{
    unsigned seed = 20261130;

    for (int round = 0; round < 200; round++) {
        OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
        char noise[700];
        for (size_t i = 0; i < sizeof noise; i++) {
            seed = seed * 1664525u + 1013904223u;
            noise[i] = (char) (seed >> 24);
        }
        ck_assert_int_gt(send(connection.fd, noise, sizeof noise, MSG_NOSIGNAL), 0);
    }
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    rig_inject(&connection, "f-1", LEASE_MS);
    ASK(&connection, "", "undo f-1");
}
END_TEST

/* --- leases ---------------------------------------------------------------------------------- */

START_TEST(a_lapsed_lease_is_undone_within_a_second)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    struct guardian_record record;

    rig_inject(&connection, "f-1", SHORT_LEASE_MS);
    ck_assert(rig_listed("f-1", &record));
    struct end end = rig_await_end();
    ck_assert_str_eq(end.by, "lease");
    int64_t late_ms = (end.at_ns - record.deadline_ns) / NS_PER_MS;
    printf("undone %" PRId64 " ms after the lease lapsed\n", late_ms);
    ck_assert_int_ge(late_ms, 0);
    ck_assert_int_lt(late_ms, 1000);
    ck_assert_int_eq(rig_undos(NULL, 0), 1);
}
END_TEST

START_TEST(a_renewed_lease_holds)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    struct guardian_record record;
    int64_t start_ns = clock_boot_ns();

    rig_inject(&connection, "f-1", SHORT_LEASE_MS);
    while (clock_boot_ns() - start_ns < 4 * SHORT_LEASE_MS * NS_PER_MS) {
        ASK(&connection, "", "renew-all run-1 %d", SHORT_LEASE_MS);
        ck_assert(rig_listed("f-1", &record));
        poll(NULL, 0, SHORT_LEASE_MS / 6);
    }
    ASK(&connection, "", "renew-all another-run %d", LEASE_MS);
    ck_assert_str_eq(rig_await_end().by, "lease");
}
END_TEST

START_TEST(no_renewal_reaches_past_the_hold)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();
    struct guardian_record record;
    int64_t start_ns = clock_boot_ns();

    ck_assert_str_eq(rig_open(&connection, "f-1", 400, 500), "");
    ASK(&connection, "", "injected f-1");
    ASK(&connection, "", "renew f-1 %d", LEASE_MS);
    ck_assert(rig_listed("f-1", &record));
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
    struct guardian_connection connection = rig_dial();
    char text[16];
    snprintf(text, sizeof text, "%d\n", (int) getpid());
    rig_write("injector", text, 0600);
    if (rig_open(&connection, "f-1", lease_ms, 0)[0] != '\0')
        _exit(1);
    rig_write("opened", "", 0600);
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

    rig_await_file("opened");
    kill(pid, SIGKILL);
    ck_assert_str_eq(rig_await_end().by, "death");
    expect_killed(pid);
    ck_assert_int_eq(rig_undos(NULL, 0), 1);
}
END_TEST

START_TEST(an_injector_that_lost_its_connection_is_killed_first)
{
    pid_t pid = start_injector(LEASE_MS, true);

    ck_assert_str_eq(rig_await_end().by, "death");
    expect_killed(pid);
    ck_assert(!rig_has("too-early"));
}
END_TEST

START_TEST(an_injector_that_outlasts_its_lease_is_killed_first)
{
    pid_t pid = start_injector(SHORT_LEASE_MS, false);

    ck_assert_str_eq(rig_await_end().by, "lease");
    expect_killed(pid);
    ck_assert(!rig_has("too-early"));
}
END_TEST

START_TEST(an_injector_may_undo_its_own_fault)
{
    OWNED_GUARDIAN struct guardian_connection connection = rig_dial();

    ck_assert_str_eq(rig_open(&connection, "f-1", LEASE_MS, 0), "");
    ASK(&connection, "", "undo f-1"); /* and this process lives */
    ck_assert_str_eq(rig_await_end().by, "agent");
}
END_TEST

TEST_MAIN("guardian", 40, rig_setup, rig_teardown, a_record_is_on_disk_before_the_answer,
          an_undo_gets_the_record_and_is_answered, a_large_record_passes_whole,
          bad_requests_are_refused, what_excludes_each_other_is_open_one_at_a_time,
          garbage_does_no_harm, a_lapsed_lease_is_undone_within_a_second, a_renewed_lease_holds,
          no_renewal_reaches_past_the_hold, a_dead_injector_is_undone,
          an_injector_that_lost_its_connection_is_killed_first,
          an_injector_that_outlasts_its_lease_is_killed_first, an_injector_may_undo_its_own_fault)
