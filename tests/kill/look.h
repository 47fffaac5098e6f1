/* SPDX-License-Identifier: MIT */
/*
 * What a node of a lab looks like from outside of it, without asking the product: its processes
 * from the host's /proc, its network from nft, tc and ip in its namespace, its mounts and control
 * groups, and the text of its journal.
 */
#ifndef ORDEAL_TESTS_KILL_LOOK_H
#define ORDEAL_TESTS_KILL_LOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "lib/error.h"

struct place {
    const char *lab, *node;
    bool power;    /* the power node: its agent is a child of the lab's supervisor */
    pid_t root;    /* the node's init, or the supervisor; 0: not looked for */
    char path[64]; /* "/proc/ROOT" */
};

struct family {
    pid_t guardian, agent; /* 0: none */
    size_t workers;        /* jobs, helpers and what these started */
    size_t stopped;        /* processes of the node in state T */
};

/* Find the node's root; false when the node is off. To be called again after a boot. */
bool place_find(struct place *place);
void look_family(const struct place *place, struct family *ret_family);

/* What the journal says of a fault; damaged lines say nothing. */
struct entry {
    bool opened, closed;
    char who[16]; /* of the close */
};
void look_journal(const struct place *place, const char *uid, struct entry *ret_entry);

/* Everything that a fault could leave behind, as text to compare. */
MUST_CHECK enum status look_whole(const struct place *place, struct buffer *text,
                                  struct error *err);

#endif
