/* SPDX-License-Identifier: MIT */
/* Which labs there are. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/owned.h"
#include "topologies/lab/lab.h"
#include "topologies/lab/state.h"

enum { LABS_MAX = 256 };

static int by_name(const void *one, const void *other)
{
    return strcmp(*(const char *const *) one, *(const char *const *) other);
}

static bool is_wanted(const char *name, bool only_up)
{
    struct lab_state state = {0};

    if (lab_check_name(name, NULL) != STATUS_OK)
        return false;
    return !only_up || (state_read(name, &state, NULL) == STATUS_OK && state.up);
}

enum status lab_list(struct arena *arena, bool only_up, const char ***ret_names, size_t *ret_count,
                     struct error *err)
{
    const char **names = arena_array(arena, LABS_MAX, sizeof(char *));
    size_t count = 0;
    OWNED_DIR DIR *folder = opendir(LAB_ROOT);

    if (folder == NULL && errno != ENOENT)
        return error_system(err, "cannot open " LAB_ROOT);
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL;
         entry != NULL && count < LABS_MAX; entry = readdir(folder))
        if (is_wanted(entry->d_name, only_up))
            names[count++] = arena_strdup(arena, entry->d_name);
    if (count > 1)
        qsort(names, count, sizeof(char *), by_name);
    *ret_names = names;
    *ret_count = count;
    return STATUS_OK;
}

enum status lab_find_name(struct arena *arena, bool only_up, const char **ret_name,
                          struct error *err)
{
    const char **names = NULL;
    size_t count = 0;
    enum status status = lab_list(arena, only_up, &names, &count, err);

    if (status != STATUS_OK)
        return status;
    if (count == 1) {
        *ret_name = names[0];
        return STATUS_OK;
    }
    if (count == 0) {
        error_set(err, STATUS_NOT_FOUND, "no lab is up");
        error_hint(err, "Bring one up with \"ordeal lab up\", or name a topology with -t.");
        return STATUS_NOT_FOUND;
    }
    error_set(err, STATUS_CONFLICT, "%zu labs are there: %s, %s%s", count, names[0], names[1],
              count > 2 ? " ..." : "");
    error_hint(err, "Say which one with --name (or its topology with -t).");
    return STATUS_CONFLICT;
}

enum status lab_find_up(struct arena *arena, const char **ret_topology_path, struct error *err)
{
    const char *name = NULL;
    enum status status = lab_find_name(arena, true, &name, err);

    if (status == STATUS_OK)
        *ret_topology_path = lab_path(arena, name, "topology.yaml");
    return status;
}
