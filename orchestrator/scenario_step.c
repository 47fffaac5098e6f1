/* SPDX-License-Identifier: MIT */
/*
 * The steps of a method and the checks of a scenario, read against the tables of the faults and
 * checks.
 */
#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "lib/units.h"
#include "orchestrator/checks/check.h"
#include "orchestrator/scenario.h"

enum { STEPS_MAX = 200, NODES_PARAMS_MAX = 4, WORDS_MAX = 200 };

#define HOLD_MIN_MS 100
#define HOLD_MAX_MS 86400000

struct step_fields {
    const char *name, *fault, *power, *at, *after, *with_step;
    int64_t pause_ms, hold_ms;
    const struct yaml_node *target, *with, *expect;
    bool optional;
};

#define FIELD(key, kind, member, ...)                                                              \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(struct step_fields, member), __VA_ARGS__     \
    }

static const struct yaml_field step_fields[] = {
    FIELD("name", YAML_TEXT, name),
    FIELD("fault", YAML_TEXT, fault),
    FIELD("power", YAML_CHOICE, power, .choices = "on"),
    FIELD("pause", YAML_DURATION, pause_ms, .minimum = 1, .maximum = HOLD_MAX_MS),
    FIELD("target", YAML_NODE, target),
    FIELD("with", YAML_NODE, with),
    FIELD("for", YAML_DURATION, hold_ms, .minimum = HOLD_MIN_MS, .maximum = HOLD_MAX_MS),
    FIELD("at", YAML_TEXT, at),
    FIELD("after", YAML_TEXT, after),
    FIELD("with-step", YAML_TEXT, with_step),
    FIELD("expect", YAML_NODE, expect),
    FIELD("optional", YAML_BOOLEAN, optional),
    {.type = YAML_END},
};

/* ---- expectations ---- */

static const struct yaml_field expect_fields[] = {
    {.name = "failover",
     .type = YAML_CHOICE,
     .offset = offsetof(struct step, expect_failover),
     .choices = "yes|no|any"},
    {.name = "writes",
     .type = YAML_CHOICE,
     .offset = offsetof(struct step, expect_writes),
     .choices = "continue|stall|any"},
    {.type = YAML_END},
};

/* ---- faults ---- */

static const struct fault *find_fault(struct scenario_reading *reading, const struct yaml_node *at,
                                      const char *name)
{
    const struct fault *fault = fault_find(name);
    const struct fault *const *list = fault_list();
    const char *words[WORDS_MAX + 1] = {NULL};

    if (fault != NULL)
        return fault;
    for (size_t i = 0; i < WORDS_MAX && list[i] != NULL; i++)
        words[i] = list[i]->name;
    const char *near = nearest_word(name, words);
    if (near != NULL)
        yaml_complain(reading->errors, at, "unknown fault %s, did you mean %s?", name, near);
    else
        yaml_complain(reading->errors, at, "unknown fault %s; `ordeal faults` lists them", name);
    return NULL;
}

static const struct yaml_node *empty_at(struct arena *arena, const struct yaml_node *at)
{
    struct yaml_node *empty = arena_alloc(arena, sizeof *empty);

    *empty = (struct yaml_node){
        .kind = YAML_MAPPING, .line = at->line, .column = at->column, .text = ""};
    return empty;
}

static struct yaml_node *scalar_at(struct arena *arena, const struct yaml_node *at,
                                   const char *text)
{
    struct yaml_node *node = arena_alloc(arena, sizeof *node);

    *node = (struct yaml_node){
        .kind = YAML_SCALAR, .line = at->line, .column = at->column, .text = text};
    return node;
}

/* The mapping with one more pair; the given one stays as it is. */
static const struct yaml_node *with_pair(struct arena *arena, const struct yaml_node *mapping,
                                         const char *key, const char *value)
{
    struct yaml_node *longer = arena_alloc(arena, sizeof *longer);

    *longer = *mapping;
    longer->keys = arena_grow(arena, mapping->keys, mapping->count, mapping->count + 1,
                              sizeof(struct yaml_node *));
    longer->items = arena_grow(arena, mapping->items, mapping->count, mapping->count + 1,
                               sizeof(struct yaml_node *));
    longer->keys[mapping->count] = scalar_at(arena, mapping, key);
    longer->items[mapping->count] = scalar_at(arena, mapping, value);
    longer->count++;
    return longer;
}

