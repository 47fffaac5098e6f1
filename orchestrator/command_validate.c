/* SPDX-License-Identifier: MIT */
/* `ordeal validate FILE...`: every error of topology, scenario and profile files. */
#include <stdio.h>
#include <string.h>

#include "lib/owned.h"
#include "orchestrator/files.h"

static const char *schema_of(const struct yaml_node *root)
{
    const struct yaml_node *schema = yaml_get(root, "schema");

    return schema != NULL && schema->kind == YAML_SCALAR ? schema->text : "";
}

/* What kind of file it is decides who reads it; a file of neither kind says so. */
static enum status validate(struct arena *arena, const char *path, const struct topology *topology,
                            struct yaml_errors *errors, struct topology **ret_topology,
                            struct error *err)
{
    struct yaml_errors first = {.arena = arena};
    struct yaml_node *root;
    struct scenario_file file;
    enum status status = yaml_load(arena, path, &root, &first, err);

    if (status != STATUS_OK) {
        *errors = first;
        return status;
    }
    if (strncmp(schema_of(root), "ordeal/topology-", 16) == 0)
        return topology_load(arena, path, ret_topology, errors, err);
    return scenario_load(arena, path, topology, &file, errors, err);
}

static int validate_one(struct arena *arena, const char *name, const struct topology **topology)
{
    struct yaml_errors errors = {.arena = arena};
    struct topology *found = NULL;
    struct error err = {0};
    const char *path = scenario_find(arena, name);
    enum status status = validate(arena, path, *topology, &errors, &found, &err);

    files_complain(&errors);
    if (found != NULL)
        *topology = found;
    if (status == STATUS_OK)
        printf("%s: valid\n", path);
    else if (errors.count == 0)
        return command_fail(&err);
    return status == STATUS_OK ? EXIT_PASS : EXIT_REFUSED;
}

static int run_validate(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const struct topology *topology = NULL;
    int exit_code = EXIT_PASS;

    for (size_t i = 0; i < invocation_count(invocation); i++) {
        int code = validate_one(arena, invocation_argument(invocation, i), &topology);
        if (code > exit_code)
            exit_code = code;
    }
    return exit_code;
}

static const struct command_option options[] = {{.name = NULL}};

const struct command command_validate = {
    .name = "validate",
    .arguments = "FILE...",
    .minimum = 1,
    .maximum = -1,
    .summary = "all errors of topology and scenario files",
    .text = "Reads each file as its schema says and prints every error with file, line and "
            "column. Scenarios that follow a topology are checked against its nodes and zones. "
            "Nothing is connected to.",
    .options = options,
    .run = run_validate,
};
