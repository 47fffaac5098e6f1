/* SPDX-License-Identifier: MIT */
/* The verdict on a run, its exit code, result.json against its schema, and the summary. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/reports/report.h"
#include "tests/support/run_builder.h"
#include "tests/support/suite.h"

struct reported {
    struct arena *arena;
    struct report *report;
};

static struct reported report_on(struct run_builder *run)
{
    struct reported reported = {.arena = arena_new()};
    struct error err = {0};

    run_write(run);
    ck_assert_msg(report_new(reported.arena, run->folder, &reported.report, &err) == STATUS_OK,
                  "%s", err.message);
    return reported;
}

static void done(struct reported *reported, struct run_builder *run)
{
    report_free(reported->report);
    arena_free(reported->arena);
    run_free(run);
}

static void expect(struct run_builder *run, enum run_verdict verdict, int exit_code,
                   const char *reason)
{
    struct reported reported = report_on(run);
    const char *reasons = reasons_text(&reported.report->reasons);

    ck_assert_msg(reported.report->verdict == verdict, "%s: %s",
                  run_verdict_name(reported.report->verdict), reasons);
    ck_assert_int_eq(reported.report->exit_code, exit_code);
    if (reason != NULL)
        ck_assert_msg(strstr(reasons, reason) != NULL, "no \"%s\" in: %s", reason, reasons);
    done(&reported, run);
}

static struct run_builder *standard(void)
{
    return run_standard(&(struct run_plan){0});
}

START_TEST(pass)
{
    expect(standard(), RUN_PASS, 0, NULL);
}
END_TEST

START_TEST(a_failed_check_fails)
{
    struct run_builder *run = standard();

    run_absent(run, NULL, 1, 100);
    expect(run, RUN_FAIL, 1, NULL);
}
END_TEST

START_TEST(fail_outranks_inconclusive)
{
    struct run_builder *run = standard();

    run_absent(run, NULL, 1, 100);
    run_drop(run, "replication");
    expect(run, RUN_FAIL, 1, NULL);
}
END_TEST

START_TEST(only_named_checks_count)
{
    struct run_builder *run =
        run_standard(&(struct run_plan){.checks = json_pack("{s:{}}", "recovery")});

    run_absent(run, NULL, 1, 100);
    expect(run, RUN_PASS, 0, NULL);
}
END_TEST

/* what a step expects is judged whether or not the scenario names the check that judges it */
START_TEST(an_expectation_counts_without_its_check)
{
    struct run_builder *run = run_standard(&(struct run_plan){
        .checks = json_pack("{s:{}}", "recovery"), .expect = json_pack("{s:s}", "failover", "no")});

    expect(run, RUN_FAIL, 1, NULL);
}
END_TEST

START_TEST(parameters_as_people_write_them)
{
    struct run_builder *run =
        run_standard(&(struct run_plan){.checks = json_pack("{s:{s:s}}", "recovery", "max", "3s")});

    expect(run, RUN_FAIL, 1, NULL); /* it took 3.2 s */
}
END_TEST

START_TEST(a_fault_without_effect)
{
    struct run_builder *run = standard();

    json_object_set_new(json_object_get(run_find(run, "fault.injected"), "effect"), "state",
                        json_string("absent"));
    expect(run, RUN_INCONCLUSIVE, 2, "did not bite: its effect is absent");
}
END_TEST

START_TEST(a_witness_that_does_not_see_it)
{
    struct run_builder *run = standard();
    json_t *witness = json_object_get(run_find(run, "fault.injected"), "witness");

    json_object_set_new(json_array_get(witness, 0), "state", json_string("absent"));
    expect(run, RUN_INCONCLUSIVE, 2, "c1 does not see it");
}
END_TEST

START_TEST(a_fault_that_was_cut_short)
{
    struct run_plan plan = {
        .no_failover = true, .stall = true, .expect = json_pack("{s:s}", "writes", "stall")};
    struct run_builder *run = run_standard(&plan);

    json_object_set_new(run_find(run, "fault.injected"), "hold_ms", json_integer(60000));
    expect(run, RUN_INCONCLUSIVE, 2, "was undone after 1.8 s of 60.0 s");
}
END_TEST

