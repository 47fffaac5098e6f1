/* SPDX-License-Identifier: MIT */
/* Every decision of the runbook as a function of what is seen and remembered. */
#include "lib/owned.h"
#include "tests/unit/ha_scene.h"
#include "topologies/ha/decide.h"

static struct arena *arena;
static struct memory memory;
static struct ha_state state;
static struct ruling ruling;
static struct election election;

static void look(void)
{
    ck_assert_int_eq(ha_ask(&scene, arena, &state, NULL), STATUS_OK);
}

static const struct ha_member *member(const char *name)
{
    for (size_t i = 0; i < state.count; i++)
        if (strcmp(state.members[i].node->name, name) == 0)
            return &state.members[i];
    abort();
}

static void remember(int looks)
{
    look();
    memory_begin(&memory, arena, &state, member("n1"));
    for (int i = 1; i < looks; i++) {
        look();
        memory_learn(&memory, &state);
    }
}

static void setup(void)
{
    setup_scene();
    arena = arena_new();
    remember(3);
}

static void teardown(void)
{
    arena_free(arena);
    buffer_done(&fake_calls);
}

static enum decision decided(struct facts facts)
{
    look();
    facts.writes_known = true;
    facts.grace_ms = 2000;
    decide_failover(&memory, &state, &facts, &ruling);
    return ruling.decision;
}

static void elect_now(void)
{
    look();
    elect_best(&memory, &state, NULL, true, &election);
}

/* ---- who may vote ---- */

START_TEST(a_vote_takes_three_looks)
{
    remember(2);
    ck_assert(!memory_votes(&memory, member("n2")));
    look();
    memory_learn(&memory, &state);
    ck_assert(memory_votes(&memory, member("n2")));
    ck_assert(memory_votes(&memory, member("n3")));
    ck_assert(!memory_votes(&memory, member("n1")));
}
END_TEST

START_TEST(a_lagging_member_gets_no_vote_until_it_has_caught_up)
{
    const char *missing = NULL;

    model[2].lsn = 0x4000000;
    remember(5);
    ck_assert(!memory_votes(&memory, member("n3")));
    ck_assert(!memory_complete(&memory, &state, &missing));
    ck_assert_str_eq(missing, "n3");
    model_flow();
    look();
    memory_learn(&memory, &state);
    ck_assert(memory_complete(&memory, &state, &missing));
}
END_TEST

START_TEST(a_vote_outlives_lag_and_silence)
{
    model[2].lsn = 0x4000000;
    look();
    memory_learn(&memory, &state);
    ck_assert(memory_votes(&memory, member("n3")));
    model[2].accepting = false;
    look();
    memory_learn(&memory, &state);
    ck_assert(!memory_votes(&memory, member("n3")));
    model[2].accepting = true;
    look();
    ck_assert(memory_votes(&memory, member("n3")));
}
END_TEST

START_TEST(a_rebuilt_member_has_no_vote_until_it_holds_everything)
{
    model[2].incarnation = "another-folder";
    look();
    ck_assert(!memory_votes(&memory, member("n3")));
    memory_learn(&memory, &state);
    model[0].lsn += 0x1000;
    look();
    memory_learn(&memory, &state);
    look();
    memory_learn(&memory, &state);
    ck_assert(!memory_votes(&memory, member("n3")));
    model_flow();
    look();
    memory_learn(&memory, &state);
    ck_assert(memory_votes(&memory, member("n3")));
    memory_distrust(&memory, member("n3")->node);
    ck_assert(!memory_votes(&memory, member("n3")));
}
END_TEST

START_TEST(every_sync_set_in_force_is_remembered)
{
    model[0].sync_set = "ANY 2 (n2, n3)";
    look();
    memory_learn(&memory, &state);
    memory_learn(&memory, &state);
    ck_assert_uint_eq(memory.set_count, 2);
    ck_assert_str_eq(memory.sets[0], "ANY 1 (n2, n3)");
    ck_assert_str_eq(memory.sets[1], "ANY 2 (n2, n3)");
    ck_assert_ptr_null(memory.weak);
    model[0].level = "remote_write";
    look();
    memory_learn(&memory, &state);
    ck_assert_str_eq(memory.weak, "remote_write");
}
END_TEST

START_TEST(nothing_is_learnt_from_a_replaced_primary)
{
    model[0].timeline = 7;
    model[0].sync_set = "";
    look();
    memory_learn(&memory, &state);
    ck_assert_uint_eq(memory.set_count, 1);
}
END_TEST

/* ---- election ---- */

START_TEST(the_highest_position_is_chosen)
{
    crash_server("n1");
    model[1].lsn = 0x5000000;
    model[2].lsn = 0x5000100;
    elect_now();
    ck_assert_str_eq(election.chosen->node->name, "n3");
    ck_assert(election.safe);
    ck_assert_uint_eq(election.needed, 2);
    ck_assert_uint_eq(election.heard, 2);
    ck_assert_str_eq(election.candidates[1].member->node->name, "n2");
}
END_TEST

