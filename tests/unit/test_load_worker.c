/* SPDX-License-Identifier: MIT */
/* Load workers against a real PostgreSQL: what the ledger says is what the table holds. */
#include <check.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agents/load/worker.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "tests/support/load_rig.h"

START_TEST(two_seconds_of_load)
{
    load_rig_make_plan(false, "{\"clients\": 8, \"rate\": 200, \"rows\": 3, \"payload\": 100}",
                       NULL);
    ck_assert_uint_eq(load_rig_plan.worker_count, 1);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 400, 10000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    ck_assert(ledger.ended);
    load_rig_check_against_table(&ledger);
    load_rig_check_digests();
    size_t good = load_rig_count_class(&ledger, LEDGER_ACKED);
    ck_assert_uint_eq(good, load_rig_acked(0));
    ck_assert_uint_eq(good, load_rig_count_kind(&ledger, LEDGER_INTENT));
    ck_assert_uint_eq(good, load_rig_count_kind(&ledger, LEDGER_OUTCOME));
    ck_assert_int_eq(load_rig_number("SELECT count(*) FROM ordeal.journal"), (int64_t) good * 3);
    ck_assert_uint_eq(load_rig_count_kind(&ledger, LEDGER_SESSION), 8);
    ck_assert_uint_eq(load_rig_count_kind(&ledger, LEDGER_SESSION_END), 8);
    ck_assert_uint_ge(load_rig_count_kind(&ledger, LEDGER_BEAT), 30);
    ck_assert_uint_ge(load_rig_count_kind(&ledger, LEDGER_READ), 10);
    ck_assert_uint_eq(atomic_load(&load_rig_shared->workers[0].in_flight), 0);
    ck_assert_uint_eq(atomic_load(&load_rig_shared->workers[0].writer), UINT64_C(2) << 32 | 1);
    for (size_t i = 0; i < ledger.count; i++) {
        const struct ledger_record *record = &ledger.records[i];
        if (record->kind == LEDGER_SESSION) {
            ck_assert_int_eq(record->class, LEDGER_ON);
            ck_assert_uint_eq(record->timeline, 1);
            ck_assert_uint_eq(record->node, 1);
        } else if (record->kind == LEDGER_OUTCOME) {
            ck_assert_uint_ne(record->lsn, 0);
            ck_assert_int_ge(record->sent_ns, record->scheduled_ns);
            ck_assert_int_gt(record->done_ns, record->sent_ns);
            ck_assert(load_rig_reserved(&ledger, record->client, record->seq));
        } else if (record->kind == LEDGER_READ)
            ck_assert_ptr_nonnull(
                load_rig_find(&ledger, LEDGER_INTENT, (uint32_t) record->lsn, record->seq));
    }
    ledger_close(&ledger);
}
END_TEST

/* Starts are evenly spread over the schedule, whatever the answers take. */
START_TEST(open_loop_keeps_its_schedule)
{
    load_rig_make_plan(false, "{\"clients\": 4, \"rate\": 100}", NULL);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 100, 10000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    int64_t first = INT64_MAX, last = 0;
    for (size_t i = 0; i < ledger.count; i++) {
        const struct ledger_record *record = &ledger.records[i];
        if (record->kind != LEDGER_OUTCOME)
            continue;
        first = record->scheduled_ns < first ? record->scheduled_ns : first;
        last = record->scheduled_ns > last ? record->scheduled_ns : last;
    }
    int64_t step_ns = (last - first) / (int64_t) (load_rig_count_kind(&ledger, LEDGER_OUTCOME) - 1);
    ck_assert_int_ge(step_ns, 10 * NS_PER_MS - 1000);
    ck_assert_int_le(step_ns, 10 * NS_PER_MS + 200000);
    ledger_close(&ledger);
}
END_TEST

