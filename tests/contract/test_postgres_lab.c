/* SPDX-License-Identifier: MIT */
/*
 * The PostgreSQL methods as the orchestrator uses them: over the wire, by real agents, on the
 * lab's quorum cluster. A failover and the two ways back, by hand. What single methods do in odd
 * states is tested in tests/unit/test_postgres_*.c.
 */
#include <check.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "lib/process.h"
#include "topologies/cluster.h"

enum { LAB_MS = 60000, CALL_MS = 60000, WAIT_MS = 20000 };

static char program[PATH_MAX], lab_name[32], topology_path[PATH_MAX];
static struct cluster *cluster;
static struct arena *arena;

static enum status lab(const char *word, struct error *err)
{
    const char *argv[] = {program, "lab", word, "--name", lab_name, NULL};

    return process_run(&(struct process_spec){.argv = argv, .timeout_ms = LAB_MS}, NULL, err);
}

static void up(void)
{
    struct error err = {0};

    ck_assert_msg(lab("up", &err) == STATUS_OK, "%s", err.message);
}

static void down(void)
{
    struct error err = {0};

    ck_assert_msg(lab("down", &err) == STATUS_OK, "%s", err.message);
}

static void connect_all(void)
{
    struct error err = {0};
    struct topology *topology = NULL;
    struct cluster_options options = {.run = "by-hand", .lease_ms = 5000, .heartbeat_ms = 500};

    arena = arena_new();
    struct yaml_errors errors = {.arena = arena, .file = topology_path};
    ck_assert_msg(topology_load(arena, topology_path, &topology, &errors, &err) == STATUS_OK, "%s",
                  err.message);
    ck_assert_msg(cluster_new(topology, &options, &cluster, &err) == STATUS_OK, "%s", err.message);
    ck_assert_msg(cluster_wait_connected(cluster, NULL, deadline_in_ms(WAIT_MS), &err) == STATUS_OK,
                  "%s", err.message);
}

static void disconnect_all(void)
{
    cluster_free(cluster);
    arena_free(arena);
}

/* Takes params (NULL: {}); adds the run to those that change a node. */
static json_t *call(const char *node, const char *method, json_t *params)
{
    struct error err = {0};
    json_t *result = NULL;
    enum status status = cluster_call(cluster, node, method, params, CALL_MS, &result, &err);

    ck_assert_msg(status == STATUS_OK, "%s on %s: %s (%s)", method, node, err.message, err.detail);
    return result;
}

static json_t *run_params(void)
{
    return json_pack("{s:s}", "run", "by-hand");
}

static json_t *from(const char *source)
{
    return json_pack("{s:s, s:s}", "run", "by-hand", "source", source);
}

static json_t *scoped(const char *key, const char *value)
{
    return json_pack("{s:s, s:s}", "run", "by-hand", key, value);
}

static void do_call(const char *node, const char *method, json_t *params)
{
    json_decref(call(node, method, params));
}

static void wait_streaming(const char *node, int64_t timeline)
{
    int64_t deadline_ns = deadline_in_ms(WAIT_MS);

    for (;;) {
        OWNED_JSON json_t *state = call(node, "postgres.state", NULL);
        const json_t *receiver = json_object_get(state, "receiver");
        if (strcmp(json_text(receiver, "status", ""), "streaming") == 0 &&
            json_number(state, "timeline", 0) == timeline)
            return;
        ck_assert_msg(!deadline_passed(deadline_ns), "%s does not stream on timeline %d: %s", node,
                      (int) timeline, json_text(receiver, "status", "no walreceiver"));
    }
}

static void check_waits(const char *node)
{
    OWNED_JSON json_t *result = call(node, "postgres.quorum-wait", run_params());

    ck_assert(json_flag(result, "waited", false));
    ck_assert_int_gt(json_number(result, "ack_ns", 0), 0);
    ck_assert_uint_ge(json_array_size(json_object_get(result, "standbys")), 1);
}

