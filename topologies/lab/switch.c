/* SPDX-License-Identifier: MIT */
#include "topologies/lab/switch.h"

#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/owned.h"
#include "lib/process.h"

enum { IP_TIMEOUT_MS = 10000, SCRIPT_MAX = 4096 };

static enum status ip_batch(const char *script, struct error *err)
{
    const char *argv[] = {"ip", "-batch", "-", NULL};

    return process_run(
        &(struct process_spec){.argv = argv, .input = script, .timeout_ms = IP_TIMEOUT_MS}, NULL,
        err);
}

/* IPv4 alone: without duplicate address detection a link is usable at once. */
static void no_ipv6(void)
{
    static const char *const files[] = {"/proc/sys/net/ipv6/conf/all/disable_ipv6",
                                        "/proc/sys/net/ipv6/conf/default/disable_ipv6"};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        OWNED_FD int fd = open(files[i], O_WRONLY | O_CLOEXEC);

        if (fd >= 0 && write(fd, "1", 1) != 1)
            continue; /* a kernel without IPv6 is as good */
    }
}

enum status switch_create(const char *address, struct error *err)
{
    OWNED_BUFFER struct buffer script = BUFFER(SCRIPT_MAX);

    no_ipv6();
    buffer_printf(&script,
                  "link set lo up\n"
                  "link add " SWITCH_NAME " type bridge\n"
                  "address add %s/24 dev " SWITCH_NAME "\n"
                  "link set " SWITCH_NAME " up\n",
                  address);
    return ip_batch(buffer_text(&script), err);
}

enum status switch_connect(const char *node, const char *address, pid_t pid, struct error *err)
{
    OWNED_BUFFER struct buffer script = BUFFER(SCRIPT_MAX);
    unsigned bytes[4] = {0};

    if (sscanf(address, "%u.%u.%u.%u", &bytes[0], &bytes[1], &bytes[2], &bytes[3]) != 4)
        return error_set(err, STATUS_INVALID, "\"%s\" is not an IPv4 address", address);
    buffer_printf(&script,
                  "link add name %s type veth peer name eth0 address 02:0d:%02x:%02x:%02x:%02x "
                  "netns %d\n"
                  "link set %s master " SWITCH_NAME "\n"
                  "link set %s up\n",
                  node, bytes[0], bytes[1], bytes[2], bytes[3], (int) pid, node, node);
    return ip_batch(buffer_text(&script), err);
}

enum status switch_unplug(const char *node, struct error *err)
{
    struct ifreq request = {0};
    OWNED_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", node);
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0)
        return error_system(err, "cannot read the state of link %s", node);
    request.ifr_flags = (short) (request.ifr_flags & ~IFF_UP);
    if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        return error_system(err, "cannot take link %s down", node);
    return STATUS_OK;
}

bool switch_has(const char *node)
{
    return if_nametoindex(node) != 0;
}

enum status switch_remove(const char *node, struct error *err)
{
    OWNED_BUFFER struct buffer script = BUFFER(SCRIPT_MAX);

    buffer_printf(&script, "link del %s\n", node);
    return ip_batch(buffer_text(&script), err);
}

enum status switch_node_up(const char *address, struct error *err)
{
    OWNED_BUFFER struct buffer script = BUFFER(SCRIPT_MAX);

    no_ipv6();
    buffer_printf(&script,
                  "link set lo up\n"
                  "address add %s/24 dev eth0\n"
                  "link set eth0 up\n",
                  address);
    return ip_batch(buffer_text(&script), err);
}
