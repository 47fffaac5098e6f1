/* SPDX-License-Identifier: MIT */
#include "topologies/lab/volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "lib/owned.h"
#include "lib/process.h"

enum { MKFS_TIMEOUT_MS = 60000, ATTACH_TRIES = 64 };

/* xfs_fs.h: XFS_IOC_GOINGDOWN, the same number as EXT4_IOC_SHUTDOWN; 2: no flush of the log. */
#define IOC_GOING_DOWN _IOR('X', 125, uint32_t)
#define GOING_DOWN_NO_LOG_FLUSH UINT32_C(2)

enum status volume_create(const char *image, int64_t bytes, struct error *err)
{
    OWNED_FD int fd = open(image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const char *argv[] = {"mkfs.xfs", "-q", image, NULL};

    if (fd < 0 || ftruncate(fd, bytes) < 0)
        return error_system(err, "cannot create %s", image);
    return process_run(&(struct process_spec){.argv = argv, .timeout_ms = MKFS_TIMEOUT_MS}, NULL,
                       err);
}

/* LOOP_CONFIGURE sets image and flags at once (Linux 5.8); before there were two steps. */
static int configure(int device, int image)
{
    struct loop_config config = {.fd = (uint32_t) image, .info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};

    if (ioctl(device, LOOP_CONFIGURE, &config) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOTTY)
        return -1;
    if (ioctl(device, LOOP_SET_FD, image) < 0)
        return -1;
    return ioctl(device, LOOP_SET_STATUS64, &config.info);
}

enum status volume_attach(int image, const char *name, int *ret_fd, char ret_device[32],
                          struct error *err)
{
    OWNED_FD int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    if (control < 0)
        return error_system(err, "cannot open /dev/loop-control");
    /* Another process may take the free device first: then ask again. */
    for (int try = 0; try < ATTACH_TRIES; try++) {
        char path[32];
        int number = ioctl(control, LOOP_CTL_GET_FREE);

        if (number < 0)
            return error_system(err, "no free loop device");
        snprintf(path, sizeof(path), "/dev/loop%d", number);
        OWNED_FD int device = open(path, O_RDWR | O_CLOEXEC);
        if (device >= 0 && configure(device, image) == 0) {
            snprintf(ret_device, 32, "%s", path);
            *ret_fd = take_fd(&device);
            return STATUS_OK;
        }
        if (errno != EBUSY)
            return error_system(err, "cannot attach the volume %s to %s", name, path);
    }
    return error_set(err, STATUS_CONFLICT, "every free loop device was taken by others");
}

enum status volume_mount(const char *device, const char *where, struct error *err)
{
    if (mount(device, where, "xfs", MS_NOATIME, NULL) < 0)
        return error_system(err, "cannot mount %s on %s", device, where);
    return STATUS_OK;
}

enum status volume_cut(const char *where, struct error *err)
{
    uint32_t flags = GOING_DOWN_NO_LOG_FLUSH;
    OWNED_FD int fd = open(where, O_RDONLY | O_CLOEXEC);

    if (fd < 0 && errno == EIO)
        return STATUS_OK; /* it has failed already, and takes nothing more */
    if (fd < 0)
        return error_system(err, "cannot open %s", where);
    if (ioctl(fd, IOC_GOING_DOWN, &flags) < 0)
        return error_system(err, "cannot shut the file system of %s down", where);
    return STATUS_OK;
}

static bool is_below(const char *device, const char *folder)
{
    char name[300], image[4096] = "";
    size_t length = strlen(folder);

    snprintf(name, sizeof(name), "/sys/block/%s/loop/backing_file", device);
    OWNED_FILE FILE *file = fopen(name, "re");
    if (file == NULL || fgets(image, sizeof(image), file) == NULL)
        return false;
    return strncmp(image, folder, length) == 0 && image[length] == '/';
}

enum status volume_count_loops(const char *folder, int *ret_count, struct error *err)
{
    OWNED_DIR DIR *blocks = opendir("/sys/block");
    int count = 0;

    if (blocks == NULL)
        return error_system(err, "cannot open /sys/block");
    for (struct dirent *entry = readdir(blocks); entry != NULL; entry = readdir(blocks))
        count += strncmp(entry->d_name, "loop", 4) == 0 && is_below(entry->d_name, folder);
    *ret_count = count;
    return STATUS_OK;
}
