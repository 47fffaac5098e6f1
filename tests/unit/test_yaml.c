/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/owned.h"
#include "lib/yaml.h"

static struct arena *arena;
static struct yaml_errors errors;
static char path[64];

static void setup(void)
{
    arena = arena_new();
    errors = (struct yaml_errors){.arena = arena};
    snprintf(path, sizeof path, "/tmp/ordeal-test-yaml-%d.yaml", (int) getpid());
}

static void teardown(void)
{
    unlink(path);
    arena_free(arena);
}

static struct yaml_node *load(const char *text)
{
    struct yaml_node *root = NULL;
    struct error err = {0};
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    enum status status = yaml_load(arena, path, &root, &errors, &err);
    ck_assert_int_eq(status, errors.count == 0 ? STATUS_OK : STATUS_INVALID);
    return status == STATUS_OK ? root : NULL;
}

/* The index-th error is exactly "PATH:" and this. */
static void expect_error(size_t index, const char *text)
{
    char whole[512];

    snprintf(whole, sizeof whole, "%s:%s", path, text);
    ck_assert_msg(index < errors.count, "no error %zu: %s", index, whole);
    ck_assert_str_eq(errors.texts[index], whole);
}

START_TEST(tree_knows_places)
{
    struct yaml_node *root = load("a: 1\nb:\n  - x\n  - {c: \"yes\"}\nempty:\n");

    ck_assert_ptr_nonnull(root);
    ck_assert_int_eq(root->kind, YAML_MAPPING);
    ck_assert_uint_eq(root->count, 3);
    const struct yaml_node *list = yaml_get(root, "b");
    ck_assert_int_eq(list->kind, YAML_SEQUENCE);
    ck_assert_uint_eq(list->count, 2);
    const struct yaml_node *inner = yaml_get(list->items[1], "c");
    ck_assert_str_eq(inner->text, "yes");
    ck_assert(inner->quoted);
    ck_assert_int_eq(inner->line, 4);
    ck_assert_int_eq(inner->column, 9);
    ck_assert_str_eq(yaml_get(root, "empty")->text, "");
    ck_assert_ptr_null(yaml_get(root, "missing"));
}
END_TEST

static const char *const refused[][2] = {
    {"a: &x 1\nb: 2\n", "1:4: anchors are not allowed"},
    {"a: *x\n", "1:4: aliases are not allowed"},
    {"a: !!int 1\n", "1:4: tags are not allowed"},
    {"a: 1\n---\nb: 2\n", "2:1: a second document is not allowed"},
    {"a: 1\nb: 2\na: 3\n", "3:1: duplicate key a, first on line 1"},
    {"", "1:1: the file is empty"},
    {"[a, b]: 1\n", "1:1: a key must be a single word"},
    {"a: [1, 2\n", "2:1: did not find expected ',' or ']'"},
    {"a: \"x\\0y\"\n", "1:4: a NUL character is not allowed"},
};

START_TEST(refuses)
{
    ck_assert_ptr_null(load(refused[_i][0]));
    ck_assert_uint_eq(errors.count, 1);
    expect_error(0, refused[_i][1]);
}
END_TEST

START_TEST(refuses_depth)
{
    char text[256];

    memset(text, '[', 100);
    memset(text + 100, ']', 100);
    text[200] = '\0';
    ck_assert_ptr_null(load(text));
    ck_assert_ptr_nonnull(strstr(errors.texts[0], "nested too deeply"));
}
END_TEST

START_TEST(missing_file)
{
    struct yaml_node *root = NULL;
    struct error err = {0};

    ck_assert_int_eq(yaml_load(arena, "/nowhere/x.yaml", &root, &errors, &err), STATUS_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.message, "/nowhere/x.yaml"));
}
END_TEST

struct sample {
    const char *text, *choice;
    bool flag;
    int64_t integer, duration, size;
    double rate, percent;
    const char *const *words;
    const struct yaml_node *node;
};

#define FIELD(key, kind, ...)                                                                      \
    {                                                                                              \
        .name = #key, .type = kind, .offset = offsetof(struct sample, key), __VA_ARGS__            \
    }

static const struct yaml_field fields[] = {
    FIELD(text, YAML_TEXT, .required = true),
    FIELD(choice, YAML_CHOICE, .choices = "quorum|local|none"),
    FIELD(flag, YAML_BOOLEAN),
    FIELD(integer, YAML_INTEGER, .minimum = 1, .maximum = 10),
    FIELD(duration, YAML_DURATION, .minimum = 100, .maximum = 60000),
    FIELD(size, YAML_SIZE),
    FIELD(rate, YAML_RATE),
    FIELD(percent, YAML_PERCENT, .minimum = 0, .maximum = 100),
    FIELD(words, YAML_TEXTS),
    FIELD(node, YAML_NODE),
    {.type = YAML_END},
};

