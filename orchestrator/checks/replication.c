/* SPDX-License-Identifier: MIT */
/*
 * Redundancy is really back. The primary's view of its standbys is a claim: each standby is asked
 * itself whether its receiver streams, on which timeline and how far, and a commit must have been
 * seen to be acknowledged by the quorum.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "orchestrator/checks/evidence.h"
#include "orchestrator/checks/walk.h"

struct replication {
    const struct record *record;
    struct arena *arena;
    const json_t *event;
    const char *primary;
    uint32_t timeline;
    uint64_t lsn; /* position that every standby must have reached */
    size_t standbys, whole;
    struct reasons bad, doubtful;
};

static const json_t *standby_of(const json_t *event, const char *node)
{
    const json_t *list = json_object_get(event, "standbys");

    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_text(json_array_get(list, i), "node", ""), node) == 0)
            return json_array_get(list, i);
    return NULL;
}

/* Where it really is: a restarted standby forgets what it received but not what it replayed. */
static bool own_position(const json_t *standby, uint64_t *ret_lsn)
{
    uint64_t received = 0;
    uint64_t replayed = 0;
    bool known = evidence_lsn(json_text(standby, "own_receive_lsn", NULL), &received);

    known = evidence_lsn(json_text(standby, "own_replay_lsn", NULL), &replayed) || known;
    *ret_lsn = received > replayed ? received : replayed;
    return known;
}

static void judge_standby(struct replication *all, const char *node)
{
    const json_t *standby = standby_of(all->event, node);
    uint64_t lsn;

    all->standbys++;
    if (standby == NULL) {
        reasons_add(&all->doubtful, "%s was not asked", node);
    } else if (!json_flag(standby, "streaming", false)) {
        reasons_add(&all->bad, "the receiver of %s does not stream", node);
    } else if ((uint32_t) json_number(standby, "timeline", 0) != all->timeline) {
        reasons_add(&all->bad, "%s follows timeline %lld, the primary is on %u", node,
                    (long long) json_number(standby, "timeline", 0), all->timeline);
    } else if (!own_position(standby, &lsn)) {
        reasons_add(&all->doubtful, "%s gave no position of its own", node);
    } else if (lsn < all->lsn) {
        reasons_add(&all->bad, "%s is %" PRIu64 " bytes behind by its own word", node,
                    all->lsn - lsn);
    } else {
        all->whole++;
    }
}

/* The primary's position: its own when recorded, else the highest that it saw flushed. */
static uint64_t primary_position(const json_t *event)
{
    const json_t *list = json_object_get(event, "standbys");
    uint64_t highest = 0;
    uint64_t lsn;

    if (evidence_lsn(json_text(event, "lsn", NULL), &lsn))
        return lsn;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (evidence_lsn(json_text(json_array_get(list, i), "flush_lsn", NULL), &lsn) &&
            lsn > highest)
            highest = lsn;
    return highest;
}

/* Standbys that a sync set asks for: "ANY 1 (a, b)", "FIRST 2 (a, b)", "2 (a, b)", "a, b". */
static int64_t wanted_by(const char *sync_set)
{
    const char *number = strpbrk(sync_set, "0123456789(,");
    char *end = NULL;

    if (sync_set[0] == '\0')
        return 0;
    if (number == NULL || strchr(number, '(') == NULL || *number == '(' || *number == ',')
        return 1;
    long long wanted = strtoll(number, &end, 10);
    return wanted > 0 && strspn(end, " (") > 0 ? wanted : 1;
}

static void judge_sync_set(struct replication *all)
{
    const json_t *list = json_object_get(all->event, "standbys");
    const char *sync_set = json_text(all->event, "sync_set", "");
    int64_t wanted = wanted_by(sync_set);
    int64_t got = 0;

    if (wanted == 0) {
        reasons_add(&all->bad, "%s waits for no standby (synchronous_standby_names is empty)",
                    all->primary);
        return;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *standby = json_array_get(list, i);
        const char *sync = json_text(standby, "sync_state", "");
        bool counts = strcmp(sync, "sync") == 0 || strcmp(sync, "quorum") == 0;
        if (counts && strcmp(json_text(standby, "state", ""), "streaming") == 0)
            got++;
    }
    if (got < wanted)
        reasons_add(&all->bad, "%" PRId64 " of %" PRId64 " synchronous standbys (%s)", got, wanted,
                    sync_set);
}

static void judge_quorum_wait(struct replication *all)
{
    const json_t *wait = record_last(all->record, "quorum-wait");

    if (wait == NULL)
        reasons_add(&all->doubtful, "no commit was watched while it waited for the quorum");
    else if (!json_flag(wait, "waited", false))
        reasons_add(&all->bad, "a commit on %s did not wait for the quorum",
                    json_text(wait, "node", "?"));
    else if (strcmp(json_text(wait, "node", ""), all->primary) != 0)
        reasons_add(&all->doubtful, "the commit that waited was on %s, the primary is %s",
                    json_text(wait, "node", "?"), all->primary);
}

