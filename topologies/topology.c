/* SPDX-License-Identifier: MIT */
#include "topologies/topology.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>

#include "topologies/ha/ha.h"

enum { NODES_MAX = 32, NAME_MAX_LENGTH = 32, AGENT_PORT = 7432, DETECT_MS = 1000 };

static const char *const schema_name = "ordeal/topology-1";

/* State of one load: the file's folder resolves relative paths of the orchestrator's host. */
struct loading {
    struct arena *arena;
    struct yaml_errors *errors;
    struct topology *topology;
    const char *folder;
};

/* The file as its tables see it; sub-sections are read afterwards. */
struct sections {
    const char *schema, *name, *kind;
    const struct yaml_node *promise, *ha, *control, *database, *endpoint, *power, *nodes;
};

#define SECTION(key, kind, ...)                                                                    \
    {                                                                                              \
        .name = #key, .type = kind, .offset = offsetof(struct sections, key), __VA_ARGS__          \
    }

static const struct yaml_field section_fields[] = {
    SECTION(schema, YAML_TEXT, .required = true),
    SECTION(name, YAML_TEXT, .required = true),
    SECTION(kind, YAML_CHOICE, .choices = "external|lab"),
    SECTION(promise, YAML_NODE),
    SECTION(ha, YAML_NODE),
    SECTION(control, YAML_NODE, .required = true),
    SECTION(database, YAML_NODE),
    SECTION(endpoint, YAML_NODE),
    SECTION(power, YAML_NODE),
    SECTION(nodes, YAML_NODE, .required = true),
    {.type = YAML_END},
};

#define MEMBER(key, kind, member, ...)                                                             \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(struct topology, member), __VA_ARGS__        \
    }

static const struct yaml_field promise_fields[] = {
    MEMBER("durability", YAML_CHOICE, promise.durability, .choices = "quorum|local|none"),
    MEMBER("failover", YAML_DURATION, promise.failover_ms, .minimum = 1, .maximum = 86400000),
    {.type = YAML_END},
};

static const struct yaml_field control_fields[] = {
    MEMBER("network-namespace", YAML_TEXT, control.network_namespace),
    MEMBER("ca", YAML_TEXT, control.ca, .required = true),
    MEMBER("certificate", YAML_TEXT, control.certificate, .required = true),
    MEMBER("key", YAML_TEXT, control.key, .required = true),
    {.type = YAML_END},
};

static const struct yaml_field power_fields[] = {
    MEMBER("off", YAML_TEXTS, power.off, .required = true),
    MEMBER("cut", YAML_TEXTS, power.cut),
    MEMBER("on", YAML_TEXTS, power.on, .required = true),
    {.type = YAML_END},
};

/* ---- names, paths ---- */

static bool good_name(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return length > 0 && length <= NAME_MAX_LENGTH && name[length] == '\0' && name[0] != '-';
}

static void want_name(struct loading *loading, const struct yaml_node *at, const char *name,
                      const char *what)
{
    if (name != NULL && !good_name(name))
        yaml_complain(loading->errors, at,
                      "%s %s must have 1 to %d of the characters a-z, 0-9 and -, and not begin "
                      "with -",
                      what, name, NAME_MAX_LENGTH);
}

/* A path on a node must be absolute; there is no folder that it could be relative to. */
static void want_absolute(struct loading *loading, const struct yaml_node *section, const char *key,
                          const char *path)
{
    if (path != NULL && path[0] != '/')
        yaml_complain(loading->errors, yaml_get(section, key), "%s: %s must be an absolute path",
                      key, path);
}

/* A path on the orchestrator's host may be relative to the topology file. */
static const char *local_path(const struct loading *loading, const char *path)
{
    if (path == NULL || path[0] == '/')
        return path;
    return arena_printf(loading->arena, "%s/%s", loading->folder, path);
}

static const char *folder_of(struct arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL)
        return ".";
    return slash == path ? "/" : arena_strndup(arena, path, (size_t) (slash - path));
}

/* ---- sections ---- */

static void read_promise(struct loading *loading, const struct yaml_node *section)
{
    loading->topology->promise.durability = "quorum";
    if (section != NULL)
        yaml_read(section, promise_fields, loading->topology, loading->errors);
}

