/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "lib/json.h"
#include "topologies/ha/decide.h"

enum { START_TRIES = 2, POINT_TRIES = 3 };

static bool points_to(const struct ha_member *member, const struct ha_member *primary)
{
    const char *host = json_text(member->state, "primary_conninfo_host", "");

    return strcmp(host, primary->node->address) == 0 || strcmp(host, primary->node->name) == 0;
}

/* A server that does not come up or does not follow: rewind it, and then build it anew. */
static enum repair harder(const struct patient *patient)
{
    return patient->last == REPAIR_REWIND || patient->last == REPAIR_REBUILD ? REPAIR_REBUILD
                                                                             : REPAIR_REWIND;
}

static enum repair repair_down(const struct patient *patient, const struct ha_member *member,
                               const struct ha_member *primary)
{
    bool gone = !json_flag(member->state, "data_exists", true);

    if (primary == NULL)
        return patient->deposed || gone ? REPAIR_WAIT : REPAIR_START;
    if (gone)
        return REPAIR_REBUILD;
    if (patient->deposed)
        return harder(patient);
    return patient->failed < START_TRIES ? REPAIR_START : harder(patient);
}

static enum repair repair_standby(const struct patient *patient, const struct ha_member *member,
                                  const struct ha_member *primary, bool fresh)
{
    if (primary == NULL)
        return REPAIR_WAIT;
    if (!points_to(member, primary))
        return patient->failed < POINT_TRIES ? REPAIR_POINT : harder(patient);
    if (member->streaming && member->timeline == primary->timeline)
        return REPAIR_NOTHING;
    return fresh ? REPAIR_WAIT : harder(patient);
}

enum repair repair_next(const struct patient *patient, const struct ha_member *member,
                        const struct ha_member *primary, bool has_power, int64_t patience_ms)
{
    bool fresh = patient->since_ms < patience_ms;

    if (member == primary)
        return REPAIR_NOTHING;
    if (!member->reachable)
        return has_power && (patient->last != REPAIR_POWER_ON || !fresh) ? REPAIR_POWER_ON
                                                                         : REPAIR_WAIT;
    if (member->primary)
        return primary != NULL && member->timeline < primary->timeline ? REPAIR_FENCE : REPAIR_WAIT;
    if (member->running)
        return repair_standby(patient, member, primary, fresh);
    if (json_flag(member->state, "running", false))
        return fresh ? REPAIR_WAIT : REPAIR_FENCE;
    return repair_down(patient, member, primary);
}

const char *repair_name(enum repair repair)
{
    static const char *const names[] = {
        [REPAIR_NOTHING] = "nothing", [REPAIR_WAIT] = "wait",      [REPAIR_POWER_ON] = "power on",
        [REPAIR_FENCE] = "fence",     [REPAIR_START] = "start",    [REPAIR_POINT] = "streaming",
        [REPAIR_REWIND] = "rewind",   [REPAIR_REBUILD] = "rebuild"};

    return names[repair];
}
