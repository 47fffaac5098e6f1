/* SPDX-License-Identifier: MIT */
/* What the members say, read into one state; health in words; `observe`, which only looks. */
#include "lib/owned.h"
#include "tests/unit/ha_scene.h"

static struct arena *arena;
static struct ha_state state;
static struct error why;

static void setup(void)
{
    setup_scene();
    arena = arena_new();
}

static void teardown(void)
{
    arena_free(arena);
    buffer_done(&fake_calls);
}

static bool healthy(void)
{
    error_clear(&why);
    ck_assert_int_eq(ha_ask(&scene, arena, &state, NULL), STATUS_OK);
    return ha_healthy(&state, &why);
}

static void assert_ill(const char *says)
{
    ck_assert(!healthy());
    ck_assert_msg(strstr(why.message, says) != NULL, "\"%s\" is not in: %s", says, why.message);
}

START_TEST(drivers_are_found_by_name)
{
    ck_assert(ha_find("manual")->acts);
    ck_assert(!ha_find("observe")->acts);
    ck_assert_ptr_null(ha_find("nobody"));
}
END_TEST

START_TEST(a_healthy_cluster_is_read_whole)
{
    ck_assert(healthy());
    ck_assert_uint_eq(state.count, 3);
    ck_assert_uint_eq(state.primary_count, 1);
    ck_assert_str_eq(state.primary->name, "n1");
    ck_assert_str_eq(state.sync_set, "ANY 1 (n2, n3)");
    ck_assert(state.members[0].primary && !state.members[0].sync);
    ck_assert(state.members[1].streaming && state.members[1].sync);
    ck_assert_uint_eq(state.members[2].lsn, 0x5000000);
    ck_assert_uint_eq(state.members[2].timeline, 1);
    ck_assert_ptr_null(state.members[2].problem);
    ck_assert_ptr_nonnull(state.members[2].state);
}
END_TEST

START_TEST(the_greater_of_received_and_replayed_counts)
{
    model[1].bare = true; /* receives from 0/4000000, has replayed up to 0/5000000 */
    ck_assert(healthy());
    ck_assert_uint_eq(state.members[1].lsn, 0x5000000);
}
END_TEST

START_TEST(a_silent_agent_leaves_a_member_without_a_state)
{
    model[1].silent = true;
    assert_ill("n2: its agent is not connected");
    ck_assert(!state.members[1].reachable);
    ck_assert_ptr_null(state.members[1].state);
    model[1].silent = false;
    fake_failures[0].node = "n2";
    fake_failures[0].method = "postgres.state";
    fake_failures[0].status = STATUS_TIMEOUT;
    assert_ill("n2: its agent does not answer (n2: postgres.state: scripted)");
}
END_TEST

START_TEST(each_illness_is_named)
{
    crash_server("n2");
    assert_ill("n2: PostgreSQL is down");
    model[1].erased = true;
    assert_ill("n2: its data folder is gone");
    model_healthy();
    model[1].accepting = false;
    assert_ill("n2: PostgreSQL runs but does not answer");
    model_healthy();
    model[1].receiving = false;
    assert_ill("n2: does not stream (walreceiver: none)");
    model_healthy();
    model[1].cut = true;
    assert_ill("n2: is not among the standbys that stream from n1 (their application_name: n3; it "
               "must be the node's name)");
    model_healthy();
    model[1].paused = true;
    assert_ill("n2: its replay is paused");
    model_healthy();
    model[0].timeline = 2;
    assert_ill("n2: is on timeline 1, the primary n1 on 2; n3: is on timeline 1");
    model_healthy();
    crash_server("n1");
    assert_ill("no node is primary; n1: PostgreSQL is down");
    model_healthy();
    model[2].standby = false;
    assert_ill("n1: is one of 2 primaries (timeline 1); n3: is one of 2 primaries");
    ck_assert_ptr_null(state.primary);
}
END_TEST

START_TEST(an_unsatisfied_or_broken_sync_set_is_named)
{
    model[0].sync_set = "ANY 3 (n2, n3, n4)";
    assert_ill("n1: its commits wait for 3 of 'ANY 3 (n2, n3, n4)', 2 connected");
    model[0].sync_set = "ANY 1 (n2";
    assert_ill("n1: synchronous_standby_names 'ANY 1 (n2'");
}
END_TEST

START_TEST(a_paused_manager_is_not_healthy)
{
    ck_assert(healthy());
    state.paused = true;
    ck_assert(!ha_healthy(&state, &why));
    ck_assert_ptr_nonnull(strstr(why.message, "the HA manager is paused"));
}
END_TEST

START_TEST(the_fork_is_the_end_of_the_timeline_before)
{
    OWNED_JSON json_t *history = json_pack("{s:[{s:i, s:s}, {s:i, s:s}]}", "history", "timeline", 1,
                                           "lsn", "0/3000000", "timeline", 2, "lsn", "0/5000148");
    struct ha_member member = {.timeline = 3, .state = history};

    ck_assert_str_eq(ha_fork_lsn(&member), "0/5000148");
    member.timeline = 1;
    ck_assert_str_eq(ha_fork_lsn(&member), "");
}
END_TEST

START_TEST(an_abort_ends_the_question)
{
    fake_aborted = true;
    ck_assert_int_eq(ha_ask(&scene, arena, &state, &why), STATUS_ABORTED);
    ck_assert_str_eq(why.message, "stop condition");
}
END_TEST

