/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "lib/owned.h"
#include "lib/param.h"
#include "tests/support/suite.h"

static const struct param params[] = {
    {.name = "direction",
     .type = PARAM_CHOICE,
     .choices = "in|out|both",
     .fallback = "both",
     .help = "which packets"},
    {.name = "hold", .type = PARAM_DURATION, .minimum = 100, .maximum = 60000, .help = "how long"},
    {.name = "count", .type = PARAM_INTEGER, .required = true, .help = "how many"},
    {.name = "cut", .type = PARAM_BOOLEAN, .fallback = "no", .help = "lose unsynced pages"},
    {.name = "share", .type = PARAM_PERCENTAGE, .help = "of memory"},
    {.name = "speed", .type = PARAM_RATE, .help = "of commits"},
    {.name = "margin", .type = PARAM_SIZE, .help = "left free"},
    {.name = "peers", .type = PARAM_NODES, .help = "nodes to cut off"},
    {0}};

static json_t *parse(const char *name, const char *text, struct error *err)
{
    json_t *value = NULL;
    const struct param *param = param_find(params, name);

    ck_assert_ptr_nonnull(param);
    return param_parse(param, text, &value, err) == STATUS_OK ? value : NULL;
}

START_TEST(values_travel_in_the_unit_of_their_type)
{
    struct error err;
    OWNED_JSON json_t *hold = parse("hold", "1.5s", &err);
    OWNED_JSON json_t *margin = parse("margin", "64MiB", &err);
    OWNED_JSON json_t *speed = parse("speed", "6/m", &err);
    OWNED_JSON json_t *share = parse("share", "80%", &err);
    OWNED_JSON json_t *cut = parse("cut", "yes", &err);
    OWNED_JSON json_t *peers = parse("peers", "n2,n3", &err);

    ck_assert_int_eq(json_integer_value(hold), 1500);
    ck_assert_int_eq(json_integer_value(margin), 64 * 1024 * 1024);
    ck_assert_double_eq_tol(json_number_value(speed), 0.1, 1e-9);
    ck_assert_double_eq_tol(json_number_value(share), 80, 1e-9);
    ck_assert(json_is_true(cut));
    ck_assert_str_eq(json_string_value(json_array_get(peers, 1)), "n3");
}
END_TEST

START_TEST(wrong_values_are_named)
{
    struct error err;

    ck_assert_ptr_null(parse("direction", "sideways", &err));
    ck_assert_ptr_nonnull(strstr(err.message, "direction"));
    ck_assert_ptr_nonnull(strstr(err.message, "sideways"));
    ck_assert_ptr_null(parse("direction", "in|out", &err));
    ck_assert_ptr_null(parse("hold", "10", &err));
    ck_assert_ptr_null(parse("hold", "99ms", &err));
    ck_assert_ptr_null(parse("hold", "61s", &err));
    ck_assert_ptr_null(parse("cut", "maybe", &err));
}
END_TEST

START_TEST(completion_adds_fallbacks_and_wants_the_required)
{
    struct error err;
    OWNED_JSON json_t *values = json_pack("{s:i}", "count", 3);

    ck_assert_int_eq(param_complete(params, values, &err), STATUS_OK);
    ck_assert_str_eq(json_string_value(json_object_get(values, "direction")), "both");
    ck_assert(json_is_false(json_object_get(values, "cut")));
    ck_assert_ptr_null(json_object_get(values, "hold"));
    json_object_del(values, "count");
    ck_assert_int_eq(param_complete(params, values, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "count"));
}
END_TEST

START_TEST(unknown_names_get_the_nearest_known_one)
{
    struct error err;
    OWNED_JSON json_t *values = json_pack("{s:i, s:s}", "count", 3, "diretcion", "in");

    ck_assert_int_eq(param_complete(params, values, &err), STATUS_INVALID);
    ck_assert_str_eq(err.hint, "Did you mean direction?");
}
END_TEST

START_TEST(wire_values_of_another_type_are_refused)
{
    struct error err;
    OWNED_JSON json_t *text = json_pack("{s:s}", "count", "3");
    OWNED_JSON json_t *empty = json_pack("{s:i, s:[]}", "count", 1, "peers");
    OWNED_JSON json_t *mixed = json_pack("{s:i, s:[i]}", "count", 1, "peers", 7);
    OWNED_JSON json_t *list = json_pack("[i]", 1);

    ck_assert_int_eq(param_complete(params, text, &err), STATUS_INVALID);
    ck_assert_int_eq(param_complete(params, empty, &err), STATUS_INVALID);
    ck_assert_int_eq(param_complete(params, mixed, &err), STATUS_INVALID);
    ck_assert_int_eq(param_complete(params, list, &err), STATUS_INVALID);
}
END_TEST

START_TEST(nothing_is_near_a_strange_word)
{
    const char *const words[] = {"primary", "standby", NULL};

    ck_assert_str_eq(nearest_word("primry", words), "primary");
    ck_assert_str_eq(nearest_word("rnu", (const char *const[]){"plan", "run", NULL}), "run");
    ck_assert_ptr_null(nearest_word("xyz", words));
}
END_TEST

START_TEST(schema_and_help_name_every_parameter)
{
    OWNED_JSON json_t *schema = param_schema(params);
    OWNED_BUFFER struct buffer text = BUFFER(10000);

    param_help(params, &text);
    for (const struct param *param = params; param->type != PARAM_END; param++) {
        ck_assert_ptr_nonnull(json_object_get(json_object_get(schema, "properties"), param->name));
        ck_assert_ptr_nonnull(strstr(buffer_text(&text), param->name));
    }
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(schema, "required"), 0)),
                     "count");
}
END_TEST

TEST_MAIN("param", 10, NULL, NULL, values_travel_in_the_unit_of_their_type, wrong_values_are_named,
          completion_adds_fallbacks_and_wants_the_required, unknown_names_get_the_nearest_known_one,
          wire_values_of_another_type_are_refused, nothing_is_near_a_strange_word,
          schema_and_help_name_every_parameter)
