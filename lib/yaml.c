/* SPDX-License-Identifier: MIT */
#include "lib/yaml.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "lib/buffer.h"
#include "lib/owned.h"
#include "lib/units.h"

enum { FILE_MAX = 1024 * 1024, DEPTH_MAX = 32, ITEMS_MAX = 10000, TEXT_MAX = 2048 };

/* ---- errors ---- */

void yaml_complain(struct yaml_errors *errors, const struct yaml_node *at, const char *format, ...)
{
    OWNED_BUFFER struct buffer text = BUFFER(TEXT_MAX);
    char message[TEXT_MAX / 2];
    va_list args;

    va_start(args, format);
    int length = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (length >= (int) sizeof message)
        memcpy(message + sizeof message - 4, "...", 4);
    const char *file = errors->file != NULL ? errors->file : "input";
    if (at != NULL)
        buffer_printf(&text, "%s:%d:%d: ", file, at->line, at->column);
    else
        buffer_printf(&text, "%s: ", file);
    buffer_puts(&text, message);
    errors->texts = arena_grow(errors->arena, errors->texts, errors->count, errors->count + 1,
                               sizeof errors->texts[0]);
    errors->texts[errors->count++] = arena_strdup(errors->arena, buffer_text(&text));
}

/* ---- reading the file into a tree ---- */

struct reader {
    yaml_parser_t parser;
    struct arena *arena;
    struct yaml_errors *errors;
    bool failed;
};

static void owned_event(yaml_event_t *event)
{
    yaml_event_delete(event);
}

#define OWNED_EVENT __attribute__((cleanup(owned_event)))

static struct yaml_node *node_at(struct arena *arena, enum yaml_kind kind, yaml_mark_t mark)
{
    struct yaml_node *node = arena_alloc(arena, sizeof *node);

    node->kind = kind;
    node->line = (int) mark.line + 1;
    node->column = (int) mark.column + 1;
    node->text = "";
    return node;
}

static void fail_at(struct reader *reader, yaml_mark_t mark, const char *text)
{
    yaml_complain(reader->errors, node_at(reader->arena, YAML_SCALAR, mark), "%s", text);
    reader->failed = true;
}

static bool next_event(struct reader *reader, yaml_event_t *event)
{
    if (reader->failed)
        return false;
    if (yaml_parser_parse(&reader->parser, event))
        return true;
    const char *problem = reader->parser.problem;
    fail_at(reader, reader->parser.problem_mark, problem != NULL ? problem : "cannot be read");
    return false;
}

static struct yaml_node *read_node(struct reader *reader, const yaml_event_t *event, int depth);

static void refuse_extras(struct reader *reader, const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;

    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    }
    if (anchor != NULL)
        fail_at(reader, event->start_mark, "anchors are not allowed");
    else if (tag != NULL)
        fail_at(reader, event->start_mark, "tags are not allowed");
}

static struct yaml_node *read_scalar(struct reader *reader, const yaml_event_t *event)
{
    struct yaml_node *node = node_at(reader->arena, YAML_SCALAR, event->start_mark);
    const char *text = (const char *) event->data.scalar.value;
    size_t length = event->data.scalar.length;

    if (memchr(text, '\0', length) != NULL) {
        fail_at(reader, event->start_mark, "a NUL character is not allowed");
        return node;
    }
    node->text = arena_strndup(reader->arena, text, length);
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return node;
}

/* One more slot; capacities are powers of two, so that growing stays cheap. */
static struct yaml_node **room(struct arena *arena, struct yaml_node **list, size_t count)
{
    if ((count & (count - 1)) != 0)
        return list;
    return arena_grow(arena, list, count, count == 0 ? 1 : count * 2, sizeof(struct yaml_node *));
}

static void add_item(struct reader *reader, struct yaml_node *node, struct yaml_node *key,
                     struct yaml_node *value)
{
    if (node->count >= ITEMS_MAX) {
        fail_at(reader, reader->parser.mark, "too many entries");
        return;
    }
    node->items = room(reader->arena, node->items, node->count);
    node->items[node->count] = value;
    if (node->kind == YAML_MAPPING) {
        node->keys = room(reader->arena, node->keys, node->count);
        node->keys[node->count] = key;
    }
    node->count++;
}

