/* SPDX-License-Identifier: MIT */
/*
 * Every acknowledged commit is there, and nothing is there that was not committed.
 *
 * The ledgers say what each client meant and was told; the present sets say what each node holds
 * after the run. docs/verdicts.md has the definitions.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/json.h"
#include "orchestrator/checks/exposure.h"
#include "orchestrator/checks/loss.h"
#include "orchestrator/checks/present_sets.h"
#include "orchestrator/checks/token_counts.h"

struct durability {
    const struct record *record;
    struct arena *arena;
    struct check_result *result;
    const char *promise;
    int64_t minimum_exposure;
    struct tokens tokens;
    struct evidence_history history;
    struct evidence_faults faults;
    struct exposure exposure;
    struct loss loss;
    struct token_counts counts;
    bool holes;  /* a ledger may hide something */
    bool judged; /* the final primary's present set was compared */
    struct present primary;
    const char *primary_file;
    struct reasons wrong;    /* found defects */
    struct reasons doubtful; /* evidence that is missing or contradicts itself */
};

/* --- the final primary ------------------------------------------------------------------------ */

/* Is a token absent that was acknowledged or read? */
static bool any_to_examine(const uint64_t *histogram)
{
    for (unsigned state = 0; state < TOKEN_STATES; state++) {
        bool absent = (state & (TOKEN_PRESENT | TOKEN_ODD)) == 0;
        bool acked = (state & TOKEN_CLASS_MASK) == TOKEN_ACKED;
        if (histogram[state] > 0 && absent && (acked || (state & TOKEN_READ) != 0))
            return true;
    }
    return false;
}

static void count_all(struct durability *d)
{
    uint64_t *histogram = arena_array(d->arena, TOKEN_STATES, sizeof *histogram);

    tokens_count(&d->tokens, histogram);
    if (d->judged && any_to_examine(histogram)) {
        loss_examine(&d->tokens, &d->history, &d->loss);
        tokens_count(&d->tokens, histogram);
    }
    token_counts_add(&d->counts, histogram, d->judged);
}

static void judge_strangers(struct durability *d, const struct token_strangers *strangers)
{
    if (!d->holes)
        d->counts.garbage += strangers->garbage;
    d->counts.in_doubt += strangers->reserved;
    d->counts.in_doubt_present += strangers->reserved;
    if (strangers->garbage > 0 && d->holes)
        reasons_add(&d->doubtful,
                    "%" PRIu64 " tokens that no ledger knows are present, but ledgers are missing",
                    strangers->garbage);
}

static void judge_primary(struct durability *d)
{
    const json_t *event = present_event(d->record, NULL);
    struct error problem = {0};

    if (!d->history.known) {
        reasons_add(&d->doubtful, "the final primary's timeline was not recorded");
        return;
    }
    if (event == NULL) {
        reasons_add(&d->doubtful, "the tokens of the final primary were not read");
        return;
    }
    if (present_read(d->record, event, d->arena, &d->primary, &problem) != STATUS_OK) {
        reasons_add(&d->doubtful, "%s", problem.message);
        return;
    }
    if (strcmp(d->primary.node, d->history.node) != 0 ||
        d->primary.timeline != d->history.timeline) {
        reasons_add(&d->doubtful,
                    "tokens were read on %s, timeline %u, and the final primary is %s, timeline %u",
                    d->primary.node, d->primary.timeline, d->history.node, d->history.timeline);
        return;
    }
    d->judged = true;
    d->primary_file = arena_printf(d->arena, "ledger/present-%s.tokens", d->primary.node);
    struct token_strangers strangers = tokens_mark(&d->tokens, &d->primary);
    token_counts_add_odd(&d->counts, &d->primary);
    count_all(d);
    judge_strangers(d, &strangers);
    if (!json_flag(event, "agree", false))
        reasons_add(&d->wrong, "sequential and index scan of the journal table differ on %s",
                    d->primary.node);
}

/* --- standbys --------------------------------------------------------------------------------- */