/* The worker is killed in full flight, again and again: no hole. */
START_TEST(killed_worker_leaves_no_hole)
{
    for (int round = 0; round < 3; round++) {
        char workload[128];
        snprintf(workload, sizeof(workload), "{\"clients\": 8, \"rate\": 0, \"first_client\": %d}",
                 1 + round * 100);
        load_rig_make_plan(false, workload, NULL);
        ck_assert_uint_eq(load_rig_plan.workers[0].number, (unsigned) round + 1);
        load_rig_start_workers();
        uint64_t before = load_rig_acked(0);
        await(load_rig_acked(0) >= before + 300, 10000);
        process_kill(&load_rig_processes[0]);
        await(load_rig_number("SELECT count(*) FROM pg_stat_activity WHERE application_name ="
                              " 'ordeal'") == 0,
              5000);

        struct ledger ledger = load_rig_open_ledger(0);
        ck_assert(!ledger.ended);
        ck_assert_uint_ge(load_rig_count_class(&ledger, LEDGER_ACKED), 300);
        load_rig_load_outcomes(&ledger);
        ck_assert_int_eq(load_rig_number(LOAD_RIG_LOST), 0);
        ck_assert_int_eq(load_rig_number(LOAD_RIG_UNKNOWN), 0);
        for (size_t i = 0; i < ledger.count; i++)
            if (ledger.records[i].kind == LEDGER_INTENT)
                ck_assert(
                    load_rig_reserved(&ledger, ledger.records[i].client, ledger.records[i].seq));
        ledger_close(&ledger);
    }
}
END_TEST

static int64_t waiters(void)
{
    return load_rig_number("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND"
                           " application_name = 'ordeal'");
}

/* Commits wait for a standby that does not exist. */
static void wait_for_nobody(bool on)
{
    load_rig_execute(on ? "ALTER SYSTEM SET synchronous_standby_names = 'nobody'"
                        : "ALTER SYSTEM RESET synchronous_standby_names");
    load_rig_execute("SELECT pg_reload_conf()");
}

START_TEST(cancelled_wait_is_weak)
{
    load_rig_make_plan(false, "{\"clients\": 4, \"rate\": 0}", NULL);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 20, 10000);
    wait_for_nobody(true);
    await(waiters() == 4, 5000);
    load_rig_execute(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    await(atomic_load(&load_rig_shared->workers[0].errors) >= 4, 5000);
    wait_for_nobody(false);
    await(waiters() == 0, 5000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    ck_assert_uint_ge(load_rig_count_class(&ledger, LEDGER_WEAK), 4);
    load_rig_check_against_table(&ledger);
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_OUTCOME && ledger.records[i].class == LEDGER_WEAK)
            ck_assert_str_eq(ledger.records[i].sqlstate, "01000");
    ledger_close(&ledger);
}
END_TEST

START_TEST(terminated_wait_is_in_doubt)
{
    load_rig_make_plan(false, "{\"clients\": 4, \"rate\": 0}", NULL);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 20, 10000);
    wait_for_nobody(true);
    await(waiters() == 4, 5000);
    load_rig_execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    await(atomic_load(&load_rig_shared->workers[0].errors) >= 4, 5000);
    wait_for_nobody(false);
    await(waiters() == 0, 5000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    ck_assert_uint_ge(load_rig_count_class(&ledger, LEDGER_IN_DOUBT), 4);
    load_rig_check_against_table(&ledger);
    /* committed, though nobody was told */
    ck_assert_int_ge(load_rig_number("SELECT count(DISTINCT (client, seq)) FROM outcome JOIN"
                                     " ordeal.journal USING (client, seq) WHERE class = 2"),
                     4);
    ledger_close(&ledger);
}
END_TEST

/* A commit that hangs is left without a cancel: the server goes on waiting. */
START_TEST(hanging_commit_is_left)
{
    load_rig_make_plan(false, "{\"clients\": 2, \"rate\": 0, \"commit_timeout\": 300}", NULL);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 20, 10000);
    wait_for_nobody(true);
    await(atomic_load(&load_rig_shared->workers[0].errors) >= 4, 5000);
    ck_assert_int_ge(waiters(), 4);
    wait_for_nobody(false);
    await(waiters() == 0, 5000);
    uint64_t before = load_rig_acked(0);
    await(load_rig_acked(0) > before, 5000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    ck_assert_uint_ge(load_rig_count_class(&ledger, LEDGER_IN_DOUBT), 4);
    ck_assert_uint_eq(load_rig_count_class(&ledger, LEDGER_WEAK), 0);
    load_rig_check_against_table(&ledger);
    ledger_close(&ledger);
}
END_TEST

