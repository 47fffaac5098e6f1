/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "lib/owned.h"
#include "orchestrator/target.h"
#include "tests/support/suite.h"

/* n1 is primary, n2 a synchronous standby, n3 a standby that lags, n4 is down; c1 is a client. */
static struct topology_node nodes[] = {
    {.name = "n1", .zone = "a", .roles = ROLE_DATABASE},
    {.name = "n2", .zone = "b", .roles = ROLE_DATABASE},
    {.name = "n3", .zone = "b", .roles = ROLE_DATABASE},
    {.name = "n4", .zone = "c", .roles = ROLE_DATABASE},
    {.name = "c1", .zone = "a", .roles = ROLE_CLIENT},
};
static struct topology topology = {.name = "test", .node_count = 5, .nodes = nodes};
static struct ha_member members[] = {
    {.node = &nodes[0], .running = true, .primary = true},
    {.node = &nodes[1], .running = true, .streaming = true, .sync = true},
    {.node = &nodes[2], .running = true, .streaming = true},
    {.node = &nodes[3]},
};
static struct ha_state state = {.primary = &nodes[0], .count = 4, .members = members};
static struct arena *arena;
static uint64_t seed;

static void setup(void)
{
    arena = arena_new();
    seed = 42;
}

static void teardown(void)
{
    arena_free(arena);
}

/* "n1 n2", or the error's message. */
static const char *resolved(const char *text)
{
    struct target target = {0};
    struct target_scope scope = {.topology = &topology, .state = &state, .random = &seed};
    struct target_nodes found = {0};
    struct error err = {0};
    const char *names = "";

    if (target_parse(arena, text, &topology, &target, &err) != STATUS_OK ||
        target_resolve(arena, &target, &scope, &found, &err) != STATUS_OK)
        return arena_strdup(arena, err.message);
    for (size_t i = 0; i < found.count; i++)
        names = arena_printf(arena, "%s%s%s", names, i == 0 ? "" : " ", found.nodes[i]->name);
    return names;
}

START_TEST(by_node_and_role)
{
    ck_assert_str_eq(resolved("n3"), "n3");
    ck_assert_str_eq(resolved("primary"), "n1");
    ck_assert_str_eq(resolved("sync-standby"), "n2");
    ck_assert_str_eq(resolved("role=standby,mode=all"), "n2 n3");
    ck_assert_str_eq(resolved("role=any,mode=all"), "n1 n2 n3 n4");
    ck_assert_str_eq(resolved("client"), "c1");
    ck_assert_str_eq(resolved("others"), "n1 n2 n3 n4 c1");
}
END_TEST

START_TEST(by_zone)
{
    ck_assert_str_eq(resolved("zone=b,mode=all"), "n2 n3");
    ck_assert_str_eq(resolved("zone=a,role=client"), "c1");
    ck_assert_str_eq(resolved("zone=a"), "n1");
    ck_assert_str_eq(resolved("role=standby,zone=a"),
                     "empty target: no node fits role standby in zone a");
}
END_TEST

START_TEST(modes)
{
    ck_assert_str_eq(resolved("role=any,mode=4"), "n1 n2 n3 n4");
    ck_assert_uint_eq(strlen(resolved("role=any,mode=50%")), strlen("n1 n2"));
    ck_assert_uint_eq(strlen(resolved("role=any,mode=1%")), strlen("n1"));
    ck_assert_uint_eq(strlen(resolved("role=standby")), strlen("n2"));
    ck_assert_ptr_nonnull(strstr(resolved("role=standby,mode=3"), "2 nodes are there, 3 are"));
}
END_TEST

/* The seed decides, and decides the same each time; over many seeds every node is drawn. */
START_TEST(the_seed_decides)
{
    bool seen[3] = {false};

    for (uint64_t i = 0; i < 64; i++) {
        seed = i;
        const char *first = resolved("role=standby");
        seed = i;
        ck_assert_str_eq(resolved("role=standby"), first);
        seen[first[1] - '1'] = true;
    }
    ck_assert(!seen[0]);
    ck_assert(seen[1]);
    ck_assert(seen[2]);
}
END_TEST

