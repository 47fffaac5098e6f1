/* SPDX-License-Identifier: MIT */
#include "lib/param.h"

#include <stdlib.h>
#include <string.h>

#include "lib/owned.h"
#include "lib/units.h"

static const char *const type_names[] = {
    [PARAM_END] = "none",          [PARAM_STRING] = "text",     [PARAM_CHOICE] = "choice",
    [PARAM_BOOLEAN] = "yes or no", [PARAM_INTEGER] = "integer", [PARAM_DURATION] = "duration",
    [PARAM_SIZE] = "size",         [PARAM_RATE] = "rate",       [PARAM_PERCENTAGE] = "percentage",
    [PARAM_NODES] = "nodes",
};

const char *param_type_name(enum param_type type)
{
    return type_names[type];
}

const struct param *param_find(const struct param *params, const char *name)
{
    for (; params != NULL && params->type != PARAM_END; params++)
        if (strcmp(params->name, name) == 0)
            return params;
    return NULL;
}

/*
 * Edits between two words: insertions, deletions, replacements and swaps of neighbours (optimal
 * string alignment). Words longer than this are not near anything.
 */
enum { WORD_MAX = 64 };

static size_t least(size_t left, size_t right)
{
    return left < right ? left : right;
}

static size_t edit_distance(const char *left, const char *right)
{
    size_t rows[3][WORD_MAX + 1];
    size_t width = strlen(right), height = strlen(left);

    if (height > WORD_MAX || width > WORD_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= width; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= height; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3], *higher = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            row[j] = least(least(row[j - 1], above[j]) + 1,
                           above[j - 1] + (left[i - 1] != right[j - 1]));
            if (i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1])
                row[j] = least(row[j], higher[j - 2] + 1);
        }
    }
    return rows[height % 3][width];
}

const char *nearest_word(const char *word, const char *const *words)
{
    const char *nearest = NULL;
    size_t best = strlen(word) / 2 + 1; /* further away is another word, not a slip */

    for (; *words != NULL; words++) {
        size_t distance = edit_distance(word, *words);
        if (distance < best) {
            best = distance;
            nearest = *words;
        }
    }
    return nearest;
}

/* --- one value ------------------------------------------------------------------------------- */

static bool is_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);

    while (length > 0) {
        size_t word = strcspn(choices, "|");
        if (word == length && strncmp(choices, text, length) == 0)
            return true;
        if (choices[word] == '\0')
            return false;
        choices += word + 1;
    }
    return false;
}

static enum status parse_boolean(const char *text, json_t **ret_value, struct error *err)
{
    if (strcmp(text, "yes") == 0 || strcmp(text, "true") == 0)
        *ret_value = json_true();
    else if (strcmp(text, "no") == 0 || strcmp(text, "false") == 0)
        *ret_value = json_false();
    else
        return error_set(err, STATUS_INVALID, "not yes or no: \"%s\"", text);
    return STATUS_OK;
}

/* "n1,n2" */
static json_t *parse_nodes(const char *text)
{
    json_t *nodes = json_array();

    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        if (length > 0)
            json_array_append_new(nodes, json_stringn(text, length));
        text += length + (text[length] == ',');
    }
    return nodes;
}

static enum status parse_whole(const struct param *param, const char *text, json_t **ret_value,
                               struct error *err)
{
    int64_t value = 0;
    enum status status;

    if (param->type == PARAM_DURATION)
        status = units_duration(text, &value, err);
    else if (param->type == PARAM_SIZE)
        status = units_size(text, &value, err);
    else
        status = units_integer(text, &value, err);
    if (status == STATUS_OK)
        *ret_value = json_integer(value);
    return status;
}

static enum status parse_real(const struct param *param, const char *text, json_t **ret_value,
                              struct error *err)
{
    double value = 0;
    enum status status = param->type == PARAM_RATE ? units_rate(text, &value, err)
                                                   : units_percentage(text, &value, err);

    if (status == STATUS_OK)
        *ret_value = json_real(value);
    return status;
}