START_TEST(drain_leaves_what_hangs)
{
    load_rig_make_plan(false, "{\"clients\": 3, \"rate\": 0}", NULL);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 20, 10000);
    wait_for_nobody(true);
    await(waiters() == 3, 5000);
    int64_t begun = clock_boot_ns();
    load_rig_stop_workers(300);
    ck_assert_int_lt(clock_boot_ns() - begun, 2000 * NS_PER_MS);
    struct ledger ledger = load_rig_open_ledger(0);
    ck_assert(ledger.ended);
    ck_assert_uint_eq(load_rig_count_class(&ledger, LEDGER_IN_DOUBT), 3);
    ledger_close(&ledger);
    wait_for_nobody(false);
}
END_TEST

static void pg_ctl(const char *word, const char *mode)
{
    const char *argv[] = {
        "/usr/lib/postgresql/15/bin/pg_ctl", word, "--pgdata", load_rig_server.data, "--wait",
        mode != NULL ? "--mode" : NULL,      mode, NULL};
    struct error err = {0};

    if (process_run(&(struct process_spec){.argv = argv, .user = "postgres", .timeout_ms = 30000},
                    NULL, &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
}

START_TEST(server_stops_and_comes_back)
{
    load_rig_make_plan(false, "{\"clients\": 8, \"rate\": 0}", NULL);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 200, 10000);
    PQfinish(load_rig_admin);
    pg_ctl("stop", "immediate");
    await(atomic_load(&load_rig_shared->workers[0].errors) >= 24, 5000); /* 8 lost, then refusals */
    throwaway_restart(&load_rig_server);
    load_rig_admin = throwaway_connect(&load_rig_server);
    uint64_t before = load_rig_acked(0);
    await(load_rig_acked(0) >= before + 100, 10000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    load_rig_check_against_table(&ledger);
    ck_assert_uint_ge(load_rig_count_class(&ledger, LEDGER_UNSENT), 16);
    ck_assert_uint_eq(load_rig_count_class(&ledger, LEDGER_WEAK), 0);
    ck_assert_uint_ge(load_rig_count_kind(&ledger, LEDGER_SESSION), 9); /* some came back */
    ledger_close(&ledger);
}
END_TEST

START_TEST(managed_endpoint)
{
    load_rig_make_plan(true, "{\"clients\": 4, \"rate\": 100}", NULL);
    ck_assert_int_eq(load_rig_plan.route, LOAD_ROUTE_CLOSED);
    load_rig_start_workers();
    await(atomic_load(&load_rig_shared->workers[0].errors) >= 8, 5000);
    ck_assert_uint_eq(load_rig_acked(0), 0);
    int64_t opened = clock_boot_ns();
    atomic_store(&load_rig_shared->route, 1);
    load_rig_poke();
    await(load_rig_acked(0) >= 4, 5000);
    ck_assert_int_lt(atomic_load(&load_rig_shared->workers[0].last_ack_ns) - opened,
                     1000 * NS_PER_MS);
    /* closing cuts nobody off */
    atomic_store(&load_rig_shared->route, LOAD_ROUTE_CLOSED);
    load_rig_poke();
    uint64_t before = load_rig_acked(0);
    await(load_rig_acked(0) >= before + 20, 5000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_OUTCOME && ledger.records[i].class == LEDGER_UNSENT) {
            ck_assert_int_eq(ledger.records[i].phase, LEDGER_CONNECTING);
            ck_assert_str_eq(ledger.records[i].sqlstate, "");
        }
    ck_assert_uint_ge(load_rig_count_class(&ledger, LEDGER_UNSENT), 8);
    load_rig_check_against_table(&ledger);
    ledger_close(&ledger);
}
END_TEST

/* What could not begin for a second is counted, not dropped and not caught up with. */
/* A host whose kernel answers and whose server says nothing: attempts hang until their deadline. */
static int mute_listener(int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *) &address, length), 0);
    ck_assert_int_eq(listen(fd, 64), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *) &address, &length), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

