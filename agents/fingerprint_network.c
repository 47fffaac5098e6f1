/* SPDX-License-Identifier: MIT */
/* Packet filter and queueing disciplines, as the system's own programs show them. */
#include <string.h>

#include "agents/fingerprint.h"
#include "lib/json.h"
#include "lib/owned.h"

static const char own_prefix[] = "ordeal";

/* `ret_json` stays NULL when the program is not there or this kernel cannot do it. */
static enum status ask_json(const char *const *argv, json_t **ret_json, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *output = NULL;
    enum status status = fingerprint_ask(arena, argv, &output, err);

    if (status != STATUS_OK || output == NULL)
        return status;
    if (output[0] == '\0') { /* tc of older versions says nothing for "none" */
        *ret_json = json_array();
        return STATUS_OK;
    }
    status = json_parse_text(output, strlen(output), ret_json, err);
    return status == STATUS_OK ? STATUS_OK : error_context(err, "%s", argv[0]);
}

/* --- nft ------------------------------------------------------------------------------------- */

/* Handles, counters and ages say when, not what. A counter stays one, at zero. */
static void drop_volatile(json_t *value)
{
    static const char *const ages[] = {"handle", "expires"};
    static const char *const counts[] = {"packets", "bytes", "used"};
    const char *name;
    json_t *member;
    size_t index;

    if (json_is_object(value)) {
        for (size_t i = 0; i < sizeof ages / sizeof ages[0]; i++)
            json_object_del(value, ages[i]);
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
            if (json_is_integer(json_object_get(value, counts[i])))
                json_object_set_new(value, counts[i], json_integer(0));
        json_object_foreach(value, name, member) drop_volatile(member);
    } else if (json_is_array(value)) {
        json_array_foreach(value, index, member) drop_volatile(member);
    }
}

/* A rule has no name: its content is what it is known by. */
static const char *nft_key(struct arena *arena, const char *kind, const char *table,
                           const json_t *body)
{
    if (strcmp(kind, "table") == 0)
        return arena_printf(arena, "table %s", table);
    if (strcmp(kind, "rule") != 0)
        return arena_printf(arena, "%s %s %s", kind, table, json_text(body, "name", "?"));
    OWNED_MEMORY char *content =
        json_dumps(json_object_get(body, "expr"), JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    return arena_printf(arena, "rule %s %s %s", table, json_text(body, "chain", "?"),
                        content == NULL ? "" : content);
}

/* One member of the list of a ruleset, named by its kind: {"chain": {...}}. */
static void add_nft(struct arena *arena, json_t *object, const json_t *of_iptables, json_t *section)
{
    void *only = json_object_iter(object);
    const char *kind = only == NULL ? "metainfo" : json_object_iter_key(only);
    json_t *body = only == NULL ? NULL : json_object_iter_value(only);
    bool is_table = strcmp(kind, "table") == 0;
    const char *name = json_text(body, is_table ? "name" : "table", "");
    const char *table = arena_printf(arena, "%s %s", json_text(body, "family", "?"), name);
    bool own = strncmp(name, own_prefix, strlen(own_prefix)) == 0;
    json_int_t handle = json_number(body, "handle", 0);

    if (strcmp(kind, "metainfo") == 0 || strcmp(kind, "element") == 0 ||
        (!own && json_object_get(of_iptables, table) != NULL))
        return;
    drop_volatile(body);
    if (!own) /* others' sets are filled while they work (bans, services) */
        json_object_del(body, "elem");
    fingerprint_add(section, nft_key(arena, kind, table, body),
                    json_pack("{s:s, s:s, s:O, s:s?, s:I}", "table", table, "kind", kind, "body",
                              body, "chain", json_text(body, "chain", NULL), "_handle", handle));
}

enum status fingerprint_nft(const struct method_call *call, json_t *fingerprint, struct error *err)
{
    const char *const argv[] = {"nft", "-j", "list", "ruleset", NULL};
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *ruleset = NULL, *of_iptables = NULL;
    enum status status = ask_json(argv, &ruleset, err);

    (void) call;
    if (status == STATUS_OK)
        status = fingerprint_iptables_tables(arena, &of_iptables, err);
    if (status != STATUS_OK || ruleset == NULL)
        return status;
    const json_t *items = json_object_get(ruleset, "nftables");
    json_t *section = fingerprint_of(fingerprint, "nft");
    for (size_t i = 0; i < json_array_size(items); i++)
        add_nft(arena, json_array_get(items, i), of_iptables, section);
    return STATUS_OK;
}

/* --- tc -------------------------------------------------------------------------------------- */

/* Where it sits, in the words that tc takes: "root", "ingress", "parent 1:3". */
static const char *place_of(struct arena *arena, const json_t *qdisc)
{
    const char *kind = json_text(qdisc, "kind", "?");

    if (json_flag(qdisc, "root", false))
        return "root";
    if (strcmp(kind, "ingress") == 0 || strcmp(kind, "clsact") == 0)
        return kind;
    return arena_printf(arena, "parent %s", json_text(qdisc, "parent", "?"));
}

enum status fingerprint_tc(const struct method_call *call, json_t *fingerprint, struct error *err)
{
    const char *const argv[] = {"tc", "-j", "qdisc", "show", NULL};
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *qdiscs = NULL;
    enum status status = ask_json(argv, &qdiscs, err);

    (void) call;
    if (status != STATUS_OK || qdiscs == NULL)
        return status;
    json_t *section = fingerprint_of(fingerprint, "tc");
    for (size_t i = 0; i < json_array_size(qdiscs); i++) {
        const json_t *qdisc = json_array_get(qdiscs, i);
        const char *device = json_text(qdisc, "dev", "?"), *place = place_of(arena, qdisc);
        /* the kernel's own have the handle 0: and come back by themselves */
        bool own = strcmp(json_text(qdisc, "handle", ""), "0:") == 0;

        fingerprint_add(section, arena_printf(arena, "%s %s", device, place),
                        json_pack("{s:s, s:s, s:b, s:s, s:O?}", "device", device, "place", place,
                                  "default", own, "kind", json_text(qdisc, "kind", "?"), "options",
                                  json_object_get(qdisc, "options")));
    }
    return STATUS_OK;
}
