/* SPDX-License-Identifier: MIT */
/* What a client does from one transaction to the next. */
#include "agents/load/client.h"

#include <stdio.h>
#include <string.h>

#include "agents/load/warm.h"
#include "lib/clock.h"

enum { TOKEN_RETRY_MS = 50 }; /* in case an event of the flusher is missed */

void client_arm(struct client *client, int64_t at_ns)
{
    timer_arm(&client->worker->timers, &client->timer, at_ns);
}

struct ledger_record client_about(const struct client *client, enum ledger_kind kind)
{
    return (struct ledger_record){.kind = (uint8_t) kind,
                                  .flags = (uint8_t) client->group->role,
                                  .client = client->id,
                                  .node = client->node,
                                  .timeline = client->timeline};
}

/* --- tokens ---------------------------------------------------------------------------------- */

void client_reserve(struct client *client)
{
    struct worker *worker = client->worker;
    struct ledger_record record = client_about(client, LEDGER_RESERVE);
    uint64_t last = client->reserved + RESERVE_TOKENS;

    record.seq = client->reserved + 1;
    record.lsn = last;
    record.done_ns = clock_boot_ns();
    if (!worker_record(worker, record))
        return;
    client->reserving = last;
    client->reserving_at = ledger_writer_position(worker->ledger);
    ledger_writer_ask(worker->ledger);
}

static void take_reserved(struct client *client)
{
    if (client->reserving != 0 &&
        ledger_writer_durable(client->worker->ledger, client->reserving_at)) {
        client->reserved = client->reserving;
        client->reserving = 0;
    }
}

/* A token may be used when its reservation is on the disk. The next block is asked for in time. */
static bool have_token(struct client *client)
{
    take_reserved(client);
    if (client->reserving == 0 && client->next_seq + RESERVE_TOKENS / 2 > client->reserved)
        client_reserve(client);
    return client->next_seq <= client->reserved;
}

/* --- missed starts --------------------------------------------------------------------------- */

static void record_missed(struct client *client, uint64_t count, int64_t now_ns)
{
    struct ledger_record record = client_about(client, LEDGER_MISSED);

    if (count == 0)
        return;
    record.seq = count;
    record.done_ns = now_ns;
    worker_record(client->worker, record);
}

/* --- the end of a transaction ---------------------------------------------------------------- */

/* The live counters show what goes through the endpoint. */
static void count_outcome(struct client *client, enum ledger_class class, int64_t now_ns)
{
    struct load_counters *counters = client->worker->counters;
    int64_t latency_ns = now_ns - client->scheduled_ns;

    if (client->group->role == LEDGER_DIRECT)
        return;
    if (class != LEDGER_ACKED) {
        atomic_fetch_add_explicit(&counters->errors, 1, memory_order_relaxed);
        return;
    }
    atomic_fetch_add_explicit(&counters->acked, 1, memory_order_relaxed);
    histogram_record(&counters->latency, latency_ns > 0 ? (uint64_t) latency_ns / 1000 : 0);
    atomic_store_explicit(&counters->writer,
                          (uint64_t) (client->node + 1U) << 32 | client->timeline,
                          memory_order_relaxed);
    atomic_store_explicit(&counters->last_ack_ns, now_ns, memory_order_relaxed);
}

static enum ledger_phase phase_of(const struct client *client)
{
    switch (client->state) {
    case CLIENT_COMMITTING:
        return LEDGER_COMMITTING;
    case CLIENT_BEGINNING:
        return LEDGER_IN_TRANSACTION;
    default:
        return LEDGER_CONNECTING;
    }
}

static const char *or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

static void record_outcome(struct client *client, bool lost)
{
    const struct client_reply *reply = &client->reply;
    struct ledger_evidence evidence = {.phase = phase_of(client),
                                       .connection_lost = lost,
                                       .tag = or_null(reply->tag),
                                       .severity = or_null(reply->severity),
                                       .sqlstate = or_null(reply->sqlstate),
                                       .sync_wait_notice = reply->sync_wait_notice,
                                       .warnings_hidden = client->warnings_hidden};
    struct ledger_record record = client_about(client, LEDGER_OUTCOME);

    record.class = (uint8_t) ledger_classify(&evidence);
    record.phase = (uint8_t) evidence.phase;
    record.seq = client->seq;
    record.scheduled_ns = client->scheduled_ns;
    record.sent_ns = evidence.phase == LEDGER_COMMITTING ? client->commit_ns : client->begun_ns;
    record.done_ns = clock_boot_ns();
    record.lsn = client->lsn;
    memcpy(record.sqlstate, reply->sqlstate, sizeof(record.sqlstate));
    worker_record(client->worker, record);
    count_outcome(client, (enum ledger_class) record.class, record.done_ns);
    client->has_start = false;
    if (client->group->pace == LOAD_WARM)
        warm_outcome(client->worker->warm, client, (enum ledger_class) record.class);
}

