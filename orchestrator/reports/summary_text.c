/* SPDX-License-Identifier: MIT */
/*
 * summary.txt: what was done, what it cost, what is certain, and what nobody looked at. The first
 * three lines must be enough for a reader in a hurry.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/json.h"
#include "orchestrator/record_samples.h"
#include "orchestrator/reports/report.h"

enum colour { PLAIN, GREEN, RED, YELLOW, DIM };

struct writer {
    const struct report *report;
    struct buffer *text;
    bool colour;
};

static void put(const struct writer *writer, enum colour colour, const char *text)
{
    static const char *const codes[] = {[PLAIN] = "",
                                        [GREEN] = "\033[1;32m",
                                        [RED] = "\033[1;31m",
                                        [YELLOW] = "\033[1;33m",
                                        [DIM] = "\033[2m"};

    if (writer->colour && colour != PLAIN)
        buffer_printf(writer->text, "%s%s\033[0m", codes[colour], text);
    else
        buffer_puts(writer->text, text);
}

/* --- headline --------------------------------------------------------------------------------- */

static void write_headline(const struct writer *writer)
{
    static const struct {
        const char *words;
        enum colour colour;
    } words[] = {
        [RUN_PASS] = {"PASS", GREEN},
        [RUN_FAIL] = {"FAIL", RED},
        [RUN_INCONCLUSIVE] = {"INCONCLUSIVE", YELLOW},
        [RUN_ABORTED] = {"ABORTED", YELLOW},
        [RUN_REFUSED] = {"REFUSED, nothing was changed", YELLOW},
        [RUN_NOT_RECOVERED] = {"NOT RECOVERED", RED},
    };
    const struct report *report = writer->report;
    const json_t *start = report->record->start;
    const json_t *scenario = json_object_get(start, "scenario");
    const json_t *seed = json_object_get(start, "seed");
    const json_t *replays = json_object_get(start, "replays");
    const json_t *differences = json_object_get(replays, "differences");

    put(writer, words[report->verdict].colour, words[report->verdict].words);
    buffer_printf(writer->text, "  %s", json_text(start, "run", "unnamed run"));
    if (json_is_integer(seed))
        buffer_printf(writer->text, ", seed %lld", (long long) json_integer_value(seed));
    buffer_printf(writer->text, ", exit code %d\n", report->exit_code);
    if (json_text(scenario, "title", NULL) != NULL)
        buffer_printf(writer->text, "  %s\n", json_text(scenario, "title", ""));
    if (replays != NULL)
        buffer_printf(writer->text, "  replays %s\n", json_text(replays, "run", "?"));
    for (size_t i = 0; i < json_array_size(differences); i++)
        buffer_printf(writer->text, "    not the same: %s\n",
                      json_string_value(json_array_get(differences, i)));
    for (size_t i = 0; i < report->reasons.count &&
                       i < sizeof report->reasons.texts / sizeof report->reasons.texts[0];
         i++)
        buffer_printf(writer->text, "  because: %s\n", report->reasons.texts[i]);
}

/* --- what was done ---------------------------------------------------------------------------- */

static const char *offset_of(const struct report *report, const struct evidence_fault *fault)
{
    int64_t start_ns;

    if (!fault->placed || !evidence_instant(report->record, report->record->start, &start_ns))
        return "at an unknown time";
    return arena_printf(report->arena, "at %.3f s",
                        (double) (fault->f0_ns - start_ns) / 1000000000.0);
}

static void write_fault(const struct writer *writer, const struct evidence_fault *fault)
{
    const json_t *effect = json_object_get(fault->event, "effect");
    const json_t *witnesses = json_object_get(fault->event, "witness");

    buffer_printf(writer->text, "  fault     %s on %s %s: %s (%s)", fault->fault, fault->node,
                  offset_of(writer->report, fault), json_text(effect, "state", "effect unknown"),
                  fault->effect_text);
    for (size_t i = 0; i < json_array_size(witnesses); i++) {
        const json_t *witness = json_array_get(witnesses, i);
        buffer_printf(writer->text, "; %s says %s", json_text(witness, "node", "?"),
                      json_text(witness, "state", "unknown"));
    }
    if (fault->holds && fault->undone_ns != 0)
        buffer_printf(writer->text, "; undone after %.3f s",
                      (double) (fault->undone_ns - fault->f0_ns) / 1000000000.0);
    buffer_puts(writer->text, "\n");
}

