/* SPDX-License-Identifier: MIT */
#include "tests/support/run_parts.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

#define START_NS (INT64_C(100) * NS_PER_SECOND)

const struct run_node run_nodes[RUN_NODES] = {
    {"n1", 2000}, {"n2", 3000}, {"n3", 4000}, {"c1", 1000}};

static size_t node_index(const char *node)
{
    for (size_t i = 0; i < RUN_NODES; i++)
        if (strcmp(run_nodes[i].name, node) == 0)
            return i;
    ck_abort_msg("no node %s in a built run", node);
}

int64_t run_node_ns(const char *node, int64_t at_ms)
{
    return START_NS + at_ms * NS_PER_MS + run_nodes[node_index(node)].offset_s * NS_PER_SECOND;
}

int64_t run_client_ns(int64_t at_ms)
{
    return run_node_ns("c1", at_ms);
}

uint64_t run_lsn(int64_t at_ms)
{
    return UINT64_C(0x3000000) + (uint64_t) at_ms * 1000;
}

/* --- journal ---------------------------------------------------------------------------------- */

void run_event(struct run_builder *run, int64_t at_ms, const char *event, json_t *members)
{
    json_t *object = members == NULL ? json_object() : members;

    ck_assert_ptr_nonnull(object);
    json_object_set_new(object, "t", json_integer(START_NS + at_ms * NS_PER_MS));
    json_object_set_new(object, "event", json_string(event));
    json_array_append_new(run->journal, object);
}

json_t *run_find_where(struct run_builder *run, const char *event, const char *member,
                       const char *value)
{
    for (size_t i = json_array_size(run->journal); i > 0; i--) {
        json_t *object = json_array_get(run->journal, i - 1);
        if (strcmp(json_text(object, "event", ""), event) == 0 &&
            (member == NULL || strcmp(json_text(object, member, ""), value) == 0))
            return object;
    }
    return NULL;
}

json_t *run_find(struct run_builder *run, const char *event)
{
    return run_find_where(run, event, NULL, NULL);
}

void run_drop(struct run_builder *run, const char *event)
{
    for (size_t i = json_array_size(run->journal); i > 0; i--)
        if (strcmp(json_text(json_array_get(run->journal, i - 1), "event", ""), event) == 0)
            json_array_remove(run->journal, i - 1);
}

json_t *run_scenario(struct run_builder *run)
{
    return json_object_get(run_find(run, "run.start"), "scenario");
}

void run_expect(struct run_builder *run, const char *name, const char *value)
{
    json_t *step = json_array_get(json_object_get(run_scenario(run), "method"), 0);

    json_object_set_new(json_object_get(step, "expect"), name, json_string(value));
}

void run_param(struct run_builder *run, const char *check, const char *name, int64_t value)
{
    json_t *checks = json_object_get(run_scenario(run), "checks");

    if (json_object_get(checks, check) == NULL)
        json_object_set_new(checks, check, json_object());
    json_object_set_new(json_object_get(checks, check), name, json_integer(value));
}

/* --- ledgers ---------------------------------------------------------------------------------- */

size_t run_add_ledger(struct run_builder *run)
{
    size_t index = run->ledger_count++;
    struct ledger_header *header = &run->ledgers[index].header;

    memcpy(header->magic, "ordeal-ledger-1\n", sizeof header->magic);
    header->version = LEDGER_VERSION;
    header->record_size = sizeof(struct ledger_record);
    strcpy(header->run, "run-1");
    strcpy(header->client_node, "c1");
    header->worker = (uint32_t) index;
    header->node_count = RUN_NODES - 1;
    for (size_t i = 0; i < RUN_NODES - 1; i++)
        strcpy(header->nodes[i], run_nodes[i].name);
    return index;
}

void run_record(struct run_builder *run, size_t ledger, struct ledger_record record)
{
    struct run_ledger *file = &run->ledgers[ledger];

    if (file->count == file->room) {
        file->room = file->room == 0 ? 1024 : file->room * 2;
        file->records = realloc(file->records, file->room * sizeof *file->records);
        ck_assert_ptr_nonnull(file->records);
    }
    struct ledger_record *last = file->count == 0 ? NULL : &file->records[file->count - 1];
    if (last != NULL && last->kind == LEDGER_END && record.kind != LEDGER_END) {
        file->records[file->count] = *last;
        *last = record;
    } else {
        file->records[file->count] = record;
    }
    file->count++;
}

size_t run_client_index(uint32_t client)
{
    return client < RUN_OLD_PROBE ? client : RUN_WORKLOAD + 1 + client - RUN_OLD_PROBE;
}

static size_t ledger_of(uint32_t client)
{
    return client < RUN_DIRECT_N1 ? 0 : 1;
}

