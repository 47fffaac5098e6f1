/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/direct_probes.h"

#include <stdlib.h>

#include "orchestrator/checks/series.h"

struct attempt {
    int64_t begun_ns, done_ns;
};

struct attempts { /* on one node */
    size_t count, room;
    struct attempt *items;
};

struct direct_probes {
    struct arena *arena;
    struct attempts nodes[WALK_NODES_MAX];
    int64_t *begun; /* of the transaction under way, by slot */
    size_t slots;
};

struct direct_probes *direct_probes_new(struct arena *arena)
{
    struct direct_probes *probes = arena_alloc(arena, sizeof *probes);

    probes->arena = arena;
    return probes;
}

static void add_attempt(struct direct_probes *probes, uint16_t node, int64_t begun_ns,
                        int64_t done_ns)
{
    struct attempts *attempts = &probes->nodes[node];

    if (attempts->count == attempts->room) {
        size_t room = attempts->room == 0 ? 256 : attempts->room * 2;
        attempts->items = arena_grow(probes->arena, attempts->items, attempts->room, room,
                                     sizeof *attempts->items);
        attempts->room = room;
    }
    attempts->items[attempts->count++] = (struct attempt){begun_ns, done_ns};
}

static int64_t *begun_of(struct direct_probes *probes, size_t slot)
{
    if (slot >= probes->slots) {
        size_t slots = slot * 2 + 64;
        probes->begun =
            arena_grow(probes->arena, probes->begun, probes->slots, slots, sizeof *probes->begun);
        probes->slots = slots;
    }
    return &probes->begun[slot];
}

void direct_probes_add(struct direct_probes *probes, const struct walk *walk)
{
    const struct ledger_record *at = walk->at;
    int64_t *begun_ns = begun_of(probes, walk->slot);

    if (at->kind == LEDGER_INTENT) {
        *begun_ns = at->sent_ns;
        return;
    }
    if (at->kind != LEDGER_OUTCOME)
        return;
    if (at->phase == LEDGER_CONNECTING) /* when it began to connect is not recorded */
        add_attempt(probes, walk->node, at->done_ns, at->done_ns);
    else if (at->phase == LEDGER_COMMITTING && *begun_ns != 0)
        add_attempt(probes, walk->node, *begun_ns, at->done_ns);
    else
        add_attempt(probes, walk->node, at->sent_ns, at->done_ns);
    *begun_ns = 0;
}

static int compare(const void *left, const void *right)
{
    int64_t a = ((const struct attempt *) left)->begun_ns;
    int64_t b = ((const struct attempt *) right)->begun_ns;

    return a < b ? -1 : a > b;
}

void direct_probes_sort(struct direct_probes *probes)
{
    for (size_t i = 0; i < WALK_NODES_MAX; i++) {
        struct attempts *attempts = &probes->nodes[i];
        if (attempts->count > 1)
            qsort(attempts->items, attempts->count, sizeof *attempts->items, compare);
    }
}

int64_t direct_probes_spacing(const struct direct_probes *probes)
{
    struct series spacing = {.arena = probes->arena};

    for (size_t i = 0; i < WALK_NODES_MAX; i++)
        for (size_t j = 1; j < probes->nodes[i].count; j++)
            series_add(&spacing,
                       probes->nodes[i].items[j].begun_ns - probes->nodes[i].items[j - 1].begun_ns);
    series_sort(&spacing);
    return series_quantile(&spacing, 50);
}

int64_t direct_probes_pause(const struct direct_probes *probes, uint16_t node, int64_t from_ns,
                            int64_t to_ns)
{
    const struct attempts *attempts = &probes->nodes[node];
    int64_t covered_ns = from_ns;
    int64_t longest_ns = 0;

    for (size_t i = 0; i < attempts->count && covered_ns < to_ns; i++) {
        const struct attempt *attempt = &attempts->items[i];
        int64_t until_ns = attempt->begun_ns < to_ns ? attempt->begun_ns : to_ns;
        if (until_ns - covered_ns > longest_ns)
            longest_ns = until_ns - covered_ns;
        if (attempt->done_ns > covered_ns)
            covered_ns = attempt->done_ns;
    }
    return to_ns - covered_ns > longest_ns ? to_ns - covered_ns : longest_ns;
}
