/* SPDX-License-Identifier: MIT */
/*
 * The command table: dispatch, --help, the manual page and completion come from it.
 *
 * A command is one descriptor in a command_*.c file and one line in commands.def. Results go to
 * stdout, progress and diagnostics to stderr. Errors end in exit codes by command_fail().
 */
#ifndef ORDEAL_ORCHESTRATOR_COMMAND_H
#define ORDEAL_ORCHESTRATOR_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/error.h"

enum exit_code {
    EXIT_PASS = 0,
    EXIT_FAIL = 1,
    EXIT_INCONCLUSIVE = 2,
    EXIT_ABORTED = 3,
    EXIT_REFUSED = 4,
    EXIT_NOT_RECOVERED = 5,
    EXIT_USAGE = 64,
    EXIT_INTERNAL = 70
};

struct command_option {
    const char *name;  /* long name without dashes; NULL ends the table */
    char letter;       /* short name, or 0 */
    const char *value; /* what the value is called in help ("FILE"); NULL: a flag */
    const char *help;
};

struct invocation;

struct command {
    const char *name;      /* "run", "lab up" */
    const char *arguments; /* "SCENARIO", "[NAME]", "FILE..." or "" */
    int minimum, maximum;  /* of positional arguments; maximum -1: any number */
    const char *summary;   /* one line */
    const char *text;      /* paragraphs for help and manual page, or NULL */
    const struct command_option *options;
    int (*run)(const struct invocation *invocation); /* returns an exit code */
};

size_t invocation_count(const struct invocation *invocation);
const char *invocation_argument(const struct invocation *invocation, size_t index);
/* Last value given, NULL when the option is absent. */
const char *invocation_option(const struct invocation *invocation, const char *name);
bool invocation_flag(const struct invocation *invocation, const char *name);
/* The index-th value of a repeated option, NULL past the last. */
const char *invocation_repeated(const struct invocation *invocation, const char *name,
                                size_t index);
/* Everything after "--", NULL-terminated; NULL when there was none. */
const char *const *invocation_rest(const struct invocation *invocation);
/* Folder of this program (for ordeald, topologies, scenarios), and name it was called by. */
const char *program_folder(void);

/* Print the error (and hint) to stderr and give the exit code for its status. */
int command_fail(const struct error *err);
/* The whole program: parse argv and run. */
int command_main(int argc, char **argv);

#endif
