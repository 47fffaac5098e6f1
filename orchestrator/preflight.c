/* SPDX-License-Identifier: MIT */
#include "orchestrator/preflight.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/engine_state.h"
#include "orchestrator/plan.h"

enum {
    ASK_MS = 15000,
    NAMES_MAX = 64,
    FREE_PERCENT_MIN = 10, /* of a volume under test */
    LOCAL_MIB_MIN = 64     /* under the run directory */
};

#define MIB INT64_C(1048576)

/* ---- rules ---- */

bool preflight_weaker(const char *synchronous_commit, const char *promise)
{
    /* remote_write is not flushed on the standby: it dies with the standby's host */
    static const char *const quorum[] = {"on", "remote_apply", NULL};
    static const char *const local[] = {"on", "remote_apply", "remote_write", "local", NULL};
    const char *const *enough = strcmp(promise, "quorum") == 0  ? quorum
                                : strcmp(promise, "local") == 0 ? local
                                                                : NULL;

    for (; enough != NULL && *enough != NULL; enough++)
        if (strcasecmp(*enough, synchronous_commit) == 0)
            return false;
    return enough != NULL;
}

/* Next name of a sync set: words and quoted names, without the keyword and the number. */
static bool next_name(const char **at, char name[64])
{
    size_t length = 0;

    while (**at != '\0' && (isspace((unsigned char) **at) || strchr(",()", **at) != NULL))
        (*at)++;
    if (**at == '\0')
        return false;
    if (**at == '"') {
        for ((*at)++; **at != '\0' && **at != '"' && length < 63; (*at)++)
            name[length++] = **at;
        if (**at == '"')
            (*at)++;
    } else {
        for (; **at != '\0' && !isspace((unsigned char) **at) && strchr(",()", **at) == NULL &&
               length < 63;
             (*at)++)
            name[length++] = (char) tolower((unsigned char) **at);
    }
    name[length] = '\0';
    return true;
}

/* "ANY 1 (", "FIRST 2 (", "2 (": where the list of names begins. */
static const char *list_of(const char *sync_set)
{
    const char *open = strchr(sync_set, '(');

    return open != NULL ? open + 1 : sync_set;
}

enum status preflight_sync_set(const char *sync_set, const char *promise, struct error *err)
{
    char names[NAMES_MAX][64];
    size_t count = 0;
    const char *at = list_of(sync_set);

    if (strcmp(promise, "quorum") != 0)
        return STATUS_OK;
    if (sync_set[0] == '\0')
        return error_set(err, STATUS_REFUSED,
                         "synchronous_standby_names is empty: commits wait for no standby, and "
                         "the topology promises a quorum");
    while (count < NAMES_MAX && next_name(&at, names[count])) {
        if (strcmp(names[count], "*") == 0)
            return error_set(err, STATUS_REFUSED,
                             "synchronous_standby_names '%s' has a wildcard: nobody knows which "
                             "standby acknowledged",
                             sync_set);
        for (size_t i = 0; i < count; i++)
            if (strcasecmp(names[i], names[count]) == 0)
                return error_set(err, STATUS_REFUSED,
                                 "synchronous_standby_names '%s' names %s twice: one standby would "
                                 "count as two",
                                 sync_set, names[count]);
        count++;
    }
    return STATUS_OK;
}

/* ---- findings ---- */

void preflight_find(struct engine *engine, const char *level, const char *finding, const char *node,
                    const char *text, const char *hint)
{
    json_t *event = json_pack("{s:s, s:s, s:s}", "level", level, "finding", finding, "text", text);

    if (hint != NULL && hint[0] != '\0')
        json_object_set_new(event, "hint", json_string(hint));
    if (node != NULL)
        json_object_set_new(event, "node", json_string(node));
    journal_event(engine->journal, "preflight", event);
}

/* All findings are told; the first refusal is the reason. */
struct looking {
    struct engine *engine;
    struct arena *arena;
    struct ha_state state;
    size_t refusals, refusals_power;
    struct error first;
};

static void refuse(struct looking *looking, const char *finding, const char *node, const char *hint,
                   const char *format, ...) PRINTF_LIKE(5, 6);

