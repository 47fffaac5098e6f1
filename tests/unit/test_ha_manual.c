/* SPDX-License-Identifier: MIT */
/* The runbook of `ha: manual` against a model of three nodes: what it does, and in which order. */
#include "lib/owned.h"
#include "tests/unit/ha_scene.h"

static void setup(void)
{
    setup_scene();
    begin("manual");
}

static void assert_order(const char *first, const char *second)
{
    ck_assert_msg(called(first) >= 0, "not called: %s\n%s", first, buffer_text(&fake_calls));
    ck_assert_msg(called(second) >= 0, "not called: %s\n%s", second, buffer_text(&fake_calls));
    ck_assert_msg(called(first) < called(second), "%s is not before %s:\n%s", first, second,
                  buffer_text(&fake_calls));
}

static enum status recover(int64_t ms, struct error *err)
{
    return scene.driver->recover(&scene, fake_now_ns + ms * NS_PER_MS, err);
}

static void assert_healthy(void)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct ha_state state;
    struct error why = {0};

    ck_assert_int_eq(ha_ask(&scene, arena, &state, NULL), STATUS_OK);
    ck_assert_msg(ha_healthy(&state, &why), "%s", why.message);
}

/* ---- begin ---- */

START_TEST(it_begins_with_votes_and_an_open_endpoint)
{
    ck_assert_str_eq(fake_route, "n1");
    attend_for(5000);
    ck_assert_uint_eq(scene_event_count, 0);
    ck_assert_int_eq(called("postgres.quorum-wait"), -1);
}
END_TEST

START_TEST(it_does_not_begin_without_a_primary)
{
    struct error err = {0};
    struct ha other = scene;

    crash_server("n1");
    ck_assert_int_eq(scene.driver->begin(&other, &err), STATUS_REFUSED);
    ck_assert_ptr_nonnull(strstr(err.message, "0 of 3 database nodes are primary"));
}
END_TEST

START_TEST(it_does_not_begin_with_a_member_that_never_catches_up)
{
    struct error err = {0};
    struct ha other = scene;

    model[2].receiving = false;
    ck_assert_int_eq(scene.driver->begin(&other, &err), STATUS_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(err.message, "n3 was not seen to hold everything that n1 wrote"));
}
END_TEST

START_TEST(it_begins_before_any_load_runs)
{
    struct ha other = scene;
    struct error err = {0};

    fake_failures[0].node = "c1";
    fake_failures[0].method = "load.route";
    fake_failures[0].status = STATUS_NOT_FOUND;
    ck_assert_int_eq(scene.driver->begin(&other, &err), STATUS_OK);
    scene.driver->end(&other);
    fake_failures[0].status = STATUS_UNREACHABLE;
    ck_assert_int_eq(scene.driver->begin(&other, &err), STATUS_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(err.message, "endpoint on client node c1"));
}
END_TEST

/* ---- failover ---- */

START_TEST(a_dead_primary_is_replaced_step_by_step)
{
    attend_for(2000);
    int64_t died_ns = fake_now_ns;
    crash_server("n1");
    attend_for(3000);

    assert_order("c1 load.route closed", "n1 postgres.fence");
    assert_order("n1 postgres.fence", "n2 postgres.receiver\n");
    assert_order("n3 postgres.receiver\n", "n2 postgres.promote");
    assert_order("n2 postgres.promote", "n2 postgres.slots");
    assert_order("n2 postgres.slots", "n3 postgres.receiver n2");
    assert_order("n2 postgres.quorum-wait", "c1 load.route n2");
    ck_assert_str_eq(fake_route, "n2");
    ck_assert_int_ge(told("ha.detect")->at_ns - died_ns, 900 * NS_PER_MS);
    ck_assert_int_le(told("ha.route")->at_ns - died_ns, 1500 * NS_PER_MS);
    ck_assert_str_eq(told("ha.detect")->node, "n1");
    ck_assert(json_flag(told("ha.fence")->details, "fenced", false));
    ck_assert_str_eq(json_text(told("ha.fence")->details, "path", ""), "control");
    ck_assert_str_eq(json_text(told("ha.elect")->details, "chosen", ""), "n2");
    ck_assert_int_eq(json_number(told("ha.elect")->details, "needed", 0), 2);
    ck_assert_int_eq(json_number(told("ha.elect")->details, "reachable", 0), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(told("ha.elect")->details, "candidates")), 2);
    ck_assert_int_eq(json_number(told("ha.promote")->details, "timeline", 0), 2);
    ck_assert_str_eq(json_text(told("ha.promote")->details, "fork_lsn", ""), "0/5000000");
    ck_assert(!json_flag(told("ha.promote")->details, "allow_loss", true));
    ck_assert_str_eq(told("ha.rejoin")->node, "n3");
    ck_assert_uint_eq(times_told("ha.promote"), 1);
    ck_assert_uint_eq(times_told("ha.refuse"), 0);
}
END_TEST