/* --- between transactions -------------------------------------------------------------------- */

static void begin(struct client *client);

static void stop(struct client *client)
{
    int64_t now = clock_boot_ns();
    uint64_t missed = schedule_drop_due(&client->schedule, now);

    record_missed(client, missed + (client->has_start ? 1 : 0), now);
    client->has_start = false;
    session_close(client);
    timer_disarm(&client->worker->timers, &client->timer);
    client->state = CLIENT_STOPPED;
    client->worker->running--;
}

/* True when there is a start to serve; else the client waits for the next one. */
static bool have_start(struct client *client)
{
    int64_t now = clock_boot_ns();

    if (client->group->pace == LOAD_WARM) {
        client->has_start = client->has_start ||
                            warm_take_refused(client->worker->warm, client, &client->scheduled_ns);
        return client->has_start;
    }
    if (!client->has_start && schedule_due(&client->schedule, now)) {
        client->scheduled_ns = schedule_take(&client->schedule, now);
        client->has_start = true;
    }
    if (!client->has_start)
        client_arm(client, client->schedule.next_ns);
    return client->has_start;
}

static void drop_late(struct client *client)
{
    int64_t now = clock_boot_ns();

    record_missed(client, schedule_drop_late(&client->schedule, now), now);
}

/* The connection is open and nothing is under way. */
static void rest(struct client *client)
{
    client->state = CLIENT_IDLE;
    if (client->worker->stopping) {
        stop(client);
        return;
    }
    if (client->group->pace == LOAD_WARM) {
        warm_idle(client->worker->warm);
        return;
    }
    drop_late(client);
    if (client->worker->read_due && client_read(client))
        return;
    if (!have_start(client))
        return;
    if (have_token(client))
        begin(client);
    else
        client_arm(client, deadline_in_ms(TOKEN_RETRY_MS));
}

/* There is no connection: a kept one is made at once, another one when a start is due. */
static void reconnect(struct client *client)
{
    client->state = CLIENT_WAITING;
    if (client->worker->stopping) {
        stop(client);
        return;
    }
    drop_late(client);
    if (!client->group->one_shot || have_start(client))
        session_open(client);
}

/* Half to all of a pause that doubles. */
static int64_t backoff_ns(struct client *client)
{
    bool spare = client->group->pace == LOAD_WARM && !warm_is_wanted(client->worker->warm, client);
    int64_t limit_ms = spare ? BACKOFF_SPARE_MS : BACKOFF_MAX_MS;
    int64_t pause_ms = client->failures < 8 ? BACKOFF_MIN_MS << client->failures : limit_ms;

    if (pause_ms > limit_ms)
        pause_ms = limit_ms;
    int64_t pause_ns = pause_ms * NS_PER_MS;
    uint64_t spread = worker_random(client->worker) % (uint64_t) (pause_ns / 2);
    return pause_ns / 2 + (int64_t) spread;
}

static void back_off(struct client *client)
{
    client->state = CLIENT_WAITING;
    if (client->worker->stopping) {
        stop(client);
        return;
    }
    client_arm(client, clock_boot_ns() + backoff_ns(client));
    client->failures++;
}

void client_opened(struct client *client)
{
    rest(client);
}

/* A start that found no host is an outcome: the application saw an error. */
static void found_no_host(struct client *client, int64_t looked_ns)
{
    if (!have_token(client)) /* the start waits */
        return;
    client->seq = client->next_seq++;
    client->begun_ns = looked_ns;
    client->lsn = 0;
    record_outcome(client, true);
}

