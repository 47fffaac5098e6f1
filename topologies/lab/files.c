/* SPDX-License-Identifier: MIT */
#include "topologies/lab/files.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/owned.h"

enum { FILE_SIZE_MAX = 1024 * 1024 };

enum status files_owner(const char *user, struct file_owner *ret_owner, struct error *err)
{
    errno = 0;
    const struct passwd *entry = getpwnam(user);

    if (entry == NULL)
        return error_set(err, STATUS_NOT_FOUND, "no user %s on this host", user);
    *ret_owner = (struct file_owner){.uid = entry->pw_uid, .gid = entry->pw_gid};
    return STATUS_OK;
}

enum status files_folder(const char *path, mode_t mode, struct file_owner owner, struct error *err)
{
    if ((mkdir(path, mode) < 0 && errno != EEXIST) || chown(path, owner.uid, owner.gid) < 0 ||
        chmod(path, mode) < 0)
        return error_system(err, "cannot make folder %s", path);
    return STATUS_OK;
}

static enum status write_all(int fd, const char *path, const char *text, struct error *err)
{
    size_t length = strlen(text);

    if (write(fd, text, length) != (ssize_t) length)
        return error_system(err, "cannot write %s", path);
    return STATUS_OK;
}

enum status files_write(const char *path, const char *text, mode_t mode, struct file_owner owner,
                        struct error *err)
{
    OWNED_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0 || fchown(fd, owner.uid, owner.gid) < 0 || fchmod(fd, mode) < 0)
        return error_system(err, "cannot create %s", path);
    return write_all(fd, path, text, err);
}

enum status files_append(const char *path, const char *text, struct error *err)
{
    OWNED_FD int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return error_system(err, "cannot open %s", path);
    return write_all(fd, path, text, err);
}

enum status files_copy(const char *from, const char *to, mode_t mode, struct file_owner owner,
                       struct error *err)
{
    OWNED_BUFFER struct buffer text = BUFFER(FILE_SIZE_MAX);
    OWNED_FD int fd = open(from, O_RDONLY | O_CLOEXEC);
    char chunk[4096];
    ssize_t length = fd < 0 ? -1 : 1;

    while (length > 0) {
        length = read(fd, chunk, sizeof(chunk));
        if (length > 0)
            buffer_append(&text, chunk, (size_t) length);
    }
    if (length < 0)
        return error_system(err, "cannot read %s", from);
    if (text.overflow)
        return error_set(err, STATUS_INVALID, "%s is larger than %d bytes", from, FILE_SIZE_MAX);
    return files_write(to, buffer_text(&text), mode, owner, err);
}

void files_tail(const char *path, char *text, size_t size)
{
    struct stat about;
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

    text[0] = '\0';
    if (fd < 0 || fstat(fd, &about) < 0)
        return;
    off_t from = about.st_size > (off_t) size - 1 ? about.st_size - (off_t) size + 1 : 0;
    ssize_t length = pread(fd, text, size - 1, from);
    text[length > 0 ? length : 0] = '\0';
    /* Begin with a whole line, end without a line end. */
    const char *line = from > 0 ? strchr(text, '\n') : NULL;
    if (line != NULL)
        memmove(text, line + 1, strlen(line + 1) + 1);
    while (text[0] != '\0' && text[strlen(text) - 1] == '\n')
        text[strlen(text) - 1] = '\0';
}
