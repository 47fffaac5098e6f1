/* SPDX-License-Identifier: MIT */
/* The texts of the kernel, recorded and odd; lines of JSON; a stream with its gaps. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/sampler/kernel.h"
#include "agents/sampler/stream.h"
#include "agents/sampler/views.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "tests/support/suite.h"

static char folder[64], path[96];
static char memory[4096];
static struct line line;

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/ordeal-sampler-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/n1-kernel.ndjson", folder);
    line = (struct line){.data = memory, .size = sizeof memory};
}

static void teardown(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

/* The members that `put` adds, as an object. */
static json_t *parsed(void)
{
    struct error err = {0};
    json_t *json = NULL;

    line_close(&line, '}');
    ck_assert(!line.overflow);
    ck_assert_msg(json_parse_text(line.data, line.length, &json, &err) == STATUS_OK, "%s in %.*s",
                  err.message, (int) line.length, line.data);
    return json;
}

static void begin(void)
{
    line_reset(&line);
    line_open(&line, '{');
}

/* --- lines ------------------------------------------------------------------------------------ */

START_TEST(a_line_is_json)
{
    begin();
    line_pair(&line, "least", INT64_MIN);
    line_pair(&line, "most", INT64_MAX);
    line_key(&line, "list");
    line_open(&line, '[');
    line_number(&line, 0);
    line_string(&line, "a \"quoted\\ \n\t\x01 text");
    line_open(&line, '{');
    line_close(&line, '}');
    line_json(&line, "{\"a\":\n 1}", 9);
    line_close(&line, ']');
    OWNED_JSON json_t *json = parsed();
    ck_assert_int_eq(json_number(json, "least", 0), INT64_MIN);
    ck_assert_int_eq(json_number(json, "most", 0), INT64_MAX);
    const json_t *list = json_object_get(json, "list");
    ck_assert_uint_eq(json_array_size(list), 4);
    ck_assert_str_eq(json_string_value(json_array_get(list, 1)), "a \"quoted\\ \n\t\x01 text");
    ck_assert_ptr_null(memchr(line.data, '\n', line.length));
}
END_TEST

START_TEST(a_line_that_does_not_fit_says_so)
{
    line.size = 16;
    begin();
    line_string(&line, "twenty characters of text");
    ck_assert(line.overflow);
    line_reset(&line);
    ck_assert(!line.overflow);
}
END_TEST

/* --- parsers ---------------------------------------------------------------------------------- */

START_TEST(numbers)
{
    static const struct {
        const char *text;
        int64_t value;
        char next;
    } cases[] = {
        {"0", 0, '\0'},
        {"12 kB", 12, ' '},
        {"9223372036854775807\n", INT64_MAX, '\n'},
        {"9223372036854775808\n", -1, '\n'}, /* one too many */
        {"18446744073709551615", -1, '\0'},
        {"max", -1, 'm'},
        {"-5", -1, '-'},
        {"", -1, '\0'},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *at = cases[i].text;
        ck_assert_int_eq(parse_number(&at), cases[i].value);
        ck_assert_int_eq(*at, cases[i].next);
    }
}
END_TEST

START_TEST(meminfo)
{
    begin();
    kernel_put_meminfo(&line, "MemTotal:       24683652 kB\nMemFree:        20021756 kB\n"
                              "Active:          2938324 kB\nActive(anon):    1873264 kB\n"
                              "SwapTotal:             0 kB\nHugePages_Free:        0\n"
                              "Dirty:            junk\nMemTotalOfAnother: 1 kB\nSlab:");
    OWNED_JSON json_t *json = parsed();
    const json_t *mem = json_object_get(json, "mem");
    ck_assert_int_eq(json_number(mem, "total", -1), 24683652);
    ck_assert_int_eq(json_number(mem, "free", -1), 20021756);
    ck_assert_int_eq(json_number(mem, "active_anon", -1), 1873264);
    ck_assert_int_eq(json_number(mem, "swap_total", -1), 0);
    ck_assert_int_eq(json_number(mem, "huge_free", -1), 0);
    /* what has no value, and what is not there, is left out, not 0 */
    ck_assert_uint_eq(json_object_size(mem), 5);
}
END_TEST

