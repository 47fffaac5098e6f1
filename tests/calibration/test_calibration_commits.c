/* SPDX-License-Identifier: MIT */
/* What can happen to commits, to the rows that they wrote, and to those who saw them. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "tests/support/calibration.h"

enum { TAIL_MS = 50 }; /* before the kill: 20 commits of the workload, 22 of the probes */

/* --- the tail --------------------------------------------------------------------------------- */

static bool is_tail(const struct ledger_record *record)
{
    return record->kind == LEDGER_OUTCOME && record->class == LEDGER_ACKED &&
           record->timeline == 1 && record->scheduled_ns >= run_client_ns(RUN_FAULT_MS - TAIL_MS);
}

static bool is_workload(const struct ledger_record *record)
{
    return record->client <= RUN_WORKLOAD;
}

/* What the clients of the workload were told in the last moments before the kill. */
static void tell_tail(struct run_builder *run, const struct ledger_evidence *told)
{
    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (is_tail(record) && is_workload(record))
            record->class = (uint8_t) ledger_classify(told);
    }
}

/* The old timeline ended before the tail. */
static void fork_before_tail(struct run_builder *run)
{
    json_t *history = json_array_get(json_object_get(run_find(run, "timeline"), "history"), 0);
    char lsn[32];

    snprintf(lsn, sizeof lsn, "0/%llX", (unsigned long long) run_lsn(RUN_FAULT_MS - TAIL_MS));
    json_object_set_new(history, "lsn", json_string(lsn));
}

/* Its rows are gone with the old primary; the probes' own commits were in doubt. */
static void lose_tail(struct run_builder *run)
{
    for (size_t ledger = 0; ledger < 2; ledger++)
        for (size_t i = 0; i < run->ledgers[ledger].count; i++) {
            struct ledger_record *record = &run->ledgers[ledger].records[i];
            if (!is_tail(record))
                continue;
            if (!is_workload(record))
                record->class = LEDGER_IN_DOUBT;
            run_absent(run, NULL, record->client, record->seq);
        }
    fork_before_tail(run);
}

/* One of the tail came through: what is gone is not the tail. */
static void tail_lost_but_one(struct run_builder *run)
{
    lose_tail(run);
    run_present(run, NULL, 1, run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS));
}

static void tail_lost_but_one_in_doubt(struct run_builder *run)
{
    uint64_t seq = run_last_before(run, 1, LEDGER_ACKED, RUN_FAULT_MS);

    tail_lost_but_one(run);
    run_outcome(run, 1, seq)->class = LEDGER_IN_DOUBT;
}

static void allowed_to_lose(struct run_builder *run)
{
    lose_tail(run);
    json_object_set_new(run_find(run, "ha.promote"), "allow_loss", json_true());
}

static void gone(struct run_builder *run, const struct ledger_evidence *told)
{
    lose_tail(run);
    tell_tail(run, told);
}

static const struct ledger_evidence cancelled = {
    .phase = LEDGER_COMMITTING, .tag = "COMMIT", .sync_wait_notice = true};
static const struct ledger_evidence terminated = {
    .phase = LEDGER_COMMITTING, .connection_lost = true, .severity = "FATAL", .sqlstate = "57P01"};
static const struct ledger_evidence flush_panic = {
    .phase = LEDGER_COMMITTING, .connection_lost = true, .severity = "PANIC", .sqlstate = "58030"};
static const struct ledger_evidence refused = {
    .phase = LEDGER_COMMITTING, .severity = "ERROR", .sqlstate = "40001"};

static void cancelled_gone(struct run_builder *run)
{
    gone(run, &cancelled);
}

static void cancelled_kept(struct run_builder *run)
{
    tell_tail(run, &cancelled);
}

static void terminated_gone(struct run_builder *run)
{
    gone(run, &terminated);
}

static void terminated_kept(struct run_builder *run)
{
    tell_tail(run, &terminated);
}

static void panic_gone(struct run_builder *run)
{
    gone(run, &flush_panic);
}

static void panic_kept(struct run_builder *run)
{
    tell_tail(run, &flush_panic);
}

