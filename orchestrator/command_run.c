/* SPDX-License-Identifier: MIT */
/* `ordeal run SCENARIO|PROFILE`: one run, repeats of one, or a profile of several. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/units.h"
#include "orchestrator/engine.h"
#include "orchestrator/files.h"

struct running {
    const struct invocation *invocation;
    struct arena *arena;
    const struct topology *topology;
    bool json;
};

struct figure {
    bool known;
    double ms;
};

/* One part of a profile or of repeats, as its result.json tells it. */
struct part {
    const char *name, *folder, *verdict;
    const char *skipped; /* why an optional scenario was not done, or NULL */
    int exit_code;
    bool interrupted;                   /* no further part is begun */
    struct figure failover, resolution; /* resolution: of the outage and the failover */
    bool has_lost;
    double seconds;
    int64_t lost;
};

/* Worst first; what is not in the list counts as worse than all. */
static int rank(int exit_code)
{
    static const int order[] = {EXIT_PASS,    EXIT_INCONCLUSIVE, EXIT_FAIL,
                                EXIT_REFUSED, EXIT_ABORTED,      EXIT_NOT_RECOVERED};

    for (int i = 0; i < (int) (sizeof order / sizeof order[0]); i++)
        if (order[i] == exit_code)
            return i;
    return 100;
}

/* ---- one ---- */

static enum status run_one(const struct running *running, const struct scenario *scenario,
                           const char *folder, int64_t delay_ms, bool quiet,
                           struct engine_result *ret_result, struct error *err)
{
    struct engine_options options = {.topology = running->topology,
                                     .scenario = scenario,
                                     .folder = folder,
                                     .delay_ms = delay_ms,
                                     .strict = invocation_flag(running->invocation, "strict"),
                                     .json = running->json,
                                     .quiet = quiet};
    enum status status = files_seed(running->invocation, scenario, &options.seed, err);

    if (status == STATUS_OK)
        status = engine_run(&options, ret_result, err);
    return status;
}

static enum status run_single(const struct running *running, const struct scenario *scenario,
                              int *ret_exit_code, struct error *err)
{
    struct engine_result result = {0};
    const char *folder;
    enum status status =
        files_run_folder(running->arena, invocation_option(running->invocation, "output"),
                         scenario->name, &folder, err);

    if (status != STATUS_OK)
        return status;
    fprintf(stderr, "run directory %s\n", folder);
    status = run_one(running, scenario, folder, 0, false, &result, err);
    if (status == STATUS_OK)
        *ret_exit_code = result.exit_code;
    fprintf(stderr, "run directory %s\n", folder);
    return status;
}

/* ---- several ---- */

/* The only reason there is: the preflight's, or that of the steps. */
static const char *first_reason(struct arena *arena, const json_t *result)
{
    const char *text = json_string_value(json_array_get(json_object_get(result, "reasons"), 0));

    return arena_strdup(arena, text != NULL ? text : "no reason was recorded");
}

/*
 * What this cluster cannot do, and the profile goes on without. With --strict it counts, and a run
 * that does without something is inconclusive.
 */
static void skip_part(const struct running *running, const json_t *result, struct part *part)
{
    bool strict = invocation_flag(running->invocation, "strict");

    part->skipped = first_reason(running->arena, result);
    part->verdict = "skipped";
    part->exit_code = strict ? EXIT_INCONCLUSIVE : EXIT_PASS;
}

static void read_result(struct running *running, bool skipped, struct part *part)
{
    const char *path = arena_printf(running->arena, "%s/result.json", part->folder);
    OWNED_JSON json_t *result = NULL;
    struct error ignored;

    part->verdict = "unknown";
    if (json_read_file(path, &result, &ignored) != STATUS_OK)
        return;
    const json_t *failover = json_object_get(result, "failover");
    const json_t *time = json_object_get(failover, "time_ms");
    const json_t *resolution = json_object_get(failover, "resolution_ms");
    const json_t *lost = json_object_get(json_object_get(result, "ledger"), "lost");
    part->verdict = arena_strdup(running->arena, json_text(result, "verdict", "unknown"));
    if (skipped) {
        skip_part(running, result, part);
        return;
    }
    part->failover = (struct figure){json_is_number(time), json_number_value(time)};
    part->resolution = (struct figure){json_is_number(resolution), json_number_value(resolution)};
    part->has_lost = json_is_integer(lost);
    part->lost = json_integer_value(lost);
}

