/* SPDX-License-Identifier: MIT */
#include "lib/process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/owned.h"

enum { OUTPUT_MAX = 1024 * 1024, TERM_GRACE_MS = 1000, CHUNK = 16 * 1024 };

/* What the child needs after fork(), looked up before it. */
struct child_plan {
    const struct process_spec *spec;
    bool change_user;
    uid_t uid;
    gid_t gid;
    char home[PATH_MAX]; /* of that user */
    char **environment;
    int input, output, errors; /* descriptors for 0, 1 and 2 */
    int report;                /* write end: errno and step of a failed start */
    pid_t parent;
};

struct start_failure {
    int errnum;
    char step[32];
};

void process_result_done(struct process_result *result)
{
    buffer_done(&result->output);
    buffer_done(&result->errors);
}

static enum status look_up_user(struct child_plan *plan, struct error *err)
{
    if (plan->spec->user == NULL)
        return STATUS_OK;
    errno = 0;
    const struct passwd *entry = getpwnam(plan->spec->user);
    if (entry == NULL)
        return error_set(err, STATUS_NOT_FOUND, "no user %s on this host", plan->spec->user);
    plan->change_user = entry->pw_uid != geteuid();
    plan->uid = entry->pw_uid;
    plan->gid = entry->pw_gid;
    snprintf(plan->home, sizeof plan->home, "%s", entry->pw_dir);
    return STATUS_OK;
}

/* A variable that is there already wins. */
static void add_variable(char **environment, size_t *count, char *variable)
{
    size_t length = strcspn(variable, "=") + 1;

    for (size_t i = 0; i < *count; i++)
        if (strncmp(variable, environment[i], length) == 0)
            return;
    environment[(*count)++] = variable;
}

/*
 * The additions, then what belongs to the user, then the parent's environment. With the parent's
 * HOME libpq of another user would look for certificates where it may not look, and give up.
 */
static void build_environment(struct child_plan *plan, struct arena *arena)
{
    enum { OF_USER = 3 };
    size_t added = 0, inherited = 0, count = 0;

    while (plan->spec->env != NULL && plan->spec->env[added] != NULL)
        added++;
    while (environ[inherited] != NULL)
        inherited++;
    plan->environment = arena_array(arena, added + OF_USER + inherited + 1, sizeof(char *));
    for (size_t i = 0; i < added; i++)
        add_variable(plan->environment, &count, arena_strdup(arena, plan->spec->env[i]));
    if (plan->change_user) {
        add_variable(plan->environment, &count, arena_printf(arena, "HOME=%s", plan->home));
        add_variable(plan->environment, &count, arena_printf(arena, "USER=%s", plan->spec->user));
        add_variable(plan->environment, &count,
                     arena_printf(arena, "LOGNAME=%s", plan->spec->user));
    }
    for (size_t i = 0; i < inherited; i++)
        add_variable(plan->environment, &count, environ[i]);
}

static _Noreturn void child_fails(const struct child_plan *plan, const char *step)
{
    struct start_failure failure = {.errnum = errno};

    snprintf(failure.step, sizeof failure.step, "%s", step);
    ssize_t ignored = write(plan->report, &failure, sizeof failure);
    (void) ignored;
    _exit(127);
}

static void child_signals(void)
{
    sigset_t none;

    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP)
            signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/*
 * A service, and whatever runs as another user, gets none of the agent's protection. Raising the
 * score needs no privilege.
 */
static void default_oom_score(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    ssize_t ignored = write(fd, "0", 1);
    (void) ignored;
    close(fd);
}

static void child_identity(const struct child_plan *plan)
{
    const struct process_spec *spec = plan->spec;

    if (spec->service || plan->change_user)
        default_oom_score();
    if (spec->cgroup != NULL && cgroup_join(spec->cgroup, getpid(), NULL) != STATUS_OK)
        child_fails(plan, "joining its cgroup");
    if (plan->change_user && (initgroups(spec->user, plan->gid) != 0 || setgid(plan->gid) != 0 ||
                              setuid(plan->uid) != 0))
        child_fails(plan, "changing the user");
    if (chdir(spec->directory != NULL ? spec->directory : "/") != 0)
        child_fails(plan, "changing the directory");
}