START_TEST(a_newer_timeline_goes_before_a_higher_position)
{
    crash_server("n1");
    model[1].timeline = 2;
    model[2].lsn = 0x9000000;
    elect_now();
    ck_assert_str_eq(election.chosen->node->name, "n2");
}
END_TEST

START_TEST(equal_positions_go_by_name)
{
    crash_server("n1");
    elect_now();
    ck_assert_str_eq(election.chosen->node->name, "n2");
}
END_TEST

START_TEST(one_of_two_heard_is_not_safe)
{
    crash_server("n1");
    crash_server("n3");
    elect_now();
    ck_assert_str_eq(election.chosen->node->name, "n2");
    ck_assert(!election.safe);
    ck_assert_uint_eq(election.heard, 1);
    ck_assert_uint_eq(election.needed, 2);
    ck_assert_ptr_nonnull(strstr(election.reason, "1 of 'ANY 1 (n2, n3)' heard, 2 needed"));
}
END_TEST

START_TEST(one_of_two_is_safe_when_both_had_to_acknowledge)
{
    model[0].sync_set = "ANY 2 (n2, n3)";
    remember(3);
    crash_server("n1");
    crash_server("n3");
    elect_now();
    ck_assert(election.safe);
    ck_assert_uint_eq(election.needed, 1);
}
END_TEST

START_TEST(the_worst_of_all_sets_counts)
{
    model[0].sync_set = "ANY 2 (n2, n3)";
    look();
    memory_learn(&memory, &state);
    crash_server("n1");
    crash_server("n3");
    elect_now();
    ck_assert(!election.safe);
    ck_assert_str_eq(election.set, "ANY 1 (n2, n3)");
}
END_TEST

START_TEST(an_erased_member_is_heard_without_a_vote)
{
    crash_server("n1");
    model[2].incarnation = "another-folder";
    elect_now();
    ck_assert(!election.safe);
    ck_assert_uint_eq(election.count, 2);
    ck_assert_uint_eq(election.heard, 1);
}
END_TEST

START_TEST(no_number_of_members_makes_up_for_no_set)
{
    static const char *const settings[] = {"", "*", "ANY 1 (n2", "ANY 1 (n2, *)"};

    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        model[0].sync_set = settings[i];
        model[0].accepting = model[0].running = true;
        remember(3);
        crash_server("n1");
        elect_now();
        ck_assert_msg(!election.safe, "'%s' is safe", settings[i]);
        ck_assert_uint_eq(election.needed, QUORUM_IMPOSSIBLE);
        ck_assert_uint_gt(strlen(election.reason), 0);
    }
}
END_TEST

START_TEST(a_weak_level_is_not_safe)
{
    model[0].level = "local";
    remember(3);
    crash_server("n1");
    elect_now();
    ck_assert(!election.safe);
    ck_assert_ptr_nonnull(strstr(election.reason, "synchronous_commit was local"));
}
END_TEST

START_TEST(nobody_is_chosen_when_no_standby_accepts)
{
    for (size_t i = 0; i < 3; i++)
        crash_server(model[i].name);
    elect_now();
    ck_assert_ptr_null(election.chosen);
    ck_assert(!election.safe);
    ck_assert_str_eq(election.reason, "no standby accepts connections");
}
END_TEST

START_TEST(unfenced_only_a_stopped_receiver_votes)
{
    const bool one[] = {false, true, false}, both[] = {false, true, true};

    crash_server("n1");
    look();
    elect_best(&memory, &state, one, false, &election);
    ck_assert(!election.safe);
    elect_best(&memory, &state, both, false, &election);
    ck_assert(election.safe);
    elect_best(&memory, &state, one, true, &election);
    ck_assert(election.safe);
}
END_TEST

START_TEST(positions_must_rest)
{
    struct ha_state before;

    look();
    ck_assert(elect_settled(NULL, &state));
    model[2].bare = true;
    look();
    ck_assert(!elect_settled(NULL, &state));
    before = state;
    model[2].lsn += 0x100;
    look();
    ck_assert(!elect_settled(&before, &state));
    before = state;
    look();
    ck_assert(elect_settled(&before, &state));
}
END_TEST

/* ---- decisions ---- */

START_TEST(a_dead_primary_is_replaced)
{
    crash_server("n1");
    ck_assert_int_eq(decided((struct facts){0}), DECIDE_FAIL_OVER);
    ck_assert_str_eq(ruling.node->node->name, "n1");
    ck_assert_str_eq(ruling.text, "PostgreSQL is down");
}
END_TEST

