/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CHECK(descriptor) extern const struct check descriptor;
#include "orchestrator/checks/checks.def"
#undef CHECK

static const struct check *const registry[] = {
#define CHECK(descriptor) &descriptor,
#include "orchestrator/checks/checks.def"
#undef CHECK
    NULL,
};

const struct check *const *check_list(void)
{
    return registry;
}

const struct check *check_find(const char *name)
{
    for (size_t i = 0; registry[i] != NULL; i++)
        if (strcmp(registry[i]->name, name) == 0)
            return registry[i];
    return NULL;
}

const char *verdict_name(enum verdict verdict)
{
    static const char *const names[] = {"pass", "inconclusive", "fail", "skipped"};

    return names[verdict];
}

void check_conclude(struct check_result *result, enum verdict verdict, const char *format, ...)
{
    va_list args;

    result->verdict = verdict;
    va_start(args, format);
    int needed = vsnprintf(result->text, sizeof result->text, format, args);
    va_end(args);
    if (needed >= 0 && (size_t) needed >= sizeof result->text)
        memcpy(result->text + sizeof result->text - 4, "...", 4);
}

void check_result_done(struct check_result *result)
{
    json_decref(result->value);
    json_decref(result->bound);
    json_decref(result->resolution);
    json_decref(result->details);
    json_decref(result->unjudged);
    *result = (struct check_result){0};
}
