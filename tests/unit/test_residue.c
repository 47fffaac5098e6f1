/* SPDX-License-Identifier: MIT */
/* What counts as a difference between two fingerprints, in which words, and what is natural. */
#include <string.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/residue.h"
#include "tests/support/suite.h"

static struct topology_node nodes[] = {{.name = "n1"}, {.name = "db-2"}};
static struct topology topology;
static struct arena *arena;
static json_t *before, *after, *primary; /* primary: what was known of the cluster before */

static void setup(void)
{
    topology = (struct topology){.nodes = nodes, .node_count = 2};
    topology.database.port = 5432;
    topology.database.data = "/data";
    topology.database.bin = "/bin";
    topology.database.superuser.user = "admin";
    arena = arena_new();
    before = json_object();
    after = json_object();
    primary = before;
}

static void teardown(void)
{
    json_decref(before);
    json_decref(after);
    arena_free(arena);
}

static json_t *section(json_t *of, const char *name)
{
    if (json_object_get(of, name) == NULL)
        json_object_set_new(of, name, json_object());
    return json_object_get(of, name);
}

/* An item as JSON: put(before, "swaps", "/x", "{...}"). The other side gets the section, too. */
static void put(json_t *to, const char *name, const char *key, const char *text)
{
    json_t *item = json_loads(text, JSON_DECODE_ANY, NULL);

    ck_assert_msg(item != NULL, "%s", text);
    section(before, name);
    section(after, name);
    json_object_set_new(section(to, name), key, item);
}

static json_t *found_by(const json_t *known, const char *manager)
{
    const struct residue_question question = {.before = known,
                                              .after = after,
                                              .cluster_before = primary,
                                              .topology = &topology,
                                              .manager = manager};

    return residue_differences(&question);
}

static void expect_none(void)
{
    OWNED_JSON json_t *found = found_by(before, "manual");
    OWNED_MEMORY char *all = json_dumps(found, JSON_INDENT(1));

    ck_assert_msg(json_array_size(found) == 0, "%s", all);
}

static void expect_in(const json_t *found, const char *text, const char *remedy)
{
    OWNED_MEMORY char *all = json_dumps(found, JSON_INDENT(1));
    const json_t *first = json_array_get(found, 0);

    ck_assert_msg(json_array_size(found) == 1, "%s", all);
    ck_assert_str_eq(residue_text(arena, first), text);
    if (remedy == NULL)
        ck_assert(json_is_null(json_object_get(first, "remedy")));
    else
        ck_assert_str_eq(json_text(first, "remedy", ""), remedy);
}

static void expect_one(const char *text, const char *remedy)
{
    OWNED_JSON json_t *found = found_by(before, "manual");

    expect_in(found, text, remedy);
}

static void expect_nothing_alone(void)
{
    OWNED_JSON json_t *found = found_by(NULL, "manual");

    ck_assert_uint_eq(json_array_size(found), 0);
}

/* ---- of the comparison itself ---- */

START_TEST(members_for_the_remedy_are_not_compared)
{
    put(before, "loops", "/x/ordeal-1.img", "{\"_device\": \"loop3\"}");
    put(after, "loops", "/x/ordeal-1.img", "{\"_device\": \"loop9\"}");
    expect_none();
}
END_TEST

START_TEST(a_section_that_cannot_be_read_any_more_is_told)
{
    section(before, "nft");
    expect_one("nft cannot be read any more", NULL);
}
END_TEST

START_TEST(sections_of_a_server_that_is_silent_are_told_once)
{
    put(before, "postgres", "server", "{\"answer\": \"answers\"}");
    put(after, "postgres", "server", "{\"answer\": \"refused\"}");
    json_object_set_new(section(before, "slots"), "x", json_object());
    OWNED_JSON json_t *found = found_by(before, "manual");
    ck_assert(residue_is_blind(found));
    expect_one("PostgreSQL, of which nothing is known (refused): was {\"answer\":\"answers\"}, is "
               "{\"answer\":\"refused\"}",
               NULL);
}
END_TEST

