/* SPDX-License-Identifier: MIT */
/* Sections of the fingerprint that are about PostgreSQL: what counts, in words, and what undoes it.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/residue_class.h"

/* ---- the server ---- */

static bool server_natural(const struct residue_item *item)
{
    return strcmp(residue_member(item, "answer"), "answers") == 0;
}

static const char *server_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "PostgreSQL, of which nothing is known (%s)",
                        residue_member(item, "answer"));
}

/* ---- settings ---- */

static const char reload[] = "SELECT pg_reload_conf()";

/* A manager other than ours keeps the sync set where it likes. */
static bool is_of_the_manager(const struct residue_item *item)
{
    return strcmp(item->question->manager, "manual") != 0 &&
           strcmp(item->key, "synchronous_standby_names") == 0;
}

static bool is_in_auto_conf(const char *file)
{
    const char *slash = strrchr(file, '/');

    return strcmp(slash == NULL ? file : slash + 1, "postgresql.auto.conf") == 0;
}

/* Lists are written as they are, everything else as a text. */
static const char *setting_value(struct arena *arena, const char *name, const char *value)
{
    static const char *const lists[] = {"search_path", "temp_tablespaces",
                                        "local_preload_libraries", "session_preload_libraries",
                                        "shared_preload_libraries"};

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (strcmp(name, lists[i]) == 0 && value[0] != '\0')
            return value;
    return residue_literal(arena, value);
}

/* Of the view: a name of an extension has a dot, which the quoting must not swallow. */
static const char *setting_name(struct arena *arena, const char *name)
{
    const char *dot = strchr(name, '.');

    if (dot == NULL)
        return residue_identifier(arena, name);
    return arena_printf(
        arena, "%s.%s",
        residue_identifier(arena, arena_strndup(arena, name, (size_t) (dot - name))),
        residue_identifier(arena, dot + 1));
}

static const char *file_setting_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "setting %s in %s", item->key, residue_member(item, "file"));
}

/* The line that counted is there no more, or another: the last of a file counts. */
static const char *append_line(const struct residue_item *item)
{
    const char *line = arena_printf(item->arena, "%s = %s", item->key,
                                    residue_literal(item->arena, residue_old(item, "value")));

    return arena_printf(item->arena, "printf '%%s\\n' %s >>%s && %s",
                        residue_shell(item->arena, line),
                        residue_shell(item->arena, residue_old(item, "file")),
                        residue_psql(item, NULL, reload, NULL));
}

static const char *file_setting_remedy(const struct residue_item *item)
{
    struct arena *arena = item->arena;
    const char *name = setting_name(arena, item->key);
    bool was_auto = is_in_auto_conf(residue_old(item, "file"));
    bool is_auto = item->after != NULL && is_in_auto_conf(residue_member(item, "file"));

    if (is_auto && !was_auto)
        return residue_psql(item, NULL, arena_printf(arena, "ALTER SYSTEM RESET %s", name), reload);
    if (was_auto)
        return residue_psql(
            item, NULL,
            arena_printf(arena, "ALTER SYSTEM SET %s = %s", name,
                         setting_value(arena, item->key, residue_old(item, "value"))),
            reload);
    if (item->change != RESIDUE_ADDED)
        return append_line(item);
    const char *program = arena_printf(arena, "/^[[:space:]]*%s[[:space:]=]/d", item->key);
    return arena_printf(arena, "sed -i %s %s && %s", residue_shell(arena, program),
                        residue_shell(arena, residue_member(item, "file")),
                        residue_psql(item, NULL, reload, NULL));
}

/* What the files say is told there. */
static bool setting_natural(const struct residue_item *item)
{
    const json_t *before = json_object_get(item->question->before, "file_settings");
    const json_t *after = json_object_get(item->question->after, "file_settings");
    const json_t *old = json_object_get(before, item->key);
    const json_t *new = json_object_get(after, item->key);

    return is_of_the_manager(item) || !(old == new || json_equal(old, new));
}

static const char *setting_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "setting %s in force", item->key);
}

static const char *setting_remedy(const struct residue_item *item)
{
    const struct topology *topology = item->question->topology;

    if (strcmp(json_text(item->after, "_context", ""), "postmaster") != 0)
        return residue_psql(item, NULL, reload, NULL);
    return arena_printf(item->arena, "runuser -u $(stat -c %%U %s) -- %s/pg_ctl -D %s restart",
                        residue_shell(item->arena, topology->database.data),
                        residue_shell(item->arena, topology->database.bin),
                        residue_shell(item->arena, topology->database.data));
}

/* ---- slots, replay ---- */

