/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/token_counts.h"

static void count_acked(struct token_counts *counts, unsigned state, bool absent, uint64_t n)
{
    counts->acked += n;
    if ((state & TOKEN_BELOW) != 0)
        counts->below_promise += n;
    if ((state & TOKEN_UNLEVELLED) != 0)
        counts->unlevelled += n;
    if (!absent)
        return;
    counts->lost += n;
    if ((state & TOKEN_BELOW) != 0)
        counts->below_promise_lost += n;
    if ((state & TOKEN_READ_LEGIT) != 0)
        counts->lost_read += n;
}

/*
 * A token that was read on the writer of its time and is absent now. Stock PostgreSQL shows
 * commits that no standby holds after a crash restart or a cancelled wait; those may vanish with a
 * failover. Nothing excuses one that the final primary had copied or shown itself.
 */
static void count_vanished(struct token_counts *counts, unsigned state, uint64_t n)
{
    if ((state & TOKEN_READ_LEGIT) == 0)
        return;
    if ((state & (TOKEN_BEFORE_FORK | TOKEN_READ_FINAL)) == 0)
        counts->exposed += n;
    else
        counts->vanished += n;
}

static void count_state(struct token_counts *counts, unsigned state, uint64_t n, bool judged)
{
    bool present = (state & TOKEN_PRESENT) != 0;
    bool absent = judged && (state & (TOKEN_PRESENT | TOKEN_ODD)) == 0;

    switch (state & TOKEN_CLASS_MASK) {
    case TOKEN_ACKED:
        count_acked(counts, state, absent, n);
        break;
    case TOKEN_WEAK:
        counts->weak += n;
        counts->unlevelled += (state & TOKEN_UNLEVELLED) != 0 ? n : 0;
        counts->weak_lost += absent ? n : 0;
        count_vanished(counts, absent ? state : 0, n);
        break;
    case TOKEN_INTENT:
    case TOKEN_IN_DOUBT:
        counts->in_doubt += n;
        counts->in_doubt_present += present ? n : 0;
        count_vanished(counts, absent ? state : 0, n);
        break;
    case TOKEN_ABORTED:
    case TOKEN_UNSENT:
        if ((state & TOKEN_CLASS_MASK) == TOKEN_ABORTED)
            counts->aborted += n;
        else
            counts->unsent += n;
        counts->resurrected += present ? n : 0;
        if (absent && (state & TOKEN_READ_LEGIT) != 0)
            counts->vanished += n;
        break;
    default: /* a gap in the ledger: not judged, named as a hole */
        break;
    }
}

void token_counts_add_odd(struct token_counts *counts, const struct present *present)
{
    for (size_t i = 0; i < present->odd_count; i++) {
        const struct present_odd *odd = &present->odd[i];
        if (odd->bad > 0)
            counts->garbage++;
        else if (odd->rows > odd->expected)
            counts->duplicate++;
        else
            counts->torn++;
    }
}

void token_counts_add(struct token_counts *counts, const uint64_t *histogram, bool judged)
{
    for (unsigned state = 0; state < TOKEN_STATES; state++)
        if (histogram[state] > 0)
            count_state(counts, state, histogram[state], judged);
}

json_t *token_counts_json(const struct token_counts *c, bool judged)
{
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {
        {"acked", c->acked},
        {"weak", c->weak},
        {"in_doubt", c->in_doubt},
        {"aborted", c->aborted},
        {"unsent", c->unsent},
        {"lost", c->lost},
        {"vanished", c->vanished},
        {"resurrected", c->resurrected},
        {"duplicate", c->duplicate},
        {"torn", c->torn},
        {"garbage", c->garbage},
        {"in_doubt_present", c->in_doubt_present},
        {"weak_lost", c->weak_lost},
        {"below_promise", c->below_promise},
        {"below_promise_lost", c->below_promise_lost},
        {"lost_after_read", c->lost_read},
        {"exposed", c->exposed},
        {"standby_differences", c->standby_differences},
    };
    json_t *ledger = json_object();

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        json_object_set_new(ledger, members[i].name, json_integer((json_int_t) members[i].value));
    json_object_set_new(ledger, "judged", json_boolean(judged));
    return ledger;
}
