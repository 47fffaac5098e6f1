/* SPDX-License-Identifier: MIT */
#include "agents/fingerprint.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agents/guardian_client.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/process.h"

enum { LINES_MAX = 256 * 1024, TEXT_SIZE = 4096, PROGRAM_MS = 5000 };

/* --- what the sections share ----------------------------------------------------------------- */

void fingerprint_add(json_t *section, const char *key, json_t *item)
{
    OWNED_BUFFER struct buffer other = BUFFER(LINES_MAX);

    buffer_puts(&other, key);
    for (int i = 2; json_object_get(section, buffer_text(&other)) != NULL; i++) {
        buffer_reset(&other);
        buffer_printf(&other, "%s #%d", key, i);
    }
    json_object_set_new(section, buffer_text(&other), item);
}

json_t *fingerprint_of(json_t *fingerprint, const char *section)
{
    if (json_object_get(fingerprint, section) == NULL)
        json_object_set_new(fingerprint, section, json_object());
    return json_object_get(fingerprint, section);
}

const char *fingerprint_text(struct arena *arena, const char *path)
{
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char text[TEXT_SIZE];
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (length < 0)
        return NULL;
    while (length > 0 && text[length - 1] == '\n')
        length--;
    return arena_strndup(arena, text, (size_t) length);
}

enum status fingerprint_ask(struct arena *arena, const char *const *argv, const char **ret_output,
                            struct error *err)
{
    OWNED_RESULT struct process_result result = {0};
    enum status status =
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = PROGRAM_MS}, &result, err);

    if (status == STATUS_TIMEOUT)
        return status;
    *ret_output = status == STATUS_OK ? arena_strdup(arena, buffer_text(&result.output)) : "";
    return STATUS_OK;
}

/* --- sections of the agent's own ------------------------------------------------------------- */

static enum status section_boot_id(const struct method_call *call, json_t *fingerprint,
                                   struct error *err)
{
    char boot_id[BOOT_ID_SIZE];
    enum status status = clock_boot_id(boot_id, err);

    (void) call;
    if (status == STATUS_OK)
        json_object_set_new(fingerprint, "boot_id", json_string(boot_id));
    return status;
}

static enum status section_open_records(const struct method_call *call, json_t *fingerprint,
                                        struct error *err)
{
    OWNED_GUARDIAN struct guardian_connection guardian = {.fd = -1};
    OWNED_BUFFER struct buffer lines = BUFFER(LINES_MAX);
    json_t *records = fingerprint_of(fingerprint, "open_records");
    struct guardian_record record;
    enum status status = guardian_connect(call->state_folder, call->deadline_ns, &guardian, err);

    if (status == STATUS_OK)
        status = guardian_ask(&guardian, "list", NULL, call->deadline_ns, &lines, err);
    char *rest = lines.data;
    for (char *line; status == STATUS_OK && (line = strsep(&rest, "\n")) != NULL;)
        if (guardian_record_parse(line, &record))
            fingerprint_add(records, record.uid, json_pack("{s:s}", "fault", record.fault));
    return status;
}

static const struct {
    const char *name;
    fingerprint_section *read;
} sections[] = {
    {"boot id", section_boot_id},
    {"processes", fingerprint_processes},
    {"mounts and loop devices", fingerprint_mounts},
    {"swap areas", fingerprint_swaps},
    {"nft", fingerprint_nft},
    {"iptables", fingerprint_iptables},
    {"tc", fingerprint_tc},
    {"control groups", fingerprint_cgroups},
    {"sysctls", fingerprint_sysctls},
    {"files", fingerprint_files},
    {"open records", section_open_records},
    {"PostgreSQL", fingerprint_postgres},
};

/* --- the one from before, kept ---------------------------------------------------------------- */

/* Until an audit was clean: the orchestrator that wants to compare with it may be another one. */
static const char *kept_path(struct arena *arena, const struct method_call *call)
{
    return arena_printf(arena, "%s/before.json", call->state_folder);
}

void fingerprint_tidy(const char *state_folder)
{
    OWNED_ARENA struct arena *arena = arena_new();

    unlink(arena_printf(arena, "%s/before.json.tmp", state_folder));
}

/* NULL when there is none. */
static enum status read_kept(const char *path, json_t **ret_kept, struct error *err)
{
    struct error why = {0};

    if (access(path, F_OK) != 0 || json_read_file(path, ret_kept, &why) == STATUS_OK)
        return STATUS_OK;
    error_set(err, why.code, "%s: %s", path, why.message);
    return error_hint(err, "Remove that file to take the node as it is."), why.code;
}

/* One of another run stays: what that run left must not become what a later one compares with. */
static enum status keep(const struct method_call *call, json_t *fingerprint, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *kept = NULL;
    const char *path = kept_path(arena, call), *run = call->session->run;
    enum status status = read_kept(path, &kept, err);

    if (status != STATUS_OK)
        return status;
    const char *other = json_text(kept, "run", run);
    if (strcmp(other, run) != 0) {
        json_object_set_new(fingerprint, "unaudited", json_string(other));
        return STATUS_OK;
    }
    OWNED_JSON json_t *ours = json_pack("{s:s, s:O}", "run", run, "fingerprint", fingerprint);
    return json_write_file(path, ours, err);
}

/* {run, fingerprint} of the run that no audit has closed, or null. */
static enum status add_kept(const struct method_call *call, json_t *fingerprint, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    json_t *kept = NULL;
    enum status status = read_kept(kept_path(arena, call), &kept, err);

    if (status == STATUS_OK)
        json_object_set_new(fingerprint, "kept", kept != NULL ? kept : json_null());
    return status;
}

enum status node_forget(const struct method_call *call, json_t **ret_result, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *kept = NULL;
    const char *path = kept_path(arena, call), *of = json_text(call->params, "of", NULL);
    enum status status = read_kept(path, &kept, err);

    if (status != STATUS_OK)
        return status;
    bool meant = kept != NULL && (of == NULL || strcmp(json_text(kept, "run", ""), of) == 0);
    if (meant && unlink(path) != 0 && errno != ENOENT)
        return error_system(err, "removing %s", path);
    *ret_result = json_pack("{s:b}", "forgotten", meant);
    return STATUS_OK;
}

enum status node_fingerprint(const struct method_call *call, json_t **ret_result, struct error *err)
{
    OWNED_JSON json_t *result = json_object();
    enum status status = STATUS_OK;

    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (sections[i].read(call, result, err) != STATUS_OK)
            return error_context(err, "fingerprint: %s", sections[i].name);
    if (json_flag(call->params, "keep", false))
        status = keep(call, result, err);
    if (status == STATUS_OK && json_flag(call->params, "kept", false))
        status = add_kept(call, result, err);
    if (status != STATUS_OK)
        return status;
    *ret_result = json_incref(result);
    return STATUS_OK;
}
