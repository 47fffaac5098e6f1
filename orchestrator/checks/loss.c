/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/loss.h"

#include "lib/json.h"

/* The last outcome of a client, until its upper bound is known. */
struct pending {
    bool set;
    struct ledger_record outcome;
    enum ledger_level level;
};

struct examination {
    struct tokens *tokens;
    const struct evidence_history *history;
    struct loss *loss;
    struct pending *pending; /* by slot */
    struct walk walk;
};

static void note_lost(struct loss *loss, const struct pending *pending)
{
    const struct ledger_record *outcome = &pending->outcome;

    loss->by_level[pending->level]++;
    if (loss->oldest_ack_ns != 0 && loss->oldest_ack_ns <= outcome->done_ns)
        return;
    loss->oldest_ack_ns = outcome->done_ns;
    loss->example.client = outcome->client;
    loss->example.seq = outcome->seq;
    loss->example.timeline = outcome->timeline;
    loss->example.lsn = outcome->lsn;
}

/* Which kind of loss it is. Without a flush at commit a crash restart loses the end of the same
 * timeline too. */
static uint64_t *kind_of_loss(struct examination *exam, const struct pending *pending, uint64_t hi)
{
    const struct ledger_record *outcome = &pending->outcome;
    struct loss *loss = exam->loss;
    uint64_t end;

    if (outcome->timeline == 0)
        return &loss->unplaced;
    if (outcome->timeline == exam->history->timeline)
        return pending->level == LEDGER_OFF ? &loss->tail : &loss->misplaced;
    if (!evidence_timeline_end(exam->history, outcome->timeline, &end))
        return &loss->branch;
    if (hi <= end)
        return &loss->misplaced;
    if (outcome->lsn > end && outcome->lsn - end > loss->rpo_bytes)
        loss->rpo_bytes = outcome->lsn - end;
    return outcome->lsn == 0 ? &loss->unplaced : &loss->tail;
}

static void place_lost(struct examination *exam, const struct pending *pending, uint64_t hi)
{
    note_lost(exam->loss, pending);
    ++*kind_of_loss(exam, pending, hi);
}

/* `hi`: the commit record ends at or before it; UINT64_MAX when nothing is known. */
static void settle(struct examination *exam, struct pending *pending, uint64_t hi)
{
    const struct ledger_record *outcome = &pending->outcome;
    uint16_t *state = tokens_state(exam->tokens, outcome->client, outcome->seq);
    uint64_t end;

    pending->set = false;
    if (state == NULL)
        return;
    bool ancestor = evidence_timeline_end(exam->history, outcome->timeline, &end);
    if (ancestor && hi <= end)
        *state |= TOKEN_BEFORE_FORK;
    if ((*state & TOKEN_PRESENT) != 0) {
        bool committed = outcome->class <= LEDGER_IN_DOUBT;
        if (ancestor && committed && outcome->lsn > end)
            exam->loss->present_after++;
    } else if ((*state & TOKEN_ODD) == 0 && outcome->class == LEDGER_ACKED) {
        place_lost(exam, pending, hi);
    }
}

static void examine_outcome(struct examination *exam)
{
    const struct ledger_record *at = exam->walk.at;
    struct pending *pending = &exam->pending[exam->walk.slot];

    if (at->lsn == 0) { /* bounds nothing; settled alone, so that the one before keeps waiting */
        struct pending alone = {.outcome = *at, .level = exam->walk.client->level};
        settle(exam, &alone, UINT64_MAX);
        return;
    }
    if (pending->set)
        settle(exam, pending, pending->outcome.timeline == at->timeline ? at->lsn : UINT64_MAX);
    *pending = (struct pending){.set = true, .outcome = *at, .level = exam->walk.client->level};
}

/* When a timeline's writer was certainly deposed: a newer timeline was made or acknowledged. */
static int64_t deposed_at(const struct tokens *tokens, uint32_t timeline)
{
    const struct record *record = tokens->walk.record;
    int64_t deposed_ns = INT64_MAX;
    size_t index = 0;
    int64_t at_ns;

    for (size_t i = 0; i < tokens->timeline_count; i++)
        if (tokens->timelines[i].timeline > timeline &&
            tokens->timelines[i].first_ack_ns < deposed_ns)
            deposed_ns = tokens->timelines[i].first_ack_ns;
    for (const json_t *event; (event = record_next(record, "ha.promote", &index)) != NULL;)
        if (json_number(event, "timeline", 0) > timeline &&
            evidence_instant(record, event, &at_ns) && at_ns < deposed_ns)
            deposed_ns = at_ns;
    return deposed_ns;
}

static void examine_read(struct examination *exam)
{
    const struct ledger_record *at = exam->walk.at;
    uint16_t *state = tokens_state(exam->tokens, (uint32_t) at->lsn, at->seq);
    uint64_t end;

    if (state == NULL || (*state & (TOKEN_PRESENT | TOKEN_ODD)) != 0 || at->timeline == 0)
        return;
    if (at->timeline == exam->history->timeline)
        *state |= TOKEN_READ_LEGIT | TOKEN_READ_FINAL;
    else if (evidence_timeline_end(exam->history, at->timeline, &end) &&
             at->done_ns < deposed_at(exam->tokens, at->timeline))
        *state |= TOKEN_READ_LEGIT;
}

void loss_examine(struct tokens *tokens, const struct evidence_history *history,
                  struct loss *ret_loss)
{
    struct arena *arena = tokens->walk.arena;
    struct examination exam = {.tokens = tokens, .history = history, .loss = ret_loss};

    *ret_loss = (struct loss){0};
    exam.pending = arena_array(arena, tokens->walk.client_count + 1, sizeof *exam.pending);
    walk_begin(&exam.walk, tokens->walk.record, arena); /* the same files give the same slots */
    while (walk_next(&exam.walk)) {
        if (exam.walk.slot == SIZE_MAX)
            continue;
        if (exam.walk.at->kind == LEDGER_OUTCOME)
            examine_outcome(&exam);
        else if (exam.walk.at->kind == LEDGER_READ)
            examine_read(&exam);
    }
    for (size_t slot = 0; slot < tokens->walk.client_count; slot++)
        if (exam.pending[slot].set)
            settle(&exam, &exam.pending[slot], UINT64_MAX);
}
