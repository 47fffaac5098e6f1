/* SPDX-License-Identifier: MIT */
/*
 * Jobs: methods that block. Each runs in a forked child, which writes one JSON object,
 * {"result": ...} or {"error": ...}, to a pipe and ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/agent.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/log.h"
#include "lib/owned.h"

enum { GRACE_MS = 2000, TIMEOUT_MAX_MS = 24 * 3600 * 1000, CHUNK = 16 * 1024 };

/* --- the child ------------------------------------------------------------------------------- */

struct child_work {
    const struct method *method;
    struct method_call call;
    int output;
};

static json_t *work_out(const struct child_work *work)
{
    struct error err = {0};
    json_t *result = NULL;

    if (work->method->call(&work->call, &result, &err) == STATUS_OK)
        return json_pack("{s:o}", "result", result != NULL ? result : json_object());
    return json_pack("{s:o}", "error", json_from_error(&err));
}

/* A child that kept the agent's sockets would keep its connections alive. */
static void close_inherited(int keep)
{
    if (keep > 3)
        syscall(SYS_close_range, 3U, (unsigned) keep - 1, 0U);
    syscall(SYS_close_range, (unsigned) keep + 1, UINT_MAX, 0U);
}

static int run_child(void *argument)
{
    const struct child_work *work = argument;

    close_inherited(work->output);
    OWNED_JSON json_t *answer = work_out(work);
    OWNED_MEMORY char *text = answer == NULL ? NULL : json_dumps(answer, JSON_COMPACT);
    for (size_t sent = 0, length = text == NULL ? 0 : strlen(text); sent < length;) {
        ssize_t count = write(work->output, text + sent, length - sent);
        if (count < 0 && errno != EINTR)
            return 1;
        sent += count > 0 ? (size_t) count : 0;
    }
    return text == NULL ? 1 : 0;
}

/* --- the agent's side ------------------------------------------------------------------------ */

static void job_free(struct job *job)
{
    struct job **link = &job->agent->jobs;

    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    loop_remove(job->agent->loop, job->output_watch);
    loop_remove(job->agent->loop, job->end_watch);
    loop_remove(job->agent->loop, job->timer);
    if (job->output >= 0)
        close(job->output);
    if (job->process.pidfd >= 0)
        close(job->process.pidfd);
    buffer_done(&job->said);
    json_decref(job->params);
    free(job);
}

static void tell(struct job *job, json_t *answer)
{
    struct connection *connection = agent_connection(job->agent, job->connection);
    struct error err;

    json_object_set_new(answer, "job", json_integer(job->id));
    if (connection == NULL)
        json_decref(answer);
    else if (rpc_send(connection->rpc, rpc_notification("job.done", answer), &err) != STATUS_OK)
        log_line(LOG_WARNING, "answer of job %lld (%s): %s", (long long) job->id, job->method->name,
                 err.message);
}

static json_t *error_answer(const struct error *err)
{
    return json_pack("{s:o}", "error", json_from_error(err));
}

/* The child has ended: what did it say, or how did it end without a word? */
static json_t *conclude(const struct job *job, int wait_status)
{
    struct error err = {0};
    json_t *answer = NULL;

    if (job->said.length > 0 && !job->said.overflow &&
        json_parse_text(job->said.data, job->said.length, &answer, &err) == STATUS_OK)
        return answer;
    if (WIFSIGNALED(wait_status))
        error_set(&err, STATUS_INTERNAL, "%s was ended by signal %d", job->method->name,
                  WTERMSIG(wait_status));
    else
        error_set(&err, STATUS_INTERNAL, "%s ended without a result", job->method->name);
    return error_answer(&err);
}

