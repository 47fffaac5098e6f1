/* SPDX-License-Identifier: MIT */
/* ordeald as a program: who may speak to it, what it refuses, sessions, spool, death and return. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "tests/support/agent_fixture.h"
#include "tests/support/pki.h"
#include "tests/support/suite.h"

enum { LEASE_MS = 1000 };

static struct agent_peer *peer;

static void setup(void)
{
    agent_fixture_start();
    peer = agent_peer_new("control");
}

static void teardown(void)
{
    agent_peer_free(peer);
    agent_fixture_stop();
}

static json_t *run_params(const char *run)
{
    return json_pack("{s:s}", "run", run);
}

static void open_session(struct agent_peer *of, const char *run)
{
    json_decref(agent_call(of, "session.open", agent_session(run, LEASE_MS, NULL)));
}

/* --- greeting -------------------------------------------------------------------------------- */

START_TEST(hello_says_who_answers)
{
    int64_t before_ns = clock_boot_ns();
    OWNED_JSON json_t *result = agent_call(peer, "hello", json_pack("{s:i}", "protocol", 1));

    ck_assert_str_eq(json_text(result, "node", ""), "n1");
    ck_assert_int_eq(json_number(result, "protocol", 0), 1);
    ck_assert_uint_eq(strlen(json_text(result, "boot_id", "")), 36);
    ck_assert_int_ge(json_number(result, "boot_ns", 0), before_ns);
    ck_assert_int_le(json_number(result, "boot_ns", 0), clock_boot_ns());
    ck_assert_str_eq(agent_refusal(peer, "hello", json_pack("{s:i}", "protocol", 2)),
                     "protocol: the orchestrator speaks protocol 2, this agent 1");
}
END_TEST

START_TEST(unknown_things_are_refused)
{
    ck_assert_str_eq(agent_refusal(peer, "shell", NULL),
                     "unsupported: this agent has no method 'shell'");
    ck_assert_str_eq(agent_refusal(peer, "hello", NULL),
                     "invalid: hello: parameter 'protocol' is missing");
    ck_assert_str_eq(agent_refusal(peer, "hello", json_pack("{s:s}", "protocol", "1")),
                     "invalid: hello: parameter 'protocol' is not an integer");
    ck_assert_str_eq(
        agent_refusal(peer, "hello", json_pack("{s:i, s:i}", "protocol", 1, "debug", 1)),
        "invalid: hello: unknown parameter 'debug'");
    open_session(peer, "run-1");
    ck_assert_str_eq(
        agent_refusal(peer, "file.list", json_pack("{s:s%}", "run", "run-1\0x", (size_t) 7)),
        "invalid: file.list: parameter 'run' is not text");
}
END_TEST

static void expect_stranger(const char *certificate, const char *told, const char *logged)
{
    struct agent_peer *stranger = agent_peer_new(certificate);

    ck_assert_msg(strstr(agent_peer_reason(stranger)->message, told) != NULL, "%s",
                  agent_peer_reason(stranger)->message);
    agent_peer_free(stranger);
    json_decref(agent_call(peer, "hello", json_pack("{s:i}", "protocol", 1))); /* it lives */
    int64_t deadline_ns = deadline_in_ms(5000);
    while (strstr(agent_fixture_log(), logged) == NULL) {
        ck_assert_msg(!deadline_passed(deadline_ns), "%s", agent_fixture_log());
        json_decref(agent_call(peer, "hello", json_pack("{s:i}", "protocol", 1)));
    }
}

START_TEST(strangers_are_refused_told_and_logged)
{
    expect_stranger("n1", "refused our certificate: it has the wrong role",
                    "connection from 127.0.0.1: greeting the peer: the peer's certificate has the "
                    "wrong role");
    expect_stranger("late", "refused our certificate: it has expired", "certificate has expired");
    expect_stranger("foreign/control", "it is of a foreign CA", "certificate is of a foreign CA");
}
END_TEST

/* --- sessions -------------------------------------------------------------------------------- */

