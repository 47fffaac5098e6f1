/* SPDX-License-Identifier: MIT */
/*
 * Handles that close themselves at the end of their scope.
 *
 *     OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
 *
 * Every cleanup accepts the empty value (-1 or NULL). take_fd() hands a descriptor on.
 */
#ifndef ORDEAL_LIB_OWNED_H
#define ORDEAL_LIB_OWNED_H

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/arena.h"
#include "lib/buffer.h"

static inline void owned_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void owned_close_file(FILE **file)
{
    if (*file != NULL)
        fclose(*file);
}

static inline void owned_close_dir(DIR **dir)
{
    if (*dir != NULL)
        closedir(*dir);
}

static inline void owned_free(void *pointer)
{
    free(*(void **) pointer);
}

static inline void owned_json(json_t **json)
{
    json_decref(*json);
}

static inline void owned_arena(struct arena **arena)
{
    arena_free(*arena);
}

#define OWNED_FD __attribute__((cleanup(owned_close_fd)))
#define OWNED_FILE __attribute__((cleanup(owned_close_file)))
#define OWNED_DIR __attribute__((cleanup(owned_close_dir)))
#define OWNED_MEMORY __attribute__((cleanup(owned_free)))
#define OWNED_JSON __attribute__((cleanup(owned_json)))
#define OWNED_ARENA __attribute__((cleanup(owned_arena)))
#define OWNED_BUFFER __attribute__((cleanup(buffer_done)))

static inline int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

#endif
