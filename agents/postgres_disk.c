/* SPDX-License-Identifier: MIT */
/*
 * What the data folder itself tells: pg_controldata, timeline histories, WAL segments. It is asked
 * when the server does not answer, and where SQL has no answer: a standby whose walreceiver is
 * stopped does not say on which timeline its last position lies.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/postgres_local.h"
#include "lib/owned.h"

/* Value of a line "KEY:   value" in the program's output, "" without one. Arena memory. */
static const char *line_value(struct arena *arena, const char *output, const char *key)
{
    size_t length = strlen(key);

    for (const char *line = output; line != NULL && *line != '\0';) {
        if (strncmp(line, key, length) == 0 && line[length] == ':') {
            const char *value = line + length + 1;
            value += strspn(value, " ");
            return arena_strndup(arena, value, strcspn(value, "\n"));
        }
        line = strchr(line, '\n');
        if (line != NULL)
            line++;
    }
    return "";
}

static uint32_t greater(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

enum status postgres_control(struct arena *arena, const struct session *session,
                             int64_t deadline_ns, struct postgres_control *ret_control,
                             struct error *err)
{
    const char *argv[] = {postgres_program(arena, session, "pg_controldata"), "-D",
                          session->database.data, NULL};
    OWNED_RESULT struct process_result result = {0};
    enum status status = postgres_run(session, argv, NULL, deadline_ns, &result, err);

    if (status != STATUS_OK)
        return status;
    const char *output = buffer_text(&result.output);
    const char *recovery_timeline = line_value(arena, output, "Min recovery ending loc's timeline");
    uint64_t checkpoint = pg_lsn_parse(line_value(arena, output, "Latest checkpoint location"));
    uint64_t recovery = pg_lsn_parse(line_value(arena, output, "Minimum recovery ending location"));
    struct postgres_control control = {
        .state = line_value(arena, output, "Database cluster state"),
        .system_identifier = line_value(arena, output, "Database system identifier"),
        .timeline =
            greater((uint32_t) strtoul(line_value(arena, output, "Latest checkpoint's TimeLineID"),
                                       NULL, 10),
                    (uint32_t) strtoul(recovery_timeline, NULL, 10)),
        .lsn = checkpoint > recovery ? checkpoint : recovery,
        .checksums = strtoul(line_value(arena, output, "Data page checksum version"), NULL, 10) > 0,
    };
    if (control.timeline == 0 || control.system_identifier[0] == '\0')
        return error_set(err, STATUS_PROTOCOL, "pg_controldata of %s names no timeline",
                         session->database.data);
    *ret_control = control;
    return STATUS_OK;
}

/* "1\t0/3000148\tno recovery target specified"; comments and empty lines have no such fields. */
static void add_history_line(json_t *history, const char *line)
{
    char *end = NULL;
    unsigned long parent = strtoul(line, &end, 10);
    const char *text = end + strspn(end, " \t");
    size_t length = strcspn(text, " \t\n");
    char lsn[PG_LSN_TEXT_SIZE];

    if (end == line || length == 0 || length >= sizeof lsn)
        return;
    memcpy(lsn, text, length);
    lsn[length] = '\0';
    if (pg_lsn_parse(lsn) != 0)
        json_array_append_new(history,
                              json_pack("{s:I, s:s}", "timeline", (json_int_t) parent, "lsn", lsn));
}

json_t *postgres_history(const struct session *session, uint32_t timeline)
{
    json_t *history = json_array();
    char path[4096], line[1024];

    snprintf(path, sizeof path, "%s/pg_wal/%08X.history", session->database.data, timeline);
    for (int i = 1; timeline > 1 && postgres_file_line(path, i, line, sizeof line); i++)
        add_history_line(history, line);
    return history;
}

/* "000000020000000A000000FE": timeline and two halves of the segment's number. */
static bool parse_segment(const char *name, uint32_t *ret_timeline, uint64_t *ret_segment,
                          uint64_t segment_bytes)
{
    uint32_t parts[3];

    if (strlen(name) != 24 || strspn(name, "0123456789ABCDEF") != 24)
        return false;
    for (int i = 0; i < 3; i++) {
        char digits[9] = "";
        memcpy(digits, name + (ptrdiff_t) i * 8, 8);
        parts[i] = (uint32_t) strtoul(digits, NULL, 16);
    }
    *ret_timeline = parts[0];
    *ret_segment = parts[1] * (UINT64_C(0x100000000) / segment_bytes) + parts[2];
    return true;
}

uint32_t postgres_segment_timeline(const struct session *session, uint64_t lsn,
                                   uint64_t segment_bytes)
{
    char path[4096];
    uint32_t best = 0, timeline;
    uint64_t segment;

    if (lsn == 0 || segment_bytes == 0)
        return 0;
    snprintf(path, sizeof path, "%s/pg_wal", session->database.data);
    OWNED_DIR DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        if (parse_segment(entry->d_name, &timeline, &segment, segment_bytes) &&
            segment == (lsn - 1) / segment_bytes && timeline > best)
            best = timeline;
    return best;
}
