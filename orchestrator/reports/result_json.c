/* SPDX-License-Identifier: MIT */
/* result.json: the contract for machines, docs/result.schema.json. */
#include <string.h>

#include "lib/json.h"
#include "orchestrator/checks/token_counts.h"
#include "orchestrator/reports/report.h"

static json_t *copy_or_null(const json_t *value)
{
    return value == NULL ? json_null() : json_deep_copy(value);
}

static json_t *text_or_null(const char *text)
{
    return text == NULL ? json_null() : json_string(text);
}

static json_t *check_json(const struct report_check *slot)
{
    const struct check_result *result = &slot->result;

    return json_pack(
        "{s:s, s:s, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", slot->check->name,
        "verdict", verdict_name(result->verdict), "counts", slot->counts, "text", result->text,
        "value", copy_or_null(result->value), "bound", copy_or_null(result->bound), "unit",
        text_or_null(result->unit), "resolution", copy_or_null(result->resolution), "evidence",
        text_or_null(result->evidence), "details",
        result->details == NULL ? json_object() : json_deep_copy(result->details), "unjudged",
        result->unjudged == NULL ? json_array() : json_deep_copy(result->unjudged));
}

static json_t *checks_json(const struct report *report)
{
    json_t *list = json_array();

    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(list, check_json(&report->checks[i]));
    return list;
}

/* ms since the run began; null when the instant cannot be placed. */
static json_t *since_start(const struct report *report, int64_t client_ns)
{
    int64_t start_ns;

    if (client_ns == 0 || !evidence_instant(report->record, report->record->start, &start_ns))
        return json_null();
    return evidence_json_ms(client_ns - start_ns);
}

static json_t *fault_json(const struct report *report, const struct evidence_fault *fault)
{
    const json_t *effect = json_object_get(fault->event, "effect");
    const json_t *witness = json_object_get(fault->event, "witness");
    json_t *seen = json_pack("{s:s, s:s, s:b, s:o}", "state", json_text(effect, "state", "unknown"),
                             "text", fault->effect_text, "accepted", fault->effective, "witness",
                             witness == NULL ? json_array() : json_deep_copy(witness));

    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "uid", fault->uid, "fault",
                     fault->fault, "step", fault->step, "target", fault->node, "injected_at",
                     fault->placed ? since_start(report, fault->f0_ns) : json_null(), "interval_ms",
                     fault->placed ? evidence_json_ms(fault->f1_ns - fault->f0_ns) : json_null(),
                     "effect", seen, "undone_at", since_start(report, fault->undone_ns));
}

static json_t *faults_json(const struct report *report)
{
    json_t *list = json_array();

    for (size_t i = 0; i < report->faults.count; i++)
        json_array_append_new(list, fault_json(report, &report->faults.items[i]));
    return list;
}

static json_t *ledger_json(const struct report *report)
{
    const json_t *ledger = report_detail(report, "durability", "ledger");

    if (ledger == NULL)
        return token_counts_json(&(struct token_counts){0}, false);
    return json_deep_copy(ledger);
}

/* Always with these members; null where nothing was measured. */
static json_t *failover_json(const struct report *report)
{
    static const char *const members[] = {"outage_ms", "outage_union_ms", "time_ms",
                                          "phases",    "resolution_ms",   "clock_error_ms",
                                          "clients",   "happened",        "incidents"};
    json_t *failover = json_object();

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        json_object_set_new(failover, members[i],
                            copy_or_null(report_detail(report, "failover-time", members[i])));
    return failover;
}

static json_t *reasons_json(const struct report *report)
{
    const struct reasons *reasons = &report->reasons;
    json_t *list = json_array();

    for (size_t i = 0; i < reasons->count && i < sizeof reasons->texts / sizeof reasons->texts[0];
         i++)
        json_array_append_new(list, json_string(reasons->texts[i]));
    return list;
}

json_t *report_json(const struct report *report)
{
    const json_t *start = report->record->start;
    const json_t *scenario = json_object_get(start, "scenario");
    const json_t *topology = json_object_get(start, "topology");

    return json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "schema",
        "ordeal/result-1", "run", json_text(start, "run", ""), "title",
        json_text(scenario, "title", ""), "topology", json_text(topology, "name", ""), "seed",
        copy_or_null(json_object_get(start, "seed")), "verdict", run_verdict_name(report->verdict),
        "exit_code", report->exit_code, "reasons", reasons_json(report), "checks",
        checks_json(report), "faults", faults_json(report), "ledger", ledger_json(report),
        "failover", failover_json(report), "rpo",
        copy_or_null(report_detail(report, "durability", "rpo")), "replays",
        copy_or_null(json_object_get(start, "replays")), "residue", report_residue_json(report));
}
