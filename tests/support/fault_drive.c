/* SPDX-License-Identifier: MIT */
#include "tests/support/fault_drive.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"

static struct observation last;

static void must(const struct fault *fault, const char *what, enum status status,
                 const struct error *err)
{
    if (status != STATUS_OK)
        ck_abort_msg("%s, %s: %s: %s (%s) %s", fault->name, what, status_name(status), err->message,
                     err->detail, err->hint);
}

void drive_quotes(const char *text, char *json)
{
    for (; *text != '\0'; text++)
        *json++ = *text == '\'' ? '"' : *text;
    *json = '\0';
}

json_t *drive_params(const struct fault *fault, const char *text)
{
    char copy[512];
    struct error err = {0};
    json_t *params = NULL;

    ck_assert_uint_lt(strlen(text), sizeof copy);
    drive_quotes(text, copy);
    must(fault, "JSON of a test", json_parse_text(copy, strlen(copy), &params, &err), &err);
    must(fault, "validate", fault_validate(fault, params, &err), &err);
    return params;
}

/* What a journal does to a record: text and back. */
static json_t *through_journal(json_t *record)
{
    OWNED_MEMORY char *text = json_dumps(record, JSON_COMPACT);
    json_t *read = NULL;

    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(json_parse_text(text, strlen(text), &read, NULL), STATUS_OK);
    json_decref(record);
    return read;
}

json_t *drive_prepare(const struct fault *fault, const struct fault_context *context,
                      const char *params)
{
    OWNED_JSON json_t *values = drive_params(fault, params);
    struct error err = {0};
    json_t *record = NULL;

    must(fault, "supported", fault->supported(context, values, &err), &err);
    must(fault, "prepare", fault->prepare(context, values, &record, &err), &err);
    return through_journal(record);
}

void drive_inject(const struct fault *fault, const struct fault_context *context,
                  const json_t *record)
{
    struct error err = {0};

    must(fault, "inject", fault->inject(context, record, &err), &err);
}

void drive_undo(const struct fault *fault, const struct fault_context *context,
                const json_t *record)
{
    struct error err = {0};

    must(fault, "undo", fault->undo(context, record, &err), &err);
}

static void expect(const struct fault *fault, const char *who, enum effect effect)
{
    if (last.effect != effect)
        ck_abort_msg("%s: %s says %s, not %s: %s", fault->name, who, effect_name(last.effect),
                     effect_name(effect), last.text);
    ck_assert_int_ne(last.text[0], '\0');
}

void drive_expect(const struct fault *fault, const struct fault_context *context,
                  const json_t *record, enum effect effect)
{
    struct error err = {0};

    drive_done();
    must(fault, "observe", fault->observe(context, record, &last, &err), &err);
    expect(fault, "observe", effect);
}

void drive_expect_witness(const struct fault *fault, const struct fault_context *context,
                          const json_t *record, enum effect effect)
{
    struct error err = {0};

    drive_done();
    must(fault, "witness", fault->witness(context, record, &last, &err), &err);
    expect(fault, "witness", effect);
}

int64_t drive_number(const char *name)
{
    const json_t *value = json_object_get(last.numbers, name);

    if (json_is_boolean(value))
        return json_is_true(value);
    if (!json_is_integer(value))
        ck_abort_msg("the observation has no number \"%s\"", name);
    return json_integer_value(value);
}

const char *drive_text(void)
{
    return last.text;
}

void drive_done(void)
{
    json_decref(last.numbers);
    last = (struct observation){0};
}
