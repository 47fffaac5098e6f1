/* SPDX-License-Identifier: MIT */
#include "orchestrator/files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "lib/units.h"
#include "topologies/lab/lab.h"

enum { CONNECT_MS = 10000, CONNECT_SOME_MS = 4000, LIST_MS = 5000 };

void files_complain(const struct yaml_errors *errors)
{
    for (size_t i = 0; i < errors->count; i++)
        fprintf(stderr, "%s\n", errors->texts[i]);
}

static enum status load_topology(struct arena *arena, const char *path,
                                 struct topology **ret_topology, struct error *err)
{
    struct yaml_errors errors = {.arena = arena};
    enum status status = STATUS_OK;

    if (path == NULL)
        status = lab_find_up(arena, &path, err);
    if (status == STATUS_OK)
        status = topology_load(arena, path, ret_topology, &errors, err);
    files_complain(&errors);
    return status;
}

enum status files_topology(struct arena *arena, const struct invocation *invocation,
                           struct topology **ret_topology, struct error *err)
{
    return load_topology(arena, invocation_option(invocation, "topology"), ret_topology, err);
}

enum status files_topology_of(struct arena *arena, const struct invocation *invocation,
                              const json_t *run_start, struct topology **ret_topology,
                              struct error *err)
{
    const char *path = invocation_option(invocation, "topology");

    if (path == NULL)
        path = json_text(json_object_get(run_start, "topology"), "file", NULL);
    if (path != NULL && access(path, F_OK) != 0 &&
        invocation_option(invocation, "topology") == NULL)
        path = NULL;
    return load_topology(arena, path, ret_topology, err);
}

enum status files_scenario(struct arena *arena, const char *name, const struct topology *topology,
                           struct scenario_file *ret_file, struct error *err)
{
    struct yaml_errors errors = {.arena = arena};
    enum status status =
        scenario_load(arena, scenario_find(arena, name), topology, ret_file, &errors, err);

    files_complain(&errors);
    return status;
}

/* ---- run directories ---- */

static enum status make_parents(struct arena *arena, const char *path, struct error *err)
{
    char *copy = arena_strdup(arena, path);

    for (char *slash = strchr(copy + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0755) != 0 && errno != EEXIST)
            return error_system(err, "creating %s", copy);
        *slash = '/';
    }
    return STATUS_OK;
}

static enum status want_empty(const char *path, struct error *err)
{
    OWNED_DIR DIR *folder = opendir(path);
    const struct dirent *entry;

    if (folder == NULL)
        return error_system(err, "opening %s", path);
    while ((entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        error_set(err, STATUS_REFUSED, "the run directory %s is not empty", path);
        error_hint(err, "Name another one with -o: what a run found is never overwritten.");
        return STATUS_REFUSED;
    }
    return STATUS_OK;
}

static const char *default_folder(struct arena *arena, const char *name)
{
    char wall[WALL_TEXT_SIZE];

    clock_wall_text(clock_wall_ns(), wall);
    return arena_printf(arena, "runs/%.4s%.2s%.2sT%.2s%.2s%.2s-%s", wall, wall + 5, wall + 8,
                        wall + 11, wall + 14, wall + 17, name);
}

/* Two runs in one second get a number each. */
static enum status make_unique(struct arena *arena, const char *path, const char **ret_path,
                               struct error *err)
{
    const char *candidate = path;