static enum status parse_value(const struct param *param, const char *text, json_t **ret_value,
                               struct error *err)
{
    switch (param->type) {
    case PARAM_BOOLEAN:
        return parse_boolean(text, ret_value, err);
    case PARAM_INTEGER:
    case PARAM_DURATION:
    case PARAM_SIZE:
        return parse_whole(param, text, ret_value, err);
    case PARAM_RATE:
    case PARAM_PERCENTAGE:
        return parse_real(param, text, ret_value, err);
    case PARAM_NODES:
        *ret_value = parse_nodes(text);
        return STATUS_OK;
    case PARAM_STRING:
    case PARAM_CHOICE:
        *ret_value = json_string(text);
        if (*ret_value == NULL)
            return error_set(err, STATUS_INVALID, "not UTF-8");
        return STATUS_OK;
    case PARAM_END:
        break;
    }
    return error_set(err, STATUS_INTERNAL, "parameter without a type");
}

static bool has_type(const struct param *param, const json_t *value)
{
    switch (param->type) {
    case PARAM_STRING:
    case PARAM_CHOICE:
        return json_is_string(value);
    case PARAM_BOOLEAN:
        return json_is_boolean(value);
    case PARAM_INTEGER:
    case PARAM_DURATION:
    case PARAM_SIZE:
        return json_is_integer(value);
    case PARAM_RATE:
    case PARAM_PERCENTAGE:
        return json_is_number(value);
    case PARAM_NODES:
        return json_is_array(value) && json_array_size(value) > 0;
    case PARAM_END:
        break;
    }
    return false;
}

static enum status check_nodes(const struct param *param, const json_t *value, struct error *err)
{
    size_t index;
    json_t *item;

    json_array_foreach(value, index, item)
    {
        if (!json_is_string(item))
            return error_set(err, STATUS_INVALID, "parameter %s: not a list of node names",
                             param->name);
    }
    return STATUS_OK;
}

static enum status check_range(const struct param *param, const json_t *value, struct error *err)
{
    if ((param->minimum == 0 && param->maximum == 0) || !json_is_number(value))
        return STATUS_OK;
    double number = json_number_value(value);
    if (number < (double) param->minimum || number > (double) param->maximum)
        return error_set(err, STATUS_INVALID, "parameter %s: %g is not between %lld and %lld",
                         param->name, number, (long long) param->minimum,
                         (long long) param->maximum);
    return STATUS_OK;
}

static enum status check_value(const struct param *param, const json_t *value, struct error *err)
{
    if (!has_type(param, value))
        return error_set(err, STATUS_INVALID, "parameter %s: not a %s", param->name,
                         param_type_name(param->type));
    if (param->type == PARAM_CHOICE && !is_choice(param->choices, json_string_value(value)))
        return error_set(err, STATUS_INVALID, "parameter %s: \"%s\" is none of %s", param->name,
                         json_string_value(value), param->choices);
    if (param->type == PARAM_NODES)
        return check_nodes(param, value, err);
    return check_range(param, value, err);
}

enum status param_parse(const struct param *param, const char *text, json_t **ret_value,
                        struct error *err)
{
    OWNED_JSON json_t *value = NULL;
    enum status status = parse_value(param, text, &value, err);

    if (status != STATUS_OK)
        return error_context(err, "parameter %s", param->name);
    status = check_value(param, value, err);
    if (status != STATUS_OK)
        return status;
    *ret_value = json_incref(value);
    return STATUS_OK;
}

/* --- all values ------------------------------------------------------------------------------ */

static enum status unknown(const struct param *params, const char *name, struct error *err)
{
    const char *words[WORD_MAX + 1] = {0};

    for (size_t i = 0; i < WORD_MAX && params != NULL && params[i].type != PARAM_END; i++)
        words[i] = params[i].name;
    error_set(err, STATUS_INVALID, "unknown parameter %s", name);
    const char *nearest = nearest_word(name, words);
    if (nearest != NULL)
        error_hint(err, "Did you mean %s?", nearest);
    return STATUS_INVALID;
}

enum status param_complete(const struct param *params, json_t *values, struct error *err)
{
    const char *name;
    json_t *value;

