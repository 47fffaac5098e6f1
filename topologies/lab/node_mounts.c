/* SPDX-License-Identifier: MIT */
#include "topologies/lab/node_mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/owned.h"
#include "topologies/lab/volume.h"

/* Loop devices that wait for their mount, and the host's folders that the new mounts hide. */
struct held {
    int system, data, programs, cgroups;
    char system_device[32], data_device[32];
};

/* Everything that lies in folders that are about to be covered. */
static enum status hold(const struct node_boot *boot, struct held *held, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *slash = strrchr(boot->agent, '/');
    const char *programs = arena_strndup(arena, boot->agent, (size_t) (slash - boot->agent));
    enum status status =
        volume_attach(boot->system_image, "system", &held->system, held->system_device, err);

    if (status == STATUS_OK && boot->data_image >= 0)
        status = volume_attach(boot->data_image, "data", &held->data, held->data_device, err);
    if (status != STATUS_OK)
        return status;
    held->programs = open(programs, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (held->programs < 0)
        return error_system(err, "cannot open %s", programs);
    /* A copy of these mounts stays writable: the agent works with control groups. */
    held->cgroups =
        open_tree(AT_FDCWD, "/sys/fs/cgroup", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    return held->cgroups >= 0 ? STATUS_OK : error_system(err, "cannot copy /sys/fs/cgroup");
}

/*
 * Kernels before 5.12 cannot change a whole tree of mounts: there only the root itself becomes
 * read only.
 */
static enum status root_read_only(struct error *err)
{
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};

    if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof(read_only)) == 0)
        return STATUS_OK;
    if (errno != ENOSYS || mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0)
        return error_system(err, "cannot make the root file system read only");
    return STATUS_OK;
}

static const struct {
    const char *type, *where, *options;
    unsigned long flags;
} own_mounts[] = {
    {"proc", "/proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
    /* A sysfs of its own: /sys/class/net shows the network namespace that mounted it. */
    {"sysfs", "/sys", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY},
    {"tmpfs", "/tmp", "mode=1777", MS_NOSUID | MS_NODEV},
    {"tmpfs", "/var/tmp", "mode=1777", MS_NOSUID | MS_NODEV},
    {"tmpfs", "/run", "mode=755", MS_NOSUID | MS_NODEV},
    {"tmpfs", "/dev/shm", "mode=1777", MS_NOSUID | MS_NODEV},
};

static enum status mount_own(struct error *err)
{
    for (size_t i = 0; i < sizeof(own_mounts) / sizeof(own_mounts[0]); i++)
        if (mount(own_mounts[i].type, own_mounts[i].where, own_mounts[i].type, own_mounts[i].flags,
                  own_mounts[i].options) < 0)
            return error_system(err, "cannot mount %s on %s", own_mounts[i].type,
                                own_mounts[i].where);
    return STATUS_OK;
}

static enum status make_run(struct error *err)
{
    const struct passwd *postgres = getpwnam("postgres");

    if (mkdir("/run/ordeal", 0755) < 0 || mkdir(NODE_PROGRAMS, 0755) < 0 ||
        mkdir("/run/postgresql", 02775) < 0)
        return error_system(err, "cannot fill /run");
    if (postgres != NULL && chown("/run/postgresql", postgres->pw_uid, postgres->pw_gid) < 0)
        return error_system(err, "cannot give /run/postgresql to postgres");
    return STATUS_OK;
}

static enum status bind_programs(int programs, struct error *err)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", programs);
    if (mount(path, NODE_PROGRAMS, NULL, MS_BIND, NULL) < 0)
        return error_system(err, "cannot bind the programs to " NODE_PROGRAMS);
    return STATUS_OK;
}

static enum status copy_line(const char *from, const char *to, struct error *err)
{
    char text[64];
    OWNED_FD int source = open(from, O_RDONLY | O_CLOEXEC);
    OWNED_FD int target = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
    ssize_t length = source < 0 || target < 0 ? -1 : read(source, text, sizeof(text));

    if (length <= 0 || write(target, text, (size_t) length) != length)
        return error_system(err, "cannot copy %s to %s", from, to);
    return STATUS_OK;
}

/* The kernel has one boot id for all; a node that boots gets its own under the same name. */
static enum status fresh_boot_id(struct error *err)
{
    static const char *const own = "/run/ordeal/boot_id", *const shown =
                                                              "/proc/sys/kernel/random/boot_id";
    enum status status = copy_line("/proc/sys/kernel/random/uuid", own, err);

    if (status != STATUS_OK)
        return status;
    if (mount(own, shown, NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, shown, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0)
        return error_system(err, "cannot bind a boot id of its own");
    return STATUS_OK;
}

static enum status mount_cgroups(int cgroups, struct error *err)
{
    if (move_mount(cgroups, "", AT_FDCWD, "/sys/fs/cgroup", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return error_system(err, "cannot mount /sys/fs/cgroup");
    return STATUS_OK;
}

static enum status mount_volumes(const struct held *held, struct error *err)
{
    enum status status = volume_mount(held->system_device, NODE_SYSTEM, err);

    if (status == STATUS_OK && held->data >= 0)
        status = volume_mount(held->data_device, NODE_DATA, err);
    return status;
}

static enum status mount_held(const struct held *held, struct error *err)
{
    enum status status = root_read_only(err);

    if (status == STATUS_OK)
        status = mount_own(err);
    if (status == STATUS_OK)
        status = mount_cgroups(held->cgroups, err);
    if (status == STATUS_OK)
        status = make_run(err);
    if (status == STATUS_OK)
        status = bind_programs(held->programs, err);
    if (status == STATUS_OK)
        status = fresh_boot_id(err);
    if (status == STATUS_OK)
        status = mount_volumes(held, err);
    return status;
}

/* From here on only the loop devices hold them. */
static void close_images(const struct node_boot *boot)
{
    close(boot->system_image);
    if (boot->data_image >= 0)
        close(boot->data_image);
}

enum status node_mount_all(const struct node_boot *boot, struct error *err)
{
    struct held held = {.system = -1, .data = -1, .programs = -1, .cgroups = -1};
    enum status status = hold(boot, &held, err);

    if (status == STATUS_OK)
        status = mount_held(&held, err);
    close_images(boot);
    owned_close_fd(&held.system);
    owned_close_fd(&held.data);
    owned_close_fd(&held.programs);
    owned_close_fd(&held.cgroups);
    return status;
}