START_TEST(methods_need_a_session)
{
    ck_assert_str_eq(agent_refusal(peer, "heartbeat", run_params("run-1")),
                     "refused: heartbeat needs a session; open one first");
    open_session(peer, "run-1");
    OWNED_JSON json_t *beat = agent_call(peer, "heartbeat", run_params("run-1"));
    ck_assert_int_gt(json_number(beat, "boot_ns", 0), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(beat, "faults")), 0);
    ck_assert(json_is_array(json_object_get(beat, "faults")));
    ck_assert_str_eq(agent_refusal(peer, "heartbeat", run_params("run-2")),
                     "conflict: heartbeat for run run-2, but run run-1 is open");
    json_decref(agent_call(peer, "session.close", run_params("run-1")));
    ck_assert_str_eq(agent_refusal(peer, "heartbeat", run_params("run-1")),
                     "refused: heartbeat needs a session; open one first");
}
END_TEST

START_TEST(one_run_at_a_time)
{
    struct agent_peer *second = agent_peer_new("control");

    open_session(peer, "run-1");
    ck_assert_str_eq(agent_refusal(second, "session.open", agent_session("run-2", LEASE_MS, NULL)),
                     "conflict: node n1 serves run run-1");
    /* the same run may come back, on a new connection, which is then the one that counts */
    open_session(second, "run-1");
    json_decref(agent_call(second, "heartbeat", run_params("run-1")));
    ck_assert_str_eq(agent_refusal(peer, "heartbeat", run_params("run-1")),
                     "refused: heartbeat needs a session; open one first");
    ck_assert_str_eq(agent_refusal(peer, "session.open", agent_session("run-1", 2000, NULL)),
                     "conflict: run run-1 is open here with other parameters");
    agent_peer_free(second);
    /* nobody is connected, and no fault is open: another run may begin */
    struct error err = {0};
    json_t *result = NULL;
    int64_t deadline_ns = deadline_in_ms(5000);
    while (agent_try(peer, "session.open", agent_session("run-3", LEASE_MS, NULL), &result, &err) !=
           STATUS_OK)
        ck_assert_msg(!deadline_passed(deadline_ns), "%s", err.message);
    json_decref(result);
}
END_TEST

/* Else its load would write for ever. The ended session is seen by what only an open one refuses.
 */
START_TEST(a_session_without_an_orchestrator_ends)
{
    enum { SHORT_MS = 500, OTHER_MS = 600 };
    struct agent_peer *second = agent_peer_new("control");
    int64_t deadline_ns = deadline_in_ms(10000);

    json_decref(agent_call(peer, "session.open", agent_session("run-1", SHORT_MS, NULL)));
    agent_peer_free(peer);
    peer = second;
    ck_assert_str_eq(agent_refusal(peer, "session.open", agent_session("run-1", OTHER_MS, NULL)),
                     "conflict: run run-1 is open here with other parameters");
    while (strstr(agent_fixture_log(), "the orchestrator of run run-1 does not come back") ==
           NULL) {
        ck_assert_msg(!deadline_passed(deadline_ns), "%s", agent_fixture_log());
        json_decref(agent_call(peer, "hello", json_pack("{s:i}", "protocol", 1)));
    }
    json_decref(agent_call(peer, "session.open", agent_session("run-1", OTHER_MS, NULL)));
}
END_TEST

START_TEST(a_session_for_another_node_is_refused)
{
    json_t *params = agent_session("run-1", LEASE_MS, NULL);

    json_object_set_new(json_object_get(params, "node"), "name", json_string("n2"));
    json_array_append_new(json_object_get(params, "peers"),
                          json_pack("{s:s, s:s}", "name", "n2", "address", "127.0.0.1"));
    ck_assert_str_eq(agent_refusal(peer, "session.open", params),
                     "refused: this is node n1, not n2");
}
END_TEST

START_TEST(a_state_folder_under_test_is_refused)
{
    json_t *params = agent_session("run-1", LEASE_MS, NULL);

    json_object_set_new(json_object_get(json_object_get(params, "node"), "volumes"), "data",
                        json_string(test_pki_folder()));
    const char *refusal = agent_refusal(peer, "session.open", params);
    ck_assert_msg(strstr(refusal, "refused: the state folder") == refusal, "%s", refusal);
    ck_assert_ptr_nonnull(strstr(refusal, "which is under test"));
}
END_TEST