static void child_descriptors(const struct child_plan *plan)
{
    if (dup2(plan->input, 0) < 0 || (plan->output >= 0 && dup2(plan->output, 1) < 0) ||
        (plan->errors >= 0 && dup2(plan->errors, 2) < 0))
        child_fails(plan, "connecting its output");
    /* descriptors of Ordeal are close-on-exec; what a library opened may not be */
    if (syscall(SYS_close_range, 3U, UINT_MAX, 4U /* CLOSE_RANGE_CLOEXEC */) != 0)
        return;
}

/* A parent that entered a PID namespace before it forked is outside of the child's: seen as 0. */
static bool parent_is_gone(pid_t parent)
{
    pid_t seen = getppid();

    return seen != parent && seen != 0;
}

static _Noreturn void child_runs(const struct child_plan *plan)
{
    child_signals();
    if (plan->spec->service)
        setsid();
    else
        setpgid(0, 0);
    child_identity(plan);
    /* after setuid(), which clears it */
    if (!plan->spec->service) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (parent_is_gone(plan->parent))
            _exit(127);
    }
    child_descriptors(plan);
    char **argv = (char **) (uintptr_t) plan->spec->argv;
    execvpe(argv[0], argv, plan->environment);
    child_fails(plan, "executing it");
}

static int open_pidfd(pid_t pid)
{
    return (int) syscall(SYS_pidfd_open, pid, 0U);
}

/* Nothing arrives on the report pipe when exec succeeded: it is closed by exec. */
static enum status await_start(pid_t pid, int report, const char *program, struct error *err)
{
    struct start_failure failure;
    ssize_t length;

    do
        length = read(report, &failure, sizeof failure);
    while (length < 0 && errno == EINTR);
    if (length == 0)
        return STATUS_OK;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (length != (ssize_t) sizeof failure)
        return error_set(err, STATUS_SYSTEM, "starting %s: no report from the child", program);
    errno = failure.errnum;
    error_system(err, "starting %s: %s", program, failure.step);
    if (failure.errnum == ENOENT)
        error_hint(err, "Install the package that has %s, or put it on PATH.", program);
    return STATUS_SYSTEM;
}

static enum status start_child(struct child_plan *plan, struct process *ret_process,
                               struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    enum status status = look_up_user(plan, err);
    int ends[2];

    if (status != STATUS_OK)
        return status;
    build_environment(plan, arena);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_system(err, "making a pipe");
    OWNED_FD int report = ends[0];
    plan->report = ends[1];
    plan->parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        child_runs(plan);
    close(ends[1]);
    if (pid < 0)
        return error_system(err, "forking for %s", plan->spec->argv[0]);
    if (!plan->spec->service)
        setpgid(pid, pid); /* as the child does: whoever comes first */
    status = await_start(pid, report, plan->spec->argv[0], err);
    if (status != STATUS_OK)
        return status;
    struct process process = {.pid = pid, .pidfd = open_pidfd(pid)};
    if (process.pidfd < 0) {
        status = error_system(err, "opening a pidfd of %s", plan->spec->argv[0]);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return status;
    }
    *ret_process = process;
    return STATUS_OK;
}

enum status process_start(const struct process_spec *spec, struct process *ret_process,
                          struct error *err)
{
    OWNED_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0)
        return error_system(err, "opening /dev/null");
    int output = spec->inherit_output ? -1 : null;
    struct child_plan plan = {.spec = spec, .input = null, .output = output, .errors = output};
    return start_child(&plan, ret_process, err);
}

/* --- process_run() --------------------------------------------------------------------------- */

struct run {
    struct process process;
    struct process_result *result;
    int input, output, errors; /* our ends; -1 when closed */
    const char *input_left;
    int64_t deadline_ns, kill_ns; /* kill_ns: after SIGTERM */
};

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void feed(struct run *run)
{
    ssize_t written = write(run->input, run->input_left, strlen(run->input_left));

    if (written > 0)
        run->input_left += written;
    else if (errno != EAGAIN && errno != EINTR)
        close_end(&run->input);
    if (*run->input_left == '\0')
        close_end(&run->input);
}