START_TEST(a_silent_node_is_replaced)
{
    model[0].silent = true;
    ck_assert_int_eq(decided((struct facts){0}), DECIDE_FAIL_OVER);
}
END_TEST

START_TEST(a_frozen_primary_is_replaced_at_once)
{
    model[0].accepting = false;
    model[0].frozen = true;
    ck_assert_int_eq(decided((struct facts){0}), DECIDE_FAIL_OVER);
}
END_TEST

START_TEST(a_crash_restart_is_given_time)
{
    model[0].accepting = false;
    ck_assert_int_eq(decided((struct facts){.starting_ms = 1999}), DECIDE_WAIT);
    ck_assert_int_eq(decided((struct facts){.starting_ms = 2000}), DECIDE_FAIL_OVER);
}
END_TEST

START_TEST(a_primary_without_standbys_is_not_dead)
{
    crash_server("n2");
    crash_server("n3");
    ck_assert_int_eq(decided((struct facts){0}), DECIDE_WAIT);
    ck_assert_ptr_nonnull(strstr(ruling.text, "waits for its quorum: 0 of 1"));
    ck_assert_int_eq(decided((struct facts){.allow_loss = true}), DECIDE_WAIT);
    ck_assert_int_eq(decided((struct facts){.probe = PROBE_STUCK}), DECIDE_WAIT);
}
END_TEST

START_TEST(a_primary_with_standbys_is_asked_for_a_commit)
{
    ck_assert_int_eq(decided((struct facts){0}), DECIDE_PROBE);
    ck_assert_int_eq(decided((struct facts){.probe = PROBE_ACKNOWLEDGED}), DECIDE_WAIT);
    ck_assert_int_eq(decided((struct facts){.probe = PROBE_STUCK}), DECIDE_FAIL_OVER);
}
END_TEST

START_TEST(a_living_primary_is_not_fenced_for_nothing)
{
    crash_server("n3");
    ck_assert_int_eq(decided((struct facts){.probe = PROBE_STUCK}), DECIDE_WAIT);
    ck_assert_int_eq(decided((struct facts){.probe = PROBE_STUCK, .allow_loss = true}),
                     DECIDE_FAIL_OVER);
}
END_TEST

START_TEST(one_standby_and_the_primary_lost_is_refused)
{
    crash_server("n1");
    crash_server("n3");
    ck_assert_int_eq(decided((struct facts){0}), DECIDE_REFUSE);
    ck_assert_ptr_nonnull(strstr(ruling.text, "not promoted: 1 of"));
    ck_assert_int_eq(decided((struct facts){.allow_loss = true}), DECIDE_FAIL_OVER);
}
END_TEST

START_TEST(all_lost_is_refused_even_if_loss_is_allowed)
{
    for (size_t i = 0; i < 3; i++)
        crash_server(model[i].name);
    ck_assert_int_eq(decided((struct facts){.allow_loss = true}), DECIDE_REFUSE);
}
END_TEST

START_TEST(a_replaced_primary_that_is_back_is_fenced)
{
    memory.primary = member("n2")->node;
    memory.timeline = 2;
    model[1].standby = false;
    model[1].timeline = 2;
    ck_assert_int_eq(decided((struct facts){0}), DECIDE_FENCE);
    ck_assert_str_eq(ruling.node->node->name, "n1");
}
END_TEST

START_TEST(a_primary_of_somebody_else_is_not_touched)
{
    model[1].standby = false;
    model[1].timeline = 2;
    ck_assert_int_eq(decided((struct facts){0}), DECIDE_REFUSE);
    ck_assert_str_eq(ruling.node->node->name, "n2");
}
END_TEST

START_TEST(without_writers_an_accepting_primary_is_well)
{
    struct facts facts = {.writes_known = false};

    look();
    decide_failover(&memory, &state, &facts, &ruling);
    ck_assert_int_eq(ruling.decision, DECIDE_WAIT);
}
END_TEST

/* ---- repairs ---- */

static enum repair next(const char *name, struct patient patient)
{
    look();
    return repair_next(&patient, member(name), member("n1"), false, 10000);
}

START_TEST(a_member_that_follows_needs_nothing)
{
    ck_assert_int_eq(next("n2", (struct patient){0}), REPAIR_NOTHING);
    ck_assert_int_eq(next("n1", (struct patient){0}), REPAIR_NOTHING);
}
END_TEST

START_TEST(a_stopped_standby_is_started_then_rewound_then_rebuilt)
{
    crash_server("n2");
    ck_assert_int_eq(next("n2", (struct patient){0}), REPAIR_START);
    ck_assert_int_eq(next("n2", (struct patient){.failed = 1, .last = REPAIR_START}), REPAIR_START);
    ck_assert_int_eq(next("n2", (struct patient){.failed = 2, .last = REPAIR_START}),
                     REPAIR_REWIND);
    ck_assert_int_eq(next("n2", (struct patient){.failed = 3, .last = REPAIR_REWIND}),
                     REPAIR_REBUILD);
    model[1].erased = true;
    ck_assert_int_eq(next("n2", (struct patient){0}), REPAIR_REBUILD);
}
END_TEST

