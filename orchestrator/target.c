/* SPDX-License-Identifier: MIT */
#include "orchestrator/target.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/owned.h"
#include "lib/param.h"
#include "lib/units.h"

/* ---- roles ---- */

struct candidate {
    const struct topology_node *node;
    const struct ha_member *member; /* NULL: not a database node */
};

static bool is_primary(const struct candidate *candidate)
{
    return candidate->member != NULL && candidate->member->primary;
}

static bool is_standby(const struct candidate *candidate)
{
    return candidate->member != NULL && candidate->member->running && !candidate->member->primary;
}

static bool is_sync_standby(const struct candidate *candidate)
{
    return is_standby(candidate) && candidate->member->sync;
}

static bool is_database(const struct candidate *candidate)
{
    return (candidate->node->roles & ROLE_DATABASE) != 0;
}

static bool is_client(const struct candidate *candidate)
{
    return (candidate->node->roles & ROLE_CLIENT) != 0;
}

static bool is_dcs(const struct candidate *candidate)
{
    return (candidate->node->roles & ROLE_DCS) != 0;
}

static bool is_archive(const struct candidate *candidate)
{
    return (candidate->node->roles & ROLE_ARCHIVE) != 0;
}

static bool is_other(const struct candidate *candidate)
{
    (void) candidate; /* what the step acts on is excluded already */
    return true;
}

static const struct {
    const char *name;
    bool (*fits)(const struct candidate *candidate);
} roles[] = {
    {"primary", is_primary}, {"sync-standby", is_sync_standby}, {"standby", is_standby},
    {"any", is_database},    {"database", is_database},         {"client", is_client},
    {"dcs", is_dcs},         {"archive", is_archive},           {"others", is_other},
};

enum { ROLE_COUNT = sizeof roles / sizeof roles[0], WORDS_MAX = 80 };

