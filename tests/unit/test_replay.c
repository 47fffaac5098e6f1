/* SPDX-License-Identifier: MIT */
/*
 * The schedule of a recorded run once more: a seed decides what a target leaves open, a replay
 * leaves nothing open, and a recorded scenario reads back as the same scenario.
 */
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "lib/version.h"
#include "orchestrator/replay.h"
#include "tests/support/suite.h"

enum { NODES = 5, DRAWS = 40 };

static struct topology_node nodes[NODES] = {
    {.name = "n1", .zone = "a", .roles = ROLE_DATABASE},
    {.name = "n2", .zone = "b", .roles = ROLE_DATABASE},
    {.name = "n3", .zone = "c", .roles = ROLE_DATABASE},
    {.name = "n4", .zone = "a", .roles = ROLE_DATABASE},
    {.name = "n5", .zone = "b", .roles = ROLE_DATABASE},
};
static struct topology topology = {.name = "test",
                                   .node_count = NODES,
                                   .nodes = nodes,
                                   .ha = {.manager = "manual", .fence = "control"},
                                   .promise = {.durability = "quorum"},
                                   .database = {.version = 15}};
static struct ha_member members[NODES];
static struct ha_state state;
static struct arena *arena;
static struct record record;
static struct replay replay;
static char folder[64], second[64];

static void set_primary(size_t primary)
{
    for (size_t i = 0; i < NODES; i++)
        members[i] = (struct ha_member){.node = &nodes[i],
                                        .reachable = true,
                                        .running = true,
                                        .primary = i == primary,
                                        .streaming = i != primary,
                                        .sync = i != primary};
    state = (struct ha_state){
        .primary = &nodes[primary], .primary_count = 1, .count = NODES, .members = members};
}

