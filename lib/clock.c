/* SPDX-License-Identifier: MIT */
#include "lib/clock.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (int64_t) now.tv_sec * NS_PER_SECOND + now.tv_nsec;
}

int64_t clock_boot_ns(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

int64_t clock_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

enum status clock_boot_id(char ret_boot_id[BOOT_ID_SIZE], struct error *err)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return error_system(err, "opening %s", path);
    char text[BOOT_ID_SIZE];
    ssize_t length = read(fd, text, BOOT_ID_SIZE - 1);
    close(fd);
    if (length != BOOT_ID_SIZE - 1)
        return error_set(err, STATUS_SYSTEM, "%s holds no boot id", path);
    text[BOOT_ID_SIZE - 1] = '\0';
    memcpy(ret_boot_id, text, BOOT_ID_SIZE);
    return STATUS_OK;
}

void clock_wall_text(int64_t wall_ns, char text[WALL_TEXT_SIZE])
{
    time_t seconds = (time_t) (wall_ns / NS_PER_SECOND);
    struct tm parts;

    gmtime_r(&seconds, &parts);
    size_t length = strftime(text, WALL_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + length, WALL_TEXT_SIZE - length, ".%03dZ",
             (int) (wall_ns % NS_PER_SECOND / NS_PER_MS));
}

int deadline_left_ms(int64_t deadline_ns)
{
    int64_t left = deadline_ns - clock_boot_ns();

    if (left <= 0)
        return 0;
    left = (left + NS_PER_MS - 1) / NS_PER_MS;
    return left > INT_MAX ? INT_MAX : (int) left;
}