/* --- what the owner of the node forbids ------------------------------------------------------ */

static void put_in_state(const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", agent_fixture_state(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t) strlen(text));
    close(fd);
}

static json_t *inject_params(const char *uid, const char *fault)
{
    return json_pack("{s:s, s:s, s:s, s:{}, s:i}", "run", "run-1", "uid", uid, "fault", fault,
                     "params", "hold_ms", 1000);
}

static json_t *target_params(int hold_ms)
{
    return json_pack("{s:s, s:s, s:i}", "run", "run-1", "fault", "node.crash", "hold_ms", hold_ms);
}

START_TEST(the_lever_stops_all_but_undoing)
{
    open_session(peer, "run-1");
    put_in_state("halt", "");
    const char *refusal = agent_refusal(peer, "fault.inject", inject_params("f-1", "process.kill"));
    ck_assert_msg(strncmp(refusal, "refused: the node is halted", 27) == 0, "%s", refusal);
    refusal = agent_refusal(peer, "fault.permitted", target_params(1000));
    ck_assert_msg(strncmp(refusal, "refused: the node is halted", 27) == 0, "%s", refusal);
    json_decref(agent_call(peer, "heartbeat", run_params("run-1")));
    json_decref(agent_call(peer, "recover", NULL));
    json_decref(agent_call(peer, "file.list", run_params("run-1")));
}
END_TEST

START_TEST(the_policy_bounds_methods_and_holds)
{
    put_in_state("policy",
                 "{\"policy\": 1, \"methods\": [\"fault.inject\"], \"max_hold_ms\": 999}");
    agent_fixture_restart();
    agent_peer_free(peer);
    peer = agent_peer_new("control");
    open_session(peer, "run-1");
    ck_assert_str_eq(agent_refusal(peer, "fault.inject", inject_params("f-1", "process.kill")),
                     "refused: fault.inject for 1000 ms; this node allows 999 ms");
    ck_assert_str_eq(agent_refusal(peer, "fault.permitted", target_params(1000)),
                     "refused: fault.inject for 1000 ms; this node allows 999 ms");
    json_decref(agent_call(peer, "fault.permitted", target_params(999)));
    ck_assert_str_eq(
        agent_refusal(peer, "power",
                      json_pack("{s:s, s:s, s:s}", "run", "run-1", "node", "n1", "word", "off")),
        "refused: the policy of this node does not allow power");
    json_decref(agent_call(peer, "recover", NULL));
}
END_TEST

