/* SPDX-License-Identifier: MIT */
#include "agents/sampler/views.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agents/postgres_local.h"
#include "lib/clock.h"
#include "lib/owned.h"

enum { CONNECT_MS = 2000, QUERY_MS = 2000, QUERY_MAX = 16 * 1024, STATUS_LINE = 8 };

/* --- the query -------------------------------------------------------------------------------- */

/* A member of a sample: a subselect of one value, for servers from and below a version. */
struct part {
    const char *name, *sql;
    int from, below; /* 0: any */
};

/* to_jsonb() of whole rows, so that columns which come and go with versions need no list here. */
static const struct part parts[] = {
    {"server",
     "jsonb_build_object('recovery', pg_is_in_recovery(), 'lsn', CASE WHEN pg_is_in_recovery()"
     " THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, 'receive_lsn',"
     " CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() END)",
     0, 0},
    {"activity",
     "SELECT jsonb_agg(jsonb_build_array(backend_type, state, wait_event_type, n)) FROM"
     " (SELECT backend_type, state, wait_event_type, count(*) AS n FROM pg_stat_activity"
     " WHERE pid <> pg_backend_pid() GROUP BY 1, 2, 3) a",
     0, 0},
    {"standbys",
     "SELECT jsonb_agg(jsonb_build_object('name', application_name, 'state', state, 'sync',"
     " sync_state, 'sent_lsn', sent_lsn, 'write_lsn', write_lsn, 'flush_lsn', flush_lsn,"
     " 'replay_lsn', replay_lsn, 'flush_lag_ms', extract(epoch FROM flush_lag) * 1000,"
     " 'replay_lag_ms', extract(epoch FROM replay_lag) * 1000)) FROM pg_stat_replication",
     0, 0},
    {"receiver",
     "SELECT jsonb_build_object('status', status, 'timeline', received_tli, 'latest_end_lsn',"
     " latest_end_lsn, 'sender_host', sender_host) FROM pg_stat_wal_receiver",
     0, 0},
    {"databases",
     "SELECT jsonb_object_agg(datname, to_jsonb(d) - '{datid,datname,stats_reset}'::text[])"
     " FROM pg_stat_database d WHERE datname IS NOT NULL AND datname NOT LIKE 'template_'",
     0, 0},
    {"archiver", "SELECT to_jsonb(a) - 'stats_reset' FROM pg_stat_archiver a", 0, 0},
    {"wal", "SELECT to_jsonb(w) - 'stats_reset' FROM pg_stat_wal w", 140000, 0},
    {"bgwriter", "SELECT to_jsonb(b) - 'stats_reset' FROM pg_stat_bgwriter b", 0, 0},
    {"checkpointer", "SELECT to_jsonb(c) - 'stats_reset' FROM pg_stat_checkpointer c", 170000, 0},
    {"checkpoint",
     "SELECT jsonb_build_object('lsn', checkpoint_lsn, 'redo_lsn', redo_lsn, 'timeline',"
     " timeline_id) FROM pg_control_checkpoint()",
     0, 0},
};

void views_query(int version, struct buffer *query)
{
    const char *separator = "SELECT jsonb_build_object(";

    buffer_reset(query);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const struct part *part = &parts[i];
        bool select = strncmp(part->sql, "SELECT", 6) == 0;

        if (version < part->from || (part->below != 0 && version >= part->below))
            continue;
        buffer_printf(query, "%s'%s', %s%s%s", separator, part->name, select ? "(" : "", part->sql,
                      select ? ")" : "");
        separator = ", ";
    }
    buffer_puts(query, ")::text");
}

/* --- one sample ------------------------------------------------------------------------------- */

/* The reason once, when it begins; the gap is marked when it is over. */
static void say_down(struct views *views, const char *why, const char *text)
{
    int64_t now = clock_boot_ns();

    stream_missed(views->stream, why);
    if (views->down)
        return;
    views->down = true;
    stream_begin(&views->line, now);
    line_key(&views->line, "down");
    line_string(&views->line, text);
    stream_put(views->stream, now, false, &views->line);
}

static void disconnect(struct views *views)
{
    *views->backend = 0;
    PQfinish(views->connection);
    views->connection = NULL;
}

/* A smart shutdown waits for its last session: that must not be ours. */
static bool is_stopping(const struct views *views)
{
    OWNED_BUFFER struct buffer path = BUFFER(4096);
    char line[64];

    buffer_printf(&path, "%s/postmaster.pid", views->session->database.data);
    return postgres_file_line(buffer_text(&path), STATUS_LINE, line, sizeof line) &&
           strncmp(line, "stopping", 8) == 0;
}