static enum status run_part(struct running *running, const struct scenario *scenario,
                            const char *folder, int64_t delay_ms, struct part *part,
                            struct error *err)
{
    int64_t began_ns = clock_boot_ns();
    struct engine_result result = {0};
    enum status status =
        files_run_folder(running->arena, folder, scenario->name, &part->folder, err);

    if (status != STATUS_OK)
        return status;
    part->name = scenario->name;
    fprintf(stderr, "\n== %s: %s\n", scenario->name, part->folder);
    status = run_one(running, scenario, part->folder, delay_ms, true, &result, err);
    part->exit_code = result.exit_code;
    part->interrupted = result.interrupted;
    part->seconds = (double) (clock_boot_ns() - began_ns) / NS_PER_SECOND;
    if (status == STATUS_OK)
        read_result(running, scenario->optional && result.unsupported, part);
    return status;
}

/* Parts that a signal kept from being begun make it aborted, however good those before were. */
static int worst_of(const struct part *parts, size_t count, size_t wanted)
{
    int worst = EXIT_PASS;
    size_t skipped = 0;

    for (size_t i = 0; i < count; i++) {
        bool cut_short = parts[i].interrupted && count < wanted;
        int exit_code = cut_short && rank(parts[i].exit_code) < rank(EXIT_ABORTED)
                            ? EXIT_ABORTED
                            : parts[i].exit_code;

        skipped += parts[i].skipped != NULL;
        if (rank(exit_code) > rank(worst))
            worst = exit_code;
    }
    return worst == EXIT_PASS && skipped == count && count > 0 ? EXIT_INCONCLUSIVE : worst;
}

static void print_table(const struct part *parts, size_t count)
{
    printf("%-34s %-14s %12s %12s %6s %9s\n", "scenario", "verdict", "failover", "resolution",
           "lost", "took");
    for (size_t i = 0; i < count; i++) {
        char failover[32] = "-", resolution[32] = "-", lost[32] = "-";

        if (parts[i].failover.known)
            snprintf(failover, sizeof failover, "%.3f s", parts[i].failover.ms / 1000);
        if (parts[i].resolution.known)
            snprintf(resolution, sizeof resolution, "%.1f ms", parts[i].resolution.ms);
        if (parts[i].has_lost)
            snprintf(lost, sizeof lost, "%" PRId64, parts[i].lost);
        printf("%-34s %-14s %12s %12s %6s %7.1f s\n", parts[i].name, parts[i].verdict, failover,
               resolution, lost, parts[i].seconds);
    }
    for (size_t i = 0; i < count; i++)
        if (parts[i].skipped != NULL)
            printf("%s: skipped, %s\n", parts[i].name, parts[i].skipped);
        else if (parts[i].exit_code != EXIT_PASS)
            printf("%s: see %s/summary.txt\n", parts[i].name, parts[i].folder);
}

static json_t *figure_json(const struct figure *figure)
{
    return figure->known ? json_real(figure->ms) : json_null();
}

static json_t *parts_json(const struct part *parts, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++) {
        json_t *part = json_pack("{s:s, s:s, s:s, s:i, s:f}", "scenario", parts[i].name, "folder",
                                 parts[i].folder, "verdict", parts[i].verdict, "exit_code",
                                 parts[i].exit_code, "seconds", parts[i].seconds);

        json_object_set_new(part, "failover_ms", figure_json(&parts[i].failover));
        json_object_set_new(part, "resolution_ms", figure_json(&parts[i].resolution));
        json_object_set_new(part, "lost",
                            parts[i].has_lost ? json_integer(parts[i].lost) : json_null());
        if (parts[i].skipped != NULL)
            json_object_set_new(part, "reason", json_string(parts[i].skipped));
        json_array_append_new(list, part);
    }
    return list;
}

static void print_json(json_t *object)
{
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(object);
}

/* ---- repeats ---- */

static int by_value(const void *left, const void *right)
{
    double a = *(const double *) left, b = *(const double *) right;

    return (a > b) - (a < b);
}

