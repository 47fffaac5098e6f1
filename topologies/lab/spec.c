/* SPDX-License-Identifier: MIT */
/* The lab file, schema ordeal/lab-1. */
#include <stddef.h>
#include <string.h>

#include "topologies/lab/lab.h"
#include "topologies/topology.h"

enum {
    LAB_NAME_MAX = 24,  /* a control socket's path has 107 characters at most */
    NODE_NAME_MAX = 12, /* an interface's name has 15 characters at most */
    FIRST_DATABASE = 1, /* host numbers in the lab's network, by role */
    FIRST_OTHER = 11,
    POWER_HOST = 254,
};

#define MIB (INT64_C(1024) * 1024)

struct sections {
    const char *schema, *name;
    const struct yaml_node *promise, *ha, *database, *nodes;
};

#define FIELD(of, key, kind, member, ...)                                                          \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(of, member), __VA_ARGS__                     \
    }

static const struct yaml_field section_fields[] = {
    FIELD(struct sections, "schema", YAML_TEXT, schema, .required = true),
    FIELD(struct sections, "name", YAML_TEXT, name, .required = true),
    FIELD(struct sections, "promise", YAML_NODE, promise),
    FIELD(struct sections, "ha", YAML_NODE, ha),
    FIELD(struct sections, "database", YAML_NODE, database, .required = true),
    FIELD(struct sections, "nodes", YAML_NODE, nodes, .required = true),
    {.type = YAML_END},
};

static const struct yaml_field promise_fields[] = {
    FIELD(struct lab_spec, "durability", YAML_CHOICE, durability, .choices = "quorum|local|none"),
    FIELD(struct lab_spec, "failover", YAML_DURATION, failover_ms, .minimum = 1,
          .maximum = 86400000),
    {.type = YAML_END},
};

static const struct yaml_field ha_fields[] = {
    FIELD(struct lab_spec, "manager", YAML_TEXT, ha.manager),
    FIELD(struct lab_spec, "fence", YAML_CHOICE, ha.fence, .choices = "control|power|none"),
    FIELD(struct lab_spec, "promote", YAML_CHOICE, ha.promote, .choices = "safe|allow-loss"),
    FIELD(struct lab_spec, "management-network", YAML_BOOLEAN, ha.management_network),
    FIELD(struct lab_spec, "detect", YAML_DURATION, ha.detect_ms, .minimum = 50, .maximum = 600000),
    {.type = YAML_END},
};

struct database_section {
    int64_t version, port;
    const struct yaml_node *settings;
};

static const struct yaml_field database_fields[] = {
    FIELD(struct database_section, "version", YAML_INTEGER, version, .required = true,
          .minimum = 13, .maximum = 18),
    FIELD(struct database_section, "port", YAML_INTEGER, port, .minimum = 1024, .maximum = 65535),
    FIELD(struct database_section, "settings", YAML_NODE, settings),
    {.type = YAML_END},
};

struct node_section {
    const char *name, *zone;
    const char *const *roles;
    int64_t memory, swap, boot_clock_offset;
    double cpu;
    const struct yaml_node *volumes;
};

static const struct yaml_field node_fields[] = {
    FIELD(struct node_section, "name", YAML_TEXT, name, .required = true),
    FIELD(struct node_section, "zone", YAML_TEXT, zone, .required = true),
    FIELD(struct node_section, "roles", YAML_TEXTS, roles, .required = true),
    FIELD(struct node_section, "memory", YAML_SIZE, memory, .minimum = 128 * MIB,
          .maximum = INT64_MAX / 2),
    FIELD(struct node_section, "swap", YAML_SIZE, swap, .minimum = 0, .maximum = INT64_MAX / 2),
    FIELD(struct node_section, "cpu", YAML_PERCENT, cpu, .minimum = 5, .maximum = 100000),
    FIELD(struct node_section, "boot-clock-offset", YAML_DURATION, boot_clock_offset, .minimum = 0,
          .maximum = INT64_C(31536000000)),
    FIELD(struct node_section, "volumes", YAML_NODE, volumes),
    {.type = YAML_END},
};

/* mkfs.xfs makes nothing smaller than 300 MB. */
static const struct yaml_field volume_fields[] = {
    FIELD(struct lab_node, "system", YAML_SIZE, system_bytes, .required = true,
          .minimum = 320 * MIB, .maximum = INT64_MAX / 2),
    FIELD(struct lab_node, "data", YAML_SIZE, data_bytes, .minimum = 320 * MIB,
          .maximum = INT64_MAX / 2),
    {.type = YAML_END},
};

static bool good_name(const char *name, size_t maximum)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return length > 0 && length <= maximum && name[length] == '\0' && name[0] != '-';
}

enum status lab_check_name(const char *name, struct error *err)
{
    if (good_name(name, LAB_NAME_MAX))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "lab name \"%s\" must have 1 to %d of the characters a-z, 0-9 and -, and not "
                     "begin with -",
                     name, LAB_NAME_MAX);
}

/* ---- database ---- */