START_TEST(a_replaced_primary_is_rewound_never_started)
{
    crash_server("n2");
    ck_assert_int_eq(next("n2", (struct patient){.deposed = true}), REPAIR_REWIND);
    ck_assert_int_eq(next("n2", (struct patient){.deposed = true, .last = REPAIR_REWIND}),
                     REPAIR_REBUILD);
    crash_server("n1");
    look();
    struct patient patient = {.deposed = true};
    ck_assert_int_eq(repair_next(&patient, member("n2"), NULL, false, 10000), REPAIR_WAIT);
    patient.deposed = false;
    ck_assert_int_eq(repair_next(&patient, member("n2"), NULL, false, 10000), REPAIR_START);
}
END_TEST

START_TEST(a_standby_that_does_not_stream_is_waited_for_first)
{
    model[2].receiving = false;
    ck_assert_int_eq(next("n3", (struct patient){.since_ms = 9999}), REPAIR_WAIT);
    ck_assert_int_eq(next("n3", (struct patient){.since_ms = 10000}), REPAIR_REWIND);
    model[2].source = NULL;
    ck_assert_int_eq(next("n3", (struct patient){.since_ms = 10000}), REPAIR_POINT);
    ck_assert_int_eq(next("n3", (struct patient){.failed = 3}), REPAIR_REWIND);
}
END_TEST

START_TEST(a_server_that_does_not_answer_is_killed_after_a_while)
{
    model[2].accepting = false;
    ck_assert_int_eq(next("n3", (struct patient){.since_ms = 100}), REPAIR_WAIT);
    ck_assert_int_eq(next("n3", (struct patient){.since_ms = 10000}), REPAIR_FENCE);
}
END_TEST

START_TEST(a_silent_node_is_powered_on_now_and_then)
{
    struct patient patient = {0};

    model[2].silent = true;
    look();
    ck_assert_int_eq(repair_next(&patient, member("n3"), member("n1"), false, 10000), REPAIR_WAIT);
    ck_assert_int_eq(repair_next(&patient, member("n3"), member("n1"), true, 10000),
                     REPAIR_POWER_ON);
    patient = (struct patient){.last = REPAIR_POWER_ON, .since_ms = 100};
    ck_assert_int_eq(repair_next(&patient, member("n3"), member("n1"), true, 10000), REPAIR_WAIT);
    patient.since_ms = 10000;
    ck_assert_int_eq(repair_next(&patient, member("n3"), member("n1"), true, 10000),
                     REPAIR_POWER_ON);
    ck_assert_str_eq(repair_name(REPAIR_POWER_ON), "power on");
}
END_TEST

TEST_MAIN("ha decide", 20, setup, teardown, a_vote_takes_three_looks,
          a_lagging_member_gets_no_vote_until_it_has_caught_up, a_vote_outlives_lag_and_silence,
          a_rebuilt_member_has_no_vote_until_it_holds_everything,
          every_sync_set_in_force_is_remembered, nothing_is_learnt_from_a_replaced_primary,
          the_highest_position_is_chosen, a_newer_timeline_goes_before_a_higher_position,
          equal_positions_go_by_name, one_of_two_heard_is_not_safe,
          one_of_two_is_safe_when_both_had_to_acknowledge, the_worst_of_all_sets_counts,
          an_erased_member_is_heard_without_a_vote, no_number_of_members_makes_up_for_no_set,
          a_weak_level_is_not_safe, nobody_is_chosen_when_no_standby_accepts,
          unfenced_only_a_stopped_receiver_votes, positions_must_rest, a_dead_primary_is_replaced,
          a_silent_node_is_replaced, a_frozen_primary_is_replaced_at_once,
          a_crash_restart_is_given_time, a_primary_without_standbys_is_not_dead,
          a_primary_with_standbys_is_asked_for_a_commit, a_living_primary_is_not_fenced_for_nothing,
          one_standby_and_the_primary_lost_is_refused, all_lost_is_refused_even_if_loss_is_allowed,
          a_replaced_primary_that_is_back_is_fenced, a_primary_of_somebody_else_is_not_touched,
          without_writers_an_accepting_primary_is_well, a_member_that_follows_needs_nothing,
          a_stopped_standby_is_started_then_rewound_then_rebuilt,
          a_replaced_primary_is_rewound_never_started,
          a_standby_that_does_not_stream_is_waited_for_first,
          a_server_that_does_not_answer_is_killed_after_a_while,
          a_silent_node_is_powered_on_now_and_then)
