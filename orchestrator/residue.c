/* SPDX-License-Identifier: MIT */
#include "orchestrator/residue.h"

#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/residue_class.h"

enum { TEXT_MAX = 400 };

/* ---- small things ---- */

const char *residue_member(const struct residue_item *item, const char *name)
{
    return json_text(item->after != NULL ? item->after : item->before, name, "");
}

const char *residue_old(const struct residue_item *item, const char *name)
{
    return json_text(item->before, name, "");
}

bool residue_named_ours(const char *name)
{
    return strncmp(name, "ordeal", strlen("ordeal")) == 0;
}

static const char *change_name(unsigned change)
{
    return change == RESIDUE_ADDED ? "added" : change == RESIDUE_REMOVED ? "removed" : "changed";
}

/* A copy without what is not compared. */
static json_t *compared(const json_t *item)
{
    json_t *copy = json_deep_copy(item);
    const char *name;
    json_t *member;
    void *next;

    json_object_foreach_safe(copy, next, name, member)
    {
        if (name[0] == '_')
            json_object_del(copy, name);
    }
    return copy;
}

static bool same(const json_t *left, const json_t *right)
{
    OWNED_JSON json_t *one = compared(left), *other = compared(right);

    return json_equal(one, other) != 0;
}

/* How it was or is: a text, the only member, or all of them; null when it was not there. */
static json_t *state_of(const json_t *item)
{
    if (item == NULL || json_is_string(item))
        return item == NULL ? json_null() : json_deep_copy(item);
    OWNED_JSON json_t *members = compared(item);
    const json_t *value = json_object_get(members, "value");
    if (json_is_string(value))
        return json_deep_copy(value);
    OWNED_MEMORY char *text = json_dumps(members, JSON_COMPACT);
    return json_sprintf("%.*s", TEXT_MAX, text == NULL ? "" : text);
}

/* ---- one item ---- */

static bool counts(const struct residue_class *class, const struct residue_item *item)
{
    if ((class->reports & item->change) == 0 || (class->natural != NULL && class->natural(item)))
        return false;
    if (item->known)
        return true;
    return class->alone != NULL && class->alone(item);
}

static void judge(const struct residue_class *class, const struct residue_item *item, json_t *found)
{
    if (!counts(class, item))
        return;
    bool ours = class->ours != NULL && class->ours(item);
    const char *what = class->what != NULL
                           ? class->what(item)
                           : arena_printf(item->arena, "%s %s", class->name, item->key);
    const char *remedy = class->remedy != NULL ? class->remedy(item) : NULL;

    json_array_append_new(found, json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:b, s:s?}", "class",
                                           class->name, "change", change_name(item->change), "key",
                                           item->key, "what", what, "before",
                                           state_of(item->before), "after", state_of(item->after),
                                           "ours", ours, "remedy", remedy));
}

/* ---- one section ---- */

static json_t *unknown(const char *class, const char *what, const char *remedy)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:n, s:n, s:b, s:s?}", "class", class, "change",
                     "unknown", "key", class, "what", what, "before", "after", "ours", 0, "remedy",
                     remedy);
}

static void compare_item(const struct residue_class *class, struct residue_item *item,
                         const char *key, json_t *found)
{
    item->key = key;
    item->before = json_object_get(item->all_before, key);
    item->after = json_object_get(item->all_after, key);
    item->change = item->before == NULL  ? RESIDUE_ADDED
                   : item->after == NULL ? RESIDUE_REMOVED
                                         : RESIDUE_CHANGED;
    if (item->change != RESIDUE_CHANGED || !same(item->before, item->after))
        judge(class, item, found);
}

static const char **keys_of(struct arena *arena, const json_t *section)
{
    const char **keys = arena_array(arena, json_object_size(section) + 1, sizeof *keys), *key;
    size_t count = 0;
    json_t *value;

    json_object_foreach((json_t *) (uintptr_t) section, key, value) keys[count++] = key;
    return keys;
}

/*
 * In the order in which the remedies work: what is new goes from the last to the first (what lies
 * upon something before it), what is gone comes back from the first to the last.
 */
