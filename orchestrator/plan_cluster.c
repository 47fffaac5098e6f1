/* SPDX-License-Identifier: MIT */
/* The cluster that a plan is about: who is what, and who would do what to it. */
#include "orchestrator/plan.h"

static const char *role_of(const struct topology_node *node, const struct ha_state *state)
{
    for (size_t i = 0; i < state->count; i++) {
        const struct ha_member *member = &state->members[i];

        if (member->node == node)
            return !member->running  ? "down"
                   : member->primary ? "primary"
                   : !member->sync   ? "standby"
                                     : "sync standby";
    }
    return (node->roles & ROLE_CLIENT) != 0  ? "client"
           : (node->roles & ROLE_POWER) != 0 ? "power"
                                             : "no database";
}

static void write_argv(struct buffer *text, const char *const *argv)
{
    for (; *argv != NULL; argv++)
        buffer_printf(text, " %s", *argv);
}

static void write_service(const struct topology *topology, struct buffer *text)
{
    if (topology->database.start == NULL) {
        buffer_printf(text, "  service  pg_ctl of %s, as the owner of %s\n", topology->database.bin,
                      topology->database.data);
        return;
    }
    buffer_puts(text, "  service ");
    write_argv(text, topology->database.start);
    buffer_puts(text, ", stopped by");
    write_argv(text, topology->database.stop);
    buffer_puts(text, "\n");
}

void plan_cluster(const struct topology *topology, const struct ha_state *state,
                  struct buffer *text)
{
    const struct ha_driver *driver = ha_find(topology->ha.manager);

    buffer_printf(text, "cluster %s (%s):", topology->name, topology->kind);
    for (size_t i = 0; i < topology->node_count; i++)
        buffer_printf(text, "%s %s %s %s", i == 0 ? "" : ",", topology->nodes[i].name,
                      topology->nodes[i].address, role_of(&topology->nodes[i], state));
    buffer_printf(text,
                  "\n  HA manager %s: to promote and to bring members back is the work of %s\n",
                  topology->ha.manager, driver != NULL ? driver->whose : "nobody that is known");
    buffer_printf(text, "  fence    %s\n", topology->ha.fence);
    write_service(topology, text);
    buffer_printf(text, "  power    %s\n\n",
                  topology_has_power(topology)
                      ? "by the topology's driver"
                      : "no driver: what takes a node away cannot be done here");
}