    for (int i = 2; i < 100; i++) {
        if (mkdir(candidate, 0755) == 0) {
            *ret_path = candidate;
            return STATUS_OK;
        }
        if (errno != EEXIST)
            break;
        candidate = arena_printf(arena, "%s-%d", path, i);
    }
    return error_system(err, "creating %s", candidate);
}

enum status files_outer_folder(struct arena *arena, const char *wanted, const char *name,
                               const char **ret_folder, struct error *err)
{
    const char *path = wanted != NULL ? wanted : default_folder(arena, name);
    enum status status = make_parents(arena, path, err);

    if (status != STATUS_OK)
        return status;
    if (wanted == NULL)
        return make_unique(arena, path, ret_folder, err);
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return error_system(err, "creating %s", path);
    *ret_folder = path;
    return want_empty(path, err);
}

enum status files_run_folder(struct arena *arena, const char *wanted, const char *name,
                             const char **ret_folder, struct error *err)
{
    static const char *const inner[] = {"ledger", "nodes", "samples"};
    const char *folder = NULL;
    enum status status = files_outer_folder(arena, wanted, name, &folder, err);

    for (size_t i = 0; status == STATUS_OK && i < sizeof inner / sizeof inner[0]; i++) {
        const char *path = arena_printf(arena, "%s/%s", folder, inner[i]);
        if (mkdir(path, 0755) != 0)
            status = error_system(err, "creating %s", path);
    }
    if (status == STATUS_OK)
        *ret_folder = folder;
    return status;
}

/* ---- connections ---- */

static enum status connect_as(struct arena *arena, const struct topology *topology,
                              const char *what, struct cluster_options options, bool all,
                              struct cluster **ret_cluster, struct error *err)
{
    struct cluster *cluster;
    uint32_t noise;

    if (getrandom(&noise, sizeof noise, 0) != (ssize_t) sizeof noise)
        return error_system(err, "drawing a run id");
    options.run = arena_printf(arena, "%s-%08" PRIx32, what, noise);
    enum status status = cluster_new(topology, &options, &cluster, err);
    if (status != STATUS_OK)
        return status;
    status = cluster_wait_connected(cluster, NULL,
                                    deadline_in_ms(all ? CONNECT_MS : CONNECT_SOME_MS), err);
    if (status != STATUS_OK && all) {
        cluster_free(cluster);
        return status;
    }
    *ret_cluster = cluster;
    return STATUS_OK;
}

enum status files_connect(struct arena *arena, const struct topology *topology, const char *what,
                          bool all, struct cluster **ret_cluster, struct error *err)
{
    return connect_as(arena, topology, what, (struct cluster_options){0}, all, ret_cluster, err);
}

enum status files_look(struct arena *arena, const struct topology *topology, const char *what,
                       struct cluster **ret_cluster, struct error *err)
{
    return connect_as(arena, topology, what, (struct cluster_options){.no_session = true}, false,
                      ret_cluster, err);
}

enum status files_find_run(struct cluster *look, const struct topology *topology,
                           struct arena *arena, const char **ret_run, struct error *err)
{
    for (size_t i = 0; i < topology->node_count && *ret_run == NULL; i++) {
        const char *name = topology->nodes[i].name;
        OWNED_JSON json_t *result = NULL;
        enum status status =
            cluster_connected(look, name)
                ? cluster_call(look, name, "fault.list", NULL, LIST_MS, &result, err)
                : STATUS_OK;

        if (status != STATUS_OK)
            return error_context(err, "asking %s", name);
        const char *run = json_text(result, "run", NULL);
        *ret_run = run != NULL ? arena_strdup(arena, run) : NULL;
    }
    return STATUS_OK;
}

enum status files_seed(const struct invocation *invocation, const struct scenario *scenario,
                       uint64_t *ret_seed, struct error *err)
{
    const char *text = invocation_option(invocation, "seed");
    uint32_t drawn;
    int64_t given;

    if (text != NULL) {
        if (units_integer(text, &given, err) != STATUS_OK) {
            error_context(err, "--seed");
            err->code = STATUS_USAGE;
            return STATUS_USAGE;
        }
        *ret_seed = (uint64_t) given;
        return STATUS_OK;
    }
    if (scenario->has_seed) {
        *ret_seed = (uint64_t) scenario->seed;
        return STATUS_OK;
    }
    if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t) sizeof drawn)
        return error_system(err, "drawing a seed");
    *ret_seed = drawn;
    return STATUS_OK;
}