static void refuse(struct looking *looking, const char *finding, const char *node, const char *hint,
                   const char *format, ...)
{
    char text[900];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    preflight_find(looking->engine, "refuse", finding, node, text, hint);
    if (looking->refusals++ > 0)
        return;
    error_set(&looking->first, STATUS_REFUSED, "%s%s%s", node != NULL ? node : "",
              node != NULL ? ": " : "", text);
    error_hint(&looking->first, "%s", hint);
}

static void warn(struct looking *looking, const char *finding, const char *node, const char *text)
{
    preflight_find(looking->engine, "warn", finding, node, text, NULL);
}

/* ---- what the topology lacks for this scenario ---- */

/* Optional steps are skipped when their time comes, as long as something else is done at all. */
static void look_at_power(struct looking *looking)
{
    const struct engine *engine = looking->engine;
    const struct scenario *scenario = engine->scenario;
    bool rest = false;

    if (topology_has_power(engine->topology))
        return;
    for (size_t i = 0; i < scenario->step_count; i++)
        rest = rest ||
               (scenario->steps[i].kind == STEP_FAULT && !plan_needs_power(&scenario->steps[i]));
    for (size_t i = 0; i < scenario->step_count; i++) {
        const struct step *step = &scenario->steps[i];

        if (!plan_needs_power(step) || (step->optional && rest))
            continue;
        looking->refusals_power++;
        refuse(looking, "no-power", NULL,
               "Give the topology a power section and a node with the role power.",
               "step %s needs a power driver (%s)%s", step->name,
               step->kind == STEP_POWER ? "power" : step->fault->name,
               step->optional ? ", and without it the scenario does nothing" : "");
    }
}

static void look_at_manager(struct looking *looking)
{
    const struct engine *engine = looking->engine;

    if (!engine->ha.driver->acts && engine->topology->endpoint.managed)
        refuse(looking, "routing", NULL,
               "Say routing: hosts in the topology, or use a manager that acts.",
               "endpoint routing is left to the HA manager, and '%s' changes nothing",
               engine->ha.driver->name);
}

static void look_at_roles(struct looking *looking)
{
    const struct topology *topology = looking->engine->topology;

    if (topology_first(topology, ROLE_CLIENT) == NULL)
        refuse(looking, "no-client", NULL, "Give a node outside the cluster the role client.",
               "the topology has no node with the role client to write from");
    if (strcmp(topology->ha.fence, "none") == 0)
        warn(looking, "no-fence", NULL,
             "the topology declares no way to fence: a deposed primary stays unfenced");
    if (strcmp(topology->promise.durability, "quorum") != 0)
        warn(looking, "promise", NULL,
             "the topology promises less than a quorum: lost commits are counted, not judged");
}

/* ---- leftovers of another run ---- */

static void look_at_leftovers(struct looking *looking)
{
    struct engine *engine = looking->engine;
    size_t count = engine->topology->node_count;
    struct cluster_request *requests = arena_array(looking->arena, count, sizeof *requests);

    for (size_t i = 0; i < count; i++)
        requests[i] = (struct cluster_request){
            .node = engine->topology->nodes[i].name, .method = "fault.list", .timeout_ms = ASK_MS};
    cluster_call_all(engine->cluster, requests, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *faults = json_object_get(requests[i].result, "faults");

        if (requests[i].status != STATUS_OK)
            refuse(looking, "unreachable", requests[i].node, requests[i].error.hint, "%s",
                   requests[i].error.message);
        for (size_t j = 0; j < json_array_size(faults); j++) {
            const json_t *fault = json_array_get(faults, j);

            refuse(looking, "open-fault", requests[i].node, "Undo it first: ordeal recover.",
                   "fault %s (%s) of run %s is still open", json_text(fault, "fault", "?"),
                   json_text(fault, "uid", "?"), json_text(fault, "run", "?"));
        }
        json_decref(requests[i].result);
    }
}

/* ---- the cluster ---- */

static const char *problem_of(const struct ha_member *member)
{
    return member->problem != NULL ? member->problem : "it does not accept connections";
}

static enum status look_at_cluster(struct looking *looking, struct error *err)
{
    struct engine *engine = looking->engine;
    struct error why = {0};
    enum status status =
        engine->ha.driver->state(&engine->ha, looking->arena, &looking->state, err);

