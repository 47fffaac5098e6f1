/* SPDX-License-Identifier: MIT */
/* Methods load.* of an agent, against a real primary and standby with TLS and SCRAM. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "agents/load/worker.h"
#include "agents/method.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "tests/support/postgres_fixture.h"

extern const struct method load_methods[];

/* --- an agent that only remembers what it is told --------------------------------------------- */

struct agent {
    struct loop *loop;
    json_t *status, *ended; /* the last notification of each kind */
    unsigned statuses;
    void (*on_session_end)(void *argument);
    void *argument;
};

static struct agent agent;

struct loop *agent_loop(struct agent *of)
{
    return of->loop;
}

void agent_notify(struct agent *of, const char *method, json_t *params)
{
    bool is_status = strcmp(method, "load.status") == 0;

    ck_assert(is_status || strcmp(method, "load.ended") == 0);
    ck_assert_ptr_nonnull(params);
    json_t **place = is_status ? &of->status : &of->ended;
    json_decref(*place);
    *place = params;
    of->statuses += is_status;
}

void agent_on_session_end(struct agent *of, void (*call)(void *argument), void *argument)
{
    ck_assert_ptr_null(of->on_session_end); /* one slot a module */
    of->on_session_end = call;
    of->argument = argument;
}

/* --- calls ------------------------------------------------------------------------------------ */

static struct postgres_fixture *fixture;
static struct session session;

static void servers_up(void)
{
    fixture = postgres_fixture_new(2);
    postgres_fixture_query(fixture, 0,
                           "CREATE SCHEMA ordeal AUTHORIZATION ordeal_load;"
                           "CREATE TABLE ordeal.journal(client bigint, seq bigint, row smallint,"
                           " rows smallint, digest bigint, payload text);"
                           "ALTER TABLE ordeal.journal OWNER TO ordeal_load;"
                           "CREATE INDEX ON ordeal.journal(client, seq)");
}

static void servers_down(void)
{
    postgres_fixture_free(fixture);
}

static void setup(void)
{
    char spool[] = "/tmp/ordeal-spool-XXXXXX";

    ck_assert_ptr_nonnull(mkdtemp(spool));
    agent = (struct agent){0};
    ck_assert_int_eq(loop_new(&agent.loop, NULL), STATUS_OK);
    session = *postgres_fixture_session(fixture, 0);
    session.node = "c1";
    session.spool = arena_strdup(fixture->arena, spool);
}

static void teardown(void)
{
    const char *argv[] = {"rm", "-rf", session.spool, NULL};

    ck_assert_int_eq(
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = 10000}, NULL, NULL),
        STATUS_OK);
    loop_free(agent.loop);
    json_decref(agent.status);
    json_decref(agent.ended);
}

static enum status try_call(const char *name, json_t *params, json_t **ret_result,
                            struct error *err)
{
    OWNED_JSON json_t *owned = params;
    struct method_call call = {.agent = &agent, .session = &session, .params = owned};

    for (const struct method *method = load_methods; method->name != NULL; method++)
        if (strcmp(method->name, name) == 0)
            return method->call(&call, ret_result, err);
    ck_abort_msg("no method %s", name);
}

static json_t *call_method(const char *name, json_t *params)
{
    json_t *result = NULL;
    struct error err = {0};

    if (try_call(name, params, &result, &err) != STATUS_OK)
        ck_abort_msg("%s: %s", name, err.message);
    return result;
}

static void do_call(const char *name, json_t *params)
{
    json_decref(call_method(name, params));
}