START_TEST(a_start_removes_what_was_half_written)
{
    char path[256];

    put_in_state("before.json.tmp", "{\"run\": \"run-");
    snprintf(path, sizeof path, "%s/before.json.tmp", agent_fixture_state());
    ck_assert_int_eq(access(path, F_OK), 0);
    agent_fixture_restart();
    agent_peer_free(peer);
    peer = agent_peer_new("control");
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(without_a_policy_an_hour_is_the_most)
{
    json_t *params = inject_params("f-1", "process.kill");

    json_object_set_new(params, "hold_ms", json_integer(3600001));
    open_session(peer, "run-1");
    ck_assert_str_eq(agent_refusal(peer, "fault.inject", params),
                     "refused: fault.inject for 3600001 ms; this node allows 3600000 ms");
}
END_TEST

/* --- the spool ------------------------------------------------------------------------------- */

static void put(const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/runs/run-1/%s", agent_fixture_state(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t) strlen(text));
    close(fd);
}

static json_t *read_params(const char *name, int64_t offset)
{
    return json_pack("{s:s, s:s, s:I}", "run", "run-1", "name", name, "offset",
                     (json_int_t) offset);
}

START_TEST(files_of_the_spool_are_read)
{
    open_session(peer, "run-1");
    put("a.ledger", "hello");
    OWNED_JSON json_t *list = agent_call(peer, "file.list", run_params("run-1"));
    const json_t *file = json_array_get(json_object_get(list, "files"), 0);
    ck_assert_str_eq(json_text(file, "name", ""), "a.ledger");
    ck_assert_int_eq(json_number(file, "size", 0), 5);
    OWNED_JSON json_t *part = agent_call(peer, "file.read", read_params("a.ledger", 1));
    ck_assert_str_eq(json_text(part, "data", ""), "ZWxsbw==");
    ck_assert(json_flag(part, "end", false));
    OWNED_JSON json_t *rest = agent_call(peer, "file.read", read_params("a.ledger", 99));
    ck_assert_str_eq(json_text(rest, "data", "?"), "");
    json_decref(
        agent_call(peer, "session.close", json_pack("{s:s, s:b}", "run", "run-1", "purge", 1)));
    char path[256];
    snprintf(path, sizeof path, "%s/runs/run-1", agent_fixture_state());
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_session_that_wrote_nothing_leaves_nothing)
{
    char path[256];

    snprintf(path, sizeof path, "%s/runs/run-1", agent_fixture_state());
    open_session(peer, "run-1");
    ck_assert_int_eq(access(path, F_OK), 0);
    json_decref(agent_call(peer, "session.close", run_params("run-1")));
    ck_assert_int_ne(access(path, F_OK), 0);
    open_session(peer, "run-1");
    put("kept.ledger", "hello");
    json_decref(agent_call(peer, "session.close", run_params("run-1")));
    ck_assert_int_eq(access(path, F_OK), 0);
    open_session(peer, "run-1");
    json_decref(
        agent_call(peer, "session.close", json_pack("{s:s, s:b}", "run", "run-1", "purge", 1)));
}
END_TEST

START_TEST(a_large_file_comes_in_parts)
{
    OWNED_MEMORY char *text = malloc(1024 * 1024 + 100);

    memset(text, 'x', 1024 * 1024 + 99);
    text[1024 * 1024 + 99] = '\0';
    open_session(peer, "run-1");
    put("b.ledger", text);
    OWNED_JSON json_t *first = agent_call(peer, "file.read", read_params("b.ledger", 0));
    ck_assert(!json_flag(first, "end", true));
    ck_assert_int_eq(json_number(first, "size", 0), 1024 * 1024 + 99);
    OWNED_JSON json_t *second = agent_call(peer, "file.read", read_params("b.ledger", 1024 * 1024));
    ck_assert(json_flag(second, "end", false));
    ck_assert_uint_eq(json_string_length(json_object_get(second, "data")), 132);
}
END_TEST

START_TEST(nothing_outside_the_spool_is_read)
{
    static const char *const names[] = {"../journal", "../../journal", "/etc/passwd", "..", ".",
                                        "",           ".hidden",       "a/b"};
    char target[256], link[256];

    open_session(peer, "run-1");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *refusal = agent_refusal(peer, "file.read", read_params(names[i], 0));
        ck_assert_msg(strncmp(refusal, "refused:", 8) == 0, "'%s': %s", names[i], refusal);
    }
    snprintf(target, sizeof target, "%s/journal", agent_fixture_state());
    snprintf(link, sizeof link, "%s/runs/run-1/link", agent_fixture_state());
    ck_assert_int_eq(symlink(target, link), 0);
    const char *refusal = agent_refusal(peer, "file.read", read_params("link", 0));
    ck_assert_msg(strstr(refusal, "Too many levels") != NULL, "%s", refusal);
    snprintf(link, sizeof link, "%s/runs/run-1/pipe", agent_fixture_state());
    ck_assert_int_eq(mkfifo(link, 0600), 0);
    ck_assert_str_eq(agent_refusal(peer, "file.read", read_params("pipe", 0)),
                     "refused: pipe in the spool is no file");
    ck_assert_str_eq(agent_refusal(peer, "file.read", read_params("absent", 0)),
                     "not-found: opening absent in the spool: No such file or directory");
    OWNED_JSON json_t *list = agent_call(peer, "file.list", run_params("run-1"));
    ck_assert_uint_eq(json_array_size(json_object_get(list, "files")), 0);
}
END_TEST

/* --- faults that never come to be ------------------------------------------------------------ */

