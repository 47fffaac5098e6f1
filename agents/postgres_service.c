/* SPDX-License-Identifier: MIT */
/*
 * Start, stop and fence. The service's own commands are used when the topology names them, since a
 * server started behind the back of its service manager is one that the manager does not know.
 * Otherwise pg_ctl of the server's own version does it, as the owner of the data folder.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/postgres_local.h"
#include "agents/postgres_methods.h"
#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { ATTEMPT_MS = 1000, LOG_TAIL = 4096, KILL_ROUND_MS = 2000, SERVICE_MS = 3000 };

static enum status list(struct arena *arena, const struct session *session,
                        struct pg_processes *ret_processes, struct error *err)
{
    return pg_processes_list(arena, session->database.data, ret_processes, err);
}

/* "checkpointer 123, walsender 124" for an error. */
static void name_processes(const struct pg_processes *processes, struct buffer *text)
{
    enum { NAMED = 5 };

    for (size_t i = 0; i < processes->count && i < NAMED; i++)
        buffer_printf(text, "%s%s %d", i == 0 ? "" : ", ", pg_class_name(processes->items[i].class),
                      (int) processes->items[i].id.pid);
    if (processes->count > NAMED)
        buffer_printf(text, " and %zu more", processes->count - NAMED);
}

static enum status wait_all_gone(const struct session *session, int64_t deadline_ns,
                                 struct error *err)
{
    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        OWNED_BUFFER struct buffer text = BUFFER(1024);
        struct pg_processes processes = {0};
        enum status status = list(arena, session, &processes, err);
        if (status != STATUS_OK || processes.count == 0)
            return status;
        if (process_wait_gone(processes.items[0].id, deadline_ns, NULL) == STATUS_OK)
            continue;
        name_processes(&processes, &text);
        error_set(err, STATUS_TIMEOUT, "PostgreSQL on %s still runs: %s", session->node,
                  buffer_text(&text));
        error_hint(err, "Fencing (postgres.fence) kills what is left.");
        return STATUS_TIMEOUT;
    }
}

/* --- start ------------------------------------------------------------------------------------ */

static const char *log_path(struct arena *arena, const struct session *session)
{
    return arena_printf(arena, "%s/ordeal-%s-postgres.log", postgres_parent(arena, session),
                        session->node);
}

/* The server writes there as its owner, who may not be allowed to create files in that folder. */
static enum status prepare_log(const struct session *session, const char *path, struct error *err)
{
    uid_t uid = 0;
    gid_t gid = 0;
    enum status status = postgres_owner(session, &uid, &gid, err);

    if (status != STATUS_OK)
        return status;
    OWNED_FD int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fchown(fd, uid, gid) != 0)
        return error_system(err, "creating the server's log %s", path);
    return STATUS_OK;
}

/* The last line that says FATAL, else the last line. */
static const char *telling_line(const char *text)
{
    const char *last = text;
    const char *fatal = NULL;

    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *word = strstr(line, "FATAL:");
        if (word != NULL && word < line + strcspn(line, "\n"))
            fatal = line;
        last = line;
    }
    return fatal != NULL ? fatal : last;
}

static off_t log_size(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 ? info.st_size : 0;
}

/* What the server said since the start was tried goes into the error's detail. */
static void explain_from_log(const char *path, off_t begun_at, struct error *err)
{
    char text[LOG_TAIL + 1];
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t tail = log_size(path) - LOG_TAIL;
    ssize_t length = fd < 0 ? -1 : pread(fd, text, LOG_TAIL, tail > begun_at ? tail : begun_at);

    if (length <= 0)
        return;
    while (length > 0 && text[length - 1] == '\n')
        length--;
    text[length] = '\0';
    const char *line = telling_line(text);
    error_detail(err, "%.*s", (int) strcspn(line, "\n"), line);
    error_hint(err, "The server's log is %s.", path);
}

static enum status run_start(const struct session *session, const char *log, int64_t deadline_ns,
                             struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const struct session_database *database = &session->database;
    int left_ms = deadline_left_ms(deadline_ns);
    const char *seconds = arena_printf(arena, "%d", left_ms / 1000 + 1);
    const char *pg_ctl[] = {postgres_program(arena, session, "pg_ctl"),
                            "start",
                            "-w",
                            "-s",
                            "-t",
                            seconds,
                            "-D",
                            database->data,
                            "-l",
                            log,
                            NULL};
    struct process_spec spec = {
        .argv = database->start != NULL ? database->start : pg_ctl,
        .user = database->start != NULL ? NULL : database->owner,
        .cgroup = database->cgroup,
        .timeout_ms = left_ms,
        .service = true,
    };
    enum status status = STATUS_OK;

    if (database->start == NULL)
        status = prepare_log(session, log, err);
    return status == STATUS_OK ? process_run(&spec, NULL, err) : status;
}

