/* SPDX-License-Identifier: MIT */
#include "agents/sampler/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/sampler/parse.h"
#include "lib/clock.h"
#include "lib/owned.h"

enum { FILE_MAX = 256 * 1024 * 1024, SCRATCH_SIZE = 2 * STREAM_INTRO_SIZE, LATE_PERIODS = 2 };

static const char line_head[] = "{\"t\":";

/* --- what an earlier sampler left ------------------------------------------------------------- */

/* Instant of the line that begins at `text`; 0 when it has none. */
static int64_t instant_of(const char *text)
{
    if (strncmp(text, line_head, sizeof line_head - 1) != 0)
        return 0;
    text += sizeof line_head - 1;
    int64_t t_ns = parse_number(&text);
    return t_ns > 0 ? t_ns : 0;
}

/* The last whole line in `text`; where it ends goes to *ret_end (0: there is none). */
static const char *last_line(char *text, size_t length, size_t *ret_end)
{
    char *end = memrchr(text, '\n', length);

    *ret_end = end == NULL ? 0 : (size_t) (end + 1 - text);
    if (end == NULL)
        return text;
    char *before = memrchr(text, '\n', (size_t) (end - text));
    return before == NULL ? text : before + 1;
}

/* A line is no longer than a half: a tail of two halves holds a whole one. */
static enum status take_up(struct stream *stream, const char *path, struct error *err)
{
    struct stat info;

    if (fstat(stream->fd, &info) != 0)
        return error_system(err, "looking at %s", path);
    size_t room = 2 * stream->half_size;
    OWNED_MEMORY char *tail = calloc(1, room + 1);
    if (tail == NULL)
        abort();
    off_t from = info.st_size > (off_t) room ? info.st_size - (off_t) room : 0;
    ssize_t count = pread(stream->fd, tail, room, from);
    if (count < 0)
        return error_system(err, "reading %s", path);
    size_t end = 0;
    const char *line = last_line(tail, (size_t) count, &end);
    stream->size = from + (off_t) end;
    stream->last_ns = end > 0 ? instant_of(line) : 0;
    stream->missed = stream->last_ns > 0 ? "restart" : NULL;
    if (stream->size < info.st_size && ftruncate(stream->fd, stream->size) != 0)
        return error_system(err, "cutting an unfinished line off %s", path);
    return STATUS_OK;
}

static char *allocate(size_t size)
{
    char *memory = calloc(1, size);

    if (memory == NULL)
        abort();
    return memory;
}

enum status stream_open(const char *path, const char *intro, int64_t period_ms, size_t half_size,
                        struct stream *ret_stream, struct error *err)
{
    struct stream stream = {.period_ns = period_ms * NS_PER_MS, .half_size = half_size};

    if (strlen(intro) >= sizeof stream.intro)
        return error_set(err, STATUS_INVALID, "the first line of %s is too long", path);
    snprintf(stream.intro, sizeof stream.intro, "%s", intro);
    stream.fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (stream.fd < 0)
        return error_system(err, "opening %s", path);
    enum status status = take_up(&stream, path, err);
    if (status != STATUS_OK) {
        close(stream.fd);
        return status;
    }
    stream.stored_ns = stream.last_ns;
    for (int i = 0; i < 2; i++)
        stream.halves[i].data = allocate(half_size);
    stream.scratch = (struct line){.data = allocate(SCRATCH_SIZE), .size = SCRATCH_SIZE};
    *ret_stream = stream;
    pthread_mutex_init(&ret_stream->lock, NULL);
    return STATUS_OK;
}

/* --- keeping ---------------------------------------------------------------------------------- */

void stream_begin(struct line *line, int64_t t_ns)
{
    line_reset(line);
    line_open(line, '{');
    line_pair(line, "t", t_ns);
}

void stream_missed(struct stream *stream, const char *why)
{
    if (stream->missed == NULL)
        stream->missed = why;
}

static bool append(struct stream *stream, const struct line *line)
{
    struct stream_half *half = &stream->halves[stream->filling];

    if (line->overflow || line->length + 1 > stream->half_size - half->length)
        return false;
    memcpy(half->data + half->length, line->data, line->length);
    half->length += line->length;
    half->data[half->length++] = '\n';
    return true;
}