START_TEST(a_moved_endpoint_ends_attempts_at_the_old_host)
{
    load_rig_make_plan(true, "{\"clients\": 4, \"rate\": 100}", NULL);
    int fd = mute_listener(&load_rig_plan.nodes[0].target.port);
    atomic_store(&load_rig_shared->route, 0);
    load_rig_start_workers();
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(poll(&waiting, 1, 5000), 1); /* an attempt is under way */
    ck_assert_uint_eq(load_rig_acked(0), 0);
    int64_t moved_ns = clock_boot_ns();
    atomic_store(&load_rig_shared->route, 1);
    load_rig_poke();
    await(load_rig_acked(0) >= 4, 5000);
    int64_t first_ns = INT64_MAX;
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_SESSION && ledger.records[i].done_ns < first_ns)
            first_ns = ledger.records[i].done_ns;
    ck_assert_int_lt(first_ns - moved_ns, 500 * NS_PER_MS); /* an attempt hangs for 1 s */
    load_rig_check_against_table(&ledger);
    ledger_close(&ledger);
    close(fd);
}
END_TEST

START_TEST(missed_starts)
{
    load_rig_make_plan(false, "{\"clients\": 2, \"rate\": 200}", NULL);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 20, 10000);
    wait_for_nobody(true);
    await(waiters() == 2, 5000);
    int64_t held = clock_boot_ns();
    await(clock_boot_ns() - held > 3000 * NS_PER_MS, 5000);
    wait_for_nobody(false);
    await(waiters() == 0, 5000);
    uint64_t before = load_rig_acked(0);
    await(load_rig_acked(0) >= before + 300, 10000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    uint64_t missed = 0, served = load_rig_count_class(&ledger, LEDGER_ACKED);
    int64_t first = INT64_MAX, last = 0;
    for (size_t i = 0; i < ledger.count; i++) {
        const struct ledger_record *record = &ledger.records[i];
        if (record->kind == LEDGER_MISSED)
            missed += record->seq;
        if (record->kind == LEDGER_OUTCOME) {
            first = record->scheduled_ns < first ? record->scheduled_ns : first;
            last = record->scheduled_ns > last ? record->scheduled_ns : last;
        }
    }
    ck_assert_uint_ge(missed, 350); /* of the 600 of three seconds, but for the last one */
    ck_assert_uint_le(missed, 650);
    /* every scheduled start is either an outcome or missed */
    int64_t expected = (last - first) / (5 * NS_PER_MS) + 1;
    ck_assert_int_le(llabs((int64_t) (missed + served) - expected), 4);
    ledger_close(&ledger);
}
END_TEST

START_TEST(probes)
{
    load_rig_make_plan(false, NULL, "{\"nodes\": [\"n1\", \"n2\"]}");
    ck_assert_uint_eq(load_rig_plan.worker_count, 3);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 300 && load_rig_acked(2) >= 30, 20000);
    await(load_rig_number("SELECT count(*) FROM ordeal.journal") >= 400, 20000);
    load_rig_stop_workers(5000);

    struct ledger warm = load_rig_open_ledger(0), kept = load_rig_open_ledger(1);
    struct ledger made = load_rig_open_ledger(2);
    load_rig_load_outcomes(&warm);
    load_rig_load_outcomes(&kept);
    load_rig_load_outcomes(&made);
    load_rig_compare_with_table();
    size_t roles[LEDGER_DIRECT + 1] = {0};
    const struct ledger *ledgers[] = {&warm, &kept, &made};
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < ledgers[i]->count; j++) {
            const struct ledger_record *record = &ledgers[i]->records[j];
            if (record->kind != LEDGER_OUTCOME)
                continue;
            ck_assert_uint_ge(record->client, LOAD_FIRST_PROBE);
            roles[record->flags] += record->class == LEDGER_ACKED;
            if (record->flags == LEDGER_DIRECT && record->node == 0)
                ck_assert_int_eq(record->class, LEDGER_UNSENT);
        }
    ck_assert_uint_eq(roles[LEDGER_WORKLOAD], 0);
    ck_assert_uint_ge(roles[LEDGER_ENDPOINT_OLD], 300);
    ck_assert_uint_ge(roles[LEDGER_ENDPOINT_NEW], 15);
    ck_assert_uint_ge(roles[LEDGER_DIRECT], 50);
    /* a new connection for each write */
    ck_assert_uint_ge(load_rig_count_kind(&made, LEDGER_SESSION),
                      load_rig_count_class(&made, LEDGER_ACKED));
    ledger_close(&warm);
    ledger_close(&kept);
    ledger_close(&made);
}
END_TEST

