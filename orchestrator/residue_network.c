/* SPDX-License-Identifier: MIT */
/* Packet filters and queueing disciplines: what counts, in words, and what undoes it. */
#include <inttypes.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/residue_class.h"

/* ---- nft ---- */

static const char *nft_table(const struct residue_item *item)
{
    return residue_member(item, "table");
}

/* What a table, or a chain, brings or takes along is told once. */
static bool nft_natural(const struct residue_item *item)
{
    const char *kind = residue_member(item, "kind"), *chain = residue_member(item, "chain");
    const json_t *other = item->change == RESIDUE_ADDED ? item->all_before : item->all_after;
    const char *table = arena_printf(item->arena, "table %s", nft_table(item));

    if (strcmp(kind, "table") == 0)
        return false;
    if (json_object_get(other, table) == NULL)
        return true;
    return strcmp(kind, "rule") == 0 &&
           json_object_get(
               other, arena_printf(item->arena, "chain %s %s", nft_table(item), chain)) == NULL;
}

static bool nft_ours(const struct residue_item *item)
{
    const char *blank = strchr(nft_table(item), ' ');

    return blank != NULL && residue_named_ours(blank + 1);
}

static const char *nft_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "nft %s", item->key);
}

static const char *nft_delete(const struct residue_item *item)
{
    const char *kind = residue_member(item, "kind"), *table = nft_table(item);
    const char *name = json_text(json_object_get(item->after, "body"), "name", "");

    if (strcmp(kind, "table") == 0)
        return arena_printf(item->arena, "nft delete table %s", table);
    if (strcmp(kind, "rule") == 0)
        return arena_printf(item->arena, "nft delete rule %s %s handle %" PRId64, table,
                            residue_member(item, "chain"), json_number(item->after, "_handle", 0));
    return arena_printf(item->arena, "%snft delete %s %s %s",
                        strcmp(kind, "chain") == 0
                            ? arena_printf(item->arena, "nft flush chain %s %s && ", table, name)
                            : "",
                        kind, table, name);
}

static void nft_command(json_t *commands, const char *verb, const json_t *value)
{
    const char *kind = json_text(value, "kind", "");

    json_array_append_new(commands,
                          json_pack("{s:{s:O}}", verb, kind, json_object_get(value, "body")));
}

/* The item, and when it is a table or chain everything that was in it. */
static json_t *nft_restore(const struct residue_item *item)
{
    static const char *const order[] = {"table", "set", "map", "chain", "rule"};
    const char *kind = residue_old(item, "kind");
    const char *name = json_text(json_object_get(item->before, "body"), "name", "");
    json_t *commands = json_array(), *value;
    const char *key;

    if (item->change == RESIDUE_CHANGED) {
        if (strcmp(kind, "chain") != 0) /* a chain takes a new policy, others are made again */
            nft_command(commands, "delete", item->after);
        nft_command(commands, "add", item->before);
        return commands;
    }
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        json_object_foreach((json_t *) (uintptr_t) item->all_before, key, value)
        {
            bool inside =
                strcmp(json_text(value, "table", ""), nft_table(item)) == 0 &&
                (strcmp(kind, "table") == 0 ||
                 (strcmp(kind, "chain") == 0 && strcmp(json_text(value, "chain", ""), name) == 0));
            if (strcmp(json_text(value, "kind", ""), order[i]) == 0 &&
                (value == item->before || inside))
                nft_command(commands, "add", value);
        }
    return commands;
}

static const char *nft_remedy(const struct residue_item *item)
{
    if (item->change == RESIDUE_ADDED)
        return nft_delete(item);
    OWNED_JSON json_t *input = json_pack("{s:o}", "nftables", nft_restore(item));
    OWNED_MEMORY char *text = json_dumps(input, JSON_COMPACT);
    return arena_printf(item->arena, "printf %%s %s | nft -j -f -",
                        residue_shell(item->arena, text == NULL ? "" : text));
}

/* ---- iptables ---- */

static const char *iptables_what(const struct residue_item *item)
{
    return arena_strdup(item->arena, item->key);
}

static bool iptables_ours(const struct residue_item *item)
{
    return strstr(item->key, "ordeal") != NULL;
}

