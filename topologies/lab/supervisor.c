/* SPDX-License-Identifier: MIT */
#include "topologies/lab/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/namespace.h"
#include "lib/owned.h"
#include "lib/title.h"
#include "topologies/lab/node.h"
#include "topologies/lab/state.h"
#include "topologies/lab/supervisor_state.h"
#include "topologies/lab/switch.h"
#include "topologies/topology.h"

enum { READY_TIMEOUT_MS = 20000, RESTART_MS = 500 };

struct start {
    const struct lab_spec *spec;
    const struct lab_programs *programs;
    int ready; /* write end: one struct error, its code STATUS_OK when all is well */
};

/* ---- birth ---- */

/*
 * Die with the one who started us, until told to stay. It may have died before the request took
 * effect; then nobody has the read end of the pipe any more (leave_caller() closed our own).
 */
static enum status tie_to_parent(int ready, struct error *err)
{
    struct pollfd fd = {.fd = ready};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    poll(&fd, 1, 0);
    if ((fd.revents & POLLERR) != 0)
        return error_set(err, STATUS_ABORTED, "the one who started the supervisor is gone");
    return STATUS_OK;
}

/* Nothing of the caller's: its terminal, its pipes and its environment are not the lab's. */
static enum status leave_caller(const char *lab, int *ready, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *path = lab_path(arena, lab, "supervisor.log");
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (log < 0 || null < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 ||
        dup3(*ready, 3, O_CLOEXEC) < 0)
        return error_system(err, "cannot open %s", path);
    *ready = 3;
    close_range(4, ~0U, 0);
    setsid();
    clearenv();
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    return chdir("/") == 0 ? STATUS_OK : error_system(err, "cannot change to /");
}

static enum status own_mounts(struct supervisor *supervisor, struct error *err)
{
    supervisor->host_proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (supervisor->host_proc < 0)
        return error_system(err, "cannot open /proc");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return error_system(err, "cannot make the mounts private");
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return error_system(err, "cannot mount /proc");
    return STATUS_OK;
}

static void make_slots(struct supervisor *supervisor)
{
    const struct lab_spec *spec = supervisor->spec;

    supervisor->slots = arena_array(supervisor->arena, spec->node_count, sizeof(struct slot));
    for (size_t i = 0; i < spec->node_count; i++) {
        if (spec->nodes[i].roles == ROLE_POWER) {
            supervisor->power_node = &spec->nodes[i];
            continue;
        }
        supervisor->slots[supervisor->slot_count++] =
            (struct slot){.supervisor = supervisor,
                          .node = &spec->nodes[i],
                          .init.pidfd = -1,
                          .channel = -1,
                          .since_ns = supervisor->started_ns,
                          .client = -1};
    }
}

/* ---- life ---- */

void power_agent_start(void *argument)
{
    struct supervisor *supervisor = argument;
    const char *lab = supervisor->spec->name, *node = supervisor->power_node->name;
    const char *const *argv = node_agent_argv(
        supervisor->arena, supervisor->power_node, supervisor->programs->agent,
        lab_path(supervisor->arena, lab, "pki"), lab_path(supervisor->arena, lab, node));
    struct process_spec spec = {.argv = argv, .inherit_output = true};
    struct error err = {0};

    if (!supervisor->power_agent_wanted || supervisor->power_agent.pid > 0)
        return;
    if (process_start(&spec, &supervisor->power_agent, &err) == STATUS_OK)
        return;
    log_error(&err);
    loop_at(supervisor->loop, deadline_in_ms(RESTART_MS), power_agent_start, supervisor);
}

static void reaped(struct supervisor *supervisor, pid_t pid, int wait_status)
{
    for (size_t i = 0; i < supervisor->slot_count; i++)
        if (slot_reaped(&supervisor->slots[i], pid))
            return;
    if (pid != supervisor->power_agent.pid)
        return; /* an orphan of somebody */
    log_line(LOG_WARNING, "the power agent ended with wait status 0x%x and is started again",
             (unsigned) wait_status);
    close(supervisor->power_agent.pidfd);
    supervisor->power_agent = (struct process){.pidfd = -1};
    loop_at(supervisor->loop, deadline_in_ms(RESTART_MS), power_agent_start, supervisor);
}

