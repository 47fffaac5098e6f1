/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/evidence.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"

/* --- faults ----------------------------------------------------------------------------------- */

static bool witnesses_agree(const json_t *event)
{
    const json_t *list = json_object_get(event, "witness");

    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_text(json_array_get(list, i), "state", ""), "absent") == 0)
            return false;
    return true;
}

static void place(const struct record *record, struct evidence_fault *fault)
{
    const char *clock = json_text(fault->event, "clock", fault->node);
    int64_t error_f1 = 0;

    fault->placed = record_client_ns(record, clock, json_number(fault->event, "f0_ns", 0),
                                     &fault->f0_ns, &fault->error_ns, NULL) == STATUS_OK &&
                    record_client_ns(record, clock, json_number(fault->event, "f1_ns", 0),
                                     &fault->f1_ns, &error_f1, NULL) == STATUS_OK;
}

static void find_undo(const struct record *record, struct evidence_fault *fault)
{
    size_t index = 0;
    int64_t error_ns;

    for (const json_t *event; (event = record_next(record, "fault.undone", &index)) != NULL;) {
        if (strcmp(json_text(event, "uid", ""), fault->uid) != 0)
            continue;
        const char *clock = json_text(event, "clock", json_text(event, "node", NULL));
        if (record_client_ns(record, clock, json_number(event, "undone_ns", 0), &fault->undone_ns,
                             &error_ns, NULL) != STATUS_OK)
            fault->undone_ns = 0;
    }
}

static void read_fault(const struct record *record, const json_t *event,
                       struct evidence_fault *fault)
{
    const json_t *effect = json_object_get(event, "effect");

    *fault = (struct evidence_fault){
        .event = event,
        .uid = json_text(event, "uid", ""),
        .step = json_text(event, "step", ""),
        .fault = json_text(event, "fault", ""),
        .node = json_text(event, "node", ""),
        .holds = json_flag(event, "holds", false),
        .effect_text = json_text(effect, "text", ""),
        .effective =
            strcmp(json_text(effect, "state", "unknown"), "active") == 0 && witnesses_agree(event),
    };
    place(record, fault);
    find_undo(record, fault);
}

struct evidence_faults evidence_faults(const struct record *record, struct arena *arena)
{
    struct evidence_faults faults = {0};
    size_t index = 0;

    while (record_next(record, "fault.injected", &index) != NULL)
        faults.count++;
    faults.items = arena_array(arena, faults.count + 1, sizeof *faults.items);
    index = 0;
    for (size_t i = 0; i < faults.count; i++)
        read_fault(record, record_next(record, "fault.injected", &index), &faults.items[i]);
    return faults;
}

const struct evidence_fault *evidence_first_fault(const struct evidence_faults *faults)
{
    const struct evidence_fault *first = NULL;

    for (size_t i = 0; i < faults->count; i++) {
        const struct evidence_fault *fault = &faults->items[i];
        if (fault->placed && (first == NULL || fault->f0_ns < first->f0_ns))
            first = fault;
    }
    return first;
}

/* --- timelines -------------------------------------------------------------------------------- */

/* Up to eight hexadecimal digits; NULL when there is none or more. */
static const char *hex32(const char *text, uint64_t *ret_value)
{
    const char *end = text + strspn(text, "0123456789ABCDEFabcdef");

    if (end == text || end - text > 8)
        return NULL;
    *ret_value = strtoull(text, NULL, 16);
    return end;
}

bool evidence_lsn(const char *text, uint64_t *ret_lsn)
{
    uint64_t high;
    uint64_t low;
    const char *end = text == NULL ? NULL : hex32(text, &high);

    if (end == NULL || *end != '/')
        return false;
    end = hex32(end + 1, &low);
    if (end == NULL || *end != '\0')
        return false;
    *ret_lsn = high << 32 | low;
    return true;
}

struct evidence_history evidence_history(const struct record *record, struct arena *arena)
{
    const json_t *event = record_last(record, "timeline");
    const json_t *list = json_object_get(event, "history");
    struct evidence_history history = {
        .node = json_text(event, "node", NULL),
        .timeline = (uint32_t) json_number(event, "timeline", 0),
    };

    history.known = history.node != NULL && history.timeline > 0;
    history.timelines = arena_array(arena, json_array_size(list) + 1, sizeof(uint32_t));
    history.ends = arena_array(arena, json_array_size(list) + 1, sizeof(uint64_t));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (!evidence_lsn(json_text(item, "lsn", NULL), &history.ends[history.count])) {
            history.known = false;
            continue;
        }
        history.timelines[history.count++] = (uint32_t) json_number(item, "timeline", 0);
    }
    return history;
}