/* The slot of a standby is its node name with '-' turned into '_'. */
static bool is_slot_of(const char *slot, const char *node)
{
    for (; *slot != '\0' && *node != '\0'; slot++, node++)
        if (*slot != (*node == '-' ? '_' : *node))
            return false;
    return *slot == *node;
}

static bool belongs_to_standby(const struct replication *all, const char *slot)
{
    const char *const *nodes = evidence_database_nodes(all->record, all->arena);

    for (size_t i = 0; nodes[i] != NULL; i++)
        if (strcmp(nodes[i], all->primary) != 0 && is_slot_of(slot, nodes[i]))
            return true;
    return false;
}

static void judge_slots(struct replication *all, struct check_result *result)
{
    const json_t *slots = json_object_get(all->event, "slots");

    if (!json_is_array(slots))
        evidence_unjudged(result, "replication slots: their state was not recorded");
    for (size_t i = 0; i < json_array_size(slots); i++) {
        const json_t *slot = json_array_get(slots, i);
        const char *name = json_text(slot, "name", "?");
        if (!belongs_to_standby(all, name))
            evidence_unjudged(result, "slot %s: of no standby of the topology", name);
        else if (!json_flag(slot, "active", false))
            reasons_add(&all->bad, "slot %s is not active", name);
    }
}

/* First acknowledgement on the final timeline, 0 when there is none. */
static int64_t first_ack(const struct replication *all)
{
    struct walk walk;
    int64_t first_ns = 0;

    walk_begin(&walk, all->record, all->arena);
    while (walk_next(&walk))
        if (walk.at->kind == LEDGER_OUTCOME && walk.at->class == LEDGER_ACKED &&
            walk.at->timeline == all->timeline && (first_ns == 0 || walk.at->done_ns < first_ns))
            first_ns = walk.at->done_ns;
    return first_ns;
}

/* From the first acknowledgement after a failover until a commit was seen to wait again. */
static void measure_degraded(struct replication *all, struct check_result *result)
{
    int64_t first_ns = first_ack(all);
    int64_t promoted_ns;
    int64_t seen_ns;
    int64_t error_ns;
    size_t index = 0;

    if (first_ns == 0 ||
        !evidence_instant(all->record, record_last(all->record, "ha.promote"), &promoted_ns))
        return;
    for (const json_t *wait; (wait = record_next(all->record, "quorum-wait", &index)) != NULL;) {
        if (!json_flag(wait, "waited", false) ||
            record_client_ns(all->record, json_text(wait, "node", NULL),
                             json_number(wait, "ack_ns", 0), &seen_ns, &error_ns,
                             NULL) != STATUS_OK ||
            seen_ns < promoted_ns)
            continue;
        evidence_detail(result, "degraded_ms",
                        evidence_json_ms(seen_ns > first_ns ? seen_ns - first_ns : 0));
        return;
    }
}

static void conclude(struct replication *all, struct check_result *result)
{
    if (all->bad.count > 0)
        check_conclude(result, VERDICT_FAIL, "%s", reasons_text(&all->bad));
    else if (all->doubtful.count > 0)
        check_conclude(result, VERDICT_INCONCLUSIVE, "%s", reasons_text(&all->doubtful));
    else
        check_conclude(result, VERDICT_PASS,
                       "%zu of %zu standbys stream on timeline %u by their own word, sync set %s, "
                       "a commit was seen to wait for it",
                       all->whole, all->standbys, all->timeline,
                       json_text(all->event, "sync_set", ""));
}

static enum status judge(const struct record *record, const json_t *params, struct arena *arena,
                         struct check_result *ret_result, struct error *err)
{
    struct evidence_history history = evidence_history(record, arena);
    const char *const *nodes = evidence_database_nodes(record, arena);
    struct replication all = {.record = record,
                              .arena = arena,
                              .event = record_last(record, "replication"),
                              .timeline = history.timeline,
                              .bad.arena = arena,
                              .doubtful.arena = arena};

    (void) params;
    (void) err;
    ret_result->unit = "standbys";
    ret_result->evidence = "journal.ndjson";
    if (all.event == NULL || !history.known || nodes[0] == NULL) {
        check_conclude(ret_result, VERDICT_INCONCLUSIVE,
                       "the state of replication after recovery was not recorded");
        return STATUS_OK;
    }
    all.primary = json_text(all.event, "primary", "");
    all.lsn = primary_position(all.event);
    for (size_t i = 0; nodes[i] != NULL; i++)
        if (strcmp(nodes[i], all.primary) != 0)
            judge_standby(&all, nodes[i]);
    if (strcmp(evidence_promise(record), "quorum") == 0) {
        judge_sync_set(&all);
        judge_quorum_wait(&all);
    }
    judge_slots(&all, ret_result);
    measure_degraded(&all, ret_result);
    ret_result->value = json_integer((json_int_t) all.whole);
    ret_result->bound = json_integer((json_int_t) all.standbys);
    conclude(&all, ret_result);
    return STATUS_OK;
}

static const struct param params[] = {{.name = NULL}};

const struct check check_replication = {
    .name = "replication",
    .summary = "every standby streams by its own word, and a commit waits for the quorum",
    .negative_control =
        "tests/calibration/test_calibration_state.c: a receiver that does not stream",
    .params = params,
    .judge = judge,
};