/* `process` of the target and the far side of a link are parameters of the fault. */
static const struct yaml_node *add_from_target(struct scenario_reading *reading, struct step *step,
                                               const struct yaml_node *with)
{
    struct target *target = &step->target;
    const struct param *params = step->fault->params;

    if (target->process != NULL && param_find(params, "process") == NULL)
        yaml_complain(reading->errors, step->at, "fault %s acts on a node, not on a process",
                      step->fault->name);
    else if (target->process != NULL && yaml_get(with, "process") != NULL)
        yaml_complain(reading->errors, step->at, "process is given in target and in with");
    else if (target->process != NULL)
        with = with_pair(reading->arena, with, "process", target->process);
    if (target->link == NULL)
        return with;
    struct target far = target_link_side(reading->arena, target, true);
    *target = target_link_side(reading->arena, target, false);
    if (param_find(params, "peers") == NULL)
        yaml_complain(reading->errors, step->at, "fault %s does not act on a link",
                      step->fault->name);
    else if (yaml_get(with, "peers") != NULL)
        yaml_complain(reading->errors, step->at, "the link names the peers already");
    else if (far.role != NULL)
        with = with_pair(reading->arena, with, "peers", far.role);
    return with;
}

static void read_nodes_params(struct scenario_reading *reading, struct step *step,
                              const struct yaml_node *with)
{
    step->nodes = arena_array(reading->arena, NODES_PARAMS_MAX, sizeof *step->nodes);
    for (const struct param *param = step->fault->params; param->type != PARAM_END; param++) {
        const struct yaml_node *node = yaml_get(with, param->name);

        if (param->type != PARAM_NODES || step->node_count == NODES_PARAMS_MAX)
            continue;
        struct step_nodes *slot = &step->nodes[step->node_count];
        slot->name = param->name;
        if (node == NULL && param->fallback != NULL)
            node = scalar_at(reading->arena, step->at, param->fallback);
        if (node == NULL)
            continue;
        target_read(node, reading->topology, TARGET_ALL, reading->errors, &slot->target);
        step->node_count++;
    }
}

/* The fault's own validation; node lists are not resolved yet, so a stand-in takes their place. */
static void validate_fault(struct scenario_reading *reading, const struct step *step)
{
    OWNED_JSON json_t *params = json_deep_copy(step->params);
    struct error error = {0};

    for (size_t i = 0; i < step->node_count; i++)
        json_object_set_new(params, step->nodes[i].name, json_pack("[s]", "node"));
    if (fault_validate(step->fault, params, &error) != STATUS_OK)
        yaml_complain(reading->errors, step->at, "%s%s%s", error.message,
                      error.hint[0] != '\0' ? "; " : "", error.hint);
}

static void check_hold(struct scenario_reading *reading, const struct step *step)
{
    if (step->fault->holds && step->hold_ms == 0)
        yaml_complain(reading->errors, step->at,
                      "fault %s lasts until it is undone: `for` is missing", step->fault->name);
    if (!step->fault->holds && step->hold_ms != 0)
        yaml_complain(reading->errors, step->at,
                      "fault %s happens at an instant: `for` has no meaning", step->fault->name);
}

static void read_fault_step(struct scenario_reading *reading, struct step *step,
                            const struct step_fields *fields)
{
    size_t before = reading->errors->count;

    step->fault = find_fault(reading, yaml_get(step->at, "fault"), fields->fault);
    if (fields->target == NULL)
        yaml_complain(reading->errors, step->at, "step %s has no target", step->name);
    else
        target_read(fields->target, reading->topology, TARGET_ONE, reading->errors, &step->target);
    step->hold_ms = fields->hold_ms;
    if (step->fault == NULL)
        return;
    const struct yaml_node *with =
        fields->with != NULL ? fields->with : empty_at(reading->arena, step->at);
    if (with->kind == YAML_MAPPING)
        with = add_from_target(reading, step, with);
    step->params =
        scenario_own(reading->arena, yaml_read_params(with, step->fault->params, reading->errors));
    read_nodes_params(reading, step, with);
    check_hold(reading, step);
    if (reading->errors->count == before)
        validate_fault(reading, step);
}

/* ---- power and pause ---- */

static void refuse_extra(struct scenario_reading *reading, const struct step *step, const char *key)
{
    const struct yaml_node *node = yaml_get(step->at, key);

    if (node != NULL)
        yaml_complain(reading->errors, node, "%s has no meaning in this step", key);
}

