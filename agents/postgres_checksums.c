/* SPDX-License-Identifier: MIT */
/*
 * postgres.checksums on a stopped server. pg_checksums looks at the whole cluster; it cannot be
 * told to look at one database. On terabytes that matters, so that one database's files are read
 * here, with the page checksum of PostgreSQL (its src/include/storage/checksum_impl.h, a parallel
 * FNV-1a over 32 lanes; public in the on-disk format since 9.3).
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/postgres_checks.h"
#include "agents/postgres_local.h"
#include "agents/postgres_methods.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum {
    PAGE_SIZE = 8192,
    LANES = 32,
    SEGMENT_BLOCKS = 131072, /* 1 GiB a file */
    CHECKSUM_AT = 8,         /* pd_checksum */
    UPPER_AT = 14            /* pd_upper: 0 on a page that was never written */
};

static const uint32_t lane_offsets[LANES] = {
    0x5B1F36E9, 0xB8525960, 0x02AB50AA, 0x1DE66D2A, 0x79FF467A, 0x9BB9F8A3, 0x217E7CD2, 0x83E13D2C,
    0xF8D4474F, 0xE39EB970, 0x42C6AE16, 0x993216FA, 0x7B093B5D, 0x98DAFF3C, 0xF718902A, 0x0B1C9CDB,
    0xE58F764B, 0x187636BC, 0x5D7B3BB1, 0xE73DE7DE, 0x92BEC979, 0xCCA6C0B2, 0x304A0979, 0x85AA43D4,
    0x783125BB, 0x6CA8EAA2, 0xE407EAC6, 0x4B5CFC3E, 0x9FBF8C76, 0x15CA20BE, 0xF2CA9FD3, 0x959BD756,
};

static uint32_t mix(uint32_t lane, uint32_t value)
{
    uint32_t mixed = lane ^ value;

    return mixed * 16777619U ^ mixed >> 17;
}

static uint16_t page_checksum(const unsigned char page[PAGE_SIZE], uint32_t block)
{
    uint32_t words[PAGE_SIZE / sizeof(uint32_t)];
    uint32_t lanes[LANES];
    uint32_t sum = 0;

    memcpy(words, page, PAGE_SIZE);
    memset((char *) words + CHECKSUM_AT, 0, sizeof(uint16_t)); /* as if pd_checksum were 0 */
    memcpy(lanes, lane_offsets, sizeof lanes);
    for (size_t i = 0; i < PAGE_SIZE / sizeof(uint32_t); i++)
        lanes[i % LANES] = mix(lanes[i % LANES], words[i]);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < LANES; i++)
            lanes[i] = mix(lanes[i], 0);
    for (int i = 0; i < LANES; i++)
        sum ^= lanes[i];
    return (uint16_t) ((sum ^ block) % 65535 + 1);
}

struct scan {
    json_t *problems;
    json_int_t blocks, bad;
    int64_t deadline_ns;
};

static void check_page(struct scan *scan, const char *name, const unsigned char *page,
                       uint32_t block)
{
    uint16_t stored, upper;

    memcpy(&stored, page + CHECKSUM_AT, sizeof stored);
    memcpy(&upper, page + UPPER_AT, sizeof upper);
    scan->blocks++;
    if (upper == 0)
        return;
    uint16_t expected = page_checksum(page, block);
    if (stored == expected)
        return;
    scan->bad++;
    if (json_array_size(scan->problems) < POSTGRES_PROBLEMS_MAX)
        json_array_append_new(scan->problems,
                              json_sprintf("%s block %u: checksum %04X, stored is %04X", name,
                                           block, expected, stored));
}

/* "16384", "16384.2", "16384_vm", "16384_fsm.1": the segment's number, -1 for any other file. */
static long segment_of(const char *name)
{
    size_t digits = strspn(name, "0123456789");
    const char *rest = name + digits;

    if (digits == 0)
        return -1;
    static const char *const forks[] = {"_vm", "_fsm", "_init"};
    for (size_t i = 0; i < sizeof forks / sizeof forks[0]; i++)
        if (strncmp(rest, forks[i], strlen(forks[i])) == 0) {
            rest += strlen(forks[i]);
            break;
        }
    if (*rest == '\0')
        return 0;
    if (*rest != '.' || rest[1] == '\0' || rest[1 + strspn(rest + 1, "0123456789")] != '\0')
        return -1;
    return strtol(rest + 1, NULL, 10);
}

