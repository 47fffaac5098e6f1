/* SPDX-License-Identifier: MIT */
/*
 * Files of Ordeal outside the spool, by their names: in the state folder whatever is not its own
 * furniture, elsewhere what begins with "ordeal" or has ".ordeal-" in it.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "agents/fingerprint.h"
#include "agents/postgres_local.h"
#include "lib/owned.h"

/* What an agent has in its state folder while it lives; spools are evidence, no residue. */
static const char *const furniture[] = {"journal", "guardian.sock", "policy", "halt",
                                        "runs",    "before.json",   "pki"};

static bool is_furniture(const char *name)
{
    for (size_t i = 0; i < sizeof furniture / sizeof furniture[0]; i++)
        if (strcmp(name, furniture[i]) == 0)
            return true;
    return false;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The one that primary_conninfo names; one for a single use is named otherwise and must go. */
static bool is_password_file(const struct session *session, const char *name)
{
    size_t length = strlen(session->node);

    return strncmp(name, "ordeal-", strlen("ordeal-")) == 0 &&
           strncmp(name + strlen("ordeal-"), session->node, length) == 0 &&
           strcmp(name + strlen("ordeal-") + length, ".pgpass") == 0;
}

/* That password file, and the log of a server that we started, stay. */
static bool is_ours(const struct session *session, const char *name)
{
    if (strncmp(name, "ordeal", strlen("ordeal")) != 0)
        return strstr(name, ".ordeal-") != NULL;
    return !is_password_file(session, name) && !ends_with(name, "-postgres.log");
}

static bool is_state_residue(const struct session *session, const char *name)
{
    (void) session;
    return !is_furniture(name);
}

static void add_folder(struct arena *arena, const struct session *session, const char *path,
                       bool (*counts)(const struct session *session, const char *name),
                       json_t *files)
{
    OWNED_DIR DIR *folder = opendir(path);
    const struct dirent *entry;
    struct stat info;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || !counts(session, name) ||
            fstatat(dirfd(folder), name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        json_object_set_new(files, arena_printf(arena, "%s/%s", path, name),
                            json_pack("{s:s}", "kind", S_ISDIR(info.st_mode) ? "folder" : "file"));
    }
}

static void add_database_folders(struct arena *arena, const struct session *session, json_t *files)
{
    const char *data = session->database.data, *volume;
    json_t *path;

    add_folder(arena, session, postgres_parent(arena, session), is_ours, files);
    add_folder(arena, session, data, is_ours, files);
    add_folder(arena, session, arena_printf(arena, "%s/pg_wal", data), is_ours, files);
    json_object_foreach((json_t *) (uintptr_t) session->volumes, volume, path)
    {
        if (json_is_string(path))
            add_folder(arena, session, json_string_value(path), is_ours, files);
    }
}

enum status fingerprint_files(const struct method_call *call, json_t *fingerprint,
                              struct error *err)
{
    static const char *const shared[] = {"/tmp", "/var/tmp", "/run", "/dev/shm"};
    OWNED_ARENA struct arena *arena = arena_new();
    const struct session *session = call->session;
    json_t *files = fingerprint_of(fingerprint, "files");

    (void) err;
    add_folder(arena, session, call->state_folder, is_state_residue, files);
    if (session == NULL)
        return STATUS_OK;
    if (session->is_database)
        add_database_folders(arena, session, files);
    /* a power agent may share its machine with others' agents and labs */
    for (size_t i = 0; session->power_on == NULL && i < sizeof shared / sizeof shared[0]; i++)
        add_folder(arena, session, shared[i], is_ours, files);
    return STATUS_OK;
}
