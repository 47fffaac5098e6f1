/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/present_sets.h"

#include <inttypes.h>
#include <string.h>

#include "lib/json.h"

const json_t *present_event(const struct record *record, const char *node)
{
    const json_t *found = NULL;
    size_t index = 0;

    for (const json_t *event; (event = record_next(record, "present", &index)) != NULL;) {
        bool wanted = node == NULL ? strcmp(json_text(event, "role", ""), "primary") == 0
                                   : strcmp(json_text(event, "node", ""), node) == 0;
        if (wanted)
            found = event;
    }
    return found;
}

static enum status compare_with_event(const struct record *record, const json_t *event,
                                      const struct present *present, struct error *err)
{
    const char *node = json_text(event, "node", "");
    bool primary = strcmp(json_text(event, "role", ""), "primary") == 0;
    int64_t tokens = json_number(event, "tokens", -1);

    if (strcmp(present->run, json_text(record->start, "run", "")) != 0)
        return error_set(err, STATUS_INVALID, "the present set of %s belongs to run %s", node,
                         present->run);
    if (strcmp(present->node, node) != 0)
        return error_set(err, STATUS_INVALID, "the present set of %s was read on %s", node,
                         present->node);
    if (present->in_recovery == primary)
        return error_set(err, STATUS_INVALID, "the present set of %s was read %s, its role was %s",
                         node, present->in_recovery ? "in recovery" : "out of recovery",
                         json_text(event, "role", ""));
    if (present->timeline != (uint32_t) json_number(event, "timeline", 0))
        return error_set(err, STATUS_INVALID,
                         "the present set of %s was read on timeline %u, its event says %lld", node,
                         present->timeline, (long long) json_number(event, "timeline", 0));
    if (tokens >= 0 && present->tokens != (uint64_t) tokens)
        return error_set(err, STATUS_INVALID,
                         "the present set of %s holds %" PRIu64 " tokens, its event says %lld",
                         node, present->tokens, (long long) tokens);
    return STATUS_OK;
}

enum status present_read(const struct record *record, const json_t *event, struct arena *arena,
                         struct present *ret_present, struct error *err)
{
    const char *file = json_text(event, "file", NULL);
    struct present present;

    if (file == NULL || strstr(file, "..") != NULL)
        return error_set(err, STATUS_INVALID, "the event of the present set of %s names no file",
                         json_text(event, "node", "?"));
    /* the event names the file as the agent did: its place in a run directory is ledger/ */
    const char *slash = strrchr(file, '/');
    const char *path =
        arena_printf(arena, "%s/ledger/%s", record->folder, slash == NULL ? file : slash + 1);
    enum status status = present_load(arena, path, &present, err);
    if (status == STATUS_OK)
        status = compare_with_event(record, event, &present, err);
    if (status == STATUS_OK)
        *ret_present = present;
    return status;
}

/* --- differences ------------------------------------------------------------------------------ */

/* A token of either list, as one number to order by. */
struct cursor {
    const struct present *present;
    size_t index;
    uint64_t next; /* first token of the range at index that was not looked at */
};

static bool at_end(const struct cursor *cursor)
{
    return cursor->index >= cursor->present->range_count;
}

static const struct present_range *range_at(const struct cursor *cursor)
{
    return &cursor->present->ranges[cursor->index];
}

static void enter(struct cursor *cursor)
{
    if (!at_end(cursor))
        cursor->next = range_at(cursor)->first;
}

static void advance(struct cursor *cursor, uint64_t last)
{
    if (last < range_at(cursor)->last) {
        cursor->next = last + 1;
        return;
    }
    cursor->index++;
    enter(cursor);
}

static bool is_acked(const struct tokens *tokens, uint32_t client, uint64_t seq)
{
    const uint16_t *state = tokens_state(tokens, client, seq);

    return state != NULL && (*state & TOKEN_CLASS_MASK) == TOKEN_ACKED;
}

static void add_missing(const struct tokens *tokens, uint32_t client, uint64_t first, uint64_t last,
                        struct present_difference *difference)
{
    difference->missing += last - first + 1;
    for (uint64_t seq = first; seq <= last; seq++) {
        if (tokens_state(tokens, client, seq) == NULL) /* behind what the ledgers know */
            break;
        difference->missing_acked += is_acked(tokens, client, seq);
    }
}

/* Take the part of `one` that lies before `other` begins; false when they begin together. */
static bool take_alone(struct cursor *one, const struct cursor *other, uint32_t *ret_client,
                       uint64_t *ret_first, uint64_t *ret_last)
{
    if (at_end(one))
        return false;
    const struct present_range *range = range_at(one);
    uint64_t last = range->last;
    if (!at_end(other)) {
        uint32_t client = range_at(other)->client;
        if (client < range->client || (client == range->client && other->next <= one->next))
            return false;
        if (client == range->client && other->next <= last)
            last = other->next - 1;
    }
    *ret_client = range->client;
    *ret_first = one->next;
    *ret_last = last;
    advance(one, last);
    return true;
}

static uint64_t count_new_odd(const struct present *primary, const struct present *other)
{
    uint64_t count = 0;
    size_t at = 0;

    for (size_t i = 0; i < other->odd_count; i++) {
        const struct present_odd *odd = &other->odd[i];
        while (at < primary->odd_count &&
               (primary->odd[at].client < odd->client ||
                (primary->odd[at].client == odd->client && primary->odd[at].seq < odd->seq)))
            at++;
        if (at == primary->odd_count || primary->odd[at].client != odd->client ||
            primary->odd[at].seq != odd->seq || primary->odd[at].rows != odd->rows ||
            primary->odd[at].bad != odd->bad)
            count++;
    }
    return count;
}

/* One that the other holds otherwise is not missing there. */
static void take_back_odd(const struct tokens *tokens, const struct present *primary,
                          const struct present *other, struct present_difference *difference)
{
    for (size_t i = 0; i < other->odd_count; i++) {
        const struct present_odd *odd = &other->odd[i];
        if (!present_has(primary, odd->client, odd->seq))
            continue;
        difference->missing--;
        difference->missing_acked -= is_acked(tokens, odd->client, odd->seq);
    }
}

struct present_difference present_compare(const struct tokens *tokens,
                                          const struct present *primary,
                                          const struct present *other)
{
    struct present_difference difference = {.odd = count_new_odd(primary, other)};
    struct cursor ours = {.present = primary};
    struct cursor theirs = {.present = other};
    uint32_t client;
    uint64_t first;
    uint64_t last;

    enter(&ours);
    enter(&theirs);
    while (!at_end(&ours) || !at_end(&theirs)) {
        if (take_alone(&ours, &theirs, &client, &first, &last)) {
            add_missing(tokens, client, first, last, &difference);
        } else if (take_alone(&theirs, &ours, &client, &first, &last)) {
            difference.extra += last - first + 1;
        } else { /* both begin at the same token */
            last = range_at(&ours)->last;
            if (range_at(&theirs)->last < last)
                last = range_at(&theirs)->last;
            advance(&ours, last);
            advance(&theirs, last);
        }
    }
    take_back_odd(tokens, primary, other, &difference);
    return difference;
}