START_TEST(a_fault_that_failed)
{
    struct run_builder *run = standard();

    run_event(run, 5000, "fault.failed",
              json_pack("{s:s, s:s, s:{s:s}}", "fault", "process.kill", "node", "n3", "error",
                        "message", "no such process"));
    /* events are read in order: the end must stay last */
    json_t *end = json_incref(run_find(run, "run.end"));
    run_drop(run, "run.end");
    json_array_append_new(run->journal, end);
    expect(run, RUN_INCONCLUSIVE, 2, "was not injected: no such process");
}
END_TEST

START_TEST(no_fault_at_all)
{
    struct run_builder *run = run_standard(&(struct run_plan){.no_failover = true});

    run_drop(run, "fault.injected");
    expect(run, RUN_INCONCLUSIVE, 2, "no fault was injected");
}
END_TEST

static void insert_before_end(struct run_builder *run, const char *event, json_t *members)
{
    json_t *end = json_incref(run_find(run, "run.end"));

    run_drop(run, "run.end");
    run_event(run, 11850, event, members);
    json_array_append_new(run->journal, end);
}

/* a cluster that we broke and that did not come back is no pass, whatever the scenario asks for */
START_TEST(a_cluster_that_is_not_back)
{
    struct run_builder *run =
        run_standard(&(struct run_plan){.checks = json_pack("{s:{}}", "durability")});

    run_drop(run, "recovered");
    insert_before_end(
        run, "recovery.timeout",
        json_pack("{s:i, s:[s], s:s}", "ms", 60000, "missing", "n3", "text", "n3 does not stream"));
    expect(run, RUN_FAIL, 1, NULL);
}
END_TEST

START_TEST(a_ledger_that_did_not_arrive)
{
    struct run_builder *run = standard();

    insert_before_end(run, "ledger.missing",
                      json_pack("{s:s, s:s, s:s}", "node", "c1", "file", "all", "text", "silent"));
    expect(run, RUN_INCONCLUSIVE, 2, NULL);
}
END_TEST

START_TEST(a_skipped_step)
{
    struct run_builder *run = standard();

    insert_before_end(
        run, "step.skipped",
        json_pack("{s:s, s:s, s:b}", "step", "squeeze", "reason", "no cgroup", "optional", 0));
    expect(run, RUN_INCONCLUSIVE, 2, "step squeeze was skipped: no cgroup");
}
END_TEST

START_TEST(an_optional_skipped_step)
{
    struct run_builder *run = standard();

    insert_before_end(
        run, "step.skipped",
        json_pack("{s:s, s:s, s:b}", "step", "squeeze", "reason", "no cgroup", "optional", 1));
    expect(run, RUN_PASS, 0, NULL);
}
END_TEST

/* The checks may pass without it; the load that was asked for was not there. */
START_TEST(a_dead_worker)
{
    struct run_builder *run = standard();
    json_t *end = run_find(run, "load.end");

    json_object_set_new(end, "complete", json_false());
    expect(run, RUN_INCONCLUSIVE, 2, "the load did not end in order");
    run = standard();
    end = run_find(run, "load.end");
    json_object_set_new(end, "ledgers",
                        json_pack("[{s:s, s:s, s:b, s:s}, {s:s, s:s, s:b}]", "node", "c1", "file",
                                  "c1-worker-0.ledger", "complete", 0, "error",
                                  "killed by signal 9", "node", "c1", "file", "c1-worker-1.ledger",
                                  "complete", 1));
    expect(run, RUN_INCONCLUSIVE, 2, "c1-worker-0.ledger did not end in order: killed by signal 9");
}
END_TEST

/* all that a run would have done was optional and skipped: it has shown nothing */
START_TEST(every_step_was_optional_and_skipped)
{
    struct run_builder *run = run_standard(&(struct run_plan){.no_failover = true});

    run_drop(run, "fault.injected");
    insert_before_end(run, "step.skipped",
                      json_pack("{s:s, s:s, s:s, s:b}", "step", "crash", "node", "n1", "reason",
                                "no power driver", "optional", 1));
    expect(run, RUN_INCONCLUSIVE, 2,
           "no fault was injected: step crash was skipped, no power driver");
}
END_TEST

START_TEST(a_skipped_step_is_in_the_summary)
{
    struct run_builder *run = standard();

    insert_before_end(run, "step.skipped",
                      json_pack("{s:s, s:s, s:s, s:b}", "step", "crash", "node", "n1", "reason",
                                "no power driver", "optional", 1));
    struct reported reported = report_on(run);
    OWNED_BUFFER struct buffer text = BUFFER(65536);
    report_text(reported.report, false, &text);
    ck_assert_ptr_nonnull(
        strstr(buffer_text(&text), "  skipped   step crash on n1: no power driver (optional)\n"));
    done(&reported, run);
}
END_TEST

