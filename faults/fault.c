/* SPDX-License-Identifier: MIT */
#include "faults/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FAULT(descriptor) extern const struct fault descriptor;
#include "faults/faults.def"
#undef FAULT

static const struct fault *const registry[] = {
#define FAULT(descriptor) &descriptor,
#include "faults/faults.def"
#undef FAULT
    NULL,
};

static const char *const effect_names[] = {
    [EFFECT_UNKNOWN] = "unknown",
    [EFFECT_ABSENT] = "absent",
    [EFFECT_PARTIAL] = "partial",
    [EFFECT_ACTIVE] = "active",
};

const struct fault *const *fault_list(void)
{
    return registry;
}

const struct fault *fault_find(const char *name)
{
    for (size_t i = 0; registry[i] != NULL; i++)
        if (strcmp(registry[i]->name, name) == 0)
            return registry[i];
    return NULL;
}

enum status fault_validate(const struct fault *fault, json_t *params, struct error *err)
{
    enum status status = param_complete(fault->params, params, err);

    if (status == STATUS_OK && fault->validate != NULL)
        status = fault->validate(params, err);
    if (status != STATUS_OK)
        return error_context(err, "fault %s", fault->name);
    return STATUS_OK;
}

const char *effect_name(enum effect effect)
{
    return effect_names[effect];
}

enum effect effect_from_name(const char *name)
{
    for (size_t i = 0; i < sizeof effect_names / sizeof effect_names[0]; i++)
        if (strcmp(effect_names[i], name) == 0)
            return (enum effect) i;
    return EFFECT_UNKNOWN;
}

void observation_set(struct observation *observation, enum effect effect, json_t *numbers,
                     const char *format, ...)
{
    va_list args;

    observation->effect = effect;
    observation->numbers = numbers;
    va_start(args, format);
    vsnprintf(observation->text, sizeof observation->text, format, args);
    va_end(args);
}