    if (status != STATUS_OK)
        return status;
    engine_journal_members(engine, &looking->state, true);
    for (size_t i = 0; i < looking->state.count; i++) {
        const struct ha_member *member = &looking->state.members[i];

        if (!member->running)
            refuse(looking, "postgres-down", member->node->name,
                   "Start PostgreSQL there, or repair it, and try again.", "%s",
                   problem_of(member));
    }
    if (looking->state.paused)
        refuse(looking, "paused", NULL, "Resume the HA manager.", "the HA manager is paused");
    if (!ha_healthy(&looking->state, &why))
        refuse(looking, "unhealthy", NULL,
               "Repair the cluster first: a run tells nothing about a cluster that was broken "
               "before.",
               "%s", why.message);
    if (looking->state.primary != NULL)
        snprintf(engine->first_writer, sizeof engine->first_writer, "%s",
                 looking->state.primary->name);
    return STATUS_OK;
}

/* ---- settings ---- */

static void want_setting(struct looking *looking, const char *node, const json_t *settings,
                         const char *name, bool must, const char *text)
{
    const char *value = json_text(settings, name, "");

    if (strcmp(value, "on") == 0)
        return;
    if (value[0] == '\0')
        warn(looking, name, node, "the setting could not be read");
    else if (must)
        refuse(looking, name, node, "Switch it on and restart PostgreSQL.", "%s = %s: %s", name,
               value, text);
    else
        warn(looking, name, node, text);
}

static void look_at_own_setting(struct looking *looking, const char *node, const json_t *own)
{
    const char *promise = looking->engine->topology->promise.durability;
    const char *setting = json_text(own, "setting", "");
    const char *value = json_text(own, "value", "");
    const char *scope = json_text(own, "scope", "?"), *name = json_text(own, "name", "?");

    if (strcmp(setting, "synchronous_commit") == 0 && preflight_weaker(value, promise))
        refuse(looking, "own-synchronous-commit", node,
               "Reset it: its commits are acknowledged below the promise.",
               "%s %s sets synchronous_commit = %s, weaker than the promise %s", scope, name, value,
               promise);
}

static void look_at_durability(struct looking *looking, const char *node, const json_t *answer)
{
    const char *promise = looking->engine->topology->promise.durability;
    const json_t *settings = json_object_get(answer, "settings");
    const json_t *own = json_object_get(answer, "own_settings");
    const char *commit = json_text(settings, "synchronous_commit", "");
    struct error error = {0};

    if (preflight_weaker(commit, promise))
        refuse(looking, "synchronous-commit", node, "Set it to on.",
               "synchronous_commit = %s is weaker than the promise %s", commit, promise);
    if (preflight_sync_set(json_text(settings, "synchronous_standby_names", ""), promise, &error) !=
        STATUS_OK)
        refuse(looking, "sync-set", node, "Name each standby once.", "%s", error.message);
    for (size_t i = 0; i < json_array_size(own); i++)
        look_at_own_setting(looking, node, json_array_get(own, i));
}

static void look_at_volumes(struct looking *looking, const char *node, const json_t *answer)
{
    const json_t *volumes = json_object_get(answer, "volumes");
    int64_t data_bytes = json_number(answer, "data_bytes", 0);

    for (size_t i = 0; i < json_array_size(volumes); i++) {
        const json_t *volume = json_array_get(volumes, i);
        const char *path = json_text(volume, "path", "?");
        int64_t free_bytes = json_number(volume, "free_bytes", 0);
        int64_t total = json_number(volume, "total_bytes", 0);

        if (free_bytes * 100 < total * FREE_PERCENT_MIN)
            refuse(looking, "disk", node, "Make room on the volume.",
                   "%s has %" PRId64 " MiB free of %" PRId64 " MiB, less than %d %%", path,
                   free_bytes / MIB, total / MIB, FREE_PERCENT_MIN);
        else if (free_bytes < data_bytes)
            warn(looking, "disk-rebuild", node,
                 "the volume has less room than the data: a rebuild cannot keep the old copy");
    }
}

static void look_at_logins(struct looking *looking, const char *node, const json_t *answer)
{
    const json_t *logins = json_object_get(answer, "logins");

    for (size_t i = 0; i < json_array_size(logins); i++) {
        const json_t *login = json_array_get(logins, i);

        if (!json_flag(login, "ok", false))
            refuse(looking, "login", node,
                   "Check the password file on that node, pg_hba.conf and the role.",
                   "user %s does not get in: %s", json_text(login, "user", "?"),
                   json_text(login, "error", "no reason given"));
    }
}