/* The only check that the scenario names had nothing to judge. */
START_TEST(nothing_judged)
{
    struct run_builder *run = run_standard(
        &(struct run_plan){.no_fault = true, .checks = json_pack("{s:{}}", "steady-state")});

    run_drop(run, "steady-state");
    expect(run, RUN_INCONCLUSIVE, 2, "no check judged anything");
}
END_TEST

START_TEST(residue)
{
    struct run_builder *run = standard();
    json_t *event = run_find_where(run, "residue", "node", "n3");

    json_object_set_new(event, "clean", json_false());
    json_object_set_new(event, "differences", json_pack("[s]", "nft: table ordeal-1"));
    run_absent(run, NULL, 1, 100); /* a lost row does not outrank it */
    expect(run, RUN_NOT_RECOVERED, 5, "n3 is not clean: 1 differences, first: nft: table ordeal-1");
}
END_TEST

START_TEST(a_node_nobody_confirmed)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find_where(run, "residue", "node", "n3"), "node", json_string("n9"));
    expect(run, RUN_NOT_RECOVERED, 5, "n3 was not confirmed clean");
}
END_TEST

START_TEST(a_fault_still_there)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find(run, "fault.injected"), "holds", json_true());
    json_object_set_new(run_find(run, "fault.undone"), "state", json_string("active"));
    expect(run, RUN_NOT_RECOVERED, 5, "is active after its undo");
}
END_TEST

START_TEST(a_holding_fault_never_undone)
{
    struct run_builder *run = standard();

    json_object_set_new(run_find(run, "fault.injected"), "holds", json_true());
    run_drop(run, "fault.undone");
    expect(run, RUN_NOT_RECOVERED, 5, "was not seen undone");
}
END_TEST

START_TEST(the_orchestrator_died)
{
    struct run_builder *run = standard();

    run_drop(run, "run.end");
    run->journal_torn = true;
    expect(run, RUN_NOT_RECOVERED, 5, "the journal has no end");
}
END_TEST

static void end_with(struct run_builder *run, const char *outcome, const char *reason)
{
    json_t *end = run_find(run, "run.end");

    json_object_set_new(end, "outcome", json_string(outcome));
    json_object_set_new(end, "reason", json_string(reason));
}

START_TEST(aborted)
{
    struct run_builder *run = standard();

    end_with(run, "aborted", "SIGINT");
    expect(run, RUN_ABORTED, 3, "SIGINT");
}
END_TEST

START_TEST(refused)
{
    struct run_builder *run = standard();

    end_with(run, "refused", "fsync = off on n1");
    run_drop(run, "residue");
    expect(run, RUN_REFUSED, 4, "fsync = off on n1");
}
END_TEST

START_TEST(aborted_and_not_clean)
{
    struct run_builder *run = standard();

    end_with(run, "aborted", "SIGINT");
    json_object_set_new(run_find(run, "run.end"), "clean", json_false());
    expect(run, RUN_NOT_RECOVERED, 5, NULL);
}
END_TEST

START_TEST(aborted_before_anything_was_changed)
{
    struct run_builder *run = standard();

    end_with(run, "aborted", "SIGINT");
    json_object_set_new(run_find(run, "run.end"), "changed", json_false());
    run_drop(run, "residue"); /* there was nothing to look for */
    expect(run, RUN_ABORTED, 3, "before anything was changed");
}
END_TEST

START_TEST(aborted_and_the_cluster_is_not_back)
{
    struct run_builder *run = standard();

    end_with(run, "aborted", "SIGINT");
    run_event(run, RUN_END_MS, "recovery.timeout",
              json_pack("{s:i, s:[], s:s}", "ms", 60000, "missing", "text", "n1 is down"));
    json_object_set_new(run_find(run, "run.end"), "clean", json_false());
    expect(run, RUN_NOT_RECOVERED, 5, "the cluster is not back: n1 is down");
}
END_TEST