START_TEST(what_is_not_in_both_looks_is_no_residue)
{
    OWNED_JSON json_t *one =
        json_pack("[{s:s, s:s, s:s}, {s:s, s:s, s:s}]", "class", "files", "change", "added", "key",
                  "/a", "class", "files", "change", "added", "key", "/b");
    OWNED_JSON json_t *other =
        json_pack("[{s:s, s:s, s:s}, {s:s, s:s, s:s}]", "class", "files", "change", "added", "key",
                  "/b", "class", "mounts", "change", "added", "key", "/a");
    OWNED_JSON json_t *common = residue_common(one, other);
    OWNED_JSON json_t *blind = residue_unknown("no answer");

    ck_assert_uint_eq(json_array_size(common), 1);
    ck_assert_str_eq(json_text(json_array_get(common, 0), "key", ""), "/b");
    ck_assert(!residue_is_blind(one));
    ck_assert(residue_is_blind(blind));
    ck_assert_str_eq(residue_text(arena, json_array_get(blind, 0)),
                     "nothing is known of it: no answer");
}
END_TEST

/* What is of the cluster is compared with the primary of before, wherever the primary is now. */
START_TEST(the_cluster_is_compared_with_its_primary)
{
    OWNED_JSON json_t *other = json_object();

    json_object_set_new(section(other, "role_settings"), "x", json_pack("{s:s}", "name", "y"));
    json_object_set_new(section(after, "role_settings"), "x", json_pack("{s:s}", "name", "y"));
    primary = other;
    expect_none();
    primary = NULL; /* nobody knows: nothing may be called new */
    expect_none();
}
END_TEST

/* Without a state from before only what can be nobody else's counts. */
START_TEST(alone_only_what_is_surely_ours_counts)
{
    primary = NULL;
    put(after, "postgres", "server", "{\"answer\": \"refused\"}"); /* it may have been down */
    put(after, "mounts", "/var/lib/ordeal", "{\"type\": \"xfs\"}");
    put(after, "files", "/run/ordeal", "{\"kind\": \"folder\"}");
    put(after, "roles", "ordeal_admin", "{}");
    put(after, "databases", "ordeal", "{}");
    put(after, "slots", "ordeal", "{\"type\": \"physical\"}");
    put(after, "schemas", "ordeal in app", "{\"name\": \"ordeal\", \"database\": \"app\"}");
    put(after, "processes", "1 started 2", "{\"kind\": \"stopped\", \"name\": \"vi\"}");
    put(after, "frozen", "/sys/fs/cgroup/x", "{}");
    put(after, "nft", "table inet f2b", "{\"kind\": \"table\", \"table\": \"inet f2b\"}");
    expect_nothing_alone();
    put(after, "nft", "table inet ordeal_1", "{\"kind\": \"table\", \"table\": \"inet ordeal_1\"}");
    put(after, "cgroups", "/sys/fs/cgroup/x/ordeal-1", "{\"_inhabited\": false}");
    put(after, "files", "/pg/main.ordeal-new", "{\"kind\": \"folder\"}");
    put(after, "processes", "3 started 4", "{\"kind\": \"stopped\", \"name\": \"postgres\"}");
    put(after, "schemas", "ordeal in x",
        "{\"name\": \"ordeal\", \"database\": \"x\", \"_comment\": \"ordeal run 1\"}");
    put(after, "open_records", "u1", "{\"fault\": \"process.freeze\"}");
    OWNED_JSON json_t *found = found_by(NULL, "manual");
    ck_assert_uint_eq(json_array_size(found), 6);
}
END_TEST

/* ---- of the host ---- */

START_TEST(a_cleared_one_of_a_pair_comes_back_by_its_partner)
{
    put(before, "sysctls", "vm/dirty_bytes", "\"0\"");
    put(after, "sysctls", "vm/dirty_bytes", "\"65536\"");
    put(before, "sysctls", "vm/dirty_ratio", "\"20\"");
    put(after, "sysctls", "vm/dirty_ratio", "\"0\"");
    OWNED_JSON json_t *found = found_by(before, "manual");
    ck_assert_uint_eq(json_array_size(found), 2);
    for (size_t i = 0; i < 2; i++)
        ck_assert_str_eq(json_text(json_array_get(found, i), "remedy", ""),
                         "sysctl -w vm/dirty_ratio=20");
}
END_TEST

START_TEST(settings_of_devices_that_come_and_go_are_natural)
{
    put(before, "sysctls", "net/ipv4/conf/veth1/forwarding", "\"1\"");
    put(after, "sysctls", "net/ipv4/conf/veth2/forwarding", "\"1\"");
    put(after, "tc", "veth2 root", "{\"device\": \"veth2\", \"place\": \"root\"}");
    expect_none();
}
END_TEST