static int find_role(const char *name)
{
    for (int i = 0; i < (int) ROLE_COUNT; i++)
        if (strcmp(roles[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- reading ---- */

struct reading {
    struct arena *arena;
    struct yaml_errors *errors;
    const struct yaml_node *at;
    const struct topology *topology;
    struct target *target;
};

static void list_words(const struct topology *topology, bool with_roles,
                       const char *words[WORDS_MAX + 1])
{
    size_t count = 0;

    for (size_t i = 0; topology != NULL && i < topology->node_count && count < WORDS_MAX; i++)
        words[count++] = topology->nodes[i].name;
    for (size_t i = 0; with_roles && i < ROLE_COUNT && count < WORDS_MAX; i++)
        words[count++] = roles[i].name;
    words[count] = NULL;
}

static void complain_word(const struct reading *reading, const struct yaml_node *at,
                          const char *what, const char *word, bool with_roles)
{
    const char *words[WORDS_MAX + 1];

    list_words(reading->topology, with_roles, words);
    const char *near = nearest_word(word, words);
    if (near != NULL)
        yaml_complain(reading->errors, at, "unknown %s %s, did you mean %s?", what, word, near);
    else
        yaml_complain(reading->errors, at, "unknown %s %s", what, word);
}

static void check_nodes(const struct reading *reading)
{
    for (size_t i = 0; reading->target->nodes != NULL && reading->target->nodes[i] != NULL; i++)
        if (reading->topology != NULL &&
            topology_node(reading->topology, reading->target->nodes[i]) == NULL)
            complain_word(reading, reading->at, "node", reading->target->nodes[i], false);
}

static bool zone_exists(const struct topology *topology, const char *zone)
{
    for (size_t i = 0; i < topology->node_count; i++)
        if (strcmp(topology->nodes[i].zone, zone) == 0)
            return true;
    return false;
}

static void check_role(const struct reading *reading)
{
    const char *role = reading->target->role;
    const char *words[ROLE_COUNT + 1] = {NULL};

    if (role == NULL || find_role(role) >= 0)
        return;
    for (size_t i = 0; i < ROLE_COUNT; i++)
        words[i] = roles[i].name;
    const char *near = nearest_word(role, words);
    yaml_complain(reading->errors, reading->at, "unknown role %s%s%s%s", role,
                  near != NULL ? ", did you mean " : "", near != NULL ? near : "",
                  near != NULL ? "?" : "");
}

static void read_mode(const struct reading *reading, const char *mode)
{
    struct target *target = reading->target;
    struct error ignored;

    if (strcmp(mode, "one") == 0)
        target->mode = TARGET_ONE;
    else if (strcmp(mode, "all") == 0)
        target->mode = TARGET_ALL;
    else if (units_percentage(mode, &target->percent, &ignored) == STATUS_OK)
        target->mode = TARGET_PERCENT;
    else if (units_integer(mode, &target->count, &ignored) == STATUS_OK && target->count > 0)
        target->mode = TARGET_COUNT;
    else
        yaml_complain(reading->errors, reading->at,
                      "mode %s is not one, all, a number of nodes or a percentage", mode);
    if (target->mode == TARGET_PERCENT && (target->percent <= 0 || target->percent > 100))
        yaml_complain(reading->errors, reading->at, "mode %s must be above 0%% and at most 100%%",
                      mode);
}

struct target_fields {
    const char *role, *zone, *mode, *process, *link;
    const char *const *nodes;
};

#define FIELD(key, kind, member)                                                                   \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(struct target_fields, member)                \
    }

static const struct yaml_field fields[] = {
    FIELD("node", YAML_TEXTS, nodes),
    FIELD("role", YAML_TEXT, role),
    FIELD("zone", YAML_TEXT, zone),
    FIELD("mode", YAML_TEXT, mode),
    FIELD("process", YAML_TEXT, process),
    FIELD("link", YAML_TEXT, link),
    {.type = YAML_END},
};

static void check_link(const struct reading *reading)
{
    const struct target *target = reading->target;

    if (target->link == NULL)
        return;
    struct target near = target_link_side(reading->arena, target, false);
    struct target far = target_link_side(reading->arena, target, true);
    if (near.role == NULL || far.role == NULL || find_role(near.role) < 0 ||
        find_role(far.role) < 0)
        yaml_complain(reading->errors, reading->at,
                      "link %s is not of the form ROLE -> ROLE, as primary -> standby",
                      target->link);
    if (target->role != NULL || target->nodes != NULL)
        yaml_complain(reading->errors, reading->at,
                      "link stands alone: it names the roles of both sides");
}

static void take_fields(const struct reading *reading, const struct target_fields *given)
{
    struct target *target = reading->target;

    target->nodes = given->nodes;
    target->role = given->role;
    target->zone = given->zone;
    target->process = given->process;
    target->link = given->link;
    if (given->mode != NULL)
        read_mode(reading, given->mode);
    if (target->nodes != NULL && (target->role != NULL || target->zone != NULL))
        yaml_complain(reading->errors, reading->at,
                      "a target is either a node or a role and zone, not both");
    if (target->nodes != NULL && given->mode == NULL)
        target->mode = TARGET_ALL;
    if (target->nodes == NULL && target->role == NULL && target->zone == NULL &&
        target->link == NULL)
        yaml_complain(reading->errors, reading->at, "the target is empty: give node, role or zone");
    check_role(reading);
    check_nodes(reading);
    check_link(reading);
    if (target->zone != NULL && reading->topology != NULL &&
        !zone_exists(reading->topology, target->zone))
        yaml_complain(reading->errors, reading->at, "no node is in zone %s", target->zone);
}

/* A word alone: a role, or else a node. */
static void take_word(const struct reading *reading, const char *word)
{
    struct target *target = reading->target;

    if (find_role(word) >= 0) {
        target->role = word;
        if (strcmp(word, "others") == 0)
            target->mode = TARGET_ALL;
        return;
    }
    const char **nodes = arena_array(reading->arena, 2, sizeof *nodes);
    nodes[0] = word;
    target->nodes = nodes;
    target->mode = TARGET_ALL;
    if (reading->topology != NULL && topology_node(reading->topology, word) == NULL)
        complain_word(reading, reading->at, "node or role", word, true);
}

static void take_list(const struct reading *reading, const struct yaml_node *list)
{
    const char **nodes = arena_array(reading->arena, list->count + 1, sizeof *nodes);
    size_t count = 0;

    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i]->kind != YAML_SCALAR)
            yaml_complain(reading->errors, list->items[i], "expected the name of a node");
        else
            nodes[count++] = list->items[i]->text;
    }
    if (list->count == 0)
        yaml_complain(reading->errors, list, "the target is empty: the list names no node");
    reading->target->nodes = nodes;
    reading->target->mode = TARGET_ALL;
    check_nodes(reading);
}

void target_read(const struct yaml_node *node, const struct topology *topology,
                 enum target_mode fallback, struct yaml_errors *errors, struct target *ret_target)
{
    struct reading reading = {.arena = errors->arena,
                              .errors = errors,
                              .at = node,
                              .topology = topology,
                              .target = ret_target};
    struct target_fields given = {0};

    *ret_target = (struct target){.mode = fallback};
    if (node->kind == YAML_SCALAR && node->text[0] == '\0') {
        yaml_complain(errors, node, "the target is empty: give node, role or zone");
    } else if (node->kind == YAML_SCALAR) {
        take_word(&reading, node->text);
    } else if (node->kind == YAML_SEQUENCE) {
        take_list(&reading, node);
    } else {
        yaml_read(node, fields, &given, errors);
        take_fields(&reading, &given);
    }
}