uint64_t run_attempt(struct run_builder *run, uint32_t client, enum ledger_class class,
                     uint16_t node, uint32_t timeline, int64_t at_ms)
{
    struct ledger_record record = {.kind = LEDGER_INTENT,
                                   .client = client,
                                   .seq = ++run->sequences[run_client_index(client)],
                                   .scheduled_ns = run_client_ns(at_ms),
                                   .sent_ns = run_client_ns(at_ms),
                                   .timeline = timeline,
                                   .node = node};

    run_record(run, ledger_of(client), record);
    record.kind = LEDGER_OUTCOME;
    record.class = (uint8_t) class;
    record.phase = LEDGER_COMMITTING;
    record.done_ns = run_client_ns(at_ms + 1);
    record.lsn = run_lsn(at_ms);
    run_record(run, ledger_of(client), record);
    return record.seq;
}

void run_read(struct run_builder *run, uint32_t client, uint64_t seq, uint16_t node,
              uint32_t timeline, int64_t at_ms)
{
    uint32_t reader = client == 1 ? 2 : 1;

    run_record(run, 0,
               (struct ledger_record){.kind = LEDGER_READ,
                                      .client = reader,
                                      .lsn = client,
                                      .seq = seq,
                                      .timeline = timeline,
                                      .node = node,
                                      .done_ns = run_client_ns(at_ms)});
}

struct ledger_record *run_outcome(struct run_builder *run, uint32_t client, uint64_t seq)
{
    for (size_t i = 0; i < run->ledger_count; i++)
        for (size_t j = 0; j < run->ledgers[i].count; j++) {
            struct ledger_record *record = &run->ledgers[i].records[j];
            if (record->kind == LEDGER_OUTCOME && record->client == client && record->seq == seq)
                return record;
        }
    return NULL;
}

uint64_t run_last_before(struct run_builder *run, uint32_t client, enum ledger_class class,
                         int64_t at_ms)
{
    uint64_t found = 0;

    for (size_t i = 0; i < run->ledger_count; i++)
        for (size_t j = 0; j < run->ledgers[i].count; j++) {
            const struct ledger_record *record = &run->ledgers[i].records[j];
            if (record->kind == LEDGER_OUTCOME && record->client == client &&
                record->class == class && record->done_ns < run_client_ns(at_ms))
                found = record->seq;
        }
    return found;
}

uint64_t run_last(struct run_builder *run, uint32_t client, enum ledger_class class)
{
    return run_last_before(run, client, class, RUN_END_MS * 10);
}

uint64_t run_first(struct run_builder *run, uint32_t client, enum ledger_class class)
{
    for (uint64_t seq = 1; seq <= 100000; seq++) {
        const struct ledger_record *record = run_outcome(run, client, seq);
        if (record != NULL && record->class == class)
            return seq;
    }
    return 0;
}

/* --- present sets ----------------------------------------------------------------------------- */

void run_append_token(struct run_present *set, struct run_token token)
{
    if (set->count == set->room) {
        set->room = set->room == 0 ? 4096 : set->room * 2;
        set->tokens = realloc(set->tokens, set->room * sizeof *set->tokens);
        ck_assert_ptr_nonnull(set->tokens);
    }
    set->tokens[set->count++] = token;
}

static void put_token(struct run_present *set, struct run_token token)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->tokens[i].client == token.client && set->tokens[i].seq == token.seq) {
            set->tokens[i] = token;
            return;
        }
    run_append_token(set, token);
}

void run_present(struct run_builder *run, const char *node, uint32_t client, uint64_t seq)
{
    for (size_t i = 0; i < RUN_NODES - 1; i++)
        if (node == NULL || strcmp(run_nodes[i].name, node) == 0)
            put_token(&run->present[i], (struct run_token){.client = client, .seq = seq});
}

void run_odd(struct run_builder *run, const char *node, uint32_t client, uint64_t seq,
             uint64_t rows, uint64_t of, uint64_t bad)
{
    for (size_t i = 0; i < RUN_NODES - 1; i++)
        if (node == NULL || strcmp(run_nodes[i].name, node) == 0)
            put_token(&run->present[i], (struct run_token){client, seq, rows, of, bad});
}

void run_absent(struct run_builder *run, const char *node, uint32_t client, uint64_t seq)
{
    for (size_t i = 0; i < RUN_NODES - 1; i++) {
        struct run_present *set = &run->present[i];
        if (node != NULL && strcmp(run_nodes[i].name, node) != 0)
            continue;
        for (size_t j = 0; j < set->count; j++)
            if (set->tokens[j].client == client && set->tokens[j].seq == seq) {
                set->tokens[j] = set->tokens[--set->count];
                break;
            }
    }
}

/* --- writing ---------------------------------------------------------------------------------- */

static FILE *create(const struct run_builder *run, const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", run->folder, name);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    return file;
}

static void write_ledger(const struct run_builder *run, size_t index)
{
    const struct run_ledger *ledger = &run->ledgers[index];
    static const char zeros[LEDGER_HEADER_SIZE];
    char name[64];

    snprintf(name, sizeof name, "ledger/c1-worker-%zu.ledger", index);
    OWNED_FILE FILE *file = create(run, name);
    fwrite(&ledger->header, sizeof ledger->header, 1, file);
    fwrite(zeros, LEDGER_HEADER_SIZE - sizeof ledger->header, 1, file);
    for (size_t i = 0; i < ledger->count; i++) {
        struct ledger_record record = ledger->records[i];
        record.crc = ledger_crc(&record);
        fwrite(&record, sizeof record, 1, file);
    }
    if (ledger->torn)
        fwrite(&ledger->header, sizeof(struct ledger_record), 1, file);
    fwrite(zeros, sizeof zeros, 1, file); /* the room that a mapped file has left */
    ck_assert_int_eq(ferror(file), 0);
}

