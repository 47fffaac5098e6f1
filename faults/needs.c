/* SPDX-License-Identifier: MIT */
#include "faults/needs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/owned.h"

enum status needs_database(const struct fault_context *context, struct error *err)
{
    if (context->data_directory != NULL)
        return STATUS_OK;
    error_set(err, STATUS_UNSUPPORTED, "node %s serves no PostgreSQL", context->node);
    error_hint(err, "Choose a target with the role \"database\".");
    return STATUS_UNSUPPORTED;
}

enum status needs_capability(int capability, const char *name, struct error *err)
{
    OWNED_FILE FILE *file = fopen("/proc/self/status", "re");
    static const char label[] = "CapEff:\t";
    uint64_t effective = 0;
    char line[256];

    if (file == NULL)
        return error_system(err, "opening /proc/self/status");
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, label, sizeof label - 1) == 0)
            effective = strtoull(line + sizeof label - 1, NULL, 16);
    if ((effective >> capability & 1) != 0)
        return STATUS_OK;
    error_set(err, STATUS_UNSUPPORTED, "this process does not have %s", name);
    error_hint(err, "Run the agent as root, with %s in its bounding set.", name);
    return STATUS_UNSUPPORTED;
}

enum status needs_pidfd(struct error *err)
{
    OWNED_FD int pidfd = (int) syscall(SYS_pidfd_open, getpid(), 0U);

    if (pidfd >= 0)
        return STATUS_OK;
    error_set(err, STATUS_UNSUPPORTED, "this kernel gives no pidfd: %s", strerror(errno));
    error_hint(err, "A kernel of 5.4 or later is needed.");
    return STATUS_UNSUPPORTED;
}

static bool on_path(const char *name, const char *path)
{
    OWNED_BUFFER struct buffer file = BUFFER(4096);

    while (*path != '\0') {
        size_t length = strcspn(path, ":");
        buffer_reset(&file);
        buffer_printf(&file, "%.*s/%s", (int) length, path, name);
        if (!file.overflow && length > 0 && access(buffer_text(&file), X_OK) == 0)
            return true;
        path += length + (path[length] == ':');
    }
    return false;
}

enum status needs_program(const char *name, const char *package, struct error *err)
{
    const char *path = getenv("PATH");

    if (on_path(name, path != NULL ? path : "/bin:/usr/bin"))
        return STATUS_OK;
    error_set(err, STATUS_UNSUPPORTED, "the program %s is not on PATH", name);
    error_hint(err, "Install the package %s.", package);
    return STATUS_UNSUPPORTED;
}

const char *context_address(const struct fault_context *context, const char *node)
{
    for (size_t i = 0; i < context->peer_count; i++)
        if (strcmp(context->peers[i].name, node) == 0)
            return context->peers[i].address;
    return NULL;
}
