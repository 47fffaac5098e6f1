/* SPDX-License-Identifier: MIT */
/*
 * A power driver for tests: "off" and "cut" pull the cable of a node of tests/support/net_lab.h and
 * end its services, "on" brings both back. Words are counted.
 */
#ifndef ORDEAL_TESTS_SUPPORT_FAKE_POWER_H
#define ORDEAL_TESTS_SUPPORT_FAKE_POWER_H

#include <stdint.h>

#include "lib/error.h"
#include "tests/support/net_lab.h"

struct fake_power {
    struct net_node *node;
    const char *name; /* of the node; another one is STATUS_NOT_FOUND */
    int port;         /* its service */
    int offs, cuts, ons;
    bool broken;  /* every word fails */
    bool slow;    /* what takes the node away is carried out right before the next word */
    bool pending; /* such a word waits */
};

/* struct fault_context's power, with a struct fake_power as argument. */
enum status fake_power(void *argument, const char *word, const char *node, int64_t deadline_ns,
                       struct error *err);

#endif