static void read_items(struct reader *reader, struct yaml_node *node, int depth)
{
    for (;;) {
        OWNED_EVENT yaml_event_t event = {0};

        if (!next_event(reader, &event) || event.type == YAML_SEQUENCE_END_EVENT)
            return;
        struct yaml_node *item = read_node(reader, &event, depth + 1);
        if (item == NULL)
            return;
        add_item(reader, node, NULL, item);
    }
}

static void check_key(struct reader *reader, const struct yaml_node *mapping,
                      const struct yaml_node *key)
{
    if (key->kind != YAML_SCALAR) {
        yaml_complain(reader->errors, key, "a key must be a single word");
        reader->failed = true;
        return;
    }
    for (size_t i = 0; i < mapping->count; i++) {
        if (strcmp(mapping->keys[i]->text, key->text) == 0) {
            yaml_complain(reader->errors, key, "duplicate key %s, first on line %d", key->text,
                          mapping->keys[i]->line);
            return;
        }
    }
}

static void read_pairs(struct reader *reader, struct yaml_node *node, int depth)
{
    for (;;) {
        OWNED_EVENT yaml_event_t key_event = {0};
        OWNED_EVENT yaml_event_t value_event = {0};

        if (!next_event(reader, &key_event) || key_event.type == YAML_MAPPING_END_EVENT)
            return;
        struct yaml_node *key = read_node(reader, &key_event, depth + 1);
        if (key == NULL)
            return;
        check_key(reader, node, key);
        if (!next_event(reader, &value_event))
            return;
        struct yaml_node *value = read_node(reader, &value_event, depth + 1);
        if (value == NULL)
            return;
        add_item(reader, node, key, value);
    }
}

/* NULL once something is wrong that makes the rest of the file unreadable. */
static struct yaml_node *read_node(struct reader *reader, const yaml_event_t *event, int depth)
{
    struct yaml_node *node;

    refuse_extras(reader, event);
    if (!reader->failed && depth > DEPTH_MAX)
        fail_at(reader, event->start_mark, "nested too deeply");
    if (reader->failed)
        return NULL;
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        node = read_scalar(reader, event);
        break;
    case YAML_SEQUENCE_START_EVENT:
        node = node_at(reader->arena, YAML_SEQUENCE, event->start_mark);
        read_items(reader, node, depth);
        break;
    case YAML_MAPPING_START_EVENT:
        node = node_at(reader->arena, YAML_MAPPING, event->start_mark);
        read_pairs(reader, node, depth);
        break;
    case YAML_ALIAS_EVENT:
        fail_at(reader, event->start_mark, "aliases are not allowed");
        return NULL;
    default:
        fail_at(reader, event->start_mark, "unexpected structure");
        return NULL;
    }
    return reader->failed ? NULL : node;
}

/* Events of a file: stream start, document start, one node, document end, stream end. */
static struct yaml_node *read_document(struct reader *reader)
{
    struct yaml_node *root = NULL;

    while (!reader->failed) {
        OWNED_EVENT yaml_event_t event = {0};

        if (!next_event(reader, &event) || event.type == YAML_STREAM_END_EVENT)
            break;
        if (event.type == YAML_STREAM_START_EVENT || event.type == YAML_DOCUMENT_END_EVENT)
            continue;
        if (event.type == YAML_DOCUMENT_START_EVENT) {
            if (root != NULL)
                fail_at(reader, event.start_mark, "a second document is not allowed");
            continue;
        }
        root = read_node(reader, &event, 0);
    }
    if (!reader->failed && root == NULL)
        fail_at(reader, reader->parser.mark, "the file is empty");
    return reader->failed ? NULL : root;
}

static enum status read_bytes(const char *path, struct buffer *bytes, struct error *err)
{
    OWNED_FILE FILE *file = fopen(path, "re");
    char block[16384];
    size_t count;

