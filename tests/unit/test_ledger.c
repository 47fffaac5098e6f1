/* SPDX-License-Identifier: MIT */
/* Reading of ledgers and present sets, and the whole table of outcome classes. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/clock.h"
#include "lib/ledger.h"
#include "lib/owned.h"

static char path[] = "/tmp/ordeal-ledger-XXXXXX";

static void setup(void)
{
    strcpy(path + strlen(path) - 6, "XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void teardown(void)
{
    unlink(path);
}

static void write_at(off_t offset, const void *data, size_t length)
{
    OWNED_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, data, length, offset), (ssize_t) length);
}

static off_t record_offset(size_t index)
{
    return LEDGER_HEADER_SIZE + (off_t) (index * sizeof(struct ledger_record));
}

static struct ledger_header good_header(void)
{
    struct ledger_header header = {.version = LEDGER_VERSION,
                                   .record_size = sizeof(struct ledger_record),
                                   .run = "run-1",
                                   .client_node = "c1",
                                   .worker = 3,
                                   .node_count = 2,
                                   .nodes = {"n1", "n2"}};

    memcpy(header.magic, "ordeal-ledger-1\n", sizeof(header.magic));
    return header;
}

static struct ledger_record sealed(struct ledger_record record)
{
    record.crc = ledger_crc(&record);
    return record;
}

static struct ledger_record outcome(uint64_t seq)
{
    return sealed((struct ledger_record){.kind = LEDGER_OUTCOME,
                                         .class = LEDGER_ACKED,
                                         .phase = LEDGER_COMMITTING,
                                         .client = 1,
                                         .seq = seq,
                                         .done_ns = 7,
                                         .node = 1});
}

/* Header, `count` outcomes, room for more. */
static void write_ledger(size_t count, size_t room)
{
    struct ledger_header header = good_header();

    write_at(0, &header, sizeof(header));
    for (size_t i = 0; i < count; i++) {
        struct ledger_record record = outcome(i + 1);
        write_at(record_offset(i), &record, sizeof(record));
    }
    ck_assert_int_eq(truncate(path, record_offset(room)), 0);
}

static enum status open_status(struct error *err)
{
    struct ledger ledger = {0};
    enum status status = ledger_open(path, &ledger, err);

    if (status == STATUS_OK)
        ledger_close(&ledger);
    return status;
}

START_TEST(reads_what_was_written)
{
    struct ledger ledger;
    struct error err = {0};
    write_ledger(5, 100);

    ck_assert_msg(ledger_open(path, &ledger, &err) == STATUS_OK, "%s", err.message);
    ck_assert_uint_eq(ledger.count, 5);
    ck_assert_uint_eq(ledger.records[4].seq, 5);
    ck_assert_str_eq(ledger.header.nodes[ledger.records[4].node], "n2");
    ck_assert_uint_eq(ledger.header.worker, 3);
    ck_assert(!ledger.ended && !ledger.torn_tail);
    ledger_close(&ledger);
    ck_assert_ptr_null(ledger.map);
}
END_TEST

START_TEST(full_file_has_no_tail)
{
    struct ledger ledger;
    write_ledger(5, 5);

    ck_assert_int_eq(ledger_open(path, &ledger, NULL), STATUS_OK);
    ck_assert_uint_eq(ledger.count, 5);
    ck_assert(!ledger.torn_tail);
    ledger_close(&ledger);
}
END_TEST

START_TEST(end_must_be_the_last)
{
    struct ledger ledger;
    struct ledger_record end = sealed((struct ledger_record){.kind = LEDGER_END});
    write_ledger(5, 100);

    write_at(record_offset(5), &end, sizeof(end));
    ck_assert_int_eq(ledger_open(path, &ledger, NULL), STATUS_OK);
    ck_assert(ledger.ended);
    ledger_close(&ledger);
    struct ledger_record more = outcome(6);
    write_at(record_offset(6), &more, sizeof(more));
    ck_assert_int_eq(ledger_open(path, &ledger, NULL), STATUS_OK);
    ck_assert(!ledger.ended);
    ledger_close(&ledger);
}
END_TEST