START_TEST(faults_are_refused_before_anything_is_recorded)
{
    open_session(peer, "run-1");
    ck_assert_str_eq(agent_refusal(peer, "fault.inject", inject_params("f-1", "node.vanish")),
                     "not-found: no fault 'node.vanish'");
    ck_assert_str_eq(agent_refusal(peer, "fault.inject", inject_params("F 1", "process.kill")),
                     "invalid: uid 'F 1': 1 to 40 of a-z, 0-9 and '-'");
    const char *refusal = agent_refusal(peer, "fault.inject", inject_params("f-1", "process.kill"));
    ck_assert_msg(strncmp(refusal, "ok", 2) != 0, "%s", refusal);
    OWNED_JSON json_t *list = agent_call(peer, "fault.list", NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(list, "faults")), 0);
    ck_assert_str_eq(
        agent_refusal(peer, "fault.undo", json_pack("{s:s, s:s}", "run", "run-1", "uid", "f-1")),
        "not-found: no fault f-1 on this node");
    OWNED_JSON json_t *recovered = agent_call(peer, "recover", NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(recovered, "undone")), 0);
}
END_TEST

START_TEST(a_node_without_power_driver_says_so)
{
    open_session(peer, "run-1");
    const char *refusal = agent_refusal(
        peer, "power", json_pack("{s:s, s:s, s:s}", "run", "run-1", "node", "n1", "word", "off"));
    ck_assert_str_eq(refusal, "unsupported: the topology has no power driver for 'off'");
}
END_TEST

static json_t *powered_session(const char *log)
{
    json_t *params = agent_session("run-1", LEASE_MS, NULL);

    json_object_set_new(params, "power",
                        json_pack("{s:[s,s], s:n, s:[s,s,s]}", "off", "false", "{node}", "cut",
                                  "on", "cp", "/proc/self/cmdline", log));
    return params;
}

START_TEST(power_runs_the_drivers_programs)
{
    const char *log = test_pki_path("{node}.power");

    json_decref(agent_call(peer, "session.open", powered_session(log)));
    OWNED_JSON json_t *done = agent_call(
        peer, "power", json_pack("{s:s, s:s, s:s}", "run", "run-1", "node", "n1", "word", "on"));
    ck_assert_int_gt(json_number(done, "done_ns", 0), 0);
    ck_assert_int_eq(access(test_pki_path("n1.power"), F_OK), 0);
    ck_assert_str_eq(
        agent_refusal(peer, "power",
                      json_pack("{s:s, s:s, s:s}", "run", "run-1", "node", "n1", "word", "off")),
        "failed: power off n1: false exited with 1: ");
    ck_assert_str_eq(
        agent_refusal(peer, "power",
                      json_pack("{s:s, s:s, s:s}", "run", "run-1", "node", "n9", "word", "on")),
        "not-found: power on: no node 'n9'");
}
END_TEST

/* --- death and return ------------------------------------------------------------------------ */

START_TEST(a_dead_agent_comes_back)
{
    pid_t agent = agent_fixture_agent(0);

    open_session(peer, "run-1");
    ck_assert_int_eq(kill(agent, SIGKILL), 0);
    ck_assert_int_eq(agent_peer_reason(peer)->code, STATUS_UNREACHABLE);
    agent_peer_free(peer);
    agent_fixture_agent(agent);
    peer = agent_peer_new("control");
    open_session(peer, "run-1");
}
END_TEST

START_TEST(a_dead_guardian_ends_the_agent)
{
    pid_t agent = agent_fixture_agent(0);

    agent_fixture_restart();
    ck_assert_int_eq(agent_peer_reason(peer)->code, STATUS_UNREACHABLE);
    agent_peer_free(peer);
    ck_assert_int_ne(agent_fixture_agent(agent), agent);
    peer = agent_peer_new("control");
    open_session(peer, "run-1");
}
END_TEST

/* --- the fingerprint ------------------------------------------------------------------------- */

