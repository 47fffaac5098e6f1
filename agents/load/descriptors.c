/* SPDX-License-Identifier: MIT */
#include "agents/load/descriptors.h"

#include <stdbool.h>
#include <stdlib.h>

#include "lib/owned.h"

static bool is_kept(int fd, const int *kept, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (kept[i] == fd)
            return true;
    return false;
}

void descriptors_close_all_but(const int *kept, size_t count)
{
    OWNED_DIR DIR *folder = opendir("/proc/self/fd");

    if (folder == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int fd = (int) strtol(entry->d_name, NULL, 10); /* "." and "..": 0 */
        if (fd > 2 && fd != dirfd(folder) && !is_kept(fd, kept, count))
            close(fd);
    }
}