START_TEST(sent_and_nothing_more_is_known)
{
    struct run_builder *run = standard();

    run_event(
        run, RUN_FAULT_MS, "fault.inject",
        json_pack("{s:s, s:s, s:s}", "uid", "x-s1-9", "fault", "process.freeze", "node", "n2"));
    expect(run, RUN_NOT_RECOVERED, 5, "whether process.freeze on n2 was injected is not recorded");
}
END_TEST

/* --- result.json against its schema ----------------------------------------------------------- */

static json_t *schema;

static bool has_type(const json_t *value, const char *type)
{
    static const struct {
        const char *name;
        bool object, array, string, integer, real, boolean, null;
    } types[] = {
        {.name = "object", .object = true},
        {.name = "array", .array = true},
        {.name = "string", .string = true},
        {.name = "integer", .integer = true},
        {.name = "number", .integer = true, .real = true},
        {.name = "boolean", .boolean = true},
        {.name = "null", .null = true},
    };

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, type) == 0)
            return (types[i].object && json_is_object(value)) ||
                   (types[i].array && json_is_array(value)) ||
                   (types[i].string && json_is_string(value)) ||
                   (types[i].integer && json_is_integer(value)) ||
                   (types[i].real && json_is_real(value)) ||
                   (types[i].boolean && json_is_boolean(value)) ||
                   (types[i].null && json_is_null(value));
    ck_abort_msg("the schema has an unknown type %s", type);
}

static bool type_matches(const json_t *value, const json_t *type)
{
    if (json_is_string(type))
        return has_type(value, json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        if (has_type(value, json_string_value(json_array_get(type, i))))
            return true;
    return type == NULL;
}

static bool in_enum(const json_t *value, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(value, json_array_get(list, i)))
            return true;
    return list == NULL;
}

static const json_t *resolve(const json_t *rule)
{
    const char *reference = json_text(rule, "$ref", NULL);

    if (reference == NULL)
        return rule;
    ck_assert_int_eq(strncmp(reference, "#/$defs/", 8), 0);
    const json_t *found = json_object_get(json_object_get(schema, "$defs"), reference + 8);
    ck_assert_msg(found != NULL, "no %s", reference);
    return found;
}

static bool valid(const json_t *value, const json_t *unresolved, const char *where);

static bool valid_object(const json_t *value, const json_t *rule, const char *where)
{
    const json_t *properties = json_object_get(rule, "properties");
    const json_t *required = json_object_get(rule, "required");
    const char *name;
    json_t *member;

    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *needed = json_string_value(json_array_get(required, i));
        if (json_object_get(value, needed) == NULL) {
            printf("%s lacks %s\n", where, needed);
            return false;
        }
    }
    json_object_foreach((json_t *) (uintptr_t) value, name, member)
    {
        const json_t *own = json_object_get(properties, name);
        if (own == NULL && json_is_false(json_object_get(rule, "additionalProperties"))) {
            printf("%s has an unknown member %s\n", where, name);
            return false;
        }
        if (own != NULL && !valid(member, own, name))
            return false;
    }
    return true;
}

static bool valid(const json_t *value, const json_t *unresolved, const char *where)
{
    const json_t *rule = resolve(unresolved);

    if (!type_matches(value, json_object_get(rule, "type"))) {
        printf("%s has the wrong type\n", where);
        return false;
    }
    if (!in_enum(value, json_object_get(rule, "enum"))) {
        printf("%s is none of the allowed values\n", where);
        return false;
    }
    const json_t *items = json_object_get(rule, "items");
    for (size_t i = 0; items != NULL && i < json_array_size(value); i++)
        if (!valid(json_array_get(value, i), items, where))
            return false;
    return !json_is_object(value) || valid_object(value, rule, where);
}

static void load_schema(void)
{
    struct error err = {0};

    ck_assert_msg(json_read_file("docs/result.schema.json", &schema, &err) == STATUS_OK, "%s",
                  err.message);
}

static void expect_valid(struct run_builder *run)
{
    struct reported reported = report_on(run);
    OWNED_JSON json_t *result = report_json(reported.report);

    load_schema();
    ck_assert(valid(result, schema, "result.json"));
    json_decref(schema);
    done(&reported, run);
}

START_TEST(result_is_valid)
{
    expect_valid(standard());
}
END_TEST

START_TEST(result_without_evidence_is_valid)
{
    struct run_builder *run = standard();

    run->ledgers[0].missing = true;
    run->ledgers[1].missing = true;
    run_drop(run, "present");
    run_drop(run, "timeline");
    run_drop(run, "clock");
    run_drop(run, "recovered");
    expect_valid(run);
}
END_TEST