/* Nearest rank: the value that at least the given part of all values do not exceed. */
static double percentile(const double *sorted, size_t count, double part)
{
    size_t index = 0;

    while (index + 1 < count && (double) (index + 1) < part * (double) count)
        index++;
    return sorted[index];
}

/* Of one figure over all runs that have it; null when none has. */
static json_t *spread_json(struct arena *arena, const struct part *parts, size_t count,
                           struct figure (*of)(const struct part *part))
{
    double *values = arena_array(arena, count + 1, sizeof *values);
    size_t known = 0;

    for (size_t i = 0; i < count; i++)
        if (of(&parts[i]).known)
            values[known++] = of(&parts[i]).ms;
    if (known == 0)
        return json_null();
    qsort(values, known, sizeof *values, by_value);
    return json_pack("{s:I, s:f, s:f, s:f, s:f}", "runs", (json_int_t) known, "min_ms", values[0],
                     "median_ms", percentile(values, known, 0.5), "p95_ms",
                     percentile(values, known, 0.95), "max_ms", values[known - 1]);
}

static struct figure failover_of(const struct part *part)
{
    return part->failover;
}

static struct figure resolution_of(const struct part *part)
{
    return part->resolution;
}

static double spread_value(const json_t *spread, const char *name)
{
    return json_number_value(json_object_get(spread, name));
}

static void print_spread(const char *what, const json_t *spread)
{
    if (!json_is_object(spread)) {
        printf("%s: none was measured\n", what);
        return;
    }
    printf("%s of %" PRId64 " runs: min %.1f ms, median %.1f ms, p95 %.1f ms, max %.1f ms\n", what,
           json_number(spread, "runs", 0), spread_value(spread, "min_ms"),
           spread_value(spread, "median_ms"), spread_value(spread, "p95_ms"),
           spread_value(spread, "max_ms"));
}

static void report_repeats(struct running *running, const struct part *parts, size_t count,
                           const char *folder, int exit_code)
{
    OWNED_JSON json_t *failover = spread_json(running->arena, parts, count, failover_of);
    OWNED_JSON json_t *resolution = spread_json(running->arena, parts, count, resolution_of);

    if (running->json) {
        print_json(json_pack("{s:s, s:o, s:O, s:O, s:i}", "folder", folder, "runs",
                             parts_json(parts, count), "failover", failover, "resolution",
                             resolution, "exit_code", exit_code));
        return;
    }
    print_table(parts, count);
    print_spread("failover time", failover);
    print_spread("resolution", resolution);
}

static enum status run_repeats(struct running *running, const struct scenario *scenario,
                               int64_t times, int *ret_exit_code, struct error *err)
{
    struct part *parts = arena_array(running->arena, (size_t) times, sizeof *parts);
    const char *folder;
    size_t count = 0;
    enum status status =
        files_outer_folder(running->arena, invocation_option(running->invocation, "output"),
                           scenario->name, &folder, err);

    if (status != STATUS_OK)
        return status;
    fprintf(stderr, "run directory %s\n", folder);
    for (int64_t i = 0; status == STATUS_OK && i < times; i++) {
        const char *inner = arena_printf(running->arena, "%s/%02" PRId64, folder, i + 1);

        status =
            run_part(running, scenario, inner, scenario->spread_ms * i / times, &parts[count], err);
        if (status != STATUS_OK)
            break;
        const struct part *done = &parts[count++];
        if (done->interrupted || rank(done->exit_code) >= rank(EXIT_REFUSED))
            break; /* the next one would begin on a cluster that is not as it should be */
    }
    *ret_exit_code = worst_of(parts, count, (size_t) times);
    report_repeats(running, parts, count, folder, *ret_exit_code);
    fprintf(stderr, "run directory %s\n", folder);
    return status;
}

/* ---- profiles ---- */

