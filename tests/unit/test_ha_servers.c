/* SPDX-License-Identifier: MIT */
/*
 * The runbook of `ha: manual` on three real servers: the methods of the agent run in processes of
 * their own as its jobs do; only the wire between is missing.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "tests/support/postgres_fixture.h"
#include "tests/support/suite.h"
#include "topologies/ha/ha.h"

enum { SERVERS = 3, ANSWER_MAXIMUM = 1 << 20 };

static struct postgres_fixture *fixture;
static struct topology_node nodes[SERVERS + 1];
static struct topology topology;
static struct ha ha;
static const char *route; /* where the endpoint is open */
static bool writers_hang;
static struct buffer story = {.maximum = 100000}; /* events, one a line */

/* ---- cluster.h ---- */

static size_t server_of(const char *node)
{
    size_t i = 0;

    while (i < SERVERS && strcmp(nodes[i].name, node) != 0)
        i++;
    return i;
}

/* In a child: the answer as one JSON object on the pipe. */
static void answer(const struct cluster_request *request, int fd)
{
    json_t *result = NULL;
    struct error err = {0};

    enum status status = postgres_fixture_try(fixture, server_of(request->node), request->method,
                                              request->params, &result, &err);
    json_t *message = status == STATUS_OK ? json_pack("{s:o}", "result", result)
                                          : json_pack("{s:o}", "error", json_from_error(&err));
    _exit(json_dumpfd(message, fd, 0) == 0 ? 0 : 1);
}

static int begin_request(const struct cluster_request *request)
{
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        close(ends[0]);
        answer(request, ends[1]);
    }
    close(ends[1]);
    return ends[0];
}

static void end_request(struct cluster_request *request, int fd)
{
    OWNED_BUFFER struct buffer text = BUFFER(ANSWER_MAXIMUM);
    OWNED_JSON json_t *message = NULL;
    char part[4096];
    ssize_t length;

    while ((length = read(fd, part, sizeof part)) > 0)
        buffer_append(&text, part, (size_t) length);
    close(fd);
    ck_assert_int_eq(json_parse_text(buffer_text(&text), text.length, &message, NULL), STATUS_OK);
    request->result = json_incref(json_object_get(message, "result"));
    request->status = STATUS_OK;
    if (request->result == NULL)
        request->status = json_to_error(json_object_get(message, "error"), &request->error);
    json_decref(request->params);
}

static void answer_route(struct cluster_request *request)
{
    size_t server = server_of(json_text(request->params, "host", ""));

    route = json_flag(request->params, "open", false) ? nodes[server].name : NULL;
    request->status = STATUS_OK;
    request->result = json_object();
    json_decref(request->params);
}

