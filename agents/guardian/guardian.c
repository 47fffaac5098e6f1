/* SPDX-License-Identifier: MIT */
/*
 * ordeal-guardian --state FOLDER --ordeald FILE [--undo-timeout MS] -- AGENT-ARGUMENT...
 *
 * Started by ordeald, not by people. See guardian.h.
 */
#include "agents/guardian/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/guardian/clients.h"
#include "agents/guardian/records.h"
#include "agents/guardian/supervise.h"
#include "agents/guardian/writer.h"

enum { EXIT_USAGE = 64, EXIT_BROKEN = 70, LOCK_PATIENCE_MS = 5000, LOCK_RETRY_MS = 50 };

static struct guardian guardian; /* zeroed, and locked with everything else */

void say(const char *format, ...)
{
    char text[512], when[WALL_TEXT_SIZE];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    clock_wall_text(clock_wall_ns(), when);
    dprintf(STDERR_FILENO, "%s info guardian: %s\n", when, text);
}

/* --- children -------------------------------------------------------------------------------- */

pid_t fork_child(int *ret_pidfd)
{
    pid_t parent = getpid();
    sigset_t none;
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(127);
        setpgid(0, 0);
        signal(SIGPIPE, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        return 0;
    }
    if (pid < 0)
        return -1;
    setpgid(pid, pid); /* as the child does: whoever comes first */
    *ret_pidfd = (int) syscall(SYS_pidfd_open, pid, 0U);
    if (*ret_pidfd >= 0)
        return pid;
    int errnum = errno;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    errno = errnum;
    return -1;
}

int reap_child(struct child *child)
{
    int status = 0;

    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(child->pidfd);
    *child = (struct child){.pidfd = -1};
    return status;
}

/* The whole group: a helper may have started something. */
void signal_child(const struct child *child, int number)
{
    if (child->pid > 0)
        kill(-child->pid, number);
}

/* --- the loop -------------------------------------------------------------------------------- */

void watch(struct watches *watches, int fd, short events,
           void (*call)(struct guardian *guardian, void *object, short events), void *object)
{
    if (watches->count == WATCHES_MAX)
        abort(); /* the tables are smaller than that */
    watches->fds[watches->count] = (struct pollfd){.fd = fd, .events = events};
    watches->calls[watches->count].call = call;
    watches->calls[watches->count++].object = object;
}

void watch_due(struct watches *watches, int64_t due_ns)
{
    if (due_ns < watches->due_ns)
        watches->due_ns = due_ns;
}

static void on_signal(struct guardian *g, void *object, short events)
{
    struct signalfd_siginfo info;

    (void) object;
    (void) events;
    if (read(g->signal_fd, &info, sizeof info) != (ssize_t) sizeof info || g->stopping)
        return;
    say("signal %u: stopping the agent and undoing what is open", info.ssi_signo);
    g->stopping = true;
    supervise_stop(g);
}

/* The agent is gone, and every open record is undone or has at least been tried. */
static bool may_stop(struct guardian *g)
{
    return g->stopping && g->agent.pid == 0 && records_settled(g);
}

static void turn(struct guardian *g)
{
    static struct watches watches;

    watches.count = 0;
    watches.due_ns = INT64_MAX;
    clients_watch(g, &watches);
    watch(&watches, g->signal_fd, POLLIN, on_signal, NULL);
    writer_watch(g, &watches);
    records_watch(g, &watches);
    supervise_watch(g, &watches);
    if (g->stopping && g->agent.pid != 0)
        watch_due(&watches, g->stop_deadline_ns);
    int timeout_ms = watches.due_ns == INT64_MAX ? -1 : deadline_left_ms(watches.due_ns);
    int ready = poll(watches.fds, (nfds_t) watches.count, timeout_ms);
    for (int i = 0; ready > 0 && i < watches.count; i++)
        if (watches.fds[i].revents != 0)
            watches.calls[i].call(g, watches.calls[i].object, watches.fds[i].revents);
    int64_t now_ns = clock_boot_ns();
    records_tick(g, now_ns);
    supervise_tick(g, now_ns);
}

