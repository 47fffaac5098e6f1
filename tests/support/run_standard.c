/* SPDX-License-Identifier: MIT */
/* The standard run: who wrote what, and its journal. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "tests/support/run_parts.h"

/* --- its ledgers ------------------------------------------------------------------------------ */

struct shape {
    const struct run_plan *plan;
    struct run_builder *run;
    enum ledger_level level;
    int64_t back_ms, load_until_ms, old_until_ms;
    int64_t second_back_ms; /* INT64_MAX: never, or there is no second fault */
    bool connected[RUN_WORKLOAD + 6];
    uint32_t timeline[RUN_WORKLOAD + 6]; /* of each client's session */
};

/* Which node takes a write at an instant, and on which timeline; SIZE_MAX: none. */
static size_t writer_at(const struct shape *shape, int64_t at_ms, uint32_t *ret_timeline)
{
    *ret_timeline = 1;
    if (shape->plan->no_fault || at_ms < RUN_FAULT_MS)
        return 0;
    if (shape->plan->never_back || at_ms < shape->back_ms)
        return SIZE_MAX;
    size_t writer = shape->plan->no_failover ? 0 : 1;
    *ret_timeline = (uint32_t) writer + 1;
    if (shape->plan->second_ms == 0 || at_ms < shape->plan->second_ms)
        return writer;
    if (at_ms < shape->second_back_ms)
        return SIZE_MAX;
    (*ret_timeline)++;
    return writer + 1;
}

/* Was the writer of a moment killed at its end? */
static bool dies_at(const struct shape *shape, int64_t at_ms)
{
    return (!shape->plan->no_fault && at_ms == RUN_FAULT_MS) ||
           (shape->plan->second_ms != 0 && at_ms == shape->plan->second_ms);
}

/* A node that was killed is up again 1.2 s after the next one took over. */
static bool is_down(const struct shape *shape, size_t node, int64_t at_ms)
{
    uint32_t timeline;
    int64_t second_ms = shape->plan->second_ms;

    if (second_ms != 0 && at_ms >= second_ms && node == writer_at(shape, second_ms - 1, &timeline))
        return shape->second_back_ms == INT64_MAX || at_ms < shape->second_back_ms + 1200;
    return node == 0 && writer_at(shape, at_ms, &timeline) != 0 && at_ms < 8000;
}

static void connect_client(struct shape *shape, size_t ledger, uint32_t client, size_t node,
                           uint32_t timeline, int64_t at_ms)
{
    size_t index = run_client_index(client);
    uint8_t role = client < RUN_OLD_PROBE    ? LEDGER_WORKLOAD
                   : client == RUN_OLD_PROBE ? LEDGER_ENDPOINT_OLD
                   : client == RUN_NEW_PROBE ? LEDGER_ENDPOINT_NEW
                                             : LEDGER_DIRECT;

    if (shape->connected[index] && shape->timeline[index] == timeline)
        return;
    shape->connected[index] = true;
    shape->timeline[index] = timeline;
    run_record(shape->run, ledger,
               (struct ledger_record){.kind = LEDGER_SESSION,
                                      .class = (uint8_t) shape->level,
                                      .flags = role,
                                      .client = client,
                                      .node = (uint16_t) node,
                                      .timeline = timeline,
                                      .done_ns = run_client_ns(at_ms)});
}

static void attempt(struct shape *shape, size_t ledger, uint32_t client, size_t node,
                    uint32_t timeline, enum ledger_class class, int64_t at_ms)
{
    struct run_builder *run = shape->run;
    struct ledger_record record = {.kind = LEDGER_INTENT,
                                   .client = client,
                                   .seq = ++run->sequences[run_client_index(client)],
                                   .scheduled_ns = run_client_ns(at_ms),
                                   .timeline = timeline,
                                   .node = node == SIZE_MAX ? 0 : (uint16_t) node};

    if (class == LEDGER_ACKED || class == LEDGER_IN_DOUBT) {
        record.sent_ns = record.scheduled_ns;
        run_record(run, ledger, record);
        record.lsn = run_lsn(at_ms);
        record.phase = LEDGER_COMMITTING;
    }
    if (class == LEDGER_ABORTED)
        record.phase = LEDGER_IN_TRANSACTION;
    record.kind = LEDGER_OUTCOME;
    record.class = (uint8_t) class;
    record.sent_ns = class == LEDGER_UNSENT ? 0 : record.scheduled_ns + NS_PER_MS;
    record.done_ns = record.scheduled_ns + 2 * NS_PER_MS;
    run_record(run, ledger, record);
    for (size_t i = 0; class == LEDGER_ACKED && i < RUN_NODES - 1; i++)
        run_append_token(&run->present[i], (struct run_token){.client = client, .seq = record.seq});
}

