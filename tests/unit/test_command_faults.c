/* SPDX-License-Identifier: MIT */
/* The command `faults` with an invocation of the test's own; stdout is caught in a file. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "faults/fault.h"
#include "lib/owned.h"
#include "orchestrator/command.h"
#include "tests/support/suite.h"

extern const struct command command_faults;

struct invocation {
    const char *name;
    bool json;
};

static struct error failed;

size_t invocation_count(const struct invocation *invocation)
{
    return invocation->name != NULL;
}

const char *invocation_argument(const struct invocation *invocation, size_t index)
{
    ck_assert_uint_eq(index, 0);
    return invocation->name;
}

bool invocation_flag(const struct invocation *invocation, const char *name)
{
    ck_assert_str_eq(name, "json");
    return invocation->json;
}

int command_fail(const struct error *err)
{
    failed = *err;
    return err->code == STATUS_USAGE ? EXIT_USAGE : EXIT_INTERNAL;
}

/* What the command printed; its exit code is checked. */
static const char *run(const char *name, bool json, int expected_code)
{
    static char text[64 * 1024];
    struct invocation invocation = {name, json};
    OWNED_FILE FILE *caught = tmpfile();

    ck_assert_ptr_nonnull(caught);
    fflush(stdout);
    OWNED_FD int before = dup(STDOUT_FILENO);
    ck_assert_int_ge(dup2(fileno(caught), STDOUT_FILENO), 0);
    int code = command_faults.run(&invocation);
    fflush(stdout);
    ck_assert_int_ge(dup2(before, STDOUT_FILENO), 0);
    ck_assert_int_eq(code, expected_code);
    rewind(caught);
    size_t length = fread(text, 1, sizeof text - 1, caught);
    text[length] = '\0';
    return text;
}

START_TEST(every_fault_is_listed)
{
    const char *text = run(NULL, false, EXIT_PASS);

    for (const struct fault *const *fault = fault_list(); *fault != NULL; fault++) {
        const char *line = strstr(text, (*fault)->name);
        ck_assert_msg(line != NULL && strstr(line, (*fault)->summary) != NULL, "%s is missing",
                      (*fault)->name);
    }
}
END_TEST

START_TEST(all_about_one)
{
    for (const struct fault *const *fault = fault_list(); *fault != NULL; fault++) {
        const char *text = run((*fault)->name, false, EXIT_PASS);
        ck_assert_ptr_nonnull(strstr(text, (*fault)->summary));
        ck_assert_ptr_nonnull(strstr(text, (*fault)->loses));
        for (const struct param *param = (*fault)->params; param->type != PARAM_END; param++)
            ck_assert_ptr_nonnull(strstr(text, param->help));
    }
}
END_TEST

START_TEST(json_for_machines)
{
    OWNED_JSON json_t *all = json_loads(run(NULL, true, EXIT_PASS), 0, NULL);
    OWNED_JSON json_t *one = json_loads(run("node.crash", true, EXIT_PASS), 0, NULL);
    const json_t *list = json_object_get(all, "faults");
    size_t count = 0;

    while (fault_list()[count] != NULL)
        count++;
    ck_assert_uint_eq(json_array_size(list), count);
    ck_assert_str_eq(json_string_value(json_object_get(one, "name")), "node.crash");
    ck_assert_str_eq(json_string_value(json_object_get(one, "executor")), "power");
    const json_t *schema = json_object_get(json_object_get(one, "parameters"), "properties");
    ck_assert_ptr_nonnull(json_object_get(schema, "cut"));
}
END_TEST

START_TEST(an_unknown_name_gets_the_nearest)
{
    run("proces.kil", false, EXIT_USAGE);
    ck_assert_ptr_nonnull(strstr(failed.message, "proces.kil"));
    ck_assert_ptr_nonnull(strstr(failed.hint, "process.kill"));
    run("zzz", false, EXIT_USAGE);
    ck_assert_ptr_nonnull(strstr(failed.hint, "ordeal faults"));
}
END_TEST

TEST_MAIN("command faults", 20, NULL, NULL, every_fault_is_listed, all_about_one, json_for_machines,
          an_unknown_name_gets_the_nearest)