START_TEST(writes_go_on_after_the_failover)
{
    crash_server("n1");
    attend_for(3000);
    size_t events = scene_event_count;
    attend_for(10000);
    ck_assert_uint_eq(scene_event_count, events);
    ck_assert_int_eq(scene_last_ack(NULL), fake_now_ns);
}
END_TEST

START_TEST(the_lagging_standby_is_not_chosen)
{
    attend_for(1500);
    model[1].receiving = false;
    model[0].lsn = 0x6000000;
    model_flow();
    crash_server("n1");
    attend_for(3000);
    ck_assert_str_eq(told("ha.promote")->node, "n3");
    assert_order("n3 postgres.promote", "n2 postgres.receiver n3");
    ck_assert_str_eq(fake_route, "n3");
}
END_TEST

START_TEST(a_receiver_that_cannot_be_stopped_still_votes_when_fenced)
{
    attend_for(1500);
    fake_failures[0].node = "n3";
    fake_failures[0].method = "postgres.receiver";
    fake_failures[0].status = STATUS_TIMEOUT;
    crash_server("n1");
    attend_for(3000);
    ck_assert_str_eq(told("ha.promote")->node, "n2");
    /* no quorum yet: the endpoint stays closed */
    ck_assert_ptr_null(fake_route);
    fake_failures[0].node = NULL;
    attend_for(3000);
    ck_assert_str_eq(fake_route, "n2");
    ck_assert_uint_eq(times_told("ha.promote"), 1);
}
END_TEST

START_TEST(a_frozen_primary_is_fenced)
{
    model[0].accepting = false;
    model[0].frozen = true;
    attend_for(3000);
    assert_order("n1 postgres.fence", "n2 postgres.promote");
    ck_assert(!model[0].running);
    ck_assert_ptr_nonnull(strstr(told("ha.fence")->text, "PostgreSQL runs but does not answer"));
}
END_TEST

START_TEST(a_partitioned_primary_is_asked_for_a_commit_and_fenced)
{
    model[0].cut = true;
    attend_for(3000);
    assert_order("n1 postgres.quorum-wait", "n1 postgres.fence");
    assert_order("n1 postgres.fence", "n2 postgres.promote");
    ck_assert_ptr_nonnull(strstr(told("ha.fence")->text, "cut off"));
}
END_TEST

START_TEST(a_crash_restart_is_waited_for)
{
    model[0].accepting = false;
    attend_for(2500);
    ck_assert_uint_eq(times_told("ha.wait"), 1);
    ck_assert_uint_eq(times_told("ha.fence"), 0);
    model[0].accepting = true;
    attend_for(2000);
    ck_assert_uint_eq(times_told("ha.promote"), 0);
    ck_assert_str_eq(fake_route, "n1");
}
END_TEST

START_TEST(a_restart_that_does_not_end_is_a_failover)
{
    model[0].accepting = false;
    attend_for(6000);
    ck_assert_str_eq(told("ha.promote")->node, "n2");
}
END_TEST

START_TEST(a_crashed_node_is_switched_off_through_the_power_agent)
{
    model[0].silent = true;
    crash_server("n1");
    attend_for(3000);
    assert_order("p1 power off", "n2 postgres.promote");
    ck_assert_str_eq(json_text(told("ha.fence")->details, "path", ""), "power");
    ck_assert(json_flag(told("ha.fence")->details, "fenced", false));
}
END_TEST

START_TEST(without_a_power_driver_a_crashed_node_is_unfenced_and_refused)
{
    scene_topology.power.off = NULL;
    model[0].silent = true;
    crash_server("n1");
    attend_for(3000);
    ck_assert_uint_eq(times_told("ha.promote"), 0);
    ck_assert(!json_flag(told("ha.fence")->details, "fenced", true));
    ck_assert_ptr_nonnull(strstr(told("ha.refuse")->text, "not fenced by control"));
    ck_assert_uint_eq(times_told("ha.refuse"), 1);
    ck_assert_uint_eq(times_told("ha.fence"), 1);
}
END_TEST

