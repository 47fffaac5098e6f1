/* SPDX-License-Identifier: MIT */
#include "agents/postgres_files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/postgres_local.h"
#include "lib/buffer.h"
#include "lib/owned.h"

enum { FILE_MAX = 4 * 1024 * 1024 };

static const char *const kept_suffixes[] = {".conf", ".crt", ".key", ".pem"};

static bool is_kept(const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < sizeof kept_suffixes / sizeof kept_suffixes[0]; i++) {
        size_t suffix = strlen(kept_suffixes[i]);
        if (length > suffix && strcmp(name + length - suffix, kept_suffixes[i]) == 0)
            return true;
    }
    return false;
}

static enum status read_file(const char *path, struct buffer *text, struct error *err)
{
    char chunk[16384];
    OWNED_FD int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t length = -1;

    while (fd >= 0 && (length = read(fd, chunk, sizeof chunk)) > 0)
        buffer_append(text, chunk, (size_t) length);
    if (fd < 0 || length < 0)
        return error_system(err, "reading %s", path);
    if (text->overflow)
        return error_set(err, STATUS_INVALID, "%s is larger than %d bytes", path, FILE_MAX);
    return STATUS_OK;
}

static enum status copy_file(const struct session *session, const char *from, const char *to,
                             struct error *err)
{
    OWNED_BUFFER struct buffer text = BUFFER(FILE_MAX);
    enum status status = read_file(from, &text, err);

    if (status == STATUS_OK)
        status = postgres_write_file(session, to, buffer_text(&text), text.length, err);
    return status;
}

/* Copy the regular files that belong to the node. */
static enum status copy_kept(struct arena *arena, const struct session *session, const char *from,
                             const char *to, struct error *err)
{
    OWNED_DIR DIR *folder = opendir(from);
    struct stat info;

    if (folder == NULL)
        return error_system(err, "opening %s", from);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *path = arena_printf(arena, "%s/%s", from, entry->d_name);
        if (!is_kept(entry->d_name) || lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        const char *target = arena_printf(arena, "%s/%s", to, entry->d_name);
        enum status status = copy_file(session, path, target, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static const char *keep_folder(struct arena *arena, const struct session *session)
{
    return arena_printf(arena, "%s/ordeal-%s.keep", postgres_parent(arena, session), session->node);
}

/* The parent may belong to root: folders are made here and given away. */
enum status postgres_files_create(const struct session *session, const char *path,
                                  struct error *err)
{
    uid_t uid = 0;
    gid_t gid = 0;
    enum status status = postgres_owner(session, &uid, &gid, err);

    if (status != STATUS_OK)
        return status;
    if ((mkdir(path, 0700) != 0 && errno != EEXIST) || lchown(path, uid, gid) != 0)
        return error_system(err, "creating %s", path);
    return STATUS_OK;
}

enum status postgres_files_keep(struct arena *arena, const struct session *session,
                                int64_t deadline_ns, struct error *err)
{
    const char *folder = keep_folder(arena, session);
    const char *begun = arena_printf(arena, "%s.new", folder);

    if (access(folder, F_OK) == 0 || access(session->database.data, F_OK) != 0)
        return STATUS_OK;
    enum status status = postgres_files_remove(session, begun, deadline_ns, err);
    if (status == STATUS_OK)
        status = postgres_files_create(session, begun, err);
    if (status == STATUS_OK)
        status = copy_kept(arena, session, session->database.data, begun, err);
    if (status == STATUS_OK && rename(begun, folder) != 0)
        status = error_system(err, "renaming %s", begun);
    return status;
}

enum status postgres_files_restore(struct arena *arena, const struct session *session,
                                   int64_t deadline_ns, struct error *err)
{
    const char *folder = keep_folder(arena, session);

    if (access(folder, F_OK) != 0)
        return STATUS_OK;
    enum status status = copy_kept(arena, session, folder, session->database.data, err);
    if (status == STATUS_OK)
        status = postgres_files_remove(session, folder, deadline_ns, err);
    return status;
}

/* --- a standby -------------------------------------------------------------------------------- */

static bool sets(const char *line, const char *name)
{
    size_t length = strlen(name);

    line += strspn(line, " \t");
    return strncasecmp(line, name, length) == 0 &&
           (isspace((unsigned char) line[length]) || line[length] == '=');
}

static void add_setting(struct buffer *text, const char *name, const char *value)
{
    buffer_printf(text, "%s = '", name);
    for (const char *at = value; *at != '\0'; at++)
        buffer_printf(text, *at == '\'' || *at == '\\' ? "%c%c" : "%c", *at, *at);
    buffer_puts(text, "'\n");
}

/* The server is down: the file that ALTER SYSTEM keeps is written by hand, other lines stay. */
static enum status write_auto_conf(struct arena *arena, const struct session *session,
                                   const char *conninfo, struct error *err)
{
    OWNED_BUFFER struct buffer old = BUFFER(FILE_MAX);
    OWNED_BUFFER struct buffer text = BUFFER(FILE_MAX);
    const char *path = arena_printf(arena, "%s/postgresql.auto.conf", session->database.data);

    if (access(path, F_OK) == 0 && read_file(path, &old, err) != STATUS_OK)
        return error_context(err, "settings of %s", session->node);
    for (const char *line = buffer_text(&old); *line != '\0';) {
        size_t length = strcspn(line, "\n");
        if (!sets(line, "primary_conninfo") && !sets(line, "primary_slot_name")) {
            buffer_append(&text, line, length);
            buffer_puts(&text, "\n");
        }
        line += length + (line[length] == '\n' ? 1 : 0);
    }
    add_setting(&text, "primary_conninfo", conninfo);
    add_setting(&text, "primary_slot_name", postgres_slot_name(arena, session->node));
    if (text.overflow)
        return error_set(err, STATUS_INVALID, "%s is larger than %d bytes", path, FILE_MAX);
    return postgres_write_file(session, path, buffer_text(&text), text.length, err);
}

enum status postgres_files_make_standby(struct arena *arena, const struct session *session,
                                        const char *conninfo, int64_t deadline_ns,
                                        struct error *err)
{
    const char *data = session->database.data;
    enum status status = write_auto_conf(arena, session, conninfo, err);

    if (status == STATUS_OK)
        status = postgres_write_file(session, arena_printf(arena, "%s/standby.signal", data), "", 0,
                                     err);
    if (status == STATUS_OK && unlink(arena_printf(arena, "%s/recovery.signal", data)) != 0 &&
        errno != ENOENT)
        status = error_system(err, "removing recovery.signal of %s", data);
    /* slots that it had as a primary would keep WAL for ever; a stopped server forgets them so */
    if (status == STATUS_OK)
        status = postgres_files_empty(session, arena_printf(arena, "%s/pg_replslot", data),
                                      deadline_ns, err);
    return status;
}

/* --- removal ---------------------------------------------------------------------------------- */

/* As the owner: it can point links wherever it likes, and root must not follow them. */
enum status postgres_files_empty(const struct session *session, const char *path,
                                 int64_t deadline_ns, struct error *err)
{
    const char *argv[] = {"find", path, "-mindepth", "1", "-xdev", "-delete", NULL};

    if (access(path, F_OK) != 0)
        return STATUS_OK;
    return postgres_run(session, argv, NULL, deadline_ns, NULL, err);
}

enum status postgres_files_remove(const struct session *session, const char *path,
                                  int64_t deadline_ns, struct error *err)
{
    enum status status = postgres_files_empty(session, path, deadline_ns, err);

    if (status == STATUS_OK && rmdir(path) != 0 && errno != ENOENT)
        return error_system(err, "removing %s", path);
    return status;
}