static void setup(void)
{
    arena = arena_new();
    set_primary(0);
    strcpy(folder, "/tmp/ordeal-replay-XXXXXX");
    strcpy(second, "/tmp/ordeal-replay-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_ptr_nonnull(mkdtemp(second));
    record = (struct record){.folder = folder, .events = json_array()};
    replay = (struct replay){.record = &record, .topology = &topology};
}

static void remove_folder(const char *path)
{
    static const char *const names[] = {"s.yaml", "replay.yaml", "schedule.txt"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(arena_printf(arena, "%s/%s", path, names[i]));
    rmdir(path);
}

static void teardown(void)
{
    replay_done(&replay);
    json_decref(record.events);
    remove_folder(folder);
    remove_folder(second);
    arena_free(arena);
}

static struct scenario *load(const char *path)
{
    struct yaml_errors errors = {.arena = arena};
    struct scenario_file read = {0};
    struct error err = {0};

    ck_assert_msg(scenario_load(arena, path, NULL, &read, &errors, &err) == STATUS_OK, "%s: %s",
                  path, errors.count > 0 ? errors.texts[0] : err.message);
    return read.scenario;
}

static void write_text(const char *in, const char *name, const char *text)
{
    OWNED_FILE FILE *file = fopen(arena_printf(arena, "%s/%s", in, name), "we");

    ck_assert_ptr_nonnull(file);
    fputs(text, file);
}

/* ---- scenarios ---- */

/* Everything but the method, which a replay pins. */
static void expect_round_trip(const char *path)
{
    static const char *const pinned[] = {"method", "name", "repeat"};
    struct scenario *scenario = load(path);
    struct error err = {0};

    if (scenario == NULL)
        return; /* a profile */
    OWNED_JSON json_t *recorded = scenario_json(scenario);
    OWNED_JSON json_t *file = scenario_file_json(recorded);
    json_object_set_new(file, "method", json_array());
    const char *copy = arena_printf(arena, "%s/s.yaml", folder);
    ck_assert_int_eq(json_write_file(copy, file, &err), STATUS_OK);
    OWNED_JSON json_t *again = scenario_json(load(copy));
    for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++) {
        json_object_del(recorded, pinned[i]);
        json_object_del(again, pinned[i]);
    }
    OWNED_MEMORY char *was = json_dumps(recorded, JSON_SORT_KEYS);
    OWNED_MEMORY char *is = json_dumps(again, JSON_SORT_KEYS);
    ck_assert_msg(json_equal(recorded, again), "%s\n%s\n%s", path, was, is);
}

START_TEST(every_shipped_scenario_reads_back_as_itself)
{
    glob_t found = {0};

    ck_assert_int_eq(glob("scenarios/*.yaml", 0, NULL, &found), 0);
    ck_assert_uint_gt(found.gl_pathc, 5);
    for (size_t i = 0; i < found.gl_pathc; i++)
        expect_round_trip(found.gl_pathv[i]);
    globfree(&found);
}
END_TEST

START_TEST(every_key_reads_back)
{
    write_text(folder, "replay.yaml",
               "schema: ordeal/scenario-1\ntitle: \"All: \\\"of\\\" it, \xc3\xa4\"\n"
               "description: two\nseed: 9\nrepeat: { times: 3, spread: 7s }\n"
               "workload: { clients: 3, rate: 12.5/s, rows: 4, payload: 1KiB, drain: 250ms }\n"
               "probes: { interval: 7ms, connections: 3, direct-interval: 90ms }\n"
               "steady-state:\n  - probe: writes.available\n"
               "  - { probe: writes.p99, at-most: 150ms }\n"
               "  - { probe: writes.rate, at-least: 2.5/s }\n"
               "  - { probe: replication.lag, at-most: 1MiB }\n"
               "  - { probe: replication.streaming, at-least: 2 }\n"
               "stop-conditions:\n  - { probe: writes.available, false-for: 90s }\n"
               "baseline: { for: 1500ms }\nrecovery: { timeout: 61s, settle: 10ms }\n"
               "minimum-exposure: 17\nha: { acts: no }\nmethod: []\n"
               "checks: { durability: {}, failover-time: { max: 31s } }\n");
    expect_round_trip(arena_printf(arena, "%s/replay.yaml", folder));
}
END_TEST

/* ---- seeds ---- */

static const char *draw(const struct target *target, uint64_t seed)
{
    OWNED_BUFFER struct buffer text = BUFFER(4096);
    struct target_scope scope = {.topology = &topology, .state = &state, .random = &seed};
    struct error err = {0};

    for (int i = 0; i < DRAWS; i++) {
        struct target_nodes found;
        ck_assert_int_eq(target_resolve(arena, target, &scope, &found, &err), STATUS_OK);
        for (size_t j = 0; j < found.count; j++)
            buffer_printf(&text, "%s ", found.nodes[j]->name);
    }
    return arena_strdup(arena, buffer_text(&text));
}

START_TEST(a_seed_gives_one_sequence_of_targets)
{
    static const struct target targets[] = {
        {.role = "standby", .mode = TARGET_ONE},
        {.role = "standby", .mode = TARGET_COUNT, .count = 2},
        {.role = "any", .mode = TARGET_PERCENT, .percent = 50},
    };

    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        ck_assert_str_eq(draw(&targets[i], 42), draw(&targets[i], 42));
        ck_assert_str_ne(draw(&targets[i], 42), draw(&targets[i], 43));
    }
}
END_TEST

/* ---- a recorded run ---- */

static json_t *list(const char *one, const char *two)
{
    return two != NULL ? json_pack("[s, s]", one, two) : json_pack("[s]", one);
}

static void record_members(void)
{
    for (size_t i = 0; i < NODES; i++)
        json_array_append_new(record.events,
                              json_pack("{s:s, s:s, s:s, s:b}", "event", "member", "node",
                                        nodes[i].name, "role", i == 0 ? "primary" : "standby",
                                        "sync", i != 0));
}

