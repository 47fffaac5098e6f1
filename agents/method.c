/* SPDX-License-Identifier: MIT */
#include "agents/method_table.h"

#include <string.h>

#define METHODS(table) extern const struct method table[];
#include "agents/methods.def"
#undef METHODS

const struct method *method_find(const char *name)
{
    static const struct method *const tables[] = {
#define METHODS(table) table,
#include "agents/methods.def"
#undef METHODS
    };

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct method *method = tables[i]; method->name != NULL; method++)
            if (strcmp(method->name, name) == 0)
                return method;
    return NULL;
}

static bool type_fits(char type, const json_t *value)
{
    switch (type) {
    case 's': /* no text of ours holds a NUL, and C would not see what is behind it */
        return json_is_string(value) &&
               strlen(json_string_value(value)) == json_string_length(value);
    case 'i':
        return json_is_integer(value);
    case 'b':
        return json_is_boolean(value);
    case 'o':
        return json_is_object(value);
    case 'a':
        return json_is_array(value);
    case 'r':
        return json_is_number(value);
    case 'n':
        return true;
    default:
        return false;
    }
}

static const char *type_name(char type)
{
    static const struct {
        char type;
        const char *name;
    } names[] = {{'s', "text"},      {'i', "an integer"}, {'b', "a boolean"},
                 {'o', "an object"}, {'a', "a list"},     {'r', "a number"}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].type == type)
            return names[i].name;
    return "a value";
}

static const struct method_param *find_param(const struct method_param *params, const char *name)
{
    for (; params != NULL && params->name != NULL; params++)
        if (strcmp(params->name, name) == 0)
            return params;
    return NULL;
}

static enum status check_given(const struct method *method, const json_t *params, struct error *err)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *) (uintptr_t) params, name, value)
    {
        const struct method_param *param = find_param(method->params, name);
        if (param == NULL)
            return error_set(err, STATUS_INVALID, "%s: unknown parameter '%.64s'", method->name,
                             name);
        if (json_is_null(value) && !param->required)
            continue;
        if (!type_fits(param->type, value))
            return error_set(err, STATUS_INVALID, "%s: parameter '%s' is not %s", method->name,
                             name, type_name(param->type));
    }
    return STATUS_OK;
}

enum status method_check(const struct method *method, const json_t *params, struct error *err)
{
    enum status status = check_given(method, params, err);
    const struct method_param *param = method->params;

    for (; status == STATUS_OK && param != NULL && param->name != NULL; param++)
        if (param->required && json_object_get(params, param->name) == NULL)
            status = error_set(err, STATUS_INVALID, "%s: parameter '%s' is missing", method->name,
                               param->name);
    return status;
}