static void compare_standby(struct durability *d, const char *node, const struct present *present)
{
    struct present_difference difference = present_compare(&d->tokens, &d->primary, present);
    bool far_enough = present->lsn >= d->primary.lsn;

    if (strcmp(present->system_identifier, d->primary.system_identifier) != 0)
        reasons_add(&d->wrong, "%s is another database system than %s", node, d->primary.node);
    if (difference.extra > 0 || difference.odd > 0)
        reasons_add(&d->wrong, "%s holds %" PRIu64 " tokens that the primary does not hold", node,
                    difference.extra + difference.odd);
    d->counts.standby_differences += difference.extra + difference.odd;
    if (difference.missing == 0)
        return;
    if (!far_enough) {
        reasons_add(&d->doubtful, "%s was read before it had replayed all (%" PRIu64 " missing)",
                    node, difference.missing);
        return;
    }
    d->counts.standby_differences += difference.missing;
    reasons_add(&d->wrong, "%s lacks %" PRIu64 " tokens of the primary, %" PRIu64 " acknowledged",
                node, difference.missing, difference.missing_acked);
}

static void judge_standby(struct durability *d, const char *node)
{
    const json_t *event = present_event(d->record, node);
    struct present present;
    struct error problem = {0};

    if (event == NULL) {
        reasons_add(&d->doubtful, "the tokens of %s were not read", node);
        evidence_unjudged(d->result, "%s: its tokens were not read", node);
        return;
    }
    if (present_read(d->record, event, d->arena, &present, &problem) != STATUS_OK) {
        reasons_add(&d->doubtful, "%s", problem.message);
        evidence_unjudged(d->result, "%s: %s", node, problem.message);
        return;
    }
    if (!json_flag(event, "agree", false))
        reasons_add(&d->wrong, "sequential and index scan of the journal table differ on %s", node);
    compare_standby(d, node, &present);
}

static void judge_standbys(struct durability *d)
{
    const char *const *nodes = evidence_database_nodes(d->record, d->arena);

    if (!d->judged)
        return;
    if (nodes[0] == NULL)
        reasons_add(&d->doubtful, "the run does not say which nodes are databases");
    for (size_t i = 0; nodes[i] != NULL; i++)
        if (strcmp(nodes[i], d->primary.node) != 0)
            judge_standby(d, nodes[i]);
}

/* --- the sentence ----------------------------------------------------------------------------- */

/* Acknowledged commits whose loss the promise rules out. */
static uint64_t forbidden_losses(const struct durability *d)
{
    const struct loss *loss = &d->loss;

    if (strcmp(d->promise, "quorum") == 0)
        return d->counts.lost;
    if (strcmp(d->promise, "none") == 0)
        return loss->misplaced;
    /* "local" survives a crash of the node, and not a failover away from it */
    return loss->misplaced + loss->unplaced + d->counts.below_promise_lost;
}

static bool promoted_with_loss(const struct record *record)
{
    size_t index = 0;

    for (const json_t *event; (event = record_next(record, "ha.promote", &index)) != NULL;)
        if (json_flag(event, "allow_loss", false))
            return true;
    return false;
}

static const char *weakest_level(const struct loss *loss)
{
    for (int level = LEDGER_LEVEL_UNKNOWN; level <= LEDGER_REMOTE_APPLY; level++)
        if (loss->by_level[level] > 0)
            return ledger_level_name((enum ledger_level) level);
    return "unknown";
}

static const char *loss_cause(struct durability *d)
{
    const struct token_counts *counts = &d->counts;
    const struct loss *loss = &d->loss;

    if (loss->misplaced > 0)
        return arena_printf(
            d->arena,
            "CORRUPTION: %" PRIu64
            " of them lie before the fork of timeline %u, no failover explains them",
            loss->misplaced, d->history.timeline);
    if (loss->present_after > 0)
        return arena_printf(d->arena,
                            "CORRUPTION: not the tail, %" PRIu64
                            " commits from behind the fork of timeline %u are present",
                            loss->present_after, d->history.timeline);
    if (counts->below_promise_lost == counts->lost)
        return arena_printf(d->arena,
                            "all acknowledged below the promise (synchronous_commit = %s, promise "
                            "%s)",
                            weakest_level(loss), d->promise);
    if (loss->branch > 0)
        return arena_printf(d->arena,
                            "%" PRIu64 " on a timeline that is no ancestor of timeline %u: two "
                            "writers",
                            loss->branch, d->history.timeline);
    if (promoted_with_loss(d->record))
        return "exactly the tail after the fork; the promotion was allowed to lose commits "
               "(promote: allow-loss)";
    if (loss->unplaced > 0)
        return arena_printf(d->arena, "%" PRIu64 " of them have no recorded position",
                            loss->unplaced);
    return arena_printf(d->arena, "exactly the tail after the fork of timeline %u",
                        d->history.timeline);
}

