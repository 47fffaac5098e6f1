/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/tokens.h"

#include <inttypes.h>
#include <string.h>

#include "lib/json.h"

enum ledger_level tokens_promised_level(const char *promise)
{
    if (strcmp(promise, "quorum") == 0)
        return LEDGER_ON;
    if (strcmp(promise, "local") == 0)
        return LEDGER_LOCAL;
    return LEDGER_OFF;
}

/* --- merging ---------------------------------------------------------------------------------- */

static struct token_list *list_of(struct tokens *tokens, size_t slot)
{
    if (slot >= tokens->list_room) {
        size_t room = tokens->list_room == 0 ? 64 : tokens->list_room;
        while (room <= slot)
            room *= 2;
        tokens->lists = arena_grow(tokens->walk.arena, tokens->lists, tokens->list_room, room,
                                   sizeof *tokens->lists);
        tokens->list_room = room;
    }
    if (slot >= tokens->list_count)
        tokens->list_count = slot + 1;
    return &tokens->lists[slot];
}

/*
 * Tokens are dense, so a client's highest one cannot exceed the number of records in its file:
 * memory is bounded by the size of the ledgers, whatever they claim.
 */
static uint16_t *state_of(struct tokens *tokens, size_t slot, uint64_t seq)
{
    const struct walk *walk = &tokens->walk;
    struct token_list *list = list_of(tokens, slot);

    if (seq == 0 || seq > walk->record->ledgers[walk->file].ledger.count) {
        tokens->impossible++;
        return NULL;
    }
    if (seq >= list->room) {
        uint64_t room = list->room == 0 ? 1024 : list->room * 2;
        while (room <= seq)
            room *= 2;
        list->state = arena_grow(walk->arena, list->state, list->room, room, sizeof *list->state);
        list->room = room;
    }
    if (seq > list->highest)
        list->highest = seq;
    return &list->state[seq];
}

static void note_timeline(struct tokens *tokens, uint32_t timeline, int64_t done_ns)
{
    size_t i = 0;

    while (i < tokens->timeline_count && tokens->timelines[i].timeline != timeline)
        i++;
    if (i == sizeof tokens->timelines / sizeof tokens->timelines[0])
        return;
    if (i == tokens->timeline_count) {
        tokens->timeline_count++;
        tokens->timelines[i].timeline = timeline;
        tokens->timelines[i].first_ack_ns = done_ns;
    } else if (done_ns < tokens->timelines[i].first_ack_ns) {
        tokens->timelines[i].first_ack_ns = done_ns;
    }
}

static void merge_intent(struct tokens *tokens)
{
    uint16_t *state = state_of(tokens, tokens->walk.slot, tokens->walk.at->seq);

    if (state == NULL)
        return;
    if ((*state & TOKEN_CLASS_MASK) != TOKEN_NONE)
        tokens->contradictions++;
    else
        *state |= TOKEN_INTENT;
}

static void merge_outcome(struct tokens *tokens, enum ledger_level promised)
{
    const struct ledger_record *at = tokens->walk.at;
    uint16_t *state = state_of(tokens, tokens->walk.slot, at->seq);
    uint16_t class = (uint16_t) (TOKEN_ACKED + at->class);

    if (state == NULL)
        return;
    uint16_t before = *state & TOKEN_CLASS_MASK;
    bool needs_intent = class == TOKEN_ACKED || class == TOKEN_WEAK;
    if ((before != TOKEN_INTENT && before != TOKEN_NONE) ||
        (before == TOKEN_NONE && needs_intent)) {
        tokens->contradictions++;
        return;
    }
    *state = (uint16_t) ((*state & ~TOKEN_CLASS_MASK) | class);
    enum ledger_level level = tokens->walk.client->level;
    if (level == LEDGER_LEVEL_UNKNOWN && needs_intent)
        *state |= TOKEN_UNLEVELLED;
    if (class != TOKEN_ACKED)
        return;
    if (level != LEDGER_LEVEL_UNKNOWN && level < promised)
        *state |= TOKEN_BELOW;
    if (at->timeline != 0)
        note_timeline(tokens, at->timeline, at->done_ns);
}

static void merge_reserve(struct tokens *tokens)
{
    struct token_list *list = list_of(tokens, tokens->walk.slot);

    if (tokens->walk.at->lsn > list->reserved)
        list->reserved = tokens->walk.at->lsn;
}