static void record_step(const char *name, int64_t offset_ms, json_t *targets, json_t *params)
{
    json_array_append_new(record.events,
                          json_pack("{s:s, s:s, s:I, s:o, s:o}", "event", "step.start", "step",
                                    name, "offset_ms", (json_int_t) offset_ms, "targets", targets,
                                    "params", params));
}

static const char *method = "method:\n"
                            "  - { name: lot, fault: process.freeze, for: 900ms, optional: true,\n"
                            "      target: { role: standby, mode: 2, process: walreceiver } }\n"
                            "  - { name: rest, pause: 400ms }\n"
                            "  - { name: cut, fault: network.partition, for: 3s, after: lot,\n"
                            "      target: { role: primary }, with: { peers: others },\n"
                            "      expect: { failover: yes, writes: stall } }\n";

/* The run of that method: n2 and n4 were drawn; the last step followed the first. */
static void record_run(void)
{
    write_text(folder, "s.yaml",
               arena_printf(arena, "schema: ordeal/scenario-1\ntitle: T\n%s", method));
    json_t *scenario = scenario_json(load(arena_printf(arena, "%s/s.yaml", folder)));
    json_array_append_new(
        record.events,
        json_pack(
            "{s:s, s:s, s:s, s:o, s:I, s:{s:s, s:{s:i}, s:{s:s}, s:{s:s, s:s}, s:[i,i,i,i,i]}}",
            "event", "run.start", "run", "R1", "ordeal", ORDEAL_VERSION, "scenario", scenario,
            "seed", (json_int_t) 7, "topology", "name", "test", "database", "version", 15,
            "promise", "durability", "quorum", "ha", "manager", "manual", "fence", "control",
            "nodes", 1, 2, 3, 4, 5));
    record.start = json_array_get(record.events, 0);
    record_members();
    record_step("lot", 0, list("n2", "n4"),
                json_pack("{s:s, s:s}", "process", "walreceiver", "method", "signal"));
    record_step("rest", 911, json_array(), json_object());
    record_step("cut", 912, list("n1", NULL),
                json_pack("{s:s, s:s, s:[s,s,s,s]}", "direction", "both", "mode", "drop", "peers",
                          "n2", "n3", "n4", "n5"));
}

static struct scenario *pinned(bool follow)
{
    struct error err = {0};

    ck_assert_msg(replay_check(&replay, &err) == STATUS_OK, "%s", err.message);
    ck_assert_msg(replay_place(&replay, &state, follow, &err) == STATUS_OK, "%s", err.message);
    const char *path = arena_printf(arena, "%s/replay.yaml", folder);
    ck_assert_int_eq(replay_write(&replay, path, &err), STATUS_OK);
    return load(path);
}

/* "OFFSET name node,node (list: node,node) hold": what a step would do with any seed. */
static const char *resolved(const struct scenario *scenario, uint64_t seed)
{
    OWNED_BUFFER struct buffer text = BUFFER(8192);
    struct error err = {0};

    for (size_t i = 0; i < scenario->step_count; i++) {
        const struct step *step = &scenario->steps[i];
        struct target_scope scope = {.topology = &topology, .state = &state, .random = &seed};
        struct target_nodes found = {0};

        ck_assert_int_eq(step->timing, STEP_AT_START);
        buffer_printf(&text, "%lld %s", (long long) step->offset_ms, step->name);
        if (step->kind == STEP_FAULT)
            ck_assert_int_eq(target_resolve(arena, &step->target, &scope, &found, &err), STATUS_OK);
        for (size_t j = 0; j < found.count; j++)
            buffer_printf(&text, " %s", found.nodes[j]->name);
        for (size_t j = 0; j < step->node_count; j++) {
            struct target_nodes peers = {0};

            scope.exclude = found.nodes;
            scope.exclude_count = found.count;
            ck_assert_int_eq(target_resolve(arena, &step->nodes[j].target, &scope, &peers, &err),
                             STATUS_OK);
            buffer_printf(&text, " %s:", step->nodes[j].name);
            for (size_t k = 0; k < peers.count; k++)
                buffer_printf(&text, " %s", peers.nodes[k]->name);
        }
        buffer_printf(&text, " hold %lld; ",
                      (long long) (step->hold_ms != 0 ? step->hold_ms : step->pause_ms));
    }
    return arena_strdup(arena, buffer_text(&text));
}