START_TEST(control_without_a_management_network_does_not_fence)
{
    scene_topology.ha.management_network = false;
    crash_server("n1");
    attend_for(3000);
    ck_assert_int_eq(called("n1 postgres.fence"), -1);
    ck_assert_int_eq(called("p1 power"), -1);
    ck_assert_uint_eq(times_told("ha.promote"), 0);
    ck_assert_ptr_nonnull(strstr(told("ha.refuse")->text, "management network"));
}
END_TEST

START_TEST(fence_none_promotes_unfenced_and_says_so)
{
    scene_topology.ha.fence = "none";
    crash_server("n1");
    attend_for(3000);
    ck_assert(!json_flag(told("ha.fence")->details, "fenced", true));
    ck_assert_str_eq(json_text(told("ha.fence")->details, "path", ""), "none");
    ck_assert_str_eq(told("ha.promote")->node, "n2");
}
END_TEST

START_TEST(unfenced_a_receiver_that_runs_has_no_vote)
{
    scene_topology.ha.fence = "none";
    fake_failures[0].node = "n3";
    fake_failures[0].method = "postgres.receiver";
    fake_failures[0].status = STATUS_TIMEOUT;
    crash_server("n1");
    attend_for(3000);
    ck_assert_uint_eq(times_told("ha.promote"), 0);
    ck_assert_ptr_nonnull(strstr(told("ha.refuse")->text, "1 of 'ANY 1 (n2, n3)' heard"));
}
END_TEST

static enum status run_loop(void)
{
    return loop_new(&fake_loop, NULL);
}

START_TEST(a_fence_script_is_run_with_the_node)
{
    char seen[8] = "", path[64];
    const char *const script[] = {"dd", "status=none", "if=/dev/null", path, NULL};

    snprintf(path, sizeof path, "of=/tmp/ordeal-fence-%d-{node}", (int) getpid());
    ck_assert_int_eq(run_loop(), STATUS_OK);
    scene_topology.ha.fence = "script";
    scene_topology.ha.fence_script = script;
    crash_server("n1");
    attend_for(3000);
    snprintf(path, sizeof path, "/tmp/ordeal-fence-%d-n1", (int) getpid());
    snprintf(seen, sizeof seen, "%s", access(path, F_OK) == 0 ? "there" : "absent");
    unlink(path);
    ck_assert_str_eq(seen, "there");
    ck_assert_str_eq(told("ha.promote")->node, "n2");
    loop_free(fake_loop);
}
END_TEST

START_TEST(a_fence_script_that_fails_is_no_fence)
{
    static const char *const script[] = {"false", "{node}", NULL};

    ck_assert_int_eq(run_loop(), STATUS_OK);
    scene_topology.ha.fence = "script";
    scene_topology.ha.fence_script = script;
    crash_server("n1");
    attend_for(2000);
    ck_assert_uint_eq(times_told("ha.promote"), 0);
    ck_assert_ptr_nonnull(strstr(told("ha.refuse")->text, "exited with 1"));
    loop_free(fake_loop);
}
END_TEST

/* ---- refusals ---- */

START_TEST(both_standbys_lost_is_waited_out)
{
    crash_server("n2");
    crash_server("n3");
    attend_for(5000);
    ck_assert_uint_eq(times_told("ha.wait"), 1);
    ck_assert_uint_eq(times_told("ha.fence"), 0);
    ck_assert_uint_eq(times_told("ha.refuse"), 0);
    ck_assert_str_eq(fake_route, "n1");
    ck_assert(model[0].accepting);
}
END_TEST

START_TEST(primary_and_one_standby_lost_is_refused)
{
    crash_server("n1");
    crash_server("n3");
    attend_for(5000);
    ck_assert_uint_eq(times_told("ha.promote"), 0);
    ck_assert_uint_eq(times_told("ha.fence"), 0);
    ck_assert_uint_eq(times_told("ha.refuse"), 1);
    ck_assert_ptr_nonnull(strstr(json_text(told("ha.refuse")->details, "reason", ""), "2 needed"));
}
END_TEST

