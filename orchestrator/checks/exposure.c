/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/exposure.h"

#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "orchestrator/checks/walk.h"

static void count_ack(struct exposure *exposure, int64_t done_ns)
{
    for (size_t i = 0; i < exposure->count; i++) {
        int64_t before_ns = exposure->faults[i]->f0_ns - done_ns;
        if (before_ns >= 0 && before_ns < NS_PER_SECOND)
            exposure->acked[i]++;
    }
}

struct exposure exposure_measure(const struct record *record, const struct evidence_faults *faults,
                                 enum ledger_level promised, struct arena *arena)
{
    struct exposure exposure = {
        .faults = arena_array(arena, faults->count + 1, sizeof(struct evidence_fault *)),
        .acked = arena_array(arena, faults->count + 1, sizeof(uint64_t)),
    };
    struct walk walk;

    for (size_t i = 0; i < faults->count; i++)
        if (faults->items[i].placed)
            exposure.faults[exposure.count++] = &faults->items[i];
    if (exposure.count == 0)
        return exposure;
    walk_begin(&walk, record, arena);
    while (walk_next(&walk))
        if (walk.at->kind == LEDGER_OUTCOME && walk.at->class == LEDGER_ACKED &&
            walk.client != NULL && walk.client->role != LEDGER_DIRECT &&
            walk.client->level >= promised)
            count_ack(&exposure, walk.at->done_ns);
    for (size_t i = 0; i < exposure.count; i++)
        if (exposure.acked[i] > exposure.best)
            exposure.best = exposure.acked[i];
    return exposure;
}

static const json_t *recorded(const struct record *record, const char *uid)
{
    size_t index = 0;

    for (const json_t *event; (event = record_next(record, "exposure", &index)) != NULL;)
        if (strcmp(json_text(event, "uid", ""), uid) == 0)
            return event;
    return NULL;
}

json_t *exposure_json(const struct record *record, const struct exposure *exposure)
{
    json_t *list = json_array();

    for (size_t i = 0; i < exposure->count; i++) {
        const struct evidence_fault *fault = exposure->faults[i];
        const json_t *standbys = json_object_get(recorded(record, fault->uid), "standbys");
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:I, s:o}", "uid", fault->uid, "fault", fault->fault, "node",
                      fault->node, "acked_last_second", (json_int_t) exposure->acked[i], "standbys",
                      standbys == NULL ? json_array() : json_deep_copy(standbys)));
    }
    return list;
}