START_TEST(vmstat)
{
    begin();
    kernel_put_vmstat(&line, "nr_free_pages 1347832\npswpin 7\npswpout 9\npgfault 486676617\n"
                             "pgmajfault 28209\npgscan_direct 0\npgscan_direct_throttle 5\n"
                             "workingset_refault_anon 3\noom_kill 2\n");
    OWNED_JSON json_t *json = parsed();
    const json_t *vm = json_object_get(json, "vm");
    ck_assert_int_eq(json_number(vm, "pswpin", -1), 7);
    ck_assert_int_eq(json_number(vm, "pgscan_direct", -1), 0);
    ck_assert_int_eq(json_number(vm, "refault_anon", -1), 3);
    ck_assert_int_eq(json_number(vm, "oom_kill", -1), 2);
    ck_assert_uint_eq(json_object_size(vm), 7);
    begin();
    kernel_put_vmstat(&line, "");
    OWNED_JSON json_t *empty = parsed();
    ck_assert_uint_eq(json_object_size(json_object_get(empty, "vm")), 0);
}
END_TEST

START_TEST(pressures)
{
    struct pressure pressure;

    ck_assert(parse_pressure("some avg10=85.59 avg60=85.87 avg300=66.44 total=4131153074\n"
                             "full avg10=0.00 avg60=0.00 avg300=0.00 total=12\n",
                             &pressure));
    ck_assert_int_eq(pressure.some_us, 4131153074);
    ck_assert_int_eq(pressure.full_us, 12);
    /* the processor's on older kernels has one line */
    ck_assert(parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n", &pressure));
    ck_assert_int_eq(pressure.full_us, -1);
    ck_assert(!parse_pressure("", &pressure));
    ck_assert(!parse_pressure("full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n", &pressure));
    ck_assert(!parse_pressure("some avg10=0.00\nfull avg10=0.00 total=5\n", &pressure));
    begin();
    kernel_put_pressure(&line, "cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n");
    kernel_put_pressure(&line, "io", "nothing of the kind");
    OWNED_JSON json_t *json = parsed();
    ck_assert_uint_eq(json_array_size(json_object_get(json, "cpu")), 1);
    ck_assert_ptr_null(json_object_get(json, "io"));
}
END_TEST

/* Old kernels have 11 numbers a disk, newer ones 15 and 17; a line that is cut off is passed over.
 */
START_TEST(disks)
{
    static const char text[] =
        "   7       0 loop0 8567 0 33429 579 5284 3292 620901 6438 0 4976 10152 0 0 0 0 2812 3134\n"
        "   8       0 sda 1 2 3 4 5 6 7 8 9 10 11\n"
        "   8       1 sda1 1 2 3\n"
        "   8 sdb\n"
        " 259       0 nvme0n1 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35\n"
        "   9       0 a-name-that-is-longer-than-any-block-device-has 1 2 3 4 5 6 7 8 9 10 11\n";
    struct device_line device, kept[2] = {0};
    struct kernel_devices devices = {.room = 2, .last = kept};
    const char *at = parse_disk(text, &device);

    ck_assert_str_eq(device.name, "loop0");
    ck_assert_int_eq(device.values[2], 33429);
    at = parse_disk(at, &device);
    ck_assert_str_eq(device.name, "sda");
    ck_assert_int_eq(device.values[10], 11);
    at = parse_disk(at, &device);
    ck_assert_str_eq(device.name, "nvme0n1");
    ck_assert_ptr_null(parse_disk(at, &device));
    ck_assert_str_eq(device.name, "nvme0n1");

    begin();
    kernel_put_disks(&line, &devices, text);
    OWNED_JSON json_t *first = parsed();
    const json_t *sda = json_object_get(json_object_get(first, "disk"), "sda");
    static const int64_t expected[] = {1, 3, 4, 5, 7, 8, 9, 10};
    ck_assert_uint_eq(json_array_size(sda), 8);
    for (size_t i = 0; i < 8; i++)
        ck_assert_int_eq(json_integer_value(json_array_get(sda, i)), expected[i]);
    ck_assert_uint_eq(json_object_size(json_object_get(first, "disk")), 2); /* no room for more */
}
END_TEST

/* Only what has changed is put again. */
START_TEST(network)
{
    static const char head[] =
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs "
        "drop fifo colls carrier compressed\n";
    struct device_line kept[4] = {0};
    struct kernel_devices devices = {.room = 4, .last = kept};
    char text[1024];

    snprintf(text, sizeof text,
             "%s    lo: 10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n"
             "  ifb0:       0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
             "eth0:95774180 2071 1 2 0 0 0 0 104394 1232 3 4 0 0 0 0\n"
             "  cut: 1 2 3\n",
             head);
    begin();
    kernel_put_net(&line, &devices, text);
    OWNED_JSON json_t *first = parsed();
    const json_t *net = json_object_get(first, "net");
    ck_assert_uint_eq(json_object_size(net), 2); /* ifb0 never did anything */
    static const int64_t expected[] = {95774180, 2071, 1, 2, 104394, 1232, 3, 4};
    for (size_t i = 0; i < 8; i++)
        ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(net, "eth0"), i)),
                         expected[i]);

    snprintf(text, sizeof text,
             "%s    lo: 10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n"
             "eth0:95774181 2071 1 2 0 0 0 0 104394 1232 3 4 0 0 0 0\n",
             head);
    begin();
    kernel_put_net(&line, &devices, text);
    OWNED_JSON json_t *second = parsed();
    ck_assert_uint_eq(json_object_size(json_object_get(second, "net")), 1);
    ck_assert_ptr_nonnull(json_object_get(json_object_get(second, "net"), "eth0"));
}
END_TEST