struct ha_section {
    const char *manager, *fence, *promote;
    bool management_network;
    int64_t detect_ms;
    const char *const *fence_script;
};

#define HA_MEMBER(key, kind, member, ...)                                                          \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(struct ha_section, member), __VA_ARGS__      \
    }

static const struct yaml_field ha_fields[] = {
    HA_MEMBER("manager", YAML_TEXT, manager, .required = true),
    HA_MEMBER("fence", YAML_CHOICE, fence, .choices = "control|power|script|none"),
    HA_MEMBER("promote", YAML_CHOICE, promote, .choices = "safe|allow-loss"),
    HA_MEMBER("management-network", YAML_BOOLEAN, management_network),
    HA_MEMBER("detect", YAML_DURATION, detect_ms, .minimum = 50, .maximum = 600000),
    HA_MEMBER("fence-script", YAML_TEXTS, fence_script),
    {.type = YAML_END},
};

static void read_ha(struct loading *loading, const struct yaml_node *section)
{
    struct topology *topology = loading->topology;
    struct ha_section ha = {
        .manager = "observe", .fence = "none", .promote = "safe", .detect_ms = DETECT_MS};

    if (section != NULL)
        yaml_read(section, ha_fields, &ha, loading->errors);
    if (strcmp(ha.fence, "script") == 0 && ha.fence_script == NULL)
        yaml_complain(loading->errors, section, "fence: script needs the key fence-script");
    topology->ha.manager = ha.manager;
    topology->ha.fence = ha.fence;
    topology->ha.management_network = ha.management_network;
    topology->ha.allow_loss = strcmp(ha.promote, "allow-loss") == 0;
    topology->ha.detect_ms = ha.detect_ms;
    topology->ha.fence_script = ha.fence_script;
}

static void read_control(struct loading *loading, const struct yaml_node *section)
{
    struct topology *topology = loading->topology;

    if (section == NULL)
        return;
    yaml_read(section, control_fields, topology, loading->errors);
    topology->control.ca = local_path(loading, topology->control.ca);
    topology->control.certificate = local_path(loading, topology->control.certificate);
    topology->control.key = local_path(loading, topology->control.key);
    topology->control.network_namespace = local_path(loading, topology->control.network_namespace);
}

struct database_section {
    int64_t version, port;
    const char *data, *bin, *ssl_root;
    const struct yaml_node *service, *superuser, *workload, *replication;
};

#define DATABASE_MEMBER(key, kind, member, ...)                                                    \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(struct database_section, member),            \
        __VA_ARGS__                                                                                \
    }

static const struct yaml_field database_fields[] = {
    DATABASE_MEMBER("version", YAML_INTEGER, version, .required = true, .minimum = 13,
                    .maximum = 18),
    DATABASE_MEMBER("port", YAML_INTEGER, port, .minimum = 1, .maximum = 65535),
    DATABASE_MEMBER("data", YAML_TEXT, data, .required = true),
    DATABASE_MEMBER("bin", YAML_TEXT, bin),
    DATABASE_MEMBER("ssl-root", YAML_TEXT, ssl_root),
    DATABASE_MEMBER("service", YAML_NODE, service),
    DATABASE_MEMBER("superuser", YAML_NODE, superuser, .required = true),
    DATABASE_MEMBER("workload", YAML_NODE, workload, .required = true),
    DATABASE_MEMBER("replication", YAML_NODE, replication),
    {.type = YAML_END},
};

static const struct yaml_field service_fields[] = {
    MEMBER("start", YAML_TEXTS, database.start, .required = true),
    MEMBER("stop", YAML_TEXTS, database.stop, .required = true),
    {.type = YAML_END},
};

#define CREDENTIAL(key, member, ...)                                                               \
    {                                                                                              \
        .name = key, .type = YAML_TEXT, .offset = offsetof(struct topology_credential, member),    \
        __VA_ARGS__                                                                                \
    }

static const struct yaml_field credential_fields[] = {
    CREDENTIAL("user", user, .required = true),
    CREDENTIAL("password-file", password_file),
    CREDENTIAL("database", database),
    {.type = YAML_END},
};