START_TEST(a_target_that_is_gone)
{
    struct ha_state headless = {.count = 0, .members = members};
    struct target target = {0};
    struct target_scope scope = {.topology = &topology, .state = &headless, .random = &seed};
    struct target_nodes found;
    struct error err = {0};

    ck_assert_int_eq(target_parse(arena, "primary", &topology, &target, &err), STATUS_OK);
    ck_assert_int_eq(target_resolve(arena, &target, &scope, &found, &err), STATUS_NOT_FOUND);
    ck_assert_str_eq(err.message, "empty target: no node fits role primary");
}
END_TEST

START_TEST(peers_exclude_the_target)
{
    const struct topology_node *acted[] = {&nodes[0]};
    struct target_scope scope = {.topology = &topology,
                                 .state = &state,
                                 .exclude = acted,
                                 .exclude_count = 1,
                                 .random = &seed};
    struct target target = {0};
    struct target_nodes found;
    struct error err = {0};

    ck_assert_int_eq(target_parse(arena, "others", &topology, &target, &err), STATUS_OK);
    ck_assert_int_eq(target_resolve(arena, &target, &scope, &found, &err), STATUS_OK);
    ck_assert_uint_eq(found.count, 4);
    ck_assert_str_eq(found.nodes[0]->name, "n2");
    ck_assert_str_eq(found.nodes[3]->name, "c1");
}
END_TEST

START_TEST(mistakes_are_named)
{
    ck_assert_ptr_nonnull(strstr(resolved("n22"), "unknown node or role n22, did you mean n2?"));
    ck_assert_ptr_nonnull(strstr(resolved("primry"), "did you mean primary?"));
    ck_assert_ptr_nonnull(strstr(resolved("role=stanby"), "unknown role stanby, did you mean"));
    ck_assert_ptr_nonnull(strstr(resolved("node=n2,role=primary"), "not both"));
    ck_assert_ptr_nonnull(strstr(resolved("mode=all"), "the target is empty"));
    ck_assert_ptr_nonnull(strstr(resolved("role=any,mode=0"), "mode 0 is not one, all,"));
    ck_assert_ptr_nonnull(strstr(resolved("role=any,mode=101%"), "at most 100%"));
    ck_assert_ptr_nonnull(strstr(resolved("zone=z"), "no node is in zone z"));
    ck_assert_ptr_nonnull(strstr(resolved("rol=any"), "rol is not KEY=VALUE"));
}
END_TEST

START_TEST(a_link_has_two_sides)
{
    struct target target = {0};
    struct error err = {0};

    ck_assert_int_eq(target_parse(arena, "link=primary -> sync-standby", &topology, &target, &err),
                     STATUS_OK);
    ck_assert_str_eq(target_link_side(arena, &target, false).role, "primary");
    ck_assert_str_eq(target_link_side(arena, &target, true).role, "sync-standby");
    ck_assert_int_eq(target_parse(arena, "link=primary", &topology, &target, &err), STATUS_USAGE);
}
END_TEST

START_TEST(text_and_json)
{
    struct target target = {0};
    struct error err = {0};

    ck_assert_int_eq(target_parse(arena, "role=standby,zone=b,mode=50%,process=backend", &topology,
                                  &target, &err),
                     STATUS_OK);
    ck_assert_str_eq(target_text(arena, &target), "role standby in zone b, 50%, process backend");
    OWNED_JSON json_t *json = target_json(&target);
    ck_assert_str_eq(json_string_value(json_object_get(json, "mode")), "percent");
    ck_assert_str_eq(json_string_value(json_object_get(json, "process")), "backend");
}
END_TEST

TEST_MAIN("target", 10, setup, teardown, by_node_and_role, by_zone, modes, the_seed_decides,
          a_target_that_is_gone, peers_exclude_the_target, mistakes_are_named, a_link_has_two_sides,
          text_and_json)
