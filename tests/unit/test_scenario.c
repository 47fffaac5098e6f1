/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/scenario.h"
#include "tests/support/suite.h"

static struct topology_node nodes[] = {
    {.name = "n1", .zone = "a", .roles = ROLE_DATABASE},
    {.name = "n2", .zone = "b", .roles = ROLE_DATABASE},
    {.name = "c1", .zone = "a", .roles = ROLE_CLIENT},
};
static struct topology topology = {.name = "test", .node_count = 3, .nodes = nodes};
static struct arena *arena;
static struct yaml_errors errors;
static char folder[64];

static void setup(void)
{
    arena = arena_new();
    errors = (struct yaml_errors){.arena = arena};
    strcpy(folder, "/tmp/ordeal-scenario-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void teardown(void)
{
    static const char *const names[] = {"s.yaml", "t.yaml", "p.yaml"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(arena_printf(arena, "%s/%s", folder, names[i]));
    rmdir(folder);
    arena_free(arena);
}

static const char *write_file(const char *name, const char *text)
{
    const char *path = arena_printf(arena, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static struct scenario_file load_file(const char *path)
{
    struct scenario_file file = {0};
    struct error err = {0};
    enum status status = scenario_load(arena, path, &topology, &file, &errors, &err);

    ck_assert_int_eq(status, errors.count == 0 ? STATUS_OK : STATUS_INVALID);
    return file;
}

/* A scenario with this method, and what else is given in front of it. */
static struct scenario *load(const char *sections, const char *method)
{
    return load_file(write_file("s.yaml", arena_printf(arena,
                                                       "schema: ordeal/scenario-1\ntitle: T\n"
                                                       "%smethod:\n%s",
                                                       sections, method)))
        .scenario;
}

static bool complained(const char *text)
{
    for (size_t i = 0; i < errors.count; i++)
        if (strstr(errors.texts[i], text) != NULL)
            return true;
    return false;
}

static void expect_complaint(const char *text)
{
    ck_assert_msg(complained(text), "expected: %s, got: %s", text,
                  errors.count > 0 ? errors.texts[0] : "nothing");
}

#define KILL "fault: process.kill, target: { role: primary, process: postmaster }"

START_TEST(defaults)
{
    struct scenario *scenario = load("", "  - { " KILL " }\n");

    ck_assert_msg(scenario != NULL, "%s", errors.count > 0 ? errors.texts[0] : "");
    ck_assert_str_eq(scenario->name, "s");
    ck_assert(!scenario->has_seed);
    ck_assert_int_eq(scenario->repeat, 1);
    ck_assert_int_eq(scenario->baseline_ms, 5000);
    ck_assert_int_eq(scenario->recovery_ms, 60000);
    ck_assert_int_eq(json_number(scenario->workload, "clients", 0), 8);
    ck_assert_double_eq_tol(json_number_value(json_object_get(scenario->workload, "rate")), 300,
                            1e-9);
    ck_assert_ptr_null(json_object_get(scenario->workload, "kind"));
    ck_assert_int_eq(json_number(scenario->probes, "interval_ms", 0), 4);
    ck_assert_uint_eq(scenario->step_count, 1);
    ck_assert_str_eq(scenario->steps[0].name, "step-1");
    ck_assert_str_eq(json_text(scenario->steps[0].params, "process", ""), "postmaster");
    ck_assert_str_eq(json_text(scenario->steps[0].params, "signal", ""), "kill");
    ck_assert_str_eq(scenario->steps[0].expect_failover, "any");
    ck_assert_ptr_nonnull(json_object_get(scenario->checks, "durability"));
    ck_assert(!scenario_expects_failover(scenario));
}
END_TEST

START_TEST(everything_given)
{
    struct scenario *scenario = load(
        "seed: 42\nrepeat: { times: 5, spread: 1s }\n"
        "workload: { kind: ledger, clients: 32, rate: max, rows: 3, payload: 1KiB }\n"
        "probes: { interval: 2ms, connections: 4, direct-interval: 50ms }\n"
        "baseline: { for: 2s }\nrecovery: { timeout: 90s, settle: 1s }\n"
        "steady-state:\n  - probe: writes.available\n"
        "  - { probe: replication.lag, at-most: 1MiB }\n"
        "stop-conditions:\n  - { probe: writes.available, false-for: 30s }\n"
        "minimum-exposure: 10\nha: { acts: no }\n"
        "checks:\n  durability: {}\n  recovery: { max: 20s }\n",
        "  - name: freeze\n    fault: process.freeze\n"
        "    target: { role: standby, zone: b, mode: all }\n    with: { process: walreceiver }\n"
        "    for: 10s\n    optional: yes\n"
        "  - { name: kill, " KILL ", at: freeze + 4s, expect: { failover: yes, writes: stall } }\n"
        "  - { name: rest, pause: 1500ms, after: kill }\n"
        "  - { name: also, " KILL ", with-step: rest }\n"
        "  - { name: late, " KILL ", at: 30s }\n");

    ck_assert_msg(scenario != NULL, "%s", errors.count > 0 ? errors.texts[0] : "");
    ck_assert_int_eq(scenario->seed, 42);
    ck_assert_int_eq(scenario->repeat, 5);
    ck_assert_int_eq(scenario->spread_ms, 1000);
    ck_assert_double_eq_tol(json_number_value(json_object_get(scenario->workload, "rate")), 0,
                            1e-9);
    ck_assert_str_eq(scenario->rate_text, "max");
    ck_assert_int_eq(json_number(scenario->workload, "payload", 0), 1024);
    ck_assert_int_eq(json_number(scenario->probes, "direct_interval_ms", 0), 50);
    ck_assert_int_eq(scenario->settle_ms, 1000);
    ck_assert_uint_eq(scenario->steady_count, 2);
    ck_assert_double_eq_tol(scenario->steady[1].most, 1048576, 1e-9);
    ck_assert(scenario->steady[1].has_most && !scenario->steady[1].has_least);
    ck_assert_int_eq(scenario->stops[0].false_for_ms, 30000);
    ck_assert(scenario->manager_must);
    ck_assert_int_eq(scenario->minimum_exposure, 10);
    ck_assert_int_eq(json_number(json_object_get(scenario->checks, "recovery"), "max", 0), 20000);
    ck_assert_uint_eq(json_object_size(scenario->checks), 2);
    const struct step *steps = scenario->steps;
    ck_assert_int_eq(steps[0].hold_ms, 10000);
    ck_assert(steps[0].optional);
    ck_assert_int_eq(steps[0].target.mode, TARGET_ALL);
    ck_assert_int_eq(steps[1].timing, STEP_AT_STEP);
    ck_assert_uint_eq(steps[1].reference, 0);
    ck_assert_int_eq(steps[1].offset_ms, 4000);
    ck_assert_int_eq(steps[2].kind, STEP_PAUSE);
    ck_assert_int_eq(steps[2].timing, STEP_AFTER);
    ck_assert_int_eq(steps[3].timing, STEP_AT_STEP);
    ck_assert_uint_eq(steps[3].reference, 2);
    ck_assert_int_eq(steps[4].timing, STEP_AT_START);
    ck_assert(scenario_expects_failover(scenario));
}
END_TEST

/* What the checks read from the journal. */
START_TEST(resolved_json)
{
    struct scenario *scenario =
        load("minimum-exposure: 7\nsteady-state:\n  - probe: writes.available\n",
             "  - { name: kill, " KILL ", expect: { failover: yes, writes: stall } }\n");
    OWNED_JSON json_t *json = scenario_json(scenario);
    const char *name, *fault, *failover, *writes, *process;
    int exposure;

    ck_assert_ptr_nonnull(json);
    ck_assert_int_eq(json_unpack(json, "{s:[{s:s, s:s, s:{s:s}, s:{s:s, s:s}}], s:i, s:[{s:s}]}",
                                 "method", "name", &name, "fault", &fault, "with", "process",
                                 &process, "expect", "failover", &failover, "writes", &writes,
                                 "minimum-exposure", &exposure, "steady-state", "probe", &name),
                     0);
    ck_assert_str_eq(fault, "process.kill");
    ck_assert_str_eq(failover, "yes");
    ck_assert_str_eq(writes, "stall");
    ck_assert_str_eq(process, "postmaster");
    ck_assert_int_eq(exposure, 7);
}
END_TEST

static const char *const mistakes[][3] = {
    {"", "  - { fault: process.kil, target: n1 }\n", ":4:14: unknown fault process.kil, did you "},
    {"", "  - { name: a }\n", "step a needs one of fault, power and pause"},
    {"", "  - { pause: 1s, fault: process.kill, target: n1 }\n", "needs one of fault, power"},
    {"", "  - { fault: process.kill, with: { process: backend } }\n", "step step-1 has no target"},
    {"", "  - { fault: process.kill, target: n1 }\n", "missing parameter process"},
    {"", "  - { fault: process.kill, target: n9, with: { process: backend } }\n",
     "unknown node or role n9, did you mean n1?"},
    {"", "  - { fault: process.kill, target: { zone: z }, with: { process: backend } }\n",
     "no node is in zone z"},
    {"", "  - { fault: process.kill, target: n1, with: { proces: backend } }\n",
     "unknown parameter proces, did you mean process?"},
    {"", "  - { " KILL ", with: { process: backend } }\n", "process is given in target and in"},
    {"", "  - { " KILL ", for: 10s }\n", "happens at an instant: `for` has no meaning"},
    {"", "  - { fault: process.freeze, target: n1, with: { process: backend } }\n",
     "lasts until it is undone: `for` is missing"},
    {"", "  - { " KILL ", at: 10 }\n", "at: \"10\" is not a duration: the unit is missing"},
    {"", "  - { " KILL ", at: nobody + 3s }\n", "at: unknown step nobody"},
    {"", "  - { name: kill, " KILL ", after: kill }\n", "step kill refers to itself"},
    {"", "  - { name: a, " KILL ", after: b }\n  - { name: b, " KILL ", after: a }\n",
     "step a waits for itself through other steps"},
    {"", "  - { name: a, " KILL " }\n  - { name: a, " KILL " }\n", "two steps are named a"},
    {"", "  - { name: Kill, " KILL " }\n", "step name Kill must begin with a letter"},
    {"", "  - { " KILL ", at: 1s, after: x }\n", "give one of at, after and with-step"},
    {"", "  - { " KILL ", expect: { failover: maybe } }\n", "unknown failover maybe"},
    {"", "  - { power: \"off\", target: n1 }\n", "unknown power off"},
    {"", "  - { pause: 1s, target: n1 }\n", "target has no meaning in this step"},
    {"", "  []\n", ""},
    {"workload: { rate: 100 }\n", "  - { pause: 1s }\n", "rate: 100 is neither a rate as 300/s"},
    {"workload: { kind: tpcc }\n", "  - { pause: 1s }\n", "tpcc"},
    {"probes: { interval: 0 }\n", "  - { pause: 1s }\n", "interval"},
    {"baseline: { for: 10ms }\n", "  - { pause: 1s }\n", "out of range"},
    {"repeat: 0\n", "  - { pause: 1s }\n", "repeat: 0 is out of range, it must be from 1 to"},
    {"steady-state:\n  - probe: writes.availble\n", "  - { pause: 1s }\n",
     "unknown probe writes.availble, did you mean writes.available?"},
    {"steady-state:\n  - { probe: writes.available, at-least: 1 }\n", "  - { pause: 1s }\n",
     "is yes or no and takes no bound"},
    {"steady-state:\n  - probe: writes.rate\n", "  - { pause: 1s }\n", "needs a bound"},
    {"stop-conditions:\n  - probe: writes.available\n", "  - { pause: 1s }\n",
     "missing key false-for"},
    {"stop-conditions:\n  - { probe: replication.streaming, false-for: 5s }\n",
     "  - { pause: 1s }\n", "too slow for a stop condition"},
    {"checks: { durabilty: {} }\n", "  - { pause: 1s }\n",
     "unknown check durabilty, did you mean durability?"},
    {"checks: { recovery: { maximum: 3s } }\n", "  - { pause: 1s }\n", "unknown parameter maximum"},
    {"ha: { act: no }\n", "  - { pause: 1s }\n", "unknown key act, did you mean acts?"},
};

START_TEST(names_the_mistake)
{
    load(mistakes[_i][0], mistakes[_i][1]);
    if (mistakes[_i][2][0] != '\0')
        expect_complaint(mistakes[_i][2]);
    else
        ck_assert_uint_eq(errors.count, 0);
}
END_TEST

START_TEST(reports_all_at_once)
{
    load("sed: 42\nbaseline: { fro: 3s }\n",
         "  - { fault: nothing.at-all, target: n1 }\n  - { " KILL ", at: 5 }\n");
    ck_assert_uint_eq(errors.count, 4);
    expect_complaint("unknown key sed, did you mean seed?");
    expect_complaint("unknown key fro, did you mean for?");
    expect_complaint("unknown fault nothing.at-all");
    expect_complaint("at: \"5\" is not a duration");
}
END_TEST

#define FREEZE "fault: process.freeze, for: 10s, target: { node: n1, process: backend }"
#define ONE "  - { name: one, " FREEZE " }\n"
#define TWO(offset) "  - { name: two, at: one + " offset ", " FREEZE " }\n"

START_TEST(exclusive_faults_do_not_overlap)
{
    load("", ONE TWO("10s"));
    ck_assert_uint_eq(errors.count, 0);
    load("", ONE TWO("9s"));
    expect_complaint("steps one and two would be active on the same node at once");
}
END_TEST

START_TEST(another_schema)
{
    load_file(write_file("s.yaml", "schema: ordeal/scenario-9\ntitle: x\n"));
    expect_complaint(":1:9: schema ordeal/scenario-9 is not known here");
}
END_TEST

START_TEST(profiles)
{
    static const char *const part = "schema: ordeal/scenario-1\ntitle: T\nmethod: [{ pause: 1s }]\n"
                                    "checks: { recovery: { max: 50s }, durability: {} }\n";

    write_file("s.yaml", part);
    write_file("t.yaml", part);
    struct scenario_file file = load_file(
        write_file("p.yaml", "schema: ordeal/profile-1\ntitle: P\nscenarios: [s, t.yaml]\n"
                             "checks: { recovery: { max: 7s }, integrity: {} }\n"));
    ck_assert_uint_eq(errors.count, 0);
    ck_assert_ptr_null(file.scenario);
    ck_assert_uint_eq(file.profile->count, 2);
    const json_t *checks = file.profile->scenarios[1]->checks;
    ck_assert_int_eq(json_number(json_object_get(checks, "recovery"), "max", 0), 7000);
    ck_assert_ptr_null(json_object_get(checks, "integrity"));
}
END_TEST

START_TEST(a_profile_goes_on_without_what_is_optional)
{
    static const char *const part = "schema: ordeal/scenario-1\ntitle: T\n"
                                    "method: [{ power: on, target: n1 }]\n";

    write_file("s.yaml", part);
    write_file("t.yaml", part);
    struct scenario_file file = load_file(
        write_file("p.yaml", "schema: ordeal/profile-1\ntitle: P\nscenarios: [s, t.yaml]\n"
                             "optional: [t]\n"));
    ck_assert_uint_eq(errors.count, 0);
    ck_assert(!file.profile->scenarios[0]->optional);
    ck_assert(file.profile->scenarios[1]->optional);
    load_file(write_file("p.yaml", "schema: ordeal/profile-1\ntitle: P\nscenarios: [s]\n"
                                   "optional: [t]\n"));
    expect_complaint("p.yaml:4:11: optional: t is not among the scenarios");
}
END_TEST

START_TEST(a_profile_names_the_file_that_is_wrong)
{
    write_file("s.yaml", "schema: ordeal/scenario-1\ntitle: T\nmetod: []\n");
    load_file(
        write_file("p.yaml", "schema: ordeal/profile-1\ntitle: P\nscenarios: [s, missing]\n"));
    expect_complaint("/s.yaml:3:1: unknown key metod, did you mean method?");
    expect_complaint("missing.yaml");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scenario");
    TCase *cases = tcase_create("scenario");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, defaults);
    tcase_add_test(cases, everything_given);
    tcase_add_test(cases, resolved_json);
    tcase_add_loop_test(cases, names_the_mistake, 0, sizeof mistakes / sizeof mistakes[0]);
    tcase_add_test(cases, reports_all_at_once);
    tcase_add_test(cases, exclusive_faults_do_not_overlap);
    tcase_add_test(cases, another_schema);
    tcase_add_test(cases, profiles);
    tcase_add_test(cases, a_profile_goes_on_without_what_is_optional);
    tcase_add_test(cases, a_profile_names_the_file_that_is_wrong);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