static void endpoint_attempt(struct shape *shape, uint32_t client, int64_t at_ms)
{
    uint32_t timeline;
    size_t node = writer_at(shape, at_ms, &timeline);

    if (node == SIZE_MAX) {
        shape->connected[run_client_index(client)] = false;
        attempt(shape, 0, client, SIZE_MAX, 0, LEDGER_UNSENT, at_ms);
        return;
    }
    connect_client(shape, 0, client, node, timeline, at_ms);
    bool cut = dies_at(shape, at_ms + 1); /* sent in the last moment: has no answer */
    attempt(shape, 0, client, node, timeline, cut ? LEDGER_IN_DOUBT : LEDGER_ACKED, at_ms);
}

static void direct_attempt(struct shape *shape, uint32_t client, int64_t at_ms)
{
    size_t own = client - RUN_DIRECT_N1;
    uint32_t timeline;
    size_t writer = writer_at(shape, at_ms, &timeline);
    bool old_writer = own == 0 && at_ms >= RUN_FAULT_MS && at_ms < shape->old_until_ms;
    bool down = is_down(shape, own, at_ms);

    if (old_writer) {
        connect_client(shape, 1, client, own, 1, at_ms);
        attempt(shape, 1, client, own, 1, LEDGER_ACKED, at_ms);
    } else if (own == writer) {
        connect_client(shape, 1, client, own, timeline, at_ms);
        attempt(shape, 1, client, own, timeline, LEDGER_ACKED, at_ms);
    } else if (down) {
        shape->connected[run_client_index(client)] = false;
        attempt(shape, 1, client, own, 0, LEDGER_UNSENT, at_ms);
    } else {
        connect_client(shape, 1, client, own, 0, at_ms);
        attempt(shape, 1, client, own, 0, LEDGER_ABORTED, at_ms);
    }
}

static void beat(struct shape *shape, int64_t at_ms)
{
    for (size_t ledger = 0; ledger < 2; ledger++)
        run_record(shape->run, ledger,
                   (struct ledger_record){.kind = LEDGER_BEAT,
                                          .sent_ns = run_client_ns(at_ms),
                                          .done_ns = run_client_ns(at_ms)});
}

static void one_ms(struct shape *shape, int64_t at_ms)
{
    const struct run_plan *plan = shape->plan;

    if (at_ms >= plan->blind_from && at_ms < plan->blind_until)
        return;
    if (at_ms % 50 == 0)
        beat(shape, at_ms);
    if (at_ms % 20 == 3)
        for (uint32_t client = RUN_DIRECT_N1; client <= RUN_DIRECT_N3; client++)
            direct_attempt(shape, client, at_ms);
    if (at_ms < plan->load_from_ms || at_ms >= shape->load_until_ms)
        return;
    if (at_ms % 5 == 4) {
        endpoint_attempt(shape, RUN_OLD_PROBE, at_ms);
        endpoint_attempt(shape, RUN_NEW_PROBE, at_ms);
    }
    for (uint32_t client = 1; client <= RUN_WORKLOAD; client++)
        if (at_ms % 10 == client)
            endpoint_attempt(shape, client, at_ms);
}

static void build_ledgers(struct shape *shape)
{
    run_add_ledger(shape->run);
    run_add_ledger(shape->run);
    for (int64_t at_ms = 0; at_ms < RUN_END_MS; at_ms++)
        one_ms(shape, at_ms);
    for (size_t ledger = 0; ledger < 2; ledger++)
        run_record(
            shape->run, ledger,
            (struct ledger_record){.kind = LEDGER_END, .done_ns = run_client_ns(RUN_END_MS)});
}

