/* SPDX-License-Identifier: MIT */
/* The cluster after the faults, and what makes a whole run worth nothing. */
#include <check.h>
#include <string.h>

#include "lib/json.h"
#include "tests/support/calibration.h"

static void before_end(struct run_builder *run, const char *event, json_t *members)
{
    json_t *end = json_incref(run_find(run, "run.end"));

    run_drop(run, "run.end");
    run_event(run, 11850, event, members);
    json_array_append_new(run->journal, end);
}

/* --- recovery --------------------------------------------------------------------------------- */

static void member_missing(struct run_builder *run)
{
    run_drop(run, "recovered");
    before_end(run, "recovery.timeout", json_pack("{s:[s]}", "missing", "n3"));
}

static void too_late(struct run_builder *run)
{
    run_param(run, "recovery", "max", 3000);
}

static void just_in_time(struct run_builder *run)
{
    run_param(run, "recovery", "max", 3200);
}

static void recovery_not_recorded(struct run_builder *run)
{
    run_drop(run, "recovered");
}

/* --- replication ------------------------------------------------------------------------------ */

static json_t *standby(struct run_builder *run, const char *node)
{
    json_t *list = json_object_get(run_find(run, "replication"), "standbys");

    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_text(json_array_get(list, i), "node", ""), node) == 0)
            return json_array_get(list, i);
    ck_abort_msg("no standby %s", node);
}

/* The primary's view says streaming, the standby itself does not. */
static void receiver_stands_still(struct run_builder *run)
{
    json_object_set_new(standby(run, "n3"), "streaming", json_false());
}

static void follows_the_old_timeline(struct run_builder *run)
{
    json_object_set_new(standby(run, "n3"), "timeline", json_integer(1));
}

static void behind_by_its_own_word(struct run_builder *run)
{
    json_object_set_new(standby(run, "n3"), "own_receive_lsn", json_string("0/3FFFFFF"));
    json_object_set_new(standby(run, "n3"), "own_replay_lsn", json_string("0/3FFFFFF"));
}

/* It was restarted: what it received is forgotten, what it replayed is not. */
static void receives_anew(struct run_builder *run)
{
    json_object_set_new(standby(run, "n3"), "own_receive_lsn", json_string("0/3000000"));
}

static void waits_for_nobody(struct run_builder *run)
{
    json_object_set_new(run_find(run, "replication"), "sync_set", json_string(""));
}

static void commit_did_not_wait(struct run_builder *run)
{
    json_object_set_new(run_find(run, "quorum-wait"), "waited", json_false());
}

static void standby_not_asked(struct run_builder *run)
{
    json_t *list = json_object_get(run_find(run, "replication"), "standbys");

    json_array_remove(list, json_array_size(list) - 1);
}

static void slots(struct run_builder *run, const char *name, bool active)
{
    json_object_set_new(run_find(run, "replication"), "slots",
                        json_pack("[{s:s, s:b}]", "name", name, "active", active));
}

static void slot_inactive(struct run_builder *run)
{
    slots(run, "n3", false);
}

static void slot_of_somebody_else(struct run_builder *run)
{
    slots(run, "reporting", false);
}

/* --- integrity -------------------------------------------------------------------------------- */

static json_t *examination(struct run_builder *run, const char *method)
{
    return run_find_where(run, "integrity", "method", method);
}

static void bad_block(struct run_builder *run)
{
    json_t *event = examination(run, "checksums");

    json_object_set_new(event, "ok", json_false());
    json_object_set_new(event, "problems", json_pack("[s]", "block 7 of base/5/16384"));
}

static void budget_exceeded(struct run_builder *run)
{
    json_object_set_new(examination(run, "amcheck"), "error",
                        json_string("did not end within 120 s"));
}

static void standby_not_examined(struct run_builder *run)
{
    json_object_set_new(examination(run, "checksums"), "method", json_string("other"));
}

static void nothing_examined(struct run_builder *run)
{
    json_object_set_new(examination(run, "verify"), "examined", json_integer(0));
}

/* --- steady state ----------------------------------------------------------------------------- */

static void unhealthy(struct run_builder *run, const char *when)
{
    json_object_set_new(run_find_where(run, "steady-state", "when", when), "ok", json_false());
}

static void unhealthy_after(struct run_builder *run)
{
    unhealthy(run, "after");
}

static void unhealthy_before(struct run_builder *run)
{
    unhealthy(run, "before");
}

static void not_asked_after(struct run_builder *run)
{
    json_t *event = run_find_where(run, "steady-state", "when", "after");

    json_object_set_new(event, "event", json_string("note"));
}

/* --- the run ---------------------------------------------------------------------------------- */

static void effect_absent(struct run_builder *run)
{
    json_object_set_new(json_object_get(run_find(run, "fault.injected"), "effect"), "state",
                        json_string("absent"));
}

static void witness_sees_nothing(struct run_builder *run)
{
    json_t *witness = json_object_get(run_find(run, "fault.injected"), "witness");

    json_object_set_new(json_array_get(witness, 0), "state", json_string("absent"));
}

static void witness_cannot_tell(struct run_builder *run)
{
    json_t *witness = json_object_get(run_find(run, "fault.injected"), "witness");

    json_object_set_new(json_array_get(witness, 0), "state", json_string("unknown"));
}

static void step_skipped(struct run_builder *run)
{
    before_end(run, "step.skipped",
               json_pack("{s:s, s:s, s:b}", "step", "more", "reason", "no such file system",
                         "optional", 0));
}

