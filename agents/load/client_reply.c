/* SPDX-License-Identifier: MIT */
/* What the server answers, and tokens that are read back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/load/client.h"
#include "lib/clock.h"

static void copy_field(char *text, size_t size, const PGresult *result, int field)
{
    const char *value = PQresultErrorField(result, field);

    if (value != NULL && text[0] == '\0')
        snprintf(text, size, "%s", value);
}

/* The first error counts: what follows it is its consequence. */
static void note_result(struct client *client, PGresult *result,
                        void (*rows)(struct client *client, const PGresult *result))
{
    struct client_reply *reply = &client->reply;

    switch (PQresultStatus(result)) {
    case PGRES_TUPLES_OK:
        if (rows != NULL)
            rows(client, result);
        break;
    case PGRES_COMMAND_OK:
        snprintf(reply->tag, sizeof(reply->tag), "%s", PQcmdStatus(result));
        break;
    default:
        copy_field(reply->severity, sizeof(reply->severity), result, PG_DIAG_SEVERITY_NONLOCALIZED);
        copy_field(reply->sqlstate, sizeof(reply->sqlstate), result, PG_DIAG_SQLSTATE);
    }
}

bool reply_lost(const struct client *client)
{
    const char *severity = client->reply.severity;

    return PQstatus(client->connection) != CONNECTION_OK || strcmp(severity, "FATAL") == 0 ||
           strcmp(severity, "PANIC") == 0;
}

/*
 * Take what has come; true when the reply is whole. On a broken connection the rest is libpq's own
 * error and comes without waiting.
 */
bool reply_take(struct client *client, void (*rows)(struct client *client, const PGresult *result))
{
    bool broken = !PQconsumeInput(client->connection);

    while (broken || !PQisBusy(client->connection)) {
        PGresult *result = PQgetResult(client->connection);
        if (result == NULL)
            return true;
        note_result(client, result, rows);
        PQclear(result);
        broken = broken || PQstatus(client->connection) != CONNECTION_OK;
    }
    return false;
}

/* --- reading back ---------------------------------------------------------------------------- */

/* The newest token of a client chosen by lot, whether its commit has been answered or not. */
static const struct client *foreign(const struct client *client)
{
    struct worker *worker = client->worker;
    const struct client *other = &worker->clients[worker_random(worker) % worker->client_count];

    return other != client && other->last_seq != 0 ? other : NULL;
}

bool read_choose(struct client *client)
{
    const struct client *other = foreign(client);

    if (client->last_seq == 0 && other == NULL)
        return false;
    client->read_clients[0] = client->id;
    client->read_seqs[0] = client->last_seq;
    client->read_clients[1] = other != NULL ? other->id : 0;
    client->read_seqs[1] = other != NULL ? other->last_seq : 0;
    return true;
}

bool read_send(struct client *client)
{
    return client_send(client, statement_read(&client->worker->statement, client->read_clients,
                                              client->read_seqs));
}

void read_rows(struct client *client, const PGresult *result)
{
    for (int row = 0; row < PQntuples(result) && PQnfields(result) == 2; row++) {
        struct ledger_record record = client_about(client, LEDGER_READ);
        record.lsn = strtoull(PQgetvalue(result, row, 0), NULL, 10);
        record.seq = strtoull(PQgetvalue(result, row, 1), NULL, 10);
        record.sent_ns = client->begun_ns;
        record.done_ns = clock_boot_ns();
        worker_record(client->worker, record);
    }
}