START_TEST(a_standby_that_comes_back_makes_it_possible)
{
    crash_server("n1");
    crash_server("n3");
    attend_for(3000);
    ck_assert_uint_eq(times_told("ha.promote"), 0);
    model[2].running = model[2].accepting = true;
    attend_for(3000);
    ck_assert_str_eq(fake_route, "n2");
}
END_TEST

START_TEST(a_rebuilt_standby_has_no_vote)
{
    attend_for(1500);
    model[2].incarnation = "rebuilt-by-somebody";
    model[2].lsn = 0x5000000;
    crash_server("n1");
    attend_for(3000);
    ck_assert_uint_eq(times_told("ha.promote"), 0);
    ck_assert_ptr_nonnull(strstr(told("ha.refuse")->text, "1 of 'ANY 1 (n2, n3)' heard"));
}
END_TEST

START_TEST(allowed_loss_promotes_and_says_so)
{
    scene_topology.ha.allow_loss = true;
    crash_server("n1");
    crash_server("n3");
    attend_for(4000);
    ck_assert_str_eq(told("ha.promote")->node, "n2");
    ck_assert(json_flag(told("ha.promote")->details, "allow_loss", false));
    ck_assert(!json_flag(told("ha.elect")->details, "safe", true));
    /* and nobody is there to acknowledge: closed */
    ck_assert_ptr_null(fake_route);
}
END_TEST

START_TEST(a_standby_without_a_sync_set_is_not_promoted)
{
    attend_for(1500);
    model[1].sync_set = "";
    crash_server("n1");
    attend_for(3000);
    ck_assert_int_eq(called("postgres.promote"), -1);
    ck_assert_ptr_nonnull(
        strstr(told("ha.refuse")->text, "synchronous_standby_names of n2 is empty"));
}
END_TEST

START_TEST(a_promotion_that_failed_is_asked_for_again_of_the_same_node)
{
    fake_failures[0].node = "n2";
    fake_failures[0].method = "postgres.promote";
    fake_failures[0].status = STATUS_TIMEOUT;
    crash_server("n1");
    attend_for(3000);
    ck_assert_uint_eq(times_told("ha.promote"), 0);
    fake_failures[0].node = NULL;
    model[2].lsn += 0x100; /* too late for the other one */
    attend_for(3000);
    ck_assert_str_eq(told("ha.promote")->node, "n2");
    ck_assert_int_eq(called("n3 postgres.promote"), -1);
}
END_TEST

START_TEST(a_promotion_whose_answer_was_lost_is_noticed)
{
    fake_failures[0].node = "n2";
    fake_failures[0].method = "postgres.promote";
    fake_failures[0].status = STATUS_TIMEOUT;
    crash_server("n1");
    attend_for(2000);
    model[1].standby = model[1].receiving = false;
    model[1].timeline = 2;
    attend_for(2000);
    ck_assert_str_eq(told("ha.promote")->node, "n2");
    ck_assert_str_eq(json_text(told("ha.promote")->details, "fork_lsn", ""), "0/5000000");
    ck_assert_str_eq(fake_route, "n2");
}
END_TEST

START_TEST(a_second_primary_is_fenced_at_once)
{
    crash_server("n1");
    attend_for(3000);
    model[0].running = model[0].accepting = true;
    attend_for(1500);
    ck_assert(!model[0].running);
    ck_assert_ptr_nonnull(strstr(told("ha.fence")->text, "second primary"));
    ck_assert_str_eq(fake_route, "n2");
}
END_TEST

START_TEST(without_load_a_dead_primary_is_still_noticed)
{
    fake_silent_load = true;
    attend_for(5000);
    ck_assert_uint_eq(scene_event_count, 0);
    crash_server("n1");
    attend_for(4000);
    ck_assert_str_eq(told("ha.promote")->node, "n2");
}
END_TEST

START_TEST(an_abort_is_passed_on)
{
    struct error err = {0};

    crash_server("n1");
    fake_now_ns += 5 * NS_PER_SECOND;
    fake_aborted = true;
    ck_assert_int_eq(scene.driver->attend(&scene, &err), STATUS_ABORTED);
    ck_assert_str_eq(err.message, "stop condition");
}
END_TEST

/* ---- recovery ---- */

