/* SPDX-License-Identifier: MIT */
/* ordeal lab up | down | status | exec | power */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/command.h"
#include "topologies/lab/lab.h"

#define OPTION_FILE                                                                                \
    {                                                                                              \
        .name = "topology", .letter = 't', .value = "FILE",                                        \
        .help = "lab file; its name is the lab's, unless --name gives another"                     \
    }
#define OPTION_NAME                                                                                \
    {                                                                                              \
        .name = "name", .value = "NAME", .help = "name of the lab"                                 \
    }

static const struct command_option lab_options[] = {OPTION_FILE, OPTION_NAME, {.name = NULL}};

static const struct command_option status_options[] = {
    OPTION_FILE, OPTION_NAME, {.name = "json", .help = "print one JSON object"}, {.name = NULL}};

/* Beside the program when installed, above build/ in a source tree. */
static const char *default_file(struct arena *arena)
{
    const char *installed = arena_printf(arena, "%s/topologies/lab-quorum.yaml", program_folder());

    if (access(installed, R_OK) == 0)
        return installed;
    return arena_printf(arena, "%s/../topologies/lab-quorum.yaml", program_folder());
}

static enum status load_spec(struct arena *arena, const struct invocation *invocation,
                             struct lab_spec **ret_spec, struct error *err)
{
    const char *given = invocation_option(invocation, "topology");
    const char *file = given != NULL ? given : default_file(arena);
    struct yaml_errors errors = {.arena = arena, .file = file};
    enum status status =
        lab_spec_load(arena, file, invocation_option(invocation, "name"), ret_spec, &errors, err);

    for (size_t i = 0; i < errors.count; i++)
        fprintf(stderr, "%s\n", errors.texts[i]);
    return status;
}

/* --name, else the name in -t, else the only lab there is. */
static enum status find_lab(struct arena *arena, const struct invocation *invocation, bool only_up,
                            const char **ret_name, struct error *err)
{
    const char *name = invocation_option(invocation, "name");
    struct lab_spec *spec = NULL;

    if (name != NULL) {
        *ret_name = name;
        return lab_check_name(name, err);
    }
    if (invocation_option(invocation, "topology") == NULL)
        return lab_find_name(arena, only_up, ret_name, err);
    enum status status = load_spec(arena, invocation, &spec, err);
    if (status == STATUS_OK)
        *ret_name = spec->name;
    return status;
}

/* ---- up, down ---- */

static int run_up(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    int64_t started_ns = clock_boot_ns();
    struct lab_programs programs = {
        .ordeal = arena_printf(arena, "%s/ordeal", program_folder()),
        .agent = arena_printf(arena, "%s/ordeald", program_folder()),
    };
    struct lab_spec *spec = NULL;
    struct error err = {0};
    enum status status = load_spec(arena, invocation, &spec, &err);

    if (status == STATUS_OK)
        status = lab_up(spec, &programs, started_ns, &err);
    if (status != STATUS_OK)
        return command_fail(&err);
    printf("lab %s is up after %.1f s, topology " LAB_ROOT "/%s/topology.yaml\n", spec->name,
           (double) (clock_boot_ns() - started_ns) / 1e9, spec->name);
    return EXIT_PASS;
}

const struct command command_lab_up = {
    .name = "lab up",
    .arguments = "",
    .summary = "bring the lab up: PostgreSQL with replication in namespaces of this host",
    .text = "Builds the nodes of a lab file (schema ordeal/lab-1; default: lab-quorum.yaml), each "
            "with its own namespaces, volumes and agent, starts PostgreSQL on them and writes a "
            "topology file, which other commands find by themselves. Nothing of the lab appears in "
            "the host's network or mounts. Refused with exit code 4, before anything is changed, "
            "when the lab is up already or the host lacks something.",
    .options = lab_options,
    .run = run_up,
};

static int run_down(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *name = NULL;
    bool was_up = false;
    struct error err = {0};
    enum status status = find_lab(arena, invocation, false, &name, &err);

    if (status == STATUS_NOT_FOUND && invocation_option(invocation, "topology") == NULL) {
        puts("no lab is up");
        return EXIT_PASS;
    }
    if (status == STATUS_OK)
        status = lab_down(name, &was_up, &err);
    if (status != STATUS_OK)
        return command_fail(&err);
    printf(was_up ? "lab %s is down, nothing is left of it\n" : "lab %s is not up\n", name);
    return EXIT_PASS;
}

const struct command command_lab_down = {
    .name = "lab down",
    .arguments = "",
    .summary = "take the lab down and remove everything of it",
    .text =
        "Kills all that runs in the lab and removes its volumes, control groups and state. Also "
        "clears away what a killed \"lab up\" left. Taking down a lab that is not up is fine.",
    .options = lab_options,
    .run = run_down,
};