static void drain(int *fd, struct buffer *buffer)
{
    char chunk[CHUNK];
    ssize_t length = read(*fd, chunk, sizeof chunk);

    if (length > 0) {
        size_t room = buffer->maximum - buffer->length;
        buffer_append(buffer, chunk, (size_t) length < room ? (size_t) length : room);
    } else if (length == 0 || (errno != EAGAIN && errno != EINTR))
        close_end(fd);
}

static void enforce_deadline(struct run *run)
{
    int64_t now = clock_boot_ns();

    if (!run->result->timed_out && now >= run->deadline_ns) {
        run->result->timed_out = true;
        run->kill_ns = now + TERM_GRACE_MS * NS_PER_MS;
        kill(-run->process.pid, SIGTERM);
    } else if (run->result->timed_out && now >= run->kill_ns) {
        kill(-run->process.pid, SIGKILL);
    }
}

/* One turn; true when the child has ended and its output is read. */
static bool run_turn(struct run *run)
{
    struct pollfd fds[] = {{.fd = run->process.pidfd, .events = POLLIN},
                           {.fd = run->input, .events = POLLOUT},
                           {.fd = run->output, .events = POLLIN},
                           {.fd = run->errors, .events = POLLIN}};
    int64_t next = run->result->timed_out ? run->kill_ns : run->deadline_ns;
    bool was_ended = false;

    poll(fds, 4, deadline_left_ms(next));
    was_ended = fds[0].revents != 0;
    if (fds[1].revents != 0)
        feed(run);
    if (fds[2].revents != 0)
        drain(&run->output, &run->result->output);
    if (fds[3].revents != 0)
        drain(&run->errors, &run->result->errors);
    /* a grandchild may keep the pipes open: what it still writes is not ours to wait for */
    if (was_ended && fds[2].revents == 0 && fds[3].revents == 0)
        return true;
    if (!was_ended)
        enforce_deadline(run);
    return false;
}

static const char *last_line(struct buffer *buffer)
{
    while (buffer->length > 0 && strchr("\n\r ", buffer->data[buffer->length - 1]) != NULL)
        buffer->data[--buffer->length] = '\0';
    const char *text = buffer_text(buffer);
    const char *line = strrchr(text, '\n');
    return line == NULL ? text : line + 1;
}

static enum status conclude(const struct process_spec *spec, struct process_result *result,
                            int wait_status, struct error *err)
{
    result->exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
    result->signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    const char *line = last_line(&result->errors);
    if (result->timed_out) {
        error_set(err, STATUS_TIMEOUT, "%s did not end within %lld ms", spec->argv[0],
                  (long long) spec->timeout_ms);
        error_detail(err, "%s", line);
        return STATUS_TIMEOUT;
    }
    if (result->exit_code == 0)
        return STATUS_OK;
    if (result->signal != 0)
        return error_set(err, STATUS_FAILED, "%s was ended by signal %d: %s", spec->argv[0],
                         result->signal, line);
    error_set(err, STATUS_FAILED, "%s exited with %d: %s", spec->argv[0], result->exit_code, line);
    error_detail(err, "%s", buffer_text(&result->errors));
    return STATUS_FAILED;
}

static enum status make_pipes(int input[2], int output[2], int errors[2], struct error *err)
{
    if (pipe2(input, O_CLOEXEC) != 0)
        return error_system(err, "making a pipe");
    if (pipe2(output, O_CLOEXEC) != 0) {
        close(input[0]), close(input[1]);
        return error_system(err, "making a pipe");
    }
    if (pipe2(errors, O_CLOEXEC) != 0) {
        close(input[0]), close(input[1]), close(output[0]), close(output[1]);
        return error_system(err, "making a pipe");
    }
    fcntl(input[1], F_SETFL, O_NONBLOCK);
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    return STATUS_OK;
}