    if (file == NULL)
        return error_system(err, "opening %s", path);
    while ((count = fread(block, 1, sizeof block, file)) > 0)
        buffer_append(bytes, block, count);
    if (ferror(file))
        return error_system(err, "reading %s", path);
    if (bytes->overflow)
        return error_set(err, STATUS_INVALID, "%s is larger than %d bytes", path, FILE_MAX);
    return STATUS_OK;
}

enum status yaml_load(struct arena *arena, const char *path, struct yaml_node **ret_root,
                      struct yaml_errors *errors, struct error *err)
{
    OWNED_BUFFER struct buffer bytes = BUFFER(FILE_MAX);
    struct reader reader = {.arena = arena, .errors = errors};
    size_t before = errors->count;

    if (errors->arena == NULL)
        errors->arena = arena;
    errors->file = arena_strdup(arena, path);
    enum status status = read_bytes(path, &bytes, err);
    if (status != STATUS_OK)
        return status;
    if (!yaml_parser_initialize(&reader.parser))
        return error_set(err, STATUS_INTERNAL, "no memory for the YAML parser");
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *) buffer_text(&bytes),
                                 bytes.length);
    struct yaml_node *root = read_document(&reader);
    yaml_parser_delete(&reader.parser);
    if (root == NULL || errors->count != before)
        return error_set(err, STATUS_INVALID, "%s is not valid", path);
    *ret_root = root;
    return STATUS_OK;
}

const struct yaml_node *yaml_get(const struct yaml_node *mapping, const char *key)
{
    if (mapping == NULL || mapping->kind != YAML_MAPPING)
        return NULL;
    for (size_t i = 0; i < mapping->count; i++)
        if (strcmp(mapping->keys[i]->text, key) == 0)
            return mapping->items[i];
    return NULL;
}

/* ---- reading a mapping by a table ---- */

/* What a reader of one value sees. */
struct value {
    const char *key;
    const struct yaml_node *node;
    const struct yaml_field *field;
    void *target;
    struct yaml_errors *errors;
};

static void complain_error(const struct value *value, const struct error *error)
{
    yaml_complain(value->errors, value->node, "%s: %s%s%s", value->key, error->message,
                  error->hint[0] != '\0' ? "; " : "", error->hint);
}

static bool want_scalar(const struct value *value)
{
    if (value->node->kind != YAML_SCALAR) {
        yaml_complain(value->errors, value->node, "%s must be a single value, not a %s", value->key,
                      value->node->kind == YAML_MAPPING ? "mapping" : "list");
        return false;
    }
    if (value->node->text[0] == '\0' && !value->node->quoted) {
        yaml_complain(value->errors, value->node, "%s has no value", value->key);
        return false;
    }
    return true;
}

static void read_text(const struct value *value)
{
    if (want_scalar(value))
        *(const char **) value->target = value->node->text;
}

enum { WORDS_MAX = 64 };

/* Split "a|b|c" into a list of words. */
static void split_words(struct arena *arena, const char *choices, const char *words[WORDS_MAX + 1])
{
    size_t count = 0;

    while (choices != NULL && count < WORDS_MAX) {
        const char *bar = strchr(choices, '|');
        size_t length = bar != NULL ? (size_t) (bar - choices) : strlen(choices);

        words[count++] = arena_strndup(arena, choices, length);
        choices = bar != NULL ? bar + 1 : NULL;
    }
    words[count] = NULL;
}

static void complain_unknown(struct yaml_errors *errors, const struct yaml_node *at,
                             const char *what, const char *const *words)
{
    const char *near = nearest_word(at->text, words);
    OWNED_BUFFER struct buffer list = BUFFER(TEXT_MAX);

    for (size_t i = 0; words[i] != NULL; i++)
        buffer_printf(&list, "%s%s", i == 0 ? "" : ", ", words[i]);
    if (near != NULL)
        yaml_complain(errors, at, "unknown %s %s, did you mean %s?", what, at->text, near);
    else
        yaml_complain(errors, at, "unknown %s %s, known are: %s", what, at->text,
                      buffer_text(&list));
}

static void read_choice(const struct value *value)
{
    const char *words[WORDS_MAX + 1];

    if (!want_scalar(value))
        return;
    split_words(value->errors->arena, value->field->choices, words);
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], value->node->text) == 0) {
            *(const char **) value->target = words[i];
            return;
        }
    }
    complain_unknown(value->errors, value->node, value->key, words);
}