static enum status connect_to_server(struct views *views, struct error *err)
{
    static const char settings[] =
        "SET synchronous_commit = local; SET default_transaction_read_only = on;"
        "SET statement_timeout = 2000; SET lock_timeout = 500;"
        "SET idle_session_timeout = 0; SET jit = off";
    static const char settings_13[] =
        "SET synchronous_commit = local; SET default_transaction_read_only = on;"
        "SET statement_timeout = 2000; SET lock_timeout = 500; SET jit = off";
    struct pg_target target =
        session_target(views->session, views->session->address, SESSION_SUPERUSER);
    int64_t deadline_ns = deadline_in_ms(CONNECT_MS);

    target.application = "ordeal-sampler";
    enum status status = pg_connect(&target, deadline_ns, &views->connection, err);
    if (status != STATUS_OK)
        return status;
    *views->backend = PQbackendPID(views->connection);
    int version = PQserverVersion(views->connection);
    if (version != views->version)
        views_query(version, &views->query);
    views->version = version;
    return pg_query(views->connection, version >= 140000 ? settings : settings_13, deadline_ns,
                    NULL, err);
}

static enum status ask(struct views *views, struct error *err)
{
    OWNED_PG_RESULT PGresult *result = NULL;
    enum status status = views->connection == NULL ? connect_to_server(views, err) : STATUS_OK;
    int64_t begun_ns = clock_boot_ns();

    if (status == STATUS_OK)
        status = pg_query(views->connection, buffer_text(&views->query), deadline_in_ms(QUERY_MS),
                          &result, err);
    if (status != STATUS_OK)
        return status;
    if (PQntuples(result) != 1 || PQgetisnull(result, 0, 0))
        return error_set(err, STATUS_INTERNAL, "the views gave no row");
    struct line *line = &views->line;
    int64_t now = clock_boot_ns();
    stream_begin(line, begun_ns);
    line_pair(line, "took_us", (now - begun_ns) / 1000);
    line_key(line, "views");
    line_json(line, PQgetvalue(result, 0, 0), (size_t) PQgetlength(result, 0, 0));
    stream_put(views->stream, begun_ns, true, line);
    views->down = false;
    return STATUS_OK;
}

static void sample(struct views *views)
{
    struct error error = {0};

    views->postmaster = pg_postmaster(views->session->database.data);
    if (is_stopping(views)) {
        disconnect(views);
        say_down(views, "stopping", "the server is shutting down");
        return;
    }
    if (ask(views, &error) == STATUS_OK)
        return;
    disconnect(views);
    say_down(views, "down", error.message);
}

/* --- the thread ------------------------------------------------------------------------------- */

static bool told_to_stop(const struct views *views, int64_t until_ns)
{
    struct pollfd fd = {.fd = views->stop, .events = POLLIN};

    return poll(&fd, 1, deadline_left_ms(until_ns)) > 0;
}

static void *run(void *argument)
{
    struct views *views = argument;
    int64_t due_ns = clock_boot_ns();

    while (!told_to_stop(views, due_ns)) {
        sample(views);
        while (due_ns <= clock_boot_ns())
            due_ns += views->period_ms * NS_PER_MS;
    }
    disconnect(views);
    return NULL;
}

enum status views_start(struct views *views, struct error *err)
{
    pthread_attr_t attributes;

    views->query = BUFFER(QUERY_MAX);
    views->line = (struct line){.data = calloc(1, VIEWS_LINE_SIZE), .size = VIEWS_LINE_SIZE};
    if (views->line.data == NULL)
        abort();
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, VIEWS_STACK_SIZE);
    errno = pthread_create(&views->thread, &attributes, run, views);
    pthread_attr_destroy(&attributes);
    return errno == 0 ? STATUS_OK : error_system(err, "starting the thread that asks PostgreSQL");
}

void views_join(struct views *views, int64_t deadline_ns)
{
    struct timespec until;
    int64_t left_ns = deadline_ns - clock_boot_ns();

    clock_gettime(CLOCK_REALTIME, &until);
    left_ns += until.tv_nsec;
    until.tv_sec += left_ns / NS_PER_SECOND;
    until.tv_nsec = left_ns % NS_PER_SECOND;
    pthread_timedjoin_np(views->thread, NULL, &until);
}
