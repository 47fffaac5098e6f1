/* SPDX-License-Identifier: MIT */
#include "lib/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 16 * 1024, ALIGNMENT = 16 };

struct block {
    struct block *next;
    size_t used, size;
    _Alignas(ALIGNMENT) unsigned char data[];
};

struct adopted {
    struct adopted *next;
    void *object;
    void (*release)(void *object);
};

struct arena {
    struct block *blocks;
    struct adopted *adopted;
};

static void *checked(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

struct arena *arena_new(void)
{
    return checked(calloc(1, sizeof(struct arena)));
}

void arena_free(struct arena *arena)
{
    if (arena == NULL)
        return;
    for (struct adopted *adopted = arena->adopted; adopted != NULL; adopted = adopted->next)
        adopted->release(adopted->object);
    for (struct block *block = arena->blocks; block != NULL;) {
        struct block *next = block->next;
        free(block);
        block = next;
    }
    free(arena);
}

void *arena_alloc(struct arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2)
        abort();
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct block *block = arena->blocks;
    if (block == NULL || block->size - block->used < size) {
        size_t capacity = size > BLOCK_SIZE ? size : BLOCK_SIZE;
        block = checked(calloc(1, sizeof *block + capacity));
        block->size = capacity;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *memory = block->data + block->used;
    block->used += size;
    return memory;
}

void *arena_array(struct arena *arena, size_t count, size_t size)
{
    size_t total;

    if (__builtin_mul_overflow(count, size, &total))
        abort();
    return arena_alloc(arena, total);
}

char *arena_strndup(struct arena *arena, const char *text, size_t length)
{
    char *copy = arena_alloc(arena, length + 1);

    memcpy(copy, text, length);
    return copy;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    return arena_strndup(arena, text, strlen(text));
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        abort();
    char *text = arena_alloc(arena, (size_t) length + 1);
    va_start(args, format);
    vsnprintf(text, (size_t) length + 1, format, args);
    va_end(args);
    return text;
}

void *arena_grow(struct arena *arena, const void *old, size_t old_count, size_t new_count,
                 size_t size)
{
    void *memory = arena_array(arena, new_count, size);

    if (old_count > 0)
        memcpy(memory, old, old_count * size);
    return memory;
}

void arena_adopt(struct arena *arena, void *object, void (*release)(void *object))
{
    struct adopted *adopted = arena_alloc(arena, sizeof *adopted);

    *adopted = (struct adopted){.next = arena->adopted, .object = object, .release = release};
    arena->adopted = adopted;
}