/* Refused while it starts up (57P03), not there yet, or too many sessions: go on waiting. */
static bool worth_waiting(enum status status, const struct error *err)
{
    if (status == STATUS_UNREACHABLE || status == STATUS_TIMEOUT)
        return true;
    return status == STATUS_DATABASE &&
           (strcmp(err->detail, "57P03") == 0 || strcmp(err->detail, "53300") == 0);
}

static bool postmaster_alive(const struct session *session)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes processes = {0};

    return list(arena, session, &processes, NULL) == STATUS_OK &&
           postgres_postmaster(&processes) != NULL;
}

/* Until it answers a query; a standby does so when it is consistent. */
static enum status wait_accepting(const struct session *session, int64_t deadline_ns,
                                  struct error *err)
{
    struct error last = {0};

    do {
        OWNED_PG PGconn *connection = NULL;
        bool in_recovery;
        enum status status = postgres_connect(
            session, NULL, NULL, postgres_deadline(deadline_ns, ATTEMPT_MS), &connection, &last);
        if (status == STATUS_OK)
            status = postgres_in_recovery(connection, postgres_deadline(deadline_ns, ATTEMPT_MS),
                                          &in_recovery, &last);
        if (status == STATUS_OK)
            return STATUS_OK;
        if (!worth_waiting(status, &last)) {
            if (err != NULL)
                *err = last;
            return status;
        }
        if (!postmaster_alive(session))
            return error_set(err, STATUS_FAILED, "PostgreSQL on %s ended while it started",
                             session->node);
    } while (postgres_wait_turn(deadline_ns));
    return error_set(err, STATUS_TIMEOUT, "PostgreSQL on %s accepts no connection: %s",
                     session->node, last.message);
}

static json_t *since(const char *name, bool already)
{
    return json_pack("{s:I, s:b}", name, (json_int_t) clock_boot_ns(), "already", already);
}

static enum status start_stopped(const struct session *session, int64_t deadline_ns,
                                 struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *log = log_path(arena, session);
    off_t begun_at = log_size(log);
    const char *version = arena_printf(arena, "%s/PG_VERSION", session->database.data);

    if (access(version, F_OK) != 0)
        return error_set(err, STATUS_NOT_FOUND, "no PostgreSQL data in %s", session->database.data);
    /* children of a dead postmaster hold its shared memory: nothing starts before they are gone */
    enum status status = wait_all_gone(session, deadline_ns, err);
    if (status == STATUS_OK)
        status = postgres_wait_reaped(session, deadline_ns, err);
    if (status == STATUS_OK)
        status = run_start(session, log, deadline_ns, err);
    if (status == STATUS_OK)
        status = wait_accepting(session, deadline_ns, err);
    if (status != STATUS_OK && session->database.start == NULL)
        explain_from_log(log, begun_at, err);
    return status;
}

enum status postgres_start(const struct method_call *call, json_t **ret_result, struct error *err)
{
    const struct session *session = call->session;
    bool already = postmaster_alive(session);
    enum status status = already ? wait_accepting(session, call->deadline_ns, err)
                                 : start_stopped(session, call->deadline_ns, err);

    if (status != STATUS_OK)
        return error_context(err, "starting PostgreSQL on %s", session->node);
    *ret_result = since("started_ns", already);
    return STATUS_OK;
}

/* --- stop ------------------------------------------------------------------------------------- */

static enum status run_stop(const struct session *session, const char *mode, int64_t deadline_ns,
                            struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const struct session_database *database = &session->database;
    bool own = database->stop != NULL && strcmp(mode, "fast") == 0;
    const char *pg_ctl[] = {postgres_program(arena, session, "pg_ctl"),
                            "stop",
                            "-W",
                            "-s",
                            "-m",
                            mode,
                            "-D",
                            database->data,
                            NULL};
    struct process_spec spec = {
        .argv = own ? database->stop : pg_ctl,
        .user = own ? NULL : database->owner,
        .timeout_ms = deadline_left_ms(deadline_ns),
    };

    return process_run(&spec, NULL, err);
}

enum status postgres_stop(const struct method_call *call, json_t **ret_result, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const struct session *session = call->session;
    const char *mode = json_text(call->params, "mode", "fast");
    struct pg_processes processes = {0};

    if (strcmp(mode, "smart") != 0 && strcmp(mode, "fast") != 0 && strcmp(mode, "immediate") != 0)
        return error_set(err, STATUS_INVALID, "mode \"%s\" is none of smart, fast, immediate",
                         mode);
    enum status status = list(arena, session, &processes, err);
    bool already = status == STATUS_OK && processes.count == 0;
    if (status == STATUS_OK && postgres_postmaster(&processes) != NULL)
        status = run_stop(session, mode, call->deadline_ns, err);
    if (status == STATUS_OK)
        status = wait_all_gone(session, call->deadline_ns, err);
    if (status != STATUS_OK)
        return error_context(err, "stopping PostgreSQL on %s (%s)", session->node, mode);
    *ret_result = since("stopped_ns", already);
    return STATUS_OK;
}