static void merge_record(struct tokens *tokens, enum ledger_level promised)
{
    tokens->reads += tokens->walk.at->kind == LEDGER_READ;
    if (tokens->walk.slot == SIZE_MAX)
        return;
    switch ((enum ledger_kind) tokens->walk.at->kind) {
    case LEDGER_INTENT:
        merge_intent(tokens);
        break;
    case LEDGER_OUTCOME:
        merge_outcome(tokens, promised);
        break;
    case LEDGER_RESERVE:
        merge_reserve(tokens);
        break;
    case LEDGER_SESSION:
    case LEDGER_SESSION_END:
    case LEDGER_READ:
    case LEDGER_MISSED:
    case LEDGER_BEAT:
    case LEDGER_END:
        break;
    }
}

uint16_t *tokens_state(const struct tokens *tokens, uint32_t client, uint64_t seq)
{
    size_t slot = walk_slot(&tokens->walk, client);

    if (slot >= tokens->list_count || seq == 0 || seq > tokens->lists[slot].highest)
        return NULL;
    return &tokens->lists[slot].state[seq];
}

/* Reads name tokens of other files too: they come when all tokens are known. */
static void merge_reads(struct tokens *tokens)
{
    const struct record *record = tokens->walk.record;

    if (tokens->reads == 0) /* as in most runs: not another pass over all records */
        return;
    for (size_t i = 0; i < record->ledger_count; i++) {
        const struct ledger *ledger = &record->ledgers[i].ledger;
        for (size_t j = 0; j < ledger->count; j++) {
            const struct ledger_record *at = &ledger->records[j];
            if (at->kind != LEDGER_READ)
                continue;
            uint16_t *state = tokens_state(tokens, (uint32_t) at->lsn, at->seq);
            if (state == NULL)
                tokens->garbage_reads++;
            else
                *state |= TOKEN_READ;
        }
    }
}

void tokens_merge(struct tokens *tokens, const struct record *record, struct arena *arena)
{
    enum ledger_level promised = tokens_promised_level(evidence_promise(record));

    *tokens = (struct tokens){0};
    walk_begin(&tokens->walk, record, arena);
    while (walk_next(&tokens->walk))
        merge_record(tokens, promised);
    merge_reads(tokens);
}

/* --- holes ------------------------------------------------------------------------------------ */

static bool is_here(const struct record *record, const char *name)
{
    for (size_t i = 0; i < record->ledger_count; i++) {
        const char *slash = strrchr(record->ledgers[i].path, '/');
        if (strcmp(slash == NULL ? record->ledgers[i].path : slash + 1, name) == 0)
            return true;
    }
    return false;
}

/* Is each ledger here that load.end speaks of? */
static void compare_files(const struct record *record, struct reasons *holes)
{
    const json_t *end = record_last(record, "load.end");
    int64_t workers = json_number(end, "workers", -1);

    if (end == NULL) {
        reasons_add(holes, "the end of the load was not recorded");
        return;
    }
    if (workers >= 0 && (size_t) workers > record->ledger_count)
        reasons_add(holes, "%lld workers ran and %zu ledgers are here", (long long) workers,
                    record->ledger_count);
    const json_t *list = json_object_get(end, "ledgers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_text(json_array_get(list, i), "file", "?");
        if (!is_here(record, name))
            reasons_add(holes, "%s is not here", name);
    }
}

/* What load.end says about one ledger; NULL when it does not list them, or not this one. */
static const json_t *report_of(const json_t *end, const char *path)
{
    const json_t *list = json_object_get(end, "ledgers");
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;

    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_text(json_array_get(list, i), "file", ""), name) == 0)
            return json_array_get(list, i);
    return NULL;
}

/* Was its worker reported dead, so that a torn file is what is to be expected? */
static bool reported_dead(const json_t *end, const char *path)
{
    const json_t *report = report_of(end, path);

    if (report != NULL)
        return !json_flag(report, "complete", false);
    return json_array_size(json_object_get(end, "ledgers")) == 0 &&
           !json_flag(end, "complete", false);
}

static void judge_file(const struct record *record, const struct record_ledger *file,
                       struct reasons *holes)
{
    const char *run = json_text(record->start, "run", "");
    bool dead = reported_dead(record_last(record, "load.end"), file->path);

