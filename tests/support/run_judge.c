/* SPDX-License-Identifier: MIT */
#include "tests/support/run_judge.h"

#include <check.h>
#include <string.h>

#include "lib/json.h"

struct judged run_judge(struct run_builder *run, const char *check, json_t *params)
{
    struct judged judged = {.arena = arena_new()};
    const struct check *found = check_find(check);
    json_t *values = params == NULL ? json_object() : params;
    struct error err = {0};

    ck_assert_ptr_nonnull(found);
    run_write(run);
    ck_assert_msg(record_load(judged.arena, run->folder, &judged.record, &err) == STATUS_OK, "%s",
                  err.message);
    ck_assert_msg(param_complete(found->params, values, &err) == STATUS_OK, "%s", err.message);
    ck_assert_msg(found->judge(judged.record, values, judged.arena, &judged.result, &err) ==
                      STATUS_OK,
                  "%s", err.message);
    json_decref(values);
    return judged;
}

void judged_free(struct judged *judged)
{
    check_result_done(&judged->result);
    record_close(judged->record);
    arena_free(judged->arena);
}

int64_t judged_number(const struct judged *judged, const char *group, const char *member)
{
    return json_number(json_object_get(judged->result.details, group), member, -1);
}

void expect_verdict(struct run_builder *run, const char *check, json_t *params,
                    enum verdict verdict, const char *part)
{
    struct judged judged = run_judge(run, check, params);

    ck_assert_msg(judged.result.verdict == verdict, "%s: %s, expected %s: %s", check,
                  verdict_name(judged.result.verdict), verdict_name(verdict), judged.result.text);
    if (part != NULL)
        ck_assert_msg(strstr(judged.result.text, part) != NULL, "no \"%s\" in: %s", part,
                      judged.result.text);
    judged_free(&judged);
    run_free(run);
}