static void read_boolean(const struct value *value)
{
    static const char *const yes[] = {"yes", "true", NULL}, *const no[] = {"no", "false", NULL};

    if (!want_scalar(value))
        return;
    for (size_t i = 0; yes[i] != NULL; i++) {
        if (strcmp(value->node->text, yes[i]) == 0 || strcmp(value->node->text, no[i]) == 0) {
            *(bool *) value->target = strcmp(value->node->text, yes[i]) == 0;
            return;
        }
    }
    yaml_complain(value->errors, value->node, "%s must be yes or no, not %s", value->key,
                  value->node->text);
}

typedef enum status whole_parser(const char *text, int64_t *ret_value, struct error *err);

static void read_whole(const struct value *value, whole_parser *parse)
{
    const struct yaml_field *field = value->field;
    struct error error = {0};
    int64_t number;

    if (!want_scalar(value))
        return;
    if (parse(value->node->text, &number, &error) != STATUS_OK) {
        complain_error(value, &error);
        return;
    }
    if ((field->minimum != 0 || field->maximum != 0) &&
        (number < field->minimum || number > field->maximum)) {
        yaml_complain(value->errors, value->node,
                      "%s: %s is out of range, it must be from %" PRId64 " to %" PRId64 "%s",
                      value->key, value->node->text, field->minimum, field->maximum,
                      parse == units_duration ? " ms"
                      : parse == units_size   ? " bytes"
                                              : "");
        return;
    }
    *(int64_t *) value->target = number;
}

static void read_integer(const struct value *value)
{
    read_whole(value, units_integer);
}

static void read_duration(const struct value *value)
{
    read_whole(value, units_duration);
}

static void read_size(const struct value *value)
{
    read_whole(value, units_size);
}

typedef enum status real_parser(const char *text, double *ret_value, struct error *err);

static void read_real(const struct value *value, real_parser *parse)
{
    const struct yaml_field *field = value->field;
    struct error error = {0};
    double number;

    if (!want_scalar(value))
        return;
    if (parse(value->node->text, &number, &error) != STATUS_OK) {
        complain_error(value, &error);
        return;
    }
    if ((field->minimum != 0 || field->maximum != 0) &&
        (number < (double) field->minimum || number > (double) field->maximum)) {
        yaml_complain(value->errors, value->node,
                      "%s: %s is out of range, it must be from %" PRId64 " to %" PRId64, value->key,
                      value->node->text, field->minimum, field->maximum);
        return;
    }
    *(double *) value->target = number;
}

static void read_rate(const struct value *value)
{
    read_real(value, units_rate);
}

static void read_percent(const struct value *value)
{
    read_real(value, units_percentage);
}

static void read_texts(const struct value *value)
{
    const struct yaml_node *node = value->node;
    size_t count = node->kind == YAML_SEQUENCE ? node->count : 1;
    const char **texts = arena_array(value->errors->arena, count + 1, sizeof *texts);

    if (node->kind == YAML_SCALAR) {
        if (!want_scalar(value))
            return;
        texts[0] = node->text;
    } else if (node->kind == YAML_MAPPING) {
        yaml_complain(value->errors, node, "%s must be a list, not a mapping", value->key);
        return;
    }
    for (size_t i = 0; node->kind == YAML_SEQUENCE && i < count; i++) {
        struct value item = *value;

        item.node = node->items[i];
        if (!want_scalar(&item))
            return;
        texts[i] = item.node->text;
    }
    *(const char *const **) value->target = texts;
}

static void read_subtree(const struct value *value)
{
    *(const struct yaml_node **) value->target = value->node;
}

static void (*const readers[])(const struct value *value) = {
    [YAML_TEXT] = read_text,       [YAML_CHOICE] = read_choice,     [YAML_BOOLEAN] = read_boolean,
    [YAML_INTEGER] = read_integer, [YAML_DURATION] = read_duration, [YAML_SIZE] = read_size,
    [YAML_RATE] = read_rate,       [YAML_PERCENT] = read_percent,   [YAML_TEXTS] = read_texts,
    [YAML_NODE] = read_subtree,
};