    if (file->problem != NULL)
        reasons_add(holes, "%s cannot be read: %s", file->path, file->problem);
    else if (strcmp(file->ledger.header.run, run) != 0)
        reasons_add(holes, "%s belongs to run %s", file->path, file->ledger.header.run);
    else if (!dead && file->ledger.torn_tail)
        reasons_add(holes, "%s is cut off at record %zu, though its worker was not reported dead",
                    file->path, file->ledger.count);
    else if (!dead && !file->ledger.ended)
        reasons_add(holes, "%s has no end, though its worker was not reported dead", file->path);
}

/* Tokens below a client's highest one of which nothing was recorded. */
static void find_gaps(const struct tokens *tokens, struct reasons *holes)
{
    for (size_t slot = 0; slot < tokens->list_count; slot++) {
        const struct token_list *list = &tokens->lists[slot];
        uint64_t missing = 0;
        uint64_t first = 0;
        for (uint64_t seq = list->highest; seq >= 1; seq--)
            if ((list->state[seq] & TOKEN_CLASS_MASK) == TOKEN_NONE) {
                missing++;
                first = seq;
            }
        if (missing > 0)
            reasons_add(holes, "client %u: %" PRIu64 " tokens from %" PRIu64 " on have no record",
                        tokens->walk.clients[slot].id, missing, first);
    }
}

void tokens_holes(const struct tokens *tokens, struct reasons *holes)
{
    const struct record *record = tokens->walk.record;

    compare_files(record, holes);
    const json_t *missing = record_last(record, "ledger.missing");
    if (missing != NULL)
        reasons_add(holes, "ledgers of %s did not arrive whole (%s): %s",
                    json_text(missing, "node", "?"), json_text(missing, "file", "?"),
                    json_text(missing, "text", ""));
    for (size_t i = 0; i < record->ledger_count; i++)
        judge_file(record, &record->ledgers[i], holes);
    find_gaps(tokens, holes);
    if (tokens->impossible > 0)
        reasons_add(holes, "%" PRIu64 " records have impossible token numbers", tokens->impossible);
    if (tokens->contradictions > 0)
        reasons_add(holes, "%" PRIu64 " records contradict an earlier record of their token",
                    tokens->contradictions);
    if (tokens->walk.shared > 0)
        reasons_add(holes, "%" PRIu64 " records are of a client that stands in two ledgers",
                    tokens->walk.shared);
}

/* --- present sets ----------------------------------------------------------------------------- */

static void count_stranger(const struct tokens *tokens, size_t slot, uint64_t first, uint64_t last,
                           struct token_strangers *strangers)
{
    uint64_t reserved = 0;

    if (slot < tokens->list_count) {
        size_t file = tokens->walk.clients[slot].file;
        if (!tokens->walk.record->ledgers[file].ledger.ended)
            reserved = tokens->lists[slot].reserved;
    }
    if (reserved >= first) {
        uint64_t end = reserved < last ? reserved : last;
        strangers->reserved += end - first + 1;
        first = end + 1;
    }
    if (first <= last)
        strangers->garbage += last - first + 1;
}

static void mark_range(struct tokens *tokens, const struct present_range *range,
                       struct token_strangers *strangers)
{
    size_t slot = walk_slot(&tokens->walk, range->client);
    uint64_t highest = slot < tokens->list_count ? tokens->lists[slot].highest : 0;
    uint64_t end = range->last < highest ? range->last : highest;

    if (range->first <= end) {
        uint16_t *state = tokens->lists[slot].state;
        for (uint64_t seq = range->first; seq <= end; seq++)
            state[seq] |= TOKEN_PRESENT;
    }
    uint64_t unknown = range->first > highest ? range->first : highest + 1;
    if (unknown <= range->last)
        count_stranger(tokens, slot, unknown, range->last, strangers);
}

struct token_strangers tokens_mark(struct tokens *tokens, const struct present *present)
{
    struct token_strangers strangers = {0};

    for (size_t i = 0; i < present->range_count; i++)
        mark_range(tokens, &present->ranges[i], &strangers);
    for (size_t i = 0; i < present->odd_count; i++) {
        const struct present_odd *odd = &present->odd[i];
        uint16_t *state = tokens_state(tokens, odd->client, odd->seq);
        if (state != NULL)
            *state |= TOKEN_ODD;
    }
    return strangers;
}

void tokens_count(const struct tokens *tokens, uint64_t *histogram)
{
    memset(histogram, 0, TOKEN_STATES * sizeof *histogram);
    for (size_t slot = 0; slot < tokens->list_count; slot++) {
        const struct token_list *list = &tokens->lists[slot];
        for (uint64_t seq = 1; seq <= list->highest; seq++)
            histogram[list->state[seq]]++;
    }
}