static void read_settings(struct arena *arena, const struct yaml_node *mapping,
                          struct lab_spec *spec, struct yaml_errors *errors)
{
    if (mapping->kind != YAML_MAPPING) {
        yaml_complain(errors, mapping, "settings must be a mapping of name to value");
        return;
    }
    spec->setting_names = arena_array(arena, mapping->count + 1, sizeof(char *));
    spec->setting_values = arena_array(arena, mapping->count + 1, sizeof(char *));
    for (size_t i = 0; i < mapping->count; i++) {
        const char *name = mapping->keys[i]->text;

        if (name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.")] != '\0')
            yaml_complain(errors, mapping->keys[i], "\"%s\" is not a setting of PostgreSQL", name);
        if (mapping->items[i]->kind != YAML_SCALAR || strchr(mapping->items[i]->text, '\n') != NULL)
            yaml_complain(errors, mapping->items[i], "%s must be one value", name);
        spec->setting_names[i] = name;
        spec->setting_values[i] = mapping->items[i]->text;
    }
    spec->setting_count = mapping->count;
}

static void read_database(struct arena *arena, const struct yaml_node *section,
                          struct lab_spec *spec, struct yaml_errors *errors)
{
    struct database_section database = {.version = 15, .port = 5432};

    yaml_read(section, database_fields, &database, errors);
    spec->version = database.version;
    spec->port = database.port;
    if (database.settings != NULL)
        read_settings(arena, database.settings, spec, errors);
}

/* ---- nodes ---- */

static const struct {
    const char *name;
    enum topology_role role;
} roles[] = {{"database", ROLE_DATABASE}, {"client", ROLE_CLIENT}, {"power", ROLE_POWER}};

static unsigned read_roles(const struct yaml_node *at, const char *const *names,
                           struct yaml_errors *errors)
{
    unsigned found = 0;

    for (size_t i = 0; names != NULL && names[i] != NULL; i++) {
        unsigned role = 0;

        for (size_t j = 0; j < sizeof(roles) / sizeof(roles[0]); j++)
            if (strcmp(names[i], roles[j].name) == 0)
                role = roles[j].role;
        if (role == 0)
            yaml_complain(errors, at, "unknown role %s, a lab has: database, client, power",
                          names[i]);
        found |= role;
    }
    if ((found & ROLE_POWER) != 0 && found != ROLE_POWER)
        yaml_complain(errors, at, "the power node is outside of the nodes: it has no other role");
    return found;
}

static void check_volumes(const struct yaml_node *at, const struct lab_node *node,
                          struct yaml_errors *errors)
{
    if (node->roles == ROLE_POWER) {
        if (node->system_bytes > 0 || node->memory_bytes > 0 || node->swap_bytes >= 0 ||
            node->cpu_percent > 0 || node->boot_clock_offset_ms > 0)
            yaml_complain(errors, at,
                          "the power node has no volumes, no limits and the host's clocks: it is "
                          "the lab's own supervisor");
        return;
    }
    /* The agent is outside of every limit, and a client node runs nothing else. */
    if ((node->roles & ROLE_DATABASE) == 0 &&
        (node->memory_bytes > 0 || node->swap_bytes >= 0 || node->cpu_percent > 0))
        yaml_complain(errors, at,
                      "node %s is no database node: memory, swap and cpu limit PostgreSQL only",
                      node->name);
    if (node->system_bytes == 0)
        yaml_complain(errors, at, "node %s needs volumes: {system: SIZE}", node->name);
    if ((node->roles & ROLE_DATABASE) != 0 && node->data_bytes == 0)
        yaml_complain(errors, at, "node %s needs volumes: {system: SIZE, data: SIZE}", node->name);
}

static void read_node(const struct yaml_node *at, struct lab_node *node, struct yaml_errors *errors)
{
    struct node_section section = {.name = "", .zone = "", .swap = -1};

    yaml_read(at, node_fields, &section, errors);
    if (!good_name(section.name, NODE_NAME_MAX) || strcmp(section.name, "switch") == 0)
        yaml_complain(errors, at,
                      "node name \"%s\" must have 1 to %d of the characters a-z, 0-9 and -, and "
                      "not be \"switch\"",
                      section.name, NODE_NAME_MAX);
    if (!good_name(section.zone, LAB_NAME_MAX))
        yaml_complain(errors, at, "zone \"%s\" must be made of a-z, 0-9 and -", section.zone);
    *node = (struct lab_node){.name = section.name,
                              .zone = section.zone,
                              .roles = read_roles(at, section.roles, errors),
                              .memory_bytes = section.memory,
                              .swap_bytes = section.swap,
                              .cpu_percent = (int64_t) section.cpu,
                              .boot_clock_offset_ms = section.boot_clock_offset};
    if (section.volumes != NULL)
        yaml_read(section.volumes, volume_fields, node, errors);
    check_volumes(at, node, errors);
}

/* Databases from .1, clients from .11, the power node at .254: the same in every lab. */
static void give_address(struct arena *arena, struct lab_node *node, int *databases, int *others)
{
    int host = POWER_HOST;

    if ((node->roles & ROLE_DATABASE) != 0)
        host = FIRST_DATABASE + (*databases)++;
    else if ((node->roles & ROLE_POWER) == 0)
        host = FIRST_OTHER + (*others)++;
    node->address = arena_printf(arena, "10.77.0.%d", host);
}

static void check_whole(const struct yaml_node *list, const struct lab_spec *spec,
                        struct yaml_errors *errors)
{
    int databases = 0, power = 0;

