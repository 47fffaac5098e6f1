/* SPDX-License-Identifier: MIT */
#include "agents/fingerprint.h"

#include <stdlib.h>
#include <string.h>

#include "agents/guardian_client.h"
#include "lib/clock.h"
#include "lib/owned.h"

enum { LINES_MAX = 256 * 1024 };

struct sortable {
    char *text;
    json_t *item;
};

static int compare(const void *one, const void *other)
{
    return strcmp(((const struct sortable *) one)->text, ((const struct sortable *) other)->text);
}

json_t *fingerprint_sorted(json_t *array)
{
    OWNED_JSON json_t *unsorted = array;
    size_t count = json_array_size(array);
    struct sortable *items = calloc(count + 1, sizeof *items);
    json_t *sorted = json_array();

    if (items == NULL)
        abort();
    for (size_t i = 0; i < count; i++) {
        items[i].item = json_array_get(unsorted, i);
        items[i].text = json_dumps(items[i].item, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
        if (items[i].text == NULL)
            abort();
    }
    qsort(items, count, sizeof *items, compare);
    for (size_t i = 0; i < count; i++) {
        json_array_append(sorted, items[i].item);
        free(items[i].text);
    }
    free(items);
    return sorted;
}

static enum status section_boot_id(const struct method_call *call, json_t **ret_value,
                                   struct error *err)
{
    char boot_id[BOOT_ID_SIZE];
    enum status status = clock_boot_id(boot_id, err);

    (void) call;
    if (status == STATUS_OK)
        *ret_value = json_string(boot_id);
    return status;
}

static enum status section_open_records(const struct method_call *call, json_t **ret_value,
                                        struct error *err)
{
    OWNED_GUARDIAN struct guardian_connection guardian = {.fd = -1};
    OWNED_BUFFER struct buffer lines = BUFFER(LINES_MAX);
    struct guardian_record record;
    enum status status = guardian_connect(call->state_folder, call->deadline_ns, &guardian, err);

    if (status == STATUS_OK)
        status = guardian_ask(&guardian, "list", NULL, call->deadline_ns, &lines, err);
    if (status != STATUS_OK)
        return status;
    json_t *records = json_array();
    char *rest = lines.data;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        if (guardian_record_parse(line, &record))
            json_array_append_new(
                records, json_pack("{s:s, s:s}", "uid", record.uid, "fault", record.fault));
    *ret_value = fingerprint_sorted(records);
    return STATUS_OK;
}

static const struct {
    const char *name;
    fingerprint_section *read;
} sections[] = {
    {"boot_id", section_boot_id},
    {"processes", fingerprint_processes},
    {"mounts", fingerprint_mounts},
    {"loops", fingerprint_loops},
    {"nft", fingerprint_nft},
    {"iptables", fingerprint_iptables},
    {"tc", fingerprint_tc},
    {"cgroups", fingerprint_cgroups},
    {"sysctls", fingerprint_sysctls},
    {"swaps", fingerprint_swaps},
    {"open_records", section_open_records},
};

enum status node_fingerprint(const struct method_call *call, json_t **ret_result, struct error *err)
{
    OWNED_JSON json_t *result = json_object();

    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        json_t *value = NULL;
        if (sections[i].read(call, &value, err) != STATUS_OK)
            return error_context(err, "fingerprint: %s", sections[i].name);
        json_object_set_new(result, sections[i].name, value);
    }
    *ret_result = json_incref(result);
    return STATUS_OK;
}