START_TEST(a_fingerprint_has_all_sections)
{
    static const char *const sections[] = {
        "processes", "mounts",  "loops", "swaps",         "tc",        "cgroups",
        "frozen",    "sysctls", "files", "cgroup_limits", "cgroup_io", "open_records"};

    open_session(peer, "run-1");
    OWNED_JSON json_t *one = agent_call(peer, "node.fingerprint", NULL);
    OWNED_JSON json_t *other = agent_call(peer, "node.fingerprint", NULL);
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        ck_assert_msg(json_is_object(json_object_get(one, sections[i])), "no %s", sections[i]);
    /* others may mount and stop things on this host meanwhile; boots and records are ours */
    ck_assert(json_equal(json_object_get(one, "boot_id"), json_object_get(other, "boot_id")));
    ck_assert_uint_eq(json_object_size(json_object_get(other, "open_records")), 0);
    ck_assert_uint_gt(json_object_size(json_object_get(one, "mounts")), 0);
    ck_assert_str_ne(json_text(json_object_get(one, "sysctls"), "vm/swappiness", ""), "");
    ck_assert_ptr_null(json_object_get(one, "postgres")); /* it serves none */
}
END_TEST

static json_t *fingerprint_kept(const char *run)
{
    OWNED_JSON json_t *all =
        agent_call(peer, "node.fingerprint", json_pack("{s:s, s:b}", "run", run, "kept", 1));

    return json_incref(json_object_get(all, "kept"));
}

START_TEST(what_was_before_is_kept_until_it_is_forgotten)
{
    open_session(peer, "run-1");
    OWNED_JSON json_t *nothing = fingerprint_kept("run-1");
    ck_assert(json_is_null(nothing));
    OWNED_JSON json_t *before =
        agent_call(peer, "node.fingerprint", json_pack("{s:s, s:b}", "run", "run-1", "keep", 1));
    ck_assert_ptr_null(json_object_get(before, "unaudited"));
    /* its orchestrator dies, agent and guardian, too; another run comes */
    agent_fixture_restart();
    agent_peer_free(peer);
    agent_fixture_agent(0);
    peer = agent_peer_new("control");
    open_session(peer, "run-2");
    OWNED_JSON json_t *later =
        agent_call(peer, "node.fingerprint", json_pack("{s:s, s:b}", "run", "run-2", "keep", 1));
    ck_assert_str_eq(json_text(later, "unaudited", ""), "run-1");
    /* what belongs to run-1 is not for run-2 to forget */
    OWNED_JSON json_t *left =
        agent_call(peer, "node.forget", json_pack("{s:s, s:s}", "run", "run-2", "of", "run-2"));
    ck_assert(!json_flag(left, "forgotten", true));
    OWNED_JSON json_t *kept = fingerprint_kept("run-2");
    ck_assert_str_eq(json_text(kept, "run", ""), "run-1");
    ck_assert(json_equal(json_object_get(kept, "fingerprint"), before));
    OWNED_JSON json_t *gone = agent_call(peer, "node.forget", run_params("run-2"));
    ck_assert(json_flag(gone, "forgotten", false));
    OWNED_JSON json_t *none = fingerprint_kept("run-2");
    ck_assert(json_is_null(none));
}
END_TEST

TEST_MAIN("agent server", 60, setup, teardown, hello_says_who_answers, unknown_things_are_refused,
          strangers_are_refused_told_and_logged, methods_need_a_session, one_run_at_a_time,
          a_session_without_an_orchestrator_ends, the_lever_stops_all_but_undoing,
          the_policy_bounds_methods_and_holds, a_start_removes_what_was_half_written,
          without_a_policy_an_hour_is_the_most, a_session_for_another_node_is_refused,
          a_state_folder_under_test_is_refused, files_of_the_spool_are_read,
          a_session_that_wrote_nothing_leaves_nothing, a_large_file_comes_in_parts,
          nothing_outside_the_spool_is_read, faults_are_refused_before_anything_is_recorded,
          a_node_without_power_driver_says_so, power_runs_the_drivers_programs,
          a_dead_agent_comes_back, a_dead_guardian_ends_the_agent, a_fingerprint_has_all_sections,
          what_was_before_is_kept_until_it_is_forgotten)