/* Turn the agent's loop until the condition holds. */
#define turn_until(condition, timeout_ms)                                                          \
    do {                                                                                           \
        int64_t turn_until_ns = deadline_in_ms(timeout_ms);                                        \
        while (!(condition)) {                                                                     \
            ck_assert_msg(!deadline_passed(turn_until_ns), "waited in vain for %s", #condition);   \
            ck_assert_int_eq(loop_turn(agent.loop, 20, NULL), STATUS_OK);                          \
        }                                                                                          \
    } while (0)

static int64_t status_number(const char *member)
{
    return json_number(agent.status, member, -1);
}

static json_t *end_load(void)
{
    do_call("load.stop", json_pack("{s:s}", "run", "test-run"));
    ck_assert_ptr_null(agent.ended); /* the answer comes first */
    turn_until(agent.ended != NULL, 15000);
    return agent.ended;
}

static void end_session(void)
{
    void (*call)(void *) = agent.on_session_end;

    ck_assert_ptr_nonnull(call);
    agent.on_session_end = NULL; /* as the agent does */
    call(agent.argument);
}

static void forget(void)
{
    json_decref(agent.ended);
    json_decref(agent.status);
    agent.ended = agent.status = NULL;
}

static struct ledger open_ledger(const char *file)
{
    struct ledger ledger = {0};
    char path[512];
    struct error err = {0};

    snprintf(path, sizeof(path), "%s/%s", session.spool, file);
    if (ledger_open(path, &ledger, &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
    return ledger;
}

static size_t count(const struct ledger *ledger, enum ledger_role role, int node,
                    enum ledger_class class)
{
    size_t found = 0;

    for (size_t i = 0; i < ledger->count; i++)
        found += ledger->records[i].kind == LEDGER_OUTCOME && ledger->records[i].flags == role &&
                 ledger->records[i].class == class && (node < 0 || ledger->records[i].node == node);
    return found;
}

static void check_route_refused(const char *host)
{
    json_t *result = NULL;
    struct error err;

    ck_assert_int_eq(try_call("load.route",
                              json_pack("{s:s, s:b, s:s?}", "run", "r", "open", 1, "host", host),
                              &result, &err),
                     STATUS_INVALID);
}

/* The probes' numbers: one that ticks, 8 warm ones to each of two hosts, 8 of endpoint-new. */
enum { FIRST_WARM = 1000001, FIRST_NEW = FIRST_WARM + 16, FIRST_DIRECT = FIRST_NEW + 8 };

/* Rows that these have written. */
static int64_t written(size_t server, int first, int end)
{
    const char *sql = arena_printf(fixture->arena,
                                   "SELECT count(*) FROM ordeal.journal"
                                   " WHERE client >= %d AND client < %d",
                                   first, end);

    return strtoll(postgres_fixture_query(fixture, server, sql), NULL, 10);
}

static int64_t connections(size_t server)
{
    return strtoll(postgres_fixture_query(fixture, server,
                                          "SELECT count(*) FROM pg_stat_activity WHERE backend_type"
                                          " = 'client backend' AND pid <> pg_backend_pid()"),
                   NULL, 10);
}

/* --- tests ------------------------------------------------------------------------------------ */

START_TEST(workload_and_probes)
{
    OWNED_JSON json_t *started =
        call_method("load.start", json_pack("{s:s, s:{s:i, s:f, s:i}, s:{}, s:n, s:i}", "run",
                                            "test-run", "workload", "clients", 4, "rate", 200.0,
                                            "rows", 2, "probes", "route", "seed", 42));
    json_t *files = json_object_get(started, "files");
    ck_assert_uint_eq(json_array_size(files), 4);
    ck_assert_str_eq(json_string_value(json_array_get(files, 0)), "c1-worker-1.ledger");

    turn_until(status_number("acked") >= 300, 20000);
    turn_until(written(0, FIRST_WARM, FIRST_NEW) >= 50 && written(0, FIRST_NEW, FIRST_DIRECT) >= 5,
               20000);
    ck_assert_str_eq(json_text(agent.status, "writer", ""), "n1");
    ck_assert_int_eq(status_number("timeline"), 1);
    ck_assert_int_eq(status_number("workers_alive"), 4);
    double rate = json_real_value(json_object_get(agent.status, "rate"));
    ck_assert_msg(rate > 50 && rate < 400, "rate is %g", rate);
    ck_assert_int_gt(status_number("p50_us"), 0);
    ck_assert_int_ge(status_number("p99_us"), status_number("p50_us"));
    ck_assert_int_lt(status_number("now_ns") - status_number("last_ack_ns"), 500 * NS_PER_MS);

    const json_t *ended = end_load();
    ck_assert(json_is_true(json_object_get(ended, "complete")));
    ck_assert_uint_eq(json_array_size(json_object_get(ended, "ledgers")), 4);
    struct ledger warm = open_ledger("c1-worker-2.ledger");
    ck_assert_uint_ge(count(&warm, LEDGER_ENDPOINT_OLD, 0, LEDGER_ACKED), 50);
    ledger_close(&warm);
    struct ledger kept = open_ledger("c1-worker-3.ledger");
    ck_assert_uint_ge(count(&kept, LEDGER_DIRECT, 0, LEDGER_ACKED), 50);
    ck_assert_uint_ge(count(&kept, LEDGER_DIRECT, 1, LEDGER_ABORTED), 50);
    ck_assert_uint_eq(count(&kept, LEDGER_DIRECT, 1, LEDGER_ACKED), 0);
    for (size_t i = 0; i < kept.count; i++)
        if (kept.records[i].kind == LEDGER_SESSION && kept.records[i].flags == LEDGER_DIRECT)
            ck_assert_uint_eq(kept.records[i].timeline, kept.records[i].node == 0 ? 1 : 0);
    ledger_close(&kept);
    struct ledger made = open_ledger("c1-worker-4.ledger");
    ck_assert_uint_ge(count(&made, LEDGER_ENDPOINT_NEW, 0, LEDGER_ACKED), 5);
    ck_assert_uint_ge(count(&made, LEDGER_DIRECT, 1, LEDGER_ABORTED), 1);
    ledger_close(&made);
}
END_TEST

START_TEST(refuses_wrong_parameters)
{
    struct {
        json_t *params;
        const char *text;
    } cases[] = {
        {json_pack("{s:s}", "run", "r"), "neither a workload nor probes"},
        {json_pack("{s:s, s:{s:i}}", "run", "r", "workload", "clints", 4), "clints"},
        {json_pack("{s:s, s:{s:i}}", "run", "r", "workload", "clients", 0), "clients"},
        {json_pack("{s:s, s:{s:i, s:i}}", "run", "r", "workload", "rows", 1000, "payload", 1000000),
         "bytes"},
        {json_pack("{s:s, s:{s:[s]}}", "run", "r", "probes", "nodes", "n9"), "n9"},
        {json_pack("{s:s, s:{}, s:{s:b, s:s}}", "run", "r", "workload", "route", "open", 1, "host",
                   "n9"),
         "n9"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        json_t *result = NULL;
        ck_assert_int_eq(try_call("load.start", cases[i].params, &result, &err), STATUS_INVALID);
        ck_assert_msg(strstr(err.message, cases[i].text) != NULL, "%s: %s", cases[i].text,
                      err.message);
    }
    ck_assert_uint_eq(load_last_worker(session.spool, "c1"), 0);
}
END_TEST

START_TEST(one_load_at_a_time)
{
    json_t *result = NULL;
    struct error err;

    do_call("load.start", json_pack("{s:s, s:{}}", "run", "test-run", "workload"));
    ck_assert_int_eq(try_call("load.start", json_pack("{s:s, s:{}}", "run", "test-run", "workload"),
                              &result, &err),
                     STATUS_CONFLICT);
    check_route_refused("n1"); /* this endpoint is not managed */
    end_load();
}
END_TEST

START_TEST(managed_route)
{
    session.endpoint_managed = true;
    do_call("load.start", json_pack("{s:s, s:{s:i}}", "run", "test-run", "workload", "clients", 4));
    turn_until(status_number("errors") >= 4, 10000);
    ck_assert_int_eq(status_number("acked"), 0);
    check_route_refused("n9");
    check_route_refused(NULL);
    /* a standby is not taken for the endpoint, even when the manager opens it there */
    do_call("load.route", json_pack("{s:s, s:b, s:s}", "run", "r", "open", 1, "host", "n2"));
    int64_t errors = status_number("errors");
    turn_until(status_number("errors") >= errors + 8, 10000);
    ck_assert_int_eq(status_number("acked"), 0);
    do_call("load.route", json_pack("{s:s, s:b, s:s}", "run", "r", "open", 1, "host", "n1"));
    turn_until(status_number("acked") >= 20, 10000);
    end_load();
}
END_TEST

/* Commits wait for a standby that does not exist. */
static void wait_for_nobody(bool on)
{
    postgres_fixture_query(fixture, 0,
                           on ? "ALTER SYSTEM SET synchronous_standby_names = 'nobody'"
                              : "ALTER SYSTEM RESET synchronous_standby_names");
    postgres_fixture_query(fixture, 0, "SELECT pg_reload_conf()");
}

static int64_t waiters(void)
{
    return strtoll(postgres_fixture_query(fixture, 0,
                                          "SELECT count(*) FROM pg_stat_activity"
                                          " WHERE wait_event = 'SyncRep'"),
                   NULL, 10);
}

static bool is_of_probe(const struct ledger_record *record, enum ledger_kind kind)
{
    return record->kind == kind && record->flags == LEDGER_ENDPOINT_OLD;
}

/* The connection on which the probe wrote first was made before the endpoint opened. */
static void check_was_warm(const struct ledger *ledger, int64_t opened_ns)
{
    const struct ledger_record *write = NULL, *made = NULL;

    for (size_t i = 0; i < ledger->count && write == NULL; i++)
        if (is_of_probe(&ledger->records[i], LEDGER_INTENT))
            write = &ledger->records[i];
    ck_assert_ptr_nonnull(write);
    ck_assert_int_ge(write->sent_ns, opened_ns);
    for (size_t i = 0; i < ledger->count && made == NULL; i++)
        if (is_of_probe(&ledger->records[i], LEDGER_SESSION) &&
            ledger->records[i].client == write->client)
            made = &ledger->records[i];
    ck_assert_ptr_nonnull(made);
    ck_assert_int_lt(made->done_ns, opened_ns);
}

/*
 * While the endpoint is closed each tick looks; when it opens, connections are there; and when the
 * open host says nothing more, and the endpoint is closed again, the looks go on.
 */
START_TEST(warm_connections)
{
    session.endpoint_managed = true;
    do_call("load.start", json_pack("{s:s, s:{}}", "run", "test-run", "probes"));
    turn_until(status_number("errors") >= 50 && connections(0) >= 9, 20000);
    ck_assert_int_eq(status_number("acked"), 0);
    int64_t opened_ns = clock_boot_ns();
    do_call("load.route", json_pack("{s:s, s:b, s:s}", "run", "r", "open", 1, "host", "n1"));
    turn_until(status_number("acked") >= 50, 20000);
    wait_for_nobody(true);
    turn_until(waiters() >= 8, 20000);
    do_call("load.route", json_pack("{s:s, s:b}", "run", "r", "open", 0));
    int64_t before = status_number("errors");
    turn_until(status_number("errors") >= before + 50, 20000);
    ck_assert_int_ge(waiters(), 8);
    wait_for_nobody(false);
    end_load();

    struct ledger warm = open_ledger("c1-worker-1.ledger");
    check_was_warm(&warm, opened_ns);
    for (size_t i = 0; i < warm.count; i++)
        if (warm.records[i].class == LEDGER_UNSENT && warm.records[i].kind == LEDGER_OUTCOME)
            ck_assert_int_eq(warm.records[i].phase, LEDGER_CONNECTING);
    ledger_close(&warm);
}
END_TEST

/* The endpoint is opened for a session, whether its load has begun or not. */
START_TEST(route_before_start)
{
    session.endpoint_managed = true;
    do_call("load.route", json_pack("{s:s, s:b, s:s}", "run", "r", "open", 1, "host", "n1"));
    do_call("load.start", json_pack("{s:s, s:{}}", "run", "test-run", "workload"));
    turn_until(status_number("acked") >= 20, 10000);
    end_load();
    forget();
    end_session();
    do_call("load.start",
            json_pack("{s:s, s:{s:i}}", "run", "test-run", "workload", "first_client", 101));
    turn_until(status_number("errors") >= 8, 10000);
    ck_assert_int_eq(status_number("acked"), 0);
    end_load();
}
END_TEST

static pid_t child_of(pid_t parent)
{
    char path[64];
    pid_t child = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int) parent, (int) parent);
    OWNED_FILE FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d", &child), 1);
    return child;
}

START_TEST(killed_worker_is_noticed)
{
    do_call("load.start", json_pack("{s:s, s:{}}", "run", "test-run", "workload"));
    turn_until(status_number("acked") >= 20, 10000);
    kill(child_of(getpid()), SIGKILL);
    turn_until(status_number("workers_alive") == 0, 5000);
    const json_t *ended = end_load();
    const json_t *worker = json_array_get(json_object_get(ended, "ledgers"), 0);
    ck_assert(json_is_false(json_object_get(ended, "complete")));
    ck_assert(json_is_false(json_object_get(worker, "complete")));
    ck_assert_str_eq(json_text(worker, "error", ""), "the worker was killed");
    struct ledger ledger = open_ledger(json_text(worker, "file", ""));
    ck_assert(!ledger.ended);
    ck_assert_uint_ge(count(&ledger, LEDGER_WORKLOAD, 0, LEDGER_ACKED), 20);
    ledger_close(&ledger);
}
END_TEST

/* The flusher dies: the worker ends what it has begun, but its ledger gets no END. */
START_TEST(lost_flusher_ends_the_worker)
{
    do_call("load.start", json_pack("{s:s, s:{}}", "run", "test-run", "workload"));
    turn_until(status_number("acked") >= 20, 10000);
    kill(child_of(child_of(getpid())), SIGKILL);
    turn_until(status_number("workers_alive") == 0, 10000);
    const json_t *ended = end_load();
    const json_t *worker = json_array_get(json_object_get(ended, "ledgers"), 0);
    ck_assert(json_is_false(json_object_get(worker, "complete")));
    ck_assert_ptr_nonnull(strstr(json_text(worker, "error", ""), "flushes"));
}
END_TEST

START_TEST(no_room_for_a_ledger)
{
    struct rlimit limit = {.rlim_cur = 65536, .rlim_max = RLIM_INFINITY};

    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    do_call("load.start", json_pack("{s:s, s:{}}", "run", "test-run", "workload"));
    turn_until(status_number("workers_alive") == 0, 5000);
    const json_t *ended = end_load();
    const json_t *worker = json_array_get(json_object_get(ended, "ledgers"), 0);
    ck_assert(json_is_false(json_object_get(ended, "complete")));
    ck_assert_ptr_nonnull(strstr(json_text(worker, "error", ""), "File too large"));
}
END_TEST

/* As after the agent's restart: nothing runs, the ledgers are there. */
START_TEST(stop_lists_what_an_earlier_agent_left)
{
    do_call("load.start", json_pack("{s:s, s:{}}", "run", "test-run", "workload"));
    turn_until(status_number("acked") >= 20, 10000);
    end_load();
    forget();
    do_call("load.start",
            json_pack("{s:s, s:{s:i}}", "run", "test-run", "workload", "first_client", 101));
    turn_until(status_number("acked") >= 20 && status_number("workers_alive") == 1, 10000);
    kill(child_of(getpid()), SIGKILL);
    turn_until(status_number("workers_alive") == 0, 5000);
    end_load();
    forget();

    const json_t *ended = end_load();
    const json_t *workers = json_object_get(ended, "ledgers");
    ck_assert(json_is_false(json_object_get(ended, "complete")));
    ck_assert_uint_eq(json_array_size(workers), 2);
    ck_assert(json_is_true(json_object_get(json_array_get(workers, 0), "complete")));
    ck_assert(json_is_false(json_object_get(json_array_get(workers, 1), "complete")));
    ck_assert_str_eq(json_text(json_array_get(workers, 1), "file", ""), "c1-worker-2.ledger");
}
END_TEST

START_TEST(session_end_stops_the_load)
{
    do_call("load.start", json_pack("{s:s, s:{}}", "run", "test-run", "workload"));
    turn_until(status_number("acked") >= 20, 10000);
    pid_t worker = child_of(getpid());
    end_session();
    unsigned statuses = agent.statuses;
    turn_until(kill(worker, 0) != 0, 5000);
    ck_assert_uint_eq(agent.statuses, statuses);
    ck_assert_ptr_null(agent.ended);
    /* it ended in order, and another load may start */
    struct ledger ledger = open_ledger("c1-worker-1.ledger");
    ck_assert(ledger.ended);
    ledger_close(&ledger);
    do_call("load.start",
            json_pack("{s:s, s:{s:i}}", "run", "test-run", "workload", "first_client", 101));
    end_load();
}
END_TEST

/* The probe writes on connections that it made while their host was a standby. */
static void check_warm_clients(const struct ledger *ledger)
{
    size_t warm = 0, acked = 0;
    bool made_anew = false;

    for (size_t i = 0; i < ledger->count; i++) {
        const struct ledger_record *record = &ledger->records[i];
        if (record->flags != LEDGER_ENDPOINT_OLD || record->node != 1)
            continue;
        warm += record->kind == LEDGER_SESSION && record->timeline == 0;
        made_anew = made_anew || record->kind == LEDGER_SESSION_END;
        if (record->kind == LEDGER_OUTCOME && record->class == LEDGER_ACKED && !made_anew) {
            ck_assert_uint_eq(record->timeline, 2);
            acked++;
        }
    }
    ck_assert_uint_eq(warm, 8);
    ck_assert_uint_ge(acked, 8);
}

/* Promoted under the probes' open connections: their writes are placed on the new timeline. */
START_TEST(promotion_under_open_connections)
{
    do_call("load.start", json_pack("{s:s, s:{s:f}, s:{}}", "run", "test-run", "workload", "rate",
                                    50.0, "probes"));
    turn_until(status_number("acked") >= 50 && written(0, FIRST_WARM, FIRST_NEW) >= 50, 20000);
    turn_until(connections(1) >= 9, 20000); /* a direct one, too */
    postgres_fixture_stop(fixture, 0, "immediate");
    postgres_fixture_query(fixture, 1, "SELECT pg_promote()");
    turn_until(strcmp(json_text(agent.status, "writer", ""), "n2") == 0, 10000);
    ck_assert_int_eq(status_number("timeline"), 2);
    int64_t before = status_number("acked");
    turn_until(status_number("acked") >= before + 30, 20000);
    int64_t warm_before = written(1, FIRST_WARM, FIRST_NEW);
    turn_until(written(1, FIRST_WARM, FIRST_NEW) >= warm_before + 16, 20000);
    end_load();

    struct ledger warm = open_ledger("c1-worker-2.ledger");
    check_warm_clients(&warm);
    ledger_close(&warm);
    struct ledger kept = open_ledger("c1-worker-3.ledger");
    size_t direct = 0, promoted = 0;
    for (size_t i = 0; i < kept.count; i++) {
        const struct ledger_record *record = &kept.records[i];
        if (record->flags != LEDGER_DIRECT || record->node != 1)
            continue;
        if (record->kind == LEDGER_OUTCOME && record->class == LEDGER_ACKED) {
            ck_assert_uint_eq(record->timeline, 2);
            direct++;
        }
        promoted += record->kind == LEDGER_SESSION && record->timeline == 2;
    }
    ck_assert_uint_ge(direct, 20);
    ck_assert_uint_ge(promoted, 1);
    ledger_close(&kept);
}
END_TEST

static Suite *suite(void)
{
    Suite *result = suite_create("load methods");
    TCase *cases = tcase_create("against PostgreSQL");
    const char *reason = NULL;

    if (!postgres_fixture_possible(&reason)) {
        printf("not run: %s\n", reason);
        return result;
    }
    tcase_set_timeout(cases, 90);
    tcase_add_unchecked_fixture(cases, servers_up, servers_down);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, workload_and_probes);
    tcase_add_test(cases, refuses_wrong_parameters);
    tcase_add_test(cases, one_load_at_a_time);
    tcase_add_test(cases, managed_route);
    tcase_add_test(cases, warm_connections);
    tcase_add_test(cases, route_before_start);
    tcase_add_test(cases, killed_worker_is_noticed);
    tcase_add_test(cases, lost_flusher_ends_the_worker);
    tcase_add_test(cases, no_room_for_a_ledger);
    tcase_add_test(cases, stop_lists_what_an_earlier_agent_left);
    tcase_add_test(cases, session_end_stops_the_load);
    tcase_add_test(cases, promotion_under_open_connections);
    suite_add_tcase(result, cases);
    return result;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());

    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
