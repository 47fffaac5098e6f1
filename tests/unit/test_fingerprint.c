/* SPDX-License-Identifier: MIT */
/*
 * Every class of residue of a host, planted for real in namespaces of its own: the audit names it
 * with the command that removes it, and after that command, run as it is printed, it is clean.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/fingerprint.h"
#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "tests/support/residue_case.h"
#include "tests/support/throwaway_postgres.h"

#define STATE "/tmp/state"

static char group[64], inner[80]; /* of this test; the server's group in it */
static struct session session = {.node = "n1"};
static struct topology topology;
static const struct residue_question question = {.topology = &topology, .manager = "manual"};

static json_t *take(void *argument)
{
    static fingerprint_section *const sections[] = {
        fingerprint_processes, fingerprint_mounts,   fingerprint_swaps,
        fingerprint_nft,       fingerprint_iptables, fingerprint_tc,
        fingerprint_cgroups,   fingerprint_sysctls,  fingerprint_files};
    const struct method_call call = {.session = &session, .state_folder = STATE};
    json_t *fingerprint = json_object();
    struct error err = {0};

    (void) argument;
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (sections[i](&call, fingerprint, &err) != STATUS_OK)
            ck_abort_msg("section %zu: %s", i, err.message);
    return fingerprint;
}

/* Once, and away again also after a test that failed. */
static void make_group(void)
{
    struct error err = {0};

    mkdir(STATE, 0700);
    snprintf(group, sizeof group, "t-fingerprint-%lld", (long long) clock_boot_ns());
    snprintf(inner, sizeof inner, "%s/postgres", group);
    if (cgroup_create(inner, &err) != STATUS_OK)
        fprintf(stderr, "%s\n", err.message); /* the tests of groups say more */
    session.database.cgroup = inner;
}

static int remove_group(void)
{
    struct error err = {0};

    if (cgroup_kill(group, deadline_in_ms(5000), &err) == STATUS_OK &&
        cgroup_remove(group, deadline_in_ms(5000), &err) == STATUS_OK)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return 1;
}

/* --- by commands ------------------------------------------------------------------------------ */

#define QUIETLY ">/dev/null 2>&1 </dev/null"
#define A_TABLE                                                                                    \
    "nft add table ip admin; nft add chain ip admin c '{ type filter hook input priority 0; }';"   \
    "nft add rule ip admin c ip saddr 192.0.2.1 counter drop"
#define A_SWAP                                                                                     \
    "truncate -s 1M /tmp/swap.img; losetup -f --show /tmp/swap.img >/tmp/swap.device;"             \
    "mkswap -q $(cat /tmp/swap.device) " QUIETLY