#define KERNELS "{\"device\": \"e0\", \"place\": \"root\", \"kind\": \"mq\", \"default\": true}"
#define PARENT(kind, own)                                                                          \
    "{\"device\": \"e0\", \"place\": \"parent :1\", \"kind\": \"" kind "\", \"default\": " own "}"

START_TEST(what_hangs_below_a_root_is_told_with_it)
{
    put(before, "tc", "e0 root", KERNELS);
    put(before, "tc", "e0 parent :1", PARENT("fq_codel", "true"));
    put(after, "tc", "e0 root",
        "{\"device\": \"e0\", \"place\": \"root\", \"kind\": \"netem\", \"default\": false}");
    put(after, "tc", "e0 parent 1:1", PARENT("pfifo", "false"));
    expect_one("queueing discipline netem at root of e0: was "
               "{\"device\":\"e0\",\"place\":\"root\",\"kind\":\"mq\",\"default\":true}, is "
               "{\"device\":\"e0\",\"place\":\"root\",\"kind\":\"netem\",\"default\":false}",
               "tc qdisc del dev e0 root");
}
END_TEST

START_TEST(the_kernels_own_disciplines_are_natural)
{
    put(before, "tc", "e0 root", KERNELS);
    put(after, "tc", "e0 root",
        "{\"device\": \"e0\", \"place\": \"root\", \"kind\": \"fq_codel\", \"default\": true}");
    put(before, "tc", "e0 parent :1", PARENT("fq_codel", "true"));
    expect_none();
}
END_TEST

START_TEST(a_stopped_process_that_went_on_is_natural)
{
    put(before, "processes", "1 started 2", "{\"kind\": \"stopped\", \"name\": \"vi\"}");
    put(before, "open_records", "u", "{\"fault\": \"x\"}");
    put(before, "cgroups", "/sys/fs/cgroup/x/ordeal-1", "{}");
    put(before, "files", "/pg/main.ordeal-old", "{\"kind\": \"folder\"}");
    expect_none();
}
END_TEST

START_TEST(a_traced_process_goes_on_when_its_tracer_ends)
{
    put(after, "processes", "7 started 2",
        "{\"kind\": \"traced\", \"name\": \"postgres\", \"_pid\": 7, \"_tracer\": \"99\"}");
    expect_one("traced process postgres, pid 7: was not there before; by whom is not known",
               "kill 99");
}
END_TEST

START_TEST(a_fault_that_is_open_is_recovered)
{
    put(after, "open_records", "u1", "{\"fault\": \"process.freeze\"}");
    expect_one("fault process.freeze (u1) not undone: left by Ordeal", "ordeal recover");
}
END_TEST

START_TEST(limits_of_devices)
{
    put(after, "cgroup_io", "/g/io.max 8:0",
        "{\"file\": \"/g/io.max\", \"device\": \"8:0\", \"value\": \"rbps=1 wbps=max\"}");
    expect_one("limit /g/io.max 8:0: was not there before; by whom is not known",
               "echo '8:0 rbps=max wbps=max riops=max wiops=max' >/g/io.max");
}
END_TEST

START_TEST(a_swap_area_that_is_gone)
{
    put(before, "swaps", "/swap\\040file", /* as the kernel writes a blank */
        "{\"type\": \"file\", \"size_kib\": \"9\", \"priority\": \"5\"}");
    expect_one("swap area /swap file: was there before "
               "({\"type\":\"file\",\"size_kib\":\"9\",\"priority\":\"5\"})",
               "swapon -p 5 '/swap file'");
}
END_TEST

/* ---- of PostgreSQL ---- */

START_TEST(slots_of_members_move_with_the_primary)
{
    put(before, "slots", "db_2", "{\"type\": \"physical\"}");
    put(after, "slots", "n1", "{\"type\": \"physical\"}");
    expect_none();
    put(after, "slots", "n3",
        "{\"type\": \"physical\", \"_active\": false, \"_restart_lsn\": \"0/5\"}");
    expect_one("replication slot n3 (physical, inactive, keeps WAL from 0/5): was not there "
               "before; by whom is not known",
               "psql -X -p 5432 -U admin -d postgres -c "
               "'SELECT pg_drop_replication_slot('\\''n3'\\'')'");
}
END_TEST

