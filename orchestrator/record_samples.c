/* SPDX-License-Identifier: MIT */
#include "orchestrator/record_samples.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"

/* A sample that comes later than this after the last one is late, as the sampler sees it. */
enum { GAP_PERIODS = 3 };

/* --- lines ------------------------------------------------------------------------------------ */

struct reading {
    struct arena *arena;
    struct record_stream *stream;
    int64_t marked_ns; /* up to here the gap before the next sample is marked */
};

static void add_gap(struct reading *reading, int64_t from_ns, int64_t to_ns, const char *why)
{
    struct record_stream *stream = reading->stream;

    if (stream->gap_count == stream->gap_room) {
        size_t room = stream->gap_room == 0 ? 8 : 2 * stream->gap_room;
        stream->gaps =
            arena_grow(reading->arena, stream->gaps, stream->gap_count, room, sizeof *stream->gaps);
        stream->gap_room = room;
    }
    stream->gaps[stream->gap_count++] =
        (struct record_gap){from_ns, to_ns, arena_strdup(reading->arena, why)};
}

static void take_sample(struct reading *reading, int64_t t_ns)
{
    struct record_stream *stream = reading->stream;
    bool far = t_ns - stream->last_ns > GAP_PERIODS * stream->period_ns || t_ns < stream->last_ns;

    if (stream->count == 0)
        stream->first_ns = t_ns;
    else if (far && reading->marked_ns != t_ns)
        add_gap(reading, stream->last_ns, t_ns, "unmarked");
    stream->last_ns = t_ns;
    stream->count++;
    stream->ended = false;
}

/* Lines that are no sample are few: those are parsed. */
static enum status take_mark(struct reading *reading, const char *line, size_t length,
                             struct error *err)
{
    OWNED_JSON json_t *json = NULL;
    enum status status = json_parse_text(line, length, &json, err);

    if (status != STATUS_OK)
        return status;
    const json_t *gap = json_object_get(json, "gap");
    if (json_object_get(json, "samples") != NULL) {
        if (json_number(json, "samples", 0) != 1)
            return error_set(err, STATUS_INVALID, "version %lld of samples is not known",
                             (long long) json_number(json, "samples", 0));
        reading->stream->period_ns = json_number(json, "period_ms", 0) * NS_PER_MS;
        reading->stream->node = arena_strdup(reading->arena, json_text(json, "node", ""));
        reading->stream->name = arena_strdup(reading->arena, json_text(json, "stream", ""));
    } else if (gap != NULL) {
        add_gap(reading, json_number(gap, "from", 0), json_number(gap, "to", 0),
                json_text(gap, "why", ""));
        reading->marked_ns = json_number(gap, "to", 0);
    } else if (json_object_get(json, "end") != NULL) {
        reading->stream->ended = true;
    }
    return STATUS_OK;
}

/* Every line begins with its instant, and marks name themselves right behind it. */
static enum status take_line(struct reading *reading, const char *line, size_t length,
                             struct error *err)
{
    static const char *const marks[] = {"\"samples\"", "\"gap\"", "\"down\"", "\"end\""};
    char *rest = NULL;

    if (strncmp(line, "{\"t\":", 5) != 0 || line[length - 1] != '\n')
        return error_set(err, STATUS_INVALID, "it holds a line that is no sample");
    long long t_ns = strtoll(line + 5, &rest, 10);
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (*rest == ',' && strncmp(rest + 1, marks[i], strlen(marks[i])) == 0)
            return take_mark(reading, line, length, err);
    if (reading->stream->period_ns <= 0)
        return error_set(err, STATUS_INVALID, "it does not begin with what it is");
    take_sample(reading, t_ns);
    return STATUS_OK;
}

/* A last line that was cut off is the end of the file. */
static enum status read_stream(struct reading *reading, const char *path, struct error *err)
{
    OWNED_FILE FILE *file = fopen(path, "re");
    OWNED_MEMORY char *line = NULL;
    size_t size = 0;
    ssize_t length;
    enum status status = STATUS_OK;

    if (file == NULL)
        return error_system(err, "opening %s", path);
    while (status == STATUS_OK && (length = getline(&line, &size, file)) > 0) {
        if (line[length - 1] != '\n')
            break;
        status = take_line(reading, line, (size_t) length, err);
    }
    if (status == STATUS_OK && reading->stream->node == NULL)
        status = error_set(err, STATUS_INVALID, "it is empty");
    return status;
}

/* --- the folder ------------------------------------------------------------------------------- */

static int is_stream(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');

    return dot != NULL && strcmp(dot, ".ndjson") == 0;
}

/* A file that cannot be read is still known by its name: NODE-STREAM.ndjson. */
static void name_by_file(struct arena *arena, struct record_stream *stream, const char *file)
{
    const char *dash = strrchr(file, '-'), *dot = strrchr(file, '.');

    if (dash == NULL || dash > dot)
        dash = dot;
    stream->node = arena_strndup(arena, file, (size_t) (dash - file));
    stream->name = dash == dot ? "" : arena_strndup(arena, dash + 1, (size_t) (dot - dash - 1));
}

static void load_stream(struct arena *arena, const struct record *record, const char *file,
                        struct record_stream *stream)
{
    struct reading reading = {.arena = arena, .stream = stream};
    struct error problem = {0};

