/* SPDX-License-Identifier: MIT */
/*
 * Memory for one run, request or parse, freed as a whole.
 *
 * An allocation never fails: when the process has no memory left it aborts, since nothing that
 * Ordeal could do then is safer than its guardian taking over. Memory is zeroed and aligned for
 * any type.
 */
#ifndef ORDEAL_LIB_ARENA_H
#define ORDEAL_LIB_ARENA_H

#include <stdarg.h>
#include <stddef.h>

#include "lib/error.h"

struct arena;

struct arena *arena_new(void);
void arena_free(struct arena *arena); /* NULL is allowed */
void *arena_alloc(struct arena *arena, size_t size);
/* A zeroed array; aborts when count * size overflows. */
void *arena_array(struct arena *arena, size_t count, size_t size);
char *arena_strdup(struct arena *arena, const char *text);
char *arena_strndup(struct arena *arena, const char *text, size_t length);
char *arena_printf(struct arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);
/* An array of old_count items grown to new_count; the old memory stays until arena_free(). */
void *arena_grow(struct arena *arena, const void *old, size_t old_count, size_t new_count,
                 size_t size);
/*
 * Let the arena own what is not its memory (a json_t, a PGresult): arena_free() calls
 * `release(object)`, the last one given first, before any memory goes.
 */
void arena_adopt(struct arena *arena, void *object, void (*release)(void *object));

#endif
