/* SPDX-License-Identifier: MIT */
#include "tests/support/postgres_fixture.h"

#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/postgres_methods.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "lib/pg_processes.h"
#include "lib/process.h"

#define OWNER "postgres"
#define CHECKED(call)                                                                              \
    do {                                                                                           \
        struct error checked_error = {0};                                                          \
        struct error *err = &checked_error;                                                        \
        enum status checked_status = (call);                                                       \
        ck_assert_msg(checked_status == STATUS_OK, "%s: %s", #call, err->message);                 \
    } while (0)

enum { STEP_MS = 30000, WAIT_MS = 20000, KILL_MS = 10000 };

static const char *const bin_folders[] = {
    "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/16/bin", "/usr/lib/postgresql/17/bin",
    "/usr/lib/postgresql/18/bin", "/usr/lib/postgresql/14/bin", "/usr/lib/postgresql/13/bin",
};

static const char *find_bin(void)
{
    char path[128];

    for (size_t i = 0; i < sizeof bin_folders / sizeof bin_folders[0]; i++) {
        snprintf(path, sizeof path, "%s/initdb", bin_folders[i]);
        if (access(path, X_OK) == 0)
            return bin_folders[i];
    }
    return NULL;
}

bool postgres_fixture_possible(const char **ret_reason)
{
    *ret_reason = geteuid() != 0            ? "not root"
                  : find_bin() == NULL      ? "PostgreSQL's programs are not installed"
                  : getpwnam(OWNER) == NULL ? "there is no user " OWNER
                                            : NULL;
    return *ret_reason == NULL;
}

/* --- tearing down ---------------------------------------------------------------------------- */

static void kill_server(const char *data)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes processes = {0};
    int64_t deadline_ns = deadline_in_ms(KILL_MS);

    do {
        if (pg_processes_list(arena, data, &processes, NULL) != STATUS_OK)
            return;
        for (size_t i = 0; i < processes.count; i++)
            if (process_signal(processes.items[i].id, SIGKILL, NULL) == STATUS_OK &&
                process_wait_gone(processes.items[i].id, deadline_ns, NULL) != STATUS_OK)
                return;
    } while (processes.count > 0 && !deadline_passed(deadline_ns));
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void) info;
    (void) kind;
    (void) walk;
    return remove(path);
}

