/* SPDX-License-Identifier: MIT */
#include "orchestrator/manual.h"

#include <stdio.h>
#include <string.h>

static const struct {
    int code;
    const char *meaning;
} exit_codes[] = {
    {EXIT_PASS, "pass, and every node confirmed clean"},
    {EXIT_FAIL, "fail: a check failed"},
    {EXIT_INCONCLUSIVE, "inconclusive: a fault did not bite, a probe was blind, too little load"},
    {EXIT_ABORTED, "aborted by a stop condition, a guard or the operator; everything undone"},
    {EXIT_REFUSED, "refused before anything was changed"},
    {EXIT_NOT_RECOVERED, "not recovered: a node is not confirmed clean; outranks every other"},
    {EXIT_USAGE, "the command line is wrong"},
    {EXIT_INTERNAL, "an error of Ordeal itself"},
};

#define EXIT_CODE_COUNT (sizeof exit_codes / sizeof exit_codes[0])

void manual_overview(const struct command *const *commands, struct buffer *text)
{
    buffer_puts(text, "Ordeal puts a highly available PostgreSQL cluster through the failures that "
                      "it must survive,\nand proves what happened.\n\nusage: ordeal COMMAND "
                      "[OPTION]... [ARGUMENT]...\n\n");
    for (; *commands != NULL; commands++)
        buffer_printf(text, "  %-14s %s\n", (*commands)->name, (*commands)->summary);
    buffer_puts(text, "\n  COMMAND --help        what it takes\n"
                      "  --manual              the manual page (ordeal --manual | man -l -)\n"
                      "  --completion          completion for bash\n"
                      "  --version             the version\n\nexit codes\n");
    for (size_t i = 0; i < EXIT_CODE_COUNT; i++)
        buffer_printf(text, "  %2d  %s\n", exit_codes[i].code, exit_codes[i].meaning);
}

static void option_name(const struct command_option *option, char *name, size_t size)
{
    char letter[8] = "";

    if (option->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(name, size, "%s--%s%s%s", letter, option->name, option->value != NULL ? " " : "",
             option->value != NULL ? option->value : "");
}

void manual_command(const struct command *command, struct buffer *text)
{
    buffer_printf(text, "usage: ordeal %s %s%s\n\n%s.\n", command->name,
                  command->options != NULL ? "[OPTION]... " : "", command->arguments,
                  command->summary);
    if (command->text != NULL)
        buffer_printf(text, "\n%s\n", command->text);
    if (command->options == NULL || command->options->name == NULL)
        return;
    buffer_puts(text, "\noptions\n");
    for (const struct command_option *option = command->options; option->name != NULL; option++) {
        char name[80];
        option_name(option, name, sizeof name);
        buffer_printf(text, "  %-26s %s\n", name, option->help);
    }
}

/* roff: a backslash and a dash are written with a backslash, a leading dot or quote is guarded */
static void roff(struct buffer *text, const char *plain)
{
    bool line_start = true;

    for (; *plain != '\0'; plain++) {
        if (line_start && (*plain == '.' || *plain == '\''))
            buffer_puts(text, "\\&");
        if (*plain == '\\' || *plain == '-')
            buffer_puts(text, "\\");
        buffer_append(text, plain, 1);
        line_start = *plain == '\n';
    }
}

static void page_command(const struct command *command, struct buffer *text)
{
    buffer_puts(text, ".SS ordeal ");
    roff(text, command->name);
    buffer_puts(text, " ");
    roff(text, command->arguments);
    buffer_puts(text, "\n");
    roff(text, command->summary);
    buffer_puts(text, ".\n");
    if (command->text != NULL) {
        buffer_puts(text, ".PP\n");
        roff(text, command->text);
        buffer_puts(text, "\n");
    }
    for (const struct command_option *option = command->options;
         option != NULL && option->name != NULL; option++) {
        char name[80];
        option_name(option, name, sizeof name);
        buffer_puts(text, ".TP\n.B ");
        roff(text, name);
        buffer_puts(text, "\n");
        roff(text, option->help);
        buffer_puts(text, "\n");
    }
}

void manual_page(const struct command *const *commands, struct buffer *text)
{
    buffer_puts(text,
                ".TH ORDEAL 1 \"\" \"ordeal " ORDEAL_VERSION "\" \"User Commands\"\n"
                ".SH NAME\nordeal \\- chaos and stress tests for highly available PostgreSQL\n"
                ".SH SYNOPSIS\n.B ordeal\nCOMMAND [OPTION]... [ARGUMENT]...\n"
                ".SH DESCRIPTION\nOrdeal puts a highly available PostgreSQL cluster through "
                "the failures that it must\nsurvive, and proves what happened: no "
                "acknowledged commit lost, one writer at a time,\nwrites back within the "
                "promised time.\n.SH COMMANDS\n");
    for (; *commands != NULL; commands++)
        page_command(*commands, text);
    buffer_puts(text, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < EXIT_CODE_COUNT; i++) {
        buffer_printf(text, ".TP\n.B %d\n", exit_codes[i].code);
        roff(text, exit_codes[i].meaning);
        buffer_puts(text, "\n");
    }
}

void manual_completion(const struct command *const *commands, struct buffer *text)
{
    buffer_puts(text, "# bash completion for ordeal\n_ordeal()\n{\n    local words=\"");
    for (const struct command *const *command = commands; *command != NULL; command++)
        buffer_printf(text, "%s%s", command == commands ? "" : " ", (*command)->name);
    buffer_puts(text, "\"\n    case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n");
    for (; *commands != NULL; commands++) {
        const struct command_option *option = (*commands)->options;
        if (option == NULL || option->name == NULL)
            continue;
        buffer_printf(text, "    \"%s\"*) words=\"", (*commands)->name);
        for (; option->name != NULL; option++)
            buffer_printf(text, "--%s ", option->name);
        buffer_puts(text, "\" ;;\n");
    }
    buffer_puts(text, "    esac\n    mapfile -t COMPREPLY < <(compgen -W \"$words\" -f -- "
                      "\"${COMP_WORDS[COMP_CWORD]}\")\n}\ncomplete -F _ordeal ordeal\n");
}