static void refused_gone(struct run_builder *run)
{
    gone(run, &refused);
}

static void refused_kept(struct run_builder *run)
{
    tell_tail(run, &refused);
}

/* --- rows ------------------------------------------------------------------------------------- */

static void acked_row_deleted(struct run_builder *run)
{
    run_absent(run, NULL, 1, 100);
}

/* Committed and acknowledged on the primary of today, and gone. */
static void row_of_the_new_primary_deleted(struct run_builder *run)
{
    run_absent(run, NULL, 1, run_last(run, 1, LEDGER_ACKED));
}

static void aborted_row_inserted(struct run_builder *run)
{
    run_present(run, NULL, RUN_DIRECT_N3, run_first(run, RUN_DIRECT_N3, LEDGER_ABORTED));
}

static void unsent_row_inserted(struct run_builder *run)
{
    run_present(run, NULL, 1, run_first(run, 1, LEDGER_UNSENT));
}

/* The client did not know whether it had committed, and wrote it again. */
static void retry_doubles(struct run_builder *run)
{
    run_odd(run, NULL, RUN_OLD_PROBE, run_first(run, RUN_OLD_PROBE, LEDGER_IN_DOUBT), 2, 1, 0);
}

static void retry_writes_once(struct run_builder *run)
{
    run_present(run, NULL, RUN_OLD_PROBE, run_first(run, RUN_OLD_PROBE, LEDGER_IN_DOUBT));
}

static void row_torn(struct run_builder *run)
{
    run_odd(run, NULL, 1, 100, 2, 3, 0);
}

/* Rows copied one by one while transactions ran: of each of the tail's, half came along. */
static void torn_by_a_copy(struct run_builder *run)
{
    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        const struct ledger_record *record = &run->ledgers[0].records[i];
        if (is_tail(record) && is_workload(record))
            run_odd(run, NULL, record->client, record->seq, 1, 2, 0);
    }
}

static void row_rewritten(struct run_builder *run)
{
    run_odd(run, NULL, 1, 100, 1, 1, 1);
}

static void unknown_rows(struct run_builder *run)
{
    for (uint64_t seq = 1; seq <= 5; seq++)
        run_present(run, NULL, 4242, seq);
}

/* --- readers ---------------------------------------------------------------------------------- */

/* In doubt, read while the old primary was the writer, and gone. */
static uint64_t read_and_gone(struct run_builder *run)
{
    uint64_t seq = run_first(run, RUN_OLD_PROBE, LEDGER_IN_DOUBT);

    run_read(run, RUN_OLD_PROBE, seq, 0, 1, RUN_FAULT_MS);
    return seq;
}

static void read_behind_the_fork(struct run_builder *run)
{
    uint64_t seq = read_and_gone(run);

    run_outcome(run, RUN_OLD_PROBE, seq)->lsn = run_lsn(RUN_FAULT_MS) + 64;
}

/* The client's next position on that timeline still lies before the fork. */
static void read_before_the_fork(struct run_builder *run)
{
    uint64_t seq = run_last_before(run, 1, LEDGER_ACKED, 3000);

    run_outcome(run, 1, seq)->class = LEDGER_IN_DOUBT;
    run_absent(run, NULL, 1, seq);
    run_read(run, 1, seq, 0, 1, 3100);
}

static void read_on_the_new_primary(struct run_builder *run)
{
    run_read(run, RUN_OLD_PROBE, run_first(run, RUN_OLD_PROBE, LEDGER_IN_DOUBT), 1, 2, 9000);
}

static void read_on_the_deposed(struct run_builder *run)
{
    run_read(run, RUN_OLD_PROBE, run_first(run, RUN_OLD_PROBE, LEDGER_IN_DOUBT), 0, 1, 9000);
}

static void acked_read_and_lost(struct run_builder *run)
{
    run_read(run, 1, 100, 0, 1, 4000);
    run_absent(run, NULL, 1, 100);
}

static void read_of_nothing(struct run_builder *run)
{
    run_read(run, RUN_OLD_PROBE, 77777, 0, 1, 3000);
}

/* --- standbys --------------------------------------------------------------------------------- */

