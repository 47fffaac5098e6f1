/* SPDX-License-Identifier: MIT */
/*
 * Every node before and after the run, compared section by section: what differs is residue, and a
 * node that cannot be asked is not confirmed clean.
 */
#include <string.h>
#include <sys/stat.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/engine_state.h"

enum { FINGERPRINT_MS = 15000, AGAIN_MS = 500, TRIES = 10 };

/* What a boot or the passing of time changes without anybody having left something behind. */
static bool may_differ(const char *section)
{
    return strcmp(section, "boot_id") == 0 || strcmp(section, "at_ns") == 0;
}

static enum status keep(struct engine *engine, const char *node, const char *when,
                        const json_t *fingerprint, struct error *err)
{
    const char *path =
        arena_printf(engine->arena, "%s/nodes/%s-%s.json", engine->options->folder, node, when);

    return json_write_file(path, fingerprint, err);
}

static enum status ask(struct engine *engine, const char *node, json_t **ret_fingerprint,
                       struct error *err)
{
    return cluster_call(engine->cluster, node, "node.fingerprint", NULL, FINGERPRINT_MS,
                        ret_fingerprint, err);
}

enum status residue_before(struct engine *engine, struct error *err)
{
    for (size_t i = 0; i < engine->topology->node_count; i++) {
        const char *node = engine->topology->nodes[i].name;
        json_t *fingerprint = NULL;
        enum status status = ask(engine, node, &fingerprint, err);

        if (status == STATUS_OK)
            status = keep(engine, node, "before", fingerprint, err);
        if (status != STATUS_OK) {
            json_decref(fingerprint);
            return status;
        }
        json_object_set_new(engine->fingerprints, node, fingerprint);
    }
    return STATUS_OK;
}

static json_t *differences(const json_t *before, const json_t *after)
{
    json_t *list = json_array();
    const char *section;
    json_t *value;

    json_object_foreach((json_t *) (uintptr_t) after, section, value)
    {
        const json_t *old = json_object_get(before, section);

        if (may_differ(section) || json_equal(old, value))
            continue;
        OWNED_MEMORY char *was = json_dumps(old, JSON_ENCODE_ANY | JSON_COMPACT);
        OWNED_MEMORY char *is = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        json_array_append_new(list, json_sprintf("%s: was %.400s, is %.400s", section,
                                                 was != NULL ? was : "absent",
                                                 is != NULL ? is : "absent"));
    }
    return list;
}

static bool pause_before_again(struct engine *engine)
{
    struct error error;

    return engine_pause(engine, AGAIN_MS, &error) == STATUS_OK;
}

/* What is just ending (a helper, a mount of a base backup) gets a moment to be gone. */
static void compare(struct engine *engine, const char *node)
{
    json_t *found = NULL;
    struct error error = {0};

    for (int i = 0; i < TRIES; i++) {
        OWNED_JSON json_t *after = NULL;

        json_decref(found);
        found = json_array();
        if (ask(engine, node, &after, &error) != STATUS_OK) {
            json_array_append_new(found, json_string(error.message));
        } else {
            json_decref(found);
            found = differences(json_object_get(engine->fingerprints, node), after);
            if (keep(engine, node, "after", after, &error) != STATUS_OK)
                journal_note(engine->journal, "%s", error.message);
        }
        if (json_array_size(found) == 0 || !pause_before_again(engine))
            break;
    }
    bool clean = json_array_size(found) == 0;
    engine->clean = engine->clean && clean;
    journal_event(engine->journal, "residue",
                  json_pack("{s:s, s:b, s:o}", "node", node, "clean", clean, "differences", found));
}

void residue_after(struct engine *engine)
{
    for (size_t i = 0; i < engine->topology->node_count; i++)
        compare(engine, engine->topology->nodes[i].name);
}
