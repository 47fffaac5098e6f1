/* SPDX-License-Identifier: MIT */
#include "orchestrator/command.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/arena.h"
#include "lib/log.h"
#include "lib/owned.h"
#include "lib/param.h"
#include "orchestrator/manual.h"

#define COMMAND(descriptor) extern const struct command descriptor;
#include "orchestrator/commands.def"
#undef COMMAND

static const struct command *const commands[] = {
#define COMMAND(descriptor) &descriptor,
#include "orchestrator/commands.def"
#undef COMMAND
    NULL,
};

enum { VALUES_MAX = 64, COMMAND_WORDS = 2 };

struct given_option {
    const char *name, *value;
};

struct invocation {
    const struct command *command;
    size_t argument_count, option_count;
    const char *arguments[VALUES_MAX];
    struct given_option options[VALUES_MAX];
    const char *const *rest;
};

size_t invocation_count(const struct invocation *invocation)
{
    return invocation->argument_count;
}

const char *invocation_argument(const struct invocation *invocation, size_t index)
{
    return index < invocation->argument_count ? invocation->arguments[index] : NULL;
}

const char *invocation_option(const struct invocation *invocation, const char *name)
{
    for (size_t i = invocation->option_count; i > 0; i--)
        if (strcmp(invocation->options[i - 1].name, name) == 0)
            return invocation->options[i - 1].value;
    return NULL;
}

bool invocation_flag(const struct invocation *invocation, const char *name)
{
    return invocation_option(invocation, name) != NULL;
}

const char *invocation_repeated(const struct invocation *invocation, const char *name, size_t index)
{
    for (size_t i = 0; i < invocation->option_count; i++)
        if (strcmp(invocation->options[i].name, name) == 0 && index-- == 0)
            return invocation->options[i].value;
    return NULL;
}

const char *const *invocation_rest(const struct invocation *invocation)
{
    return invocation->rest;
}

const char *program_folder(void)
{
    static char folder[PATH_MAX];

    if (folder[0] == '\0') {
        ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
        if (length <= 0)
            return ".";
        folder[length] = '\0';
        char *slash = strrchr(folder, '/');
        if (slash != NULL && slash != folder)
            *slash = '\0';
    }
    return folder;
}

static int exit_code_of(enum status status)
{
    switch (status) {
    case STATUS_USAGE:
        return EXIT_USAGE;
    case STATUS_ABORTED:
        return EXIT_ABORTED;
    case STATUS_INTERNAL:
        return EXIT_INTERNAL;
    default: /* nothing was changed, or it was put back */
        return EXIT_REFUSED;
    }
}

int command_fail(const struct error *err)
{
    fprintf(stderr, "ordeal: %s\n", err->message);
    if (err->detail[0] != '\0')
        fprintf(stderr, "  detail: %s\n", err->detail);
    if (err->hint[0] != '\0')
        fprintf(stderr, "  hint: %s\n", err->hint);
    return exit_code_of(err->code);
}

/* --- parsing --------------------------------------------------------------------------------- */

/* How many words of argv the name takes; 0 when it is not this command. */
static int match(const struct command *command, int argc, char **argv)
{
    const char *name = command->name;

    for (int words = 1; words <= argc && words <= COMMAND_WORDS; words++) {
        size_t length = strlen(argv[words - 1]);
        if (strncmp(name, argv[words - 1], length) != 0)
            return 0;
        if (name[length] == '\0')
            return words;
        if (name[length] != ' ')
            return 0;
        name += length + 1;
    }
    return 0;
}

static const struct command *find_command(int argc, char **argv, int *ret_words)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        *ret_words = match(commands[i], argc, argv);
        if (*ret_words > 0)
            return commands[i];
    }
    return NULL;
}

static const struct command_option *find_option(const struct command *command, const char *name,
                                                size_t length)
{
    for (const struct command_option *option = command->options;
         option != NULL && option->name != NULL; option++) {
        bool is_letter = length == 1 && option->letter == *name;
        if (is_letter ||
            (strlen(option->name) == length && strncmp(option->name, name, length) == 0))
            return option;
    }
    return NULL;
}

static enum status unknown_option(const struct command *command, const char *text,
                                  struct error *err)
{
    const char *names[VALUES_MAX + 1] = {0};

    for (size_t i = 0;
         i < VALUES_MAX && command->options != NULL && command->options[i].name != NULL; i++)
        names[i] = command->options[i].name;
    error_set(err, STATUS_USAGE, "%s: unknown option %s", command->name, text);
    const char *nearest = nearest_word(text + strspn(text, "-"), names);
    if (nearest != NULL)
        error_hint(err, "Did you mean --%s?", nearest);
    return STATUS_USAGE;
}

