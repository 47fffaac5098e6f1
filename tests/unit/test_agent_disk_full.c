/* SPDX-License-Identifier: MIT */
/*
 * The disk under an agent's journal is full. What cannot be recorded is not injected; what was
 * recorded is undone all the same, and stays visible until the journal knows that it is over.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg_processes.h"
#include "tests/support/agent_fixture.h"
#include "tests/support/suite.h"
#include "tests/support/throwaway_postgres.h"

enum { LEASE_MS = 1000, HOLD_MS = 60000, PATIENCE_MS = 10000, NAME_SIZE = 512 };

static const char no_space[] = "failed: guardian: writing the journal: No space left on device";
static struct throwaway server;
static struct agent_peer *peer;

static void setup(void)
{
    throwaway_start(&server);
    agent_fixture_start_on("size=256k");
    peer = agent_peer_new("control");
    json_decref(agent_call(peer, "session.open", agent_session("run-1", LEASE_MS, server.data)));
}

static void teardown(void)
{
    agent_peer_free(peer);
    agent_fixture_stop();
    throwaway_stop(&server);
}

/* --- the disk -------------------------------------------------------------------------------- */

static const char *filler(void)
{
    static char path[NAME_SIZE];

    snprintf(path, sizeof path, "%s/filler", agent_fixture_state());
    return path;
}

/* To the last byte, also of the journal's last page: the longest record fits nowhere. */
static void fill_disk(void)
{
    static const char block[4096];
    OWNED_FD int fd = open(filler(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ssize_t count;

    ck_assert_int_ge(fd, 0);
    while ((count = write(fd, block, sizeof block)) > 0)
        ;
    ck_assert_int_lt(count, 0);
}

static void free_disk(void)
{
    ck_assert_int_eq(unlink(filler()), 0);
}

/* --- faults ---------------------------------------------------------------------------------- */

static json_t *freeze(const char *uid)
{
    return json_pack("{s:s, s:s, s:s, s:{s:s}, s:i}", "run", "run-1", "uid", uid, "fault",
                     "process.freeze", "params", "process", "everything", "hold_ms", HOLD_MS);
}

static json_t *named(const char *uid)
{
    return json_pack("{s:s, s:s}", "run", "run-1", "uid", uid);
}

/* Stopped processes of the server, from the kernel. */
static size_t stopped(void)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes list = {0};
    struct error err;
    size_t count = 0;

    ck_assert_int_eq(pg_processes_list(arena, server.data, &list, &err), STATUS_OK);
    for (size_t i = 0; i < list.count; i++)
        count += process_state(list.items[i].id) == 'T';
    return count;
}

static void await_thawed(int64_t deadline_ns)
{
    while (stopped() > 0) {
        ck_assert_msg(!deadline_passed(deadline_ns), "%zu processes are still stopped\n%s",
                      stopped(), agent_fixture_log());
        poll(NULL, 0, 5);
    }
}

/* The only open fault: its state, and why; "" when there is none. */
static const char *open_fault(void)
{
    static char text[400];
    OWNED_JSON json_t *list = agent_call(peer, "fault.list", NULL);
    const json_t *faults = json_object_get(list, "faults");

    ck_assert_uint_le(json_array_size(faults), 1);
    if (json_array_size(faults) == 0)
        return "";
    snprintf(text, sizeof text, "%s: %s", json_text(json_array_get(faults, 0), "state", ""),
             json_text(json_array_get(faults, 0), "text", ""));
    return text;
}

static void await_open_fault(const char *expected)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);

    while (strcmp(open_fault(), expected) != 0)
        ck_assert_msg(!deadline_passed(deadline_ns), "'%s', not '%s'", open_fault(), expected);
}

/* Fill the journal's last page, so that not even a short line fits. */
static void leave_no_byte(void)
{
    int64_t deadline_ns = deadline_in_ms(PATIENCE_MS);
    char path[NAME_SIZE];

    snprintf(path, sizeof path, "%s/journal", agent_fixture_state());
    OWNED_FD int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    while (write(fd, "\n", 1) == 1)
        ck_assert(!deadline_passed(deadline_ns));
}

START_TEST(what_cannot_be_recorded_is_not_injected)
{
    char refusal[400];

    fill_disk();
    leave_no_byte();
    snprintf(refusal, sizeof refusal, "%s", agent_refusal(peer, "fault.inject", freeze("f-1")));
    ck_assert_str_eq(refusal, no_space);
    ck_assert_uint_eq(stopped(), 0);
    ck_assert_str_eq(open_fault(), "");
    PQfinish(throwaway_connect(&server));
    free_disk();
    json_decref(agent_call(peer, "fault.inject", freeze("f-2"))); /* behind a torn line */
    ck_assert_uint_gt(stopped(), 3);
    OWNED_JSON json_t *undone = agent_call(peer, "fault.undo", named("f-2"));
    ck_assert_str_eq(json_text(undone, "state", ""), "absent");
    ck_assert_uint_eq(stopped(), 0);
}
END_TEST

START_TEST(a_disk_that_fills_meanwhile_does_not_hold_up_the_undo)
{
    char refusal[400];

    json_decref(agent_call(peer, "fault.inject", freeze("f-1")));
    ck_assert_uint_gt(stopped(), 3);
    fill_disk();
    leave_no_byte();
    snprintf(refusal, sizeof refusal, "%s", agent_refusal(peer, "fault.undo", named("f-1")));
    ck_assert_str_eq(refusal, no_space);
    ck_assert_uint_eq(stopped(), 0);
    await_open_fault("failed: writing the journal: No space left on device");
    free_disk();
    await_open_fault(""); /* nobody asks again */
    OWNED_JSON json_t *undone = agent_call(peer, "fault.undo", named("f-1"));
    ck_assert_str_eq(json_text(undone, "state", ""), "absent");
    ck_assert_str_eq(json_text(undone, "by", ""), "agent");
}
END_TEST

START_TEST(a_lease_lapses_on_a_full_disk_too)
{
    int64_t start_ns = clock_boot_ns();

    json_decref(agent_call(peer, "fault.inject", freeze("f-1")));
    fill_disk();
    leave_no_byte();
    agent_peer_free(peer);
    await_thawed(start_ns + 2 * LEASE_MS * NS_PER_MS + NS_PER_SECOND);
    peer = agent_peer_new("control");
    await_open_fault("failed: writing the journal: No space left on device");
    free_disk();
    await_open_fault("");
}
END_TEST

/* Guardian and agent start on a full disk, and undo what the journal has. */
START_TEST(a_start_on_a_full_disk_undoes)
{
    json_decref(agent_call(peer, "fault.inject", freeze("f-1")));
    fill_disk();
    leave_no_byte();
    agent_fixture_restart();
    await_thawed(deadline_in_ms(PATIENCE_MS));
    agent_peer_free(peer);
    peer = agent_peer_new("control");
    await_open_fault("failed: writing the journal: No space left on device");
    free_disk();
    await_open_fault("");
}
END_TEST

int main(void)
{
    const char *why = throwaway_isolate();
    const TTest *const tests[] = {what_cannot_be_recorded_is_not_injected,
                                  a_disk_that_fills_meanwhile_does_not_hold_up_the_undo,
                                  a_lease_lapses_on_a_full_disk_too, a_start_on_a_full_disk_undoes};

    if (why != NULL) {
        printf("skipped: %s\n100%%: Checks: 0, Failures: 0, Errors: 0\n", why);
        return 0;
    }
    return run_suite("agent disk full", 60, setup, teardown, tests, sizeof tests / sizeof tests[0]);
}