void client_refused(struct client *client, const char *sqlstate)
{
    client->state = CLIENT_WAITING;
    snprintf(client->reply.sqlstate, sizeof(client->reply.sqlstate), "%s", sqlstate);
    drop_late(client);
    if (!client->worker->stopping && have_start(client))
        found_no_host(client, client->attempt_ns);
    back_off(client);
}

/* --- a transaction --------------------------------------------------------------------------- */

static void in_flight(struct client *client, int change)
{
    atomic_fetch_add_explicit(&client->worker->counters->in_flight, (uint32_t) change,
                              memory_order_relaxed);
}

/* The outcome is known, or known to be unknown. */
static void conclude(struct client *client, bool lost)
{
    record_outcome(client, lost);
    in_flight(client, -1);
    if (!lost && !client->group->one_shot) {
        rest(client);
        return;
    }
    session_close(client);
    if (lost)
        back_off(client);
    else
        reconnect(client);
}

static void begin(struct client *client)
{
    const struct load_group *group = client->group;
    bool failed_block = PQtransactionStatus(client->connection) != PQTRANS_IDLE;

    client->seq = client->next_seq++;
    client->lsn = 0;
    client->begun_ns = clock_boot_ns();
    client->state = CLIENT_BEGINNING;
    in_flight(client, 1);
    client_arm(client, client->begun_ns + STATEMENT_MS * NS_PER_MS);
    if (!client_send(client, statement_insert(&client->worker->statement, failed_block, client->id,
                                              client->seq, group->rows, group->payload)))
        conclude(client, true);
}

static void inserted_row(struct client *client, const PGresult *result)
{
    int last = PQntuples(result) - 1;

    if (last < 0 || PQnfields(result) != 4)
        return;
    client->lsn = pg_lsn_parse(PQgetvalue(result, last, 0));
    session_in_force(client, PQgetvalue(result, last, 2), PQgetvalue(result, last, 3),
                     statement_timeline(PQgetvalue(result, last, 1)));
}

/* The intent is in the ledger before a byte of the COMMIT leaves. */
static void begun(struct client *client, bool lost)
{
    struct ledger_record intent = client_about(client, LEDGER_INTENT);

    intent.seq = client->seq;
    intent.scheduled_ns = client->scheduled_ns;
    intent.sent_ns = client->begun_ns;
    intent.done_ns = clock_boot_ns();
    intent.lsn = client->lsn;
    if (lost || client->reply.severity[0] != '\0') {
        conclude(client, lost);
        return;
    }
    if (!worker_record(client->worker, intent)) {
        conclude(client, true);
        return;
    }
    client->state = CLIENT_COMMITTING;
    client->last_seq = client->seq;
    client->commit_ns = clock_boot_ns();
    client_arm(client, client->commit_ns + client->worker->plan->commit_timeout_ms * NS_PER_MS);
    if (!client_send(client, "COMMIT"))
        conclude(client, true);
}

/* --- reading back ---------------------------------------------------------------------------- */

bool client_read(struct client *client)
{
    if (client->state != CLIENT_IDLE || client->group->role != LEDGER_WORKLOAD ||
        PQtransactionStatus(client->connection) != PQTRANS_IDLE || !read_choose(client))
        return false;
    client->worker->read_due = false;
    client->state = CLIENT_READING;
    client->begun_ns = clock_boot_ns();
    client_arm(client, client->begun_ns + STATEMENT_MS * NS_PER_MS);
    if (!read_send(client)) {
        session_close(client);
        back_off(client);
    }
    return true;
}

static void have_read(struct client *client, bool lost)
{
    if (!lost) {
        rest(client);
        return;
    }
    session_close(client);
    back_off(client);
}

/* --- events ---------------------------------------------------------------------------------- */

/* Nothing was asked: a server that is ending, or the end of the connection. */
static void idle_ready(struct client *client)
{
    if (PQconsumeInput(client->connection)) {
        PQisBusy(client->connection); /* gives notices to their receiver */
        return;
    }
    session_close(client);
    back_off(client);
}

static void ticked(struct client *client)
{
    warm_tick(client->worker->warm);
}

static void attempt_expired(struct client *client)
{
    session_host_failed(client, "");
}

static void transaction_expired(struct client *client)
{
    conclude(client, true);
}

static void read_expired(struct client *client)
{
    have_read(client, true);
}