static void fail_over(void)
{
    do_call("n2", "postgres.receiver", run_params());
    do_call("n3", "postgres.receiver", run_params());
    do_call("n1", "postgres.fence", run_params());
    OWNED_JSON json_t *promoted = call("n2", "postgres.promote", run_params());
    ck_assert_int_eq(json_number(promoted, "timeline", 0), 2);
    ck_assert_uint_gt(pg_lsn_parse(json_text(promoted, "fork_lsn", "")), 0);
    do_call("n2", "postgres.slots",
            json_pack("{s:s, s:[s, s]}", "run", "by-hand", "ensure", "n1", "n3"));
    do_call("n3", "postgres.receiver", from("n2"));
    check_waits("n2");
    wait_streaming("n3", 2);
}

static void come_back(void)
{
    do_call("n1", "postgres.rewind", from("n2"));
    do_call("n1", "postgres.start", run_params());
    wait_streaming("n1", 2);
    do_call("n3", "postgres.stop", scoped("mode", "fast"));
    OWNED_JSON json_t *sums = call("n3", "postgres.checksums", scoped("scope", "all"));
    ck_assert_int_gt(json_number(sums, "blocks", 0), 0);
    ck_assert_int_eq(json_number(sums, "bad", -1), 0);
    OWNED_JSON json_t *one = call("n3", "postgres.checksums", scoped("scope", "ordeal"));
    ck_assert_int_gt(json_number(one, "blocks", 0), 0);
    ck_assert_int_lt(json_number(one, "blocks", 0), json_number(sums, "blocks", 0));
    do_call("n3", "postgres.rebuild", from("n2"));
    do_call("n3", "postgres.start", run_params());
    wait_streaming("n3", 2);
}

static void examine(void)
{
    static const char *const nodes[] = {"n1", "n2", "n3"};

    for (size_t i = 0; i < 3; i++) {
        OWNED_JSON json_t *tokens = call(nodes[i], "postgres.tokens", run_params());
        ck_assert(json_flag(tokens, "agree", false));
    }
    OWNED_JSON json_t *verified = call("n2", "postgres.verify", run_params());
    ck_assert(json_flag(verified, "ok", false));
    OWNED_JSON json_t *relations = call("n2", "postgres.amcheck", scoped("database", "ordeal"));
    ck_assert_int_gt(json_number(relations, "relations", 0), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(relations, "problems")), 0);
}

START_TEST(test_failover_by_hand)
{
    connect_all();
    static const char *const nodes[] = {"n1", "n2", "n3"};
    for (size_t i = 0; i < 3; i++) {
        OWNED_JSON json_t *facts = call(nodes[i], "postgres.preflight", NULL);
        const json_t *logins = json_object_get(facts, "logins");
        ck_assert_uint_eq(json_array_size(logins), 2);
        ck_assert(json_flag(json_array_get(logins, 0), "ok", false));
        ck_assert(json_flag(json_array_get(logins, 1), "ok", false));
    }
    do_call("n1", "load.prepare", run_params());
    check_waits("n1");
    fail_over();
    come_back();
    examine();
    do_call("n2", "load.prepare", json_pack("{s:s, s:b}", "run", "by-hand", "drop", 1));
    disconnect_all();
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("postgres lab");
    TCase *labs = tcase_create("lab");
    char self[PATH_MAX];

    (void) argc;
    if (realpath(argv[0], self) == NULL) /* BUILD/tests/contract/NAME */
        return 1;
    snprintf(program, sizeof program, "%.4000s/ordeal", dirname(dirname(dirname(self))));
    snprintf(lab_name, sizeof lab_name, "pgtest%d", (int) getpid());
    snprintf(topology_path, sizeof topology_path, "/var/lib/ordeal/labs/%s/topology.yaml",
             lab_name);
    tcase_add_unchecked_fixture(labs, up, down);
    tcase_set_timeout(labs, 180);
    tcase_add_test(labs, test_failover_by_hand);
    suite_add_tcase(suite, labs);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
