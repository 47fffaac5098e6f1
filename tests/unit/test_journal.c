/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/guardian/journal.h"
#include "agents/guardian/member.h"
#include "tests/support/suite.h"

static const char boot_id[] = "7e659d21-9b66-4193-bf19-e163c9db2290";
static const char record[] = "{\"uid\":\"f-1\",\"run\":\"r\"}";

/* What a reader was given. */
static struct journal_line lines[16];
static char texts[16][256];
static size_t count;

static void setup(void)
{
    count = 0;
}

static void take(void *argument, const struct journal_line *line)
{
    (void) argument;
    ck_assert_uint_lt(count, 16);
    lines[count] = *line;
    snprintf(texts[count], sizeof texts[count], "%.*s", (int) line->record_length,
             line->record_length > 0 ? line->record : "");
    count++;
}

static size_t open_line(char *text, const char *uid)
{
    struct journal_line line = {.kind = JOURNAL_OPEN,
                                .deadline_ns = 123456789,
                                .record = record,
                                .record_length = strlen(record)};

    strcpy(line.uid, uid);
    strcpy(line.boot_id, boot_id);
    return journal_format(&line, text);
}

static size_t closed_line(char *text, const char *uid)
{
    struct journal_line line = {
        .kind = JOURNAL_CLOSED, .at_ns = 987, .who = "lease", .state = "absent"};

    strcpy(line.uid, uid);
    return journal_format(&line, text);
}

static struct journal_damage read_text(const char *text, size_t length)
{
    char path[] = "/tmp/ordeal-journal-XXXXXX";
    int fd = mkstemp(path);
    struct journal_damage damage;
    struct error err;

    ck_assert_int_ge(fd, 0);
    unlink(path);
    ck_assert_int_eq(write(fd, text, length), (ssize_t) length);
    ck_assert_int_eq(journal_read(fd, take, NULL, &damage, &err), STATUS_OK);
    close(fd);
    return damage;
}

START_TEST(lines_come_back_as_they_were)
{
    static char text[2 * JOURNAL_LINE_MAX];
    size_t length = open_line(text, "f-1");

    length += closed_line(text + length, "f-1");
    ck_assert_uint_eq(read_text(text, length).lines, 0);
    ck_assert_uint_eq(count, 2);
    ck_assert_int_eq(lines[0].kind, JOURNAL_OPEN);
    ck_assert_str_eq(lines[0].uid, "f-1");
    ck_assert_str_eq(lines[0].boot_id, boot_id);
    ck_assert_int_eq(lines[0].deadline_ns, 123456789);
    ck_assert_str_eq(texts[0], record);
    ck_assert_int_eq(lines[1].kind, JOURNAL_CLOSED);
    ck_assert_int_eq(lines[1].at_ns, 987);
    ck_assert_str_eq(lines[1].who, "lease");
    ck_assert_str_eq(lines[1].state, "absent");
}
END_TEST

/* Every place at which a power loss may cut the last line. */
START_TEST(a_torn_end_costs_that_line_only)
{
    static char text[2 * JOURNAL_LINE_MAX];
    size_t first = open_line(text, "f-1");
    size_t second = open_line(text + first, "f-2");

    for (size_t cut = 0; cut < second; cut++) {
        count = 0;
        struct journal_damage damage = read_text(text, first + cut);
        bool whole = cut == second - 1; /* only the line end is missing */
        ck_assert_uint_eq(count, whole ? 2 : 1);
        ck_assert_uint_eq(damage.lines, cut == 0 || whole ? 0 : 1);
        ck_assert_str_eq(lines[0].uid, "f-1");
    }
}
END_TEST