static void name_losses(struct durability *d)
{
    const struct token_counts *counts = &d->counts;

    if (forbidden_losses(d) > 0)
        reasons_add(&d->wrong, "lost %" PRIu64 " of %" PRIu64 " acknowledged (%s)", counts->lost,
                    counts->acked, loss_cause(d));
    if (counts->vanished > 0)
        reasons_add(&d->wrong, "%" PRIu64 " vanished after they had been read", counts->vanished);
    if (counts->resurrected > 0)
        reasons_add(&d->wrong, "%" PRIu64 " aborted or unsent are present", counts->resurrected);
    if (counts->duplicate > 0)
        reasons_add(&d->wrong, "%" PRIu64 " duplicate", counts->duplicate);
    if (counts->torn > 0)
        reasons_add(&d->wrong, "%" PRIu64 " torn", counts->torn);
    if (counts->garbage > 0)
        reasons_add(&d->wrong, "%" PRIu64 " garbage", counts->garbage);
    if (d->tokens.garbage_reads > 0 && !d->holes)
        reasons_add(&d->wrong, "%" PRIu64 " reads returned a token that nobody wrote",
                    d->tokens.garbage_reads);
}

static void name_doubts(struct durability *d)
{
    const struct token_counts *counts = &d->counts;

    if (!d->record->complete)
        reasons_add(&d->doubtful, "the journal of the run has no end");
    if (counts->acked == 0)
        reasons_add(&d->doubtful, "nothing was acknowledged");
    if (counts->unlevelled > 0)
        reasons_add(&d->doubtful,
                    "the durability in force is not known for %" PRIu64 " acknowledgements",
                    counts->unlevelled);
    if (d->faults.count > 0 && d->exposure.best < (uint64_t) d->minimum_exposure)
        reasons_add(&d->doubtful,
                    "too little was at stake: %" PRIu64 " commits acknowledged at the promised "
                    "level in the last second before the fault, needed %" PRId64,
                    d->exposure.best, d->minimum_exposure);
}

static const char *tally(struct durability *d)
{
    const struct token_counts *counts = &d->counts;
    const char *text =
        arena_printf(d->arena,
                     "acknowledged %" PRIu64 ", lost %" PRIu64 ", in doubt %" PRIu64 " (%" PRIu64
                     " present), aborted %" PRIu64 " and unsent %" PRIu64 " absent",
                     counts->acked, counts->lost, counts->in_doubt, counts->in_doubt_present,
                     counts->aborted, counts->unsent);

    if (counts->weak > 0)
        text = arena_printf(d->arena, "%s, weak %" PRIu64 " (%" PRIu64 " lost)", text, counts->weak,
                            counts->weak_lost);
    if (counts->below_promise > 0)
        text = arena_printf(d->arena, "%s, below the promise %" PRIu64 " (%" PRIu64 " lost)", text,
                            counts->below_promise, counts->below_promise_lost);
    if (counts->exposed > 0)
        text = arena_printf(d->arena,
                            "%s, %" PRIu64 " shown before they were replicated and then gone", text,
                            counts->exposed);
    if (d->faults.count > 0)
        text = arena_printf(d->arena, "%s; %" PRIu64 " acknowledged in the second before the fault",
                            text, d->exposure.best);
    return text;
}

