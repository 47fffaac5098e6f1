/* SPDX-License-Identifier: MIT */
#include "tests/kill/skip.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "tests/kill/gate.h"

enum { HOSTS_MAX = 16 };

enum status skip_injections(const char *folder, char *const *hosts, struct error *err)
{
    struct gate gates[HOSTS_MAX];
    struct pollfd fds[HOSTS_MAX];
    struct arrival arrival;
    nfds_t count = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails ends its children so */
    for (; count < HOSTS_MAX && hosts[count] != NULL; count++) {
        enum status status = gate_open(folder, hosts[count], &gates[count], err);
        if (status != STATUS_OK)
            return status;
        fds[count] = (struct pollfd){.fd = gates[count].listener, .events = POLLIN};
    }
    printf("ready\n");
    fflush(stdout);
    while (poll(fds, count, -1) >= 0)
        for (nfds_t i = 0; i < count; i++)
            if ((fds[i].revents & POLLIN) != 0 && gate_take(&gates[i], &arrival))
                gate_answer(&arrival, strcmp(arrival.point, "inject") == 0 ? "skip" : "go");
    return error_system(err, "waiting at the points");
}
