/* SPDX-License-Identifier: MIT */
#include "tests/kill/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/owned.h"

enum { BACKLOG = 64, NAME_MS = 1000 };

enum status gate_open(const char *folder, const char *host, struct gate *ret_gate,
                      struct error *err)
{
    struct gate gate = {.listener = -1};
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(gate.path, sizeof gate.path, "%s/kill-points", folder);
    if (mkdir(gate.path, 0700) != 0 && errno != EEXIST)
        return error_system(err, "creating folder %s", gate.path);
    OWNED_FD int at = open(gate.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    OWNED_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    snprintf(gate.path, sizeof gate.path, "%s/kill-points/%s", folder, host);
    unlink(gate.path);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", at, host);
    if (at < 0 || fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof address) != 0 ||
        listen(fd, BACKLOG) != 0)
        return error_system(err, "listening at %s", gate.path);
    gate.listener = take_fd(&fd);
    *ret_gate = gate;
    return STATUS_OK;
}

void gate_close(struct gate *gate)
{
    if (gate->listener < 0)
        return;
    unlink(gate->path);
    close(gate->listener);
    gate->listener = -1;
}

bool gate_take(struct gate *gate, struct arrival *ret_arrival)
{
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    struct arrival arrival = {
        .fd = gate->listener < 0 ? -1 : accept4(gate->listener, NULL, NULL, SOCK_CLOEXEC)};
    struct pollfd fd = {.fd = arrival.fd, .events = POLLIN};

    if (arrival.fd < 0)
        return false;
    if (getsockopt(arrival.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        poll(&fd, 1, NAME_MS) != 1 ||
        recv(arrival.fd, arrival.point, sizeof arrival.point - 1, 0) <= 0) {
        close(arrival.fd); /* it died on its way */
        return false;
    }
    arrival.pid = peer.pid;
    *ret_arrival = arrival;
    return true;
}

void gate_answer(struct arrival *arrival, const char *word)
{
    if (arrival->fd < 0)
        return;
    ssize_t ignored = send(arrival->fd, word, strlen(word), MSG_NOSIGNAL);
    (void) ignored;
    close(arrival->fd);
    arrival->fd = -1;
}