static const struct {
    void (*ready)(struct client *client); /* the socket; NULL: a reply is expected */
    void (*rows)(struct client *client, const PGresult *result);
    void (*replied)(struct client *client, bool lost);
    void (*expired)(struct client *client); /* the timer */
} states[CLIENT_STATES] = {
    [CLIENT_TICKING] = {.expired = ticked},
    [CLIENT_WAITING] = {.expired = reconnect},
    [CLIENT_CONNECTING] = {.ready = session_connecting, .expired = attempt_expired},
    [CLIENT_SETTING_UP] = {.rows = session_set_up_row,
                           .replied = session_set_up,
                           .expired = attempt_expired},
    [CLIENT_IDLE] = {.ready = idle_ready, .expired = rest},
    [CLIENT_BEGINNING] = {.rows = inserted_row, .replied = begun, .expired = transaction_expired},
    [CLIENT_COMMITTING] = {.replied = conclude, .expired = transaction_expired},
    [CLIENT_READING] = {.rows = read_rows, .replied = have_read, .expired = read_expired},
};

void client_ready(struct client *client)
{
    if (states[client->state].ready != NULL) {
        states[client->state].ready(client);
        return;
    }
    if (states[client->state].replied == NULL)
        return;
    client_flush(client);
    if (reply_take(client, states[client->state].rows))
        states[client->state].replied(client, reply_lost(client));
}

static void on_timer(void *argument)
{
    struct client *client = argument;

    if (states[client->state].expired != NULL)
        states[client->state].expired(client);
}

/* --- for the probe on warm connections ------------------------------------------------------- */

static bool is_free(struct client *client)
{
    return client->state == CLIENT_IDLE && !client->has_start && have_token(client);
}

static void take(struct client *client, int64_t scheduled_ns)
{
    client->scheduled_ns = scheduled_ns;
    client->has_start = true;
    begin(client);
}

static void missed(struct client *client, uint64_t count)
{
    record_missed(client, count, clock_boot_ns());
}

const struct warm_hands client_hands = {.is_free = is_free,
                                        .take = take,
                                        .found_no_host = found_no_host,
                                        .missed = missed,
                                        .arm = client_arm};

/* --- orders ---------------------------------------------------------------------------------- */

void client_init(struct client *client, struct worker *worker, const struct load_group *group,
                 size_t index, uint32_t id)
{
    *client = (struct client){.worker = worker,
                              .group = group,
                              .id = id,
                              .index = index,
                              .fd = -1,
                              .next_seq = 1,
                              .node = group->node >= 0 ? (uint16_t) group->node
                                                       : worker->plan->endpoint[0]};
    client->timer = (struct timer){.call = on_timer, .argument = client};
}

void client_start(struct client *client, int64_t begin_ns)
{
    const struct load_group *group = client->group;
    size_t place = group->offset + (client->id - group->first_client);

    schedule_init(&client->schedule, begin_ns, group->rate, group->of, place);
    if (group->pace == LOAD_TICK) {
        client->state = CLIENT_TICKING;
        client_arm(client, begin_ns);
    } else {
        reconnect(client);
    }
}

void client_flushed(struct client *client)
{
    take_reserved(client);
    if (client->state == CLIENT_IDLE && client->has_start)
        rest(client);
}

/* The endpoint has moved: nobody waits any longer for a host that it has left. */
void client_rerouted(struct client *client)
{
    const struct load_group *group = client->group;

    if (client->state == CLIENT_TICKING)
        warm_rerouted(client->worker->warm);
    if (group->node >= 0 &&
        !(group->pace == LOAD_WARM && warm_is_wanted(client->worker->warm, client)))
        return;
    if (client->state == CLIENT_WAITING) {
        client->failures = 0;
        reconnect(client);
    } else if (client->state == CLIENT_CONNECTING || client->state == CLIENT_SETTING_UP) {
        client->failures = 0;
        session_reroute(client);
    }
}

void client_stop(struct client *client)
{
    if (client->state <= CLIENT_IDLE)
        stop(client);
}

void client_abandon(struct client *client)
{
    if (client->state == CLIENT_BEGINNING || client->state == CLIENT_COMMITTING)
        conclude(client, true);
    else if (client->state == CLIENT_READING)
        have_read(client, true);
}
