/* SPDX-License-Identifier: MIT */
#include "agents/guardian/supervise.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/guardian/records.h"

enum { BACKOFF_FIRST_MS = 100, BACKOFF_MAX_MS = 5000, STEADY_MS = 10000, STOP_MS = 5000 };

static _Noreturn void run_agent(const struct guardian *guardian)
{
    static char agent_word[] = "--agent";
    char **arguments = guardian->options.agent_arguments;
    size_t count = 0;

    while (arguments[count] != NULL)
        count++;
    char **argv = calloc(count + 3, sizeof *argv);
    if (argv != NULL) {
        argv[0] = guardian->options.ordeald;
        argv[1] = agent_word;
        memcpy(argv + 2, arguments, count * sizeof *argv);
        execv(argv[0], argv);
    }
    say("executing %s: %s", guardian->options.ordeald, strerror(errno));
    _exit(127);
}

static void start_agent(struct guardian *guardian)
{
    pid_t pid = fork_child(&guardian->agent.pidfd);

    if (pid == 0)
        run_agent(guardian);
    guardian->agent_started_ns = clock_boot_ns();
    if (pid > 0) {
        guardian->agent.pid = pid;
        return;
    }
    say("starting the agent: %s", strerror(errno));
    guardian->agent_retry_ns = deadline_in_ms(BACKOFF_MAX_MS);
}

static void report_end(int status)
{
    if (WIFSIGNALED(status))
        say("the agent was ended by signal %d", WTERMSIG(status));
    else
        say("the agent exited with %d", WEXITSTATUS(status));
}

static void on_agent_dead(struct guardian *guardian, void *object, short events)
{
    int64_t ran_ns = clock_boot_ns() - guardian->agent_started_ns;

    (void) object;
    (void) events;
    report_end(reap_child(&guardian->agent));
    bool steady = ran_ns >= STEADY_MS * NS_PER_MS || guardian->agent_backoff_ms == 0;
    int64_t doubled_ms = 2 * guardian->agent_backoff_ms;
    int64_t backoff_ms = steady ? BACKOFF_FIRST_MS : doubled_ms;
    guardian->agent_backoff_ms = backoff_ms < BACKOFF_MAX_MS ? backoff_ms : BACKOFF_MAX_MS;
    guardian->agent_retry_ns = deadline_in_ms(guardian->agent_backoff_ms);
    records_undo_all(guardian, "death");
}

void supervise_watch(struct guardian *guardian, struct watches *watches)
{
    if (guardian->agent.pid != 0)
        watch(watches, guardian->agent.pidfd, POLLIN, on_agent_dead, NULL);
    else if (!guardian->stopping && records_settled(guardian))
        watch_due(watches, guardian->agent_retry_ns);
}

void supervise_tick(struct guardian *guardian, int64_t now_ns)
{
    if (guardian->stopping) {
        if (guardian->agent.pid != 0 && now_ns >= guardian->stop_deadline_ns) {
            signal_child(&guardian->agent, SIGKILL);
            guardian->stop_deadline_ns = INT64_MAX;
        }
        return;
    }
    if (guardian->agent.pid == 0 && now_ns >= guardian->agent_retry_ns && records_settled(guardian))
        start_agent(guardian);
}

void supervise_stop(struct guardian *guardian)
{
    guardian->stop_deadline_ns = deadline_in_ms(STOP_MS);
    signal_child(&guardian->agent, SIGTERM);
}