/* iptables-save quotes its words as a shell reads them. */
static const char *iptables_remedy(const struct residue_item *item)
{
    const char *program = residue_member(item, "program"), *table = residue_member(item, "table");
    const char *chain = residue_member(item, "chain"), *policy = residue_member(item, "policy");
    bool added = item->change == RESIDUE_ADDED;

    if (chain[0] == '\0')
        return arena_printf(item->arena, "%s -t %s -%s %s", program, table, added ? "D" : "A",
                            residue_member(item, "rule"));
    if (strcmp(policy, "-") == 0)
        return arena_printf(item->arena,
                            added ? "%s -t %s -F %s && %s -t %s -X %s" : "%s -t %s -N %s", program,
                            table, chain, program, table, chain);
    return arena_printf(item->arena, "%s -t %s -P %s %s", program, table, chain,
                        added ? "ACCEPT" : residue_old(item, "policy"));
}

/* A rule that jumps to a chain goes before the chain, its own rules with it. */
static bool iptables_natural(const struct residue_item *item)
{
    const char *rule = residue_member(item, "rule");
    size_t length = strcspn(rule, " ");
    const json_t *other = item->change == RESIDUE_ADDED ? item->all_before : item->all_after;
    const json_t *here = item->change == RESIDUE_ADDED ? item->all_after : item->all_before;
    const char *chain =
        arena_printf(item->arena, "%s %s chain %.*s", residue_member(item, "program"),
                     residue_member(item, "table"), (int) length, rule);
    const json_t *of = json_object_get(here, chain);

    return item->change == RESIDUE_ADDED && rule[0] != '\0' && of != NULL &&
           strcmp(json_text(of, "policy", ""), "-") == 0 && json_object_get(other, chain) == NULL;
}

/* ---- tc ---- */

static bool device_was_there(const struct residue_item *item, const char *device)
{
    const char *begin = arena_printf(item->arena, "%s ", device), *key;
    json_t *value;

    json_object_foreach((json_t *) (uintptr_t) item->all_before, key, value)
    {
        if (strncmp(key, begin, strlen(begin)) == 0)
            return true;
    }
    return false;
}

/* Devices that come and go bring theirs along; what hangs below a root is told with it; and what
 * the kernel attaches itself comes back by itself. */
static bool tc_natural(const struct residue_item *item)
{
    const char *device = residue_member(item, "device"), *place = residue_member(item, "place");
    const char *root = arena_printf(item->arena, "%s root", device);
    const json_t *before = json_object_get(item->all_before, root);
    const json_t *after = json_object_get(item->all_after, root);

    if (item->change == RESIDUE_ADDED && !device_was_there(item, device))
        return true;
    if (json_flag(item->change == RESIDUE_REMOVED ? item->before : item->after, "default", false) &&
        (item->change != RESIDUE_CHANGED || json_flag(item->before, "default", false)))
        return true;
    return strncmp(place, "parent ", strlen("parent ")) == 0 &&
           (before == NULL || after == NULL || !json_equal(before, after));
}

static const char *tc_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "queueing discipline %s at %s of %s",
                        residue_member(item, "kind"), residue_member(item, "place"),
                        residue_member(item, "device"));
}

static const char *tc_remedy(const struct residue_item *item)
{
    const char *device = residue_member(item, "device"), *place = residue_member(item, "place");

    if (item->change == RESIDUE_ADDED || json_flag(item->before, "default", false))
        return arena_printf(item->arena, "tc qdisc del dev %s %s", device, place);
    return arena_printf(item->arena, "tc qdisc replace dev %s %s %s", device, place,
                        residue_old(item, "kind"));
}

/* ---- the table ---- */

const struct residue_class residue_network_classes[] = {
    {"nft", RESIDUE_ANY, false, nft_natural, nft_ours, nft_ours, nft_what, nft_remedy},
    {"iptables", RESIDUE_ANY, false, iptables_natural, iptables_ours, NULL, iptables_what,
     iptables_remedy},
    {"tc", RESIDUE_ANY, false, tc_natural, NULL, NULL, tc_what, tc_remedy},
    {.name = NULL},
};
