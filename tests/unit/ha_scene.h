/* SPDX-License-Identifier: MIT */
/*
 * A scene for tests of the HA drivers: the topology of the model, writers that are acknowledged or
 * not, and the events that the driver told.
 *
 * Usage: setup_scene() as the fixture; fake_writing = false stops the writers; attend_for() lets
 * time pass; told() finds an event.
 */
#ifndef ORDEAL_TESTS_UNIT_HA_SCENE_H
#define ORDEAL_TESTS_UNIT_HA_SCENE_H

#include "tests/support/suite.h"
#include "tests/unit/ha_fake.h"
#include "topologies/ha/ha.h"

enum { SCENE_EVENTS = 200 };

static struct scene_event {
    const char *name;
    char node[8], text[1024];
    json_t *details;
    int64_t at_ns;
} scene_events[SCENE_EVENTS];
static size_t scene_event_count;
static bool fake_writing = true, fake_silent_load;
static int64_t scene_ack_ns;
static struct topology scene_topology;
static const char *const power_argv[] = {"power", "{node}", NULL};
static struct ha scene;

static inline void scene_tell(void *argument, const char *event, const char *node, json_t *details)
{
    struct scene_event *kept = &scene_events[scene_event_count++];

    (void) argument;
    ck_assert_uint_le(scene_event_count, SCENE_EVENTS);
    *kept = (struct scene_event){.name = event, .details = details, .at_ns = fake_now_ns};
    snprintf(kept->node, sizeof kept->node, "%s", node);
    snprintf(kept->text, sizeof kept->text, "%s", json_text(details, "text", ""));
}

/* Writers go on while the endpoint is open on a primary that acknowledges. */
static inline int64_t scene_last_ack(void *argument)
{
    const struct model_node *node = fake_route == NULL ? NULL : model_at(fake_route);

    (void) argument;
    if (fake_silent_load)
        return 0;
    if (fake_writing && node != NULL && model_acknowledges(node) && !node->cut && !node->silent)
        scene_ack_ns = fake_now_ns;
    return scene_ack_ns;
}

static inline void setup_scene(void)
{
    model_healthy();
    scene_topology = (struct topology){.name = "scene", .node_count = 5, .nodes = model_nodes};
    scene_topology.promise.durability = "quorum";
    scene_topology.ha.manager = "manual";
    scene_topology.ha.fence = "control";
    scene_topology.ha.management_network = true;
    scene_topology.ha.detect_ms = 1000;
    scene_topology.endpoint.managed = true;
    scene_topology.power.off = scene_topology.power.on = power_argv;
    scene =
        (struct ha){.topology = &scene_topology, .event = scene_tell, .last_ack = scene_last_ack};
}

static inline void begin(const char *driver)
{
    struct error err = {0};

    scene.driver = ha_find(driver);
    ck_assert_ptr_nonnull(scene.driver);
    ck_assert_msg(scene.driver->begin(&scene, &err) == STATUS_OK, "begin: %s", err.message);
    scene_ack_ns = fake_now_ns;
}

/* Attend every 50 ms for as long. */
static inline void attend_for(int64_t ms)
{
    struct error err = {0};
    int64_t until_ns = fake_now_ns + ms * NS_PER_MS;

    while (fake_now_ns < until_ns) {
        ck_assert_msg(scene.driver->attend(&scene, &err) == STATUS_OK, "attend: %s", err.message);
        fake_now_ns += 50 * NS_PER_MS;
        model_flow();
    }
}

/* The last event of this name; the test fails when there is none. */
static inline const struct scene_event *told(const char *name)
{
    for (size_t i = scene_event_count; i > 0; i--)
        if (strcmp(scene_events[i - 1].name, name) == 0)
            return &scene_events[i - 1];
    ck_abort_msg("no event %s; the last: %s\n%s", name,
                 scene_event_count == 0 ? "none" : scene_events[scene_event_count - 1].text,
                 buffer_text(&fake_calls));
}

static inline size_t times_told(const char *name)
{
    size_t times = 0;

    for (size_t i = 0; i < scene_event_count; i++)
        times += strcmp(scene_events[i].name, name) == 0;
    return times;
}

/* Position of a call in the order of calls; -1 when it was not made. */
static inline long called(const char *call)
{
    const char *at = strstr(buffer_text(&fake_calls), call);

    return at == NULL ? -1 : at - buffer_text(&fake_calls);
}

static inline void crash_server(const char *name)
{
    model_at(name)->running = model_at(name)->accepting = false;
}

static inline void end_scene(void)
{
    scene.driver->end(&scene);
    for (size_t i = 0; i < scene_event_count; i++)
        json_decref(scene_events[i].details);
    buffer_done(&fake_calls);
}

#endif
