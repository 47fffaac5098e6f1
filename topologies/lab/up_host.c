/* SPDX-License-Identifier: MIT */
/* What `lab up` prepares on the host: certificates, passwords, images, control groups. */
#include "lib/cgroup.h"
#include "lib/owned.h"
#include "lib/tls.h"
#include "topologies/lab/state.h"
#include "topologies/lab/up.h"
#include "topologies/lab/volume.h"
#include "topologies/topology.h"

enum { CERTIFICATE_DAYS = 3650, ALL_BUT_POWER = ROLE_DATABASE | ROLE_CLIENT };

/* ---- on the host ---- */

static enum status issue(const struct up *up, const char *folder, const struct lab_node *node,
                         struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    enum status status = pki_issue(folder, node->name, TLS_AGENT, CERTIFICATE_DAYS, err);

    if (status == STATUS_OK && (node->roles & ROLE_DATABASE) != 0)
        status = pki_issue_server(folder, arena_printf(arena, "postgresql-%s", node->name),
                                  node->address, CERTIFICATE_DAYS, err);
    (void) up;
    return status;
}

enum status up_make_certificates(struct up *up, struct error *err)
{
    const char *folder = lab_path(up->arena, up->spec->name, "pki");
    enum status status = pki_init(folder, CERTIFICATE_DAYS, err);

    if (status == STATUS_OK)
        status = pki_issue(folder, "orchestrator", TLS_ORCHESTRATOR, CERTIFICATE_DAYS, err);
    for (size_t i = 0; i < up->spec->node_count && status == STATUS_OK; i++)
        status = issue(up, folder, &up->spec->nodes[i], err);
    return status;
}

enum status up_make_secrets(struct up *up, struct error *err)
{
    const char *folder = lab_path(up->arena, up->spec->name, "secrets");
    const struct {
        const char *name, *password;
    } files[] = {{"admin.pass", up->passwords.admin},
                 {"load.pass", up->passwords.load},
                 {"replication.pass", up->passwords.replication}};
    enum status status = files_folder(folder, 0700, FILES_ROOT, err);

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && status == STATUS_OK; i++)
        status =
            files_write(arena_printf(up->arena, "%s/%s", folder, files[i].name),
                        arena_printf(up->arena, "%s\n", files[i].password), 0600, FILES_ROOT, err);
    return status;
}

static enum status make_images(void *argument, struct error *err)
{
    const struct on_node *at = argument;
    const struct lab_node *node = up_node(at);
    struct arena *arena = at->up->arena;
    const char *folder = lab_path(arena, at->up->spec->name, node->name);
    enum status status =
        volume_create(arena_printf(arena, "%s/system.img", folder), node->system_bytes, err);

    if (status == STATUS_OK && node->data_bytes > 0)
        status = volume_create(arena_printf(arena, "%s/data.img", folder), node->data_bytes, err);
    return status;
}

enum status up_make_volumes(struct up *up, struct error *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < up->spec->node_count && status == STATUS_OK; i++)
        status = files_folder(lab_path(up->arena, up->spec->name, up->spec->nodes[i].name), 0700,
                              FILES_ROOT, err);
    if (status == STATUS_OK)
        status = up_on_nodes(up, ALL_BUT_POWER, "making the volumes of", make_images, err);
    return status;
}

/*
 * A host that is busy with other things starves the lab as a whole, not its clocks and probes
 * first: the lab weighs as much as its machines, and in it weigh agents and clients more than
 * servers.
 */
enum { WEIGHT = 100, WEIGHT_TO_MEASURE = 400 };

static enum status share_processors(const struct up *up, const struct lab_node *node,
                                    struct error *err)
{
    const char *lab = up->spec->name;
    int64_t machine = (node->roles & ROLE_DATABASE) != 0 ? WEIGHT : WEIGHT_TO_MEASURE;
    enum status status = cgroup_weight(lab_cgroup(up->arena, lab, NULL, NULL),
                                       WEIGHT * (int64_t) up->spec->node_count, err);

    if (status == STATUS_OK)
        status = cgroup_weight(lab_cgroup(up->arena, lab, node->name, NULL), machine, err);
    if (status == STATUS_OK)
        status =
            cgroup_weight(lab_cgroup(up->arena, lab, node->name, "agent"), WEIGHT_TO_MEASURE, err);
    return status;
}

static enum status make_group(const struct up *up, const struct lab_node *node, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *limited = lab_cgroup(arena, up->spec->name, node->name, "postgres");
    struct cgroup_limits limits = {
        .memory_bytes = node->memory_bytes,
        .memory_swap_bytes = node->memory_bytes > 0 && node->swap_bytes >= 0
                                 ? node->memory_bytes + node->swap_bytes
                                 : 0,
        .cpu_percent = node->cpu_percent,
    };
    enum status status = cgroup_create(lab_cgroup(arena, up->spec->name, node->name, "agent"), err);

    if (status == STATUS_OK)
        status = share_processors(up, node, err);
    if (status == STATUS_OK && node->roles != ROLE_POWER)
        status = cgroup_create(limited, err);
    if (status == STATUS_OK && node->roles != ROLE_POWER)
        status = cgroup_limit(limited, &limits, err);
    return status;
}

enum status up_make_groups(struct up *up, struct error *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < up->spec->node_count && status == STATUS_OK; i++)
        status = make_group(up, &up->spec->nodes[i], err);
    return status;
}