    for (size_t i = 0; i < spec->node_count; i++) {
        databases += (spec->nodes[i].roles & ROLE_DATABASE) != 0;
        power += (spec->nodes[i].roles & ROLE_POWER) != 0;
        for (size_t j = 0; j < i; j++)
            if (strcmp(spec->nodes[i].name, spec->nodes[j].name) == 0)
                yaml_complain(errors, list->items[i], "node %s is there already",
                              spec->nodes[i].name);
    }
    if (databases < 2 || databases > FIRST_OTHER - FIRST_DATABASE)
        yaml_complain(errors, list, "a lab has 2 to %d database nodes, not %d",
                      FIRST_OTHER - FIRST_DATABASE, databases);
    if (power != 1)
        yaml_complain(errors, list, "a lab has one power node, not %d", power);
}

static void read_nodes(struct arena *arena, const struct yaml_node *list, struct lab_spec *spec,
                       struct yaml_errors *errors)
{
    int databases = 0, others = 0;

    if (list->kind != YAML_SEQUENCE || list->count == 0 || list->count > LAB_NODES_MAX) {
        yaml_complain(errors, list, "nodes must be a list of 3 to %d nodes", LAB_NODES_MAX);
        return;
    }
    spec->nodes = arena_array(arena, list->count, sizeof(*spec->nodes));
    spec->node_count = list->count;
    for (size_t i = 0; i < list->count; i++) {
        read_node(list->items[i], &spec->nodes[i], errors);
        give_address(arena, &spec->nodes[i], &databases, &others);
    }
    check_whole(list, spec, errors);
}

/* ---- the whole ---- */

static void read_root(struct arena *arena, const struct yaml_node *root, struct lab_spec *spec,
                      struct yaml_errors *errors)
{
    struct sections sections = {0};

    yaml_read(root, section_fields, &sections, errors);
    if (sections.schema != NULL && strcmp(sections.schema, "ordeal/lab-1") != 0)
        yaml_complain(errors, yaml_get(root, "schema"),
                      "schema is %s, but a lab file has ordeal/lab-1", sections.schema);
    if (sections.name != NULL && !good_name(sections.name, LAB_NAME_MAX))
        yaml_complain(errors, yaml_get(root, "name"),
                      "name must have 1 to %d of the characters a-z, 0-9 and -", LAB_NAME_MAX);
    spec->name = sections.name;
    if (sections.promise != NULL)
        yaml_read(sections.promise, promise_fields, spec, errors);
    if (sections.ha != NULL)
        yaml_read(sections.ha, ha_fields, spec, errors);
    if (sections.database != NULL)
        read_database(arena, sections.database, spec, errors);
    if (sections.nodes != NULL)
        read_nodes(arena, sections.nodes, spec, errors);
}

enum status lab_spec_load(struct arena *arena, const char *path, const char *name,
                          struct lab_spec **ret_spec, struct yaml_errors *errors, struct error *err)
{
    struct yaml_node *root = NULL;
    struct lab_spec *spec = arena_alloc(arena, sizeof(*spec));
    enum status status = yaml_load(arena, path, &root, errors, err);

    if (status != STATUS_OK)
        return status;
    *spec = (struct lab_spec){.file = arena_strdup(arena, path),
                              .durability = "quorum",
                              .ha = {.manager = "manual",
                                     .fence = "control",
                                     .promote = "safe",
                                     .management_network = true,
                                     .detect_ms = 1000}};
    read_root(arena, root, spec, errors);
    if (errors->count > 0)
        return error_set(err, STATUS_INVALID, "%s has %zu %s", path, errors->count,
                         errors->count == 1 ? "error" : "errors");
    if (name != NULL) {
        status = lab_check_name(name, err);
        spec->name = arena_strdup(arena, name);
    }
    if (status == STATUS_OK)
        *ret_spec = spec;
    return status;
}

const struct lab_node *lab_spec_node(const struct lab_spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->node_count; i++)
        if (strcmp(spec->nodes[i].name, name) == 0)
            return &spec->nodes[i];
    return NULL;
}

const char *lab_bin(struct arena *arena, const struct lab_spec *spec)
{
    return arena_printf(arena, "/usr/lib/postgresql/%d/bin", (int) spec->version);
}

const char *lab_data(struct arena *arena, const struct lab_spec *spec)
{
    return arena_printf(arena, NODE_DATA "/%d/main", (int) spec->version);
}

const char *lab_cgroup(struct arena *arena, const char *lab, const char *node, const char *what)
{
    return arena_printf(arena, "ordeal-%s%s%s%s%s", lab, node != NULL ? "/" : "",
                        node != NULL ? node : "", what != NULL ? "/" : "",
                        what != NULL ? what : "");
}