START_TEST(nothing_is_left_open)
{
    record_run();
    struct scenario *scenario = pinned(false);
    static const char *const wanted = "0 lot n2 n4 hold 900; 911 rest hold 400; "
                                      "912 cut n1 peers: n2 n3 n4 n5 hold 3000; ";

    for (uint64_t seed = 1; seed <= DRAWS; seed++)
        ck_assert_str_eq(resolved(scenario, seed), wanted);
    ck_assert_int_eq(scenario->seed, 7);
    ck_assert(scenario->steps[0].optional && !scenario->steps[2].optional);
    ck_assert_str_eq(json_text(scenario->steps[0].params, "process", ""), "walreceiver");
    ck_assert_str_eq(scenario->steps[2].expect_failover, "yes");
    ck_assert_str_eq(scenario->steps[2].expect_writes, "stall");
    replay_compare_scenario(&replay, scenario);
    OWNED_MEMORY char *differences = json_dumps(replay.differences, JSON_COMPACT);
    ck_assert_str_eq(differences, "[]");
}
END_TEST

START_TEST(roles_are_followed_when_asked)
{
    struct error err = {0};

    record_run();
    set_primary(2);
    ck_assert_int_eq(replay_check(&replay, &err), STATUS_OK);
    ck_assert_int_eq(replay_place(&replay, &state, false, &err), STATUS_REFUSED);
    ck_assert_str_eq(err.message, "roles moved: n1 was primary in run R1, n1 is standby");
    replay_done(&replay);
    ck_assert_str_eq(resolved(pinned(true), 5), "0 lot n2 n4 hold 900; 911 rest hold 400; "
                                                "912 cut n3 peers: n1 n2 n4 n5 hold 3000; ");
    ck_assert_ptr_nonnull(
        strstr(json_string_value(json_array_get(replay.differences, 0)), "n3 stands for n1"));
}
END_TEST

START_TEST(a_member_that_is_down_is_no_replay)
{
    struct error err = {0};

    record_run();
    members[4].running = false;
    ck_assert_int_eq(replay_check(&replay, &err), STATUS_OK);
    ck_assert_int_eq(replay_place(&replay, &state, true, &err), STATUS_REFUSED);
    ck_assert_str_eq(err.message, "roles moved: n5 was standby in run R1, n5 is down");
}
END_TEST

static void expect_check_refused(const char *part)
{
    struct error err = {0};

    ck_assert_int_eq(replay_check(&replay, &err), STATUS_REFUSED);
    ck_assert_msg(strstr(err.message, part) != NULL, "%s", err.message);
    replay_done(&replay);
}

START_TEST(what_cannot_be_repeated_is_refused)
{
    struct topology smaller = topology;

    record_run();
    smaller.node_count = 3;
    replay.topology = &smaller;
    expect_check_refused("step lot acted on n4, which topology test does not have");
    replay.topology = &topology;
    json_t *last = json_array_get(record.events, json_array_size(record.events) - 1);
    json_object_del(last, "offset_ms");
    expect_check_refused("did not keep its offsets");
    json_array_remove(record.events, json_array_size(record.events) - 1);
    expect_check_refused("step cut did not begin in run R1");
    json_t *steps = json_object_get(json_object_get(record.start, "scenario"), "method");
    json_object_set_new(json_array_get(steps, 0), "fault", json_string("process.forget"));
    expect_check_refused("this version has no fault process.forget");
}
END_TEST

static void expect_difference(const char *wanted)
{
    for (size_t i = 0; i < json_array_size(replay.differences); i++)
        if (strcmp(json_string_value(json_array_get(replay.differences, i)), wanted) == 0)
            return;
    OWNED_MEMORY char *differences = json_dumps(replay.differences, JSON_INDENT(1));
    ck_abort_msg("not said: %s\nsaid: %s", wanted, differences);
}