static const struct residue_case cases[] = {
    {"a stopped process", NULL,
     "setsid sleep 300 " QUIETLY " & until [ $(cat /proc/$!/comm) = sleep ]; do :; done;"
     "kill -STOP $!; until grep -q '^State:.T' /proc/$!/status; do :; done; echo $! >/tmp/pid",
     "processes", "stopped process sleep, pid ", "kill -CONT ", 0, "kill $(cat /tmp/pid)"},
    {"a mount", "mkdir -p /tmp/m", "mount -t tmpfs none /tmp/m", "mounts",
     "mount /tmp/m (tmpfs of none): was not there before; by whom is not known", "umount /tmp/m", 0,
     NULL},
    {"a mount on a mount, and one upon it", "mkdir -p /tmp/m",
     "mount -t tmpfs none /tmp/m; mkdir /tmp/m/inner; mount -t tmpfs none /tmp/m/inner;"
     "mount -t tmpfs none /tmp/m/inner",
     "mounts", "mount /tmp/m/inner", "umount /tmp/m/inner", 3, NULL},
    {"a mount of ours, with a blank in its name", "mkdir -p '/tmp/ordeal x'",
     "mount -t tmpfs none '/tmp/ordeal x'", "mounts",
     "mount /tmp/ordeal x (tmpfs of none): left by", "umount '/tmp/ordeal x'", 0,
     "rmdir '/tmp/ordeal x'"},
    {"a mount that is read-only", "mkdir -p /tmp/m; mount -t tmpfs none /tmp/m",
     "mount -o remount,bind,ro /tmp/m", "mounts", "mount /tmp/m (tmpfs of none): was {",
     "mount -o remount,bind,rw,", 0, "umount /tmp/m"},
    {"a file system that is read-only", "mkdir -p /tmp/m; mount -t tmpfs none /tmp/m",
     "mount -o remount,ro /tmp/m", "mounts", "mount /tmp/m", "mount -o remount,rw /tmp/m", 0,
     "umount /tmp/m"},
    {"a mount that is gone", "mkdir -p /tmp/m; mount -t tmpfs none /tmp/m", "umount /tmp/m",
     "mounts", "mount /tmp/m (tmpfs of none): was there before", "mount -t tmpfs -o rw,", 0,
     "umount /tmp/m"},
    {"a loop device", "truncate -s 1M /tmp/other.img /tmp/state/x.img",
     "losetup -f /tmp/state/x.img", "loops", "on /tmp/state/x.img", "losetup -d /dev/loop", 0,
     "rm /tmp/other.img /tmp/state/x.img"},
    {"a swap area", A_SWAP, "swapon $(cat /tmp/swap.device)", "swaps", "swap area /dev/loop",
     "swapoff /dev/loop", 0, "losetup -d $(cat /tmp/swap.device); rm /tmp/swap.*"},
    {"a table of nft that is ours", NULL,
     "nft add table inet ordeal_x; nft add chain inet ordeal_x c;"
     "nft add rule inet ordeal_x c drop",
     "nft", "nft table inet ordeal_x: left by Ordeal", "nft delete table inet ordeal_x", 0, NULL},
    {"a rule in a table of somebody else", A_TABLE, "nft insert rule ip admin c udp dport 53 drop",
     "nft", "nft rule ip admin c [{", "nft delete rule ip admin c handle ", 0,
     "nft delete table ip admin"},
    {"a chain and a jump to it", A_TABLE,
     "nft add chain ip admin d; nft add rule ip admin d drop; nft add rule ip admin c jump d",
     "nft", "nft rule ip admin c", "nft delete rule ip admin c handle ", 2,
     "nft delete table ip admin"},
    {"a rule that is gone", A_TABLE, "nft flush chain ip admin c", "nft", "was there before",
     "printf %s '{\"nftables\":[{\"add\":{\"rule\":", 0, "nft delete table ip admin"},
    {"a table that is gone", A_TABLE, "nft delete table ip admin", "nft",
     "nft table ip admin: was there before", "printf %s ", 0, "nft delete table ip admin"},
    {"a policy of a chain", A_TABLE, "nft chain ip admin c '{ policy drop; }'", "nft",
     "nft chain ip admin c: was {", "printf %s ", 0, "nft delete table ip admin"},
    {"a rule of iptables", NULL,
     "iptables-nft -A INPUT -s 192.0.2.1 -m comment --comment 'two words' -j DROP", "iptables",
     "iptables-nft filter rule INPUT -s 192.0.2.1/32 -m comment",
     "iptables-nft -t filter -D INPUT -s 192.0.2.1/32 -m comment --comment \"two words\"", 0,
     "nft delete table ip filter"},
    {"a rule of iptables that is gone", "ip6tables-nft -A OUTPUT -p udp -j DROP",
     "ip6tables-nft -F OUTPUT", "iptables", "was there before",
     "ip6tables-nft -t filter -A OUTPUT -p udp -j DROP", 0, "nft delete table ip6 filter"},
    {"a policy of iptables", NULL, "iptables-nft -P FORWARD DROP", "iptables",
     "iptables-nft filter chain FORWARD", "iptables-nft -t filter -P FORWARD ACCEPT", 0,
     "nft delete table ip filter"},
    {"a chain of iptables and a jump to it", NULL,
     "iptables-nft -N ordeal-x; iptables-nft -A ordeal-x -j DROP; iptables-nft -A INPUT -j "
     "ordeal-x",
     "iptables", "filter rule INPUT -j ordeal-x: left by Ordeal",
     "iptables-nft -t filter -D INPUT -j ordeal-x", 2, "nft delete table ip filter"},
    {"a queueing discipline", NULL, "tc qdisc add dev lo root pfifo limit 7", "tc",
     "queueing discipline pfifo at root of lo: was {", "tc qdisc del dev lo root", 0, NULL},
    {"a setting of the kernel", NULL, "sysctl -qw net.ipv4.tcp_retries2=3", "sysctls",
     "sysctl net/ipv4/tcp_retries2: was 15, is 3", "sysctl -w net/ipv4/tcp_retries2=15", 0, NULL},
    {"one of several words", NULL, "sysctl -qw net.ipv4.ip_local_port_range='20000 30000'",
     "sysctls", "is 20000\t30000", "sysctl -w 'net/ipv4/ip_local_port_range=", 0, NULL},
    {"one of a device", NULL, "sysctl -qw net.ipv4.conf.lo.log_martians=1", "sysctls",
     "sysctl net/ipv4/conf/lo/log_martians: was 0, is 1", "sysctl -w ", 0, NULL},
    {"a file of ours in a shared folder", NULL, "mkdir /tmp/ordeal-x; touch /tmp/ordeal-x/y",
     "files", "folder /tmp/ordeal-x: left by Ordeal", "rm -r -- /tmp/ordeal-x", 0, NULL},
    {"a password file for one use, beside the one that stays", NULL,
     "touch /tmp/ordeal-n1.pgpass /tmp/ordeal-n1.once.pgpass", "files",
     "file /tmp/ordeal-n1.once.pgpass: left by Ordeal", "rm -r -- /tmp/ordeal-n1.once.pgpass", 0,
     "rm /tmp/ordeal-n1.pgpass"},
    {"a password file of another node", NULL, "touch /tmp/ordeal-n12.pgpass", "files",
     "file /tmp/ordeal-n12.pgpass: left by Ordeal", "rm -r -- /tmp/ordeal-n12.pgpass", 0, NULL},
    {"a file in the state folder", NULL, "touch '/tmp/state/it'\\''s'", "files",
     "file /tmp/state/it's: left by Ordeal", "rm -r -- '/tmp/state/it'\\''s'", 0, NULL},
};

