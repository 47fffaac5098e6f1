/* SPDX-License-Identifier: MIT */
#include "agents/power.h"

#include <string.h>

#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"

static const char placeholder[] = "{node}";

struct power power_of_session(const struct session *session)
{
    return (struct power){.off = session->power_off,
                          .cut = session->power_cut,
                          .on = session->power_on,
                          .peer_count = session->peer_count,
                          .peers = session->peers};
}

static const char *const *program_of(const struct power *power, const char *word)
{
    if (strcmp(word, "off") == 0)
        return power->off;
    if (strcmp(word, "cut") == 0)
        return power->cut;
    return strcmp(word, "on") == 0 ? power->on : NULL;
}

static bool is_peer(const struct power *power, const char *node)
{
    for (size_t i = 0; i < power->peer_count; i++)
        if (strcmp(power->peers[i].name, node) == 0)
            return true;
    return false;
}

static const char *replaced(struct arena *arena, const char *text, const char *node)
{
    const char *at = strstr(text, placeholder);

    if (at == NULL)
        return text;
    return arena_printf(arena, "%.*s%s%s", (int) (at - text), text, node,
                        replaced(arena, at + sizeof placeholder - 1, node));
}

enum status power_call(void *argument, const char *word, const char *node, int64_t deadline_ns,
                       struct error *err)
{
    const struct power *power = argument;
    const char *const *program = program_of(power, word);
    OWNED_ARENA struct arena *arena = arena_new();
    size_t count = 0;

    if (program == NULL) {
        error_set(err, STATUS_UNSUPPORTED, "the topology has no power driver for '%s'", word);
        error_hint(err, "Name the programs under 'power' in the topology, and a node with role "
                        "'power'.");
        return STATUS_UNSUPPORTED;
    }
    if (!is_peer(power, node))
        return error_set(err, STATUS_NOT_FOUND, "power %s: no node '%s'", word, node);
    while (program[count] != NULL)
        count++;
    const char **argv = arena_array(arena, count + 1, sizeof *argv);
    for (size_t i = 0; i < count; i++)
        argv[i] = replaced(arena, program[i], node);
    const struct process_spec spec = {.argv = argv, .timeout_ms = deadline_left_ms(deadline_ns)};
    enum status status = spec.timeout_ms == 0 ? error_set(err, STATUS_TIMEOUT, "no time is left")
                                              : process_run(&spec, NULL, err);
    return status == STATUS_OK ? STATUS_OK : error_context(err, "power %s %s", word, node);
}