static void read_power_step(struct scenario_reading *reading, struct step *step,
                            const struct step_fields *fields)
{
    refuse_extra(reading, step, "with");
    refuse_extra(reading, step, "for");
    if (fields->target == NULL)
        yaml_complain(reading->errors, step->at, "step %s has no target", step->name);
    else
        target_read(fields->target, reading->topology, TARGET_ONE, reading->errors, &step->target);
}

static void read_pause_step(struct scenario_reading *reading, struct step *step,
                            const struct step_fields *fields)
{
    refuse_extra(reading, step, "target");
    refuse_extra(reading, step, "with");
    refuse_extra(reading, step, "for");
    step->pause_ms = fields->pause_ms;
}

/* ---- when ---- */

static bool find_step(const struct scenario *scenario, const char *name, size_t *ret_index)
{
    for (size_t i = 0; i < scenario->step_count; i++) {
        if (scenario->steps[i].name != NULL && strcmp(scenario->steps[i].name, name) == 0) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

static void refer(struct scenario_reading *reading, struct step *step, const char *key,
                  const char *name)
{
    const struct scenario *scenario = reading->scenario;
    const struct yaml_node *at = yaml_get(step->at, key);
    const char *words[STEPS_MAX + 1] = {NULL};

    if (find_step(scenario, name, &step->reference)) {
        if (&scenario->steps[step->reference] == step)
            yaml_complain(reading->errors, at, "step %s refers to itself", name);
        return;
    }
    for (size_t i = 0; i < scenario->step_count; i++)
        words[i] = scenario->steps[i].name;
    const char *near = nearest_word(name, words);
    yaml_complain(reading->errors, at, "%s: unknown step %s%s%s%s", key, name,
                  near != NULL ? ", did you mean " : "", near != NULL ? near : "",
                  near != NULL ? "?" : "");
}

static const char *trimmed(struct arena *arena, const char *from, size_t length)
{
    while (length > 0 && isspace((unsigned char) *from)) {
        from++;
        length--;
    }
    while (length > 0 && isspace((unsigned char) from[length - 1]))
        length--;
    return arena_strndup(arena, from, length);
}

/* "30s", "STEP" or "STEP + 20s". */
static void read_at(struct scenario_reading *reading, struct step *step, const char *text)
{
    const char *plus = strchr(text, '+');
    const char *first =
        trimmed(reading->arena, text, plus != NULL ? (size_t) (plus - text) : strlen(text));
    struct error error = {0};

    if (plus == NULL && isdigit((unsigned char) *first)) {
        step->timing = STEP_AT_START;
        if (units_duration(first, &step->offset_ms, &error) != STATUS_OK)
            yaml_complain(reading->errors, yaml_get(step->at, "at"), "at: %s", error.message);
        return;
    }
    step->timing = STEP_AT_STEP;
    refer(reading, step, "at", first);
    if (plus == NULL)
        return;
    const char *offset = trimmed(reading->arena, plus + 1, strlen(plus + 1));
    if (units_duration(offset, &step->offset_ms, &error) != STATUS_OK)
        yaml_complain(reading->errors, yaml_get(step->at, "at"), "at: %s", error.message);
}

static void read_timing(struct scenario_reading *reading, struct step *step,
                        const struct step_fields *fields)
{
    int given = (fields->at != NULL) + (fields->after != NULL) + (fields->with_step != NULL);

    if (given > 1)
        yaml_complain(reading->errors, step->at, "give one of at, after and with-step");
    if (fields->at != NULL) {
        read_at(reading, step, fields->at);
    } else if (fields->after != NULL) {
        step->timing = STEP_AFTER;
        refer(reading, step, "after", fields->after);
    } else if (fields->with_step != NULL) {
        step->timing = STEP_AT_STEP;
        refer(reading, step, "with-step", fields->with_step);
    }
}

/* ---- all steps ---- */

static void check_name(struct scenario_reading *reading, const struct step *step, size_t index)
{
    size_t length = strspn(step->name, "abcdefghijklmnopqrstuvwxyz0123456789-");
    size_t other;

    if (length == 0 || length > 32 || step->name[length] != '\0' ||
        !isalpha((unsigned char) step->name[0]))
        yaml_complain(reading->errors, step->at,
                      "step name %s must begin with a letter and have up to 32 of the "
                      "characters a-z, 0-9 and -",
                      step->name);
    if (find_step(reading->scenario, step->name, &other) && other < index)
        yaml_complain(reading->errors, step->at, "two steps are named %s", step->name);
}

static void read_step(struct scenario_reading *reading, struct step *step,
                      const struct step_fields *fields)
{
    int kinds = (fields->fault != NULL) + (fields->power != NULL) + (fields->pause_ms != 0);

    if (kinds != 1) {
        yaml_complain(reading->errors, step->at, "step %s needs one of fault, power and pause",
                      step->name);
        return;
    }
    step->optional = fields->optional;
    step->expect_failover = "any";
    step->expect_writes = "any";
    if (fields->expect != NULL)
        yaml_read(fields->expect, expect_fields, step, reading->errors);
    read_timing(reading, step, fields);
    if (fields->fault != NULL) {
        step->kind = STEP_FAULT;
        read_fault_step(reading, step, fields);
    } else if (fields->power != NULL) {
        step->kind = STEP_POWER;
        read_power_step(reading, step, fields);
    } else {
        step->kind = STEP_PAUSE;
        read_pause_step(reading, step, fields);
    }
}

void scenario_read_steps(struct scenario_reading *reading, const struct yaml_node *method)
{
    struct scenario *scenario = reading->scenario;

    if (method->kind != YAML_SEQUENCE || method->count > STEPS_MAX) {
        yaml_complain(reading->errors, method, "method must be a list of at most %d steps",
                      STEPS_MAX);
        return;
    }
    struct step_fields *fields = arena_array(reading->arena, method->count + 1, sizeof *fields);
    scenario->steps = arena_array(reading->arena, method->count + 1, sizeof *scenario->steps);
    scenario->step_count = method->count;
    for (size_t i = 0; i < method->count; i++) { /* names first: steps may refer forward */
        struct step *step = &scenario->steps[i];

        step->at = method->items[i];
        yaml_read(step->at, step_fields, &fields[i], reading->errors);
        step->name = fields[i].name != NULL ? fields[i].name
                                            : arena_printf(reading->arena, "step-%zu", i + 1);
        check_name(reading, step, i);
    }
    for (size_t i = 0; i < method->count; i++)
        if (scenario->steps[i].at->kind == YAML_MAPPING)
            read_step(reading, &scenario->steps[i], &fields[i]);
}

/* ---- checks ---- */

static void complain_check(struct scenario_reading *reading, const struct yaml_node *key)
{
    const struct check *const *list = check_list();
    const char *words[WORDS_MAX + 1] = {NULL};

    for (size_t i = 0; i < WORDS_MAX && list[i] != NULL; i++)
        words[i] = list[i]->name;
    const char *near = nearest_word(key->text, words);
    if (near != NULL)
        yaml_complain(reading->errors, key, "unknown check %s, did you mean %s?", key->text, near);
    else
        yaml_complain(reading->errors, key, "unknown check %s; `ordeal checks` lists them",
                      key->text);
}

static void read_check(struct scenario_reading *reading, const struct yaml_node *key,
                       const struct yaml_node *value)
{
    const struct check *check = check_find(key->text);
    bool empty = value->kind == YAML_SCALAR && value->text[0] == '\0' && !value->quoted;

    if (check == NULL) {
        complain_check(reading, key);
        return;
    }
    json_t *params = yaml_read_params(empty ? empty_at(reading->arena, value) : value,
                                      check->params, reading->errors);
    json_object_set_new(reading->scenario->checks, check->name, params);
}

/* Without the key every check is asked for, with its defaults. */
static void all_checks(struct scenario_reading *reading)
{
    const struct check *const *list = check_list();

    for (size_t i = 0; list[i] != NULL; i++) {
        json_t *params = json_object();
        struct error ignored;

        if (param_complete(list[i]->params, params, &ignored) != STATUS_OK)
            json_object_clear(params);
        json_object_set_new(reading->scenario->checks, list[i]->name, params);
    }
}

void scenario_read_checks(struct scenario_reading *reading, const struct yaml_node *checks)
{
    reading->scenario->checks = scenario_own(reading->arena, json_object());
    if (checks == NULL) {
        all_checks(reading);
        return;
    }
    if (checks->kind != YAML_MAPPING) {
        yaml_complain(reading->errors, checks, "checks must be a mapping of check to parameters");
        return;
    }
    for (size_t i = 0; i < checks->count; i++)
        read_check(reading, checks->keys[i], checks->items[i]);
}
