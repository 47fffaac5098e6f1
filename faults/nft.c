/* SPDX-License-Identifier: MIT */
#include "faults/nft.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"

enum { NFT_MS = 10000 };

void nft_table_name(const char *uid, char table[NFT_TABLE_SIZE])
{
    snprintf(table, NFT_TABLE_SIZE, "ordeal_%s", uid);
    for (char *c = table; *c != '\0'; c++)
        if (*c == '-')
            *c = '_';
}

void nft_write_removal(const char *table, struct buffer *script)
{
    /* declaring a table that is there changes nothing, and one that is declared can be deleted */
    buffer_printf(script, "table inet %s\ndelete table inet %s\n", table, table);
}

static enum status run(const char *const *argv, const char *input, int64_t deadline_ns,
                       struct process_result *result, struct error *err)
{
    static const char *const env[] = {"LC_ALL=C", NULL};
    int left_ms = deadline_left_ms(deadline_ns);
    struct process_spec spec = {.argv = argv,
                                .env = env,
                                .input = input,
                                .timeout_ms = left_ms < NFT_MS ? left_ms : NFT_MS};

    if (left_ms == 0)
        return error_set(err, STATUS_TIMEOUT, "no time is left to run nft");
    return process_run(&spec, result, err);
}

enum status nft_apply(const char *script, int64_t deadline_ns, struct error *err)
{
    const char *const argv[] = {"nft", "-f", "-", NULL};

    return run(argv, script, deadline_ns, NULL, err);
}

enum status nft_check(const char *script, int64_t deadline_ns, struct error *err)
{
    const char *const argv[] = {"nft", "--check", "-f", "-", NULL};

    return run(argv, script, deadline_ns, NULL, err);
}

static enum status list_objects(const char *const *argv, int64_t deadline_ns, json_t **ret_objects,
                                struct error *err)
{
    OWNED_RESULT struct process_result result = {0};
    OWNED_JSON json_t *whole = NULL;
    enum status status = run(argv, NULL, deadline_ns, &result, err);

    if (status == STATUS_OK)
        status = json_parse_text(buffer_text(&result.output), result.output.length, &whole, err);
    if (status != STATUS_OK)
        return error_context(err, "listing nftables");
    json_t *objects = json_object_get(whole, "nftables");
    if (!json_is_array(objects))
        return error_set(err, STATUS_PROTOCOL, "nft -j gives no array \"nftables\"");
    *ret_objects = json_incref(objects);
    return STATUS_OK;
}

static bool has_table(const json_t *objects, const char *table)
{
    for (size_t i = 0; i < json_array_size(objects); i++) {
        const json_t *object = json_object_get(json_array_get(objects, i), "table");
        if (strcmp(json_text(object, "name", ""), table) == 0 &&
            strcmp(json_text(object, "family", ""), "inet") == 0)
            return true;
    }
    return false;
}

enum status nft_list(const char *table, int64_t deadline_ns, json_t **ret_objects,
                     struct error *err)
{
    const char *const all[] = {"nft", "-j", "list", "tables", NULL};
    const char *const one[] = {"nft", "-j", "list", "table", "inet", table, NULL};
    OWNED_JSON json_t *tables = NULL;
    enum status status = list_objects(all, deadline_ns, &tables, err);

    if (status != STATUS_OK)
        return status;
    if (!has_table(tables, table))
        return error_set(err, STATUS_NOT_FOUND, "no table inet %s", table);
    return list_objects(one, deadline_ns, ret_objects, err);
}

int64_t nft_packets(const json_t *objects, const char *counter)
{
    for (size_t i = 0; i < json_array_size(objects); i++) {
        const json_t *object = json_object_get(json_array_get(objects, i), "counter");
        if (object != NULL && strcmp(json_text(object, "name", ""), counter) == 0)
            return json_number(object, "packets", -1);
    }
    return -1;
}

size_t nft_count(const json_t *objects, const char *kind)
{
    size_t count = 0;

    for (size_t i = 0; i < json_array_size(objects); i++)
        count += json_object_get(json_array_get(objects, i), kind) != NULL;
    return count;
}