START_TEST(planted_named_removed)
{
    residue_case_run(&cases[_i], take, NULL, question);
}
END_TEST

/* Not every kernel has the old tables. */
START_TEST(old_tables_beside_nft)
{
    static const struct residue_case rule = {
        "a rule in the old tables",
        NULL,
        "iptables-legacy -A INPUT -s 192.0.2.1 -j DROP",
        "iptables",
        "iptables-legacy filter rule INPUT -s 192.0.2.1/32 -j DROP",
        "iptables-legacy -t filter -D INPUT -s 192.0.2.1/32 -j DROP",
        0,
        NULL};
    const char *const argv[] = {"iptables-legacy", "-L", NULL};
    OWNED_ARENA struct arena *arena = arena_new();
    const char *there = NULL;
    struct error err;

    ck_assert_int_eq(fingerprint_ask(arena, argv, &there, &err), STATUS_OK);
    if (there == NULL)
        fprintf(stderr, "this kernel has no old tables: not tested\n");
    else
        residue_case_run(&rule, take, NULL, question);
}
END_TEST

/* --- by hand ---------------------------------------------------------------------------------- */

static void remove_all(const json_t *found)
{
    for (size_t i = 0; i < json_array_size(found); i++)
        residue_sh(json_text(json_array_get(found, i), "remedy", "false"));
}

static void expect_all(const json_t *found, const char *class, const char *remedy)
{
    OWNED_MEMORY char *all = json_dumps(found, JSON_INDENT(1));

    ck_assert_msg(json_array_size(found) > 0, "nothing found of %s", class);
    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *item = json_array_get(found, i);
        ck_assert_msg(strcmp(json_text(item, "class", ""), class) == 0, "%s", all);
        ck_assert_msg(strncmp(json_text(item, "remedy", ""), remedy, strlen(remedy)) == 0, "%s",
                      all);
    }
}