/* --- fence ------------------------------------------------------------------------------------ */

/* A process in a frozen group dies of SIGKILL only when it is thawed (version 1). */
static void thaw(struct process_id id, int64_t deadline_ns)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *group = NULL;
    bool frozen = false;

    if (cgroup_of(arena, id.pid, &group, NULL) != STATUS_OK || group[0] == '\0')
        return;
    if (cgroup_frozen(group, &frozen, NULL) == STATUS_OK && frozen &&
        cgroup_freeze(group, false, deadline_ns, NULL) != STATUS_OK)
        return; /* what is left alive is seen by the caller */
}

/*
 * The postmaster comes first in the list, so that it starts no new child. Its children may end by
 * themselves when they see it dead: what counts is what was there and is gone.
 */
static enum status kill_round(const struct pg_processes *processes, int64_t deadline_ns,
                              json_int_t *killed, struct error *err)
{
    int64_t round_ns = postgres_deadline(deadline_ns, KILL_ROUND_MS);

    for (size_t i = 0; i < processes->count; i++) {
        enum status status = process_signal(processes->items[i].id, SIGKILL, err);
        if (status != STATUS_OK && status != STATUS_NOT_FOUND)
            return status;
    }
    if (processes->count > 0)
        thaw(processes->items[0].id, deadline_ns);
    for (size_t i = 0; i < processes->count; i++)
        if (process_wait_gone(processes->items[i].id, round_ns, NULL) == STATUS_OK)
            (*killed)++; /* the next round lists what is left */
    return STATUS_OK;
}

static enum status kill_all(const struct session *session, int64_t deadline_ns, json_int_t *killed,
                            struct error *err)
{
    for (;;) {
        OWNED_ARENA struct arena *arena = arena_new();
        OWNED_BUFFER struct buffer text = BUFFER(1024);
        struct pg_processes processes = {0};
        enum status status = list(arena, session, &processes, err);
        if (status != STATUS_OK || processes.count == 0)
            return status;
        if (deadline_passed(deadline_ns)) {
            name_processes(&processes, &text);
            return error_set(err, STATUS_TIMEOUT, "killed but not gone: %s", buffer_text(&text));
        }
        status = kill_round(&processes, deadline_ns, killed, err);
        if (status != STATUS_OK)
            return status;
    }
}

/*
 * A service manager may start again what was killed. Its own stop command tells it that the server
 * is to stay down; that the command fails on a server that is dead is no failure of the fence.
 */
static void tell_service(const struct session *session, int64_t deadline_ns)
{
    struct process_spec spec = {.argv = session->database.stop,
                                .timeout_ms =
                                    deadline_left_ms(postgres_deadline(deadline_ns, SERVICE_MS))};

    if (spec.argv != NULL && process_run(&spec, NULL, NULL) != STATUS_OK)
        return; /* what it was to bring about is looked at next */
}

/* errno of a connection to the server's port; 0 when somebody took it, ETIMEDOUT after a second. */
static int try_port(const struct session *session, int64_t deadline_ns)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t) session->database.port)};
    OWNED_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int problem = 0;
    socklen_t size = sizeof problem;

    if (fd < 0 || inet_pton(AF_INET, session->address, &address.sin_addr) != 1)
        return EINVAL;
    if (connect(fd, (struct sockaddr *) &address, sizeof address) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    if (poll(&entry, 1, deadline_left_ms(postgres_deadline(deadline_ns, ATTEMPT_MS))) <= 0)
        return ETIMEDOUT;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size);
    return problem;
}

static enum status wait_port_closed(const struct session *session, int64_t deadline_ns,
                                    struct error *err)
{
    int problem;

    do {
        problem = try_port(session, deadline_ns);
        /* without its address nobody can reach the node either */
        if (problem == ECONNREFUSED || problem == EADDRNOTAVAIL || problem == ENETUNREACH ||
            problem == EHOSTUNREACH)
            return STATUS_OK;
    } while (postgres_wait_turn(deadline_ns));
    return error_set(err, STATUS_TIMEOUT, "port %d of %s is not seen closed: %s",
                     session->database.port, session->address,
                     problem == 0 ? "a connection was accepted" : strerror(problem));
}

enum status postgres_fence(const struct method_call *call, json_t **ret_result, struct error *err)
{
    const struct session *session = call->session;
    json_int_t killed = 0;
    enum status status = kill_all(session, call->deadline_ns, &killed, err);

    if (status == STATUS_OK && session->database.stop != NULL) {
        tell_service(session, call->deadline_ns);
        status = kill_all(session, call->deadline_ns, &killed, err);
    }
    if (status == STATUS_OK)
        status = wait_port_closed(session, call->deadline_ns, err);
    if (status != STATUS_OK)
        return error_context(err, "fencing PostgreSQL on %s", session->node);
    *ret_result =
        json_pack("{s:I, s:I}", "fenced_ns", (json_int_t) clock_boot_ns(), "killed", killed);
    return STATUS_OK;
}