static void on_child(void *argument, int signal)
{
    int wait_status = 0;

    (void) signal;
    for (pid_t pid = waitpid(-1, &wait_status, WNOHANG); pid > 0;
         pid = waitpid(-1, &wait_status, WNOHANG))
        reaped(argument, pid, wait_status);
}

static enum status come_up(struct supervisor *supervisor, struct start *start, struct error *err)
{
    const char *lab = start->spec->name;
    enum status status = leave_caller(lab, &start->ready, err);

    if (status == STATUS_OK)
        status = tie_to_parent(start->ready, err);
    if (status == STATUS_OK)
        status = own_mounts(supervisor, err);
    if (status == STATUS_OK)
        make_slots(supervisor);
    if (supervisor->power_node == NULL)
        return error_set(err, STATUS_INVALID, "lab %s has no power node", lab);
    if (status == STATUS_OK)
        status =
            cgroup_join(lab_cgroup(supervisor->arena, lab, supervisor->power_node->name, "agent"),
                        getpid(), err);
    if (status == STATUS_OK && sethostname(lab, strlen(lab)) < 0)
        status = error_system(err, "cannot set the host name %s", lab);
    if (status == STATUS_OK)
        status = switch_create(supervisor->power_node->address, err);
    if (status == STATUS_OK)
        status = loop_new(&supervisor->loop, err);
    if (status != STATUS_OK)
        return status;
    loop_on_signal(supervisor->loop, SIGCHLD, on_child, supervisor);
    return control_listen(supervisor, err);
}

static int supervisor_main(void *argument)
{
    struct start *start = argument;
    struct error err = {0};
    OWNED_ARENA struct arena *arena = arena_new();
    struct supervisor supervisor = {.spec = start->spec,
                                    .programs = start->programs,
                                    .arena = arena,
                                    .listener = -1,
                                    .started_ns = clock_boot_ns(),
                                    .power_agent.pidfd = -1};

    title_set("ordeal-lab %s", start->spec->name);
    log_init("lab", LOG_INFO);
    enum status status = come_up(&supervisor, start, &err);
    err.code = status;
    if (write(start->ready, &err, sizeof(err)) != (ssize_t) sizeof(err) || status != STATUS_OK)
        return 1;
    close(start->ready);
    log_line(LOG_INFO, "the switch of lab %s is up", start->spec->name);
    status = loop_run(supervisor.loop, &err);
    if (status != STATUS_OK)
        log_error(&err);
    return status == STATUS_OK ? 0 : 1;
}

static enum status await_ready(int fd, struct error *err)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    struct error reported = {0};

    if (poll(&poll_fd, 1, READY_TIMEOUT_MS) == 0)
        return error_set(err, STATUS_TIMEOUT, "the lab's supervisor does not come up");
    if (read(fd, &reported, sizeof(reported)) != (ssize_t) sizeof(reported))
        return error_set(err, STATUS_FAILED, "the lab's supervisor died at once");
    if (reported.code != STATUS_OK && err != NULL)
        *err = reported;
    return reported.code;
}

enum status supervisor_start(const struct lab_spec *spec, const struct lab_programs *programs,
                             struct process *ret_process, struct error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_system(err, "cannot make a pipe");
    struct start start = {.spec = spec, .programs = programs, .ready = ends[1]};
    struct process process = {.pidfd = -1};
    OWNED_FD int ready = ends[0];
    enum status status = namespace_fork(NAMESPACE_HOST, supervisor_main, &start, &process, err);
    close(ends[1]);
    if (status == STATUS_OK)
        status = await_ready(ready, err);
    if (status != STATUS_OK) {
        process_kill(&process);
        return status;
    }
    *ret_process = process;
    return STATUS_OK;
}