START_TEST(control_groups)
{
    begin();
    kernel_put_group_events(&line, CGROUP_V1, "oom_kill_disable 0\nunder_oom 1\noom_kill 3\n");
    kernel_put_group_stat(&line, CGROUP_V1,
                          "cache 1\nrss 2\nhierarchical_memory_limit 9223372036854771712\n"
                          "total_cache 11\ntotal_rss 22\ntotal_workingset_refault_anon 33\n");
    OWNED_JSON json_t *first = parsed();
    ck_assert_int_eq(json_number(first, "under_oom", -1), 1);
    ck_assert_int_eq(json_number(first, "oom_kill", -1), 3);
    ck_assert_int_eq(json_number(first, "cache", -1), 11);
    ck_assert_int_eq(json_number(first, "anon", -1), 22);
    ck_assert_int_eq(json_number(first, "refault_anon", -1), 33);
    begin();
    kernel_put_group_events(&line, CGROUP_V2,
                            "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\n"
                            "oom_group_kill 5\n");
    kernel_put_group_stat(&line, CGROUP_V2, "anon 5\nfile 6\nfile_mapped 7\nsock 8\n");
    OWNED_JSON json_t *second = parsed();
    ck_assert_int_eq(json_number(second, "failures", -1), 2);
    ck_assert_int_eq(json_number(second, "oom_kill", -1), 4);
    ck_assert_int_eq(json_number(second, "cache", -1), 6);
    ck_assert_int_eq(json_number(second, "mapped", -1), 7);
}
END_TEST

START_TEST(groups_of_processes)
{
    static const struct {
        const char *text;
        bool version_1;
        const char *group; /* NULL: none */
    } cases[] = {
        {"9:name=systemd:/x\n4:cpu,memory,pids:/system.slice/pg.service\n0::/y\n", true,
         "system.slice/pg.service"},
        {"4:memory:/a:b/c\n", true, "a:b/c"},
        {"4:memory_of_another:/a\n", true, NULL},
        {"4:memory:/\n", true, NULL}, /* the root has no counts of its own */
        {"9:name=systemd:/x\n4:memory:/z\n0::/user.slice/a\n", false, "user.slice/a"},
        {"0::/\n", false, NULL},
        {"nothing", false, NULL},
        {"", true, NULL},
    };
    char group[64];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool found = parse_cgroup(cases[i].text, cases[i].version_1, group, sizeof group);
        ck_assert_msg(found == (cases[i].group != NULL), "case %zu", i);
        if (found)
            ck_assert_str_eq(group, cases[i].group);
    }
    ck_assert(!parse_cgroup("0::/too-long-for-it\n", false, group, 8));
}
END_TEST

