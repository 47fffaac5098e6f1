/* SPDX-License-Identifier: MIT */
/*
 * Where the ticks of the probe on warm connections go. Its clients are played by this file: which
 * of them are free, and what they were told.
 */
#include <check.h>
#include <string.h>

#include "agents/load/client.h"
#include "agents/load/warm.h"
#include "lib/clock.h"
#include "tests/support/suite.h"

enum { HOSTS = 3, LEGS = 2, CLIENTS = 1 + HOSTS * LEGS, INTERVAL_MS = 4 };

static struct arena *arena;
static struct load_plan plan;
static struct load_shared shared;
static struct load_group groups[1 + HOSTS];
static struct client clients[CLIENTS];
static struct worker worker;

/* What the clients were told since the last look. */
static size_t begun[CLIENTS];
static int64_t begun_for_ns[CLIENTS], armed_ns, looked_last_ns;
static size_t found_no_host;
static uint64_t missed;

static bool is_free(struct client *client)
{
    return client->state == CLIENT_IDLE;
}

static void take(struct client *client, int64_t scheduled_ns)
{
    client->state = CLIENT_BEGINNING;
    begun[client->index]++;
    begun_for_ns[client->index] = scheduled_ns;
}

static void find_no_host(struct client *client, int64_t looked_ns)
{
    ck_assert_ptr_eq(client, &clients[0]);
    ck_assert_int_ge(looked_ns, client->scheduled_ns);
    client->has_start = false;
    looked_last_ns = looked_ns;
    found_no_host++;
}

static void miss(struct client *client, uint64_t count)
{
    ck_assert_ptr_eq(client, &clients[0]);
    missed += count;
}

static void arm(struct client *client, int64_t at_ns)
{
    ck_assert_ptr_eq(client, &clients[0]);
    armed_ns = at_ns;
}

static const struct warm_hands hands = {
    .is_free = is_free, .take = take, .found_no_host = find_no_host, .missed = miss, .arm = arm};

static void setup(void)
{
    arena = arena_new();
    plan = (struct load_plan){.managed = true};
    worker = (struct worker){
        .plan = &plan, .shared = &shared, .clients = clients, .client_count = CLIENTS};
    groups[0] = (struct load_group){.pace = LOAD_TICK, .node = -1};
    clients[0] = (struct client){.worker = &worker, .group = &groups[0], .state = CLIENT_TICKING};
    for (size_t i = 1; i < CLIENTS; i++) {
        size_t host = (i - 1) / LEGS;
        groups[1 + host] = (struct load_group){.pace = LOAD_WARM, .node = (int) host};
        clients[i] = (struct client){.worker = &worker,
                                     .group = &groups[1 + host],
                                     .state = CLIENT_IDLE,
                                     .node = (uint16_t) host,
                                     .index = i};
    }
    schedule_init(&clients[0].schedule, clock_boot_ns() - NS_PER_MS, 1000.0 / INTERVAL_MS, 1, 0);
    worker.warm = warm_new(&worker, &hands, arena);
    ck_assert_ptr_nonnull(worker.warm);
    atomic_store(&shared.route, 0);
    memset(begun, 0, sizeof(begun));
    found_no_host = 0;
    missed = 0;
}

static void teardown(void)
{
    arena_free(arena);
}

/* One tick is due now, and no more. */
static void tick(void)
{
    memset(begun, 0, sizeof(begun));
    found_no_host = 0;
    missed = 0;
    clients[0].schedule.next_ns = clock_boot_ns();
    warm_tick(worker.warm);
    ck_assert_int_eq(armed_ns, clients[0].schedule.next_ns);
}

static size_t begun_at(size_t host)
{
    size_t count = 0;

    for (size_t i = 0; i < LEGS; i++)
        count += begun[1 + host * LEGS + i];
    return count;
}

#define assert_begun(at_n1, at_n2, at_n3)                                                          \
    do {                                                                                           \
        ck_assert_uint_eq(begun_at(0), at_n1);                                                     \
        ck_assert_uint_eq(begun_at(1), at_n2);                                                     \
        ck_assert_uint_eq(begun_at(2), at_n3);                                                     \
    } while (0)

/* All writes of a host that are under way end. */
static void end_with(size_t host, enum ledger_class class)
{
    for (size_t i = 0; i < LEGS; i++) {
        struct client *client = &clients[1 + host * LEGS + i];
        if (client->state != CLIENT_BEGINNING)
            continue;
        warm_outcome(worker.warm, client, class);
        client->state = CLIENT_IDLE;
    }
}

