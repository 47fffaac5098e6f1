/* SPDX-License-Identifier: MIT */
#include "lib/json.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/owned.h"

enum status json_read(const json_t *json, const char *what, struct error *err, const char *format,
                      ...)
{
    json_error_t problem;
    va_list args;

    va_start(args, format);
    /* jansson does not change what it unpacks from; its prototype lacks the const */
    int result = json_vunpack_ex((json_t *) (uintptr_t) json, &problem, 0, format, args);
    va_end(args);
    if (result != 0)
        return error_set(err, STATUS_INVALID, "%s: %s", what, problem.text);
    return STATUS_OK;
}

enum status json_parse_text(const char *text, size_t length, json_t **ret_json, struct error *err)
{
    json_error_t problem;
    json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);

    if (json == NULL)
        return error_set(err, STATUS_INVALID, "not JSON: %s at line %d column %d", problem.text,
                         problem.line, problem.column);
    *ret_json = json;
    return STATUS_OK;
}

enum status json_read_file(const char *path, json_t **ret_json, struct error *err)
{
    OWNED_FILE FILE *file = fopen(path, "re");
    json_error_t problem;

    if (file == NULL)
        return error_system(err, "opening %s", path);
    json_t *json = json_loadf(file, JSON_REJECT_DUPLICATES, &problem);
    if (json == NULL)
        return error_set(err, STATUS_INVALID, "%s:%d:%d: %s", path, problem.line, problem.column,
                         problem.text);
    *ret_json = json;
    return STATUS_OK;
}

static enum status write_all(int fd, const json_t *json)
{
    int result = json_dumpfd(json, fd, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(12));

    if (result != 0 || write(fd, "\n", 1) != 1 || fsync(fd) != 0)
        return STATUS_SYSTEM;
    return STATUS_OK;
}

/* A new name is durable when its folder is. */
static enum status sync_folder(const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    OWNED_BUFFER struct buffer folder = BUFFER(4096);

    if (slash == NULL)
        buffer_printf(&folder, ".");
    else
        buffer_printf(&folder, "%.*s", slash == path ? 1 : (int) (slash - path), path);
    OWNED_FD int fd = open(buffer_text(&folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        return error_system(err, "syncing %s", buffer_text(&folder));
    return STATUS_OK;
}

enum status json_write_file(const char *path, const json_t *json, struct error *err)
{
    OWNED_BUFFER struct buffer temporary = BUFFER(4096);

    buffer_printf(&temporary, "%s.tmp", path);
    if (temporary.overflow)
        return error_set(err, STATUS_INVALID, "path too long: %s", path);
    const char *name = buffer_text(&temporary);
    OWNED_FD int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_system(err, "creating %s", name);
    if (write_all(fd, json) != STATUS_OK || rename(name, path) != 0) {
        enum status status = error_system(err, "writing %s", path);
        unlink(name);
        return status;
    }
    return sync_folder(path, err);
}

const char *json_text(const json_t *object, const char *key, const char *fallback)
{
    const json_t *value = json_object_get(object, key);

    return json_is_string(value) ? json_string_value(value) : fallback;
}

int64_t json_number(const json_t *object, const char *key, int64_t fallback)
{
    const json_t *value = json_object_get(object, key);

    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

bool json_flag(const json_t *object, const char *key, bool fallback)
{
    const json_t *value = json_object_get(object, key);

    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

/* Text that was cut off or came from outside may be no UTF-8; the error must arrive all the same.
 */
static json_t *error_text(const char *text)
{
    json_t *json = json_string(text);
    char plain[sizeof((struct error *) 0)->message];
    size_t length = strnlen(text, sizeof plain - 1);

    if (json != NULL)
        return json;
    for (size_t i = 0; i < length; i++)
        plain[i] = (text[i] & 0x80) != 0 ? '?' : text[i];
    return json_stringn(plain, length);
}

json_t *json_from_error(const struct error *err)
{
    json_t *json = json_pack("{s:s, s:o}", "code", status_name(err->code), "message",
                             error_text(err->message));

    if (json != NULL && err->detail[0] != '\0')
        json_object_set_new(json, "detail", error_text(err->detail));
    if (json != NULL && err->hint[0] != '\0')
        json_object_set_new(json, "hint", error_text(err->hint));
    return json;
}

enum status json_to_error(const json_t *json, struct error *err)
{
    error_set(err, status_from_name(json_text(json, "code", "internal")), "%s",
              json_text(json, "message", "no message"));
    error_detail(err, "%s", json_text(json, "detail", ""));
    error_hint(err, "%s", json_text(json, "hint", ""));
    return err == NULL ? STATUS_INTERNAL : err->code;
}
