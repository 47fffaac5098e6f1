/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/journal.h"
#include "orchestrator/plan.h"
#include "orchestrator/preflight.h"
#include "tests/support/suite.h"

static struct topology_node nodes[] = {
    {.name = "n1", .zone = "a", .roles = ROLE_DATABASE},
    {.name = "n2", .zone = "b", .roles = ROLE_DATABASE},
};
static struct topology topology = {.name = "test", .node_count = 2, .nodes = nodes};
static struct ha_member members[] = {
    {.node = &nodes[0], .running = true, .primary = true},
    {.node = &nodes[1], .running = true, .streaming = true, .sync = true},
};
static struct ha_state state = {.primary = &nodes[0], .count = 2, .members = members};
static struct arena *arena;
static char folder[64];

static void setup(void)
{
    arena = arena_new();
    strcpy(folder, "/tmp/ordeal-plan-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void teardown(void)
{
    static const char *const names[] = {"s.yaml", "journal.ndjson", "schedule.txt"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(arena_printf(arena, "%s/%s", folder, names[i]));
    rmdir(folder);
    arena_free(arena);
}

static struct scenario *load(const char *method)
{
    const char *path = arena_printf(arena, "%s/s.yaml", folder);
    struct yaml_errors errors = {.arena = arena};
    struct scenario_file read = {0};
    struct error err = {0};
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    fprintf(file, "schema: ordeal/scenario-1\ntitle: T\nmethod:\n%s", method);
    fclose(file);
    ck_assert_msg(scenario_load(arena, path, NULL, &read, &errors, &err) == STATUS_OK, "%s",
                  errors.count > 0 ? errors.texts[0] : err.message);
    return read.scenario;
}

#define FREEZE "fault: process.freeze, for: 10s, target: { role: primary, process: backend }"
#define KILL "fault: process.kill, target: { role: primary, process: postmaster }"

START_TEST(offsets)
{
    struct scenario *scenario = load("  - { name: a, " FREEZE " }\n"
                                     "  - { name: b, " KILL ", at: a + 3s }\n"
                                     "  - { name: c, pause: 2s }\n"
                                     "  - { name: d, pause: 1s, after: a }\n"
                                     "  - { name: e, " KILL ", with-step: f }\n"
                                     "  - { name: f, pause: 500ms, at: 30s }\n");
    static const int64_t starts[] = {0, 3000, 3000, 10000, 30000, 30000};
    static const int64_t ends[] = {10000, 3000, 5000, 11000, 30000, 30500};
    struct plan_span *spans;
    struct error err = {0};

    ck_assert_int_eq(plan_spans(arena, scenario, &spans, &err), STATUS_OK);
    for (size_t i = 0; i < 6; i++) {
        ck_assert_int_eq(spans[i].start_ms, starts[i]);
        ck_assert_int_eq(spans[i].end_ms, ends[i]);
    }
}
END_TEST

START_TEST(text_says_what_happens)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);
    struct error err = {0};
    struct scenario *scenario = load("  - { name: freeze, " FREEZE " }\n"
                                     "  - { name: kill, " KILL ", expect: { failover: yes } }\n");

    ck_assert_int_eq(plan_text(arena, scenario, &topology, &state, 1, &text, &err), STATUS_OK);
    const char *plan = buffer_text(&text);
    ck_assert_ptr_nonnull(strstr(plan, "0.000 s  freeze"));
    ck_assert_ptr_nonnull(strstr(plan, "process.freeze for 10s"));
    ck_assert_ptr_nonnull(strstr(plan, "10.000 s  kill"));
    ck_assert_ptr_nonnull(strstr(plan, "role primary, process postmaster, now: n1"));
    ck_assert_ptr_nonnull(strstr(plan, "by the lease if the run dies"));
    ck_assert_ptr_nonnull(strstr(plan, "failover yes"));
}
END_TEST

/* Other words, but the same node once they are resolved. */
START_TEST(overlap_is_refused_when_targets_meet)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);
    struct error err = {0};
    struct scenario *scenario =
        load("  - { name: one, " FREEZE " }\n"
             "  - { name: two, fault: process.freeze, for: 5s, at: one + 1s, "
             "target: { node: n1, process: backend } }\n");

    ck_assert_int_eq(plan_text(arena, scenario, &topology, NULL, 1, &text, &err), STATUS_OK);
    ck_assert_int_eq(plan_text(arena, scenario, &topology, &state, 1, &text, &err), STATUS_REFUSED);
    ck_assert_ptr_nonnull(strstr(err.message, "steps one and two would both be active on n1"));
}
END_TEST

START_TEST(empty_target_is_named)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);
    struct error err = {0};
    struct scenario *scenario = load("  - { name: kill, fault: process.kill, target: { role: dcs, "
                                     "process: backend } }\n");

    ck_assert_int_eq(plan_text(arena, scenario, &topology, &state, 1, &text, &err),
                     STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.message, "step kill: empty target"));
    ck_assert_ptr_nonnull(strstr(err.detail, "n1 primary, n2 sync standby"));
}
END_TEST

/* ---- what a preflight refuses ---- */

START_TEST(weaker_than_the_promise)
{
    ck_assert(!preflight_weaker("on", "quorum"));
    ck_assert(!preflight_weaker("remote_apply", "quorum"));
    ck_assert(preflight_weaker("remote_write", "quorum"));
    ck_assert(preflight_weaker("local", "quorum"));
    ck_assert(preflight_weaker("off", "quorum"));
    ck_assert(!preflight_weaker("local", "local"));
    ck_assert(preflight_weaker("off", "local"));
    ck_assert(!preflight_weaker("off", "none"));
}
END_TEST

