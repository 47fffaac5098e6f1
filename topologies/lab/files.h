/* SPDX-License-Identifier: MIT */
/*
 * Small files and folders with owner and mode, as the lab puts them on its nodes.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_FILES_H
#define ORDEAL_TOPOLOGIES_LAB_FILES_H

#include <stddef.h>
#include <sys/types.h>

#include "lib/error.h"

struct file_owner {
    uid_t uid;
    gid_t gid;
};

#define FILES_ROOT ((struct file_owner){0, 0})

MUST_CHECK enum status files_owner(const char *user, struct file_owner *ret_owner,
                                   struct error *err);
/* Fine when it is there already; owner and mode are set either way. */
MUST_CHECK enum status files_folder(const char *path, mode_t mode, struct file_owner owner,
                                    struct error *err);
MUST_CHECK enum status files_write(const char *path, const char *text, mode_t mode,
                                   struct file_owner owner, struct error *err);
MUST_CHECK enum status files_append(const char *path, const char *text, struct error *err);
MUST_CHECK enum status files_copy(const char *from, const char *to, mode_t mode,
                                  struct file_owner owner, struct error *err);

/* The last lines of a file, for an error's detail; empty when it cannot be read. */
void files_tail(const char *path, char *text, size_t size);

#endif