bool evidence_timeline_end(const struct evidence_history *history, uint32_t timeline,
                           uint64_t *ret_lsn)
{
    for (size_t i = 0; i < history->count; i++) {
        if (history->timelines[i] != timeline)
            continue;
        *ret_lsn = history->ends[i];
        return true;
    }
    return false;
}

bool evidence_instant(const struct record *record, const json_t *event, int64_t *ret_ns)
{
    int64_t error_ns;

    return json_is_integer(json_object_get(event, "t")) &&
           record_client_ns(record, NULL, json_number(event, "t", 0), ret_ns, &error_ns, NULL) ==
               STATUS_OK;
}

/* --- topology and scenario -------------------------------------------------------------------- */

static bool is_database(const json_t *node)
{
    const json_t *roles = json_object_get(node, "roles");

    for (size_t i = 0; i < json_array_size(roles); i++) {
        const char *role = json_string_value(json_array_get(roles, i));
        if (role != NULL && strcmp(role, "database") == 0)
            return true;
    }
    return false;
}

const char *const *evidence_database_nodes(const struct record *record, struct arena *arena)
{
    const json_t *topology = json_object_get(record->start, "topology");
    const json_t *nodes = json_object_get(topology, "nodes");
    const char **names = arena_array(arena, json_array_size(nodes) + 1, sizeof *names);
    size_t count = 0;

    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        const char *name = json_text(node, "name", NULL);
        if (name != NULL && is_database(node))
            names[count++] = name;
    }
    return names;
}

const char *evidence_promise(const struct record *record)
{
    const json_t *topology = json_object_get(record->start, "topology");

    return json_text(json_object_get(topology, "promise"), "durability", "quorum");
}

const char *evidence_expectation(const struct record *record, const char *step, const char *name)
{
    const json_t *scenario = json_object_get(record->start, "scenario");
    const json_t *method = json_object_get(scenario, "method");

    for (size_t i = 0; i < json_array_size(method); i++) {
        const json_t *item = json_array_get(method, i);
        if (strcmp(json_text(item, "name", ""), step) != 0)
            continue;
        const json_t *value = json_object_get(json_object_get(item, "expect"), name);
        if (json_is_boolean(value))
            return json_is_true(value) ? "yes" : "no";
        return json_string_value(value);
    }
    return NULL;
}

bool evidence_expects(const struct record *record)
{
    const json_t *scenario = json_object_get(record->start, "scenario");
    const json_t *method = json_object_get(scenario, "method");

    for (size_t i = 0; i < json_array_size(method); i++)
        if (json_object_size(json_object_get(json_array_get(method, i), "expect")) > 0)
            return true;
    return false;
}

/* --- reasons and numbers ---------------------------------------------------------------------- */

enum { TEXT_SIZE = 320 };

/* A text that does not fit ends in "...". */
static void format_text(char text[TEXT_SIZE], const char *format, va_list args)
{
    int needed = vsnprintf(text, TEXT_SIZE, format, args);

    if (needed >= TEXT_SIZE)
        memcpy(text + TEXT_SIZE - 4, "...", 4);
}

void reasons_add(struct reasons *reasons, const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list args;

    va_start(args, format);
    format_text(text, format, args);
    va_end(args);
    if (reasons->count < sizeof reasons->texts / sizeof reasons->texts[0])
        reasons->texts[reasons->count] = arena_strdup(reasons->arena, text);
    reasons->count++;
}

const char *reasons_text(const struct reasons *reasons)
{
    enum { SHOWN = 3 };
    const char *text = "";

    for (size_t i = 0; i < reasons->count && i < SHOWN; i++)
        text = arena_printf(reasons->arena, "%s%s%s", text, i == 0 ? "" : "; ", reasons->texts[i]);
    if (reasons->count > SHOWN)
        text = arena_printf(reasons->arena, "%s and %zu more", text, reasons->count - SHOWN);
    return text;
}

void evidence_unjudged(struct check_result *result, const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list args;

    va_start(args, format);
    format_text(text, format, args);
    va_end(args);
    if (result->unjudged == NULL)
        result->unjudged = json_array();
    json_array_append_new(result->unjudged, json_string(text));
}

void evidence_detail(struct check_result *result, const char *name, json_t *value)
{
    if (result->details == NULL)
        result->details = json_object();
    json_object_set_new(result->details, name, value);
}

double evidence_ms(int64_t ns)
{
    return (double) ns / (double) NS_PER_MS;
}

json_t *evidence_json_ms(int64_t ns)
{
    int64_t us = (ns + (ns < 0 ? -500 : 500)) / 1000;

    return json_real((double) us / 1000.0);
}