static json_t *planted_difference(void)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:n, s:s, s:b, s:s}", "class", "nft", "change", "added",
                     "key", "table inet ordeal_1", "what", "nft table inet ordeal_1", "before",
                     "after", "{}", "ours", 1, "remedy", "nft delete table inet ordeal_1");
}

static struct run_builder *with_residue(void)
{
    struct run_builder *run = standard();
    json_t *event = run_find_where(run, "residue", "node", "n3");

    json_object_set_new(event, "clean", json_false());
    json_object_set_new(event, "differences", json_pack("[o]", planted_difference()));
    return run;
}

/* Each with its command, for people and for machines. */
START_TEST(residue_is_told_with_its_remedy)
{
    struct run_builder *run = with_residue();
    struct reported reported = report_on(run);
    OWNED_BUFFER struct buffer text = BUFFER(256 * 1024);
    OWNED_JSON json_t *result = report_json(reported.report);
    const json_t *node = json_array_get(json_object_get(result, "residue"), 2);
    const json_t *difference = json_array_get(json_object_get(node, "differences"), 0);

    report_text(reported.report, false, &text);
    ck_assert_ptr_nonnull(strstr(buffer_text(&text),
                                 "n3       nft table inet ordeal_1: left by Ordeal\n"
                                 "           on n3: nft delete table inet ordeal_1\n"));
    ck_assert_uint_eq(json_array_size(json_object_get(result, "residue")), RUN_NODES);
    ck_assert_str_eq(json_text(node, "node", ""), "n3");
    ck_assert_str_eq(json_text(difference, "remedy", ""), "nft delete table inet ordeal_1");
    ck_assert_str_eq(json_text(difference, "text", ""), "nft table inet ordeal_1: left by Ordeal");
    done(&reported, run);
}
END_TEST

START_TEST(result_with_residue_is_valid)
{
    expect_valid(with_residue());
}
END_TEST

START_TEST(result_of_a_refused_run_is_valid)
{
    struct run_builder *run = standard();

    end_with(run, "refused", "fsync = off");
    expect_valid(run);
}
END_TEST

/* The validator itself must refuse. */
START_TEST(schema_refuses)
{
    struct run_builder *run = standard();
    struct reported reported = report_on(run);
    OWNED_JSON json_t *result = report_json(reported.report);

    load_schema();
    json_object_set_new(result, "verdict", json_string("fine"));
    ck_assert(!valid(result, schema, "result.json"));
    json_object_set_new(result, "verdict", json_string("pass"));
    ck_assert(valid(result, schema, "result.json"));
    json_object_del(json_object_get(result, "ledger"), "torn");
    ck_assert(!valid(result, schema, "result.json"));
    json_object_set_new(json_object_get(result, "ledger"), "torn", json_string("0"));
    ck_assert(!valid(result, schema, "result.json"));
    json_decref(schema);
    done(&reported, run);
}
END_TEST

/* --- the summary ------------------------------------------------------------------------------ */

static void expect_text(struct run_builder *run, const char *const *parts, const char *absent)
{
    struct reported reported = report_on(run);
    OWNED_BUFFER struct buffer text = BUFFER(1 << 20);

    report_text(reported.report, false, &text);
    for (; *parts != NULL; parts++)
        ck_assert_msg(strstr(buffer_text(&text), *parts) != NULL, "no \"%s\" in:\n%s", *parts,
                      buffer_text(&text));
    ck_assert_msg(absent == NULL || strstr(buffer_text(&text), absent) == NULL, "\"%s\" in:\n%s",
                  absent, buffer_text(&text));
    done(&reported, run);
}

START_TEST(summary_of_a_pass)
{
    const char *const parts[] = {"PASS  run-1, seed 42, exit code 0",
                                 "process.kill on n1 at 4.999 s: active (7 of 7 processes)",
                                 "c1 says active",
                                 "lost 0",
                                 "durability     pass",
                                 "[ledger/present-n2.tokens]",
                                 "blind spots",
                                 "/ordeal-built-",
                                 NULL};

    expect_text(standard(), parts, "\033[");
}
END_TEST

START_TEST(summary_of_a_loss)
{
    struct run_builder *run = standard();
    const char *const parts[] = {"FAIL  run-1", "lost 1 of", "CORRUPTION", NULL};

    run_absent(run, NULL, 1, 100);
    expect_text(run, parts, NULL);
}
END_TEST