    if (!json_is_object(values))
        return error_set(err, STATUS_INVALID, "parameters are not an object");
    json_object_foreach(values, name, value)
    {
        const struct param *param = param_find(params, name);
        if (param == NULL)
            return unknown(params, name, err);
        enum status status = check_value(param, value, err);
        if (status != STATUS_OK)
            return status;
    }
    for (const struct param *param = params; param != NULL && param->type != PARAM_END; param++) {
        if (json_object_get(values, param->name) != NULL)
            continue;
        if (param->required)
            return error_set(err, STATUS_INVALID, "parameter %s is missing", param->name);
        if (param->fallback == NULL)
            continue;
        json_t *fallback = NULL;
        enum status status = param_parse(param, param->fallback, &fallback, err);
        if (status != STATUS_OK)
            return status;
        json_object_set_new(values, param->name, fallback);
    }
    return STATUS_OK;
}

/* --- descriptions ---------------------------------------------------------------------------- */

static json_t *choice_list(const char *choices)
{
    json_t *list = json_array();

    for (;;) {
        size_t length = strcspn(choices, "|");
        json_array_append_new(list, json_stringn(choices, length));
        if (choices[length] == '\0')
            return list;
        choices += length + 1;
    }
}

static void nodes_text(const json_t *nodes, struct buffer *text)
{
    for (size_t i = 0; i < json_array_size(nodes); i++)
        buffer_printf(text, "%s%s", i == 0 ? "" : ", ",
                      json_string_value(json_array_get(nodes, i)));
}

void param_text(const struct param *param, const json_t *value, struct buffer *text)
{
    switch (param->type) {
    case PARAM_BOOLEAN:
        buffer_puts(text, json_is_true(value) ? "yes" : "no");
        break;
    case PARAM_INTEGER:
        buffer_printf(text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case PARAM_DURATION:
        buffer_printf(text, "%" JSON_INTEGER_FORMAT "ms", json_integer_value(value));
        break;
    case PARAM_SIZE:
        buffer_printf(text, "%" JSON_INTEGER_FORMAT "B", json_integer_value(value));
        break;
    case PARAM_RATE:
        buffer_printf(text, "%.17g/s", json_number_value(value));
        break;
    case PARAM_PERCENTAGE:
        buffer_printf(text, "%.17g%%", json_number_value(value));
        break;
    case PARAM_NODES:
        nodes_text(value, text);
        break;
    case PARAM_STRING:
    case PARAM_CHOICE:
    case PARAM_END:
        buffer_puts(text, json_string_value(value) != NULL ? json_string_value(value) : "");
        break;
    }
}

static const char *schema_type(enum param_type type)
{
    static const char *const types[] = {
        [PARAM_STRING] = "string",   [PARAM_CHOICE] = "string",     [PARAM_BOOLEAN] = "boolean",
        [PARAM_INTEGER] = "integer", [PARAM_DURATION] = "integer",  [PARAM_SIZE] = "integer",
        [PARAM_RATE] = "number",     [PARAM_PERCENTAGE] = "number", [PARAM_NODES] = "array",
    };
    return types[type];
}

static json_t *property_schema(const struct param *param)
{
    json_t *property =
        json_pack("{s:s, s:s}", "type", schema_type(param->type), "description", param->help);

    if (param->type == PARAM_CHOICE)
        json_object_set_new(property, "enum", choice_list(param->choices));
    if (param->type == PARAM_NODES)
        json_object_set_new(property, "items", json_pack("{s:s}", "type", "string"));
    if (param->minimum != 0 || param->maximum != 0) {
        json_object_set_new(property, "minimum", json_integer(param->minimum));
        json_object_set_new(property, "maximum", json_integer(param->maximum));
    }
    return property;
}

json_t *param_schema(const struct param *params)
{
    json_t *properties = json_object();
    json_t *required = json_array();

    for (const struct param *param = params; param != NULL && param->type != PARAM_END; param++) {
        json_object_set_new(properties, param->name, property_schema(param));
        if (param->required)
            json_array_append_new(required, json_string(param->name));
    }
    return json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties, "required",
                     required, "additionalProperties", 0);
}

void param_help(const struct param *params, struct buffer *text)
{
    for (const struct param *param = params; param != NULL && param->type != PARAM_END; param++) {
        buffer_printf(text, "  %-14s %-11s ", param->name, param_type_name(param->type));
        if (param->required)
            buffer_puts(text, "required. ");
        else if (param->fallback != NULL)
            buffer_printf(text, "default %s. ", param->fallback);
        buffer_printf(text, "%s", param->help);
        if (param->type == PARAM_CHOICE)
            buffer_printf(text, " (%s)", param->choices);
        buffer_puts(text, "\n");
    }
}
