/* SPDX-License-Identifier: MIT */
/*
 * Rules of iptables, of both kinds: those that live in nft, and those of the old tables, which nft
 * does not show. A built-in chain that accepts is how the kernel begins: it is no item.
 */
#include <string.h>

#include "agents/fingerprint.h"
#include "lib/owned.h"

/* The program that saves, and the one that changes. Where neither kind has a name of its own, the
 * plain one is asked. */
static const struct program {
    const char *save, *change, *family;
} kinds[] =
    {
        {"iptables-nft-save", "iptables-nft", "ip"},
        {"ip6tables-nft-save", "ip6tables-nft", "ip6"},
        {"iptables-legacy-save", "iptables-legacy", NULL},
        {"ip6tables-legacy-save", "ip6tables-legacy", NULL},
},
  plain[] = {
      {"iptables-save", "iptables", NULL},
      {"ip6tables-save", "ip6tables", NULL},
};

static enum status save(struct arena *arena, const struct program *program, const char **ret_output,
                        struct error *err)
{
    const char *const argv[] = {program->save, NULL};

    return fingerprint_ask(arena, argv, ret_output, err);
}

/* ":INPUT DROP [123:456]": a chain of the kernel has a policy, one of a user has "-". */
static void add_chain(struct arena *arena, const struct program *program, const char *table,
                      const char *line, json_t *section)
{
    const char *name = arena_strndup(arena, line + 1, strcspn(line + 1, " "));
    const char *policy = line + 1 + strlen(name);

    policy += strspn(policy, " ");
    policy = arena_strndup(arena, policy, strcspn(policy, " "));
    if (strcmp(policy, "ACCEPT") == 0)
        return;
    fingerprint_add(section, arena_printf(arena, "%s %s chain %s", program->change, table, name),
                    json_pack("{s:s, s:s, s:s, s:s}", "program", program->change, "table", table,
                              "chain", name, "policy", policy));
}

static void add_line(struct arena *arena, const struct program *program, const char **table,
                     const char *line, json_t *section)
{
    if (line[0] == '*')
        *table = line + 1;
    else if (line[0] == ':')
        add_chain(arena, program, *table, line, section);
    else if (strncmp(line, "-A ", 3) == 0)
        fingerprint_add(section,
                        arena_printf(arena, "%s %s rule %s", program->change, *table, line + 3),
                        json_pack("{s:s, s:s, s:s}", "program", program->change, "table", *table,
                                  "rule", line + 3));
}

static enum status add_rules(const struct program *program, json_t *fingerprint, bool *ret_there,
                             struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *output = NULL, *table = "filter";
    enum status status = save(arena, program, &output, err);

    *ret_there = output != NULL;
    if (status != STATUS_OK || output == NULL)
        return status;
    json_t *section = fingerprint_of(fingerprint, "iptables");
    char *rest = arena_strdup(arena, output);
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        add_line(arena, program, &table, line, section);
    return STATUS_OK;
}

enum status fingerprint_iptables(const struct method_call *call, json_t *fingerprint,
                                 struct error *err)
{
    enum status status = STATUS_OK;
    bool any = false, there = false;

    (void) call;
    for (size_t i = 0; status == STATUS_OK && i < sizeof kinds / sizeof kinds[0]; i++) {
        status = add_rules(&kinds[i], fingerprint, &there, err);
        any = any || there;
    }
    for (size_t i = 0; status == STATUS_OK && !any && i < sizeof plain / sizeof plain[0]; i++)
        status = add_rules(&plain[i], fingerprint, &there, err);
    return status;
}

enum status fingerprint_iptables_tables(struct arena *arena, json_t **ret_tables, struct error *err)
{
    OWNED_JSON json_t *tables = json_object();

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const char *output = NULL;
        enum status status =
            kinds[i].family == NULL ? STATUS_OK : save(arena, &kinds[i], &output, err);

        if (status != STATUS_OK)
            return status;
        char *rest = output == NULL ? NULL : arena_strdup(arena, output);
        for (char *line; (line = strsep(&rest, "\n")) != NULL;)
            if (line[0] == '*')
                json_object_set_new(tables, arena_printf(arena, "%s %s", kinds[i].family, line + 1),
                                    json_true());
    }
    *ret_tables = json_incref(tables);
    return STATUS_OK;
}
