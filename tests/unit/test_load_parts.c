/* SPDX-License-Identifier: MIT */
/* The parts of a load worker that need no database: schedule, timers, statements, plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/load/descriptors.h"
#include "agents/load/plan.h"
#include "agents/load/schedule.h"
#include "agents/load/statement.h"
#include "agents/load/timers.h"
#include "lib/clock.h"
#include "lib/ledger.h"
#include "lib/owned.h"
#include "tests/support/suite.h"

static struct arena *arena;

static void setup(void)
{
    arena = arena_new();
}

static void teardown(void)
{
    arena_free(arena);
}

/* --- schedule --------------------------------------------------------------------------------- */

START_TEST(starts_are_spread_over_clients)
{
    enum { CLIENTS = 5, EACH = 200 };
    struct schedule schedules[CLIENTS];
    bool seen[CLIENTS * EACH] = {false};

    for (size_t i = 0; i < CLIENTS; i++)
        schedule_init(&schedules[i], NS_PER_SECOND, 500, CLIENTS, i);
    for (size_t i = 0; i < CLIENTS * EACH; i++) {
        int64_t at = schedule_take(&schedules[i % CLIENTS], INT64_MAX) - NS_PER_SECOND;
        ck_assert_int_eq(at % (2 * NS_PER_MS), 0);
        ck_assert_int_lt(at / (2 * NS_PER_MS), CLIENTS * EACH);
        ck_assert(!seen[at / (2 * NS_PER_MS)]);
        seen[at / (2 * NS_PER_MS)] = true;
    }
}
END_TEST

START_TEST(late_starts_are_served_then_dropped)
{
    struct schedule schedule;
    int64_t limit = SCHEDULE_LATE_MS * NS_PER_MS;

    schedule_init(&schedule, 0, 10, 1, 0);
    ck_assert(schedule_due(&schedule, 0));
    ck_assert_uint_eq(schedule_drop_late(&schedule, limit - 1), 0);
    ck_assert_int_eq(schedule_take(&schedule, limit - 1), 0);
    ck_assert_int_eq(schedule.next_ns, 100 * NS_PER_MS);
    ck_assert_uint_eq(schedule_drop_late(&schedule, limit + 500 * NS_PER_MS), 5);
    ck_assert_int_eq(schedule.next_ns, 600 * NS_PER_MS);
    ck_assert_uint_eq(schedule_drop_due(&schedule, 1000 * NS_PER_MS), 5);
    ck_assert(!schedule_due(&schedule, 1000 * NS_PER_MS));
    ck_assert_uint_eq(schedule_drop_due(&schedule, 1000 * NS_PER_MS), 0);
}
END_TEST

/* An instrument that was kept from running has no use for what it should have looked at then. */
START_TEST(only_the_newest_start_is_taken)
{
    struct schedule schedule;
    uint64_t missed = 99;

    schedule_init(&schedule, 1000, 1e9 / 100, 1, 0); /* every 100 ns */
    ck_assert_int_eq(schedule_take_newest(&schedule, 1000, &missed), 1000);
    ck_assert_uint_eq(missed, 0);
    ck_assert_int_eq(schedule_take_newest(&schedule, 1399, &missed), 1300);
    ck_assert_uint_eq(missed, 2);
    ck_assert_int_eq(schedule.next_ns, 1400);
}
END_TEST

START_TEST(closed_loop_is_always_due)
{
    struct schedule schedule;

    schedule_init(&schedule, 5, 0, 3, 2);
    ck_assert(!schedule_due(&schedule, 4));
    for (int64_t now = 5; now < 5 * NS_PER_SECOND; now += NS_PER_SECOND) {
        ck_assert_uint_eq(schedule_drop_late(&schedule, now), 0);
        ck_assert(schedule_due(&schedule, now));
        ck_assert_int_eq(schedule_take(&schedule, now), now);
    }
}
END_TEST

/* --- timers ----------------------------------------------------------------------------------- */

static int64_t fired[512];
static size_t fired_count;
static struct timers timers;

static void fire(void *argument)
{
    struct timer *timer = argument;

    fired[fired_count++] = timer->at_ns;
}

static void again(void *argument)
{
    fire(argument);
    timer_arm(&timers, argument, 0);
}

