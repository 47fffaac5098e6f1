/* SPDX-License-Identifier: MIT */
/*
 * Runs a command and sends it signals exactly when it has written a certain text, whatever the
 * load of the machine: the command is traced, and stands still between that write and its next
 * step.
 *
 *     signal_at '"event":"fault.injected"=INT' '"phase":"recovery"=TERM' -- ordeal run ...
 *
 * Each pair is waited for in turn. After the last one the command runs on untraced; after STOP it
 * stands still until somebody else sends SIGCONT. Ends as the
 * command ended, 128 + signal when a signal ended it; 99 when a text was never written.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIRS_MAX = 8, TEXT_MAX = 65536, EXIT_UNSEEN = 99 };

struct pair {
    const char *text;
    int signal;
};

struct tracing {
    pid_t pid;
    size_t count, next; /* pairs; the one that is waited for */
    struct pair pairs[PAIRS_MAX];
    bool matched; /* the write that has begun holds the text */
};

static void die(const char *what)
{
    fprintf(stderr, "signal_at: %s: %s\n", what, strerror(errno));
    exit(EXIT_UNSEEN);
}

static int signal_of(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } names[] = {
        {"INT", SIGINT}, {"TERM", SIGTERM}, {"HUP", SIGHUP}, {"KILL", SIGKILL}, {"STOP", SIGSTOP}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].number;
    fprintf(stderr, "signal_at: no signal %s\n", name);
    exit(EXIT_UNSEEN);
}

static void add_pair(struct tracing *tracing, char *argument)
{
    char *equals = strrchr(argument, '=');

    if (equals == NULL || tracing->count == PAIRS_MAX) {
        fprintf(stderr, "signal_at: %s is not TEXT=SIGNAL\n", argument);
        exit(EXIT_UNSEEN);
    }
    *equals = '\0';
    tracing->pairs[tracing->count++] =
        (struct pair){.text = argument, .signal = signal_of(equals + 1)};
}

static bool writes(const struct tracing *tracing, const struct __ptrace_syscall_info *info)
{
    static char text[TEXT_MAX];
    const char *wanted = tracing->pairs[tracing->next].text;
    size_t length = info->entry.args[2] < sizeof text ? info->entry.args[2] : sizeof text;
    struct iovec here = {.iov_base = text, .iov_len = length};
    struct iovec there = {.iov_base = (void *) (uintptr_t) info->entry.args[1], .iov_len = length};

    if (info->entry.nr != SYS_write)
        return false;
    ssize_t got = process_vm_readv(tracing->pid, &here, 1, &there, 1, 0);
    return got > 0 && memmem(text, (size_t) got, wanted, strlen(wanted)) != NULL;
}

/* The write is done: all pairs that wait for the same text are due. */
static void send_due(struct tracing *tracing)
{
    const char *text = tracing->pairs[tracing->next].text;

    tracing->matched = false;
    while (tracing->next < tracing->count && strcmp(tracing->pairs[tracing->next].text, text) == 0)
        if (kill(tracing->pid, tracing->pairs[tracing->next++].signal) != 0)
            die("kill");
}

static void at_call(struct tracing *tracing)
{
    struct __ptrace_syscall_info info = {0};

    if (ptrace(PTRACE_GET_SYSCALL_INFO, tracing->pid, sizeof info, &info) < 0)
        die("PTRACE_GET_SYSCALL_INFO");
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
        tracing->matched = writes(tracing, &info);
    else if (info.op == PTRACE_SYSCALL_INFO_EXIT && tracing->matched)
        send_due(tracing);
}

static int code_of(int wait)
{
    return WIFSIGNALED(wait) ? 128 + WTERMSIG(wait) : WEXITSTATUS(wait);
}

/* Until every signal is sent; true when the command has ended already. */
static bool trace(struct tracing *tracing, int *ret_wait)
{
    int pass_on = 0;

    while (tracing->next < tracing->count) {
        if (ptrace(PTRACE_SYSCALL, tracing->pid, NULL, (void *) (uintptr_t) pass_on) != 0 &&
            errno != ESRCH)
            die("PTRACE_SYSCALL");
        if (waitpid(tracing->pid, ret_wait, 0) < 0)
            die("waitpid");
        if (!WIFSTOPPED(*ret_wait))
            return true;
        pass_on = 0;
        if (WSTOPSIG(*ret_wait) == (SIGTRAP | 0x80))
            at_call(tracing);
        else
            pass_on = WSTOPSIG(*ret_wait);
    }
    return false;
}

static void start(struct tracing *tracing, char **argv)
{
    int wait;

    tracing->pid = fork();
    if (tracing->pid < 0)
        die("fork");
    if (tracing->pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execvp(argv[0], argv);
        die(argv[0]);
    }
    if (waitpid(tracing->pid, &wait, 0) < 0 || !WIFSTOPPED(wait))
        die("starting the command");
    if (ptrace(PTRACE_SETOPTIONS, tracing->pid, NULL,
               (void *) (uintptr_t) (PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) != 0)
        die("PTRACE_SETOPTIONS");
}

int main(int argc, char **argv)
{
    struct tracing tracing = {0};
    int index = 1, wait = 0;

    for (; index < argc && strcmp(argv[index], "--") != 0; index++)
        add_pair(&tracing, argv[index]);
    if (index + 1 >= argc) {
        fputs("usage: signal_at TEXT=SIGNAL... -- COMMAND...\n", stderr);
        return EXIT_UNSEEN;
    }
    start(&tracing, argv + index + 1);
    if (trace(&tracing, &wait)) {
        if (tracing.next == tracing.count)
            return code_of(wait);
        fprintf(stderr, "signal_at: never written: %s; the command ended with %d\n",
                tracing.pairs[tracing.next].text, code_of(wait));
        return EXIT_UNSEEN;
    }
    /* what was sent is delivered when it runs on, also to one that is dead already */
    if (ptrace(PTRACE_DETACH, tracing.pid, NULL, NULL) != 0 && errno != ESRCH)
        die("PTRACE_DETACH");
    if (waitpid(tracing.pid, &wait, 0) < 0)
        die("waitpid");
    return code_of(wait);
}