/* Every single byte of the record counts, its CRC and its padding included. */
START_TEST(torn_record_ends_the_file)
{
    write_ledger(5, 100);
    for (size_t byte = 0; byte < offsetof(struct ledger_record, zero); byte++) {
        struct ledger ledger;
        struct ledger_record record = outcome(3);
        ((unsigned char *) &record)[byte] ^= 0x40;
        write_at(record_offset(2), &record, sizeof(record));
        ck_assert_int_eq(ledger_open(path, &ledger, NULL), STATUS_OK);
        ck_assert_uint_eq(ledger.count, 2);
        ck_assert(ledger.torn_tail);
        ledger_close(&ledger);
    }
}
END_TEST

/* A lost page between two that reached the disk. */
START_TEST(hole_before_records_is_torn)
{
    struct ledger ledger;
    struct ledger_record record = outcome(9);
    write_ledger(5, 100);

    write_at(record_offset(50), &record, sizeof(record));
    ck_assert_int_eq(ledger_open(path, &ledger, NULL), STATUS_OK);
    ck_assert_uint_eq(ledger.count, 5);
    ck_assert(ledger.torn_tail);
    ledger_close(&ledger);
}
END_TEST

START_TEST(partial_record_at_the_end_is_torn)
{
    struct ledger ledger;
    struct ledger_record record = outcome(6);
    write_ledger(5, 5);

    write_at(record_offset(5), &record, 40);
    ck_assert_int_eq(ledger_open(path, &ledger, NULL), STATUS_OK);
    ck_assert_uint_eq(ledger.count, 5);
    ck_assert(ledger.torn_tail);
    ledger_close(&ledger);
}
END_TEST

START_TEST(refuses_headers)
{
    struct error err;
    struct ledger_header header;

    ck_assert_int_eq(open_status(&err), STATUS_INVALID); /* empty */
    write_ledger(1, 1);
    header = good_header();
    header.magic[0] = 'X';
    write_at(0, &header, sizeof(header));
    ck_assert_int_eq(open_status(&err), STATUS_INVALID);
    header = good_header();
    header.version = 2;
    write_at(0, &header, sizeof(header));
    ck_assert_int_eq(open_status(&err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "version 2"));
    header = good_header();
    header.node_count = LEDGER_NODES_MAX + 1;
    write_at(0, &header, sizeof(header));
    ck_assert_int_eq(open_status(&err), STATUS_INVALID);
    header = good_header();
    memset(header.nodes[1], 'n', sizeof(header.nodes[1]));
    write_at(0, &header, sizeof(header));
    ck_assert_int_eq(open_status(&err), STATUS_INVALID);
    header = good_header();
    write_at(0, &header, sizeof(header));
    ck_assert_int_eq(open_status(&err), STATUS_OK);
    unlink(path);
    ck_assert_int_eq(open_status(&err), STATUS_SYSTEM);
}
END_TEST

START_TEST(refuses_impossible_records)
{
    struct ledger_record bad[] = {
        {.kind = LEDGER_END + 1},
        {.kind = LEDGER_OUTCOME, .class = LEDGER_UNSENT + 1},
        {.kind = LEDGER_OUTCOME, .phase = LEDGER_COMMITTING + 1},
        {.kind = LEDGER_OUTCOME, .node = 2},
        {.kind = LEDGER_SESSION, .class = LEDGER_REMOTE_APPLY + 1},
        {.kind = LEDGER_SESSION, .flags = LEDGER_DIRECT + 1},
        {.kind = LEDGER_OUTCOME, .sqlstate = {'1', '2', '3', '4', '5', '6'}},
    };
    write_ledger(5, 100);

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct error err;
        struct ledger_record record = sealed(bad[i]);
        write_at(record_offset(3), &record, sizeof(record));
        ck_assert_msg(open_status(&err) == STATUS_INVALID, "record %zu was taken", i);
        ck_assert_ptr_nonnull(strstr(err.message, "record 3"));
    }
}
END_TEST

START_TEST(names)
{
    ck_assert_str_eq(ledger_class_name(LEDGER_IN_DOUBT), "in-doubt");
    ck_assert_str_eq(ledger_class_name((enum ledger_class) 77), "unknown");
    for (int level = LEDGER_LEVEL_UNKNOWN; level <= LEDGER_REMOTE_APPLY; level++)
        ck_assert_int_eq(ledger_level_from_name(ledger_level_name((enum ledger_level) level)),
                         level);
    ck_assert_int_eq(ledger_level_from_name("quorum"), LEDGER_LEVEL_UNKNOWN);
}
END_TEST