/* ---- from a command line ---- */

static bool set_pair(struct arena *arena, struct target_fields *given, char *pair)
{
    char *equals = strchr(pair, '=');

    if (equals == NULL)
        return false;
    *equals = '\0';
    for (const struct yaml_field *field = fields; field->type != YAML_END; field++) {
        if (strcmp(field->name, pair) != 0)
            continue;
        if (field->type == YAML_TEXTS) {
            const char **nodes = arena_array(arena, 2, sizeof *nodes);
            nodes[0] = equals + 1;
            given->nodes = nodes;
        } else {
            *(const char **) ((char *) given + field->offset) = equals + 1;
        }
        return true;
    }
    return false;
}

static enum status take_pairs(const struct reading *reading, char *text, struct error *err)
{
    struct target_fields given = {0};
    char *rest = NULL;

    for (char *pair = strtok_r(text, ",", &rest); pair != NULL; pair = strtok_r(NULL, ",", &rest)) {
        if (!set_pair(reading->arena, &given, pair))
            return error_set(err, STATUS_USAGE,
                             "target: %s is not KEY=VALUE of node, role, zone, mode, process, link",
                             pair);
    }
    take_fields(reading, &given);
    return STATUS_OK;
}

enum status target_parse(struct arena *arena, const char *text, const struct topology *topology,
                         struct target *ret_target, struct error *err)
{
    struct yaml_errors errors = {.arena = arena, .file = "--target"};
    struct target target = {.mode = TARGET_ONE};
    struct reading reading = {
        .arena = arena, .errors = &errors, .topology = topology, .target = &target};
    enum status status = STATUS_OK;

    if (strchr(text, '=') != NULL)
        status = take_pairs(&reading, arena_strdup(arena, text), err);
    else
        take_word(&reading, arena_strdup(arena, text));
    if (status != STATUS_OK)
        return status;
    if (errors.count > 0)
        return error_set(err, STATUS_USAGE, "%s", errors.texts[0]);
    *ret_target = target;
    return STATUS_OK;
}

struct target target_link_side(struct arena *arena, const struct target *target, bool far_side)
{
    struct target side = *target;
    const char *arrow = strstr(target->link, "->");

    side.link = NULL;
    side.role = NULL;
    if (arrow == NULL)
        return side;
    const char *from = far_side ? arrow + 2 : target->link;
    const char *to = far_side ? target->link + strlen(target->link) : arrow;
    while (from < to && *from == ' ')
        from++;
    while (to > from && to[-1] == ' ')
        to--;
    side.role = arena_strndup(arena, from, (size_t) (to - from));
    if (far_side)
        side.mode = TARGET_ALL;
    return side;
}

/* ---- resolving ---- */

