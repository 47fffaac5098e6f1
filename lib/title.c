/* SPDX-License-Identifier: MIT */
#include "lib/title.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "lib/owned.h"

enum { STAT_SIZE = 4096, ARG_START_FIELD = 48, TITLE_MAX = 256 };

/* Where the kernel reads the command line from: proc(5), stat fields 48 and 49. */
static bool find_arguments(char **ret_start, char **ret_end)
{
    char text[STAT_SIZE];
    unsigned long start = 0, end = 0;
    OWNED_FILE FILE *file = fopen("/proc/self/stat", "re");

    if (file == NULL || fgets(text, sizeof(text), file) == NULL)
        return false;
    const char *at = strrchr(text, ')'); /* the end of field 2, which may hold blanks */
    for (int field = 2; at != NULL && field < ARG_START_FIELD; field++)
        at = strchr(at + 1, ' ');
    if (at == NULL || sscanf(at, " %lu %lu", &start, &end) != 2 || start == 0 || end <= start)
        return false;
    *ret_start = (char *) (uintptr_t) start;
    *ret_end = (char *) (uintptr_t) end;
    return true;
}

void title_set(const char *format, ...)
{
    char title[TITLE_MAX], *start = NULL, *end = NULL;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(title, sizeof(title), format, arguments);
    va_end(arguments);
    prctl(PR_SET_NAME, title);
    if (!find_arguments(&start, &end))
        return;
    size_t room = (size_t) (end - start), length = strlen(title);
    if (length > room - 1)
        length = room - 1;
    memset(start, 0, room);
    snprintf(start, room, "%.*s", (int) length, title);
}