/* --- its journal ------------------------------------------------------------------------------ */

static json_t *topology_json(const struct run_plan *plan)
{
    json_t *list = json_array();

    for (size_t i = 0; i < RUN_NODES; i++)
        json_array_append_new(list, json_pack("{s:s, s:[s]}", "name", run_nodes[i].name, "roles",
                                              i < 3 ? "database" : "client"));
    return json_pack("{s:s, s:{s:s, s:s}, s:o}", "name", "built", "promise", "durability",
                     plan->promise == NULL ? "quorum" : plan->promise, "failover", "30s", "nodes",
                     list);
}

static json_t *scenario_json(const struct run_plan *plan)
{
    json_t *expect = plan->expect;
    json_t *method = json_array();

    if (expect == NULL)
        expect = json_pack("{s:s}", "failover", plan->no_failover ? "no" : "yes");
    if (plan->no_fault)
        json_decref(expect);
    else
        json_array_append_new(method, json_pack("{s:s, s:s, s:o}", "name", "kill", "fault",
                                                "process.kill", "expect", expect));
    if (plan->second_ms != 0)
        json_array_append_new(
            method, json_pack("{s:s, s:s, s:o}", "name", "again", "fault", "process.kill", "expect",
                              plan->second_expect == NULL ? json_pack("{s:s}", "failover", "yes")
                                                          : plan->second_expect));
    return json_pack("{s:s, s:o, s:o}", "title", "A built run", "method", method, "checks",
                     plan->checks == NULL ? json_object() : plan->checks);
}

static void journal_start(struct shape *shape)
{
    struct run_builder *run = shape->run;

    run_event(run, 0, "run.start",
              json_pack("{s:i, s:s, s:o, s:o, s:i}", "version", 1, "run", "run-1", "scenario",
                        scenario_json(shape->plan), "topology", topology_json(shape->plan), "seed",
                        42));
    for (size_t i = 0; i < RUN_NODES; i++)
        run_event(run, 0, "clock",
                  json_pack("{s:s, s:I, s:I}", "node", run_nodes[i].name, "offset_ns",
                            (json_int_t) (run_nodes[i].offset_s * NS_PER_SECOND), "error_ns",
                            (json_int_t) 200000));
    run_event(run, 0, "load.start",
              json_pack("{s:s, s:{s:i, s:i}}", "node", "c1", "probes", "interval_ms", 5,
                        "direct_interval_ms", 20));
    run_event(run, 500, "steady-state",
              json_pack("{s:s, s:s, s:b}", "when", "before", "probe", "writes.available", "ok", 1));
}

struct built_fault {
    const char *step, *node;
    int64_t at_ms, undone_ms;
    bool freeze;
};

static void journal_fault(struct run_builder *run, struct built_fault built)
{
    const char *fault = built.freeze ? "process.freeze" : "process.kill";
    const char *node = built.node;
    json_t *uid = json_sprintf("%s-%s", built.step, node);

    run_event(run, built.at_ms - 1, "exposure",
              json_pack("{s:O, s:i, s:[{s:s, s:i}]}", "uid", uid, "acked_last_second", 700,
                        "standbys", "node", strcmp(node, "n2") == 0 ? "n3" : "n2", "gap_bytes", 0));
    run_event(run, built.at_ms + 20, "fault.injected",
              json_pack("{s:O, s:s, s:s, s:s, s:s, s:I, s:I, s:{s:s, s:s}, s:[{s:s, s:s, s:s}], "
                        "s:b}",
                        "uid", uid, "step", built.step, "fault", fault, "node", node, "clock", node,
                        "f0_ns", (json_int_t) run_node_ns(node, built.at_ms - 1), "f1_ns",
                        (json_int_t) run_node_ns(node, built.at_ms), "effect", "state", "active",
                        "text", "7 of 7 processes", "witness", "node", "c1", "state", "active",
                        "text", "refused", "holds", built.freeze));
    run_event(run, built.undone_ms, "fault.undone",
              json_pack("{s:o, s:s, s:s, s:I, s:s, s:s}", "uid", uid, "node", node, "clock", node,
                        "undone_ns", (json_int_t) run_node_ns(node, built.undone_ms), "by", "agent",
                        "state", "absent"));
}

