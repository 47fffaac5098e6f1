/* SPDX-License-Identifier: MIT */
/*
 * The few members of a record that the guardian must know, read without a JSON library: it links
 * none, to stay small in locked memory.
 *
 * Only members of the outermost object are found, whatever stands in the nested ones.
 */
#ifndef ORDEAL_AGENTS_GUARDIAN_MEMBER_H
#define ORDEAL_AGENTS_GUARDIAN_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A string without escapes; false when it is absent, another type or does not fit. */
bool member_text(const char *json, const char *name, char *text, size_t size);
/* Whatever its value is. */
bool member_is_there(const char *json, const char *name);
/* An integer; `fallback` when it is absent or another type. */
int64_t member_number(const char *json, const char *name, int64_t fallback);
/* One object from first to last byte, strings closed, brackets in pairs. */
bool member_is_object(const char *json);

#endif