static enum status scan_file(struct scan *scan, const char *path, const char *name, long segment,
                             struct error *err)
{
    unsigned char page[PAGE_SIZE];
    uint32_t block = (uint32_t) segment * SEGMENT_BLOCKS;
    OWNED_FILE FILE *file = fopen(path, "re");

    if (file == NULL)
        return error_system(err, "opening %s", path);
    for (size_t length; (length = fread(page, 1, PAGE_SIZE, file)) > 0; block++) {
        if (length < PAGE_SIZE)
            return error_set(err, STATUS_FAILED, "%s ends within block %u", path, block);
        check_page(scan, name, page, block);
        if (block % 1024 == 0 && deadline_passed(scan->deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "stopped at %s block %u after %lld blocks", path,
                             block, (long long) scan->blocks);
    }
    return ferror(file) ? error_system(err, "reading %s", path) : STATUS_OK;
}

static enum status scan_folder(struct scan *scan, struct arena *arena, const char *folder,
                               struct error *err)
{
    OWNED_DIR DIR *entries = opendir(folder);

    if (entries == NULL)
        return error_system(err, "opening %s", folder);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        long segment = segment_of(entry->d_name);
        if (segment < 0)
            continue;
        enum status status = scan_file(scan, arena_printf(arena, "%s/%s", folder, entry->d_name),
                                       entry->d_name, segment, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status require_clean(const struct method_call *call, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct postgres_control control;
    enum status status = postgres_require_stopped(call->session, err);

    if (status == STATUS_OK)
        status = postgres_control(arena, call->session, call->deadline_ns, &control, err);
    if (status != STATUS_OK)
        return status;
    if (!control.checksums)
        return error_set(err, STATUS_UNSUPPORTED, "the cluster has no data checksums");
    if (strncmp(control.state, "shut down", 9) != 0)
        return error_set(err, STATUS_REFUSED, "the cluster was not shut down cleanly: \"%s\"",
                         control.state);
    return STATUS_OK;
}

/* The number of a database was noted by the preflight, since a stopped server cannot be asked. */
static enum status check_database(const struct method_call *call, const char *database,
                                  struct scan *scan, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *databases = NULL;
    const char *noted = arena_printf(arena, "%s/databases.json", call->session->spool);
    enum status status = json_read_file(noted, &databases, err);

    if (status != STATUS_OK) {
        error_hint(err, "postgres.preflight of this node writes it, before the server is stopped.");
        return status;
    }
    int64_t oid = json_number(databases, database, 0);
    if (oid == 0)
        return error_set(err, STATUS_NOT_FOUND, "no database \"%s\" when the run began", database);
    return scan_folder(
        scan, arena,
        arena_printf(arena, "%s/base/%lld", call->session->database.data, (long long) oid), err);
}

static json_int_t number_after(const char *text, const char *label)
{
    const char *at = strstr(text, label);

    return at == NULL ? -1 : strtoll(at + strlen(label), NULL, 10);
}

static enum status check_all(const struct method_call *call, struct scan *scan, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *argv[] = {postgres_program(arena, call->session, "pg_checksums"), "--check", "-D",
                          call->session->database.data, NULL};
    OWNED_RESULT struct process_result result = {0};
    enum status status = postgres_run(call->session, argv, NULL, call->deadline_ns, &result, err);
    const char *output = buffer_text(&result.output);

    scan->blocks = number_after(output, "Blocks scanned:");
    scan->bad = number_after(output, "Bad checksums:");
    if (status == STATUS_FAILED && scan->bad > 0) {
        postgres_problem_lines(scan->problems, buffer_text(&result.errors), "checksum");
        return STATUS_OK;
    }
    if (status == STATUS_OK && (scan->blocks < 0 || scan->bad < 0))
        return error_set(err, STATUS_PROTOCOL, "pg_checksums did not say what it scanned");
    return status;
}

enum status postgres_checksums(const struct method_call *call, json_t **ret_result,
                               struct error *err)
{
    const char *scope = json_text(call->params, "scope", "all");
    OWNED_JSON json_t *problems = json_array();
    struct scan scan = {.problems = problems, .deadline_ns = call->deadline_ns};
    enum status status = require_clean(call, err);

    if (status == STATUS_OK)
        status = strcmp(scope, "all") == 0 ? check_all(call, &scan, err)
                                           : check_database(call, scope, &scan, err);
    if (status != STATUS_OK)
        return error_context(err, "checksums of %s (%s)", call->session->node, scope);
    *ret_result = json_pack("{s:I, s:I, s:s, s:O}", "blocks", scan.blocks, "bad", scan.bad, "scope",
                            scope, "problems", problems);
    return STATUS_OK;
}