static void journal_failover(struct run_builder *run, size_t from, uint32_t timeline,
                             int64_t fault_ms, int64_t back_ms)
{
    const char *old = run_nodes[from].name;
    const char *new = run_nodes[from + 1].name;
    int64_t detect_ms = (back_ms - fault_ms) * 5 / 9;
    char lsn[32];

    snprintf(lsn, sizeof lsn, "0/%llX", (unsigned long long) run_lsn(fault_ms));
    run_event(run, fault_ms + detect_ms, "ha.detect", json_pack("{s:s}", "node", old));
    run_event(run, fault_ms + detect_ms + 100, "ha.fence",
              json_pack("{s:s, s:b}", "node", old, "fenced", 1));
    run_event(run, back_ms - 200, "ha.elect", json_pack("{s:s}", "node", new));
    run_event(run, back_ms - 100, "ha.promote",
              json_pack("{s:s, s:i, s:s, s:b}", "node", new, "timeline", (int) timeline, "fork_lsn",
                        lsn, "allow_loss", 0));
    run_event(run, back_ms - 20, "quorum-wait",
              json_pack("{s:s, s:b, s:I}", "node", new, "waited", 1, "ack_ns",
                        (json_int_t) run_node_ns(new, back_ms - 20)));
    run_event(run, back_ms - 10, "ha.route", json_pack("{s:s}", "node", new));
}

static void journal_method(struct shape *shape)
{
    const struct run_plan *plan = shape->plan;
    struct run_builder *run = shape->run;
    struct built_fault first = {"kill", "n1", RUN_FAULT_MS, shape->back_ms, plan->stall};

    if (!plan->no_fault && plan->stall)
        for (size_t i = 1; i < 3; i++) {
            first.node = run_nodes[i].name;
            journal_fault(run, first);
        }
    else if (!plan->no_fault)
        journal_fault(run, first);
    if (!plan->no_fault && !plan->no_failover && !plan->never_back)
        journal_failover(run, 0, 2, RUN_FAULT_MS, shape->back_ms);
    if (plan->second_ms == 0)
        return;
    uint32_t timeline;
    size_t writer = writer_at(shape, plan->second_ms - 1, &timeline);
    bool back = shape->second_back_ms != INT64_MAX;
    int64_t undone_ms = back ? shape->second_back_ms : RUN_END_MS;
    journal_fault(run, (struct built_fault){"again", run_nodes[writer].name, plan->second_ms,
                                            undone_ms, false});
    if (back)
        journal_failover(run, writer, timeline + 1, plan->second_ms, shape->second_back_ms);
}

static json_t *replication_json(const char *primary, int timeline)
{
    json_t *standbys = json_array();

    for (size_t i = 0; i < 3; i++)
        if (strcmp(run_nodes[i].name, primary) != 0)
            json_array_append_new(standbys,
                                  json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:i}", "node",
                                            run_nodes[i].name, "state", "streaming", "sync_state",
                                            "quorum", "flush_lsn", "0/4000000", "own_receive_lsn",
                                            "0/4000000", "own_replay_lsn", "0/4000000", "streaming",
                                            1, "timeline", timeline));
    return json_pack("{s:s, s:s, s:s, s:o}", "primary", primary, "lsn", "0/4000000", "sync_set",
                     "ANY 1 (n1, n2, n3)", "standbys", standbys);
}

/* Each timeline ended where its writer was killed. */
static json_t *history_json(const struct shape *shape, uint32_t final)
{
    json_t *list = json_array();

    for (uint32_t timeline = 1; timeline < final; timeline++) {
        bool second = shape->plan->second_ms != 0 && timeline == final - 1 &&
                      shape->second_back_ms != INT64_MAX;
        int64_t end_ms = second ? shape->plan->second_ms : RUN_FAULT_MS;
        char lsn[32];
        snprintf(lsn, sizeof lsn, "0/%llX", (unsigned long long) run_lsn(end_ms));
        json_array_append_new(list,
                              json_pack("{s:i, s:s}", "timeline", (int) timeline, "lsn", lsn));
    }
    return list;
}