START_TEST(the_old_primary_comes_back_by_rewind)
{
    struct error err = {0};

    crash_server("n1");
    attend_for(3000);
    ck_assert_msg(recover(60000, &err) == STATUS_OK, "%s", err.message);
    assert_order("n1 postgres.rewind n2", "n1 postgres.start");
    ck_assert_str_eq(told("ha.rejoin")->node, "n1");
    ck_assert_str_eq(json_text(told("ha.rejoin")->details, "how", ""), "rewind");
    ck_assert_ptr_null(model[0].slots[0]);
    ck_assert_ptr_nonnull(model[1].slots[1]);
    assert_healthy();
}
END_TEST

START_TEST(it_comes_back_by_base_backup_when_the_rewind_fails)
{
    struct error err = {0};

    crash_server("n1");
    attend_for(3000);
    fake_failures[0].node = "n1";
    fake_failures[0].method = "postgres.rewind";
    fake_failures[0].status = STATUS_FAILED;
    ck_assert_msg(recover(60000, &err) == STATUS_OK, "%s", err.message);
    assert_order("n1 postgres.rewind n2", "n1 postgres.rebuild n2");
    ck_assert_str_eq(json_text(told("ha.rejoin")->details, "how", ""), "rebuild");
    assert_healthy();
}
END_TEST

START_TEST(a_node_that_is_off_is_powered_on)
{
    struct error err = {0};

    model[0].silent = true;
    crash_server("n1");
    attend_for(3000);
    ck_assert_msg(recover(60000, &err) == STATUS_OK, "%s", err.message);
    assert_order("p1 power on", "n1 postgres.rewind n2");
    assert_healthy();
}
END_TEST

