/* SPDX-License-Identifier: MIT */
/* `ordeal report RUN` and `ordeal checks [NAME]`. */
#include <stdio.h>

#include "lib/owned.h"
#include "orchestrator/checks/check.h"
#include "orchestrator/command.h"
#include "orchestrator/reports/report.h"

static int run_report(const struct invocation *invocation)
{
    struct error err = {0};
    int exit_code = EXIT_INTERNAL;

    if (report_run(invocation_argument(invocation, 0), invocation_flag(invocation, "json"),
                   &exit_code, &err) != STATUS_OK)
        return command_fail(&err);
    return exit_code;
}

static const struct command_option report_options[] = {
    {.name = "json", .help = "print result.json instead of the summary"},
    {.name = NULL},
};

const struct command command_report = {
    .name = "report",
    .arguments = "RUN",
    .minimum = 1,
    .maximum = 1,
    .summary = "judge a recorded run again",
    .text = "Loads the run directory, repeats the checks of its scenario (all of them when it "
            "names none), writes result.json and summary.txt into it and ends with the run's "
            "exit code. Nothing but the run directory is read.",
    .options = report_options,
    .run = run_report,
};

static void print_one(const struct check *check)
{
    OWNED_BUFFER struct buffer text = BUFFER(64 * 1024);

    buffer_printf(&text, "%s\n  %s\n  negative control: %s\n", check->name, check->summary,
                  check->negative_control);
    if (check->params->type != PARAM_END) {
        buffer_puts(&text, "\nparameters\n");
        param_help(check->params, &text);
    }
    buffer_puts(&text, "\ndefinition, measurement and limits: docs/verdicts.md\n");
    fputs(buffer_text(&text), stdout);
}

static int unknown_check(const char *name)
{
    const struct check *const *list = check_list();
    const char *names[64] = {NULL};
    struct error err = {0};

    for (size_t i = 0; list[i] != NULL && i + 1 < sizeof names / sizeof names[0]; i++)
        names[i] = list[i]->name;
    const char *nearest = nearest_word(name, names);
    error_set(&err, STATUS_USAGE, "there is no check %s", name);
    if (nearest != NULL)
        error_hint(&err, "Did you mean %s?", nearest);
    else
        error_hint(&err, "See `ordeal checks` for their names.");
    return command_fail(&err);
}

static int run_checks(const struct invocation *invocation)
{
    const struct check *const *list = check_list();

    if (invocation_count(invocation) == 1) {
        const struct check *check = check_find(invocation_argument(invocation, 0));
        if (check == NULL)
            return unknown_check(invocation_argument(invocation, 0));
        print_one(check);
        return EXIT_PASS;
    }
    for (size_t i = 0; list[i] != NULL; i++)
        printf("%-14s  %s\n", list[i]->name, list[i]->summary);
    return EXIT_PASS;
}

static const struct command_option no_options[] = {{.name = NULL}};

const struct command command_checks = {
    .name = "checks",
    .arguments = "[NAME]",
    .minimum = 0,
    .maximum = 1,
    .summary = "the catalogue of checks",
    .text = NULL,
    .options = no_options,
    .run = run_checks,
};