/* The slot of a member: where the primary is, the manager has it, and drops it elsewhere. */
static bool slot_natural(const struct residue_item *item)
{
    const struct topology *topology = item->question->topology;

    if (strcmp(residue_member(item, "type"), "physical") != 0)
        return false;
    for (size_t i = 0; i < topology->node_count; i++) {
        char *name = arena_strdup(item->arena, topology->nodes[i].name);
        for (char *at = name; *at != '\0'; at++)
            if (*at == '-')
                *at = '_';
        if (strcmp(name, item->key) == 0)
            return true;
    }
    return false;
}

static bool key_ours(const struct residue_item *item)
{
    return residue_named_ours(item->key);
}

static const char *slot_what(const struct residue_item *item)
{
    const char *kept = json_text(item->after, "_restart_lsn", NULL);

    return arena_printf(item->arena, "replication slot %s (%s%s%s%s)", item->key,
                        residue_member(item, "type"),
                        item->after == NULL                        ? ""
                        : json_flag(item->after, "_active", false) ? ", active"
                                                                   : ", inactive",
                        kept == NULL ? "" : ", keeps WAL from ", kept == NULL ? "" : kept);
}

static const char *slot_remedy(const struct residue_item *item)
{
    const char *name = residue_literal(item->arena, item->key);
    const char *drop = arena_printf(item->arena, "SELECT pg_drop_replication_slot(%s)", name);
    const char *database = residue_old(item, "database");
    const char *make =
        strcmp(residue_old(item, "type"), "logical") == 0
            ? arena_printf(item->arena, "SELECT pg_create_logical_replication_slot(%s, %s)", name,
                           residue_literal(item->arena, residue_old(item, "plugin")))
            : arena_printf(item->arena, "SELECT pg_create_physical_replication_slot(%s, true)",
                           name);

    if (item->change == RESIDUE_ADDED)
        return residue_psql(item, NULL, drop, NULL);
    return residue_psql(item, database[0] == '\0' ? NULL : database,
                        item->change == RESIDUE_CHANGED ? drop : make,
                        item->change == RESIDUE_CHANGED ? make : NULL);
}

static const char *replay_what(const struct residue_item *item)
{
    return arena_strdup(item->arena, "paused replay");
}

static const char *replay_remedy(const struct residue_item *item)
{
    return residue_psql(item, NULL, "SELECT pg_wal_replay_resume()", NULL);
}

/* ---- roles, their settings, databases ---- */

static const char *role_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "role %s", item->key);
}

static const char *role_remedy(const struct residue_item *item)
{
    static const char *const flags[][3] = {{"login", "LOGIN", "NOLOGIN"},
                                           {"superuser", "SUPERUSER", "NOSUPERUSER"},
                                           {"replication", "REPLICATION", "NOREPLICATION"}};
    const char *name = residue_identifier(item->arena, item->key);
    char *words = arena_strdup(item->arena, "");

    if (item->change == RESIDUE_ADDED)
        return residue_psql(item, NULL, arena_printf(item->arena, "DROP ROLE %s", name), NULL);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        words = arena_printf(item->arena, "%s %s", words,
                             flags[i][json_flag(item->before, flags[i][0], false) ? 1 : 2]);
    return residue_psql(
        item, NULL,
        arena_printf(item->arena, "%s ROLE %s%s CONNECTION LIMIT %" PRId64 " VALID UNTIL %s",
                     item->change == RESIDUE_REMOVED ? "CREATE" : "ALTER", name, words,
                     json_number(item->before, "connection_limit", -1),
                     residue_literal(item->arena, residue_old(item, "valid_until"))),
        NULL);
}

/* "ROLE x", "ROLE x IN DATABASE y", "DATABASE y", "ROLE ALL". */
static const char *owner_of(const struct residue_item *item)
{
    const char *role = residue_member(item, "role"), *database = residue_member(item, "database");

    if (role[0] == '\0' && database[0] != '\0')
        return arena_printf(item->arena, "DATABASE %s", residue_identifier(item->arena, database));
    role = role[0] == '\0' ? "ALL" : residue_identifier(item->arena, role);
    if (database[0] == '\0')
        return arena_printf(item->arena, "ROLE %s", role);
    return arena_printf(item->arena, "ROLE %s IN DATABASE %s", role,
                        residue_identifier(item->arena, database));
}

static const char *role_setting_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "%s of %s", residue_member(item, "name"), owner_of(item));
}

static const char *role_setting_remedy(const struct residue_item *item)
{
    struct arena *arena = item->arena;
    const char *setting = residue_member(item, "name");
    const char *name = setting_name(arena, setting);
    const char *statement =
        item->change == RESIDUE_ADDED
            ? arena_printf(arena, "ALTER %s RESET %s", owner_of(item), name)
            : arena_printf(arena, "ALTER %s SET %s = %s", owner_of(item), name,
                           setting_value(arena, setting, residue_old(item, "value")));

    return residue_psql(item, NULL, statement, NULL);
}