/* Reference values of an independent implementation of FNV-1a. */
START_TEST(digest)
{
    ck_assert_int_eq(ledger_digest(1, 1, 0, "", 0), INT64_C(8933638741226345347));
    ck_assert_int_eq(ledger_digest(1000007, 123456789012, 3, "abc", 3),
                     INT64_C(-3480498938757020582));
    ck_assert_int_ne(ledger_digest(1, 11, 0, "x", 1), ledger_digest(11, 1, 0, "x", 1));
}
END_TEST

/* --- classes --------------------------------------------------------------------------------- */

static const struct {
    const char *what;
    struct ledger_evidence evidence;
    enum ledger_class class;
} outcomes[] = {
#define CONNECTING .phase = LEDGER_CONNECTING
#define INSIDE .phase = LEDGER_IN_TRANSACTION
#define COMMITTING .phase = LEDGER_COMMITTING
#define FAILED(severity_, sqlstate_) .severity = severity_, .sqlstate = sqlstate_
#define LOST .connection_lost = true
#define NOTICE .sync_wait_notice = true
#define HIDDEN .warnings_hidden = true
    {"endpoint closed", {CONNECTING}, LEDGER_UNSENT},
    {"refused, reset, our deadline", {CONNECTING, LOST}, LEDGER_UNSENT},
    {"starting up", {CONNECTING, LOST, FAILED("FATAL", "57P03")}, LEDGER_UNSENT},
    {"too many connections", {CONNECTING, LOST, FAILED("FATAL", "53300")}, LEDGER_UNSENT},
    {"wrong password", {CONNECTING, LOST, FAILED("FATAL", "28P01")}, LEDGER_UNSENT},
    {"session set-up failed", {CONNECTING, FAILED("ERROR", "22023")}, LEDGER_UNSENT},

    {"write on a standby", {INSIDE, FAILED("ERROR", "25006")}, LEDGER_ABORTED},
    {"unique violation", {INSIDE, FAILED("ERROR", "23505")}, LEDGER_ABORTED},
    {"statement cancelled", {INSIDE, FAILED("ERROR", "57014")}, LEDGER_ABORTED},
    {"error, then the connection went", {INSIDE, LOST, FAILED("ERROR", "58030")}, LEDGER_UNSENT},
    {"terminated inside", {INSIDE, LOST, FAILED("FATAL", "57P01")}, LEDGER_UNSENT},
    {"crash inside", {INSIDE, LOST, FAILED("FATAL", "57P02")}, LEDGER_UNSENT},
    {"idle in transaction timeout", {INSIDE, LOST, FAILED("FATAL", "25P03")}, LEDGER_UNSENT},
    {"end of file inside", {INSIDE, LOST}, LEDGER_UNSENT},

    {"acknowledged", {COMMITTING, .tag = "COMMIT"}, LEDGER_ACKED},
    {"acknowledged, then lost", {COMMITTING, .tag = "COMMIT", LOST}, LEDGER_ACKED},
    {"wait cancelled", {COMMITTING, .tag = "COMMIT", NOTICE}, LEDGER_WEAK},
    {"a cancelled wait would not be told", {COMMITTING, .tag = "COMMIT", HIDDEN}, LEDGER_WEAK},
    {"failed, warnings hidden", {COMMITTING, FAILED("ERROR", "40001"), HIDDEN}, LEDGER_ABORTED},
    {"failed block", {COMMITTING, .tag = "ROLLBACK"}, LEDGER_ABORTED},
    {"another tag", {COMMITTING, .tag = "COMMIT PREPARED"}, LEDGER_IN_DOUBT},
    {"serialization failure", {COMMITTING, FAILED("ERROR", "40001")}, LEDGER_ABORTED},
    {"deadlock", {COMMITTING, FAILED("ERROR", "40P01")}, LEDGER_ABORTED},
    {"deferred constraint", {COMMITTING, FAILED("ERROR", "23503")}, LEDGER_ABORTED},
    {"cancelled before the commit", {COMMITTING, FAILED("ERROR", "57014")}, LEDGER_ABORTED},
    {"disk full, session alive", {COMMITTING, FAILED("ERROR", "53100")}, LEDGER_ABORTED},
    {"disk full, session over", {COMMITTING, LOST, FAILED("ERROR", "53100")}, LEDGER_IN_DOUBT},
    {"completion unknown", {COMMITTING, FAILED("ERROR", "40003")}, LEDGER_IN_DOUBT},
    {"connection exception", {COMMITTING, FAILED("ERROR", "08006")}, LEDGER_IN_DOUBT},
    {"transaction resolution unknown", {COMMITTING, FAILED("ERROR", "08007")}, LEDGER_IN_DOUBT},
    {"terminated", {COMMITTING, LOST, FAILED("FATAL", "57P01")}, LEDGER_IN_DOUBT},
    {"terminated, end not seen yet", {COMMITTING, FAILED("FATAL", "57P01")}, LEDGER_IN_DOUBT},
    {"crash shutdown", {COMMITTING, LOST, FAILED("FATAL", "57P02")}, LEDGER_IN_DOUBT},
    {"PANIC", {COMMITTING, LOST, FAILED("PANIC", "58030")}, LEDGER_IN_DOUBT},
    {"end of file", {COMMITTING, LOST}, LEDGER_IN_DOUBT},
    {"terminated in the wait", {COMMITTING, LOST, NOTICE}, LEDGER_IN_DOUBT},
    {"error after the wait began", {COMMITTING, NOTICE, FAILED("ERROR", "XX000")}, LEDGER_IN_DOUBT},
    {"error of libpq's own", {COMMITTING}, LEDGER_IN_DOUBT},
};

