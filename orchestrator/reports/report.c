/* SPDX-License-Identifier: MIT */
#include "orchestrator/reports/report.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/json.h"
#include "lib/owned.h"

/* --- judging ---------------------------------------------------------------------------------- */

/* Values that a scenario gives as a person writes them ("30s") become what the table says. */
static enum status parse_texts(const struct param *params, json_t *values, struct error *err)
{
    for (const struct param *param = params; param->type != PARAM_END; param++) {
        const char *text = json_string_value(json_object_get(values, param->name));
        json_t *value = NULL;
        if (text == NULL || param->type == PARAM_STRING || param->type == PARAM_CHOICE)
            continue;
        if (param_parse(param, text, &value, err) != STATUS_OK)
            return err == NULL ? STATUS_INVALID : err->code;
        json_object_set_new(values, param->name, value);
    }
    return STATUS_OK;
}

static enum status judge(const struct record *record, const struct check *check,
                         const json_t *given, struct arena *arena, struct check_result *result,
                         struct error *err)
{
    OWNED_JSON json_t *params = json_is_object(given) ? json_deep_copy(given) : json_object();

    if (params == NULL)
        abort();
    enum status status = parse_texts(check->params, params, err);
    if (status == STATUS_OK)
        status = param_complete(check->params, params, err);
    if (status == STATUS_OK)
        status = check->judge(record, params, arena, result, err);
    return status;
}

static void judge_one(struct report *report, struct report_check *slot, const json_t *wanted)
{
    struct error problem = {0};
    const json_t *params = json_object_get(wanted, slot->check->name);

    slot->counts = json_object_size(wanted) == 0 || params != NULL ||
                   (slot->check->judges_expectations && evidence_expects(report->record)) ||
                   (slot->check->judges_faults && report->faults.count > 0);
    if (judge(report->record, slot->check, params, report->arena, &slot->result, &problem) !=
        STATUS_OK)
        check_conclude(&slot->result, VERDICT_INCONCLUSIVE, "%s", problem.message);
}

static void judge_all(struct report *report)
{
    const json_t *scenario = json_object_get(report->record->start, "scenario");
    const json_t *wanted = json_object_get(scenario, "checks");
    const struct check *const *list = check_list();

    while (list[report->count] != NULL)
        report->count++;
    report->checks = arena_array(report->arena, report->count, sizeof *report->checks);
    for (size_t i = 0; i < report->count; i++) {
        report->checks[i].check = list[i];
        judge_one(report, &report->checks[i], wanted);
    }
}

enum status report_new(struct arena *arena, const char *folder, struct report **ret_report,
                       struct error *err)
{
    struct report *report = arena_alloc(arena, sizeof *report);
    enum status status = record_load(arena, folder, &report->record, err);

    if (status != STATUS_OK)
        return status;
    report->arena = arena;
    report->reasons.arena = arena;
    report->faults = evidence_faults(report->record, arena);
    judge_all(report);
    report_decide(report);
    *ret_report = report;
    return STATUS_OK;
}

void report_free(struct report *report)
{
    if (report == NULL)
        return;
    for (size_t i = 0; i < report->count; i++)
        check_result_done(&report->checks[i].result);
    record_close(report->record);
}

const json_t *report_detail(const struct report *report, const char *check, const char *member)
{
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(report->checks[i].check->name, check) == 0)
            return json_object_get(report->checks[i].result.details, member);
    return NULL;
}

/* --- output ----------------------------------------------------------------------------------- */

static enum status write_text(const char *path, const char *text, struct error *err)
{
    OWNED_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    size_t length = strlen(text);

    if (fd < 0)
        return error_system(err, "creating %s", path);
    for (size_t done = 0; done < length;) {
        ssize_t written = write(fd, text + done, length - done);
        if (written < 0)
            return error_system(err, "writing %s", path);
        done += (size_t) written;
    }
    return STATUS_OK;
}

static enum status write_files(const struct report *report, const json_t *result, struct error *err)
{
    OWNED_BUFFER struct buffer plain = BUFFER(1 << 20);
    const char *folder = report->record->folder;

    report_text(report, false, &plain);
    enum status status =
        json_write_file(arena_printf(report->arena, "%s/result.json", folder), result, err);
    if (status == STATUS_OK)
        status = write_text(arena_printf(report->arena, "%s/summary.txt", folder),
                            buffer_text(&plain), err);
    if (status != STATUS_OK)
        error_hint(err,
                   "The run itself is complete: free space or change the permissions of %s, "
                   "then run `ordeal report %s`.",
                   folder, folder);
    return status;
}

static void print_text(const struct report *report)
{
    OWNED_BUFFER struct buffer text = BUFFER(1 << 20);
    const char *no_colour = getenv("NO_COLOR");
    bool colour = isatty(STDOUT_FILENO) && (no_colour == NULL || no_colour[0] == '\0');

    report_text(report, colour, &text);
    fputs(buffer_text(&text), stdout);
}

static enum status flush_output(struct error *err)
{
    if (fflush(stdout) != 0)
        return error_system(err, "writing the report to standard output");
    return STATUS_OK;
}

enum status report_run(const char *folder, bool json, int *ret_exit_code, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct report *report = NULL;
    enum status status = report_new(arena, folder, &report, err);

    if (status != STATUS_OK)
        return status;
    OWNED_JSON json_t *result = report_json(report);
    /* what was found is printed even when the files cannot be written */
    enum status written = write_files(report, result, err);
    if (json) {
        json_dumpf(result, stdout, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(12));
        fputc('\n', stdout);
    } else {
        print_text(report);
    }
    int exit_code = report->exit_code;
    report_free(report);
    status = written != STATUS_OK ? written : flush_output(err);
    if (status == STATUS_OK)
        *ret_exit_code = exit_code;
    return status;
}
