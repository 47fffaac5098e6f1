/* SPDX-License-Identifier: MIT */
/*
 * Looking nodes up, and the topology as an agent gets it (session.open in docs/formats.md).
 */
#include <string.h>

#include "lib/rpc.h"
#include "topologies/topology.h"

const struct topology_node *topology_node(const struct topology *topology, const char *name)
{
    for (size_t i = 0; i < topology->node_count; i++)
        if (strcmp(topology->nodes[i].name, name) == 0)
            return &topology->nodes[i];
    return NULL;
}

const struct topology_node *topology_first(const struct topology *topology, enum topology_role role)
{
    for (size_t i = 0; i < topology->node_count; i++)
        if ((topology->nodes[i].roles & (unsigned) role) != 0)
            return &topology->nodes[i];
    return NULL;
}

bool topology_has_power(const struct topology *topology)
{
    return topology_first(topology, ROLE_POWER) != NULL && topology->power.on != NULL;
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? json_string(text) : json_null();
}

static json_t *argv_or_null(const char *const *argv)
{
    if (argv == NULL)
        return json_null();
    json_t *array = json_array();
    for (; *argv != NULL; argv++)
        json_array_append_new(array, json_string(*argv));
    return array;
}

static json_t *node_json(const struct topology_node *node)
{
    json_t *volumes = json_object();

    for (size_t i = 0; i < node->volume_count; i++)
        json_object_set_new(volumes, node->volumes[i].name, json_string(node->volumes[i].path));
    return json_pack("{s:s, s:s, s:b, s:o, s:o}", "name", node->name, "address", node->address,
                     "serves_database", (node->roles & ROLE_DATABASE) != 0, "cgroup",
                     text_or_null(node->cgroup), "volumes", volumes);
}

static json_t *peers_json(const struct topology *topology)
{
    json_t *peers = json_array();

    for (size_t i = 0; i < topology->node_count; i++)
        json_array_append_new(peers, json_pack("{s:s, s:s}", "name", topology->nodes[i].name,
                                               "address", topology->nodes[i].address));
    return peers;
}

static json_t *credential_json(const struct topology_credential *credential)
{
    return json_pack("{s:s, s:o, s:s}", "user", credential->user, "password_file",
                     text_or_null(credential->password_file), "database",
                     credential->database != NULL ? credential->database : "postgres");
}

static json_t *replication_json(const struct topology *topology)
{
    if (topology->database.replication_user == NULL)
        return json_null();
    return json_pack("{s:s, s:o}", "user", topology->database.replication_user, "password_file",
                     text_or_null(topology->database.replication_password_file));
}

static json_t *database_json(const struct topology *topology)
{
    if (topology->database.data == NULL)
        return json_null();
    return json_pack(
        "{s:I, s:I, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "version",
        (json_int_t) topology->database.version, "port", (json_int_t) topology->database.port,
        "data", topology->database.data, "bin", topology->database.bin, "start",
        argv_or_null(topology->database.start), "stop", argv_or_null(topology->database.stop),
        "superuser", credential_json(&topology->database.superuser), "workload",
        credential_json(&topology->database.workload), "replication", replication_json(topology),
        "ssl_root", text_or_null(topology->database.ssl_root));
}

/* Only the power agent is told how to take nodes away. */
static json_t *power_json(const struct topology *topology, const struct topology_node *node)
{
    if ((node->roles & ROLE_POWER) == 0 || topology->power.off == NULL)
        return json_null();
    return json_pack("{s:o, s:o, s:o}", "off", argv_or_null(topology->power.off), "cut",
                     argv_or_null(topology->power.cut), "on", argv_or_null(topology->power.on));
}

static json_t *endpoint_json(const struct topology *topology)
{
    json_t *hosts = json_array();

    for (size_t i = 0; i < topology->endpoint.count; i++)
        json_array_append_new(hosts, json_string(topology->endpoint.hosts[i]->name));
    return json_pack("{s:o, s:b}", "hosts", hosts, "managed", topology->endpoint.managed);
}

json_t *topology_session(const struct topology *topology, const struct topology_node *node,
                         const char *run, int64_t lease_ms)
{
    return json_pack("{s:i, s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "protocol", RPC_PROTOCOL, "run",
                     run, "lease_ms", (json_int_t) lease_ms, "node", node_json(node), "peers",
                     peers_json(topology), "database", database_json(topology), "power",
                     power_json(topology, node), "endpoint", endpoint_json(topology));
}
