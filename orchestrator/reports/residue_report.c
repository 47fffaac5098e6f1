/* SPDX-License-Identifier: MIT */
/* What the audit at the end of the run found, for people and for machines. */
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/reports/report.h"
#include "orchestrator/residue.h"

const json_t *report_residue(const struct report *report, const char *node)
{
    const json_t *found = NULL;
    size_t index = 0;

    for (const json_t *event; (event = record_next(report->record, "residue", &index)) != NULL;)
        if (strcmp(json_text(event, "node", ""), node) == 0)
            found = event;
    return found;
}

static const json_t *nodes_of(const struct report *report)
{
    return json_object_get(json_object_get(report->record->start, "topology"), "nodes");
}

static json_t *difference_json(const struct report *report, const json_t *difference)
{
    static const char *const members[] = {"class", "change", "what",  "before",
                                          "after", "ours",   "remedy"};
    json_t *copy = json_pack("{s:s}", "text", residue_text(report->arena, difference));

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        json_t *value = json_object_get(difference, members[i]);
        json_object_set_new(copy, members[i], value == NULL ? json_null() : json_deep_copy(value));
    }
    return copy;
}

json_t *report_residue_json(const struct report *report)
{
    json_t *list = json_array();

    for (size_t i = 0; i < json_array_size(nodes_of(report)); i++) {
        const char *node = json_text(json_array_get(nodes_of(report), i), "name", "?");
        const json_t *event = report_residue(report, node);
        const json_t *found = json_object_get(event, "differences");
        json_t *differences = json_array();
        for (size_t j = 0; j < json_array_size(found); j++)
            json_array_append_new(differences, difference_json(report, json_array_get(found, j)));
        if (event != NULL)
            json_array_append_new(list, json_pack("{s:s, s:b, s:o}", "node", node, "clean",
                                                  json_flag(event, "clean", false), "differences",
                                                  differences));
        else
            json_decref(differences);
    }
    return list;
}

static void write_node(const struct report *report, const char *node, bool *any,
                       struct buffer *text)
{
    const json_t *found = json_object_get(report_residue(report, node), "differences");

    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *difference = json_array_get(found, i);
        const char *remedy = json_text(difference, "remedy", NULL);
        buffer_printf(text, "%s  %-8s %s\n", *any ? "" : "\nresidue\n", node,
                      residue_text(report->arena, difference));
        if (remedy != NULL)
            buffer_printf(text, "           on %s: %s\n", node, remedy);
        *any = true;
    }
}

void report_residue_text(const struct report *report, struct buffer *text)
{
    bool any = false;

    for (size_t i = 0; i < json_array_size(nodes_of(report)); i++)
        write_node(report, json_text(json_array_get(nodes_of(report), i), "name", "?"), &any, text);
    if (any)
        buffer_puts(text, "  afterwards: ordeal recover, which compares once more\n");
}