static enum status run_profile(struct running *running, const struct profile *profile,
                               int *ret_exit_code, struct error *err)
{
    struct part *parts = arena_array(running->arena, profile->count + 1, sizeof *parts);
    const char *folder;
    size_t count = 0;
    enum status status =
        files_outer_folder(running->arena, invocation_option(running->invocation, "output"),
                           profile->name, &folder, err);

    if (status != STATUS_OK)
        return status;
    fprintf(stderr, "run directory %s\n", folder);
    for (size_t i = 0; i < profile->count; i++) {
        const char *inner =
            arena_printf(running->arena, "%s/%02zu-%s", folder, i + 1, profile->scenarios[i]->name);

        status = run_part(running, profile->scenarios[i], inner, 0, &parts[count], err);
        if (status != STATUS_OK)
            break;
        const struct part *done = &parts[count++];
        if (done->interrupted || rank(done->exit_code) >= rank(EXIT_ABORTED))
            break; /* an operator's end or an unclean node ends all of it */
    }
    *ret_exit_code = worst_of(parts, count, profile->count);
    if (running->json)
        print_json(json_pack("{s:s, s:s, s:o, s:i}", "profile", profile->name, "folder", folder,
                             "runs", parts_json(parts, count), "exit_code", *ret_exit_code));
    else
        print_table(parts, count);
    if (count < profile->count)
        fprintf(stderr, "%zu of %zu scenarios did not run\n", profile->count - count,
                profile->count);
    fprintf(stderr, "run directory %s\n", folder);
    return status;
}

/* ---- the command ---- */

static enum status times_of(const struct invocation *invocation, const struct scenario *scenario,
                            int64_t *ret_times, struct error *err)
{
    const char *text = invocation_option(invocation, "repeat");

    *ret_times = scenario->repeat;
    if (text == NULL)
        return STATUS_OK;
    if (units_integer(text, ret_times, err) != STATUS_OK || *ret_times < 1 || *ret_times > 1000)
        return error_set(err, STATUS_USAGE, "--repeat: %s is not a number from 1 to 1000", text);
    return STATUS_OK;
}

static enum status run_any(struct running *running, int *ret_exit_code, struct error *err)
{
    struct scenario_file file = {0};
    struct topology *topology = NULL;
    int64_t times = 1;
    enum status status = files_topology(running->arena, running->invocation, &topology, err);

    if (status == STATUS_OK)
        status = files_scenario(running->arena, invocation_argument(running->invocation, 0),
                                topology, &file, err);
    if (status != STATUS_OK)
        return status;
    running->topology = topology;
    if (file.profile != NULL)
        return run_profile(running, file.profile, ret_exit_code, err);
    status = times_of(running->invocation, file.scenario, &times, err);
    if (status != STATUS_OK)
        return status;
    if (times > 1)
        return run_repeats(running, file.scenario, times, ret_exit_code, err);
    return run_single(running, file.scenario, ret_exit_code, err);
}

static int run_run(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct running running = {
        .invocation = invocation, .arena = arena, .json = invocation_flag(invocation, "json")};
    struct error err = {0};
    int exit_code = EXIT_PASS;

    if (run_any(&running, &exit_code, &err) == STATUS_OK)
        return exit_code;
    int code = command_fail(&err);
    return rank(exit_code) > rank(EXIT_INCONCLUSIVE) ? exit_code : code;
}

static const struct command_option options[] = {
    {.name = "topology", .letter = 't', .value = "FILE", .help = "the lab that is up, without"},
    {.name = "output", .letter = 'o', .value = "DIR", .help = "run directory; must be empty"},
    {.name = "seed", .value = "N", .help = "of every choice; else the scenario's, else drawn"},
    {.name = "repeat", .value = "N", .help = "N runs, the injection spread over the HA loop"},
    {.name = "strict", .help = "optional steps and scenarios that are skipped count"},
    {.name = "json", .help = "one JSON object on stdout instead of the summary"},
    {.name = NULL},
};

const struct command command_run = {
    .name = "run",
    .arguments = "SCENARIO|PROFILE",
    .minimum = 1,
    .maximum = 1,
    .summary = "do a scenario to the cluster and judge what happened",
    .text = "Preflight, baseline, method, recovery, checks, report. What happens goes to stderr "
            "and into the run directory as it happens; the summary goes to stdout. SIGINT, "
            "SIGTERM and SIGHUP undo everything, bring the cluster back, judge what was seen and "
            "end the run with 3. A second one leaves as soon as everything is undone: nothing is "
            "waited for but that, no evidence is collected, and a cluster that is not whole by "
            "then ends the run with 5.",
    .options = options,
    .run = run_run,
};