/* --- the start ------------------------------------------------------------------------------- */

static bool write_oom_score(const char *value)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    size_t length = strlen(value);
    bool done = fd >= 0 && write(fd, value, length) == (ssize_t) length;

    if (fd >= 0)
        close(fd);
    return done;
}

/* As far as this host lets us; what is refused is said once. */
static void protect_self(void)
{
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        say("memory is not locked: %s", strerror(errno));
    /* without CAP_SYS_RESOURCE nothing below the inherited value is allowed */
    if (!write_oom_score("-1000") && !write_oom_score("0"))
        say("the OOM killer's score is not lowered: %s", strerror(errno));
}

static enum status lock_journal(struct guardian *g, struct error *err)
{
    int64_t deadline_ns = deadline_in_ms(LOCK_PATIENCE_MS);

    /* an earlier guardian's writer may still be waiting for the disk */
    while (flock(g->journal_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return error_system(err, "locking the journal");
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_CONFLICT, "another guardian uses folder %s",
                             g->options.state);
        poll(NULL, 0, LOCK_RETRY_MS);
    }
    return STATUS_OK;
}

static enum status open_state(struct guardian *g, struct error *err)
{
    const char *folder = g->options.state;

    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return error_system(err, "creating folder %s", folder);
    g->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (g->folder_fd < 0)
        return error_system(err, "opening folder %s", folder);
    g->journal_fd = openat(g->folder_fd, "journal", O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (g->journal_fd < 0)
        return error_system(err, "opening %s/journal", folder);
    /* the journal's name must be durable before what it says is */
    if (fsync(g->folder_fd) != 0)
        return error_system(err, "syncing folder %s", folder);
    return lock_journal(g, err);
}

static enum status open_signals(struct guardian *g, struct error *err)
{
    sigset_t signals;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    g->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (g->signal_fd < 0)
        return error_system(err, "making a signalfd");
    return STATUS_OK;
}

static enum status start(struct guardian *g, struct error *err)
{
    enum status status = clock_boot_id(g->boot_id, err);

    if (status == STATUS_OK)
        status = open_state(g, err);
    if (status == STATUS_OK)
        status = open_signals(g, err);
    if (status == STATUS_OK)
        status = writer_start(g, err);
    if (status == STATUS_OK)
        status = clients_listen(g, err);
    if (status == STATUS_OK)
        status = records_replay(g, err);
    return status;
}

static bool parse_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {{"state", required_argument, NULL, 's'},
                                          {"ordeald", required_argument, NULL, 'o'},
                                          {"undo-timeout", required_argument, NULL, 't'},
                                          {NULL, 0, NULL, 0}};
    int letter;

    options->undo_timeout_ms = UNDO_TIMEOUT_MS;
    while ((letter = getopt_long(argc, argv, "+", names, NULL)) != -1) {
        if (letter == 's')
            options->state = optarg;
        else if (letter == 'o')
            options->ordeald = optarg;
        else if (letter == 't')
            options->undo_timeout_ms = (int) strtol(optarg, NULL, 10);
        else
            return false;
    }
    options->agent_arguments = argv + optind;
    return options->state != NULL && options->ordeald != NULL && options->undo_timeout_ms > 0;
}

int main(int argc, char **argv)
{
    struct error err;

    if (!parse_options(argc, argv, &guardian.options)) {
        dprintf(STDERR_FILENO, "usage: ordeal-guardian --state FOLDER --ordeald FILE "
                               "[--undo-timeout MS] -- AGENT-ARGUMENT...\n");
        return EXIT_USAGE;
    }
    protect_self();
    if (start(&guardian, &err) != STATUS_OK) {
        say("%s", err.message);
        return EXIT_BROKEN;
    }
    while (!may_stop(&guardian))
        turn(&guardian);
    size_t left = records_count(&guardian);
    if (left > 0)
        say("%zu faults are still open; the next start tries again", left);
    writer_stop(&guardian);
    unlinkat(guardian.folder_fd, "guardian.sock", 0);
    return left == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