static void gone(size_t host)
{
    for (size_t i = 0; i < LEGS; i++)
        clients[1 + host * LEGS + i].state = CLIENT_WAITING;
}

/* --- managed ---------------------------------------------------------------------------------- */

START_TEST(ticks_go_to_the_open_host_in_turn)
{
    tick();
    assert_begun(1, 0, 0);
    ck_assert_uint_eq(begun[1], 1);
    ck_assert_int_eq(begun_for_ns[1], clients[0].scheduled_ns);
    end_with(0, LEDGER_ACKED);
    tick();
    assert_begun(1, 0, 0);
    ck_assert_uint_eq(begun[2], 1);
}
END_TEST

START_TEST(a_closed_endpoint_is_an_outcome_of_each_tick)
{
    atomic_store(&shared.route, LOAD_ROUTE_CLOSED);
    tick();
    ck_assert_uint_eq(found_no_host, 1);
    tick();
    ck_assert_uint_eq(found_no_host, 1);
    assert_begun(0, 0, 0);
    ck_assert_uint_eq(missed, 0);
}
END_TEST

/* Its attempts hang: ticks are missed, not sent to another host, and none waits behind another. */
START_TEST(a_silent_open_host_holds_up_nothing)
{
    for (size_t i = 0; i < LEGS; i++) {
        tick();
        assert_begun(1, 0, 0);
    }
    tick();
    assert_begun(0, 0, 0);
    ck_assert_uint_eq(missed, 0); /* it waits until the next one comes */
    tick();
    ck_assert_uint_eq(missed, 1);
    atomic_store(&shared.route, LOAD_ROUTE_CLOSED);
    tick();
    ck_assert_uint_eq(found_no_host, 1);
    atomic_store(&shared.route, 1);
    tick();
    assert_begun(0, 1, 0);
}
END_TEST

START_TEST(a_tick_that_waits_takes_the_first_free_connection)
{
    for (size_t i = 0; i <= LEGS; i++)
        tick();
    int64_t waiting_ns = clients[0].scheduled_ns;
    warm_outcome(worker.warm, &clients[2], LEDGER_ACKED);
    clients[2].state = CLIENT_IDLE;
    warm_idle(worker.warm);
    ck_assert_uint_eq(begun[2], 1);
    ck_assert_int_eq(begun_for_ns[2], waiting_ns);
    clients[1].state = CLIENT_IDLE; /* nothing waits any more */
    warm_idle(worker.warm);
    ck_assert_uint_eq(begun[1], 0);
}
END_TEST

/* No tick is due, and yet somebody looks the moment that the endpoint opens. */
START_TEST(a_moved_endpoint_is_looked_at_at_once)
{
    tick();
    memset(begun, 0, sizeof(begun));
    atomic_store(&shared.route, 2);
    warm_rerouted(worker.warm);
    assert_begun(0, 0, 1);
    ck_assert_int_lt(begun_for_ns[1 + 2 * LEGS], clients[0].schedule.next_ns);
}
END_TEST

/* Until it opened it led nowhere: that is seen once, as of then, and not when it only moved. */
START_TEST(the_opening_itself_is_a_look)
{
    atomic_store(&shared.route, LOAD_ROUTE_CLOSED);
    tick();
    int64_t opened_ns = clock_boot_ns();
    atomic_store(&shared.routed_ns, opened_ns);
    atomic_store(&shared.route, 1);
    found_no_host = 0;
    warm_rerouted(worker.warm);
    ck_assert_uint_eq(found_no_host, 1);
    ck_assert_int_eq(looked_last_ns, opened_ns);
    assert_begun(0, 1, 0);
    ck_assert_int_ge(begun_for_ns[1 + LEGS], opened_ns);
    tick();
    ck_assert_uint_eq(found_no_host, 0);
    atomic_store(&shared.route, 2);
    tick();
    ck_assert_uint_eq(found_no_host, 0);
    assert_begun(0, 0, 1);
}
END_TEST

START_TEST(no_look_before_the_schedule_begins)
{
    schedule_init(&clients[0].schedule, clock_boot_ns() + NS_PER_SECOND, 1000.0 / INTERVAL_MS, 1,
                  0);
    warm_rerouted(worker.warm);
    assert_begun(0, 0, 0);
}
END_TEST