/* Every single byte of a line, changed: the line is not believed, its neighbours are. */
START_TEST(a_changed_byte_is_found)
{
    static char text[3 * JOURNAL_LINE_MAX];
    size_t first = open_line(text, "f-1");
    size_t second = open_line(text + first, "f-2");
    size_t third = closed_line(text + first + second, "f-3");

    for (size_t at = 0; at + 1 < second; at++) {
        count = 0;
        text[first + at] ^= 1;
        struct journal_damage damage = read_text(text, first + second + third);
        text[first + at] ^= 1;
        ck_assert_msg(count == 2 && damage.lines >= 1, "byte %zu: %zu lines", at, count);
        ck_assert_str_eq(lines[0].uid, "f-1");
        ck_assert_str_eq(lines[1].uid, "f-3");
    }
}
END_TEST

START_TEST(a_line_behind_a_torn_one_counts)
{
    static char text[3 * JOURNAL_LINE_MAX];
    size_t length = open_line(text, "f-1") / 2; /* torn, then a writer that began a new line */

    text[length++] = '\n';
    length += open_line(text + length, "f-2");
    struct journal_damage damage = read_text(text, length);
    ck_assert_uint_eq(damage.lines, 1);
    ck_assert_str_eq(damage.last.message, "a line with a wrong checksum");
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(lines[0].uid, "f-2");
}
END_TEST

START_TEST(empty_and_foreign_files_give_nothing)
{
    ck_assert_uint_eq(read_text("", 0).lines, 0);
    ck_assert_uint_eq(read_text("\n\n", 2).lines, 0);
    ck_assert_uint_eq(read_text("2 12345678 open x\nhello\n", 24).lines, 2);
    ck_assert_uint_eq(count, 0);
}
END_TEST

START_TEST(uids_are_checked)
{
    static const char *const bad[] = {"",    "A",   "a b",
                                      "a/b", "a_b", "12345678901234567890123456789012345678901"};

    ck_assert(journal_uid_valid("r1-kill-0"));
    ck_assert(journal_uid_valid("1234567890123456789012345678901234567890"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!journal_uid_valid(bad[i]), "'%s'", bad[i]);
}
END_TEST

START_TEST(members_are_those_of_the_outermost_object)
{
    static const char json[] = "{\"params\":{\"run\":\"inner\",\"a\":[{\"uid\":1}]},"
                               "\"text\":\"\\\"run\\\":\\\"no\\\"}\", \"run\" : \"r-1\","
                               "\"hold_ms\": 2500 ,\"uid\":\"f\"}";
    char text[16];

    ck_assert(member_is_object(json));
    ck_assert(member_text(json, "run", text, sizeof text));
    ck_assert_str_eq(text, "r-1");
    ck_assert(member_text(json, "uid", text, sizeof text));
    ck_assert_str_eq(text, "f");
    ck_assert_int_eq(member_number(json, "hold_ms", -1), 2500);
    ck_assert_int_eq(member_number(json, "a", -1), -1);
    ck_assert_int_eq(member_number(json, "run", -1), -1);
    ck_assert(!member_text(json, "text", text, sizeof text)); /* has escapes */
    ck_assert(!member_text(json, "hold_ms", text, sizeof text));
}
END_TEST

START_TEST(what_is_no_object_is_refused)
{
    static const char *const bad[] = {"",           "[]",        "{",          "{\"a\":1",
                                      "{\"a}",      "{\"a\" 1}", "{\"a\":}}",  "{\"a\":1} x",
                                      "{\"a\":[1}", "x{}",       "{\"a\":\"\\"};
    char text[16];

    ck_assert(member_is_object("{}"));
    ck_assert(member_is_object(" {\"a\": {\"b\": [1, \"}\"]}} "));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(!member_is_object(bad[i]), "'%s'", bad[i]);
        ck_assert(!member_text(bad[i], "uid", text, sizeof text));
    }
}
END_TEST

TEST_MAIN("journal", 20, setup, NULL, lines_come_back_as_they_were, a_torn_end_costs_that_line_only,
          a_changed_byte_is_found, a_line_behind_a_torn_one_counts,
          empty_and_foreign_files_give_nothing, uids_are_checked,
          members_are_those_of_the_outermost_object, what_is_no_object_is_refused)
