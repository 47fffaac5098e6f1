/* SPDX-License-Identifier: MIT */
/* file.list and file.read: what a run left in its spool, and nothing else. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/method.h"
#include "agents/spool.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { READ_MAX = 1024 * 1024, NAME_LENGTH_MAX = 128 };

/* The folder within a spool that the load keeps its ledgers in. */
static const char ledger_prefix[] = "ledger/";

enum status spool_check_name(const char *name, struct error *err)
{
    bool inner = strncmp(name, ledger_prefix, sizeof ledger_prefix - 1) == 0;
    const char *base = inner ? name + sizeof ledger_prefix - 1 : name;
    size_t length = strlen(base);

    if (length == 0 || length > NAME_LENGTH_MAX || base[0] == '.' || strchr(base, '/') != NULL)
        return error_set(err, STATUS_REFUSED, "'%.64s' is not the name of a file in the spool",
                         name);
    return STATUS_OK;
}

static int open_spool(const char *spool, struct error *err)
{
    int fd = open(spool, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        error_system(err, "opening %s", spool);
    return fd;
}

/* Takes the descriptor; `prefix` goes before each name. */
static enum status list_folder(int fd, const char *prefix, json_t *files, struct error *err)
{
    OWNED_DIR DIR *folder = fdopendir(fd);
    const struct dirent *entry;
    struct stat info;

    if (folder == NULL) {
        close(fd);
        return error_system(err, "listing a spool");
    }
    while ((entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' &&
            fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode))
            json_array_append_new(files, json_pack("{s:s+, s:I}", "name", prefix, entry->d_name,
                                                   "size", (json_int_t) info.st_size));
    return STATUS_OK;
}

static enum status file_list(const struct method_call *call, json_t **ret_result, struct error *err)
{
    OWNED_JSON json_t *files = json_array();
    int fd = open_spool(call->session->spool, err);

    if (fd < 0)
        return STATUS_SYSTEM;
    int inner = openat(fd, "ledger", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    enum status status = list_folder(fd, "", files, err);
    if (inner >= 0 && status == STATUS_OK)
        status = list_folder(inner, ledger_prefix, files, err);
    else if (inner >= 0)
        close(inner);
    if (status == STATUS_OK)
        *ret_result = json_pack("{s:O}", "files", files);
    return status;
}

static json_t *encode(const unsigned char *data, size_t length)
{
    unsigned char *text = malloc((length + 2) / 3 * 4 + 1);

    if (text == NULL)
        abort();
    int count = EVP_EncodeBlock(text, data, (int) length);
    json_t *json = json_stringn((const char *) text, (size_t) count);
    free(text);
    return json;
}

static enum status open_file(const char *spool, const char *name, int *ret_fd, struct stat *info,
                             struct error *err)
{
    enum status status = spool_check_name(name, err);

    if (status != STATUS_OK)
        return status;
    OWNED_FD int folder = open_spool(spool, err);
    if (folder < 0)
        return STATUS_SYSTEM;
    OWNED_FD int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, info) != 0) {
        int errnum = errno;
        error_system(err, "opening %s in the spool", name);
        if (err != NULL && errnum == ENOENT)
            err->code = STATUS_NOT_FOUND;
        return errnum == ENOENT ? STATUS_NOT_FOUND : STATUS_SYSTEM;
    }
    if (!S_ISREG(info->st_mode))
        return error_set(err, STATUS_REFUSED, "%s in the spool is no file", name);
    *ret_fd = take_fd(&fd);
    return STATUS_OK;
}

static enum status file_read(const struct method_call *call, json_t **ret_result, struct error *err)
{
    const char *name = json_text(call->params, "name", "");
    int64_t offset = json_number(call->params, "offset", 0);
    OWNED_FD int fd = -1;
    struct stat info;
    enum status status = open_file(call->session->spool, name, &fd, &info, err);

    if (status != STATUS_OK)
        return status;
    if (offset < 0)
        return error_set(err, STATUS_INVALID, "offset %lld", (long long) offset);
    OWNED_MEMORY unsigned char *data = malloc(READ_MAX);
    ssize_t count = data == NULL ? -1 : pread(fd, data, READ_MAX, offset);
    if (count < 0)
        return error_system(err, "reading %s in the spool", name);
    *ret_result = json_pack("{s:o, s:I, s:b}", "data", encode(data, (size_t) count), "size",
                            (json_int_t) info.st_size, "end", offset + count >= info.st_size);
    return STATUS_OK;
}

static enum status remove_files(int folder_fd, struct error *err);

static enum status remove_folder(int outer_fd, const char *name, struct error *err)
{
    OWNED_FD int fd = openat(outer_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return error_system(err, "opening folder %s of a spool", name);
    enum status status = remove_files(fd, err);
    if (status == STATUS_OK && unlinkat(outer_fd, name, AT_REMOVEDIR) != 0)
        status = error_system(err, "removing folder %s of a spool", name);
    return status;
}

static enum status remove_files(int folder_fd, struct error *err)
{
    int copy = dup(folder_fd); /* closedir() closes what it reads from */
    OWNED_DIR DIR *folder = copy < 0 ? NULL : fdopendir(copy);
    const struct dirent *entry;

    if (folder == NULL)
        return error_system(err, "listing a spool");
    while ((entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            unlinkat(folder_fd, entry->d_name, 0) == 0)
            continue;
        if (errno != EISDIR || remove_folder(folder_fd, entry->d_name, err) != STATUS_OK)
            return error_system(err, "removing %s of a spool", entry->d_name);
    }
    return STATUS_OK;
}

enum status spool_remove(const char *state_folder, const char *run, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *path = arena_printf(arena, "%s/runs/%s", state_folder, run);
    OWNED_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return errno == ENOENT ? STATUS_OK : error_system(err, "opening %s", path);
    enum status status = remove_files(fd, err);
    if (status == STATUS_OK && rmdir(path) != 0)
        status = error_system(err, "removing %s", path);
    return status;
}

/* rmdir() takes empty folders only, which is the whole decision. */
void spool_remove_empty(const char *state_folder, const char *run)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *path = arena_printf(arena, "%s/runs/%s", state_folder, run);

    if (rmdir(arena_printf(arena, "%s/ledger", path)) == 0 || errno == ENOENT)
        rmdir(path);
}

const struct method file_methods[] = {
    {.name = "file.list",
     .params = (const struct method_param[]){{"run", 's', true}, {0}},
     .call = file_list},
    {.name = "file.read",
     .params =
         (const struct method_param[]){
             {"run", 's', true}, {"name", 's', true}, {"offset", 'i', true}, {0}},
     .call = file_read},
    {0},
};
