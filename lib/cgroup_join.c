/* SPDX-License-Identifier: MIT */
/* Joining a group, apart from the rest: a child does it between fork() and exec(). */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/cgroup.h"
#include "lib/owned.h"

static const char *const hierarchies[] = {"memory/", "cpu/", "freezer/", "blkio/", ""};

/* False when the group does not exist in that hierarchy. */
static bool join_one(const char *hierarchy, const char *path, pid_t pid, struct error *err,
                     enum status *status)
{
    char file[512], text[24];
    int length = snprintf(file, sizeof file, "/sys/fs/cgroup/%s%s/cgroup.procs", hierarchy, path);

    if (length < 0 || (size_t) length >= sizeof file)
        return false;
    OWNED_FD int fd = open(file, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    int digits = snprintf(text, sizeof text, "%d", (int) pid);
    if (write(fd, text, (size_t) digits) != digits)
        *status = error_system(err, "moving process %d to %s", (int) pid, file);
    return true;
}

enum status cgroup_join(const char *path, pid_t pid, struct error *err)
{
    enum status status = STATUS_OK;
    bool found = false;

    for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++)
        found |= join_one(hierarchies[i], path, pid, err, &status);
    if (!found)
        return error_set(err, STATUS_NOT_FOUND, "no control group %s", path);
    return status;
}