START_TEST(summary_of_a_refusal)
{
    struct run_builder *run = standard();
    const char *const parts[] = {"REFUSED, nothing was changed", "because: fsync = off", NULL};

    end_with(run, "refused", "fsync = off");
    expect_text(run, parts, "durability");
}
END_TEST

START_TEST(colour_for_a_terminal)
{
    struct run_builder *run = standard();
    struct reported reported = report_on(run);
    OWNED_BUFFER struct buffer text = BUFFER(1 << 20);

    report_text(reported.report, true, &text);
    ck_assert_int_eq(strncmp(buffer_text(&text), "\033[1;32mPASS\033[0m", 15), 0);
    done(&reported, run);
}
END_TEST

/* report_run() on stdout, as the command does it; gives what was printed. */
static char *printed(struct run_builder *run, bool json, int *ret_exit_code)
{
    char path[128];
    char *text = calloc(1, 1 << 20);
    struct error err = {0};

    run_write(run);
    snprintf(path, sizeof path, "%s/stdout", run->folder);
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    OWNED_FD int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    dup2(fd, STDOUT_FILENO);
    enum status status = report_run(run->folder, json, ret_exit_code, &err);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    ck_assert_int_gt(pread(fd, text, (1 << 20) - 1, 0), 0);
    return text;
}

START_TEST(report_writes_and_prints)
{
    struct run_builder *run = standard();
    struct error err = {0};
    int exit_code = -1;
    char path[128];
    OWNED_MEMORY char *text = printed(run, false, &exit_code);
    OWNED_JSON json_t *result = NULL;

    ck_assert_int_eq(exit_code, 0);
    ck_assert_int_eq(strncmp(text, "PASS  run-1", 11), 0);
    snprintf(path, sizeof path, "%s/result.json", run->folder);
    ck_assert_int_eq(json_read_file(path, &result, &err), STATUS_OK);
    ck_assert_str_eq(json_text(result, "verdict", ""), "pass");
    snprintf(path, sizeof path, "%s/summary.txt", run->folder);
    ck_assert_int_eq(access(path, R_OK), 0);
    run_free(run);
}
END_TEST

START_TEST(report_prints_one_object)
{
    struct run_builder *run = standard();
    struct error err = {0};
    int exit_code = -1;
    OWNED_MEMORY char *text = printed(run, true, &exit_code);
    OWNED_JSON json_t *result = NULL;

    ck_assert_int_eq(json_parse_text(text, strlen(text), &result, &err), STATUS_OK);
    ck_assert_int_eq(json_number(result, "exit_code", -1), 0);
    run_free(run);
}
END_TEST

START_TEST(not_a_run)
{
    struct error err = {0};
    int exit_code = -1;

    ck_assert_int_ne(report_run("/tmp", false, &exit_code, &err), STATUS_OK);
    ck_assert_int_eq(exit_code, -1);
    ck_assert_ptr_nonnull(strstr(err.message, "/tmp/journal.ndjson"));
}
END_TEST

TEST_MAIN("report", 60, NULL, NULL, pass, a_failed_check_fails, fail_outranks_inconclusive,
          only_named_checks_count, an_expectation_counts_without_its_check,
          parameters_as_people_write_them, a_fault_without_effect, a_witness_that_does_not_see_it,
          a_fault_that_was_cut_short, a_fault_that_failed, no_fault_at_all,
          a_cluster_that_is_not_back, a_ledger_that_did_not_arrive, a_skipped_step,
          an_optional_skipped_step, a_dead_worker, nothing_judged,
          every_step_was_optional_and_skipped, a_skipped_step_is_in_the_summary, residue,
          residue_is_told_with_its_remedy, result_with_residue_is_valid, a_node_nobody_confirmed,
          a_fault_still_there, a_holding_fault_never_undone, the_orchestrator_died, aborted,
          refused, aborted_and_not_clean, aborted_before_anything_was_changed,
          aborted_and_the_cluster_is_not_back, sent_and_nothing_more_is_known, result_is_valid,
          result_without_evidence_is_valid, result_of_a_refused_run_is_valid, schema_refuses,
          summary_of_a_pass, summary_of_a_loss, summary_of_a_refusal, colour_for_a_terminal,
          report_writes_and_prints, report_prints_one_object, not_a_run)