static struct topology_credential read_credential(struct loading *loading,
                                                  const struct yaml_node *section)
{
    struct topology_credential credential = {0};

    if (section == NULL)
        return credential;
    yaml_read(section, credential_fields, &credential, loading->errors);
    want_absolute(loading, section, "password-file", credential.password_file);
    return credential;
}

static void want_program(struct loading *loading, const struct yaml_node *section, const char *key,
                         const char *const *argv)
{
    if (argv != NULL && (argv[0] == NULL || argv[0][0] == '\0'))
        yaml_complain(loading->errors, yaml_get(section, key),
                      "%s: a program and its arguments are expected, one list item each", key);
}

static void read_service(struct loading *loading, const struct yaml_node *section)
{
    struct topology *topology = loading->topology;

    if (section == NULL)
        return;
    yaml_read(section, service_fields, topology, loading->errors);
    want_program(loading, section, "start", topology->database.start);
    want_program(loading, section, "stop", topology->database.stop);
}

static void read_database(struct loading *loading, const struct yaml_node *section)
{
    struct topology *topology = loading->topology;
    struct database_section database = {.port = 5432};

    if (section == NULL)
        return;
    yaml_read(section, database_fields, &database, loading->errors);
    want_absolute(loading, section, "data", database.data);
    want_absolute(loading, section, "bin", database.bin);
    want_absolute(loading, section, "ssl-root", database.ssl_root);
    if (database.bin == NULL)
        database.bin =
            arena_printf(loading->arena, "/usr/lib/postgresql/%d/bin", (int) database.version);
    topology->database.version = database.version;
    topology->database.port = database.port;
    topology->database.data = database.data;
    topology->database.bin = database.bin;
    topology->database.ssl_root = database.ssl_root;
    read_service(loading, database.service);
    topology->database.superuser = read_credential(loading, database.superuser);
    topology->database.workload = read_credential(loading, database.workload);
    struct topology_credential replication = read_credential(loading, database.replication);
    topology->database.replication_user = replication.user;
    topology->database.replication_password_file = replication.password_file;
}

/* ---- nodes ---- */

struct node_section {
    struct topology_node node;
    const char *const *roles;
    const struct yaml_node *volumes;
};

#define NODE_MEMBER(key, kind, member, ...)                                                        \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(struct node_section, member), __VA_ARGS__    \
    }

static const struct yaml_field node_fields[] = {
    NODE_MEMBER("name", YAML_TEXT, node.name, .required = true),
    NODE_MEMBER("address", YAML_TEXT, node.address, .required = true),
    NODE_MEMBER("agent-port", YAML_INTEGER, node.agent_port, .minimum = 1, .maximum = 65535),
    NODE_MEMBER("zone", YAML_TEXT, node.zone),
    NODE_MEMBER("cgroup", YAML_TEXT, node.cgroup),
    NODE_MEMBER("roles", YAML_TEXTS, roles, .required = true),
    NODE_MEMBER("volumes", YAML_NODE, volumes),
    {.type = YAML_END},
};

static const struct {
    const char *name;
    enum topology_role role;
} roles[] = {
    {"database", ROLE_DATABASE}, {"client", ROLE_CLIENT},   {"power", ROLE_POWER},
    {"dcs", ROLE_DCS},           {"archive", ROLE_ARCHIVE},
};

enum { ROLE_COUNT = sizeof roles / sizeof roles[0] };

static unsigned read_role(struct loading *loading, const struct yaml_node *at, const char *name)
{
    const char *words[ROLE_COUNT + 1] = {NULL};

    for (size_t i = 0; i < ROLE_COUNT; i++) {
        if (strcmp(roles[i].name, name) == 0)
            return roles[i].role;
        words[i] = roles[i].name;
    }
    const char *near = nearest_word(name, words);
    if (near != NULL)
        yaml_complain(loading->errors, at, "unknown role %s, did you mean %s?", name, near);
    else
        yaml_complain(loading->errors, at,
                      "unknown role %s, known are: database, client, power, dcs, archive", name);
    return 0;
}