static void standby_lacks_a_row(struct run_builder *run)
{
    run_absent(run, "n3", 2, 50);
}

static void standby_is_not_that_far(struct run_builder *run)
{
    standby_lacks_a_row(run);
    run->present[2].lsn = "0/3FFFFFF";
}

static void standby_holds_a_row_more(struct run_builder *run)
{
    run_present(run, "n3", 1, run_first(run, 1, LEDGER_UNSENT));
}

static void standby_holds_other_content(struct run_builder *run)
{
    run_odd(run, "n3", 1, 100, 1, 1, 1);
}

static void standby_of_another_system(struct run_builder *run)
{
    run->present[2].system = "7399999999999999999";
}

static void standby_scans_differ(struct run_builder *run)
{
    json_object_set_new(run_find_where(run, "present", "node", "n3"), "agree", json_false());
}

/* --- evidence --------------------------------------------------------------------------------- */

static void present_set_cut_off(struct run_builder *run)
{
    run->present[1].cut = true;
}

static void present_set_missing(struct run_builder *run)
{
    json_t *event = run_find_where(run, "present", "node", "n3");

    json_object_set_new(event, "event", json_string("note"));
}

static void ledger_missing(struct run_builder *run)
{
    run->ledgers[1].missing = true;
}

/* Nothing is known of one transaction in the middle. */
static void hole_in_the_ledger(struct run_builder *run)
{
    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (record->client == 1 && record->seq == 100 && record->kind != LEDGER_READ)
            *record = (struct ledger_record){
                .kind = LEDGER_BEAT, .sent_ns = record->done_ns, .done_ns = record->done_ns};
    }
}

static void no_outcome(struct run_builder *run)
{
    struct ledger_record *record = run_outcome(run, 1, 100);

    *record = (struct ledger_record){
        .kind = LEDGER_BEAT, .sent_ns = record->done_ns, .done_ns = record->done_ns};
    run_absent(run, NULL, 1, 100);
}

static void ten_thousand_at_stake(struct run_builder *run)
{
    json_object_set_new(run_scenario(run), "minimum-exposure", json_integer(10000));
}

static void hundred_at_stake(struct run_builder *run)
{
    json_object_set_new(run_scenario(run), "minimum-exposure", json_integer(100));
}

/* --- durability in force ---------------------------------------------------------------------- */

/* A role, a database or a function set it lower: every session of client 1 says so. */
static void weaken(struct run_builder *run, enum ledger_level level)
{
    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (record->kind == LEDGER_SESSION && record->client == 1)
            record->class = (uint8_t) level;
    }
}

static void weakened(struct run_builder *run)
{
    weaken(run, LEDGER_LOCAL);
}

/* What client 1 was told in the tail is gone, and everything of the others was in doubt. */
static void weakened_and_lost(struct run_builder *run)
{
    weaken(run, LEDGER_LOCAL);
    lose_tail(run);
    for (size_t i = 0; i < run->ledgers[0].count; i++) {
        struct ledger_record *record = &run->ledgers[0].records[i];
        if (is_tail(record) && record->client != 1)
            record->class = LEDGER_IN_DOUBT;
    }
}

/* client_min_messages hides the warning: what an acknowledgement is worth is not known. */
static void warnings_hidden(struct run_builder *run)
{
    weaken(run, LEDGER_LEVEL_UNKNOWN);
}

/* --- the table -------------------------------------------------------------------------------- */

#define DURABLE(words_) PASSES("durability", words_)
#define BROKEN(words_) FAILS("durability", words_)
#define UNCLEAR(words_) PROVES_NOTHING("durability", words_)