/* ---- observe ---- */

static void observe(void)
{
    scene_topology.endpoint.managed = false;
    fake_route = "n1"; /* the clients find the primary by themselves */
    begin("observe");
}

/* What the cluster's own manager would do. */
static void somebody_promotes(const char *name)
{
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(model[i].name, name) == 0) {
            model[i].standby = false;
            model[i].timeline = 2;
        } else if (model[i].accepting) {
            model[i].source = name;
            model[i].timeline = 2;
        }
    }
    fake_route = model_at(name)->name;
}

START_TEST(observe_tells_what_it_sees_and_changes_nothing)
{
    observe();
    attend_for(3000);
    ck_assert_uint_eq(scene_event_count, 0);
    crash_server("n1");
    attend_for(3000);
    int64_t promoted_ns = fake_now_ns;
    somebody_promotes("n3");
    attend_for(3000);
    ck_assert_uint_eq(times_told("ha.detect"), 1);
    ck_assert_uint_eq(times_told("ha.promote"), 1);
    ck_assert_str_eq(told("ha.promote")->node, "n3");
    ck_assert_int_eq(json_number(told("ha.promote")->details, "timeline", 0), 2);
    ck_assert_str_eq(json_text(told("ha.promote")->details, "fork_lsn", ""), "0/5000000");
    ck_assert_int_le(told("ha.promote")->at_ns - promoted_ns, 160 * NS_PER_MS);
    ck_assert_uint_eq(times_told("ha.route"), 1);
    ck_assert_str_eq(buffer_text(&fake_calls), "");
    scene.driver->end(&scene);
}
END_TEST

START_TEST(observe_notices_a_switch_without_an_outage)
{
    observe();
    attend_for(1500);
    model[0].standby = true;
    model[0].receiving = true;
    somebody_promotes("n2");
    attend_for(2000);
    ck_assert_uint_eq(times_told("ha.detect"), 0);
    ck_assert_str_eq(told("ha.promote")->node, "n2");
    scene.driver->end(&scene);
}
END_TEST

START_TEST(observe_waits_for_health_and_says_what_is_missing)
{
    observe();
    crash_server("n3");
    ck_assert_int_eq(scene.driver->recover(&scene, fake_now_ns + 3 * NS_PER_SECOND, &why),
                     STATUS_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(why.message, "n3: PostgreSQL is down"));
    ck_assert_str_eq(why.hint, "To repair that is the work of what manages this cluster, or its "
                               "operator (ha: observe changes nothing).");
    model[2].running = model[2].accepting = true;
    ck_assert_int_eq(scene.driver->recover(&scene, fake_now_ns + 3 * NS_PER_SECOND, &why),
                     STATUS_OK);
    ck_assert_str_eq(buffer_text(&fake_calls), "");
    scene.driver->end(&scene);
}
END_TEST

/* Faster than our threshold: then its noticing was not ours to see. */
START_TEST(observe_does_not_claim_to_have_noticed_first)
{
    observe();
    attend_for(1500);
    crash_server("n1");
    attend_for(600);
    somebody_promotes("n2");
    fake_writing = false;
    attend_for(1500);
    ck_assert_uint_eq(times_told("ha.detect"), 0);
    ck_assert_uint_eq(times_told("ha.route"), 0);
    ck_assert_int_le(json_number(told("ha.promote")->details, "resolution_ms", 0), 160);
    fake_writing = true;
    attend_for(500);
    ck_assert_uint_eq(times_told("ha.route"), 1);
    scene.driver->end(&scene);
}
END_TEST

START_TEST(observe_sees_members_come_back)
{
    observe();
    crash_server("n3");
    attend_for(2500);
    ck_assert_uint_eq(times_told("ha.rejoin"), 0);
    model[2].running = model[2].accepting = true;
    attend_for(2500);
    ck_assert_uint_eq(times_told("ha.rejoin"), 1);
    ck_assert_str_eq(told("ha.rejoin")->node, "n3");
    ck_assert_str_eq(json_text(told("ha.rejoin")->details, "how", ""), "streaming");
    ck_assert_str_eq(buffer_text(&fake_calls), "");
    scene.driver->end(&scene);
}
END_TEST

START_TEST(observe_does_not_route)
{
    scene.driver = ha_find("observe");
    ck_assert_int_eq(scene.driver->begin(&scene, &why), STATUS_INVALID);
    ck_assert_str_eq(why.hint, "Say routing: hosts, or use a manager that acts.");
}
END_TEST

TEST_MAIN("ha state", 20, setup, teardown, drivers_are_found_by_name,
          a_healthy_cluster_is_read_whole, the_greater_of_received_and_replayed_counts,
          a_silent_agent_leaves_a_member_without_a_state, each_illness_is_named,
          an_unsatisfied_or_broken_sync_set_is_named, a_paused_manager_is_not_healthy,
          the_fork_is_the_end_of_the_timeline_before, an_abort_ends_the_question,
          observe_tells_what_it_sees_and_changes_nothing,
          observe_notices_a_switch_without_an_outage, observe_does_not_claim_to_have_noticed_first,
          observe_sees_members_come_back, observe_waits_for_health_and_says_what_is_missing,
          observe_does_not_route)
