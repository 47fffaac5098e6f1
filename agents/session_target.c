/* SPDX-License-Identifier: MIT */
/* Lookups in a session: where to connect as whom, and nodes by name. */
#include <string.h>

#include "agents/session.h"

struct pg_target session_target(const struct session *session, const char *address,
                                enum session_user user)
{
    const struct session_database *database = &session->database;
    struct pg_target target = {
        .host = address,
        .port = database->port,
        .database = "postgres",
        .user = database->superuser,
        .password_file = database->superuser_password_file,
        .sslmode = database->ssl_root != NULL ? "verify-ca" : NULL,
        .ssl_root = database->ssl_root,
    };

    if (user == SESSION_WORKLOAD) {
        target.user = database->workload;
        target.password_file = database->workload_password_file;
        target.database = database->workload_database;
    } else if (user == SESSION_REPLICATION && database->replication != NULL) {
        target.user = database->replication;
        target.password_file = database->replication_password_file;
        target.replication = true;
    }
    return target;
}

const struct fault_peer *session_peer(const struct session *session, const char *name)
{
    for (size_t i = 0; i < session->peer_count; i++)
        if (strcmp(session->peers[i].name, name) == 0)
            return &session->peers[i];
    return NULL;
}