/* A worker that was kept from running looks once, and says what it missed. */
START_TEST(late_ticks_are_one)
{
    clients[0].schedule.next_ns = clock_boot_ns() - (3 * INTERVAL_MS + 1) * NS_PER_MS;
    warm_tick(worker.warm);
    assert_begun(1, 0, 0);
    ck_assert_uint_eq(missed, 3);
    ck_assert_int_le(clock_boot_ns() - begun_for_ns[1], 2 * INTERVAL_MS * NS_PER_MS);
}
END_TEST

START_TEST(a_refusing_host_answers_the_tick_that_waits)
{
    int64_t scheduled_ns = 0;

    gone(0);
    tick();
    ck_assert(!warm_take_refused(worker.warm, &clients[1 + LEGS], &scheduled_ns)); /* not open */
    ck_assert(warm_take_refused(worker.warm, &clients[1], &scheduled_ns));
    ck_assert_int_eq(scheduled_ns, clients[0].scheduled_ns);
    ck_assert(!warm_take_refused(worker.warm, &clients[2], &scheduled_ns)); /* answered already */
}
END_TEST

/* --- by hosts --------------------------------------------------------------------------------- */

static void setup_hosts(void)
{
    setup();
    plan.managed = false;
}

/* Nobody knows who writes: each host is asked, by one attempt, until one takes it. */
START_TEST(every_host_is_asked_until_one_takes_a_write)
{
    tick();
    assert_begun(1, 1, 1);
    ck_assert_int_eq(begun_for_ns[1], begun_for_ns[1 + LEGS]);
    end_with(0, LEDGER_ABORTED);
    end_with(1, LEDGER_ACKED);
    end_with(2, LEDGER_ABORTED);
    tick();
    assert_begun(0, 1, 0);
    end_with(1, LEDGER_WEAK);
    tick();
    assert_begun(0, 1, 0);
}
END_TEST

START_TEST(a_refusal_sends_the_ticks_to_the_others)
{
    static const enum ledger_class refusals[] = {LEDGER_ABORTED, LEDGER_UNSENT, LEDGER_IN_DOUBT};

    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        warm_outcome(worker.warm, &clients[1], LEDGER_ACKED);
        tick();
        assert_begun(1, 0, 0);
        end_with(0, refusals[i]);
        tick();
        assert_begun(1, 1, 1);
        for (size_t host = 0; host < HOSTS; host++)
            end_with(host, LEDGER_ABORTED);
    }
}
END_TEST

/* It says nothing at all: its connections fill up, and then the others are asked. */
START_TEST(a_silent_writer_does_not_hide_the_next)
{
    warm_outcome(worker.warm, &clients[1], LEDGER_ACKED);
    for (size_t i = 0; i < LEGS; i++)
        tick();
    tick();
    assert_begun(0, 1, 1);
    end_with(1, LEDGER_ACKED);
    end_with(2, LEDGER_ABORTED);
    tick();
    assert_begun(0, 1, 0);
    end_with(0, LEDGER_UNSENT); /* at last; it is not the writer any more */
    end_with(1, LEDGER_ACKED);
    tick();
    assert_begun(0, 1, 0);
}
END_TEST

START_TEST(a_host_without_connections_is_passed_over)
{
    int64_t scheduled_ns;

    warm_outcome(worker.warm, &clients[1], LEDGER_ACKED);
    gone(0);
    gone(1);
    tick();
    assert_begun(0, 0, 1);
    gone(2);
    tick();
    assert_begun(0, 0, 0);
    /* one host of several that refuses says nothing of the endpoint */
    ck_assert(!warm_take_refused(worker.warm, &clients[1], &scheduled_ns));
}
END_TEST

int main(void)
{
    const TTest *const managed[] = {ticks_go_to_the_open_host_in_turn,
                                    a_closed_endpoint_is_an_outcome_of_each_tick,
                                    a_silent_open_host_holds_up_nothing,
                                    a_tick_that_waits_takes_the_first_free_connection,
                                    a_moved_endpoint_is_looked_at_at_once,
                                    the_opening_itself_is_a_look,
                                    no_look_before_the_schedule_begins,
                                    late_ticks_are_one,
                                    a_refusing_host_answers_the_tick_that_waits};
    const TTest *const hosts[] = {
        every_host_is_asked_until_one_takes_a_write, a_refusal_sends_the_ticks_to_the_others,
        a_silent_writer_does_not_hide_the_next, a_host_without_connections_is_passed_over};
    int failed = run_suite("warm connections, managed endpoint", 20, setup, teardown, managed,
                           sizeof managed / sizeof managed[0]);

    return run_suite("warm connections, endpoint by hosts", 20, setup_hosts, teardown, hosts,
                     sizeof hosts / sizeof hosts[0]) |
           failed;
}
