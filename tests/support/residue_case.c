/* SPDX-License-Identifier: MIT */
#include "tests/support/residue_case.h"

#include <check.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"

enum { CLEAN_MS = 10000 };

void residue_sh(const char *line)
{
    const char *const argv[] = {"sh", "-ec", line, NULL};
    OWNED_RESULT struct process_result result = {0};
    struct error err = {0};

    if (process_run(&(struct process_spec){.argv = argv, .timeout_ms = 30000}, &result, &err) !=
        STATUS_OK)
        ck_abort_msg("%s\n%s\n%s%s", line, err.message, buffer_text(&result.output),
                     buffer_text(&result.errors));
}

json_t *residue_compared(struct residue_question question, const json_t *before,
                         const json_t *after)
{
    question.before = question.cluster_before = before;
    question.after = after;
    return residue_differences(&question);
}

void residue_expect_clean(const char *name, const json_t *before, residue_take *take,
                          void *argument, struct residue_question question)
{
    int64_t deadline_ns = deadline_in_ms(CLEAN_MS);

    for (;;) {
        OWNED_JSON json_t *after = take(argument);
        OWNED_JSON json_t *left = residue_compared(question, before, after);
        OWNED_MEMORY char *all = json_dumps(left, JSON_INDENT(1));
        if (json_array_size(left) == 0)
            return;
        ck_assert_msg(!deadline_passed(deadline_ns), "%s is not removed: %s", name, all);
    }
}

/* The first of that class with that text. */
static const json_t *find(struct arena *arena, const json_t *found,
                          const struct residue_case *residue)
{
    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *difference = json_array_get(found, i);
        if (strcmp(json_text(difference, "class", ""), residue->class) == 0 &&
            strstr(residue_text(arena, difference), residue->text) != NULL)
            return difference;
    }
    return NULL;
}

static void expect(const struct residue_case *cases, size_t count, const json_t *found)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_MEMORY char *all = json_dumps(found, JSON_INDENT(1));
    size_t total = 0;

    for (size_t i = 0; i < count; i++) {
        const struct residue_case *residue = &cases[i];
        const json_t *difference = find(arena, found, residue);
        const char *remedy = json_text(difference, "remedy", "");
        total += residue->count == 0 ? 1 : residue->count;
        ck_assert_msg(difference != NULL, "%s: \"%s\" is not in %s", residue->name, residue->text,
                      all);
        ck_assert_msg(strncmp(remedy, residue->remedy, strlen(residue->remedy)) == 0, "%s: %s",
                      residue->name, remedy);
    }
    ck_assert_msg(json_array_size(found) == total, "%s: %zu differences, not %zu: %s",
                  cases[0].name, json_array_size(found), total, all);
}

void residue_cases_run(const struct residue_case *cases, size_t count, residue_take *take,
                       void *argument, struct residue_question question)
{
    for (size_t i = 0; i < count; i++)
        if (cases[i].prepare != NULL)
            residue_sh(cases[i].prepare);
    OWNED_JSON json_t *before = take(argument);
    for (size_t i = 0; i < count; i++)
        residue_sh(cases[i].plant);
    OWNED_JSON json_t *planted = take(argument);
    OWNED_JSON json_t *found = residue_compared(question, before, planted);
    expect(cases, count, found);
    for (size_t i = 0; i < json_array_size(found); i++)
        residue_sh(json_text(json_array_get(found, i), "remedy", "false"));
    residue_expect_clean(cases[0].name, before, take, argument, question);
    for (size_t i = 0; i < count; i++)
        if (cases[i].after != NULL)
            residue_sh(cases[i].after);
}

void residue_case_run(const struct residue_case *residue, residue_take *take, void *argument,
                      struct residue_question question)
{
    residue_cases_run(residue, 1, take, argument, question);
}