static void compare_sections(const struct residue_class *class, struct residue_item *item,
                             json_t *found)
{
    const char **new = keys_of(item->arena, item->all_after);
    const char **old = keys_of(item->arena, item->all_before);

    for (size_t i = json_object_size(item->all_after); i-- > 0;)
        if (json_object_get(item->all_before, new[i]) == NULL)
            compare_item(class, item, new[i], found);
    for (size_t i = 0; old[i] != NULL; i++)
        compare_item(class, item, old[i], found);
}

static void compare_class(const struct residue_class *class,
                          const struct residue_question *question, bool database,
                          struct arena *arena, json_t *found)
{
    const json_t *old = class->cluster ? question->cluster_before : question->before;
    const json_t *before = json_object_get(old, class->name);
    const json_t *after = json_object_get(question->after, class->name);

    OWNED_JSON json_t *nothing = json_object();
    struct residue_item item = {.question = question,
                                .arena = arena,
                                .known = json_is_object(before),
                                .all_before = json_is_object(before) ? before : nothing,
                                .all_after = after};

    if (json_is_object(after))
        compare_sections(class, &item, found);
    else if (json_is_object(before) && !database) /* of PostgreSQL its own section says why */
        json_array_append_new(
            found, unknown(class->name,
                           arena_printf(arena, "%s cannot be read any more", class->name), NULL));
}

json_t *residue_differences(const struct residue_question *question)
{
    static const struct residue_class *const tables[] = {
        residue_host_classes, residue_network_classes, residue_postgres_classes};
    OWNED_ARENA struct arena *arena = arena_new();
    json_t *found = json_array();

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct residue_class *class = tables[i]; class->name != NULL; class ++)
            compare_class(class, question, tables[i] == residue_postgres_classes, arena, found);
    return found;
}

/* ---- around it ---- */

json_t *residue_unknown(const char *why)
{
    OWNED_ARENA struct arena *arena = arena_new();
    json_t *found = json_array();

    json_array_append_new(
        found, unknown("node", arena_printf(arena, "nothing is known of it: %s", why), NULL));
    return found;
}

static bool is_same_difference(const json_t *left, const json_t *right)
{
    static const char *const members[] = {"class", "change", "key"};

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (strcmp(json_text(left, members[i], ""), json_text(right, members[i], "")) != 0)
            return false;
    return true;
}

json_t *residue_common(const json_t *left, const json_t *right)
{
    json_t *common = json_array();

    for (size_t i = 0; i < json_array_size(left); i++)
        for (size_t j = 0; j < json_array_size(right); j++)
            if (is_same_difference(json_array_get(left, i), json_array_get(right, j))) {
                json_array_append(common, json_array_get(right, j));
                break;
            }
    return common;
}

bool residue_is_blind(const json_t *differences)
{
    for (size_t i = 0; i < json_array_size(differences); i++) {
        const json_t *difference = json_array_get(differences, i);
        if (strcmp(json_text(difference, "change", ""), "unknown") == 0 ||
            strcmp(json_text(difference, "class", ""), "postgres") == 0)
            return true;
    }
    return false;
}

bool residue_tells_cluster(const json_t *fingerprint)
{
    return json_is_object(json_object_get(fingerprint, "roles"));
}

/* What others did is told without a word on who it was. */
const char *residue_text(struct arena *arena, const json_t *difference)
{
    const char *change = json_text(difference, "change", "changed");
    const char *what = json_text(difference, "what", "?");

    if (json_is_string(difference))
        return arena_strdup(arena, json_string_value(difference));
    if (strcmp(change, "unknown") == 0)
        return arena_strdup(arena, what);
    if (strcmp(change, "added") == 0)
        return arena_printf(arena, "%s: %s", what,
                            json_flag(difference, "ours", false)
                                ? "left by Ordeal"
                                : "was not there before; by whom is not known");
    if (strcmp(change, "removed") == 0)
        return arena_printf(arena, "%s: was there before (%s)", what,
                            json_text(difference, "before", "?"));
    return arena_printf(arena, "%s: was %s, is %s", what, json_text(difference, "before", "?"),
                        json_text(difference, "after", "?"));
}
