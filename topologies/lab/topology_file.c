/* SPDX-License-Identifier: MIT */
#include "topologies/lab/topology_file.h"

#include <string.h>

#include "lib/owned.h"
#include "lib/units.h"
#include "topologies/topology.h"

/* A YAML string in double quotes; paths may hold anything. */
static void put_string(struct buffer *text, const char *value)
{
    buffer_puts(text, "\"");
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\')
            buffer_puts(text, "\\");
        buffer_append(text, value, 1);
    }
    buffer_puts(text, "\"");
}

static void put_path(struct buffer *text, const char *key, const char *lab, const char *below)
{
    buffer_printf(text, "  %s: " LAB_ROOT "/%s/%s\n", key, lab, below);
}

static void put_promise(struct buffer *text, const struct lab_spec *spec)
{
    char duration[32];

    buffer_printf(text, "promise: { durability: %s", spec->durability);
    if (spec->failover_ms > 0)
        buffer_printf(text, ", failover: %s",
                      units_duration_text(spec->failover_ms, duration, sizeof(duration)));
    buffer_puts(text, " }\n");
    buffer_printf(text,
                  "ha: { manager: %s, fence: %s, management-network: %s, detect: %s, "
                  "promote: %s }\n",
                  spec->ha.manager, spec->ha.fence, spec->ha.management_network ? "yes" : "no",
                  units_duration_text(spec->ha.detect_ms, duration, sizeof(duration)),
                  spec->ha.promote);
}

static void put_control(struct buffer *text, const struct lab_spec *spec, pid_t supervisor)
{
    buffer_printf(text, "control:\n  network-namespace: /proc/%d/ns/net\n", (int) supervisor);
    put_path(text, "ca", spec->name, "pki/ca.crt");
    put_path(text, "certificate", spec->name, "pki/orchestrator.crt");
    put_path(text, "key", spec->name, "pki/orchestrator.key");
}

static void put_database(struct buffer *text, const struct lab_spec *spec)
{
    OWNED_ARENA struct arena *arena = arena_new();

    buffer_printf(
        text,
        "database:\n"
        "  version: %d\n"
        "  port: %d\n"
        "  data: %s\n"
        "  bin: %s\n"
        "  superuser: { user: " USER_ADMIN ", password-file: " NODE_SECRETS "/admin.pass }\n"
        "  workload: { user: " USER_LOAD ", password-file: " NODE_SECRETS
        "/load.pass, database: " DATABASE_LOAD " }\n"
        "  replication: { user: " USER_REPLICATION ", password-file: " NODE_SECRETS
        "/replication.pass }\n"
        "  ssl-root: " NODE_PKI "/ca.crt\n",
        (int) spec->version, (int) spec->port, lab_data(arena, spec), lab_bin(arena, spec));
}

static void put_endpoint(struct buffer *text, const struct lab_spec *spec)
{
    const char *separator = "";

    buffer_puts(text, "endpoint: { hosts: [");
    for (size_t i = 0; i < spec->node_count; i++) {
        if ((spec->nodes[i].roles & ROLE_DATABASE) == 0)
            continue;
        buffer_printf(text, "%s%s", separator, spec->nodes[i].name);
        separator = ", ";
    }
    buffer_printf(text, "], routing: %s }\n",
                  strcmp(spec->ha.manager, "manual") == 0 ? "manager" : "hosts");
}

static void put_power(struct buffer *text, const struct lab_spec *spec, const char *program)
{
    static const char *const words[] = {"off", "cut", "on"};

    buffer_puts(text, "power:\n");
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        /* "off" and "on" alone are booleans to some readers of YAML. */
        buffer_printf(text, "  %s: [", words[i]);
        put_string(text, program);
        buffer_printf(text, ", lab, power, \"%s\", \"{node}\", --name, %s]\n", words[i],
                      spec->name);
    }
}

static void put_roles(struct buffer *text, unsigned roles)
{
    static const struct {
        unsigned role;
        const char *name;
    } names[] = {{ROLE_DATABASE, "database"}, {ROLE_CLIENT, "client"}, {ROLE_POWER, "power"}};
    const char *separator = "";

    buffer_puts(text, "roles: [");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((roles & names[i].role) != 0) {
            buffer_printf(text, "%s%s", separator, names[i].name);
            separator = ", ";
        }
    buffer_puts(text, "]");
}

static void put_node(struct buffer *text, const struct lab_spec *spec, const struct lab_node *node)
{
    OWNED_ARENA struct arena *arena = arena_new();

    buffer_printf(text, "  - { name: %s, address: %s, agent-port: %d, zone: %s, ", node->name,
                  node->address, LAB_AGENT_PORT, node->zone);
    put_roles(text, node->roles);
    if (node->data_bytes > 0)
        buffer_printf(text, ",\n      cgroup: %s, volumes: { data: " NODE_DATA " }",
                      lab_cgroup(arena, spec->name, node->name, "postgres"));
    buffer_puts(text, " }\n");
}

void topology_file_text(const struct lab_spec *spec, const struct lab_programs *programs,
                        pid_t supervisor, struct buffer *text)
{
    buffer_printf(text,
                  "# Written by `ordeal lab up`; gone with `ordeal lab down`.\n"
                  "schema: ordeal/topology-1\n"
                  "name: %s\n"
                  "kind: lab\n",
                  spec->name);
    put_promise(text, spec);
    put_control(text, spec, supervisor);
    put_database(text, spec);
    put_endpoint(text, spec);
    put_power(text, spec, programs->ordeal);
    buffer_puts(text, "nodes:\n");
    for (size_t i = 0; i < spec->node_count; i++)
        put_node(text, spec, &spec->nodes[i]);
}