static void read_volumes(struct loading *loading, const struct yaml_node *mapping,
                         struct topology_node *node)
{
    if (mapping == NULL)
        return;
    if (mapping->kind != YAML_MAPPING) {
        yaml_complain(loading->errors, mapping, "volumes must be a mapping of name to path");
        return;
    }
    struct topology_volume *volumes = arena_array(loading->arena, mapping->count, sizeof *volumes);
    for (size_t i = 0; i < mapping->count; i++) {
        volumes[i].name = mapping->keys[i]->text;
        volumes[i].path = mapping->items[i]->text;
        want_name(loading, mapping->keys[i], volumes[i].name, "volume");
        if (mapping->items[i]->kind != YAML_SCALAR || volumes[i].path[0] != '/')
            yaml_complain(loading->errors, mapping->items[i], "volume %s must be an absolute path",
                          volumes[i].name);
    }
    node->volume_count = mapping->count;
    node->volumes = volumes;
}

static void check_address(struct loading *loading, const struct yaml_node *at, const char *address)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    if (address != NULL && inet_pton(AF_INET, address, bytes) != 1 &&
        inet_pton(AF_INET6, address, bytes) != 1)
        yaml_complain(loading->errors, at, "address %s is not an IPv4 or IPv6 address", address);
}

static struct topology_node read_node(struct loading *loading, const struct yaml_node *at)
{
    struct node_section section = {.node = {.agent_port = AGENT_PORT, .zone = ""}};

    yaml_read(at, node_fields, &section, loading->errors);
    want_name(loading, yaml_get(at, "name"), section.node.name, "node name");
    want_name(loading, yaml_get(at, "zone"), *section.node.zone != '\0' ? section.node.zone : NULL,
              "zone");
    check_address(loading, yaml_get(at, "address"), section.node.address);
    const struct yaml_node *list = yaml_get(at, "roles");
    for (size_t i = 0; section.roles != NULL && section.roles[i] != NULL; i++)
        section.node.roles |= read_role(
            loading, list->kind == YAML_SEQUENCE ? list->items[i] : list, section.roles[i]);
    read_volumes(loading, section.volumes, &section.node);
    if (section.node.name == NULL)
        section.node.name = "";
    if (section.node.address == NULL)
        section.node.address = "";
    return section.node;
}

static void refuse_twins(struct loading *loading, const struct yaml_node *list,
                         const struct topology_node *nodes, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (strcmp(nodes[i].name, nodes[index].name) == 0 && *nodes[i].name != '\0')
            yaml_complain(loading->errors, list->items[index], "node %s is there already, line %d",
                          nodes[i].name, list->items[i]->line);
        if (strcmp(nodes[i].address, nodes[index].address) == 0 && *nodes[i].address != '\0' &&
            nodes[i].agent_port == nodes[index].agent_port)
            yaml_complain(loading->errors, list->items[index],
                          "nodes %s and %s have the same address %s and agent port", nodes[i].name,
                          nodes[index].name, nodes[i].address);
    }
}

static void read_nodes(struct loading *loading, const struct yaml_node *list)
{
    struct topology *topology = loading->topology;

    if (list == NULL)
        return;
    if (list->kind != YAML_SEQUENCE || list->count == 0 || list->count > NODES_MAX) {
        yaml_complain(loading->errors, list, "nodes must be a list of 1 to %d nodes", NODES_MAX);
        return;
    }
    struct topology_node *nodes = arena_array(loading->arena, list->count, sizeof *nodes);
    for (size_t i = 0; i < list->count; i++) {
        nodes[i] = read_node(loading, list->items[i]);
        refuse_twins(loading, list, nodes, i);
    }
    topology->node_count = list->count;
    topology->nodes = nodes;
}

/* ---- endpoint ---- */

struct endpoint_section {
    const char *const *hosts;
    const char *routing;
};

static const struct yaml_field endpoint_fields[] = {
    {.name = "hosts",
     .type = YAML_TEXTS,
     .offset = offsetof(struct endpoint_section, hosts),
     .required = true},
    {.name = "routing",
     .type = YAML_CHOICE,
     .offset = offsetof(struct endpoint_section, routing),
     .choices = "hosts|manager"},
    {.type = YAML_END},
};