    stream->path = arena_printf(arena, "samples/%s", file);
    if (read_stream(&reading, arena_printf(arena, "%s/%s", record->folder, stream->path),
                    &problem) == STATUS_OK)
        return;
    stream->problem = arena_strdup(arena, problem.message);
    if (stream->node == NULL)
        name_by_file(arena, stream, file);
}

struct record_samples *record_samples_load(struct arena *arena, const struct record *record)
{
    struct record_samples *samples = arena_alloc(arena, sizeof *samples);
    struct dirent **names = NULL;
    int count =
        scandir(arena_printf(arena, "%s/samples", record->folder), &names, is_stream, alphasort);

    samples->streams = arena_array(arena, count > 0 ? (size_t) count : 1, sizeof *samples->streams);
    for (int i = 0; i < count; i++) {
        load_stream(arena, record, names[i]->d_name, &samples->streams[samples->count++]);
        free(names[i]);
    }
    free(names);
    return samples;
}

const struct record_stream *record_samples_find(const struct record_samples *samples,
                                                const char *node, const char *name)
{
    for (size_t i = 0; i < samples->count; i++)
        if (strcmp(samples->streams[i].node, node) == 0 &&
            strcmp(samples->streams[i].name, name) == 0)
            return &samples->streams[i];
    return NULL;
}

/* --- gaps on the client's clock --------------------------------------------------------------- */

static enum status widen(const struct record *record, const char *node,
                         const struct record_gap *gap, int64_t from_ns, int64_t to_ns,
                         struct record_blind *blind, struct error *err)
{
    int64_t begun_ns = INT64_MIN, over_ns = INT64_MAX, begin_error_ns = 0, end_error_ns = 0;
    enum status status = STATUS_OK;

    if (gap->from_ns != INT64_MIN)
        status = record_client_ns(record, node, gap->from_ns, &begun_ns, &begin_error_ns, err);
    if (status == STATUS_OK && gap->to_ns != INT64_MAX)
        status = record_client_ns(record, node, gap->to_ns, &over_ns, &end_error_ns, err);
    if (status != STATUS_OK)
        return status;
    begun_ns = begun_ns > from_ns ? begun_ns : from_ns;
    over_ns = over_ns < to_ns ? over_ns : to_ns;
    if (over_ns - begun_ns > blind->ns)
        *blind = (struct record_blind){over_ns - begun_ns, begin_error_ns + end_error_ns, gap->why};
    return STATUS_OK;
}

enum status record_samples_gap(const struct record *record, const struct record_samples *samples,
                               const char *node, const char *name, int64_t from_ns, int64_t to_ns,
                               struct record_blind *ret_blind, struct error *err)
{
    const struct record_stream *stream = record_samples_find(samples, node, name);
    struct record_blind blind = {0};

    if (stream == NULL || stream->problem != NULL || stream->count == 0)
        return error_set(err, STATUS_NOT_FOUND, "no %s samples of %s: %s", name, node,
                         stream == NULL            ? "there is no file"
                         : stream->problem != NULL ? stream->problem
                                                   : "there is none in the file");
    const struct record_gap before = {INT64_MIN, stream->first_ns, "before the first sample"};
    const struct record_gap after = {stream->last_ns, INT64_MAX, "after the last sample"};
    enum status status = widen(record, node, &before, from_ns, to_ns, &blind, err);
    for (size_t i = 0; status == STATUS_OK && i < stream->gap_count; i++)
        status = widen(record, node, &stream->gaps[i], from_ns, to_ns, &blind, err);
    if (status == STATUS_OK)
        status = widen(record, node, &after, from_ns, to_ns, &blind, err);
    if (status == STATUS_OK)
        *ret_blind = blind;
    return status;
}

/* --- for people ------------------------------------------------------------------------------- */

struct longest {
    const struct record_stream *stream;
    struct record_blind blind;
};

static void consider(const struct record *record, const struct record_stream *stream,
                     struct longest *longest)
{
    for (size_t i = 0; i < stream->gap_count; i++) {
        struct record_blind blind = longest->blind;

        if (widen(record, stream->node, &stream->gaps[i], INT64_MIN, INT64_MAX, &blind, NULL) ==
                STATUS_OK &&
            blind.ns > longest->blind.ns)
            *longest = (struct longest){stream, blind};
    }
}

const char *record_samples_text(struct arena *arena, const struct record *record)
{
    const struct record_samples *samples = record_samples_load(arena, record);
    struct longest longest = {0};
    size_t gaps = 0, unread = 0;

    if (samples->count == 0)
        return NULL;
    for (size_t i = 0; i < samples->count; i++) {
        gaps += samples->streams[i].gap_count;
        unread += samples->streams[i].problem != NULL;
        consider(record, &samples->streams[i], &longest);
    }
    const char *text = arena_printf(arena, "%zu files, %zu gaps", samples->count, gaps);
    if (unread > 0)
        text = arena_printf(arena, "%s, %zu cannot be read", text, unread);
    if (longest.stream == NULL)
        return text;
    return arena_printf(arena, "%s, the longest %.3f s on %s (%s: %s)", text,
                        (double) longest.blind.ns / (double) NS_PER_SECOND, longest.stream->node,
                        longest.stream->name, longest.blind.why);
}