static const struct yaml_field *find_field(const struct yaml_field *fields, const char *name)
{
    for (; fields->type != YAML_END; fields++)
        if (strcmp(fields->name, name) == 0)
            return fields;
    return NULL;
}

static void complain_key(struct yaml_errors *errors, const struct yaml_node *key,
                         const struct yaml_field *fields)
{
    const char *words[WORDS_MAX + 1];
    size_t count = 0;

    for (; fields->type != YAML_END && count < WORDS_MAX; fields++)
        words[count++] = fields->name;
    words[count] = NULL;
    complain_unknown(errors, key, "key", words);
}

void yaml_read(const struct yaml_node *mapping, const struct yaml_field *fields, void *base,
               struct yaml_errors *errors)
{
    if (mapping->kind != YAML_MAPPING) {
        yaml_complain(errors, mapping, "expected a mapping (key: value) here");
        return;
    }
    for (size_t i = 0; i < mapping->count; i++) {
        const struct yaml_field *field = find_field(fields, mapping->keys[i]->text);

        if (field == NULL) {
            complain_key(errors, mapping->keys[i], fields);
            continue;
        }
        readers[field->type](&(struct value){.key = field->name,
                                             .node = mapping->items[i],
                                             .field = field,
                                             .target = (char *) base + field->offset,
                                             .errors = errors});
    }
    for (; fields->type != YAML_END; fields++)
        if (fields->required && yaml_get(mapping, fields->name) == NULL)
            yaml_complain(errors, mapping, "missing key %s", fields->name);
}

/* ---- parameters of faults, checks, workloads ---- */

static void complain_param(struct yaml_errors *errors, const struct yaml_node *key,
                           const struct param *params)
{
    const char *words[WORDS_MAX + 1];
    size_t count = 0;

    for (; params->type != PARAM_END && count < WORDS_MAX; params++)
        words[count++] = params->name;
    words[count] = NULL;
    if (count == 0)
        yaml_complain(errors, key, "unknown parameter %s: there are none", key->text);
    else
        complain_unknown(errors, key, "parameter", words);
}

static void read_param(const struct yaml_node *node, const struct param *param, json_t *object,
                       struct yaml_errors *errors)
{
    struct value value = {.key = param->name, .node = node, .errors = errors};
    struct error error = {0};
    json_t *parsed;

    if (param->type == PARAM_NODES || !want_scalar(&value))
        return;
    if (param_parse(param, node->text, &parsed, &error) != STATUS_OK) {
        yaml_complain(errors, node, "%s%s%s", error.message, error.hint[0] != '\0' ? "; " : "",
                      error.hint);
        return;
    }
    json_object_set_new(object, param->name, parsed);
}

static void default_param(const struct yaml_node *mapping, const struct param *param,
                          json_t *object, struct yaml_errors *errors)
{
    struct error error = {0};
    json_t *parsed;

    if (yaml_get(mapping, param->name) != NULL)
        return;
    if (param->required) {
        yaml_complain(errors, mapping, "missing parameter %s: %s", param->name, param->help);
        return;
    }
    if (param->fallback == NULL || param->type == PARAM_NODES)
        return;
    if (param_parse(param, param->fallback, &parsed, &error) == STATUS_OK)
        json_object_set_new(object, param->name, parsed);
    else
        yaml_complain(errors, mapping, "default of %s: %s", param->name, error.message);
}

json_t *yaml_read_params(const struct yaml_node *mapping, const struct param *params,
                         struct yaml_errors *errors)
{
    json_t *object = json_object();

    if (mapping->kind != YAML_MAPPING) {
        yaml_complain(errors, mapping, "expected a mapping of parameters here");
        return object;
    }
    for (size_t i = 0; i < mapping->count; i++) {
        const struct param *param = param_find(params, mapping->keys[i]->text);

        if (param == NULL)
            complain_param(errors, mapping->keys[i], params);
        else
            read_param(mapping->items[i], param, object, errors);
    }
    for (; params->type != PARAM_END; params++)
        default_param(mapping, params, object, errors);
    return object;
}