START_TEST(reads_every_type)
{
    struct sample sample = {0};
    struct yaml_node *root = load("text: 15\nchoice: local\nflag: yes\ninteger: 7\nduration: 1.5s\n"
                                  "size: 64MiB\nrate: 100/s\npercent: 80%\nwords: [a, b]\n"
                                  "node: {x: 1}\n");

    yaml_read(root, fields, &sample, &errors);
    ck_assert_uint_eq(errors.count, 0);
    ck_assert_str_eq(sample.text, "15");
    ck_assert_str_eq(sample.choice, "local");
    ck_assert(sample.flag);
    ck_assert_int_eq(sample.integer, 7);
    ck_assert_int_eq(sample.duration, 1500);
    ck_assert_int_eq(sample.size, 67108864);
    ck_assert_double_eq_tol(sample.rate, 100, 1e-9);
    ck_assert_double_eq_tol(sample.percent, 80, 1e-9);
    ck_assert_str_eq(sample.words[1], "b");
    ck_assert_ptr_null(sample.words[2]);
    ck_assert_int_eq(sample.node->kind, YAML_MAPPING);
}
END_TEST

START_TEST(collects_every_error)
{
    struct sample sample = {.integer = 3, .duration = 5};
    struct yaml_node *root = load("chioce: local\nchoice: qorum\nflag: maybe\ninteger: 11\n"
                                  "duration: 30\nsize: [1]\nwords: {a: b}\npercent: 101%\n"
                                  "rate: 1/s\nnothing-like-it: 1\n");

    yaml_read(root, fields, &sample, &errors);
    ck_assert_uint_eq(errors.count, 10);
    expect_error(0, "1:1: unknown key chioce, did you mean choice?");
    expect_error(1, "2:9: unknown choice qorum, did you mean quorum?");
    expect_error(2, "3:7: flag must be yes or no, not maybe");
    expect_error(3, "4:10: integer: 11 is out of range, it must be from 1 to 10");
    ck_assert_ptr_nonnull(strstr(errors.texts[4], ":5:11: duration: \"30\" is not a duration"));
    expect_error(5, "6:7: size must be a single value, not a list");
    expect_error(6, "7:8: words must be a list, not a mapping");
    expect_error(7, "8:10: percent: 101% is out of range, it must be from 0 to 100");
    ck_assert_ptr_nonnull(strstr(errors.texts[8], "unknown key nothing-like-it, known are: text,"));
    expect_error(9, "1:1: missing key text");
    ck_assert_int_eq(sample.integer, 3);
    ck_assert_int_eq(sample.duration, 5);
    ck_assert_double_eq_tol(sample.rate, 1, 1e-9);
}
END_TEST

START_TEST(a_list_is_not_a_mapping)
{
    struct sample sample = {0};

    yaml_read(load("[a]\n"), fields, &sample, &errors);
    ck_assert_uint_eq(errors.count, 1);
    expect_error(0, "1:1: expected a mapping (key: value) here");
}
END_TEST

static const struct param params[] = {
    {.name = "signal",
     .type = PARAM_CHOICE,
     .choices = "KILL|TERM",
     .fallback = "KILL",
     .help = "s"},
    {.name = "delay", .type = PARAM_DURATION, .required = true, .help = "how long"},
    {.name = "size", .type = PARAM_SIZE, .minimum = 1, .maximum = 1024, .help = "x"},
    {.name = "peers", .type = PARAM_NODES, .required = true, .help = "whom"},
    {.type = PARAM_END},
};

START_TEST(params_become_json)
{
    OWNED_JSON json_t *json =
        yaml_read_params(load("delay: 2s\npeers: {role: any}\n"), params, &errors);

    ck_assert_uint_eq(errors.count, 0);
    ck_assert_uint_eq(json_object_size(json), 2);
    ck_assert_str_eq(json_string_value(json_object_get(json, "signal")), "KILL");
    ck_assert_int_eq(json_integer_value(json_object_get(json, "delay")), 2000);
}
END_TEST

START_TEST(params_collect_errors)
{
    OWNED_JSON json_t *json = yaml_read_params(load("signl: TERM\nsize: 2KiB\n"), params, &errors);

    ck_assert_ptr_nonnull(json);
    ck_assert_uint_eq(errors.count, 4);
    expect_error(0, "1:1: unknown parameter signl, did you mean signal?");
    ck_assert_ptr_nonnull(strstr(errors.texts[1], ":2:7: "));
    expect_error(2, "1:1: missing parameter delay: how long");
    expect_error(3, "1:1: missing parameter peers: whom");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("yaml");
    TCase *yaml = tcase_create("yaml");

    tcase_add_checked_fixture(yaml, setup, teardown);
    tcase_add_test(yaml, tree_knows_places);
    tcase_add_loop_test(yaml, refuses, 0, sizeof refused / sizeof refused[0]);
    tcase_add_test(yaml, refuses_depth);
    tcase_add_test(yaml, missing_file);
    tcase_add_test(yaml, reads_every_type);
    tcase_add_test(yaml, collects_every_error);
    tcase_add_test(yaml, a_list_is_not_a_mapping);
    tcase_add_test(yaml, params_become_json);
    tcase_add_test(yaml, params_collect_errors);
    suite_add_tcase(suite, yaml);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