static const char *database_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "database %s", item->key);
}

static const char *database_remedy(const struct residue_item *item)
{
    const char *name = residue_identifier(item->arena, item->key);

    if (item->change == RESIDUE_ADDED)
        return residue_psql(item, NULL, arena_printf(item->arena, "DROP DATABASE %s", name), NULL);
    if (item->change == RESIDUE_REMOVED)
        return NULL; /* a command does not bring it back */
    return residue_psql(
        item, NULL,
        arena_printf(item->arena,
                     "ALTER DATABASE %s ALLOW_CONNECTIONS %s CONNECTION LIMIT %" PRId64, name,
                     json_flag(item->before, "connections", true) ? "true" : "false",
                     json_number(item->before, "connection_limit", -1)),
        NULL);
}

/* ---- what lies in databases ---- */

static const char *prepared_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "prepared transaction %s in database %s", item->key,
                        residue_member(item, "database"));
}

static const char *prepared_remedy(const struct residue_item *item)
{
    return residue_psql(
        item, residue_member(item, "database"),
        arena_printf(item->arena, "ROLLBACK PREPARED %s", residue_literal(item->arena, item->key)),
        NULL);
}

static bool name_ours(const struct residue_item *item)
{
    return residue_named_ours(residue_member(item, "name"));
}

/* With the comment that only we write. */
static bool schema_alone(const struct residue_item *item)
{
    return strncmp(residue_member(item, "_comment"), "ordeal run ", strlen("ordeal run ")) == 0;
}

static const char *schema_what(const struct residue_item *item)
{
    const char *comment = residue_member(item, "_comment");

    return arena_printf(item->arena, "schema %s in database %s%s%s%s", residue_member(item, "name"),
                        residue_member(item, "database"), comment[0] == '\0' ? "" : " (", comment,
                        comment[0] == '\0' ? "" : ")");
}

static const char *drop(const struct residue_item *item, const char *what, const char *end)
{
    return residue_psql(item, residue_member(item, "database"),
                        arena_printf(item->arena, "DROP %s %s%s", what,
                                     residue_identifier(item->arena, residue_member(item, "name")),
                                     end),
                        NULL);
}

static const char *schema_remedy(const struct residue_item *item)
{
    return drop(item, "SCHEMA", " CASCADE");
}

static const char *publication_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "publication %s", item->key);
}

static const char *publication_remedy(const struct residue_item *item)
{
    return drop(item, "PUBLICATION", "");
}

static const char *subscription_what(const struct residue_item *item)
{
    return arena_printf(item->arena, "subscription %s", item->key);
}

static const char *subscription_remedy(const struct residue_item *item)
{
    const char *name = residue_identifier(item->arena, residue_member(item, "name"));

    if (item->change == RESIDUE_ADDED)
        return drop(item, "SUBSCRIPTION", "");
    if (item->change == RESIDUE_REMOVED)
        return NULL;
    return residue_psql(
        item, residue_member(item, "database"),
        arena_printf(item->arena, "ALTER SUBSCRIPTION %s %s", name,
                     json_flag(item->before, "enabled", true) ? "ENABLE" : "DISABLE"),
        NULL);
}

/* ---- the table ---- */

const struct residue_class residue_postgres_classes[] = {
    {"postgres", RESIDUE_CHANGED, false, server_natural, NULL, NULL, server_what, NULL},
    {"file_settings", RESIDUE_ANY, false, is_of_the_manager, NULL, NULL, file_setting_what,
     file_setting_remedy},
    {"settings", RESIDUE_CHANGED, false, setting_natural, NULL, NULL, setting_what, setting_remedy},
    {"slots", RESIDUE_ANY, false, slot_natural, key_ours, NULL, slot_what, slot_remedy},
    {"replay", RESIDUE_ADDED, false, NULL, NULL, NULL, replay_what, replay_remedy},
    {"role_settings", RESIDUE_ANY, true, NULL, NULL, NULL, role_setting_what, role_setting_remedy},
    {"prepared", RESIDUE_ADDED, true, NULL, key_ours, NULL, prepared_what, prepared_remedy},
    {"subscriptions", RESIDUE_ANY, true, NULL, name_ours, NULL, subscription_what,
     subscription_remedy},
    {"publications", RESIDUE_ADDED, true, NULL, name_ours, NULL, publication_what,
     publication_remedy},
    {"schemas", RESIDUE_ADDED, true, NULL, name_ours, schema_alone, schema_what, schema_remedy},
    {"databases", RESIDUE_ANY, true, NULL, key_ours, NULL, database_what, database_remedy},
    {"roles", RESIDUE_ANY, true, NULL, key_ours, NULL, role_what, role_remedy},
    {.name = NULL},
};
