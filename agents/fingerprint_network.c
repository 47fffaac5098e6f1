/* SPDX-License-Identifier: MIT */
/* Sections of the fingerprint that are about the network, as the system's own programs show it. */
#include <string.h>
#include <unistd.h>

#include "agents/fingerprint.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"

enum { PROGRAM_MS = 5000 };

static const char own_prefix[] = "ordeal";

/* What a program says; STATUS_NOT_FOUND when it is not on PATH. */
static enum status ask(const char *const *argv, struct process_result *ret_result,
                       struct error *err)
{
    enum status status = process_run(&(struct process_spec){.argv = argv, .timeout_ms = PROGRAM_MS},
                                     ret_result, err);

    return status == STATUS_SYSTEM && err != NULL && strstr(err->message, "No such file") != NULL
               ? STATUS_NOT_FOUND
               : status;
}

static enum status ask_json(const char *const *argv, json_t **ret_json, struct error *err)
{
    OWNED_RESULT struct process_result result = {0};
    enum status status = ask(argv, &result, err);

    if (status != STATUS_OK)
        return status;
    if (result.output.length == 0) { /* tc of older versions says nothing for "none" */
        *ret_json = json_array();
        return STATUS_OK;
    }
    status = json_parse_text(result.output.data, result.output.length, ret_json, err);
    return status == STATUS_OK ? STATUS_OK : error_context(err, "%s", argv[0]);
}

/* --- nft ------------------------------------------------------------------------------------- */

static bool is_own(const json_t *object)
{
    const char *table = json_text(object, "table", json_text(object, "name", ""));

    return strncmp(table, own_prefix, sizeof own_prefix - 1) == 0;
}

/* Handles and counters say when, not what. */
static void drop_volatile(json_t *value)
{
    const char *name;
    json_t *member;
    size_t index;

    if (json_is_object(value)) {
        json_object_del(value, "handle");
        json_object_del(value, "packets");
        json_object_del(value, "bytes");
        json_object_foreach(value, name, member) drop_volatile(member);
    } else if (json_is_array(value)) {
        json_array_foreach(value, index, member) drop_volatile(member);
    }
}

static json_t *own_tables(const json_t *ruleset)
{
    json_t *kept = json_array();
    const json_t *items = json_object_get(ruleset, "nftables");

    for (size_t i = 0; i < json_array_size(items); i++) {
        json_t *item = json_array_get(items, i);
        /* one member, named by its kind: table, chain, rule, set */
        if (!is_own(json_object_iter_value(json_object_iter(item))))
            continue;
        drop_volatile(item);
        json_array_append(kept, item);
    }
    return kept;
}

enum status fingerprint_nft(const struct method_call *call, json_t **ret_value, struct error *err)
{
    const char *const argv[] = {"nft", "-j", "list", "ruleset", NULL};
    OWNED_JSON json_t *ruleset = NULL;
    enum status status = ask_json(argv, &ruleset, err);

    (void) call;
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        return status;
    *ret_value = status == STATUS_OK ? own_tables(ruleset) : json_null();
    return STATUS_OK;
}

/* --- iptables -------------------------------------------------------------------------------- */

/* ":INPUT ACCEPT [123:456]" without its counters. */
static void add_rule(json_t *rules, char *line)
{
    char *counters = line[0] == ':' ? strstr(line, " [") : NULL;

    if (line[0] == '#' || line[0] == '\0')
        return;
    if (counters != NULL)
        *counters = '\0';
    json_array_append_new(rules, json_string(line));
}

enum status fingerprint_iptables(const struct method_call *call, json_t **ret_value,
                                 struct error *err)
{
    const char *const argv[] = {"iptables-save", NULL};
    OWNED_RESULT struct process_result result = {0};
    enum status status = ask(argv, &result, err);

    (void) call;
    if (status != STATUS_OK) { /* no program, or no support in the kernel: no rules of it either */
        *ret_value = json_null();
        return status == STATUS_TIMEOUT ? status : STATUS_OK;
    }
    json_t *rules = json_array();
    char *rest = result.output.data;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        add_rule(rules, line);
    *ret_value = rules; /* their order matters */
    return STATUS_OK;
}

/* --- tc -------------------------------------------------------------------------------------- */

enum status fingerprint_tc(const struct method_call *call, json_t **ret_value, struct error *err)
{
    const char *const argv[] = {"tc", "-j", "qdisc", "show", NULL};
    json_t *qdiscs = NULL;
    enum status status = ask_json(argv, &qdiscs, err);

    (void) call;
    if (status == STATUS_NOT_FOUND) {
        *ret_value = json_null();
        return STATUS_OK;
    }
    if (status != STATUS_OK)
        return status;
    drop_volatile(qdiscs);
    for (size_t i = 0; i < json_array_size(qdiscs); i++)
        json_object_del(json_array_get(qdiscs, i), "refcnt");
    *ret_value = fingerprint_sorted(qdiscs);
    return STATUS_OK;
}