/* A step that was not done is told beside those that were: nobody may take it for one. */
static void write_skipped(const struct writer *writer)
{
    size_t index = 0;

    for (const json_t *event;
         (event = record_next(writer->report->record, "step.skipped", &index)) != NULL;)
        buffer_printf(writer->text, "  skipped   step %s on %s: %s%s\n",
                      json_text(event, "step", "?"), json_text(event, "node", "?"),
                      json_text(event, "reason", "no reason"),
                      json_flag(event, "optional", false) ? " (optional)" : "");
}

static double number(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : 0.0;
}

static void write_outage(const struct writer *writer)
{
    const struct report *report = writer->report;
    const json_t *outage = report_detail(report, "failover-time", "outage_ms");
    const json_t *time = report_detail(report, "failover-time", "time_ms");
    const json_t *error = report_detail(report, "failover-time", "resolution_ms");
    const json_t *time_error = report_detail(report, "failover-time", "time_error_ms");
    const json_t *below = report_detail(report, "failover-time", "below_resolution");

    if (!json_is_number(outage))
        return;
    if (json_is_true(below))
        buffer_printf(writer->text,
                      "  outage    none above the resolution; longest gap between "
                      "acknowledgements %.1f ms, resolution %.1f ms\n",
                      number(outage), number(error));
    else
        buffer_printf(writer->text, "  outage    writes stood still for %.3f s \u00b1 %.3f s\n",
                      number(outage) / 1000.0, number(error) / 1000.0);
    if (json_is_number(time))
        buffer_printf(writer->text,
                      "  failover  %.3f s \u00b1 %.3f s from the fault to the first write on the "
                      "new timeline\n",
                      number(time) / 1000.0, number(time_error) / 1000.0);
}

static void write_phases(const struct writer *writer)
{
    const json_t *phases = report_detail(writer->report, "failover-time", "phases");
    const char *name;
    json_t *value;
    const char *separator = "            ";

    if (json_object_size(phases) == 0)
        return;
    json_object_foreach((json_t *) (uintptr_t) phases, name, value)
    {
        buffer_printf(writer->text, "%s%s %.0f ms", separator, name, number(value));
        separator = ", ";
    }
    buffer_puts(writer->text, "\n");
}

static void write_commits(const struct writer *writer)
{
    const json_t *ledger = report_detail(writer->report, "durability", "ledger");
    const char *present = json_flag(ledger, "judged", false) ? "" : " (presence was not judged)";

    if (ledger == NULL)
        return;
    buffer_printf(writer->text,
                  "  commits   acknowledged %" PRId64 ", lost %" PRId64 ", in doubt %" PRId64
                  " of which %" PRId64 " present%s\n",
                  json_number(ledger, "acked", 0), json_number(ledger, "lost", 0),
                  json_number(ledger, "in_doubt", 0), json_number(ledger, "in_doubt_present", 0),
                  present);
}

static void write_samples(const struct writer *writer)
{
    const struct report *report = writer->report;
    const char *text = record_samples_text(report->arena, report->record);

    if (text != NULL)
        buffer_printf(writer->text, "  samples   %s\n", text);
}

/* --- checks ----------------------------------------------------------------------------------- */

static const char *number_text(struct arena *arena, const json_t *value)
{
    if (json_is_integer(value))
        return arena_printf(arena, "%lld", (long long) json_integer_value(value));
    if (json_is_real(value))
        return arena_printf(arena, "%.1f", json_real_value(value));
    return NULL;
}