/* Take what is there; closes the pipe at its end. */
static void drain(struct job *job)
{
    char chunk[CHUNK];
    ssize_t count = 0;

    while (job->output >= 0 && (count = read(job->output, chunk, sizeof chunk)) > 0)
        buffer_append(&job->said, chunk, (size_t) count);
    if (job->output < 0 || (count < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    loop_remove(job->agent->loop, job->output_watch);
    close(job->output);
    job->output = -1;
}

static void on_output(void *argument, short events)
{
    (void) events;
    drain(argument);
}

/* What a child of the child still writes is not waited for. */
static void on_end(void *argument, short events)
{
    struct job *job = argument;
    int wait_status = 0;

    (void) events;
    drain(job);
    if (process_reap(&job->process, deadline_in_ms(GRACE_MS), &wait_status, NULL) != STATUS_OK)
        return;
    if (!job->told)
        tell(job, conclude(job, wait_status));
    job_free(job);
}

/* It may hang in the kernel: it is reaped when it ends, not waited for. */
static void give_up(struct job *job)
{
    job->told = true;
    kill(-job->process.pid, SIGKILL);
}

static void on_deadline(void *argument)
{
    struct job *job = argument;
    struct error err = {0};

    job->timer = 0;
    if (job->told)
        return;
    error_set(&err, STATUS_TIMEOUT, "%s did not end in time and was killed", job->method->name);
    tell(job, error_answer(&err));
    give_up(job);
}

static int64_t timeout_of(const struct method *method, const json_t *params)
{
    int64_t timeout_ms = json_number(params, "timeout_ms", method->timeout_ms);

    return timeout_ms < 1 ? 1 : timeout_ms > TIMEOUT_MAX_MS ? TIMEOUT_MAX_MS : timeout_ms;
}

static size_t job_count(const struct agent *agent)
{
    size_t count = 0;

    for (const struct job *job = agent->jobs; job != NULL; job = job->next)
        count++;
    return count;
}

static enum status fork_job(struct agent *agent, const struct method *method, const json_t *params,
                            int64_t timeout_ms, struct job *job, struct error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_system(err, "making a pipe");
    struct child_work work = {.method = method,
                              .call = {.session = agent->session,
                                       .state_folder = agent->options->state,
                                       .params = params,
                                       .deadline_ns = deadline_in_ms(timeout_ms)},
                              .output = ends[1]};
    enum status status = process_fork(run_child, &work, &job->process, err);
    close(ends[1]);
    if (status != STATUS_OK) {
        close(ends[0]);
        return status;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    job->output = ends[0];
    return STATUS_OK;
}

enum status job_start(struct agent *agent, const struct method *method, const json_t *params,
                      int64_t *ret_job, struct error *err)
{
    int64_t timeout_ms = timeout_of(method, params);

    if (job_count(agent) >= JOBS_MAX)
        return error_set(err, STATUS_REFUSED, "%d jobs are running already", JOBS_MAX);
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL)
        abort();
    *job = (struct job){.agent = agent,
                        .id = ++agent->last_job,
                        .connection = agent->serving->id,
                        .method = method,
                        .output = -1,
                        .said = BUFFER(RPC_FRAME_MAX)};
    enum status status = fork_job(agent, method, params, timeout_ms, job, err);
    if (status != STATUS_OK) {
        free(job);
        return status;
    }
    job->params = json_incref((json_t *) (uintptr_t) params);
    job->output_watch = loop_watch(agent->loop, job->output, POLLIN, on_output, job);
    job->end_watch = loop_watch(agent->loop, job->process.pidfd, POLLIN, on_end, job);
    job->timer = loop_at(agent->loop, deadline_in_ms(timeout_ms + GRACE_MS), on_deadline, job);
    job->next = agent->jobs;
    agent->jobs = job;
    *ret_job = job->id;
    return STATUS_OK;
}

void jobs_call_off(struct agent *agent, const char *method, const char *uid)
{
    struct error err = {0};

    for (struct job *job = agent->jobs; job != NULL; job = job->next) {
        if (job->told || strcmp(job->method->name, method) != 0 ||
            (uid != NULL && strcmp(json_text(job->params, "uid", ""), uid) != 0))
            continue;
        /* first: once it is pending the kernel runs no instruction of it any more */
        give_up(job);
        error_set(&err, STATUS_CONFLICT, "%s was called off by an undo", method);
        tell(job, error_answer(&err));
    }
}

void jobs_kill(struct agent *agent)
{
    for (struct job *job = agent->jobs; job != NULL; job = job->next)
        give_up(job);
}