START_TEST(lost_standbys_are_started)
{
    struct error err = {0};

    crash_server("n2");
    crash_server("n3");
    attend_for(3000);
    ck_assert_msg(recover(60000, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_ge(called("n2 postgres.start"), 0);
    ck_assert_int_ge(called("n3 postgres.start"), 0);
    ck_assert_int_eq(called("postgres.rewind"), -1);
    ck_assert_str_eq(json_text(told("ha.rejoin")->details, "how", ""), "start");
    ck_assert_uint_eq(times_told("ha.promote"), 0);
    assert_healthy();
}
END_TEST

START_TEST(orphans_are_killed_before_a_start)
{
    struct error err = {0};

    crash_server("n2");
    model[1].orphans = 3;
    ck_assert_msg(recover(60000, &err) == STATUS_OK, "%s", err.message);
    assert_order("n2 postgres.fence", "n2 postgres.start");
    assert_healthy();
}
END_TEST

START_TEST(after_a_refusal_the_old_primary_is_started_again)
{
    struct error err = {0};

    crash_server("n1");
    crash_server("n3");
    attend_for(3000);
    ck_assert_msg(recover(60000, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_ge(called("n1 postgres.start"), 0);
    ck_assert_int_eq(called("postgres.promote"), -1);
    ck_assert_int_eq(called("postgres.rewind"), -1);
    ck_assert_str_eq(fake_route, "n1");
    assert_healthy();
}
END_TEST

START_TEST(an_erased_primary_is_replaced_once_the_standbys_are_back)
{
    struct error err = {0};

    crash_server("n1");
    model[0].erased = true;
    crash_server("n3");
    attend_for(3000);
    ck_assert_uint_eq(times_told("ha.promote"), 0);
    ck_assert_msg(recover(60000, &err) == STATUS_OK, "%s", err.message);
    ck_assert_str_eq(told("ha.promote")->node, "n2");
    assert_order("n3 postgres.start", "n2 postgres.promote");
    assert_order("n2 postgres.promote", "n1 postgres.rebuild n2");
    ck_assert_str_eq(fake_route, "n2");
    assert_healthy();
}
END_TEST

START_TEST(another_folder_is_not_started_as_the_primary)
{
    struct error err = {0};

    crash_server("n1");
    model[0].incarnation = "another-folder";
    ck_assert_msg(recover(60000, &err) == STATUS_OK, "%s", err.message);
    assert_order("n2 postgres.promote", "n1 postgres.start");
    assert_order("n1 postgres.rewind n2", "n1 postgres.start");
}
END_TEST

START_TEST(recovery_says_what_is_missing)
{
    struct error err = {0};

    crash_server("n3");
    fake_failures[0].node = "n3";
    fake_failures[0].method = "postgres.start";
    fake_failures[0].status = STATUS_FAILED;
    fake_failures[1].node = "n3";
    fake_failures[1].method = "postgres.rewind";
    fake_failures[1].status = STATUS_FAILED;
    fake_failures[2].node = "n3";
    fake_failures[2].method = "postgres.rebuild";
    fake_failures[2].status = STATUS_FAILED;
    ck_assert_int_eq(recover(5000, &err), STATUS_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(err.message, "n3: PostgreSQL is down"));
    ck_assert_ptr_nonnull(strstr(err.detail, "n3: rebuild"));
}
END_TEST

START_TEST(a_primary_made_by_somebody_else_is_followed_in_recovery)
{
    struct error err = {0};

    crash_server("n1");
    model[2].standby = model[2].receiving = false;
    model[2].timeline = 2;
    ck_assert_msg(recover(60000, &err) == STATUS_OK, "%s", err.message);
    ck_assert_str_eq(told("ha.promote")->node, "n3");
    ck_assert(json_flag(told("ha.promote")->details, "allow_loss", false));
    ck_assert_int_ge(called("n1 postgres.rewind n3"), 0);
    ck_assert_int_ge(called("n2 postgres.receiver n3"), 0);
    ck_assert_str_eq(fake_route, "n3");
    assert_healthy();
}
END_TEST

START_TEST(a_second_failover_needs_votes_under_the_new_primary)
{
    struct error err = {0};

    crash_server("n1");
    attend_for(3000);
    ck_assert_int_eq(recover(60000, &err), STATUS_OK);
    attend_for(5000);
    crash_server("n2");
    attend_for(4000);
    ck_assert_str_eq(told("ha.promote")->node, "n1");
    ck_assert_int_eq(json_number(told("ha.promote")->details, "timeline", 0), 3);
    ck_assert_str_eq(fake_route, "n1");
}
END_TEST

START_TEST(right_after_a_failover_nobody_has_a_vote_yet)
{
    crash_server("n1");
    attend_for(1200);
    ck_assert_str_eq(fake_route, "n2");
    crash_server("n2");
    attend_for(3000);
    ck_assert_uint_eq(times_told("ha.promote"), 1);
    ck_assert_ptr_nonnull(strstr(told("ha.refuse")->text, "not promoted"));
}
END_TEST

TEST_MAIN("ha manual", 30, setup, end_scene, it_begins_with_votes_and_an_open_endpoint,
          it_does_not_begin_without_a_primary, it_begins_before_any_load_runs,
          it_does_not_begin_with_a_member_that_never_catches_up,
          a_dead_primary_is_replaced_step_by_step, writes_go_on_after_the_failover,
          the_lagging_standby_is_not_chosen,
          a_receiver_that_cannot_be_stopped_still_votes_when_fenced, a_frozen_primary_is_fenced,
          a_partitioned_primary_is_asked_for_a_commit_and_fenced, a_crash_restart_is_waited_for,
          a_restart_that_does_not_end_is_a_failover,
          a_crashed_node_is_switched_off_through_the_power_agent,
          without_a_power_driver_a_crashed_node_is_unfenced_and_refused,
          control_without_a_management_network_does_not_fence,
          fence_none_promotes_unfenced_and_says_so, unfenced_a_receiver_that_runs_has_no_vote,
          a_fence_script_is_run_with_the_node, a_fence_script_that_fails_is_no_fence,
          both_standbys_lost_is_waited_out, primary_and_one_standby_lost_is_refused,
          a_standby_that_comes_back_makes_it_possible, a_rebuilt_standby_has_no_vote,
          allowed_loss_promotes_and_says_so, a_standby_without_a_sync_set_is_not_promoted,
          a_promotion_that_failed_is_asked_for_again_of_the_same_node,
          a_promotion_whose_answer_was_lost_is_noticed, a_second_primary_is_fenced_at_once,
          without_load_a_dead_primary_is_still_noticed, an_abort_is_passed_on,
          the_old_primary_comes_back_by_rewind, it_comes_back_by_base_backup_when_the_rewind_fails,
          a_node_that_is_off_is_powered_on, lost_standbys_are_started,
          orphans_are_killed_before_a_start, after_a_refusal_the_old_primary_is_started_again,
          an_erased_primary_is_replaced_once_the_standbys_are_back,
          another_folder_is_not_started_as_the_primary, recovery_says_what_is_missing,
          a_primary_made_by_somebody_else_is_followed_in_recovery,
          a_second_failover_needs_votes_under_the_new_primary,
          right_after_a_failover_nobody_has_a_vote_yet)