static void tear_down(const struct postgres_fixture *fixture)
{
    for (size_t i = 0; i < fixture->count; i++)
        kill_server(fixture->servers[i].data);
    nftw(fixture->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Wait for the end of everybody who holds the other end, then tear down what is still there. */
static _Noreturn void guard(const struct postgres_fixture *fixture, int end)
{
    char byte;

    setsid();
    for (int fd = 0; fd < 1024; fd++) /* the test runner's pipes, too */
        if (fd != end)
            close(fd);
    while (read(end, &byte, 1) > 0)
        ;
    tear_down(fixture);
    _exit(0);
}

void postgres_fixture_reap(void)
{
    int status = 0;
    pid_t parent = getpid();

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        return;
    }
    for (pid_t ended = 0; child > 0 && ended != child;)
        ended = waitpid(-1, &status, 0);
    _exit(child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void start_guard(struct postgres_fixture *fixture)
{
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        close(ends[1]);
        /* twice, so that nobody has to reap it */
        if (fork() == 0)
            guard(fixture, ends[0]);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    close(ends[0]);
    fixture->guard = ends[1];
}

void postgres_fixture_free(struct postgres_fixture *fixture)
{
    if (fixture == NULL)
        return;
    tear_down(fixture);
    close(fixture->guard);
    arena_free(fixture->arena);
}

/* --- files ------------------------------------------------------------------------------------ */

static void give(const char *path, mode_t mode, bool to_owner)
{
    const struct passwd *owner = getpwnam(OWNER);

    ck_assert_int_eq(chmod(path, mode), 0);
    if (to_owner)
        ck_assert_int_eq(chown(path, owner->pw_uid, owner->pw_gid), 0);
}

static void write_file(const char *path, const char *text, const char *how, mode_t mode,
                       bool to_owner)
{
    OWNED_FILE FILE *file = fopen(path, how);

    ck_assert_msg(file != NULL, "opening %s", path);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fflush(file), 0);
    give(path, mode, to_owner);
}

static const char *make_folder(struct postgres_fixture *fixture, const char *path, bool to_owner)
{
    ck_assert_msg(mkdir(path, 0755) == 0, "creating %s", path);
    give(path, to_owner ? 0700 : 0755, to_owner);
    return arena_strdup(fixture->arena, path);
}

static const char *password_file(struct postgres_fixture *fixture, const char *user)
{
    const char *path = arena_printf(fixture->arena, "%s/%s.pass", fixture->folder, user);

    write_file(path, arena_printf(fixture->arena, "%s-secret\n", user), "w", 0600, false);
    return path;
}

static void run_as_owner(const char *const argv[])
{
    OWNED_RESULT struct process_result result = {0};
    struct error err = {0};
    struct process_spec spec = {.argv = argv, .user = OWNER, .timeout_ms = STEP_MS};

    enum status status = process_run(&spec, &result, &err);
    ck_assert_msg(status == STATUS_OK, "%s\n%s%s", err.message, buffer_text(&result.output),
                  buffer_text(&result.errors));
}

static int free_port(size_t count)
{
    for (int attempt = 0; attempt < 50; attempt++) {
        int fds[POSTGRES_FIXTURE_SERVERS];
        in_port_t port = 0;
        bool free = true;
        for (size_t i = 0; i < count; i++) {
            struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = port};
            socklen_t size = sizeof address;
            address.sin_addr.s_addr = htonl(0x7F00000BU + (uint32_t) i);
            fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            free = free && bind(fds[i], (struct sockaddr *) &address, sizeof address) == 0;
            getsockname(fds[i], (struct sockaddr *) &address, &size);
            port = address.sin_port;
        }
        for (size_t i = 0; i < count; i++)
            close(fds[i]);
        if (free)
            return ntohs(port);
    }
    ck_abort_msg("no port is free on all loopback addresses");
    return 0;
}

/* --- servers ---------------------------------------------------------------------------------- */

static void describe(struct postgres_fixture *fixture, size_t index)
{
    struct arena *arena = fixture->arena;
    struct postgres_server *server = &fixture->servers[index];

    server->name = arena_printf(arena, "n%zu", index + 1);
    server->slot = server->name;
    server->address = arena_printf(arena, "127.0.0.%zu", 11 + index);
    server->home =
        make_folder(fixture, arena_printf(arena, "%s/%s", fixture->folder, server->name), true);
    server->data = arena_printf(arena, "%s/data", server->home);
    server->spool = make_folder(
        fixture, arena_printf(arena, "%s/%s-spool", fixture->folder, server->name), false);
}

static void make_certificate(struct postgres_fixture *fixture)
{
    const char *key = arena_printf(fixture->arena, "%s/n1/tls.key", fixture->folder);
    const char *crt = arena_printf(fixture->arena, "%s/n1/tls.crt", fixture->folder);
    const char *argv[] = {
        "openssl", "req",     "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes",  "-keyout", key,     "-out",    crt,  "-subj",    "/CN=ordeal-test",
        "-days",   "1",       NULL};

    run_as_owner(argv);
    give(crt, 0644, false);
    give(key, 0600, true);
    fixture->ssl_root = arena_printf(fixture->arena, "%s/ca.crt", fixture->folder);
    const char *copy[] = {"cp", crt, fixture->ssl_root, NULL};
    CHECKED(process_run(&(struct process_spec){.argv = copy, .timeout_ms = STEP_MS}, NULL, err));
}

static void configure(const struct postgres_fixture *fixture, size_t index)
{
    const struct postgres_server *server = &fixture->servers[index];
    struct arena *arena = fixture->arena;
    const char *settings = arena_printf(
        arena,
        "listen_addresses = '%s'\nport = %d\nunix_socket_directories = '%s'\n"
        "ssl = on\nssl_cert_file = '%s/n1/tls.crt'\nssl_key_file = '%s/n1/tls.key'\n",
        server->address, fixture->port, server->home, fixture->folder, fixture->folder);
    const char *path = arena_printf(arena, "%s/postgresql.conf", server->data);

    write_file(path, settings, index == 0 ? "a" : "w", 0600, true);
    write_file(path,
               "fsync = off\nshared_buffers = 16MB\nmax_connections = 40\nautovacuum = off\n"
               "wal_log_hints = on\nwal_keep_size = 128MB\nmin_wal_size = 4MB\n"
               "max_wal_size = 64MB\nmax_wal_senders = 10\nmax_replication_slots = 10\n"
               "wal_sender_timeout = 2s\nwal_receiver_timeout = 2s\n"
               "wal_retrieve_retry_interval = 200ms\nmax_prepared_transactions = 5\n"
               "logging_collector = off\n",
               "a", 0600, true);
    write_file(arena_printf(arena, "%s/pg_hba.conf", server->data),
               "local all all scram-sha-256\n"
               "hostssl all all 127.0.0.0/8 scram-sha-256\n"
               "hostssl replication all 127.0.0.0/8 scram-sha-256\n",
               "w", 0600, true);
}

static void make_primary(struct postgres_fixture *fixture)
{
    struct arena *arena = fixture->arena;
    const char *initdb = arena_printf(arena, "%s/initdb", fixture->bin);
    const char *secret = arena_printf(arena, "%s/n1/initial.pass", fixture->folder);
    const char *argv[] = {initdb,       "-D",           fixture->servers[0].data,
                          "-U",         "ordeal_admin", "--pwfile",
                          secret,       "-A",           "scram-sha-256",
                          "-k",         "--no-sync",    "--wal-segsize",
                          "1",          "--locale",     "C.UTF-8",
                          "--encoding", "UTF8",         NULL};

    write_file(secret, "ordeal_admin-secret\n", "w", 0600, true);
    run_as_owner(argv);
    configure(fixture, 0);
    postgres_fixture_start(fixture, 0);
    static const char *const statements[] = {
        "CREATE ROLE ordeal_load LOGIN PASSWORD 'ordeal_load-secret'",
        "CREATE ROLE ordeal_replication LOGIN REPLICATION PASSWORD 'ordeal_replication-secret'",
        "CREATE DATABASE ordeal OWNER ordeal_load",
    };
    struct pg_target target = postgres_fixture_target(fixture, 0, "ordeal_admin", "postgres");
    OWNED_PG PGconn *connection = NULL;
    CHECKED(pg_connect(&target, deadline_in_ms(WAIT_MS), &connection, err));
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        CHECKED(pg_query(connection, statements[i], deadline_in_ms(WAIT_MS), NULL, err));
}

static void make_standby(struct postgres_fixture *fixture, size_t index)
{
    struct arena *arena = fixture->arena;
    const struct postgres_server *server = &fixture->servers[index];
    const char *pass_file = arena_printf(arena, "%s/fixture.pgpass", server->home);
    const char *source = arena_printf(
        arena, "host=%s port=%d user=ordeal_replication passfile=%s application_name=%s",
        fixture->servers[0].address, fixture->port, pass_file, server->name);
    const char *program = arena_printf(arena, "%s/pg_basebackup", fixture->bin);
    const char *argv[] = {program, "-D", server->data, "-d", source,   "-c",        "fast", "-R",
                          "-C",    "-S", server->slot, "-X", "stream", "--no-sync", NULL};

    write_file(pass_file, "*:*:*:ordeal_replication:ordeal_replication-secret\n", "w", 0600, true);
    run_as_owner(argv);
    configure(fixture, index);
    postgres_fixture_start(fixture, index);
    postgres_fixture_wait(fixture, index, "SELECT status FROM pg_stat_wal_receiver", "streaming");
}

struct postgres_fixture *postgres_fixture_new(size_t servers)
{
    struct arena *arena = arena_new();
    struct postgres_fixture *fixture = arena_alloc(arena, sizeof *fixture);
    const char *reason = NULL;

    fixture->arena = arena;
    ck_assert_uint_le(servers, POSTGRES_FIXTURE_SERVERS);
    ck_assert_msg(postgres_fixture_possible(&reason), "no servers for this test: %s", reason);
    char *folder = arena_strdup(arena, "/tmp/ordeal-pg-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chmod(folder, 0755), 0);
    fixture->folder = folder;
    fixture->bin = find_bin();
    fixture->version = atoi(fixture->bin + strlen("/usr/lib/postgresql/"));
    fixture->count = servers;
    fixture->port = free_port(servers);
    for (size_t i = 0; i < servers; i++)
        describe(fixture, i);
    start_guard(fixture);
    fixture->superuser_file = password_file(fixture, "ordeal_admin");
    fixture->workload_file = password_file(fixture, "ordeal_load");
    fixture->replication_file = password_file(fixture, "ordeal_replication");
    make_certificate(fixture);
    make_primary(fixture);
    for (size_t i = 1; i < servers; i++)
        make_standby(fixture, i);
    return fixture;
}

/* pg_ctl's own waiting; its server must not keep the test runner's pipes open. */
void postgres_fixture_start(const struct postgres_fixture *fixture, size_t server)
{
    char program[128];
    char log[160];

    snprintf(program, sizeof program, "%s/pg_ctl", fixture->bin);
    snprintf(log, sizeof log, "%s/log", fixture->servers[server].home);
    const char *argv[] = {program, "start", "-w", "-t", "20", "-D", fixture->servers[server].data,
                          "-l",    log,     "-s", NULL};
    struct process_spec spec = {
        .argv = argv, .user = OWNER, .timeout_ms = STEP_MS, .service = true};
    CHECKED(process_run(&spec, NULL, err));
}

void postgres_fixture_stop(const struct postgres_fixture *fixture, size_t server, const char *mode)
{
    char program[128];

    snprintf(program, sizeof program, "%s/pg_ctl", fixture->bin);
    const char *argv[] = {program, "stop", "-w", "-t", "20", "-D", fixture->servers[server].data,
                          "-m",    mode,   "-s", NULL};
    run_as_owner(argv);
}

/* --- talking ---------------------------------------------------------------------------------- */

struct pg_target postgres_fixture_target(const struct postgres_fixture *fixture, size_t server,
                                         const char *user, const char *database)
{
    return (struct pg_target){
        .host = fixture->servers[server].address,
        .port = fixture->port,
        .database = database,
        .user = user,
        .password_file = arena_printf(fixture->arena, "%s/%s.pass", fixture->folder, user),
        .sslmode = "verify-ca",
        .ssl_root = fixture->ssl_root,
        .application = "fixture",
    };
}

PGconn *postgres_fixture_connect(const struct postgres_fixture *fixture, size_t server)
{
    struct pg_target target = postgres_fixture_target(fixture, server, "ordeal_admin", "ordeal");
    PGconn *connection = NULL;

    CHECKED(pg_connect(&target, deadline_in_ms(WAIT_MS), &connection, err));
    return connection;
}

const char *postgres_fixture_query(struct postgres_fixture *fixture, size_t server, const char *sql)
{
    OWNED_PG PGconn *connection = postgres_fixture_connect(fixture, server);
    OWNED_PG_RESULT PGresult *result = NULL;
    struct error err = {0};

    enum status status = pg_query(connection, sql, deadline_in_ms(WAIT_MS), &result, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", sql, err.message);
    if (PQntuples(result) == 0)
        return NULL;
    return arena_strdup(fixture->arena, PQgetvalue(result, 0, 0));
}

void postgres_fixture_wait(struct postgres_fixture *fixture, size_t server, const char *sql,
                           const char *expected)
{
    int64_t deadline_ns = deadline_in_ms(WAIT_MS);
    const char *seen = NULL;

    for (;;) {
        seen = postgres_fixture_query(fixture, server, sql);
        if (seen != NULL && strcmp(seen, expected) == 0)
            return;
        ck_assert_msg(!deadline_passed(deadline_ns), "%s: \"%s\" seen last, \"%s\" expected", sql,
                      seen != NULL ? seen : "nothing", expected);
        poll(NULL, 0, 20);
    }
}

const struct session *postgres_fixture_session(struct postgres_fixture *fixture, size_t server)
{
    struct arena *arena = fixture->arena;
    struct session *session = arena_alloc(arena, sizeof *session);
    struct fault_peer *peers = arena_array(arena, fixture->count, sizeof *peers);

    for (size_t i = 0; i < fixture->count; i++)
        peers[i] = (struct fault_peer){fixture->servers[i].name, fixture->servers[i].address};
    *session = (struct session){
        .arena = arena,
        .run = "test-run",
        .node = fixture->servers[server].name,
        .address = fixture->servers[server].address,
        .lease_ms = 5000,
        .spool = fixture->servers[server].spool,
        .peer_count = fixture->count,
        .peers = peers,
        .has_database = true,
        .is_database = true,
        .endpoint_count = fixture->count,
        .endpoint = peers,
        .database = {.version = fixture->version,
                     .port = fixture->port,
                     .data = fixture->servers[server].data,
                     .bin = fixture->bin,
                     .owner = OWNER,
                     .superuser = "ordeal_admin",
                     .superuser_password_file = fixture->superuser_file,
                     .workload = "ordeal_load",
                     .workload_password_file = fixture->workload_file,
                     .workload_database = "ordeal",
                     .replication = "ordeal_replication",
                     .replication_password_file = fixture->replication_file,
                     .ssl_root = fixture->ssl_root},
    };
    return session;
}

static const struct method *find_method(const char *name)
{
    static const struct method *const tables[] = {postgres_methods, postgres_check_methods};

    for (size_t i = 0; i < 2; i++)
        for (const struct method *method = tables[i]; method->name != NULL; method++)
            if (strcmp(method->name, name) == 0)
                return method;
    ck_abort_msg("no method %s", name);
    return NULL;
}

static void check_params(const struct method *method, json_t *params)
{
    const char *key;
    json_t *value;

    json_object_foreach(params, key, value)
    {
        const struct method_param *param = method->params;
        while (param->name != NULL && strcmp(param->name, key) != 0)
            param++;
        ck_assert_msg(param->name != NULL, "%s has no parameter %s", method->name, key);
    }
    for (const struct method_param *param = method->params; param->name != NULL; param++) {
        if (strcmp(param->name, "run") == 0)
            json_object_set_new(params, "run", json_string("test-run"));
        ck_assert_msg(!param->required || json_object_get(params, param->name) != NULL,
                      "%s needs %s", method->name, param->name);
    }
}

enum status postgres_fixture_try(struct postgres_fixture *fixture, size_t server,
                                 const char *method_name, json_t *params, json_t **ret_result,
                                 struct error *err)
{
    const struct method *method = find_method(method_name);
    OWNED_JSON json_t *owned = params != NULL ? params : json_object();

    check_params(method, owned);
    ck_assert(method->job);
    int64_t timeout_ms = method->timeout_ms;
    if (json_is_integer(json_object_get(owned, "timeout_ms")))
        timeout_ms = json_integer_value(json_object_get(owned, "timeout_ms"));
    struct method_call call = {
        .session = postgres_fixture_session(fixture, server),
        .params = owned,
        .deadline_ns = deadline_in_ms(timeout_ms),
    };
    return method->call(&call, ret_result, err);
}

json_t *postgres_fixture_call(struct postgres_fixture *fixture, size_t server, const char *method,
                              json_t *params)
{
    json_t *result = NULL;
    struct error err = {0};
    enum status status = postgres_fixture_try(fixture, server, method, params, &result, &err);

    ck_assert_msg(status == STATUS_OK, "%s on %s: %s (%s)", method, fixture->servers[server].name,
                  err.message, err.detail);
    ck_assert_ptr_nonnull(result);
    return result;
}