static const char *measure_text(struct arena *arena, const struct check_result *result)
{
    const char *value = number_text(arena, result->value);
    const char *bound = number_text(arena, result->bound);
    const char *resolution = number_text(arena, result->resolution);
    const char *text;

    if (value == NULL)
        return "not measured";
    text = arena_printf(arena, "%s %s", value, result->unit == NULL ? "" : result->unit);
    if (resolution != NULL)
        text = strcmp(resolution, "0") == 0
                   ? arena_printf(arena, "%s (exact)", text)
                   : arena_printf(arena, "%s (resolution %s)", text, resolution);
    if (bound != NULL)
        text = arena_printf(arena, "%s, bound %s", text, bound);
    return text;
}

static void write_check(const struct writer *writer, const struct report_check *slot)
{
    static const enum colour colours[] = {[VERDICT_PASS] = GREEN,
                                          [VERDICT_INCONCLUSIVE] = YELLOW,
                                          [VERDICT_FAIL] = RED,
                                          [VERDICT_SKIPPED] = DIM};
    const struct check_result *result = &slot->result;
    char verdict[32];

    snprintf(verdict, sizeof verdict, "%-12s", verdict_name(result->verdict));
    buffer_printf(writer->text, "  %-14s ", slot->check->name);
    put(writer, colours[result->verdict], verdict);
    buffer_printf(writer->text, " %s  [%s]\n", measure_text(writer->report->arena, result),
                  result->evidence == NULL ? "no evidence" : result->evidence);
    buffer_printf(writer->text, "                 %s\n", result->text);
}

static void write_checks(const struct writer *writer)
{
    buffer_puts(writer->text, "\nchecks\n");
    for (size_t i = 0; i < writer->report->count; i++)
        if (writer->report->checks[i].counts)
            write_check(writer, &writer->report->checks[i]);
}

/* --- what nobody looked at -------------------------------------------------------------------- */

static void write_unjudged(const struct writer *writer)
{
    const struct report *report = writer->report;
    bool any = false;

    for (size_t i = 0; i < report->count; i++) {
        const struct report_check *slot = &report->checks[i];
        if (!slot->counts)
            buffer_printf(writer->text, "%s  %s: the scenario does not ask for it\n",
                          any ? "" : "\nnot judged\n", slot->check->name);
        any = any || !slot->counts;
        for (size_t j = 0; slot->counts && j < json_array_size(slot->result.unjudged); j++) {
            buffer_printf(writer->text, "%s  %s: %s\n", any ? "" : "\nnot judged\n",
                          slot->check->name,
                          json_string_value(json_array_get(slot->result.unjudged, j)));
            any = true;
        }
    }
}

/* What a fault does not model, whoever injects it. */
static const struct {
    const char *fault, *text;
} blind_spots[] = {
    {"process.kill", "a killed process is not a power loss: the kernel keeps its page cache and "
                     "still sends what was in its sockets"},
    {"process.freeze", "a frozen process keeps its connections: the kernel goes on answering for "
                       "them"},
    {"node.crash", "power loss: what the kernel had written back survives; a device's volatile "
                   "cache, missing flushes and torn sectors are not modelled"},
};

static bool injected(const struct report *report, const char *fault)
{
    for (size_t i = 0; i < report->faults.count; i++)
        if (strcmp(report->faults.items[i].fault, fault) == 0)
            return true;
    return false;
}

static void write_blind_spots(const struct writer *writer)
{
    bool any = false;

    for (size_t i = 0; i < sizeof blind_spots / sizeof blind_spots[0]; i++) {
        if (!injected(writer->report, blind_spots[i].fault))
            continue;
        buffer_printf(writer->text, "%s  %s\n", any ? "" : "\nblind spots\n", blind_spots[i].text);
        any = true;
    }
}

void report_text(const struct report *report, bool colour, struct buffer *text)
{
    const struct writer writer = {.report = report, .text = text, .colour = colour};

    write_headline(&writer);
    if (report->verdict != RUN_REFUSED) {
        for (size_t i = 0; i < report->faults.count; i++)
            write_fault(&writer, &report->faults.items[i]);
        write_skipped(&writer);
        write_outage(&writer);
        write_phases(&writer);
        write_commits(&writer);
        write_samples(&writer);
        write_checks(&writer);
        report_residue_text(report, text);
        write_unjudged(&writer);
        write_blind_spots(&writer);
    }
    buffer_printf(text, "\nrun directory %s\n", report->record->folder);
}
