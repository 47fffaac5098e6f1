/* SPDX-License-Identifier: MIT */
#include "orchestrator/record.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"

/*
 * A line that is no JSON is the torn tail of a journal whose writer died, but only as the last
 * one: anywhere else the journal is damaged.
 */
static enum status read_line(struct record *record, const char *line, ssize_t length, FILE *file,
                             struct error *err)
{
    json_t *event = NULL;

    if (json_parse_text(line, (size_t) length, &event, err) == STATUS_OK && json_is_object(event)) {
        json_array_append_new(record->events, event);
        return STATUS_OK;
    }
    json_decref(event);
    int next = getc(file);
    if (next != EOF)
        return error_set(err, STATUS_INVALID, "line %zu is damaged",
                         json_array_size(record->events) + 1);
    record->torn = true;
    return STATUS_OK;
}

static enum status read_journal(struct arena *arena, struct record *record, struct error *err)
{
    const char *path = arena_printf(arena, "%s/journal.ndjson", record->folder);
    OWNED_FILE FILE *file = fopen(path, "re");
    OWNED_MEMORY char *line = NULL;
    size_t size = 0;
    ssize_t length;

    if (file == NULL)
        return error_system(err, "opening %s", path);
    while ((length = getline(&line, &size, file)) > 0)
        if (read_line(record, line, length, file, err) != STATUS_OK)
            return error_context(err, "%s", path);
    if (ferror(file))
        return error_system(err, "reading %s", path);
    return STATUS_OK;
}

static enum status understand_journal(struct record *record, struct error *err)
{
    size_t count = json_array_size(record->events);
    const json_t *first = json_array_get(record->events, 0);
    const json_t *last = count == 0 ? NULL : json_array_get(record->events, count - 1);

    if (strcmp(json_text(first, "event", ""), "run.start") != 0) {
        error_set(err, STATUS_INVALID, "%s/journal.ndjson does not begin with run.start",
                  record->folder);
        error_hint(err, "Name the directory of a run, as `ordeal run` printed it.");
        return STATUS_INVALID;
    }
    if (json_number(first, "version", 0) != 1)
        return error_set(err, STATUS_INVALID, "%s has version %lld, this program reads version 1",
                         record->folder, (long long) json_number(first, "version", 0));
    record->start = first;
    record->complete = strcmp(json_text(last, "event", ""), "run.end") == 0;
    record->client = json_text(record_last(record, "load.start"), "node", NULL);
    return STATUS_OK;
}

static int is_ledger(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');

    return dot != NULL && strcmp(dot, ".ledger") == 0;
}

static void open_ledger(struct arena *arena, struct record *record, const char *name)
{
    struct record_ledger *slot = &record->ledgers[record->ledger_count++];
    struct error problem = {0};

    slot->path = arena_printf(arena, "ledger/%s", name);
    if (ledger_open(arena_printf(arena, "%s/%s", record->folder, slot->path), &slot->ledger,
                    &problem) != STATUS_OK) {
        slot->ledger = (struct ledger){0};
        slot->problem = arena_strdup(arena, problem.message);
    }
}

static enum status open_ledgers(struct arena *arena, struct record *record, struct error *err)
{
    const char *folder = arena_printf(arena, "%s/ledger", record->folder);
    struct dirent **names = NULL;
    int count = scandir(folder, &names, is_ledger, alphasort);

    if (count < 0 && errno == ENOENT)
        return STATUS_OK;
    if (count < 0)
        return error_system(err, "reading %s", folder);
    record->ledgers = arena_array(arena, (size_t) count + 1, sizeof *record->ledgers);
    for (int i = 0; i < count; i++) {
        open_ledger(arena, record, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return STATUS_OK;
}

enum status record_load(struct arena *arena, const char *folder, struct record **ret_record,
                        struct error *err)
{
    struct record *record = arena_alloc(arena, sizeof *record);

    record->folder = arena_strdup(arena, folder);
    record->events = json_array();
    if (record->events == NULL)
        abort();
    enum status status = read_journal(arena, record, err);
    if (status == STATUS_OK)
        status = understand_journal(record, err);
    if (status == STATUS_OK)
        status = open_ledgers(arena, record, err);
    if (status != STATUS_OK) {
        record_close(record);
        return status;
    }
    *ret_record = record;
    return STATUS_OK;
}

void record_close(struct record *record)
{
    if (record == NULL)
        return;
    for (size_t i = 0; i < record->ledger_count; i++)
        if (record->ledgers[i].problem == NULL)
            ledger_close(&record->ledgers[i].ledger);
    record->ledger_count = 0;
    json_decref(record->events);
    record->events = NULL;
}

const json_t *record_next(const struct record *record, const char *event, size_t *index)
{
    size_t count = json_array_size(record->events);

    while (*index < count) {
        const json_t *candidate = json_array_get(record->events, (*index)++);
        if (strcmp(json_text(candidate, "event", ""), event) == 0)
            return candidate;
    }
    return NULL;
}

const json_t *record_last(const struct record *record, const char *event)
{
    for (size_t i = json_array_size(record->events); i > 0; i--) {
        const json_t *candidate = json_array_get(record->events, i - 1);
        if (strcmp(json_text(candidate, "event", ""), event) == 0)
            return candidate;
    }
    return NULL;
}

struct estimate {
    bool found;
    int64_t offset_ns, error_ns;
};

/*
 * The estimate that was made nearest to an instant. A node's clock starts anew when the node
 * boots: read with an estimate of another boot, an instant lies far away from that estimate.
 */
static struct estimate estimate_at(const struct record *record, const char *node, int64_t ns,
                                   bool node_clock)
{
    struct estimate best = {0};
    int64_t best_distance_ns = INT64_MAX;
    size_t index = 0;

    for (const json_t *event; (event = record_next(record, "clock", &index)) != NULL;) {
        if (strcmp(json_text(event, "node", ""), node) != 0)
            continue;
        int64_t offset_ns = json_number(event, "offset_ns", 0);
        int64_t instant_ns = node_clock ? ns - offset_ns : ns;
        int64_t distance_ns = llabs(instant_ns - json_number(event, "t", 0));
        if (best.found && distance_ns >= best_distance_ns)
            continue;
        best = (struct estimate){true, offset_ns, json_number(event, "error_ns", 0)};
        best_distance_ns = distance_ns;
    }
    return best;
}

enum status record_client_ns(const struct record *record, const char *node, int64_t ns,
                             int64_t *ret_client_ns, int64_t *ret_error_ns, struct error *err)
{
    struct estimate theirs = {.found = true};

    if (record->client == NULL)
        return error_set(err, STATUS_NOT_FOUND, "the run has no client node");
    if (node != NULL && strcmp(node, record->client) == 0) {
        *ret_client_ns = ns;
        *ret_error_ns = 0;
        return STATUS_OK;
    }
    if (node != NULL)
        theirs = estimate_at(record, node, ns, true);
    if (!theirs.found)
        return error_set(err, STATUS_NOT_FOUND, "the clock of node %s was never measured", node);
    int64_t own_ns = ns - theirs.offset_ns;
    struct estimate client = estimate_at(record, record->client, own_ns, false);
    if (!client.found)
        return error_set(err, STATUS_NOT_FOUND, "the clock of client node %s was never measured",
                         record->client);
    *ret_client_ns = own_ns + client.offset_ns;
    *ret_error_ns = theirs.error_ns + client.error_ns;
    return STATUS_OK;
}
