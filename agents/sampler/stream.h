/* SPDX-License-Identifier: MIT */
/*
 * A file of samples: NDJSON, one sample a line, gaps marked (docs/formats.md, "samples").
 *
 * Samples go into memory; a thread of its own writes them, so that a slow disk delays no sample.
 * When the memory is full or the file cannot be written, samples are lost, and the next one that
 * is kept marks the gap. Each stream is fed by one thread.
 */
#ifndef ORDEAL_AGENTS_SAMPLER_STREAM_H
#define ORDEAL_AGENTS_SAMPLER_STREAM_H

#include <pthread.h>

#include "agents/sampler/line.h"
#include "lib/error.h"

enum { STREAM_INTRO_SIZE = 1024 };

struct stream_half {
    char *data;
    size_t length;
    int64_t last_ns; /* of its last sample, 0: it has none */
};

struct stream {
    int fd;
    int64_t period_ns;
    int64_t size;                  /* of the file: whole lines only */
    bool torn;                     /* behind them may be a part of a line */
    char intro[STREAM_INTRO_SIZE]; /* members of the first line, and of the one after a failure */
    struct line scratch;           /* for marks */
    const char *missed;            /* why samples are missing before the next one */

    pthread_mutex_t lock; /* for all below */
    struct stream_half halves[2];
    size_t half_size;
    int filling;       /* which half takes samples; the other one is being written */
    bool introduced;   /* the intro is in the file, or on its way */
    int64_t last_ns;   /* last sample taken, also by an earlier sampler; 0: none */
    int64_t stored_ns; /* last sample in the file */
    const char *lost;  /* why samples after stored_ns were lost; NULL: none were */
};

/*
 * Open or create; a line that an earlier sampler did not finish is cut off, and what it left marks
 * a gap by restart before the first sample. `intro` is JSON members without brackets. All memory is
 * allocated here.
 */
MUST_CHECK enum status stream_open(const char *path, const char *intro, int64_t period_ms,
                                   size_t half_size, struct stream *ret_stream, struct error *err);

/* A line of the stream's own kind: {"t": now, then what the caller adds; put with stream_put(). */
void stream_begin(struct line *line, int64_t t_ns);
/* Closes the bracket of the line and keeps it. `sample`: late or after a loss it marks a gap. */
void stream_put(struct stream *stream, int64_t t_ns, bool sample, struct line *line);
/* Why the samples from the last one on are missing; the next sample marks the gap. */
void stream_missed(struct stream *stream, const char *why);

/* What is in memory to the file; for the thread that writes. */
void stream_write(struct stream *stream);
/* The last line, and everything to the file. */
void stream_end(struct stream *stream, int64_t t_ns);

#endif