START_TEST(a_logical_slot_that_is_gone_is_made_again_in_its_database)
{
    put(before, "slots", "cdc",
        "{\"type\": \"logical\", \"plugin\": \"pgoutput\", \"database\": \"My App\"}");
    expect_one("replication slot cdc (logical): was there before "
               "({\"type\":\"logical\",\"plugin\":\"pgoutput\",\"database\":\"My App\"})",
               "psql -X -p 5432 -U admin -d 'My App' -c 'SELECT "
               "pg_create_logical_replication_slot('\\''cdc'\\'', '\\''pgoutput'\\'')'");
}
END_TEST

START_TEST(another_manager_keeps_the_sync_set)
{
    put(before, "file_settings", "synchronous_standby_names",
        "{\"value\": \"n1\", \"file\": \"/c/postgresql.auto.conf\"}");
    put(after, "file_settings", "synchronous_standby_names",
        "{\"value\": \"n2\", \"file\": \"/c/postgresql.auto.conf\"}");
    OWNED_JSON json_t *found = found_by(before, "observe");
    ck_assert_uint_eq(json_array_size(found), 0);
    expect_one("setting synchronous_standby_names in /c/postgresql.auto.conf: was n1, is n2",
               "psql -X -p 5432 -U admin -d postgres -c 'ALTER SYSTEM SET "
               "synchronous_standby_names = '\\''n1'\\''' -c 'SELECT pg_reload_conf()'");
}
END_TEST

START_TEST(a_setting_that_needs_a_restart)
{
    put(before, "settings", "max_connections", "{\"value\": \"100\"}");
    put(after, "settings", "max_connections",
        "{\"value\": \"200\", \"_context\": \"postmaster\", \"_pending\": true}");
    section(before, "file_settings");
    section(after, "file_settings");
    expect_one("setting max_connections in force: was 100, is 200",
               "runuser -u $(stat -c %U /data) -- /bin/pg_ctl -D /data restart");
}
END_TEST

START_TEST(names_and_texts_are_quoted)
{
    put(after, "role_settings", "k",
        "{\"role\": \"It's \\\"me\\\"\", \"database\": \"order\", \"name\": \"my.x\"}");
    expect_one("my.x of ROLE \"It's \"\"me\"\"\" IN DATABASE \"order\": was not there before; by "
               "whom is not known",
               "psql -X -p 5432 -U admin -d postgres -c 'ALTER ROLE \"It'\\''s \"\"me\"\"\" IN "
               "DATABASE \"order\" RESET \"my\".\"x\"'");
    json_object_clear(section(after, "role_settings"));
    put(after, "prepared", "a\\b'c", "{\"database\": \"d\"}");
    expect_one("prepared transaction a\\b'c in database d: was not there before; by whom is not "
               "known",
               "psql -X -p 5432 -U admin -d d -c 'ROLLBACK PREPARED E'\\''a\\\\b'\\'''\\''c'\\'''");
}
END_TEST

/* Applications make and end them; what they end is theirs. */
START_TEST(what_applications_end_is_natural)
{
    put(before, "prepared", "x", "{\"database\": \"d\"}");
    put(before, "schemas", "ordeal in d", "{\"name\": \"ordeal\", \"database\": \"d\"}");
    put(before, "publications", "p in d", "{\"name\": \"p\", \"database\": \"d\"}");
    put(before, "replay", "paused", "{}");
    expect_none();
}
END_TEST

TEST_MAIN("residue", 20, setup, teardown, members_for_the_remedy_are_not_compared,
          a_section_that_cannot_be_read_any_more_is_told,
          sections_of_a_server_that_is_silent_are_told_once,
          what_is_not_in_both_looks_is_no_residue, the_cluster_is_compared_with_its_primary,
          alone_only_what_is_surely_ours_counts, a_cleared_one_of_a_pair_comes_back_by_its_partner,
          settings_of_devices_that_come_and_go_are_natural, what_hangs_below_a_root_is_told_with_it,
          the_kernels_own_disciplines_are_natural, a_stopped_process_that_went_on_is_natural,
          a_traced_process_goes_on_when_its_tracer_ends, a_fault_that_is_open_is_recovered,
          limits_of_devices, a_swap_area_that_is_gone, slots_of_members_move_with_the_primary,
          a_logical_slot_that_is_gone_is_made_again_in_its_database,
          another_manager_keeps_the_sync_set, a_setting_that_needs_a_restart,
          names_and_texts_are_quoted, what_applications_end_is_natural)
