/* SPDX-License-Identifier: MIT */
#include "agents/guardian/member.h"

#include <stdlib.h>
#include <string.h>

static const char *skip_space(const char *cursor)
{
    return cursor + strspn(cursor, " \t");
}

/* From the opening quote to behind the closing one; NULL when it does not end. */
static const char *skip_string(const char *cursor)
{
    for (cursor++; *cursor != '\0'; cursor++) {
        if (*cursor == '"')
            return cursor + 1;
        if (*cursor == '\\' && *++cursor == '\0')
            return NULL;
    }
    return NULL;
}

/* To the ',' or '}' behind a value; NULL when the text ends before. */
static const char *skip_value(const char *cursor)
{
    int depth = 0;

    while (cursor != NULL && *cursor != '\0') {
        if (depth == 0 && (*cursor == ',' || *cursor == '}'))
            return cursor;
        if (*cursor == '"') {
            cursor = skip_string(cursor);
            continue;
        }
        if (*cursor == '{' || *cursor == '[')
            depth++;
        if ((*cursor == '}' || *cursor == ']') && --depth < 0)
            return NULL;
        cursor++;
    }
    return NULL;
}

/* Where the value of a member begins. `*ret_end`, unless NULL, is behind the object at its end. */
static const char *find(const char *json, const char *name, const char **ret_end)
{
    const char *cursor = skip_space(json);
    size_t length = strlen(name);

    if (*cursor != '{')
        return NULL;
    cursor = skip_space(cursor + 1);
    while (*cursor == '"') {
        const char *key = cursor + 1;
        cursor = skip_string(cursor);
        if (cursor == NULL)
            return NULL;
        bool found = (size_t) (cursor - 1 - key) == length && memcmp(key, name, length) == 0;
        cursor = skip_space(cursor);
        if (*cursor != ':')
            return NULL;
        cursor = skip_space(cursor + 1);
        if (found && ret_end == NULL)
            return cursor;
        cursor = skip_value(cursor);
        if (cursor == NULL)
            return NULL;
        if (*cursor == ',')
            cursor = skip_space(cursor + 1);
    }
    if (ret_end != NULL && *cursor == '}')
        *ret_end = cursor + 1;
    return NULL;
}

bool member_text(const char *json, const char *name, char *text, size_t size)
{
    const char *value = find(json, name, NULL);

    if (value == NULL || *value != '"')
        return false;
    size_t length = strcspn(value + 1, "\"\\");
    if (value[1 + length] != '"' || length >= size)
        return false;
    memcpy(text, value + 1, length);
    text[length] = '\0';
    return true;
}

bool member_is_there(const char *json, const char *name)
{
    return find(json, name, NULL) != NULL;
}

int64_t member_number(const char *json, const char *name, int64_t fallback)
{
    const char *value = find(json, name, NULL);
    char *end;

    if (value == NULL)
        return fallback;
    int64_t number = strtoll(value, &end, 10);
    return end == value || strchr(",} ", *end) == NULL ? fallback : number;
}

bool member_is_object(const char *json)
{
    const char *end = NULL;

    find(json, "", &end);
    return end != NULL && *skip_space(end) == '\0';
}
