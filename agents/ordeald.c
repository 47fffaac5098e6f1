/* SPDX-License-Identifier: MIT */
/*
 * ordeald: the agent of a node. Started without a mode it becomes the guardian, which starts it
 * again as the agent (--agent) and as the helper that undoes one fault (--undo).
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/fault_record.h"
#include "agents/server.h"
#include "lib/arena.h"
#include "lib/log.h"
#include "lib/owned.h"
#include "lib/units.h"
#include "lib/version.h"

enum { EXIT_USAGE = 64, EXIT_BROKEN = 70 };

static const char usage_text[] =
    "usage: ordeald --node NAME --listen ADDRESS:PORT --ca FILE --certificate FILE --key FILE\n"
    "               --state FOLDER [--protect PATH]...\n"
    "       ordeald --version\n"
    "\n"
    "The agent of Ordeal on one node. FOLDER keeps the journal of open faults; it must not lie on\n"
    "a volume under test. A volume on the file system of a --protect PATH is refused as well.\n";

static const struct option option_names[] = {
    {"node", required_argument, NULL, 'n'},    {"listen", required_argument, NULL, 'l'},
    {"ca", required_argument, NULL, 'c'},      {"certificate", required_argument, NULL, 'x'},
    {"key", required_argument, NULL, 'k'},     {"state", required_argument, NULL, 's'},
    {"protect", required_argument, NULL, 'p'}, {NULL, 0, NULL, 0}};

static enum status parse_listen(struct arena *arena, const char *text,
                                struct agent_options *options, struct error *err)
{
    const char *colon = strrchr(text, ':');
    int64_t port = 0;

    if (colon == NULL || colon == text || units_integer(colon + 1, &port, NULL) != STATUS_OK ||
        port < 1 || port > UINT16_MAX)
        return error_set(err, STATUS_USAGE, "--listen '%s' is no ADDRESS:PORT", text);
    bool bracketed = text[0] == '[' && colon[-1] == ']';
    options->address = bracketed ? arena_strndup(arena, text + 1, (size_t) (colon - text) - 2)
                                 : arena_strndup(arena, text, (size_t) (colon - text));
    options->port = (int) port;
    return STATUS_OK;
}

static const char **option_target(struct agent_options *options, int letter)
{
    switch (letter) {
    case 'n':
        return &options->node;
    case 'c':
        return &options->files.ca;
    case 'x':
        return &options->files.certificate;
    case 'k':
        return &options->files.key;
    case 's':
        return &options->state;
    default:
        return NULL;
    }
}

static enum status check_complete(const struct agent_options *options, int argc, char **argv,
                                  struct error *err)
{
    if (optind < argc)
        return error_set(err, STATUS_USAGE, "unexpected argument '%s'", argv[optind]);
    if (options->node == NULL || options->address == NULL || options->files.ca == NULL ||
        options->files.certificate == NULL || options->files.key == NULL || options->state == NULL)
        return error_set(err, STATUS_USAGE,
                         "--node, --listen, --ca, --certificate, --key and "
                         "--state are needed");
    return STATUS_OK;
}

/* `argv[optind]` is where to begin. */
static enum status parse_options(struct arena *arena, int argc, char **argv,
                                 struct agent_options *options, struct error *err)
{
    const char **protect = arena_array(arena, (size_t) argc + 1, sizeof *protect);
    size_t protect_count = 0;
    int letter;

    options->protect = protect;
    while ((letter = getopt_long(argc, argv, "+", option_names, NULL)) != -1) {
        const char **target = option_target(options, letter);
        if (target != NULL) {
            *target = optarg;
        } else if (letter == 'p') {
            protect[protect_count++] = optarg;
        } else if (letter == 'l') {
            enum status status = parse_listen(arena, optarg, options, err);
            if (status != STATUS_OK)
                return status;
        } else {
            return error_set(err, STATUS_USAGE, "see 'ordeald --help'");
        }
    }
    return check_complete(options, argc, argv, err);
}

static int fail(const struct error *err)
{
    log_error(err);
    return err->code == STATUS_USAGE ? EXIT_USAGE : EXIT_BROKEN;
}

/* "FOLDER/name" beside this program. */
static enum status beside(char *path, size_t size, const char *name, struct error *err)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);

    if (length < 0)
        return error_system(err, "looking for our own program");
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL || (size_t) (slash + 1 - path) + strlen(name) >= size)
        return error_set(err, STATUS_INVALID, "the path of our own program is too long");
    memcpy(slash + 1, name, strlen(name) + 1);
    return STATUS_OK;
}

/* The guardian takes this process's place and starts us again with the same arguments. */
static enum status become_guardian(struct arena *arena, const struct agent_options *options,
                                   int argc, char **argv, struct error *err)
{
    char guardian[PATH_MAX], self[PATH_MAX];
    enum status status = beside(guardian, sizeof guardian, "ordeal-guardian", err);

    if (status == STATUS_OK)
        status = beside(self, sizeof self, "ordeald", err);
    if (status != STATUS_OK)
        return status;
    char **arguments = arena_array(arena, (size_t) argc + 8, sizeof *arguments);
    int count = 0;
    arguments[count++] = guardian;
    arguments[count++] = arena_strdup(arena, "--state");
    arguments[count++] = arena_strdup(arena, options->state);
    arguments[count++] = arena_strdup(arena, "--ordeald");
    arguments[count++] = self;
    arguments[count++] = arena_strdup(arena, "--");
    for (int i = 1; i < argc; i++)
        arguments[count++] = argv[i];
    execv(guardian, arguments);
    error_system(err, "starting the guardian %s", guardian);
    error_hint(err, "Install ordeal-guardian beside ordeald.");
    return STATUS_SYSTEM;
}

static int run_agent(struct arena *arena, int argc, char **argv)
{
    struct agent_options options = {0};
    struct error err = {0};
    char who[80];

    enum status status = parse_options(arena, argc, argv, &options, &err);
    if (status != STATUS_OK)
        return fail(&err);
    snprintf(who, sizeof who, "ordeald %s", options.node);
    log_init(who, LOG_INFO);
    return agent_run(&options, &err) == STATUS_OK ? EXIT_SUCCESS : fail(&err);
}

int main(int argc, char **argv)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct agent_options options = {0};
    struct error err = {0};

    log_init("ordeald", LOG_INFO);
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(usage_text, stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return puts("ordeald " ORDEAL_VERSION) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    if (argc == 2 && strcmp(argv[1], "--undo") == 0)
        return fault_undo_main();
    if (argc > 1 && strcmp(argv[1], "--agent") == 0)
        return run_agent(arena, argc - 1, argv + 1);
    enum status status = parse_options(arena, argc, argv, &options, &err);
    if (status == STATUS_OK)
        status = become_guardian(arena, &options, argc, argv, &err);
    return status == STATUS_OK ? EXIT_SUCCESS : fail(&err);
}
