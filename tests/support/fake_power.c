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

static void take_away(struct net_node *node)
{
    net_plug(node, false);
    end_services(node);
}

static void bring_back(const struct fake_power *power)
{
    net_plug(power->node, true);
    if (power->node->listener_count == 0)
        net_listen(power->node, power->port);
}

enum status fake_power(void *argument, const char *word, const char *node, int64_t deadline_ns,
                       struct error *err)
{
    struct fake_power *power = argument;
    bool on = strcmp(word, "on") == 0;

    (void) deadline_ns;
    if (strcmp(node, power->name) != 0)
        return error_set(err, STATUS_NOT_FOUND, "no node %s", node);
    if (power->broken)
        return error_set(err, STATUS_FAILED, "the power driver does not work");
    power->offs += strcmp(word, "off") == 0;
    power->cuts += strcmp(word, "cut") == 0;
    power->ons += on;
    if (power->pending)
        take_away(power->node);
    power->pending = power->slow && !on;
    if (on)
        bring_back(power);
    else if (!power->slow)
        take_away(power->node);
    return STATUS_OK;
}