static json_t *rpo_json(const struct durability *d)
{
    const struct evidence_fault *fault = evidence_first_fault(&d->faults);
    const struct loss *loss = &d->loss;
    int64_t ns = 0;

    if (fault != NULL && loss->oldest_ack_ns != 0 && loss->oldest_ack_ns < fault->f0_ns)
        ns = fault->f0_ns - loss->oldest_ack_ns;
    return json_pack("{s:I, s:I, s:o}", "transactions", (json_int_t) d->counts.lost, "bytes",
                     (json_int_t) loss->rpo_bytes, "ms", evidence_json_ms(ns));
}

static void describe(struct durability *d)
{
    struct check_result *result = d->result;
    uint64_t violations = forbidden_losses(d) + d->counts.vanished + d->counts.resurrected +
                          d->counts.duplicate + d->counts.torn + d->counts.garbage +
                          d->counts.standby_differences;

    result->value = d->judged ? json_integer((json_int_t) violations) : NULL;
    result->bound = json_integer(0);
    result->unit = "transactions";
    result->resolution = json_integer(0);
    result->evidence = d->primary_file != NULL ? d->primary_file : "ledger/";
    evidence_detail(result, "ledger", token_counts_json(&d->counts, d->judged));
    evidence_detail(result, "exposure", exposure_json(d->record, &d->exposure));
    evidence_detail(result, "rpo", rpo_json(d));
    if (d->counts.lost > 0)
        evidence_detail(result, "oldest_loss",
                        json_pack("{s:I, s:I, s:I, s:I}", "client",
                                  (json_int_t) d->loss.example.client, "seq",
                                  (json_int_t) d->loss.example.seq, "timeline",
                                  (json_int_t) d->loss.example.timeline, "lsn",
                                  (json_int_t) d->loss.example.lsn));
    if (d->counts.lost > 0)
        evidence_detail(result, "corruption",
                        json_boolean(d->loss.misplaced > 0 || d->loss.present_after > 0));
}

static void conclude(struct durability *d)
{
    if (d->wrong.count > 0)
        check_conclude(d->result, VERDICT_FAIL, "%s; %s", reasons_text(&d->wrong), tally(d));
    else if (d->doubtful.count > 0)
        check_conclude(d->result, VERDICT_INCONCLUSIVE, "%s; %s", reasons_text(&d->doubtful),
                       tally(d));
    else
        check_conclude(d->result, VERDICT_PASS, "%s", tally(d));
}

static int64_t minimum_exposure(const struct record *record, const json_t *params)
{
    const json_t *scenario = json_object_get(record->start, "scenario");

    return json_number(params, "minimum-exposure", json_number(scenario, "minimum-exposure", 1));
}

static enum status judge(const struct record *record, const json_t *params, struct arena *arena,
                         struct check_result *ret_result, struct error *err)
{
    struct durability *d = arena_alloc(arena, sizeof *d);

    (void) err;
    d->record = record;
    d->arena = arena;
    d->result = ret_result;
    d->promise = evidence_promise(record);
    d->minimum_exposure = minimum_exposure(record, params);
    d->wrong.arena = arena;
    d->doubtful.arena = arena;
    d->history = evidence_history(record, arena);
    d->faults = evidence_faults(record, arena);
    tokens_merge(&d->tokens, record, arena);
    tokens_holes(&d->tokens, &d->doubtful);
    d->holes = d->doubtful.count > 0;
    d->exposure = exposure_measure(record, &d->faults, tokens_promised_level(d->promise), arena);
    judge_primary(d);
    if (!d->judged)
        count_all(d);
    judge_standbys(d);
    name_losses(d);
    name_doubts(d);
    describe(d);
    conclude(d);
    return STATUS_OK;
}

static const struct param params[] = {
    {.name = "minimum-exposure",
     .type = PARAM_INTEGER,
     .minimum = 0,
     .maximum = 1000000000,
     .help = "acknowledgements needed in the last second before a fault; else the scenario's"},
    {.name = NULL},
};

const struct check check_durability = {
    .name = "durability",
    .summary = "every acknowledged commit is there, and nothing that was not committed",
    .negative_control = "tests/calibration/test_calibration_commits.c: acked row deleted",
    .params = params,
    .judge = judge,
};