uint64_t random_next(uint64_t *state)
{
    uint64_t value = (*state += UINT64_C(0x9e3779b97f4a7c15));

    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static const struct ha_member *member_of(const struct ha_state *state,
                                         const struct topology_node *node)
{
    for (size_t i = 0; state != NULL && i < state->count; i++)
        if (state->members[i].node == node)
            return &state->members[i];
    return NULL;
}

static bool named(const char *const *names, const char *name)
{
    for (; *names != NULL; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static bool excluded(const struct target_scope *scope, const struct topology_node *node)
{
    for (size_t i = 0; i < scope->exclude_count; i++)
        if (scope->exclude[i] == node)
            return true;
    return false;
}

static bool fits(const struct target *target, const struct target_scope *scope,
                 const struct topology_node *node)
{
    struct candidate candidate = {.node = node, .member = member_of(scope->state, node)};

    if (excluded(scope, node))
        return false;
    if (target->nodes != NULL)
        return named(target->nodes, node->name);
    if (target->zone != NULL && strcmp(target->zone, node->zone) != 0)
        return false;
    if (target->role == NULL)
        return is_database(&candidate);
    return roles[find_role(target->role)].fits(&candidate);
}

static size_t wanted(const struct target *target, size_t found)
{
    double part = target->percent / 100 * (double) found;

    switch (target->mode) {
    case TARGET_ONE:
        return 1;
    case TARGET_COUNT:
        return (size_t) target->count;
    case TARGET_PERCENT: /* rounded up: a percentage of something is never nothing */
        return (size_t) part + (part > (double) (size_t) part ? 1 : 0);
    case TARGET_ALL:
    default:
        return found;
    }
}

/* Drop nodes by the seed until `count` are left; the order stays. */
static void draw(struct target_nodes *nodes, size_t count, uint64_t *random)
{
    while (nodes->count > count) {
        size_t victim = (size_t) (random_next(random) % nodes->count);

        nodes->count--;
        memmove(&nodes->nodes[victim], &nodes->nodes[victim + 1],
                (nodes->count - victim) * sizeof(struct topology_node *));
    }
}

static enum status say_empty(struct arena *arena, const struct target *target,
                             const struct target_scope *scope, size_t found, size_t count,
                             struct error *err)
{
    OWNED_BUFFER struct buffer there = BUFFER(900);

    for (size_t i = 0; scope->state != NULL && i < scope->state->count; i++) {
        const struct ha_member *member = &scope->state->members[i];

        buffer_printf(&there, "%s%s %s", i == 0 ? "" : ", ", member->node->name,
                      member->primary    ? "primary"
                      : !member->running ? "down"
                      : member->sync     ? "sync standby"
                                         : "standby");
    }
    if (found == 0)
        error_set(err, STATUS_NOT_FOUND, "empty target: no node fits %s",
                  target_text(arena, target));
    else
        error_set(err, STATUS_NOT_FOUND, "target %s: %zu nodes are there, %zu are asked for",
                  target_text(arena, target), found, count);
    error_detail(err, "now: %s", buffer_text(&there));
    return STATUS_NOT_FOUND;
}

enum status target_resolve(struct arena *arena, const struct target *target,
                           const struct target_scope *scope, struct target_nodes *ret_nodes,
                           struct error *err)
{
    const struct topology *topology = scope->topology;
    struct target_nodes nodes = {
        .nodes = arena_array(arena, topology->node_count + 1, sizeof(struct topology_node *))};

    for (size_t i = 0; i < topology->node_count; i++)
        if (fits(target, scope, &topology->nodes[i]))
            nodes.nodes[nodes.count++] = &topology->nodes[i];
    size_t count = wanted(target, nodes.count);
    if (nodes.count == 0 || nodes.count < count)
        return say_empty(arena, target, scope, nodes.count, count, err);
    draw(&nodes, count, scope->random);
    *ret_nodes = nodes;
    return STATUS_OK;
}

/* ---- for people and machines ---- */

static const char *mode_text(struct arena *arena, const struct target *target)
{
    switch (target->mode) {
    case TARGET_ONE:
        return "one";
    case TARGET_COUNT:
        return arena_printf(arena, "%" PRId64, target->count);
    case TARGET_PERCENT:
        return arena_printf(arena, "%g%%", target->percent);
    case TARGET_ALL:
    default:
        return "all";
    }
}

const char *target_text(struct arena *arena, const struct target *target)
{
    OWNED_BUFFER struct buffer text = BUFFER(1024);

    if (target->link != NULL)
        buffer_printf(&text, "link %s", target->link);
    for (size_t i = 0; target->nodes != NULL && target->nodes[i] != NULL; i++)
        buffer_printf(&text, "%s%s", i == 0 ? "node " : ", ", target->nodes[i]);
    if (target->role != NULL)
        buffer_printf(&text, "role %s", target->role);
    if (target->zone != NULL)
        buffer_printf(&text, "%szone %s", text.length > 0 ? " in " : "", target->zone);
    if (target->nodes == NULL && target->mode != TARGET_ONE)
        buffer_printf(&text, ", %s", mode_text(arena, target));
    if (target->process != NULL)
        buffer_printf(&text, ", process %s", target->process);
    return arena_strdup(arena, buffer_text(&text));
}

json_t *target_json(const struct target *target)
{
    static const char *const modes[] = {[TARGET_ONE] = "one",
                                        [TARGET_ALL] = "all",
                                        [TARGET_COUNT] = "count",
                                        [TARGET_PERCENT] = "percent"};
    json_t *json = json_object();

    if (target->nodes != NULL) {
        json_t *nodes = json_array();
        for (size_t i = 0; target->nodes[i] != NULL; i++)
            json_array_append_new(nodes, json_string(target->nodes[i]));
        json_object_set_new(json, "node", nodes);
    }
    if (target->role != NULL)
        json_object_set_new(json, "role", json_string(target->role));
    if (target->zone != NULL)
        json_object_set_new(json, "zone", json_string(target->zone));
    if (target->process != NULL)
        json_object_set_new(json, "process", json_string(target->process));
    if (target->link != NULL)
        json_object_set_new(json, "link", json_string(target->link));
    json_object_set_new(json, "mode", json_string(modes[target->mode]));
    if (target->mode == TARGET_COUNT)
        json_object_set_new(json, "count", json_integer(target->count));
    if (target->mode == TARGET_PERCENT)
        json_object_set_new(json, "percent", json_real(target->percent));
    return json;
}