void cluster_call_all(struct cluster *cluster, struct cluster_request *requests, size_t count)
{
    int fds[SERVERS + 2];

    (void) cluster;
    ck_assert_uint_le(count, SERVERS + 2);
    for (size_t i = 0; i < count; i++)
        fds[i] = server_of(requests[i].node) < SERVERS ? begin_request(&requests[i]) : -1;
    for (size_t i = 0; i < count; i++) {
        if (fds[i] >= 0)
            end_request(&requests[i], fds[i]);
        else
            answer_route(&requests[i]);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

enum status cluster_call(struct cluster *cluster, const char *node, const char *method,
                         json_t *params, int64_t timeout_ms, json_t **ret_result, struct error *err)
{
    struct cluster_request request = {
        .node = node, .method = method, .params = params, .timeout_ms = timeout_ms};

    cluster_call_all(cluster, &request, 1);
    if (request.status != STATUS_OK && err != NULL)
        *err = request.error;
    if (request.status == STATUS_OK && ret_result != NULL)
        *ret_result = request.result;
    else
        json_decref(request.result);
    return request.status;
}

enum status cluster_wait(struct cluster *cluster, bool (*done)(void *argument), void *argument,
                         int64_t deadline_ns, struct error *err)
{
    (void) cluster;
    while (!done(argument)) {
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "the deadline passed");
        poll(NULL, 0, 10);
    }
    return STATUS_OK;
}

bool cluster_connected(const struct cluster *cluster, const char *node)
{
    (void) cluster;
    (void) node;
    return true;
}

const char *cluster_run(const struct cluster *cluster)
{
    (void) cluster;
    return "run-1";
}

struct loop *cluster_loop(struct cluster *cluster)
{
    (void) cluster;
    return NULL; /* only fence scripts use it */
}

/* ---- the scene ---- */

static void note_event(void *argument, const char *event, const char *node, json_t *details)
{
    (void) argument;
    buffer_printf(&story, "%s %s %s %s\n", event, node, json_text(details, "how", ""),
                  json_text(details, "text", ""));
    json_decref(details);
}

static int64_t last_ack(void *argument)
{
    static int64_t last_ns;

    (void) argument;
    if (!writers_hang && route != NULL)
        last_ns = clock_boot_ns();
    return last_ns;
}

static void set_sync_set(size_t server)
{
    static const char *const others[] = {"n2, n3", "n1, n3", "n1, n2"};

    postgres_fixture_query(fixture, server,
                           arena_printf(fixture->arena,
                                        "ALTER SYSTEM SET synchronous_standby_names = "
                                        "'ANY 1 (%s)'",
                                        others[server]));
    postgres_fixture_query(fixture, server, "SELECT pg_reload_conf()");
    postgres_fixture_wait(fixture, server,
                          "SELECT current_setting('synchronous_standby_names') <> ''", "t");
}

static void setup(void)
{
    struct error err = {0};

    fixture = postgres_fixture_new(SERVERS);
    for (size_t i = 0; i < SERVERS; i++) {
        nodes[i] = (struct topology_node){.name = fixture->servers[i].name,
                                          .address = fixture->servers[i].address,
                                          .roles = ROLE_DATABASE};
        set_sync_set(i);
    }
    nodes[SERVERS] = (struct topology_node){.name = "c1", .roles = ROLE_CLIENT};
    topology = (struct topology){.name = "servers", .node_count = SERVERS + 1, .nodes = nodes};
    topology.promise.durability = "quorum";
    topology.ha.fence = "control";
    topology.ha.management_network = true;
    topology.ha.detect_ms = 1000;
    topology.endpoint.managed = true;
    ha = (struct ha){.driver = ha_find("manual"),
                     .topology = &topology,
                     .event = note_event,
                     .last_ack = last_ack};
    ck_assert_msg(ha.driver->begin(&ha, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_gt(last_ack(NULL), 0);
    postgres_fixture_query(fixture, 0, "CREATE TABLE public.kept (number integer)");
}

static void teardown(void)
{
    ha.driver->end(&ha);
    buffer_done(&story);
    postgres_fixture_free(fixture);
}

static void assert_told(const char *text)
{
    ck_assert_msg(strstr(buffer_text(&story), text) != NULL, "not told: %s\n%s", text,
                  buffer_text(&story));
}

/* Attend until the endpoint is open on that node, or for as long as said. */
static void attend_until(const char *node, int64_t timeout_ms)
{
    int64_t deadline_ns = deadline_in_ms(timeout_ms);
    struct error err = {0};

    while (!deadline_passed(deadline_ns) &&
           (node == NULL || route == NULL || strcmp(route, node) != 0)) {
        ck_assert_msg(ha.driver->attend(&ha, &err) == STATUS_OK, "%s", err.message);
        poll(NULL, 0, 50);
    }
    ck_assert_msg(node == NULL || (route != NULL && strcmp(route, node) == 0),
                  "the endpoint is not open on %s:\n%s", node, buffer_text(&story));
}

static void recover(int64_t timeout_ms)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state state;
    struct error err = {0};

    ck_assert_msg(ha.driver->recover(&ha, deadline_in_ms(timeout_ms), &err) == STATUS_OK,
                  "%s (%s)\n%s", err.message, err.detail, buffer_text(&story));
    ck_assert_int_eq(ha_ask(&ha, arena, &state, NULL), STATUS_OK);
    ck_assert_msg(ha_healthy(&state, &err), "%s", err.message);
}

static void assert_kept(size_t server, const char *count)
{
    postgres_fixture_wait(fixture, server, "SELECT count(*) FROM public.kept", count);
}

/* ---- tests ---- */

START_TEST(a_killed_primary_is_replaced_and_comes_back_by_rewind)
{
    postgres_fixture_query(fixture, 0, "INSERT INTO public.kept SELECT generate_series(1, 100)");
    json_decref(postgres_fixture_call(fixture, 0, "postgres.fence", NULL));
    writers_hang = true;
    attend_until("n2", 20000);
    writers_hang = false;
    assert_told("ha.fence n1");
    assert_told("ha.promote n2");
    assert_told("ha.route n2");
    assert_kept(1, "100");
    postgres_fixture_query(fixture, 1, "INSERT INTO public.kept VALUES (101)");
    recover(60000);
    assert_told("ha.rejoin n1 rewind");
    assert_kept(0, "101");
    assert_kept(2, "101");
    ck_assert_str_eq(
        postgres_fixture_query(fixture, 0, "SELECT count(*) FROM pg_replication_slots"), "0");
    ck_assert_str_eq(postgres_fixture_query(fixture, 1,
                                            "SELECT string_agg(slot_name, ' ' ORDER BY 1) FROM "
                                            "pg_replication_slots WHERE active"),
                     "n1 n3");
}
END_TEST

START_TEST(the_standby_that_lags_is_not_chosen)
{
    json_decref(postgres_fixture_call(fixture, 1, "postgres.receiver", NULL));
    postgres_fixture_query(fixture, 0, "INSERT INTO public.kept SELECT generate_series(1, 100)");
    json_decref(postgres_fixture_call(fixture, 0, "postgres.fence", NULL));
    writers_hang = true;
    attend_until("n3", 20000);
    assert_kept(2, "100");
    assert_kept(1, "100");
}
END_TEST

START_TEST(a_frozen_primary_is_fenced_and_replaced)
{
    OWNED_JSON json_t *state = postgres_fixture_call(fixture, 0, "postgres.state", NULL);
    struct process_id postmaster = {
        .pid = (pid_t) json_number(state, "pid", 0),
        .start_ticks = (uint64_t) json_number(state, "start_ticks", 0),
    };

    ck_assert_int_eq(process_signal(postmaster, SIGSTOP, NULL), STATUS_OK);
    writers_hang = true;
    attend_until("n2", 20000);
    assert_told("is frozen); fenced by control");
    ck_assert(!process_alive(postmaster));
}
END_TEST

/* The views go on for a minute; only a commit tells. */
START_TEST(a_primary_that_is_cut_off_is_asked_for_a_commit)
{
    json_decref(postgres_fixture_call(fixture, 1, "postgres.receiver", NULL));
    json_decref(postgres_fixture_call(fixture, 2, "postgres.receiver", NULL));
    writers_hang = true;
    attend_until("n2", 20000);
    assert_told("ha.fence n1  the primary runs and is cut off");
}
END_TEST

START_TEST(a_standby_with_broken_data_is_built_anew)
{
    postgres_fixture_query(fixture, 0, "INSERT INTO public.kept VALUES (1)");
    postgres_fixture_stop(fixture, 2, "immediate");
    ck_assert_int_eq(
        unlink(arena_printf(fixture->arena, "%s/global/pg_control", fixture->servers[2].data)), 0);
    recover(60000);
    assert_told("ha.rejoin n3 rebuild");
    assert_kept(2, "1");
}
END_TEST

START_TEST(both_standbys_lost_is_waited_out)
{
    postgres_fixture_stop(fixture, 1, "immediate");
    postgres_fixture_stop(fixture, 2, "immediate");
    writers_hang = true;
    attend_until(NULL, 3000);
    assert_told("ha.wait n1  the primary is well and waits for its quorum: 0 of 1");
    ck_assert_ptr_null(strstr(buffer_text(&story), "ha.fence"));
    recover(60000);
    assert_told("ha.rejoin n2 start");
    assert_told("ha.rejoin n3 start");
    postgres_fixture_query(fixture, 0, "INSERT INTO public.kept VALUES (1)");
    assert_kept(1, "1");
}
END_TEST

START_TEST(primary_and_one_standby_lost_is_refused_and_recovered)
{
    postgres_fixture_query(fixture, 0, "INSERT INTO public.kept VALUES (1)");
    postgres_fixture_stop(fixture, 2, "immediate");
    json_decref(postgres_fixture_call(fixture, 0, "postgres.fence", NULL));
    writers_hang = true;
    attend_until(NULL, 3000);
    assert_told("ha.refuse n1");
    ck_assert_ptr_null(strstr(buffer_text(&story), "ha.promote"));
    recover(60000);
    ck_assert_str_eq(route, "n1");
    assert_kept(2, "1");
}
END_TEST

TEST_MAIN("ha servers", 120, setup, teardown, a_killed_primary_is_replaced_and_comes_back_by_rewind,
          the_standby_that_lags_is_not_chosen, a_frozen_primary_is_fenced_and_replaced,
          a_primary_that_is_cut_off_is_asked_for_a_commit, a_standby_with_broken_data_is_built_anew,
          both_standbys_lost_is_waited_out, primary_and_one_standby_lost_is_refused_and_recovered)