static void complain_node(struct loading *loading, const struct yaml_node *at, const char *name)
{
    const char *words[NODES_MAX + 1] = {NULL};

    for (size_t i = 0; i < loading->topology->node_count; i++)
        words[i] = loading->topology->nodes[i].name;
    const char *near = nearest_word(name, words);
    if (near != NULL)
        yaml_complain(loading->errors, at, "unknown node %s, did you mean %s?", name, near);
    else
        yaml_complain(loading->errors, at, "unknown node %s: it is not in the list nodes", name);
}

static const struct topology_node *read_host(struct loading *loading, const struct yaml_node *at,
                                             const char *name)
{
    const struct topology_node *node = topology_node(loading->topology, name);

    if (node == NULL)
        complain_node(loading, at, name);
    else if ((node->roles & ROLE_DATABASE) == 0)
        yaml_complain(loading->errors, at, "endpoint host %s does not have the role database",
                      name);
    return node;
}

/* Without an endpoint section the application may use every database node. */
static void default_endpoint(struct loading *loading)
{
    struct topology *topology = loading->topology;
    const struct topology_node **hosts =
        arena_array(loading->arena, topology->node_count + 1, sizeof(struct topology_node *));

    for (size_t i = 0; i < topology->node_count; i++)
        if ((topology->nodes[i].roles & ROLE_DATABASE) != 0)
            hosts[topology->endpoint.count++] = &topology->nodes[i];
    topology->endpoint.hosts = hosts;
}

static void read_endpoint(struct loading *loading, const struct yaml_node *section)
{
    struct topology *topology = loading->topology;
    struct endpoint_section endpoint = {.routing = "hosts"};
    size_t count = 0;

    if (section == NULL) {
        default_endpoint(loading);
        return;
    }
    yaml_read(section, endpoint_fields, &endpoint, loading->errors);
    topology->endpoint.managed = strcmp(endpoint.routing, "manager") == 0;
    while (endpoint.hosts != NULL && endpoint.hosts[count] != NULL)
        count++;
    const struct yaml_node *list = yaml_get(section, "hosts");
    const struct topology_node **hosts =
        arena_array(loading->arena, count + 1, sizeof(struct topology_node *));
    for (size_t i = 0; i < count; i++)
        hosts[i] = read_host(loading, list->kind == YAML_SEQUENCE ? list->items[i] : list,
                             endpoint.hosts[i]);
    topology->endpoint.count = count;
    topology->endpoint.hosts = hosts;
}

/* ---- whole file ---- */

/* Load, ledger and power driver must outlive what happens to a database node. */
static void check_places(struct loading *loading, const struct yaml_node *nodes)
{
    const struct topology *topology = loading->topology;

    for (size_t i = 0; i < topology->node_count; i++) {
        const struct topology_node *node = &topology->nodes[i];

        if ((node->roles & ROLE_DATABASE) == 0)
            continue;
        if ((node->roles & ROLE_CLIENT) != 0)
            yaml_complain(loading->errors, nodes->items[i],
                          "%s has the roles database and client: the ledger would be lost with "
                          "the database; give the role client to a node outside the cluster",
                          node->name);
        if ((node->roles & ROLE_POWER) != 0)
            yaml_complain(loading->errors, nodes->items[i],
                          "%s has the roles database and power: nobody would switch it on again; "
                          "give the role power to a node outside the cluster",
                          node->name);
    }
}

static void check_manager(struct loading *loading, const struct yaml_node *at)
{
    const char *name = loading->topology->ha.manager;

    if (name == NULL || ha_find(name) != NULL)
        return;
    const char *near = nearest_word(name, ha_names());
    if (near != NULL)
        yaml_complain(loading->errors, yaml_get(at, "manager"),
                      "unknown HA manager %s, did you mean %s?", name, near);
    else
        yaml_complain(loading->errors, yaml_get(at, "manager"),
                      "unknown HA manager %s: observe (what manages the cluster acts, Ordeal "
                      "looks) and manual (Ordeal acts) are known",
                      name);
}