static bool append_intro(struct stream *stream, int64_t t_ns)
{
    struct line *line = &stream->scratch;

    stream_begin(line, t_ns);
    line_json(line, stream->intro, strlen(stream->intro));
    line_close(line, '}');
    return append(stream, line);
}

static bool append_gap(struct stream *stream, int64_t from_ns, int64_t t_ns, const char *why)
{
    struct line *line = &stream->scratch;

    stream_begin(line, t_ns);
    line_key(line, "gap");
    line_open(line, '{');
    line_pair(line, "from", from_ns);
    line_pair(line, "to", t_ns);
    line_key(line, "why");
    line_string(line, why);
    line_close(line, '}');
    line_close(line, '}');
    return append(stream, line);
}

/* Why samples are missing before one of now; NULL: none are. */
static const char *why_missing(const struct stream *stream, int64_t t_ns)
{
    if (stream->last_ns == 0)
        return NULL;
    if (stream->lost != NULL)
        return stream->lost;
    if (stream->missed != NULL)
        return stream->missed;
    return t_ns - stream->last_ns > (1 + LATE_PERIODS) * stream->period_ns ? "late" : NULL;
}

/* All of it or nothing: what was lost has to stay marked. */
static bool keep(struct stream *stream, int64_t t_ns, bool sample, const struct line *line)
{
    struct stream_half *half = &stream->halves[stream->filling];
    size_t before = half->length;
    const char *why = sample ? why_missing(stream, t_ns) : NULL;
    int64_t from_ns = stream->lost != NULL ? stream->stored_ns : stream->last_ns;
    bool kept = stream->introduced || append_intro(stream, t_ns);

    if (why != NULL && from_ns != 0)
        kept = kept && append_gap(stream, from_ns, t_ns, why);
    kept = kept && append(stream, line);
    if (!kept)
        half->length = before;
    return kept;
}

void stream_put(struct stream *stream, int64_t t_ns, bool sample, struct line *line)
{
    line_close(line, '}');
    pthread_mutex_lock(&stream->lock);
    if (keep(stream, t_ns, sample, line)) {
        stream->introduced = true;
        if (sample) {
            stream->lost = stream->missed = NULL;
            stream->last_ns = stream->halves[stream->filling].last_ns = t_ns;
        }
    } else if (sample) { /* last_ns stays: the gap begins there */
        stream_missed(stream, "full");
    }
    pthread_mutex_unlock(&stream->lock);
}

/* --- writing ---------------------------------------------------------------------------------- */

static bool write_all(const struct stream *stream, const char *data, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t count = write(stream->fd, data + done, length - done);
        if (count < 0 && errno != EINTR)
            return false;
        done += count > 0 ? (size_t) count : 0;
    }
    return true;
}

/* All of it or nothing: a part of a line would spoil the next one. */
static bool store(struct stream *stream, const char *data, size_t length)
{
    if (length == 0)
        return true;
    if (stream->size + (int64_t) length > FILE_MAX)
        return false;
    if (stream->torn && ftruncate(stream->fd, stream->size) != 0)
        return false;
    stream->torn = false;
    if (write_all(stream, data, length)) {
        stream->size += (int64_t) length;
        return true;
    }
    stream->torn = ftruncate(stream->fd, stream->size) != 0;
    return false;
}

/* What was taken meanwhile stands behind what is lost, so it goes, too. */
static void give_up_half(struct stream *stream)
{
    struct stream_half *half = &stream->halves[stream->filling];

    half->length = 0;
    half->last_ns = 0;
    stream->lost = "disk";
    stream->introduced = false;
}

void stream_write(struct stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    struct stream_half *half = &stream->halves[stream->filling];
    stream->filling = 1 - stream->filling;
    pthread_mutex_unlock(&stream->lock);

    bool written = store(stream, half->data, half->length);

    pthread_mutex_lock(&stream->lock);
    if (!written)
        give_up_half(stream);
    else if (half->last_ns != 0)
        stream->stored_ns = half->last_ns;
    half->length = 0;
    half->last_ns = 0;
    pthread_mutex_unlock(&stream->lock);
}

void stream_end(struct stream *stream, int64_t t_ns)
{
    struct line line = {.data = (char[128]){0}, .size = 128};

    stream_write(stream);
    stream_begin(&line, t_ns);
    line_pair(&line, "end", 1);
    stream_put(stream, t_ns, false, &line);
    stream_write(stream);
}
