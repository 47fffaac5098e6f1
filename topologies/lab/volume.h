/* SPDX-License-Identifier: MIT */
/*
 * Volumes of a node: an image file, a loop device, an XFS on it.
 *
 * The loop device clears itself when the last mount is gone (autoclear), and the mount lives only
 * in the node's mount namespace: a node that dies takes both with it.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_VOLUME_H
#define ORDEAL_TOPOLOGIES_LAB_VOLUME_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

/* A sparse image with a file system on it. */
MUST_CHECK enum status volume_create(const char *image, int64_t bytes, struct error *err);
/*
 * Attach an open image to a free loop device; the descriptor that is returned holds it until it is
 * mounted. `name` is for errors.
 */
MUST_CHECK enum status volume_attach(int image, const char *name, int *ret_fd, char ret_device[32],
                                     struct error *err);
/* Mounting replays the log of a volume that was cut. */
MUST_CHECK enum status volume_mount(const char *device, const char *where, struct error *err);
/*
 * As if the power had gone: nothing more reaches the volume, not even the log. `where` is any path
 * on it.
 */
MUST_CHECK enum status volume_cut(const char *where, struct error *err);
/* Count the loop devices whose image lies below the folder. */
MUST_CHECK enum status volume_count_loops(const char *folder, int *ret_count, struct error *err);

#endif
