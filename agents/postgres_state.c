/* SPDX-License-Identifier: MIT */
/*
 * postgres.state: what this node's server is and where it stands, asked from the kernel, the disk
 * and the server itself. It answers within two seconds whatever the server does: a server that is
 * down, frozen or hung is described from outside.
 */
#include "agents/postgres_methods.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/postgres_local.h"
#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

enum { ASK_MS = 2000, FIRST_TRY_MS = 1200 };

/* Everything that the server says, in one snapshot; `r` is asked once. */
static const char state_query[] =
    "SELECT json_build_object("
    "'in_recovery', r,"
    "'system_identifier', (SELECT system_identifier::text FROM pg_control_system()),"
    "'receive_lsn', CASE WHEN r THEN pg_last_wal_receive_lsn()::text END,"
    "'replay_lsn', CASE WHEN r THEN pg_last_wal_replay_lsn()::text END,"
    "'replay_paused', CASE WHEN r THEN pg_is_wal_replay_paused() END,"
    "'current_lsn', CASE WHEN NOT r THEN pg_current_wal_lsn()::text END,"
    "'wal_file', CASE WHEN NOT r THEN pg_walfile_name(pg_current_wal_lsn()) END,"
    "'checkpoint_timeline', (SELECT timeline_id FROM pg_control_checkpoint()),"
    "'recovery_timeline', (SELECT min_recovery_end_timeline FROM pg_control_recovery()),"
    "'segment_bytes', pg_size_bytes(current_setting('wal_segment_size')),"
    "'receiver', (SELECT json_build_object('status', status, 'sender_host', sender_host,"
    " 'slot', slot_name, 'timeline', received_tli) FROM pg_stat_wal_receiver LIMIT 1),"
    "'primary_conninfo', current_setting('primary_conninfo'),"
    "'sync_set', current_setting('synchronous_standby_names'),"
    "'synchronous_commit',"
    " (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'),"
    "'standbys', (SELECT coalesce(json_agg(json_build_object('name', application_name,"
    " 'state', state, 'sync_state', sync_state, 'sent_lsn', sent_lsn::text,"
    " 'flush_lsn', flush_lsn::text, 'replay_lsn', replay_lsn::text) ORDER BY application_name),"
    " '[]') FROM pg_stat_replication),"
    "'slots', (SELECT coalesce(json_agg(json_build_object('name', slot_name, 'active', active,"
    " 'restart_lsn', restart_lsn::text) ORDER BY slot_name), '[]') FROM pg_replication_slots),"
    "'settings', (SELECT json_object_agg(name, reset_val) FROM pg_settings WHERE name IN"
    " ('archive_mode', 'fsync', 'full_page_writes', 'hot_standby', 'max_connections',"
    " 'primary_slot_name', 'recovery_min_apply_delay', 'server_version', 'wal_level',"
    " 'wal_log_hints', 'wal_receiver_timeout', 'wal_sender_timeout')))"
    " FROM (SELECT pg_is_in_recovery() AS r) AS recovery";

static void set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static uint32_t largest(uint32_t a, int64_t b)
{
    return b > (int64_t) a ? (uint32_t) b : a;
}

/* Birth time and inode of PG_VERSION: a restart and a rewind keep the file, a rebuild does not. */
static json_t *incarnation(const struct session *session)
{
    char path[4096];
    struct statx info;

    snprintf(path, sizeof path, "%s/PG_VERSION", session->database.data);
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &info) != 0)
        return NULL;
    int64_t born_s = info.stx_mask & STATX_BTIME ? info.stx_btime.tv_sec : 0;
    unsigned born_ns = info.stx_mask & STATX_BTIME ? info.stx_btime.tv_nsec : 0;
    return json_sprintf("%lld.%09u-%llu", (long long) born_s, born_ns,
                        (unsigned long long) info.stx_ino);
}

