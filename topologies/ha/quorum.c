/* SPDX-License-Identifier: MIT */
#include "topologies/ha/quorum.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_NUMBER, TOKEN_ANY, TOKEN_FIRST, TOKEN_MARK };

struct token {
    enum token_kind kind;
    char mark; /* ',' '(' or ')' */
    const char *text;
    size_t column; /* from 1 */
};

struct scanner {
    struct arena *arena;
    const char *setting, *at;
    struct token token; /* the one that is looked at */
    struct error *err;
};

static bool is_space(char c)
{
    return c != '\0' && strchr(" \t\n\r\f\v", c) != NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool starts_identifier(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

static bool continues_identifier(char c)
{
    return starts_identifier(c) || is_digit(c) || c == '$';
}

static enum status refuse(struct scanner *scanner, size_t column, const char *what)
{
    return error_set(scanner->err, STATUS_INVALID,
                     "synchronous_standby_names '%s': %s at column %zu", scanner->setting, what,
                     column);
}

/* A quoted name; two quotes stand for one. */
static enum status scan_quoted(struct scanner *scanner)
{
    const char *from = scanner->at + 1;
    char *name = arena_alloc(scanner->arena, strlen(from) + 1);
    size_t length = 0;

    for (; *from != '\0'; from++) {
        if (*from == '"' && from[1] != '"')
            break;
        if (*from == '"')
            from++;
        name[length++] = *from;
    }
    if (*from == '\0')
        return refuse(scanner, scanner->token.column, "unterminated quoted name");
    scanner->token.kind = TOKEN_NAME;
    scanner->token.text = name;
    scanner->at = from + 1;
    return STATUS_OK;
}

static void scan_run(struct scanner *scanner, enum token_kind kind, bool (*belongs)(char c))
{
    const char *from = scanner->at;

    while (belongs(*scanner->at))
        scanner->at++;
    scanner->token.kind = kind;
    scanner->token.text = arena_strndup(scanner->arena, from, (size_t) (scanner->at - from));
}

static void scan_identifier(struct scanner *scanner)
{
    scan_run(scanner, TOKEN_NAME, continues_identifier);
    if (strcasecmp(scanner->token.text, "any") == 0)
        scanner->token.kind = TOKEN_ANY;
    else if (strcasecmp(scanner->token.text, "first") == 0)
        scanner->token.kind = TOKEN_FIRST;
}

static enum status scan(struct scanner *scanner)
{
    while (is_space(*scanner->at))
        scanner->at++;
    char c = *scanner->at;
    scanner->token = (struct token){.column = (size_t) (scanner->at - scanner->setting) + 1};
    if (c == '\0')
        return STATUS_OK;
    if (c == '"')
        return scan_quoted(scanner);
    if (is_digit(c)) {
        scan_run(scanner, TOKEN_NUMBER, is_digit);
    } else if (starts_identifier(c)) {
        scan_identifier(scanner);
    } else if (c == '*') {
        scanner->at++;
        scanner->token.kind = TOKEN_NAME;
        scanner->token.text = "*";
    } else if (strchr(",()", c) != NULL) {
        scanner->at++;
        scanner->token.kind = TOKEN_MARK;
        scanner->token.mark = c;
    } else {
        return refuse(scanner, scanner->token.column, "unexpected character");
    }
    return STATUS_OK;
}

static bool looks_at(const struct scanner *scanner, char mark)
{
    return scanner->token.kind == TOKEN_MARK && scanner->token.mark == mark;
}

static enum status parse_count(struct scanner *scanner, const char *text, size_t column,
                               size_t *ret_k)
{
    char *end;
    unsigned long k = strtoul(text, &end, 10);

    if (k == 0)
        return refuse(scanner, column, "the number of standbys must be greater than zero");
    if (k >= QUORUM_IMPOSSIBLE)
        return refuse(scanner, column, "the number of standbys is too large");
    *ret_k = k;
    return STATUS_OK;
}

static void add_name(struct scanner *scanner, struct quorum_set *set, const char *name)
{
    const char **names =
        arena_grow(scanner->arena, set->names, set->count, set->count + 1, sizeof *names);

    names[set->count++] = name;
    set->names = names;
    set->wildcard = set->wildcard || strcmp(name, "*") == 0;
}

/* The rest of a list whose first name may have been read already. */
static enum status parse_list(struct scanner *scanner, struct quorum_set *set)
{
    for (;;) {
        if (scanner->token.kind != TOKEN_NAME && scanner->token.kind != TOKEN_NUMBER)
            return refuse(scanner, scanner->token.column, "a name is expected");
        add_name(scanner, set, scanner->token.text);
        enum status status = scan(scanner);
        if (status != STATUS_OK || !looks_at(scanner, ','))
            return status;
        status = scan(scanner);
        if (status != STATUS_OK)
            return status;
    }
}

/* "( list )", the parenthesis being looked at. */
static enum status parse_group(struct scanner *scanner, struct quorum_set *set)
{
    if (!looks_at(scanner, '('))
        return refuse(scanner, scanner->token.column, "\"(\" is expected");
    enum status status = scan(scanner);
    if (status == STATUS_OK)
        status = parse_list(scanner, set);
    if (status != STATUS_OK)
        return status;
    if (!looks_at(scanner, ')'))
        return refuse(scanner, scanner->token.column, "\",\" or \")\" is expected");
    return scan(scanner);
}

static enum status parse_counted(struct scanner *scanner, struct quorum_set *set)
{
    struct token number = scanner->token;

    if (number.kind != TOKEN_NUMBER)
        return refuse(scanner, number.column, "the number of standbys is expected");
    enum status status = parse_count(scanner, number.text, number.column, &set->k);
    if (status == STATUS_OK)
        status = scan(scanner);
    return status == STATUS_OK ? parse_group(scanner, set) : status;
}

/*
 * A number that opens the setting is a count before "(" and the first name of a list otherwise:
 * PostgreSQL takes digits for a name.
 */
static enum status parse_number_or_list(struct scanner *scanner, struct quorum_set *set)
{
    struct scanner ahead = *scanner;

    set->method = QUORUM_FIRST;
    enum status status = scan(&ahead);
    if (status != STATUS_OK)
        return status;
    if (scanner->token.kind == TOKEN_NUMBER && looks_at(&ahead, '('))
        return parse_counted(scanner, set);
    set->k = 1;
    return parse_list(scanner, set);
}

static enum status parse_setting(struct scanner *scanner, struct quorum_set *set)
{
    enum status status = scan(scanner);

    if (status != STATUS_OK)
        return status;
    switch (scanner->token.kind) {
    case TOKEN_ANY:
    case TOKEN_FIRST:
        set->method = scanner->token.kind == TOKEN_ANY ? QUORUM_ANY : QUORUM_FIRST;
        status = scan(scanner);
        return status == STATUS_OK ? parse_counted(scanner, set) : status;
    default:
        return parse_number_or_list(scanner, set);
    }
}

enum status quorum_parse(struct arena *arena, const char *setting, struct quorum_set *ret_set,
                         struct error *err)
{
    struct quorum_set set = {.method = QUORUM_NONE};

    if (setting != NULL && setting[0] != '\0') {
        struct scanner scanner = {.arena = arena, .setting = setting, .at = setting, .err = err};
        enum status status = parse_setting(&scanner, &set);
        if (status != STATUS_OK)
            return status;
        if (scanner.token.kind != TOKEN_END)
            return refuse(&scanner, scanner.token.column, "text after the end");
    }
    *ret_set = set;
    return STATUS_OK;
}

bool quorum_names(const struct quorum_set *set, const char *standby)
{
    for (size_t i = 0; i < set->count; i++)
        if (strcmp(set->names[i], "*") == 0 || strcasecmp(set->names[i], standby) == 0)
            return true;
    return false;
}

static bool stands_before(const struct quorum_set *set, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (strcasecmp(set->names[i], set->names[index]) == 0)
            return true;
    return false;
}

const char *quorum_repeated(const struct quorum_set *set)
{
    for (size_t i = 1; i < set->count; i++)
        if (stands_before(set, i))
            return set->names[i];
    return NULL;
}

size_t quorum_size(const struct quorum_set *set, const char *primary)
{
    size_t size = 0;

    for (size_t i = 0; i < set->count; i++)
        if (strcasecmp(set->names[i], primary) != 0 && !stands_before(set, i))
            size++;
    return size;
}

const char *quorum_method_name(enum quorum_method method)
{
    static const char *const names[] = {
        [QUORUM_NONE] = "none", [QUORUM_FIRST] = "first", [QUORUM_ANY] = "any"};

    return names[method];
}

size_t quorum_needed(const struct quorum_set *set, const char *primary)
{
    size_t size = quorum_size(set, primary);

    if (set->method == QUORUM_NONE || set->wildcard)
        return QUORUM_IMPOSSIBLE;
    return size > set->k ? size - set->k + 1 : 1;
}
