/* SPDX-License-Identifier: MIT */
#include "faults/tcp_probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/owned.h"

struct destination {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    socklen_t length;
};

static const char *const outcome_names[] = {
    [TCP_SILENT] = "silent",
    [TCP_UNREACHABLE] = "unreachable",
    [TCP_REFUSED] = "refused",
    [TCP_CONNECTED] = "connected",
};

const char *tcp_outcome_name(enum tcp_outcome outcome)
{
    return outcome_names[outcome];
}

int tcp_address_family(const char *address)
{
    struct in6_addr any;

    if (inet_pton(AF_INET, address, &any) == 1)
        return AF_INET;
    return inet_pton(AF_INET6, address, &any) == 1 ? AF_INET6 : 0;
}

static enum status resolve(const char *address, int port, struct destination *ret_destination,
                           struct error *err)
{
    struct destination destination = {.length = sizeof destination.address.v4};

    destination.address.v4.sin_family = AF_INET;
    destination.address.v4.sin_port = htons((uint16_t) port);
    if (inet_pton(AF_INET, address, &destination.address.v4.sin_addr) != 1) {
        destination = (struct destination){.length = sizeof destination.address.v6};
        destination.address.v6.sin6_family = AF_INET6;
        destination.address.v6.sin6_port = htons((uint16_t) port);
        if (inet_pton(AF_INET6, address, &destination.address.v6.sin6_addr) != 1)
            return error_set(err, STATUS_INVALID, "not an address in numbers: \"%s\"", address);
    }
    *ret_destination = destination;
    return STATUS_OK;
}

/* What an errno of connect() or SO_ERROR says about the host; others are errors of our own. */
static enum status outcome_of(int errnum, const struct tcp_probe *probe,
                              enum tcp_outcome *ret_outcome, struct error *err)
{
    switch (errnum) {
    case 0:
        *ret_outcome = TCP_CONNECTED;
        return STATUS_OK;
    case ECONNREFUSED:
    case ECONNRESET:
        *ret_outcome = TCP_REFUSED;
        return STATUS_OK;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case EACCES:
    case EPERM:
    case ENOPROTOOPT:
        *ret_outcome = TCP_UNREACHABLE;
        return STATUS_OK;
    case ETIMEDOUT:
    case EINPROGRESS:
        *ret_outcome = TCP_SILENT;
        return STATUS_OK;
    default:
        errno = errnum;
        return error_system(err, "connecting to %s port %d", probe->address, probe->port);
    }
}

/* The probe has an outcome; while the attempt goes on it is "silent" and *ret_fd is open. */
static enum status begin(struct tcp_probe *probe, int *ret_fd, struct error *err)
{
    struct destination destination = {0};
    enum status status = resolve(probe->address, probe->port, &destination, err);

    if (status != STATUS_OK)
        return status;
    OWNED_FD int fd = socket(destination.address.any.sa_family,
                             SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0)
        return error_system(err, "opening a socket for %s", probe->address);
    int errnum = connect(fd, &destination.address.any, destination.length) == 0 ? 0 : errno;
    status = outcome_of(errnum, probe, &probe->outcome, err);
    if (status == STATUS_OK && (errnum == 0 || errnum == EINPROGRESS))
        *ret_fd = take_fd(&fd);
    return status;
}

static enum status finish(struct tcp_probe *probe, int fd, struct error *err)
{
    int errnum = 0;
    socklen_t length = sizeof errnum;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &length) != 0)
        return error_system(err, "asking how the connection to %s ended", probe->address);
    return outcome_of(errnum, probe, &probe->outcome, err);
}

/* Wait for all attempts that are under way (fd >= 0). */
static enum status await(struct tcp_probe *probes, struct pollfd *fds, size_t count,
                         int64_t deadline_ns, struct error *err)
{
    size_t open = count;

    while (open > 0) {
        int ready = poll(fds, count, deadline_left_ms(deadline_ns));
        if (ready == 0)
            return STATUS_OK;
        if (ready < 0 && errno != EINTR)
            return error_system(err, "waiting for connections");
        open = 0;
        for (size_t i = 0; i < count; i++) {
            open += fds[i].fd >= 0;
            if (ready < 0 || fds[i].fd < 0 || fds[i].revents == 0)
                continue;
            enum status status = finish(&probes[i], fds[i].fd, err);
            close(fds[i].fd);
            fds[i].fd = -1;
            open--;
            if (status != STATUS_OK)
                return status;
        }
    }
    return STATUS_OK;
}

enum status tcp_probe_all(struct tcp_probe *probes, size_t count, int timeout_ms, struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(timeout_ms);
    OWNED_ARENA struct arena *arena = arena_new();
    struct pollfd *fds = arena_array(arena, count, sizeof *fds);
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count; i++)
        fds[i] = (struct pollfd){.fd = -1, .events = POLLOUT};
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = begin(&probes[i], &fds[i].fd, err);
    if (status == STATUS_OK)
        status = await(probes, fds, count, deadline_ns, err);
    for (size_t i = 0; i < count; i++)
        if (fds[i].fd >= 0)
            close(fds[i].fd);
    return status;
}

enum status tcp_probe(const char *address, int port, int timeout_ms, enum tcp_outcome *ret_outcome,
                      struct error *err)
{
    struct tcp_probe probe = {.address = address, .port = port};
    enum status status = tcp_probe_all(&probe, 1, timeout_ms, err);

    if (status == STATUS_OK)
        *ret_outcome = probe.outcome;
    return status;
}

static bool wait_for(int fd, short events, int64_t deadline_ns)
{
    struct pollfd poller = {.fd = fd, .events = events};
    int ready;

    do
        ready = poll(&poller, 1, deadline_left_ms(deadline_ns));
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* SSLRequest of the frontend/backend protocol: length 8, code 1234.5679. */
static bool ask_for_tls(int fd, int64_t deadline_ns)
{
    static const unsigned char request[8] = {0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f};
    char answer;

    return send(fd, request, sizeof request, MSG_NOSIGNAL) == (ssize_t) sizeof request &&
           wait_for(fd, POLLIN, deadline_ns) && recv(fd, &answer, 1, 0) == 1;
}

enum status tcp_probe_postgres(const char *address, int port, int timeout_ms,
                               enum tcp_outcome *ret_outcome, bool *ret_answered, struct error *err)
{
    struct tcp_probe probe = {.address = address, .port = port};
    int64_t deadline_ns = deadline_in_ms(timeout_ms);
    OWNED_FD int fd = -1;
    enum status status = begin(&probe, &fd, err);

    if (status == STATUS_OK && fd >= 0 && wait_for(fd, POLLOUT, deadline_ns))
        status = finish(&probe, fd, err);
    if (status != STATUS_OK)
        return status;
    *ret_outcome = probe.outcome;
    *ret_answered = probe.outcome == TCP_CONNECTED && ask_for_tls(fd, deadline_ns);
    return STATUS_OK;
}