START_TEST(timers_come_in_order)
{
    enum { COUNT = 300 };
    static struct timer all[COUNT];

    timers_init(&timers, arena, COUNT);
    fired_count = 0;
    ck_assert_int_eq(timers_next(&timers), INT64_MAX);
    for (int i = 0; i < COUNT; i++) {
        all[i] = (struct timer){.call = fire, .argument = &all[i]};
        timer_arm(&timers, &all[i], i * 7919 % 1009);
    }
    for (int i = 0; i < COUNT; i += 3) /* move some, disarm others */
        timer_arm(&timers, &all[i], i * 104729 % 997);
    for (int i = 1; i < COUNT; i += 3) {
        timer_disarm(&timers, &all[i]);
        timer_disarm(&timers, &all[i]);
    }
    ck_assert_uint_eq(timers.count, COUNT - COUNT / 3);
    timers_run(&timers, 500);
    ck_assert_int_gt(timers_next(&timers), 500);
    for (size_t i = 0; i < fired_count; i++)
        ck_assert_int_le(fired[i], 500);
    timers_run(&timers, 2000);
    ck_assert_uint_eq(fired_count, COUNT - COUNT / 3);
    for (size_t i = 1; i < fired_count; i++)
        ck_assert_int_le(fired[i - 1], fired[i]);
}
END_TEST

START_TEST(a_timer_for_the_past_waits_its_turn)
{
    struct timer timer = {.call = again, .argument = &timer};

    timers_init(&timers, arena, 1);
    fired_count = 0;
    timer_arm(&timers, &timer, 0);
    timers_run(&timers, 10);
    ck_assert_uint_eq(fired_count, 1);
    timers_run(&timers, 10);
    ck_assert_uint_eq(fired_count, 2);
}
END_TEST

/* --- statements ------------------------------------------------------------------------------- */

static const char *skip(const char *at, const char *expected)
{
    ck_assert_msg(strncmp(at, expected, strlen(expected)) == 0, "%.60s is not %s", at, expected);
    return at + strlen(expected);
}

/* Read the rows out of the text again: numbers, digest and payload belong together. */
START_TEST(insert_carries_its_digests)
{
    struct statement statement;
    char expected[64];

    statement_init(&statement, arena, 3, 100);
    const char *at = statement_insert(&statement, true, 4294967295, INT64_MAX, 3, 100);
    at = skip(at, "ROLLBACK;BEGIN;INSERT INTO "
                  "ordeal.journal(client,seq,row,rows,digest,payload)VALUES");
    for (unsigned row = 1; row <= 3; row++) {
        char *end;
        snprintf(expected, sizeof(expected), "%s(4294967295,9223372036854775807,%u,3,",
                 row > 1 ? "," : "", row);
        at = skip(at, expected);
        int64_t digest = strtoll(at, &end, 10);
        at = skip(end, ",'");
        ck_assert_uint_eq(strspn(at, "abcdefghijklmnop"), 100);
        ck_assert_int_eq(digest, ledger_digest(4294967295, INT64_MAX, row, at, 100));
        at = skip(at + 100, "')");
    }
    skip(at, STATEMENT_IN_FORCE);
}
END_TEST

START_TEST(payloads_differ)
{
    struct statement first, second;

    statement_init(&first, arena, 1, 64);
    statement_init(&second, arena, 1, 64);
    statement_insert(&first, false, 1, 1, 1, 64);
    for (uint64_t seq = 2; seq < 100; seq++) {
        statement_insert(&second, false, 1, seq, 1, 64);
        ck_assert_str_ne(strchr(first.text, '\''), strchr(second.text, '\''));
    }
    statement_insert(&second, false, 1, 1, 1, 64);
    ck_assert_str_eq(first.text, second.text);
    statement_insert(&second, false, 1, 1, 1, 0);
    ck_assert_ptr_nonnull(strstr(second.text, ",'')" STATEMENT_IN_FORCE));
}
END_TEST

START_TEST(timeline_of_a_wal_file)
{
    ck_assert_uint_eq(statement_timeline("000000020000000000000003"), 2);
    ck_assert_uint_eq(statement_timeline("0000001A0000000000000003"), 26);
    ck_assert_uint_eq(statement_timeline(""), 0);
    ck_assert_uint_eq(statement_timeline("00000002"), 0);
    ck_assert_uint_eq(statement_timeline("0000000g0000000000000003"), 0);
}
END_TEST

/* --- plan ------------------------------------------------------------------------------------- */

static char spool[64];