static bool in_frozen_group(struct process_id id)
{
    OWNED_ARENA struct arena *arena = arena_new();
    const char *group = NULL;
    bool frozen = false;

    return cgroup_of(arena, id.pid, &group, NULL) == STATUS_OK && group[0] != '\0' &&
           cgroup_frozen(group, &frozen, NULL) == STATUS_OK && frozen;
}

static enum status describe_processes(const struct session *session, json_t *state,
                                      bool *ret_may_answer, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes processes = {0};
    enum status status = pg_processes_list(arena, session->database.data, &processes, err);

    if (status != STATUS_OK)
        return status;
    const struct pg_process *postmaster = postgres_postmaster(&processes);
    char letter = postmaster != NULL ? process_state(postmaster->id) : 0;
    bool frozen =
        letter == 'T' || letter == 't' || (postmaster != NULL && in_frozen_group(postmaster->id));
    set(state, "running", json_boolean(postmaster != NULL));
    set(state, "frozen", json_boolean(frozen));
    set(state, "orphans", json_integer(postmaster != NULL ? 0 : (json_int_t) processes.count));
    set(state, "pid", postmaster != NULL ? json_integer(postmaster->id.pid) : json_null());
    set(state, "start_ticks",
        postmaster != NULL ? json_integer((json_int_t) postmaster->id.start_ticks) : json_null());
    if (frozen)
        set(state, "error", json_sprintf("postmaster %d is frozen", (int) postmaster->id.pid));
    *ret_may_answer = postmaster != NULL && !frozen;
    return STATUS_OK;
}

/* Socket folder of the running server: the fifth line of postmaster.pid. */
static bool socket_folder(const struct session *session, char *folder, size_t size)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/postmaster.pid", session->database.data);
    return postgres_file_line(path, 5, folder, size) && folder[0] == '/';
}

/* The node's own address first, as clients come; the socket when the network is what is broken. */
static enum status ask(const struct session *session, int64_t deadline_ns, json_t **ret_answer,
                       struct error *err)
{
    char folder[1024];
    OWNED_PG PGconn *connection = NULL;
    struct error ignored;
    int64_t first_ns = postgres_deadline(deadline_ns, FIRST_TRY_MS);
    enum status status = postgres_connect(session, NULL, NULL, first_ns, &connection, err);

    if (status == STATUS_UNREACHABLE && socket_folder(session, folder, sizeof folder) &&
        postgres_connect(session, folder, NULL, deadline_ns, &connection, &ignored) == STATUS_OK)
        status = STATUS_OK;
    if (status != STATUS_OK)
        return status;
    status = postgres_query_json(connection, state_query, deadline_ns, ret_answer, err);
    if (status == STATUS_DATABASE && !deadline_passed(deadline_ns))
        /* promoted between two of its functions */
        status = postgres_query_json(connection, state_query, deadline_ns, ret_answer, err);
    return status;
}

static json_t *conninfo_host(const char *conninfo)
{
    PQconninfoOption *options = PQconninfoParse(conninfo, NULL);
    json_t *host = NULL;

    for (PQconninfoOption *option = options; option != NULL && option->keyword != NULL; option++)
        if (strcmp(option->keyword, "host") == 0 && option->val != NULL)
            host = json_string(option->val);
    PQconninfoFree(options);
    return host != NULL ? host : json_null();
}

static void set_position(const struct session *session, json_t *state, const json_t *answer)
{
    uint64_t receive = pg_lsn_parse(json_text(answer, "receive_lsn", NULL));
    uint64_t replay = pg_lsn_parse(json_text(answer, "replay_lsn", NULL));
    uint64_t lsn = receive > replay ? receive : replay;
    char text[PG_LSN_TEXT_SIZE];
    uint32_t timeline = 0;

    if (json_flag(answer, "in_recovery", false)) {
        timeline = largest(timeline, json_number(answer, "checkpoint_timeline", 0));
        timeline = largest(timeline, json_number(answer, "recovery_timeline", 0));
        timeline =
            largest(timeline, json_number(json_object_get(answer, "receiver"), "timeline", 0));
        timeline = largest(timeline,
                           postgres_segment_timeline(
                               session, lsn, (uint64_t) json_number(answer, "segment_bytes", 0)));
    } else {
        char digits[9] = "";
        snprintf(digits, sizeof digits, "%s", json_text(answer, "wal_file", ""));
        timeline = (uint32_t) strtoul(digits, NULL, 16);
        lsn = pg_lsn_parse(json_text(answer, "current_lsn", NULL));
    }
    pg_lsn_text(lsn, text);
    set(state, "lsn", json_string(text));
    set(state, "timeline", json_integer(timeline));
    set(state, "history", postgres_history(session, timeline));
}