START_TEST(sync_sets)
{
    static const char *const good[] = {"ANY 1 (n2, n3)", "FIRST 2 (n2, n3, n4)", "n2, n3",
                                       "2 (\"n2\", n3)"};
    static const char *const bad[] = {
        "", "*", "ANY 1 (*)", "ANY 1 (n2, \"*\")", "ANY 2 (n2, N2)", "n2, n3, n2"};
    struct error err = {0};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        ck_assert_msg(preflight_sync_set(good[i], "quorum", &err) == STATUS_OK, "%s: %s", good[i],
                      err.message);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(preflight_sync_set(bad[i], "quorum", &err), STATUS_REFUSED);
        ck_assert_int_eq(preflight_sync_set(bad[i], "local", &err), STATUS_OK);
    }
}
END_TEST

/* ---- the journal ---- */

static int watched;

static void on_event(void *argument, const json_t *event)
{
    ck_assert_ptr_eq(argument, &watched);
    ck_assert(json_is_object(event));
    watched++;
}

START_TEST(journal_lines)
{
    struct journal *journal = NULL;
    struct error err = {0};
    char line[512];

    watched = 0;
    ck_assert_int_eq(journal_open(folder, on_event, &watched, &journal, &err), STATUS_OK);
    journal_event(journal, "phase", json_pack("{s:s}", "phase", "method"));
    journal_note(journal, "node %s \"quoted\"", "n1");
    OWNED_JSON json_t *params = json_pack("{s:s, s:i}", "b", "x", "a", 1);
    journal_schedule(journal, 4200, "kill", "inject", "process.kill", "n1", params);
    ck_assert_int_eq(journal_failure(journal, &err), STATUS_OK);
    ck_assert_int_eq(watched, 2);
    /* readable while it is still open: this is what survives a crash */
    OWNED_FILE FILE *file = fopen(arena_printf(arena, "%s/journal.ndjson", folder), "re");
    for (int i = 1; i <= 2; i++) {
        OWNED_JSON json_t *event = NULL;
        ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
        ck_assert_int_eq(json_parse_text(line, strlen(line), &event, &err), STATUS_OK);
        ck_assert_int_eq(json_number(event, "seq", 0), i);
        ck_assert_int_gt(json_number(event, "t", 0), 0);
    }
    ck_assert_ptr_null(fgets(line, sizeof line, file));
    OWNED_FILE FILE *schedule = fopen(arena_printf(arena, "%s/schedule.txt", folder), "re");
    ck_assert_ptr_nonnull(fgets(line, sizeof line, schedule));
    ck_assert_str_eq(line, "4200 kill inject process.kill n1 {\"a\":1,\"b\":\"x\"}\n");
    journal_close(journal);
}
END_TEST

START_TEST(a_run_directory_is_never_overwritten)
{
    struct journal *journal = NULL;
    struct error err = {0};

    ck_assert_int_eq(journal_open(folder, NULL, NULL, &journal, &err), STATUS_OK);
    journal_close(journal);
    ck_assert_int_eq(journal_open(folder, NULL, NULL, &journal, &err), STATUS_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.message, "journal.ndjson"));
}
END_TEST

START_TEST(the_cluster_and_whose_work_it_is)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);
    struct topology mine = topology;
    static const char *const start[] = {"systemctl", "start", "pg", NULL};
    static const char *const stop[] = {"systemctl", "stop", "pg", NULL};

    mine.kind = "external";
    mine.ha.manager = "observe";
    mine.ha.fence = "none";
    mine.database.start = start;
    mine.database.stop = stop;
    nodes[0].address = nodes[1].address = "10.0.0.1";
    plan_cluster(&mine, &state, &text);
    const char *said = buffer_text(&text);
    ck_assert_ptr_nonnull(strstr(said, "cluster test (external): n1 10.0.0.1 primary, n2 "));
    ck_assert_ptr_nonnull(strstr(said, "sync standby"));
    ck_assert_ptr_nonnull(strstr(said, "HA manager observe: to promote and to bring members back "
                                       "is the work of what manages this cluster"));
    ck_assert_ptr_nonnull(strstr(said, "systemctl start pg, stopped by systemctl stop pg"));
    ck_assert_ptr_nonnull(strstr(said, "power    no driver"));
}
END_TEST

START_TEST(a_step_that_cannot_be_done_says_so)
{
    OWNED_BUFFER struct buffer text = BUFFER(65536);
    struct error err = {0};

    ck_assert_int_eq(
        plan_text(arena,
                  load("  - { fault: node.crash, target: n1, for: 5s, optional: yes }\n"
                       "  - { power: on, target: n1 }\n"),
                  &topology, &state, 1, &text, &err),
        STATUS_OK);
    ck_assert_ptr_nonnull(strstr(buffer_text(&text), "no power driver: the step is skipped"));
    ck_assert_ptr_nonnull(strstr(buffer_text(&text), "no power driver: the run is refused"));
}
END_TEST

TEST_MAIN("plan", 10, setup, teardown, offsets, text_says_what_happens,
          overlap_is_refused_when_targets_meet, empty_target_is_named, weaker_than_the_promise,
          sync_sets, the_cluster_and_whose_work_it_is, a_step_that_cannot_be_done_says_so,
          journal_lines, a_run_directory_is_never_overwritten)