static const struct calibration rows[] = {
    {.planted = "nothing", DURABLE("lost 0"), COUNTS("lost", 0)},
    {.planted = "acked row deleted",
     .plant = acked_row_deleted,
     BROKEN("CORRUPTION: 1 of them lie before the fork"),
     COUNTS("lost", 1)},
    {.planted = "row of the new primary deleted",
     .plant = row_of_the_new_primary_deleted,
     BROKEN("CORRUPTION"),
     COUNTS("lost", 1)},
    {.planted = "acked tail lost with the primary",
     .plant = lose_tail,
     BROKEN("exactly the tail"),
     COUNTS("lost", 20)},
    {.planted = "the tail lost but for one row",
     .plant = tail_lost_but_one,
     BROKEN("CORRUPTION: not the tail"),
     COUNTS("lost", 19)},
    {.planted = "the tail lost but for one row in doubt",
     .plant = tail_lost_but_one_in_doubt,
     BROKEN("CORRUPTION: not the tail"),
     COUNTS("lost", 19)},
    {.planted = "acked tail lost by a promotion that was allowed to",
     .plant = allowed_to_lose,
     BROKEN("promote: allow-loss"),
     COUNTS("lost", 20)},
    {.planted = "tail lost, promise local",
     .plan = {.promise = "local"},
     .plant = lose_tail,
     DURABLE("lost 20"),
     COUNTS("lost", 20)},
    {.planted = "row before the fork lost, promise local",
     .plan = {.promise = "local"},
     .plant = acked_row_deleted,
     BROKEN("CORRUPTION"),
     COUNTS("lost", 1)},

    {.planted = "wait for standbys cancelled, tail lost",
     .plant = cancelled_gone,
     DURABLE("weak 20 (20 lost)"),
     COUNTS("lost", 0)},
    {.planted = "wait for standbys cancelled, tail kept",
     .plant = cancelled_kept,
     DURABLE("weak 20 (0 lost)"),
     COUNTS("weak", 20)},
    {.planted = "backends terminated in the wait, tail lost",
     .plant = terminated_gone,
     DURABLE("in doubt 42 (0 present)"),
     COUNTS("lost", 0)},
    {.planted = "backends terminated in the wait, locally committed",
     .plant = terminated_kept,
     DURABLE("in doubt 22 (20 present)"),
     COUNTS("in_doubt_present", 20)},
    {.planted = "PANIC at the WAL flush after COMMIT was sent, lost",
     .plant = panic_gone,
     DURABLE("in doubt 42 (0 present)"),
     COUNTS("lost", 0)},
    {.planted = "PANIC at the WAL flush after COMMIT was sent, kept",
     .plant = panic_kept,
     DURABLE("in doubt 22 (20 present)"),
     COUNTS("resurrected", 0)},
    {.planted = "ERROR at COMMIT, gone",
     .plant = refused_gone,
     DURABLE("lost 0"),
     COUNTS("resurrected", 0)},
    {.planted = "ERROR at COMMIT, kept all the same",
     .plant = refused_kept,
     BROKEN("aborted or unsent"),
     COUNTS("resurrected", 20)},
    {.planted = "no outcome recorded, absent",
     .plant = no_outcome,
     DURABLE("lost 0"),
     COUNTS("in_doubt", 3)},

    {.planted = "aborted row inserted",
     .plant = aborted_row_inserted,
     BROKEN("aborted or unsent"),
     COUNTS("resurrected", 1)},
    {.planted = "unsent row inserted",
     .plant = unsent_row_inserted,
     BROKEN("aborted or unsent"),
     COUNTS("resurrected", 1)},
    {.planted = "retry of a commit in doubt wrote it twice",
     .plant = retry_doubles,
     BROKEN("1 duplicate"),
     COUNTS("duplicate", 1)},
    {.planted = "commit in doubt is there once",
     .plant = retry_writes_once,
     DURABLE("(1 present)"),
     COUNTS("duplicate", 0)},
    {.planted = "one of three rows missing",
     .plant = row_torn,
     BROKEN("1 torn"),
     COUNTS("torn", 1)},
    {.planted = "rows torn by a copy that was no transaction",
     .plant = torn_by_a_copy,
     BROKEN("20 torn"),
     COUNTS("torn", 20)},
    {.planted = "row rewritten", .plant = row_rewritten, BROKEN("1 garbage"), COUNTS("garbage", 1)},
    {.planted = "rows nobody sent",
     .plant = unknown_rows,
     BROKEN("5 garbage"),
     COUNTS("garbage", 5)},

    {.planted = "in doubt, read, gone; behind the fork",
     .plant = read_behind_the_fork,
     DURABLE("1 shown before they were replicated"),
     COUNTS("exposed", 1)},
    {.planted = "in doubt, read, gone; before the fork",
     .plant = read_before_the_fork,
     BROKEN("1 vanished after they had been read"),
     COUNTS("vanished", 1)},
    {.planted = "in doubt, read on the new primary, gone",
     .plant = read_on_the_new_primary,
     BROKEN("1 vanished after they had been read"),
     COUNTS("vanished", 1)},
    {.planted = "in doubt, read on the deposed primary only",
     .plant = read_on_the_deposed,
     DURABLE("lost 0"),
     COUNTS("vanished", 0)},
    {.planted = "acked, read, lost",
     .plant = acked_read_and_lost,
     BROKEN("lost 1 of"),
     COUNTS("lost_after_read", 1)},
    {.planted = "a read of what nobody wrote",
     .plant = read_of_nothing,
     BROKEN("that nobody wrote"),
     COUNTS("lost", 0)},

    {.planted = "standby lacks a row",
     .plant = standby_lacks_a_row,
     BROKEN("n3 lacks 1 tokens of the primary, 1 acknowledged"),
     COUNTS("standby_differences", 1)},
    {.planted = "standby that has not replayed all lacks a row",
     .plant = standby_is_not_that_far,
     UNCLEAR("before it had replayed all"),
     COUNTS("standby_differences", 0)},
    {.planted = "standby holds a row more",
     .plant = standby_holds_a_row_more,
     BROKEN("n3 holds 1 tokens that the primary does not hold"),
     COUNTS("standby_differences", 1)},
    {.planted = "standby holds other content",
     .plant = standby_holds_other_content,
     BROKEN("n3 holds 1 tokens"),
     COUNTS("standby_differences", 1)},
    {.planted = "standby of another database system",
     .plant = standby_of_another_system,
     BROKEN("another database system"),
     COUNTS("standby_differences", 0)},
    {.planted = "table and index of a standby differ",
     .plant = standby_scans_differ,
     BROKEN("sequential and index scan"),
     COUNTS("lost", 0)},

    {.planted = "present set cut off", .plant = present_set_cut_off, UNCLEAR("cut off")},
    {.planted = "present set of a standby missing",
     .plant = present_set_missing,
     UNCLEAR("the tokens of n3 were not read")},
    {.planted = "ledger missing", .plant = ledger_missing, UNCLEAR("ledgers are here")},
    {.planted = "hole in a ledger", .plant = hole_in_the_ledger, UNCLEAR("have no record")},
    {.planted = "idle cluster, all standbys even",
     .plan = {.load_from_ms = RUN_END_MS - 1},
     UNCLEAR("too little was at stake: 0 commits")},
    {.planted = "load stopped 1.1 s before the fault",
     .plan = {.load_until_ms = RUN_FAULT_MS - 1100},
     UNCLEAR("too little was at stake: 0 commits")},
    {.planted = "less at stake than the scenario asks for",
     .plant = ten_thousand_at_stake,
     UNCLEAR("needed 10000")},
    {.planted = "as much at stake as the scenario asks for",
     .plant = hundred_at_stake,
     DURABLE("lost 0")},

    {.planted = "one role weakened, nothing lost",
     .plant = weakened,
     DURABLE("below the promise 8"),
     COUNTS("below_promise_lost", 0)},
    {.planted = "one role weakened, its tail lost",
     .plant = weakened_and_lost,
     BROKEN("synchronous_commit = local"),
     COUNTS("below_promise_lost", 5)},
    {.planted = "all weakened, tail lost",
     .plan = {.level = LEDGER_LOCAL},
     .plant = lose_tail,
     BROKEN("synchronous_commit = local"),
     COUNTS("below_promise_lost", 20)},
    {.planted = "all weakened, nothing lost",
     .plan = {.level = LEDGER_LOCAL},
     UNCLEAR("too little was at stake")},
    {.planted = "warnings hidden by client_min_messages",
     .plant = warnings_hidden,
     UNCLEAR("durability in force is not known")},
};

int main(void)
{
    return calibrate("calibration: commits", rows, sizeof rows / sizeof rows[0]);
}