/* What a manager that acts, or one that does not, needs of the rest of the file. */
static void check_ha(struct loading *loading, const struct yaml_node *root)
{
    const struct topology *topology = loading->topology;
    const struct yaml_node *ha = yaml_get(root, "ha"), *at = ha != NULL ? ha : root;
    const struct ha_driver *driver =
        topology->ha.manager == NULL ? NULL : ha_find(topology->ha.manager);

    check_manager(loading, at);
    if (strcmp(topology->ha.fence, "power") == 0 && topology->power.off == NULL)
        yaml_complain(loading->errors, at, "fence: power needs the key power");
    if (driver == NULL)
        return;
    if (!driver->acts && topology->endpoint.managed)
        yaml_complain(loading->errors, yaml_get(root, "endpoint"),
                      "routing: manager needs an HA manager that acts, and %s changes nothing; "
                      "say routing: hosts: clients then try the hosts in turn for one that takes "
                      "writes",
                      driver->name);
    if (driver->acts && strcmp(topology->ha.fence, "control") == 0 &&
        !topology->ha.management_network)
        yaml_complain(loading->errors, at,
                      "fence: control needs management-network: yes, the word that agents are "
                      "reached on a network of their own; without it nobody is fenced, and so "
                      "nobody promoted");
}

/* What no single section can see. */
static void check_whole(struct loading *loading, const struct yaml_node *root)
{
    const struct topology *topology = loading->topology;
    const struct yaml_node *nodes = yaml_get(root, "nodes");
    bool serves = topology_first(topology, ROLE_DATABASE) != NULL;

    if (serves && topology->database.version == 0 && yaml_get(root, "database") == NULL)
        yaml_complain(loading->errors, root, "missing key database: nodes have the role database");
    if (!serves && topology->node_count > 0)
        yaml_complain(loading->errors, nodes, "no node has the role database");
    if (topology->power.off != NULL && topology_first(topology, ROLE_POWER) == NULL)
        yaml_complain(loading->errors, yaml_get(root, "power"),
                      "power is configured, but no node has the role power to do it");
    check_places(loading, nodes);
    check_ha(loading, root);
}

static void check_schema(struct loading *loading, const struct yaml_node *root, const char *schema)
{
    if (schema != NULL && strcmp(schema, schema_name) != 0)
        yaml_complain(loading->errors, yaml_get(root, "schema"),
                      "schema %s is not known here, expected %s", schema, schema_name);
}

static void read_root(struct loading *loading, const struct yaml_node *root)
{
    struct sections sections = {.kind = "external"};

    yaml_read(root, section_fields, &sections, loading->errors);
    if (root->kind != YAML_MAPPING)
        return;
    check_schema(loading, root, sections.schema);
    want_name(loading, yaml_get(root, "name"), sections.name, "topology name");
    loading->topology->name = sections.name;
    loading->topology->kind = sections.kind;
    read_promise(loading, sections.promise);
    read_ha(loading, sections.ha);
    read_control(loading, sections.control);
    read_database(loading, sections.database);
    if (sections.power != NULL)
        yaml_read(sections.power, power_fields, loading->topology, loading->errors);
    read_nodes(loading, sections.nodes);
    read_endpoint(loading, sections.endpoint);
    check_whole(loading, root);
}

enum status topology_load(struct arena *arena, const char *path, struct topology **ret_topology,
                          struct yaml_errors *errors, struct error *err)
{
    struct loading loading = {.arena = arena,
                              .errors = errors,
                              .topology = arena_alloc(arena, sizeof(struct topology)),
                              .folder = folder_of(arena, path)};
    size_t before = errors->count;
    struct yaml_node *root;
    enum status status = yaml_load(arena, path, &root, errors, err);

    if (status != STATUS_OK)
        return status;
    loading.topology->file = arena_strdup(arena, path);
    read_root(&loading, root);
    if (errors->count != before)
        return error_set(err, STATUS_INVALID, "%s is not valid: %zu error%s", path,
                         errors->count - before, errors->count - before == 1 ? "" : "s");
    *ret_topology = loading.topology;
    return STATUS_OK;
}