START_TEST(classes)
{
    ck_assert_msg(ledger_classify(&outcomes[_i].evidence) == outcomes[_i].class,
                  "%s: %s instead of %s", outcomes[_i].what,
                  ledger_class_name(ledger_classify(&outcomes[_i].evidence)),
                  ledger_class_name(outcomes[_i].class));
}
END_TEST

/* --- present sets ---------------------------------------------------------------------------- */

#define START "ordeal-present-1 run=r node=n2 system=73 timeline=2 recovery=no lsn=1/5000148\n"

static enum status load(const char *text, struct present *ret_present, struct error *err)
{
    static struct arena *arena;

    arena_free(arena);
    arena = arena_new();
    ck_assert_int_eq(truncate(path, 0), 0);
    write_at(0, text, strlen(text));
    return present_load(arena, path, ret_present, err);
}

START_TEST(present_set)
{
    struct present present;
    struct error err = {0};
    enum status status = load(START "range 1 1 10\nodd 1 11 rows=2 of=3 bad=1\nrange 1 12 12\n"
                                    "range 4 3 5\nodd 1000000 1 rows=2 of=1 bad=0\nend tokens=16\n",
                              &present, &err);

    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    ck_assert_str_eq(present.node, "n2");
    ck_assert_str_eq(present.system_identifier, "73");
    ck_assert_uint_eq(present.timeline, 2);
    ck_assert_uint_eq(present.lsn, UINT64_C(0x105000148));
    ck_assert(!present.in_recovery);
    ck_assert_uint_eq(present.tokens, 16);
    ck_assert_uint_eq(present.odd_count, 2);
    ck_assert_uint_eq(present.odd[0].rows, 2);
    ck_assert_uint_eq(present.odd[0].expected, 3);
    ck_assert_uint_eq(present.odd[0].bad, 1);
    ck_assert(present_has(&present, 1, 1) && present_has(&present, 1, 10));
    ck_assert(present_has(&present, 1, 12) && present_has(&present, 4, 4));
    ck_assert(!present_has(&present, 1, 0) && !present_has(&present, 1, 11));
    ck_assert(!present_has(&present, 1, 13) && !present_has(&present, 2, 4));
    ck_assert(!present_has(&present, 4, 2) && !present_has(&present, 4, 6));
    ck_assert(!present_has(&present, 5, 1) && !present_has(&present, 1000000, 1));
}
END_TEST

