/* SPDX-License-Identifier: MIT */
/* ordeal faults: the catalogue of faults, told from their descriptors. */
#include <jansson.h>
#include <stdio.h>

#include "faults/fault.h"
#include "lib/owned.h"
#include "orchestrator/command.h"

enum { TEXT_MAX = 64 * 1024, NAMES_MAX = 256 };

extern const struct command command_faults;

static const char *executor_name(enum fault_executor executor)
{
    return executor == EXECUTE_POWER ? "power" : "node";
}

static json_t *to_json(const struct fault *fault)
{
    return json_pack("{s:s, s:s, s:s, s:b, s:b, s:s?, s:s?, s:s?, s:b, s:o}", "name", fault->name,
                     "summary", fault->summary, "executor", executor_name(fault->executor), "holds",
                     fault->holds, "reversible", fault->reversible, "restores", fault->restores,
                     "loses", fault->loses, "excludes", fault->excludes, "witness",
                     fault->witness != NULL, "parameters", param_schema(fault->params));
}

static enum status print_json(json_t *json, struct error *err)
{
    int result = json == NULL ? -1 : json_dumpf(json, stdout, JSON_INDENT(2));

    json_decref(json);
    if (result != 0)
        return error_set(err, STATUS_INTERNAL, "the catalogue cannot be printed as JSON");
    putchar('\n');
    return STATUS_OK;
}

static enum status list_as_json(struct error *err)
{
    json_t *list = json_array();

    for (const struct fault *const *fault = fault_list(); *fault != NULL; fault++)
        json_array_append_new(list, to_json(*fault));
    return print_json(json_pack("{s:o}", "faults", list), err);
}

static void list_as_text(void)
{
    for (const struct fault *const *fault = fault_list(); *fault != NULL; fault++)
        printf("%-20s %s\n", (*fault)->name, (*fault)->summary);
}

static void print_line(const char *what, const char *text)
{
    if (text != NULL)
        printf("%-12s %s\n", what, text);
}

static void describe(const struct fault *fault)
{
    OWNED_BUFFER struct buffer help = BUFFER(TEXT_MAX);

    printf("%s: %s\n\n", fault->name, fault->summary);
    print_line("executor", fault->executor == EXECUTE_POWER
                               ? "the power agent, for a node that cannot keep a lease itself"
                               : "the agent of the target node");
    print_line("holds", fault->holds ? "yes, until it is undone; \"for\" is compulsory"
                                     : "no, it happens at an instant");
    print_line("reversible", fault->reversible ? "yes" : "no");
    print_line("restores", fault->restores);
    print_line("loses", fault->loses);
    print_line("excludes", fault->excludes);
    print_line("witness", fault->witness != NULL ? "another node is asked, too" : "none");
    param_help(fault->params, &help);
    printf("\nparameters\n%s", buffer_text(&help));
}

static enum status find(const char *name, const struct fault **ret_fault, struct error *err)
{
    const char *names[NAMES_MAX] = {0};
    size_t count = 0;

    *ret_fault = fault_find(name);
    if (*ret_fault != NULL)
        return STATUS_OK;
    for (const struct fault *const *fault = fault_list(); *fault != NULL && count < NAMES_MAX - 1;
         fault++)
        names[count++] = (*fault)->name;
    const char *nearest = nearest_word(name, names);
    error_set(err, STATUS_USAGE, "no fault is called \"%s\"", name);
    if (nearest != NULL)
        error_hint(err, "Did you mean %s?", nearest);
    else
        error_hint(err, "See `ordeal faults`.");
    return STATUS_USAGE;
}

static enum status show(const struct invocation *invocation, struct error *err)
{
    bool json = invocation_flag(invocation, "json");
    const struct fault *fault = NULL;

    if (invocation_count(invocation) == 0) {
        if (json)
            return list_as_json(err);
        list_as_text();
        return STATUS_OK;
    }
    enum status status = find(invocation_argument(invocation, 0), &fault, err);
    if (status != STATUS_OK)
        return status;
    if (json)
        return print_json(to_json(fault), err);
    describe(fault);
    return STATUS_OK;
}

static int run(const struct invocation *invocation)
{
    struct error err = {0};

    return show(invocation, &err) == STATUS_OK ? EXIT_PASS : command_fail(&err);
}

static const struct command_option options[] = {
    {.name = "json", .help = "one JSON object on stdout; parameters as a JSON schema"},
    {0},
};

const struct command command_faults = {
    .name = "faults",
    .arguments = "[NAME]",
    .minimum = 0,
    .maximum = 1,
    .summary = "the faults that Ordeal can inject, or all about one of them",
    .text = "Without a name, one line a fault. With a name: who executes it, whether it holds or "
            "happens at an instant, what can be lost, what brings service back, which faults it "
            "excludes, and its parameters. The pages in docs/faults tell how each differs from its "
            "neighbours.",
    .options = options,
    .run = run,
};
