/* SPDX-License-Identifier: MIT */
/* Words of commands, quoted so that a person can paste them. */
#include <inttypes.h>
#include <string.h>

#include "lib/owned.h"
#include "orchestrator/residue_class.h"

enum { QUOTED_MAX = 1024 * 1024 };

static const char plain_characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_@%+=:,./-";

/* `text` between two marks; each `quote` in it becomes `escaped`. */
static const char *between(struct arena *arena, const char *text, char quote, const char *escaped)
{
    OWNED_BUFFER struct buffer quoted = BUFFER(QUOTED_MAX);

    buffer_append(&quoted, &quote, 1);
    for (; *text != '\0'; text++)
        if (*text == quote)
            buffer_puts(&quoted, escaped);
        else
            buffer_append(&quoted, text, 1);
    buffer_append(&quoted, &quote, 1);
    return arena_strdup(arena, buffer_text(&quoted));
}

const char *residue_shell(struct arena *arena, const char *word)
{
    if (word[0] != '\0' && word[strspn(word, plain_characters)] == '\0')
        return arena_strdup(arena, word);
    return between(arena, word, '\'', "'\\''");
}

const char *residue_identifier(struct arena *arena, const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyz_";
    static const char later[] = "abcdefghijklmnopqrstuvwxyz_0123456789";

    /* with a digit or an underscore it is no word of the language */
    bool plain = name[0] != '\0' && strchr(first, name[0]) != NULL &&
                 name[strspn(name, later)] == '\0' && strpbrk(name, "_0123456789") != NULL;
    return plain ? arena_strdup(arena, name) : between(arena, name, '"', "\"\"");
}

const char *residue_literal(struct arena *arena, const char *text)
{
    OWNED_BUFFER struct buffer quoted = BUFFER(QUOTED_MAX);

    /* a backslash is itself only where standard_conforming_strings is on */
    buffer_puts(&quoted, strchr(text, '\\') == NULL ? "'" : "E'");
    for (; *text != '\0'; text++)
        buffer_append(&quoted,
                      *text == '\''   ? "''"
                      : *text == '\\' ? "\\\\"
                                      : text,
                      *text == '\'' || *text == '\\' ? 2 : 1);
    buffer_puts(&quoted, "'");
    return arena_strdup(arena, buffer_text(&quoted));
}

const char *residue_psql(const struct residue_item *item, const char *database,
                         const char *statement, const char *second)
{
    const struct topology *topology = item->question->topology;
    const char *own = topology->database.superuser.database;
    struct arena *arena = item->arena;

    if (database == NULL)
        database = own != NULL ? own : "postgres";
    const char *command =
        arena_printf(arena, "psql -X -p %" PRId64 " -U %s -d %s -c %s", topology->database.port,
                     residue_shell(arena, topology->database.superuser.user),
                     residue_shell(arena, database), residue_shell(arena, statement));
    return second == NULL ? command
                          : arena_printf(arena, "%s -c %s", command, residue_shell(arena, second));
}
