/* SPDX-License-Identifier: MIT */
#include "tests/support/fake_power.h"

#include <string.h>
#include <unistd.h>

static void end_services(struct net_node *node)
{
    for (int i = 0; i < node->listener_count; i++)
        close(node->listeners[i]);
    node->listener_count = 0;
}

enum status fake_power(void *argument, const char *word, const char *node, int64_t deadline_ns,
                       struct error *err)
{
    struct fake_power *power = argument;

    (void) deadline_ns;
    if (strcmp(node, power->name) != 0)
        return error_set(err, STATUS_NOT_FOUND, "no node %s", node);
    if (power->broken)
        return error_set(err, STATUS_FAILED, "the power driver does not work");
    power->offs += strcmp(word, "off") == 0;
    power->cuts += strcmp(word, "cut") == 0;
    if (strcmp(word, "on") == 0) {
        power->ons++;
        net_plug(power->node, true);
        net_listen(power->node, power->port);
        return STATUS_OK;
    }
    net_plug(power->node, false);
    end_services(power->node);
    return STATUS_OK;
}