static void journal_recovery(struct shape *shape)
{
    struct run_builder *run = shape->run;
    uint32_t final;
    size_t writer = writer_at(shape, RUN_END_MS, &final);
    const char *primary = run_nodes[writer == SIZE_MAX ? final - 1 : writer].name;
    int timeline = (int) final;

    run_event(run, RUN_END_MS, "load.end",
              json_pack("{s:s, s:i, s:b}", "node", "c1", "workers", 2, "complete", 1));
    run_event(run, 11000, "recovered", json_pack("{s:i, s:i}", "ms", 3200, "resolution_ms", 100));
    run_event(run, 11100, "timeline",
              json_pack("{s:s, s:i, s:o}", "node", primary, "timeline", timeline, "history",
                        history_json(shape, final)));
    run_event(run, 11200, "replication", replication_json(primary, timeline));
    run_event(run, 11300, "quorum-wait",
              json_pack("{s:s, s:b, s:I}", "node", primary, "waited", 1, "ack_ns",
                        (json_int_t) run_node_ns(primary, 11300)));
    for (size_t i = 0; i < 3; i++) {
        bool is_primary = strcmp(run_nodes[i].name, primary) == 0;
        json_t *file = json_sprintf("present-%s.tokens", run_nodes[i].name);
        run_event(run, 11400, "present",
                  json_pack("{s:s, s:s, s:i, s:o, s:b}", "node", run_nodes[i].name, "role",
                            is_primary ? "primary" : "standby", "timeline", timeline, "file", file,
                            "agree", 1));
        run_event(run, 11500, "integrity",
                  json_pack("{s:s, s:s, s:b, s:i, s:[]}", "node", run_nodes[i].name, "method",
                            is_primary ? "verify" : "checksums", "ok", 1, "examined", 4000,
                            "problems"));
    }
    run_event(run, 11600, "integrity",
              json_pack("{s:s, s:s, s:b, s:i, s:[]}", "node", primary, "method", "amcheck", "ok", 1,
                        "examined", 12, "problems"));
}

static void journal_end(struct run_builder *run)
{
    run_event(run, 11700, "steady-state",
              json_pack("{s:s, s:s, s:b}", "when", "after", "probe", "writes.available", "ok", 1));
    for (size_t i = 0; i < RUN_NODES; i++)
        run_event(
            run, 11800, "residue",
            json_pack("{s:s, s:b, s:[]}", "node", run_nodes[i].name, "clean", 1, "differences"));
    run_event(run, 11900, "run.end", json_pack("{s:s, s:b}", "outcome", "completed", "clean", 1));
}

struct run_builder *run_standard(const struct run_plan *plan)
{
    struct run_builder *run = calloc(1, sizeof *run);
    struct shape shape = {.plan = plan, .run = run};

    ck_assert_ptr_nonnull(run);
    const char *temporary = getenv("TMPDIR");
    int length = snprintf(run->folder, sizeof run->folder, "%s/ordeal-built-XXXXXX",
                          temporary == NULL ? "/tmp" : temporary);
    ck_assert_int_lt(length, sizeof run->folder);
    ck_assert_ptr_nonnull(mkdtemp(run->folder));
    run->journal = json_array();
    shape.level = plan->level == LEDGER_LEVEL_UNKNOWN ? LEDGER_ON : plan->level;
    shape.back_ms = RUN_FAULT_MS + (plan->outage_ms == 0 ? 1800 : plan->outage_ms);
    shape.load_until_ms = plan->load_until_ms == 0 ? RUN_END_MS : plan->load_until_ms;
    shape.old_until_ms = plan->old_writer_until;
    shape.second_back_ms = INT64_MAX;
    if (plan->second_ms != 0 && !plan->second_never)
        shape.second_back_ms =
            plan->second_ms + (plan->second_outage_ms == 0 ? 900 : plan->second_outage_ms);
    build_ledgers(&shape);
    journal_start(&shape);
    journal_method(&shape);
    journal_recovery(&shape);
    journal_end(run);
    return run;
}