START_TEST(stats_of_processes)
{
    struct process_stat stat;

    ck_assert(
        parse_stat("4711 (postgres) S 4700 4711 4711 0 -1 4194304 1021 0 3 0 12 34 0 0 20 0 1 "
                   "0 123456 227000320 1538 18446744073709551615 1 1 0 0 0 0 0\n",
                   &stat));
    ck_assert_int_eq(stat.pid, 4711);
    ck_assert_int_eq(stat.parent, 4700);
    ck_assert_int_eq(stat.state, 'S');
    ck_assert_int_eq(stat.cpu_ticks, 46);
    ck_assert_int_eq(stat.rss_pages, 1538);
    /* a name with blanks and brackets, a negative nice value */
    ck_assert(
        parse_stat("1 (a) b (c) R 0 0 0 0 -1 4194560 9 2 0 2 14 90 5 3 10 -10 13 0 25 52 4679 "
                   "18446744073709551615 1",
                   &stat));
    ck_assert_int_eq(stat.state, 'R');
    ck_assert_int_eq(stat.cpu_ticks, 104);
    ck_assert_int_eq(stat.rss_pages, 4679);
    ck_assert(!parse_stat("", &stat));
    ck_assert(!parse_stat("4711 (postgres", &stat));
    ck_assert(!parse_stat("4711 (postgres) S 4700 4711", &stat));
    ck_assert(!parse_stat("4711 (postgres) S 4700 x", &stat));
}
END_TEST

START_TEST(children)
{
    pid_t pids[3];

    ck_assert_uint_eq(parse_children("", pids, 3), 0);
    ck_assert_uint_eq(parse_children("12 13 ", pids, 3), 2);
    ck_assert_int_eq(pids[1], 13);
    ck_assert_uint_eq(parse_children("1 2 3 4 5 ", pids, 3), 3);
    ck_assert_uint_eq(parse_children("7 99999999999 8 x", pids, 3), 2);
    ck_assert_int_eq(pids[1], 8);
}
END_TEST

/* Views that a version lacks are not asked for. */
START_TEST(queries)
{
    OWNED_BUFFER struct buffer query = BUFFER(16 * 1024);

    views_query(130004, &query);
    ck_assert(!query.overflow);
    ck_assert_ptr_null(strstr(buffer_text(&query), "pg_stat_wal w"));
    ck_assert_ptr_null(strstr(buffer_text(&query), "pg_stat_checkpointer"));
    ck_assert_ptr_nonnull(strstr(buffer_text(&query), "pg_stat_replication"));
    views_query(170000, &query);
    ck_assert_ptr_nonnull(strstr(buffer_text(&query), "pg_stat_wal w"));
    ck_assert_ptr_nonnull(strstr(buffer_text(&query), "pg_stat_checkpointer"));
}
END_TEST

/* --- streams ---------------------------------------------------------------------------------- */

enum { PERIOD_MS = 100, HALF = 2048 };

static struct stream stream;

static void open_it(void)
{
    struct error err = {0};

    ck_assert_msg(stream_open(path, "\"samples\":1", PERIOD_MS, HALF, &stream, &err) == STATUS_OK,
                  "%s", err.message);
}

static void close_it(void)
{
    close(stream.fd);
    free(stream.halves[0].data);
    free(stream.halves[1].data);
    free(stream.scratch.data);
}

static void put_at(int64_t ms)
{
    stream_begin(&line, ms * NS_PER_MS);
    line_pair(&line, "value", ms);
    stream_put(&stream, ms * NS_PER_MS, true, &line);
}

/* The file as "samples 100 gap:late(200-900) 900 end"; each line is JSON. */
static const char *story(void)
{
    static char text[1024];
    OWNED_FILE FILE *file = fopen(path, "re");
    char row[HALF];
    size_t length = 0;

    ck_assert_ptr_nonnull(file);
    text[0] = '\0';
    while (fgets(row, sizeof row, file) != NULL) {
        OWNED_JSON json_t *json = NULL;
        ck_assert_ptr_nonnull(strchr(row, '\n'));
        ck_assert_int_eq(json_parse_text(row, strlen(row), &json, NULL), STATUS_OK);
        const json_t *gap = json_object_get(json, "gap");
        char *at = text + length;
        size_t room = sizeof text - length;
        if (gap != NULL)
            snprintf(at, room, " gap:%s(%lld-%lld)", json_text(gap, "why", ""),
                     (long long) (json_number(gap, "from", 0) / NS_PER_MS),
                     (long long) (json_number(gap, "to", 0) / NS_PER_MS));
        else if (json_object_get(json, "value") != NULL)
            snprintf(at, room, " %lld", (long long) json_number(json, "value", 0));
        else
            snprintf(at, room, " %s", json_object_get(json, "samples") ? "samples" : "end");
        length += strlen(at);
    }
    return text + 1;
}