static int64_t run_deadline(const struct process_spec *spec)
{
    return spec->timeout_ms > 0 ? deadline_in_ms(spec->timeout_ms) : INT64_MAX;
}

static enum status run_captured(const struct process_spec *spec, struct process_result *result,
                                struct error *err)
{
    int input[2] = {-1, -1}, output[2] = {-1, -1}, errors[2] = {-1, -1};
    enum status status = make_pipes(input, output, errors, err);

    if (status != STATUS_OK)
        return status;
    struct child_plan plan = {.spec = spec,
                              .input = input[0],
                              .output = spec->inherit_output ? -1 : output[1],
                              .errors = spec->inherit_output ? -1 : errors[1]};
    struct run run = {.result = result,
                      .input = input[1],
                      .output = output[0],
                      .errors = errors[0],
                      .input_left = spec->input != NULL ? spec->input : "",
                      .deadline_ns = run_deadline(spec)};
    status = start_child(&plan, &run.process, err);
    close(input[0]), close(output[1]), close(errors[1]);
    if (status == STATUS_OK) {
        if (*run.input_left == '\0')
            close_end(&run.input);
        while (!run_turn(&run))
            ;
        int wait_status = 0;
        while (waitpid(run.process.pid, &wait_status, 0) < 0 && errno == EINTR)
            ;
        close(run.process.pidfd);
        status = conclude(spec, result, wait_status, err);
    }
    close_end(&run.input), close_end(&run.output), close_end(&run.errors);
    return status;
}

enum status process_run(const struct process_spec *spec, struct process_result *ret_result,
                        struct error *err)
{
    struct process_result result = {.output = BUFFER(OUTPUT_MAX), .errors = BUFFER(OUTPUT_MAX)};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;

    sigaction(SIGPIPE, &ignore, &before);
    enum status status = run_captured(spec, &result, err);
    sigaction(SIGPIPE, &before, NULL);
    if (ret_result != NULL)
        *ret_result = result;
    else
        process_result_done(&result);
    return status;
}

/* --- forked children ------------------------------------------------------------------------- */

enum status process_fork(int (*run)(void *), void *argument, struct process *ret_process,
                         struct error *err)
{
    pid_t parent = getpid();

    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return error_system(err, "forking");
    if (pid == 0) {
        child_signals();
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (parent_is_gone(parent))
            _exit(127);
        int code = run(argument);
        fflush(NULL);
        _exit(code);
    }
    setpgid(pid, pid);
    int pidfd = open_pidfd(pid);
    if (pidfd < 0) {
        enum status status = error_system(err, "opening a pidfd");
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return status;
    }
    fcntl(pidfd, F_SETFD, FD_CLOEXEC);
    *ret_process = (struct process){.pid = pid, .pidfd = pidfd};
    return STATUS_OK;
}

enum status process_reap(struct process *process, int64_t deadline_ns, int *ret_wait,
                         struct error *err)
{
    int wait_status = 0;

    for (;;) {
        pid_t pid = waitpid(process->pid, &wait_status, WNOHANG);
        if (pid == process->pid)
            break;
        if (pid < 0 && errno != EINTR)
            return error_system(err, "waiting for process %d", (int) process->pid);
        if (deadline_passed(deadline_ns))
            return error_set(err, STATUS_TIMEOUT, "process %d still runs", (int) process->pid);
        struct pollfd fd = {.fd = process->pidfd, .events = POLLIN};
        poll(&fd, 1, deadline_left_ms(deadline_ns));
    }
    close(process->pidfd);
    *process = (struct process){.pidfd = -1};
    if (ret_wait != NULL)
        *ret_wait = wait_status;
    return STATUS_OK;
}

void process_kill(struct process *process)
{
    if (process->pid <= 0)
        return;
    kill(-process->pid, SIGKILL);
    kill(process->pid, SIGKILL);
    while (waitpid(process->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (process->pidfd >= 0)
        close(process->pidfd);
    *process = (struct process){.pidfd = -1};
}