/* The copy is whole, and it shows itself late: what reads there, and what promotes it, waits. */
static void look_at_delay(struct looking *looking, const char *node, const json_t *settings)
{
    int64_t delay_ms = strtoll(json_text(settings, "recovery_min_apply_delay", "0"), NULL, 10);

    if (delay_ms > 0)
        warn(looking, "apply-delay", node,
             arena_printf(looking->arena,
                          "recovery_min_apply_delay = %" PRId64
                          " ms: its rows are old, and its promotion waits for them",
                          delay_ms));
}

static void look_at_answer(struct looking *looking, const struct ha_member *member,
                           const json_t *answer)
{
    const char *node = member->node->name;
    const json_t *settings = json_object_get(answer, "settings");

    want_setting(looking, node, settings, "fsync", true,
                 "acknowledged commits are not on disk, and a crash may destroy the cluster");
    want_setting(looking, node, settings, "full_page_writes", false,
                 "full_page_writes is off: torn pages after a crash are not repaired");
    want_setting(looking, node, settings, "data_checksums", false,
                 "data checksums are off: damaged pages are not noticed");
    if (member->primary)
        look_at_durability(looking, node, answer);
    else
        look_at_delay(looking, node, settings);
    look_at_volumes(looking, node, answer);
    look_at_logins(looking, node, answer);
}

static void look_at_settings(struct looking *looking)
{
    struct engine *engine = looking->engine;
    size_t count = looking->state.count;
    struct cluster_request *requests = arena_array(looking->arena, count, sizeof *requests);

    for (size_t i = 0; i < count; i++)
        requests[i] = (struct cluster_request){.node = looking->state.members[i].node->name,
                                               .method = "postgres.preflight",
                                               .timeout_ms = ASK_MS};
    cluster_call_all(engine->cluster, requests, count);
    for (size_t i = 0; i < count; i++) {
        if (requests[i].status == STATUS_OK)
            look_at_answer(looking, &looking->state.members[i], requests[i].result);
        else if (looking->state.members[i].running)
            refuse(looking, "settings", requests[i].node, requests[i].error.hint, "%s",
                   requests[i].error.message);
        json_decref(requests[i].result);
    }
}

/* ---- this host ---- */

static void look_at_folder(struct looking *looking)
{
    const char *folder = looking->engine->options->folder;
    struct statvfs info;

    if (statvfs(folder, &info) != 0)
        return;
    int64_t free_mib = (int64_t) info.f_bavail * (int64_t) info.f_frsize / MIB;
    if (free_mib < LOCAL_MIB_MIN)
        refuse(looking, "run-directory", NULL, "Make room, or choose another place with -o.",
               "the run directory's file system has %" PRId64 " MiB free, %d are needed", free_mib,
               LOCAL_MIB_MIN);
}

/* ---- the plan on this cluster ---- */

/*
 * On a healthy cluster every target has nodes and no two faults exclude each other; a step that
 * will not find its target is better known now.
 */
static void look_at_plan(struct looking *looking)
{
    OWNED_BUFFER struct buffer text = BUFFER(1024 * 1024);
    struct engine *engine = looking->engine;
    struct error error = {0};

    if (looking->state.primary == NULL ||
        plan_text(looking->arena, engine->scenario, engine->topology, &looking->state,
                  engine->options->seed, &text, &error) == STATUS_OK)
        return;
    refuse(looking, "plan", NULL, "`ordeal plan` shows what each step would act on.", "%s",
           error.message);
}

enum status preflight_run(struct engine *engine, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct looking looking = {.engine = engine, .arena = arena};

    look_at_folder(&looking);
    look_at_roles(&looking);
    look_at_power(&looking);
    look_at_manager(&looking);
    look_at_leftovers(&looking);
    enum status status = look_at_cluster(&looking, err);
    if (status != STATUS_OK)
        return status;
    look_at_plan(&looking);
    look_at_settings(&looking);
    if (looking.refusals == 0)
        return journal_failure(engine->journal, err);
    *err = looking.first;
    engine->refused_power = looking.refusals == looking.refusals_power;
    if (looking.refusals > 1)
        error_detail(err, "%zu findings in all", looking.refusals);
    return STATUS_REFUSED;
}