/* ---- status ---- */

static void print_postgres(const json_t *node)
{
    const json_t *postgres = json_object_get(node, "postgres");

    if (postgres == NULL)
        printf("-\n");
    else if (json_flag(postgres, "running", false))
        printf("%s, timeline %lld\n", json_text(postgres, "role", ""),
               (long long) json_number(postgres, "timeline", 0));
    else if (json_flag(postgres, "silent", false))
        printf("down\n");
    else
        printf("cannot be asked: %s\n", json_text(postgres, "error", ""));
}

static void print_node(const json_t *node)
{
    const char *power = json_text(node, "power", "");

    printf("%-6s %-5s %-13s %-9s %8.0f s  %-8s ", json_text(node, "name", ""),
           json_text(node, "zone", ""), json_text(node, "address", ""), power,
           json_real_value(json_object_get(node, "since_s")),
           strcmp(power, "on") != 0          ? "-"
           : json_flag(node, "agent", false) ? "answers"
                                             : "silent");
    print_postgres(node);
}

static void print_status(const json_t *status)
{
    size_t index = 0;
    json_t *node = NULL;

    printf("lab %s is %s, %.0f s, pid %lld\ntopology %s\n\n", json_text(status, "name", ""),
           json_flag(status, "up", false) ? "up" : "half up",
           json_real_value(json_object_get(status, "up_s")),
           (long long) json_number(status, "pid", 0), json_text(status, "topology", ""));
    printf("node   zone  address       power     for         agent    postgres\n");
    json_array_foreach(json_object_get(status, "nodes"), index, node) print_node(node);
}

static int run_status(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *found = NULL;
    const char *name = NULL;
    struct error err = {0};
    enum status status = find_lab(arena, invocation, true, &name, &err);

    if (status == STATUS_OK)
        status = lab_status(name, &found, &err);
    if (status != STATUS_OK)
        return command_fail(&err);
    if (!invocation_flag(invocation, "json")) {
        print_status(found);
        return EXIT_PASS;
    }
    json_dumpf(found, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    puts("");
    return EXIT_PASS;
}

const struct command command_lab_status = {
    .name = "lab status",
    .arguments = "",
    .summary = "nodes of the lab: power, agent, role and timeline of PostgreSQL",
    .options = status_options,
    .run = run_status,
};

/* ---- exec, power ---- */

static int run_exec(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *const *argv = invocation_rest(invocation);
    const char *name = NULL;
    int exit_code = 0;
    struct error err = {0};
    enum status status = STATUS_OK;

    if (argv == NULL || argv[0] == NULL) {
        status = error_set(&err, STATUS_USAGE, "lab exec needs a command");
        error_hint(&err, "For example: ordeal lab exec n1 -- psql -U " USER_ADMIN " postgres");
    }
    if (status == STATUS_OK)
        status = find_lab(arena, invocation, true, &name, &err);
    if (status == STATUS_OK)
        status = lab_exec(name, invocation_argument(invocation, 0), argv, &exit_code, &err);
    return status == STATUS_OK ? exit_code : command_fail(&err);
}

const struct command command_lab_exec = {
    .name = "lab exec",
    .arguments = "NODE",
    .minimum = 1,
    .maximum = 1,
    .summary = "run a command on a node: lab exec NODE -- COMMAND...",
    .text =
        "Enters the node's namespaces as root and runs what follows \"--\" there. The exit code "
        "is the command's, 128 + N when signal N ended it.",
    .options = lab_options,
    .run = run_exec,
};

static int run_power(const struct invocation *invocation)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *word = invocation_argument(invocation, 0),
               *node = invocation_argument(invocation, 1);
    const char *name = NULL;
    int64_t started_ns = clock_boot_ns();
    struct error err = {0};
    enum status status = find_lab(arena, invocation, true, &name, &err);

    if (status == STATUS_OK)
        status = lab_power(name, node, word, &err);
    if (status != STATUS_OK)
        return command_fail(&err);
    printf("node %s: power %s, done after %.3f s\n", node, word,
           (double) (clock_boot_ns() - started_ns) / 1e9);
    return EXIT_PASS;
}

const struct command command_lab_power = {
    .name = "lab power",
    .arguments = "off|cut|on NODE",
    .minimum = 2,
    .maximum = 2,
    .summary = "take a node's power away or give it back",
    .text = "off: the link goes down, then everything on the node is killed at once; what had been "
            "written reaches the volumes. cut: before that the volumes are shut without a flush of "
            "their log, so that what nobody had synced is gone. on: boot, with log replay; "
            "PostgreSQL is left to the HA manager. Returns when the change is complete.",
    .options = lab_options,
    .run = run_power,
};