START_TEST(what_may_change_the_outcome_is_said)
{
    struct error err = {0};
    struct topology other = topology;

    record_run();
    json_t *start = json_array_get(record.events, 0);
    json_object_set_new(start, "ordeal", json_string("0.0"));
    json_object_set_new(json_object_get(json_object_get(start, "scenario"), "baseline"), "for",
                        json_integer(1234567890));
    other.promise.durability = "local";
    other.database.version = 16;
    replay.topology = &other;
    members[1].sync = false;
    struct scenario *scenario = NULL;
    ck_assert_int_eq(replay_check(&replay, &err), STATUS_OK);
    ck_assert_int_eq(replay_place(&replay, &state, false, &err), STATUS_OK);
    scenario = load(arena_printf(arena, "%s/s.yaml", folder));
    replay_compare_scenario(&replay, scenario);
    expect_difference("the version of ordeal was 0.0, is " ORDEAL_VERSION);
    expect_difference("the promised durability was quorum, is local");
    expect_difference("PostgreSQL was version 15, is 16");
    expect_difference("n2 was in the sync set, n2 is not");
    expect_difference("baseline was {\"for\":1234567890}, is {\"for\":5000}");
}
END_TEST

/* ---- schedules ---- */

static bool compare(const char *then, const char *now, struct buffer *difference)
{
    struct error err = {0};
    bool same = false;

    write_text(folder, "schedule.txt", then);
    write_text(second, "schedule.txt", now);
    ck_assert_msg(replay_compare(&replay, second, &same, difference, &err) == STATUS_OK, "%s",
                  err.message);
    return same;
}

START_TEST(schedules_are_compared_line_by_line)
{
    OWNED_BUFFER struct buffer difference = BUFFER(4096);
    const char *two = "0 a inject process.freeze n2 {}\n900 a undo process.freeze n2 {}\n";

    replay.nodes = json_object();
    ck_assert(compare(two, two, &difference));
    ck_assert(compare("9 b pause - - {}\n1 a pause - - {}\n",
                      "1 a pause - - {}\n9 b pause - - {}\n",
                      &difference)); /* written in another order, begun in the same */
    ck_assert(!compare(two, "0 a inject process.freeze n2 {}\n", &difference));
    ck_assert_str_eq(buffer_text(&difference),
                     "then: 900 a undo process.freeze n2 {}\nnow:  (nothing)\n");
    ck_assert(!compare("", "1 a pause - - {}\n", &difference));
    ck_assert(!compare(two, "0 a inject process.freeze n3 {}\n900 a undo process.freeze n2 {}\n",
                       &difference));
}
END_TEST

START_TEST(nodes_that_are_named_otherwise_now_are_translated)
{
    OWNED_BUFFER struct buffer difference = BUFFER(4096);

    replay.nodes = json_pack("{s:s, s:s}", "n1", "n3", "n3", "n1");
    ck_assert_msg(
        compare("5 c inject network.partition n1 {\"mode\":\"drop\",\"peers\":[\"n3\"]}\n",
                "5 c inject network.partition n3 {\"mode\":\"drop\",\"peers\":[\"n1\"]}\n",
                &difference),
        "%s", buffer_text(&difference));
    ck_assert(!compare("5 c undo network.partition n1 {}\n", "5 c undo network.partition n1 {}\n",
                       &difference));
}
END_TEST

TEST_MAIN("replay", 20, setup, teardown, every_shipped_scenario_reads_back_as_itself,
          every_key_reads_back, a_seed_gives_one_sequence_of_targets, nothing_is_left_open,
          roles_are_followed_when_asked, a_member_that_is_down_is_no_replay,
          what_cannot_be_repeated_is_refused, what_may_change_the_outcome_is_said,
          schedules_are_compared_line_by_line, nodes_that_are_named_otherwise_now_are_translated)