static void take_answer(const struct session *session, json_t *state, json_t *answer)
{
    static const char *const inner[] = {"current_lsn",       "wal_file",      "checkpoint_timeline",
                                        "recovery_timeline", "segment_bytes", "primary_conninfo"};

    set(state, "accepting", json_true());
    set(state, "primary_conninfo_host", conninfo_host(json_text(answer, "primary_conninfo", "")));
    set_position(session, state, answer);
    for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++)
        json_object_del(answer, inner[i]);
    json_object_update(state, answer);
}

/* A volume that answers nothing has not lost its files for that. */
static bool file_exists(const struct session *session, const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", session->database.data, name);
    return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* The server does not answer: what its control file says. */
static void describe_disk(const struct session *session, json_t *state, int64_t deadline_ns)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct postgres_control control;
    struct error err = {0};
    char text[PG_LSN_TEXT_SIZE];

    set(state, "in_recovery", json_boolean(file_exists(session, "standby.signal")));
    if (postgres_control(arena, session, deadline_ns, &control, &err) != STATUS_OK) {
        if (json_is_null(json_object_get(state, "error")))
            set(state, "error", json_string(err.message));
        return;
    }
    pg_lsn_text(control.lsn, text);
    set(state, "system_identifier", json_string(control.system_identifier));
    set(state, "timeline", json_integer(control.timeline));
    set(state, "lsn", json_string(text));
    set(state, "control_state", json_string(control.state));
    set(state, "history", postgres_history(session, control.timeline));
}

/* Every member, so that a reader finds them all whatever is known. */
static json_t *blank_state(void)
{
    return json_pack(
        "{s:b, s:n, s:n, s:n, s:n, s:s, s:n, s:n, s:n, s:n, s:s, s:n, s:[], s:[], s:[],"
        " s:{}, s:n}",
        "accepting", 0, "system_identifier", "in_recovery", "incarnation", "timeline", "lsn", "0/0",
        "receive_lsn", "replay_lsn", "receiver", "primary_conninfo_host", "sync_set", "",
        "synchronous_commit", "standbys", "slots", "history", "settings", "error");
}

enum status postgres_state(const struct method_call *call, json_t **ret_result, struct error *err)
{
    const struct session *session = call->session;
    int64_t deadline_ns = postgres_deadline(call->deadline_ns, ASK_MS);
    OWNED_JSON json_t *state = blank_state();
    OWNED_JSON json_t *answer = NULL;
    struct error why = {0};
    bool may_answer = false;

    enum status status = describe_processes(session, state, &may_answer, err);
    if (status != STATUS_OK)
        return status;
    bool exists = file_exists(session, "PG_VERSION");
    set(state, "data_exists", json_boolean(exists));
    if (exists)
        set(state, "incarnation", incarnation(session));
    if (may_answer && ask(session, deadline_ns, &answer, &why) == STATUS_OK) {
        take_answer(session, state, answer);
    } else {
        /* looked at again: it may have been frozen or have ended since */
        set(state, "error", why.message[0] != '\0' ? json_string(why.message) : json_null());
        status = describe_processes(session, state, &may_answer, err);
        if (status != STATUS_OK)
            return status;
        if (exists)
            describe_disk(session, state, postgres_deadline(call->deadline_ns, ASK_MS));
    }
    set(state, "at_ns", json_integer(clock_boot_ns()));
    *ret_result = json_incref(state);
    return STATUS_OK;
}