static int compare_tokens(const void *left, const void *right)
{
    const struct run_token *a = left;
    const struct run_token *b = right;

    if (a->client != b->client)
        return a->client < b->client ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static void write_tokens(FILE *file, const struct run_present *set)
{
    for (size_t i = 0; i < set->count;) {
        const struct run_token *first = &set->tokens[i];
        if (first->rows != 0) {
            fprintf(file, "odd %u %llu rows=%llu of=%llu bad=%llu\n", first->client,
                    (unsigned long long) first->seq, (unsigned long long) first->rows,
                    (unsigned long long) first->of, (unsigned long long) first->bad);
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < set->count && set->tokens[end].client == first->client &&
               set->tokens[end].rows == 0 && set->tokens[end].seq == set->tokens[end - 1].seq + 1)
            end++;
        fprintf(file, "range %u %llu %llu\n", first->client, (unsigned long long) first->seq,
                (unsigned long long) set->tokens[end - 1].seq);
        i = end;
    }
}

static void write_present(const struct run_builder *run, size_t node)
{
    const struct run_present *set = &run->present[node];
    char name[64];
    const json_t *timeline = NULL;

    for (size_t i = 0; i < json_array_size(run->journal); i++)
        if (strcmp(json_text(json_array_get(run->journal, i), "event", ""), "timeline") == 0)
            timeline = json_array_get(run->journal, i);
    snprintf(name, sizeof name, "ledger/present-%s.tokens", run_nodes[node].name);
    OWNED_FILE FILE *file = create(run, name);
    fprintf(file, "ordeal-present-1 run=%s node=%s system=%s timeline=%lld recovery=%s lsn=%s\n",
            set->run == NULL ? "run-1" : set->run, run_nodes[node].name,
            set->system == NULL ? "7300000000000000000" : set->system,
            set->timeline == 0 ? (long long) json_number(timeline, "timeline", 1)
                               : (long long) set->timeline,
            strcmp(run_nodes[node].name, json_text(timeline, "node", "n1")) == 0 ? "no" : "yes",
            set->lsn == NULL ? "0/4000000" : set->lsn);
    qsort(set->tokens, set->count, sizeof *set->tokens, compare_tokens);
    write_tokens(file, set);
    if (!set->cut)
        fprintf(file, "end tokens=%zu\n", set->count);
    ck_assert_int_eq(ferror(file), 0);
}

void run_write(struct run_builder *run)
{
    char path[192];
    size_t index;
    json_t *event;

    snprintf(path, sizeof path, "%s/ledger", run->folder);
    mkdir(path, 0755);
    for (size_t i = 0; i < run->ledger_count; i++)
        if (!run->ledgers[i].missing)
            write_ledger(run, i);
    for (size_t i = 0; i < RUN_NODES - 1; i++)
        write_present(run, i);
    OWNED_FILE FILE *journal = create(run, "journal.ndjson");
    json_array_foreach(run->journal, index, event)
    {
        json_object_set_new(event, "seq", json_integer((json_int_t) index + 1));
        json_dumpf(event, journal, JSON_COMPACT);
        fputc('\n', journal);
    }
    if (run->journal_torn)
        fputs("{\"seq\": 99, \"t\": 12", journal);
}

static void remove_files(const char *folder)
{
    OWNED_DIR DIR *dir = opendir(folder);

    if (dir == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        unlinkat(dirfd(dir), entry->d_name, 0);
}

void run_free(struct run_builder *run)
{
    char path[192];

    snprintf(path, sizeof path, "%s/ledger", run->folder);
    remove_files(path);
    rmdir(path);
    remove_files(run->folder);
    rmdir(run->folder);
    for (size_t i = 0; i < run->ledger_count; i++)
        free(run->ledgers[i].records);
    for (size_t i = 0; i < RUN_NODES - 1; i++)
        free(run->present[i].tokens);
    json_decref(run->journal);
    free(run);
}

void run_stays_away(struct run_builder *run, uint32_t client, int64_t from_ms)
{
    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (record->client != client || record->scheduled_ns < run_client_ns(from_ms))
            continue;
        if (record->kind == LEDGER_INTENT)
            *record = (struct ledger_record){.kind = LEDGER_BEAT, .done_ns = record->scheduled_ns};
        if (record->kind != LEDGER_OUTCOME)
            continue;
        run_absent(run, NULL, client, record->seq);
        *record = (struct ledger_record){.kind = LEDGER_OUTCOME,
                                         .class = LEDGER_UNSENT,
                                         .phase = LEDGER_CONNECTING,
                                         .client = client,
                                         .seq = record->seq,
                                         .scheduled_ns = record->scheduled_ns,
                                         .done_ns = record->done_ns};
    }
}