/* Held for 1.8 s, was to hold for longer. */
static void hold_for(struct run_builder *run, int64_t hold_ms)
{
    run_expect(run, "writes", "stall");
    for (size_t i = 0; i < json_array_size(run->journal); i++) {
        json_t *event = json_array_get(run->journal, i);
        if (strcmp(json_text(event, "event", ""), "fault.injected") == 0)
            json_object_set_new(event, "hold_ms", json_integer((json_int_t) hold_ms));
    }
}

static void held_too_short(struct run_builder *run)
{
    hold_for(run, 5000);
}

static void held_long_enough(struct run_builder *run)
{
    hold_for(run, 1800);
}

static void worker_reported_dead(struct run_builder *run)
{
    json_t *end = run_find(run, "load.end");

    json_object_set_new(end, "complete", json_false());
    json_object_set_new(end, "ledgers",
                        json_pack("[{s:s, s:b, s:s}, {s:s, s:b}]", "file", "c1-worker-0.ledger",
                                  "complete", 0, "error", "the worker was killed", "file",
                                  "c1-worker-1.ledger", "complete", 1));
}

static void node_not_clean(struct run_builder *run)
{
    json_t *event = run_find_where(run, "residue", "node", "n3");

    json_object_set_new(event, "clean", json_false());
    json_object_set_new(event, "differences", json_pack("[s]", "nft table ordeal_n3"));
}

static void orchestrator_died(struct run_builder *run)
{
    run_drop(run, "run.end");
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct calibration rows[] = {
    {.planted = "nothing (recovery)", PASSES("recovery", "3.200 s after recovery began")},
    {.planted = "a member does not come back", .plant = member_missing, FAILS("recovery", "n3")},
    {.planted = "back 200 ms too late", .plant = too_late, FAILS("recovery", "too late")},
    {.planted = "back at the bound", .plant = just_in_time, PASSES("recovery", "bound")},
    {.planted = "recovery not recorded",
     .plant = recovery_not_recorded,
     PROVES_NOTHING("recovery", "was recorded")},

    {.planted = "nothing (replication)", PASSES("replication", "2 of 2 standbys stream")},
    {.planted = "a receiver that does not stream",
     .plant = receiver_stands_still,
     FAILS("replication", "the receiver of n3 does not stream")},
    {.planted = "a standby on the old timeline",
     .plant = follows_the_old_timeline,
     FAILS("replication", "n3 follows timeline 1")},
    {.planted = "a standby behind by its own word",
     .plant = behind_by_its_own_word,
     FAILS("replication", "n3 is 1 bytes behind")},
    {.planted = "a standby that was restarted",
     .plant = receives_anew,
     PASSES("replication", "2 of 2 standbys stream")},
    {.planted = "empty sync set",
     .plant = waits_for_nobody,
     FAILS("replication", "for no standby")},
    {.planted = "a commit that did not wait",
     .plant = commit_did_not_wait,
     FAILS("replication", "did not wait")},
    {.planted = "an inactive slot", .plant = slot_inactive, FAILS("replication", "slot n3")},
    {.planted = "an inactive slot of somebody else",
     .plant = slot_of_somebody_else,
     PASSES("replication", "2 of 2 standbys stream")},
    {.planted = "a standby nobody asked",
     .plant = standby_not_asked,
     PROVES_NOTHING("replication", "was not asked")},

    {.planted = "nothing (integrity)", PASSES("integrity", "no problem")},
    {.planted = "a block with a wrong checksum",
     .plant = bad_block,
     FAILS("integrity", "block 7 of base/5/16384")},
    {.planted = "examination over its budget",
     .plant = budget_exceeded,
     PROVES_NOTHING("integrity", "did not finish")},
    {.planted = "a standby not examined",
     .plant = standby_not_examined,
     PROVES_NOTHING("integrity", "were not checked")},
    {.planted = "an examination of nothing",
     .plant = nothing_examined,
     PROVES_NOTHING("integrity", "examined nothing")},

    {.planted = "nothing (steady state)", PASSES("steady-state", "healthy before and after")},
    {.planted = "unhealthy after the method",
     .plant = unhealthy_after,
     FAILS("steady-state", "not healthy after")},
    {.planted = "unhealthy before the method",
     .plant = unhealthy_before,
     PROVES_NOTHING("steady-state", "not healthy before")},
    {.planted = "nobody asked after the method",
     .plant = not_asked_after,
     PROVES_NOTHING("steady-state", "0 after it")},

    {.planted = "fault without effect",
     .plant = effect_absent,
     PROVES_NOTHING(NULL, "did not bite")},
    {.planted = "effect that a witness does not see",
     .plant = witness_sees_nothing,
     PROVES_NOTHING(NULL, "c1 does not see it")},
    {.planted = "a witness that cannot tell", .plant = witness_cannot_tell, PASSES(NULL, "")},
    {.planted = "a skipped step",
     .plant = step_skipped,
     PROVES_NOTHING(NULL, "no such file system")},
    {.planted = "a fault undone too early",
     .plan = {.no_failover = true, .stall = true},
     .plant = held_too_short,
     PROVES_NOTHING(NULL, "was undone after 1.8 s of 5.0 s")},
    {.planted = "a fault held as long as it should",
     .plan = {.no_failover = true, .stall = true},
     .plant = held_long_enough,
     PASSES(NULL, "")},
    {.planted = "a load worker reported dead",
     .plant = worker_reported_dead,
     PROVES_NOTHING(NULL, "the worker was killed")},
    {.planted = "something left on a node",
     .plant = node_not_clean,
     .verdict = RUN_NOT_RECOVERED,
     .words = "nft table ordeal_n3"},
    {.planted = "the orchestrator died",
     .plant = orchestrator_died,
     .verdict = RUN_NOT_RECOVERED,
     .words = "the journal has no end"},
};

int main(void)
{
    return calibrate("calibration: state", rows, sizeof rows / sizeof rows[0]);
}
