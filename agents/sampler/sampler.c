/* SPDX-License-Identifier: MIT */
#include "agents/sampler/sampler.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "agents/agent.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/owned.h"
#include "lib/process.h"

enum { RESTART_MS = 1000, GRACE_MS = 3000, LOOK_MS = 5000, LONELY_MS = 60000 };

struct sampler {
    struct sampler *next; /* of the dying */
    struct agent *agent;
    struct sampler_order order;
    struct process process; /* pid 0: none runs */
    bool stopping, killed;
    int64_t seen_ns; /* an orchestrator was connected */
    loop_handle watch, restart_timer, kill_timer, look_timer;
    void (*on_end)(void *argument);
    void *argument;
};

/* Killed, and not reaped yet. */
static struct sampler *dying;

/* One page for the agent's life; jobs inherit it. */
static _Atomic pid_t *backend;

static void free_sampler(struct sampler *sampler)
{
    struct loop *loop = agent_loop(sampler->agent);

    loop_remove(loop, sampler->watch);
    loop_remove(loop, sampler->restart_timer);
    loop_remove(loop, sampler->kill_timer);
    loop_remove(loop, sampler->look_timer);
    if (sampler->process.pidfd >= 0)
        close(sampler->process.pidfd);
    close(sampler->order.control);
    free(sampler);
}

static void finish(struct sampler *sampler)
{
    void (*on_end)(void *argument) = sampler->on_end;
    void *argument = sampler->argument;
    bool tell = !sampler->killed;

    for (struct sampler **link = &dying; *link != NULL; link = &(*link)->next)
        if (*link == sampler) {
            *link = sampler->next;
            break;
        }
    free_sampler(sampler);
    if (tell)
        on_end(argument);
}

static void restart(void *argument);

static void on_worker_ended(void *argument, short events)
{
    struct sampler *sampler = argument;
    int wait_status = 0;

    (void) events;
    if (process_reap(&sampler->process, deadline_in_ms(0), &wait_status, NULL) != STATUS_OK)
        return;
    loop_remove(agent_loop(sampler->agent), sampler->watch);
    sampler->watch = 0;
    *sampler->order.backend = 0;
    if (sampler->stopping || sampler->killed) {
        finish(sampler);
        return;
    }
    log_line(LOG_WARNING, "the sampler ended (%s %d) and is started again",
             WIFSIGNALED(wait_status) ? "signal" : "exit code",
             WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
    sampler->restart_timer =
        loop_at(agent_loop(sampler->agent), deadline_in_ms(RESTART_MS), restart, sampler);
}

static enum status share_page(struct sampler *sampler, struct error *err)
{
    if (backend == NULL) {
        void *page =
            mmap(NULL, sizeof *backend, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            return error_system(err, "mapping the page of the sampler");
        backend = page;
    }
    sampler->order.backend = backend;
    return STATUS_OK;
}

pid_t sampler_session(void)
{
    return backend != NULL ? *backend : 0;
}

static enum status start_worker(struct sampler *sampler, struct error *err)
{
    *sampler->order.backend = 0;
    enum status status = process_fork(sampler_worker_main, &sampler->order, &sampler->process, err);

    if (status != STATUS_OK)
        return error_context(err, "starting the sampler");
    sampler->watch = loop_watch(agent_loop(sampler->agent), sampler->process.pidfd, POLLIN,
                                on_worker_ended, sampler);
    return STATUS_OK;
}

static void restart(void *argument)
{
    struct sampler *sampler = argument;
    struct error err = {0};

    sampler->restart_timer = 0;
    if (start_worker(sampler, &err) == STATUS_OK)
        return;
    log_error(&err);
    sampler->restart_timer =
        loop_at(agent_loop(sampler->agent), deadline_in_ms(RESTART_MS), restart, sampler);
}

/* An orchestrator that died leaves a session behind, not a sampler that fills the disk. */
static void look(void *argument)
{
    struct sampler *sampler = argument;

    if (agent_serving_run(sampler->agent) != NULL)
        sampler->seen_ns = clock_boot_ns();
    else if (clock_boot_ns() - sampler->seen_ns > LONELY_MS * NS_PER_MS)
        sampler_stop(sampler);
}

enum status sampler_start(struct agent *agent, const struct sampler_order *order,
                          void (*on_end)(void *argument), void *argument,
                          struct sampler **ret_sampler, struct error *err)
{
    struct sampler *sampler = calloc(1, sizeof *sampler);

    if (sampler == NULL)
        abort();
    *sampler = (struct sampler){.agent = agent,
                                .order = *order,
                                .process = {.pidfd = -1},
                                .seen_ns = clock_boot_ns(),
                                .on_end = on_end,
                                .argument = argument};
    sampler->order.control = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum status status = sampler->order.control < 0 ? error_system(err, "making an eventfd")
                                                    : share_page(sampler, err);
    if (status == STATUS_OK)
        status = start_worker(sampler, err);
    if (status != STATUS_OK) {
        free_sampler(sampler);
        return status;
    }
    sampler->look_timer = loop_every(agent_loop(agent), LOOK_MS, look, sampler);
    *ret_sampler = sampler;
    return STATUS_OK;
}

static void give_up(void *argument)
{
    struct sampler *sampler = argument;

    sampler->kill_timer = 0;
    kill(-sampler->process.pid, SIGKILL);
}

/* No worker may run just now: then it is over on the next turn, not within the caller. */
static void finish_later(void *argument)
{
    finish(argument);
}

void sampler_stop(struct sampler *sampler)
{
    struct loop *loop = agent_loop(sampler->agent);

    if (sampler->stopping)
        return;
    sampler->stopping = true;
    eventfd_write(sampler->order.control, 1);
    loop_remove(loop, sampler->restart_timer);
    sampler->restart_timer = 0;
    if (sampler->process.pid > 0)
        sampler->kill_timer = loop_at(loop, deadline_in_ms(GRACE_MS), give_up, sampler);
    else
        sampler->restart_timer = loop_at(loop, clock_boot_ns(), finish_later, sampler);
}

/* It may hang in the kernel: it is reaped when it ends, not waited for. */
void sampler_kill(struct sampler *sampler)
{
    sampler->killed = true;
    if (sampler->process.pid <= 0) {
        finish(sampler);
        return;
    }
    sampler->next = dying;
    dying = sampler;
    kill(-sampler->process.pid, SIGKILL);
}

bool sampler_stopping(const struct sampler *sampler)
{
    return sampler->stopping;
}