static void expect_clean(const json_t *before)
{
    residue_expect_clean("it", before, take, NULL, question);
}

/* A child of this very program that nobody waits for. */
START_TEST(a_helper_without_its_agent)
{
    OWNED_JSON json_t *before = take(NULL);
    int ends[2];
    char ready;

    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            while (getppid() != 1)
                usleep(1000);
            if (write(ends[1], "x", 1) == 1)
                pause();
        }
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert_int_eq(read(ends[0], &ready, 1), 1);
    OWNED_JSON json_t *planted = take(NULL);
    OWNED_JSON json_t *found = residue_compared(question, before, planted);
    expect_all(found, "processes", "kill -KILL ");
    ck_assert(json_flag(json_array_get(found, 0), "ours", false));
    remove_all(found);
    expect_clean(before);
}
END_TEST

/* One inside the other, with a process in the inner one. */
START_TEST(groups_of_ours)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *before = take(NULL);
    const char *outer = arena_printf(arena, "%s/ordeal-x", inner);
    const char *inmost = arena_printf(arena, "%s/ordeal-y", outer);
    struct error err = {0};

    ck_assert_int_eq(cgroup_create(inmost, &err), STATUS_OK);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    ck_assert_int_eq(cgroup_join(inmost, child, &err), STATUS_OK);
    OWNED_JSON json_t *planted = take(NULL);
    OWNED_JSON json_t *found = residue_compared(question, before, planted);
    expect_all(found, "cgroups", "");
    remove_all(found);
    expect_clean(before);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}
END_TEST

START_TEST(a_frozen_group)
{
    OWNED_JSON json_t *before = take(NULL);
    struct error err = {0};

    ck_assert_int_eq(cgroup_freeze(inner, true, deadline_in_ms(5000), &err), STATUS_OK);
    OWNED_JSON json_t *planted = take(NULL);
    OWNED_JSON json_t *found = residue_compared(question, before, planted);
    expect_all(found, "frozen", "echo ");
    remove_all(found);
    expect_clean(before);
}
END_TEST

START_TEST(limits_of_the_servers_group)
{
    const struct cgroup_limits limits = {
        .memory_bytes = 1 << 27, .memory_swap_bytes = 1 << 28, .cpu_percent = 50};
    OWNED_JSON json_t *before = take(NULL);
    struct error err = {0};

    ck_assert_int_eq(cgroup_limit(inner, &limits, &err), STATUS_OK);
    OWNED_JSON json_t *planted = take(NULL);
    OWNED_JSON json_t *found = residue_compared(question, before, planted);
    expect_all(found, "cgroup_limits", "echo ");
    remove_all(found);
    expect_clean(before);
}
END_TEST

/* What belongs to the node and was there before is no residue, however often one looks. */
START_TEST(two_looks_at_a_quiet_node_are_equal)
{
    OWNED_JSON json_t *before = take(NULL);
    expect_clean(before);
}
END_TEST

static Suite *suite(const char *why)
{
    const TTest *const others[] = {
        old_tables_beside_nft, a_helper_without_its_agent,  groups_of_ours,
        a_frozen_group,        limits_of_the_servers_group, two_looks_at_a_quiet_node_are_equal};
    Suite *all = suite_create("fingerprint");
    TCase *planted = tcase_create("planted");

    if (why != NULL) {
        fprintf(stderr, "not run: %s\n", why);
        return all;
    }
    tcase_set_timeout(planted, 60);
    tcase_add_loop_test(planted, planted_named_removed, 0, sizeof cases / sizeof cases[0]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        tcase_add_test(planted, others[i]);
    suite_add_tcase(all, planted);
    return all;
}

int main(void)
{
    const char *why = throwaway_isolate();
    SRunner *runner = srunner_create(suite(why));

    if (why == NULL)
        make_group();
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (why == NULL ? remove_group() : 0) + failed == 0 ? 0 : 1;
}