/* As on a standby: the insert fails, the commit is never sent, the connection goes on. */
START_TEST(read_only_node)
{
    load_rig_execute("ALTER SYSTEM SET default_transaction_read_only = on");
    load_rig_execute("SELECT pg_reload_conf()");
    load_rig_make_plan(false, NULL, "{\"nodes\": [\"n2\"]}");
    load_rig_start_workers();
    await(atomic_load(&load_rig_shared->workers[0].errors) >= 100, 10000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    ck_assert_uint_eq(load_rig_count_kind(&ledger, LEDGER_INTENT), 0);
    ck_assert_uint_eq(load_rig_count_kind(&ledger, LEDGER_SESSION), 8); /* none on n1 */
    ck_assert_uint_ge(load_rig_count_class(&ledger, LEDGER_ABORTED), 100);
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_OUTCOME)
            ck_assert_str_eq(ledger.records[i].sqlstate, "25006");
    ledger_close(&ledger);
}
END_TEST

/* A check must be able to tell a worker that did not run from a database that did not answer. */
START_TEST(stopped_worker_is_blind)
{
    load_rig_make_plan(false, "{\"clients\": 2, \"rate\": 50}", NULL);
    load_rig_start_workers();
    await(load_rig_acked(0) >= 10, 10000);
    kill(load_rig_processes[0].pid, SIGSTOP);
    usleep(400000);
    kill(load_rig_processes[0].pid, SIGCONT);
    await(atomic_load(&load_rig_shared->workers[0].blind_ns) >= 300 * NS_PER_MS, 5000);
    load_rig_stop_workers(5000);

    struct ledger ledger = load_rig_open_ledger(0);
    int64_t worst = 0;
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_BEAT) {
            int64_t late = ledger.records[i].done_ns - ledger.records[i].sent_ns;
            worst = late > worst ? late : worst;
        }
    ck_assert_int_ge(worst, 300 * NS_PER_MS);
    ledger_close(&ledger);
}
END_TEST

static Suite *suite(const char *skip_reason)
{
    Suite *result = suite_create("load worker");
    TCase *cases = load_rig_case(result, skip_reason);

    tcase_add_test(cases, two_seconds_of_load);
    tcase_add_test(cases, open_loop_keeps_its_schedule);
    tcase_add_test(cases, killed_worker_leaves_no_hole);
    tcase_add_test(cases, cancelled_wait_is_weak);
    tcase_add_test(cases, terminated_wait_is_in_doubt);
    tcase_add_test(cases, hanging_commit_is_left);
    tcase_add_test(cases, drain_leaves_what_hangs);
    tcase_add_test(cases, server_stops_and_comes_back);
    tcase_add_test(cases, managed_endpoint);
    tcase_add_test(cases, a_moved_endpoint_ends_attempts_at_the_old_host);
    tcase_add_test(cases, missed_starts);
    tcase_add_test(cases, probes);
    tcase_add_test(cases, read_only_node);
    tcase_add_test(cases, stopped_worker_is_blind);
    return result;
}

int main(void)
{
    SRunner *runner = srunner_create(suite(throwaway_isolate()));

    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