/* Two periods late is within what a busy machine does; more is a gap, from sample to sample. */
START_TEST(a_late_sample_marks_a_gap)
{
    open_it();
    put_at(100);
    put_at(200);
    put_at(500);
    put_at(801);
    stream_end(&stream, 900 * NS_PER_MS);
    ck_assert_str_eq(story(), "samples 100 200 500 gap:late(500-801) 801 end");
    close_it();
}
END_TEST

START_TEST(a_restart_marks_a_gap_and_cuts_half_a_line_off)
{
    open_it();
    put_at(100);
    put_at(200);
    stream_write(&stream);
    close_it();
    OWNED_FD int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    ck_assert_int_eq(write(fd, "{\"t\":30000", 10), 10);
    open_it();
    put_at(1000);
    stream_end(&stream, 1100 * NS_PER_MS);
    ck_assert_str_eq(story(), "samples 100 200 samples gap:restart(200-1000) 1000 end");
    close_it();
}
END_TEST

START_TEST(an_empty_file_or_rubbish_is_no_gap)
{
    OWNED_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, "half a line", 11), 11);
    open_it();
    put_at(1000);
    stream_end(&stream, 1100 * NS_PER_MS);
    ck_assert_str_eq(story(), "samples 1000 end");
    close_it();
}
END_TEST

START_TEST(what_was_missed_is_said)
{
    open_it();
    put_at(100);
    stream_missed(&stream, "down");
    put_at(200);
    put_at(300);
    stream_end(&stream, 900 * NS_PER_MS);
    ck_assert_str_eq(story(), "samples 100 gap:down(100-200) 200 300 end");
    close_it();
}
END_TEST

/* Nobody writes: the memory fills up, samples are lost, and the next one that fits says so. */
START_TEST(a_full_memory_marks_a_gap)
{
    open_it();
    for (int64_t ms = 100; ms <= 100 * 200; ms += 100)
        put_at(ms);
    int64_t kept_ms = stream.last_ns / NS_PER_MS;
    ck_assert_int_lt(kept_ms, 19000);
    stream_write(&stream);
    put_at(20100);
    stream_end(&stream, 20200 * NS_PER_MS);
    char expected[64];
    snprintf(expected, sizeof expected, " %lld gap:full(%lld-20100) 20100 end", (long long) kept_ms,
             (long long) kept_ms);
    ck_assert_msg(strstr(story(), expected) != NULL, "no \"%s\" in %s", expected, story());
    close_it();
}
END_TEST

/* The disk is full in the middle of a line: the file stays whole lines, and the gap begins at the
 * last sample that is in it. */
START_TEST(a_full_disk_marks_a_gap)
{
    struct rlimit before, small;

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    open_it();
    put_at(100);
    stream_write(&stream);
    small.rlim_cur = (rlim_t) stream.size + 10;
    int limited = setrlimit(RLIMIT_FSIZE, &small); /* of the test's own messages, too */
    put_at(200);
    stream_write(&stream);
    put_at(300);
    stream_write(&stream);
    int freed = setrlimit(RLIMIT_FSIZE, &before);
    ck_assert(limited == 0 && freed == 0);
    ck_assert_str_eq(story(), "samples 100");
    put_at(400);
    put_at(500);
    stream_end(&stream, 600 * NS_PER_MS);
    ck_assert_str_eq(story(), "samples 100 samples gap:disk(100-400) 400 500 end");
    close_it();
}
END_TEST

TEST_MAIN("sampler parts", 20, setup, teardown, a_line_is_json, a_line_that_does_not_fit_says_so,
          numbers, meminfo, vmstat, pressures, disks, network, control_groups, groups_of_processes,
          stats_of_processes, children, queries, a_late_sample_marks_a_gap,
          a_restart_marks_a_gap_and_cuts_half_a_line_off, an_empty_file_or_rubbish_is_no_gap,
          what_was_missed_is_said, a_full_memory_marks_a_gap, a_full_disk_marks_a_gap)