static void make_spool(void)
{
    snprintf(spool, sizeof(spool), "/tmp/ordeal-plan-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(spool));
}

static void make_file(const char *name)
{
    OWNED_FILE FILE *file = fopen(arena_printf(arena, "%s/%s", spool, name), "we");

    ck_assert_ptr_nonnull(file);
}

static void remove_spool(void)
{
    OWNED_DIR DIR *folder = opendir(spool);

    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        unlink(arena_printf(arena, "%s/%s", spool, entry->d_name));
    ck_assert_int_eq(rmdir(spool), 0);
}

static struct load_plan *new_plan(void)
{
    struct load_plan *plan = arena_alloc(arena, sizeof(*plan));

    *plan = (struct load_plan){.run = "r",
                               .client_node = "c1",
                               .node_count = 3,
                               .nodes = {{.name = "n1"}, {.name = "n2"}, {.name = "c1"}},
                               .endpoint_count = 2,
                               .endpoint = {0, 1}};
    return plan;
}

START_TEST(plan_cuts_clients_into_workers)
{
    struct load_plan *plan = new_plan();
    struct error err = {0};
    OWNED_JSON json_t *workload =
        json_pack("{s:i, s:f, s:i}", "clients", 600, "rate", 1000.0, "first_client", 11);
    OWNED_JSON json_t *probes = json_object();
    struct load_request request = {.workload = workload, .probes = probes, .seed = 1};

    make_spool();
    make_file("c1-worker-2.ledger");
    make_file("c1-worker-7.ledger.part");
    make_file("c10-worker-9.ledger");
    ck_assert_msg(load_plan_fill(plan, arena, &request, spool, &err) == STATUS_OK, "%s",
                  err.message);
    ck_assert_uint_eq(plan->worker_count, 6);
    size_t clients = 0;
    uint32_t next_probe = LOAD_FIRST_PROBE + 2 * LOAD_PROBES_PER_START;
    for (size_t i = 0; i < plan->worker_count; i++) {
        ck_assert_uint_eq(plan->workers[i].number, 3 + i);
        for (size_t j = 0; j < plan->workers[i].group_count; j++) {
            const struct load_group *group = &plan->workers[i].groups[j];
            if (group->role != LEDGER_WORKLOAD)
                continue;
            ck_assert_uint_eq(group->first_client, 11 + clients);
            ck_assert_uint_eq(group->offset, clients);
            ck_assert_uint_eq(group->of, 600);
            ck_assert_uint_le(group->clients, LOAD_CLIENTS_PER_WORKER);
            clients += group->clients;
        }
    }
    ck_assert_uint_eq(clients, 600);
    /* numbers of probes are dense over all probe workers, and not those of an earlier start */
    uint32_t seen = 0;
    for (size_t i = 3; i < 6; i++)
        for (size_t j = 0; j < plan->workers[i].group_count; j++) {
            const struct load_group *group = &plan->workers[i].groups[j];
            ck_assert_uint_ge(group->first_client, next_probe);
            seen += (uint32_t) group->clients;
            ck_assert_uint_le(group->first_client + group->clients,
                              next_probe + LOAD_PROBES_PER_START);
        }
    ck_assert_uint_eq(seen, 1 + 2 * 8 + 8 + 2 * (1 + 5));
    /* the ticks first, then as many warm connections to each host of the endpoint */
    const struct load_group *warm = plan->workers[3].groups;
    ck_assert_uint_eq(plan->workers[3].group_count, 3);
    ck_assert_int_eq(warm[0].pace, LOAD_TICK);
    ck_assert_uint_eq(warm[0].clients, 1);
    ck_assert_double_gt(warm[0].rate, 0);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(warm[1 + i].pace, LOAD_WARM);
        ck_assert_int_eq(warm[1 + i].node, plan->endpoint[i]);
        ck_assert_uint_eq(warm[1 + i].clients, 8);
    }
    ck_assert_str_eq(plan->workers[0].path, arena_printf(arena, "%s/c1-worker-3.ledger", spool));
    remove_spool();
}
END_TEST

START_TEST(descriptors_are_closed)
{
    int ends[2], others[2];

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(pipe(others), 0);
    pid_t child = fork();
    if (child == 0) {
        descriptors_close_all_but(ends, 2);
        bool right = write(others[1], "x", 1) < 0 && write(ends[1], "x", 1) == 1;
        _exit(right ? 0 : 1);
    }
    char byte = 0;
    int wait_status = -1;
    ck_assert_int_eq(waitpid(child, &wait_status, 0), child);
    ck_assert_int_eq(wait_status, 0);
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    ck_assert_int_eq(byte, 'x');
    for (int i = 0; i < 2; i++)
        close(ends[i]), close(others[i]);
}
END_TEST

TEST_MAIN("load parts", 20, setup, teardown, starts_are_spread_over_clients,
          late_starts_are_served_then_dropped, only_the_newest_start_is_taken,
          closed_loop_is_always_due, timers_come_in_order, a_timer_for_the_past_waits_its_turn,
          insert_carries_its_digests, payloads_differ, timeline_of_a_wal_file,
          plan_cuts_clients_into_workers, descriptors_are_closed)