/* One option at argv[*index], with its value in the same or the next word. */
static enum status parse_option(struct invocation *invocation, int argc, char **argv, int *index,
                                struct error *err)
{
    const char *text = argv[*index];
    const char *name = text + (text[1] == '-' ? 2 : 1);
    size_t length = strcspn(name, "=");
    const struct command_option *option = find_option(invocation->command, name, length);

    if (option == NULL || (text[1] != '-' && length != 1))
        return unknown_option(invocation->command, text, err);
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    if (option->value == NULL && value != NULL)
        return error_set(err, STATUS_USAGE, "option --%s takes no value", option->name);
    if (option->value != NULL && value == NULL) {
        if (*index + 1 >= argc)
            return error_set(err, STATUS_USAGE, "option --%s needs a value (%s)", option->name,
                             option->value);
        value = argv[++*index];
    }
    if (invocation->option_count == VALUES_MAX)
        return error_set(err, STATUS_USAGE, "more than %d options", VALUES_MAX);
    invocation->options[invocation->option_count++] =
        (struct given_option){.name = option->name, .value = value != NULL ? value : ""};
    return STATUS_OK;
}

static enum status check_count(const struct invocation *invocation, struct error *err)
{
    const struct command *command = invocation->command;
    int count = (int) invocation->argument_count;

    if (count >= command->minimum && (command->maximum < 0 || count <= command->maximum))
        return STATUS_OK;
    error_set(err, STATUS_USAGE, "%s: %s", command->name,
              count < command->minimum ? "an argument is missing" : "too many arguments");
    error_hint(err, "Usage: ordeal %s %s", command->name, command->arguments);
    return STATUS_USAGE;
}

static enum status parse(struct invocation *invocation, int argc, char **argv, struct error *err)
{
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            invocation->rest = (const char *const *) (argv + i + 1);
            break;
        }
        if (argv[i][0] == '-' && argv[i][1] != '\0') {
            enum status status = parse_option(invocation, argc, argv, &i, err);
            if (status != STATUS_OK)
                return status;
            continue;
        }
        if (invocation->argument_count == VALUES_MAX)
            return error_set(err, STATUS_USAGE, "more than %d arguments", VALUES_MAX);
        invocation->arguments[invocation->argument_count++] = argv[i];
    }
    return check_count(invocation, err);
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static int unknown_command(char **argv)
{
    const char *names[VALUES_MAX + 1] = {0};

    size_t count = 0;

    for (const struct command *const *command = commands; *command != NULL && count < VALUES_MAX;
         command++)
        names[count++] = (*command)->name;
    struct error err;
    error_set(&err, STATUS_USAGE, "unknown command \"%s\"", argv[1]);
    const char *nearest = nearest_word(argv[1], names);
    if (nearest != NULL)
        error_hint(&err, "Did you mean \"ordeal %s\"? \"ordeal --help\" lists all.", nearest);
    else
        error_hint(&err, "\"ordeal --help\" lists the commands.");
    return command_fail(&err);
}

/* What was printed is part of the result: a full disk behind stdout is an error. */
static int finish(int code)
{
    struct error err;

    if (fflush(stdout) == 0 || code != EXIT_PASS)
        return code;
    error_system(&err, "writing to stdout");
    return command_fail(&err);
}

static int print(void (*write)(const struct command *const *, struct buffer *))
{
    OWNED_BUFFER struct buffer text = BUFFER(1024 * 1024);

    write(commands, &text);
    fputs(buffer_text(&text), stdout);
    return finish(EXIT_PASS);
}

static int run_command(const struct command *command, int argc, char **argv)
{
    struct invocation invocation = {.command = command};
    struct error err = {0};

    if (asks_for_help(argc, argv)) {
        OWNED_BUFFER struct buffer text = BUFFER(1024 * 1024);
        manual_command(command, &text);
        fputs(buffer_text(&text), stdout);
        return finish(EXIT_PASS);
    }
    if (parse(&invocation, argc, argv, &err) != STATUS_OK)
        return command_fail(&err);
    return finish(command->run(&invocation));
}

int command_main(int argc, char **argv)
{
    int words = 0;

    signal(SIGPIPE, SIG_IGN);
    log_init("ordeal", LOG_INFO);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        int code = print(manual_overview);
        return argc < 2 ? EXIT_USAGE : code;
    }
    if (strcmp(argv[1], "--manual") == 0)
        return print(manual_page);
    if (strcmp(argv[1], "--completion") == 0)
        return print(manual_completion);
    if (strcmp(argv[1], "--version") == 0) {
        puts("ordeal " ORDEAL_VERSION);
        return EXIT_PASS;
    }
    const struct command *command = find_command(argc - 1, argv + 1, &words);
    if (command == NULL)
        return unknown_command(argv);
    return run_command(command, argc - 1 - words, argv + 1 + words);
}