START_TEST(empty_present_set)
{
    struct present present;

    ck_assert_int_eq(load(START "end tokens=0\n", &present, NULL), STATUS_OK);
    ck_assert_uint_eq(present.range_count, 0);
    ck_assert(!present_has(&present, 1, 1));
}
END_TEST

static const char *const malformed[] = {
    "",
    START,
    START "range 1 1 10\n",
    START "range 1 1 10\nend tokens=10", /* no line end: cut off */
    START "range 1 1 10\nend tokens=1",
    START "range 1 1 10\nend tokens=9\n",
    START "range 1 1 10\nend tokens=10\nrange 2 1 1\n",
    START "range 1 1 10\nend tokens=10\nx",
    START "range 1 1 10\nrange 1 10 11\nend tokens=12\n",
    START "range 2 1 1\nrange 1 1 1\nend tokens=2\n",
    START "range 1 5 4\nend tokens=0\n",
    START "range 1 0 4\nend tokens=5\n",
    START "range 1 1\nend tokens=1\n",
    START "range 1 1 1 1\nend tokens=1\n",
    START "range  1 1 1\nend tokens=1\n",
    START "range 1 -1 1\nend tokens=1\n",
    START "range 4294967296 1 1\nend tokens=1\n",
    START "range 1 1 99999999999999999999\nend tokens=1\n",
    START "range 1 1 10\nodd 1 5 rows=1 of=2 bad=0\nend tokens=11\n",
    START "odd 1 5 rows=1 of=2 bad=0\nodd 1 5 rows=1 of=2 bad=0\nend tokens=2\n",
    START "odd 1 5 rows=0 of=2 bad=0\nend tokens=1\n",
    START "odd 1 5 rows=1 of=2\nend tokens=1\n",
    START "unknown 1\nend tokens=0\n",
    START START "end tokens=0\n",
    "range 1 1 1\nend tokens=1\n",
    "ordeal-present-2 run=r node=n2 system=73 timeline=2 recovery=no lsn=0/0\nend tokens=0\n",
    "ordeal-present-1 node=n2 system=73 timeline=2 recovery=no lsn=0/0\nend tokens=0\n",
    "ordeal-present-1 run=r node=n2 system=73 timeline=2 recovery=maybe lsn=0/0\nend tokens=0\n",
    "ordeal-present-1 run=r node=n2 system=73 timeline=2 recovery=no lsn=00\nend tokens=0\n",
    "ordeal-present-1 run=r node=n2 system=73 timeline=2 recovery=no lsn=0/x\nend tokens=0\n",
    "ordeal-present-1 run=r node=n2 system=73 timeline=2 recovery=no lsn=0/123456789\nend "
    "tokens=0\n",
};

START_TEST(malformed_present_set)
{
    struct present present;
    struct error err = {0};

    ck_assert_msg(load(malformed[_i], &present, &err) == STATUS_INVALID, "taken: %s",
                  malformed[_i]);
    ck_assert_ptr_nonnull(strstr(err.message, path));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ledger");
    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, setup, teardown);
    tcase_add_test(files, reads_what_was_written);
    tcase_add_test(files, full_file_has_no_tail);
    tcase_add_test(files, end_must_be_the_last);
    tcase_add_test(files, torn_record_ends_the_file);
    tcase_add_test(files, hole_before_records_is_torn);
    tcase_add_test(files, partial_record_at_the_end_is_torn);
    tcase_add_test(files, refuses_headers);
    tcase_add_test(files, refuses_impossible_records);
    suite_add_tcase(suite, files);

    TCase *classes_case = tcase_create("classes");
    tcase_add_test(classes_case, names);
    tcase_add_test(classes_case, digest);
    tcase_add_loop_test(classes_case, classes, 0, sizeof(outcomes) / sizeof(outcomes[0]));
    suite_add_tcase(suite, classes_case);

    TCase *sets = tcase_create("present sets");
    tcase_add_checked_fixture(sets, setup, teardown);
    tcase_add_test(sets, present_set);
    tcase_add_test(sets, empty_present_set);
    tcase_add_loop_test(sets, malformed_present_set, 0, sizeof(malformed) / sizeof(malformed[0]));
    suite_add_tcase(suite, sets);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
