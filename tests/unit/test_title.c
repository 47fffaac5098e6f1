/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "lib/owned.h"
#include "lib/process.h"
#include "lib/title.h"
#include "tests/support/suite.h"

/* What ps would show: the arguments, NUL bytes turned into blanks. */
static size_t command_line(char *text, size_t size)
{
    OWNED_FILE FILE *file = fopen("/proc/self/cmdline", "re");

    ck_assert_ptr_nonnull(file);
    size_t length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    return length;
}

START_TEST(ps_shows_the_title)
{
    char text[4096];

    title_set("node %d", 7);
    command_line(text, sizeof(text));
    ck_assert_str_eq(text, "node 7");
}
END_TEST

START_TEST(a_title_that_is_too_long_is_cut_off)
{
    char before[4096], after[4096];
    size_t length = command_line(before, sizeof(before));

    title_set("%0200d", 1);
    command_line(after, sizeof(after));
    size_t expected = length - 1 < 200 ? length - 1 : 200;
    ck_assert_uint_eq(strlen(after), expected);
    ck_assert_uint_eq(strspn(after, "01"), expected);
}
END_TEST

TEST_MAIN("title", 5, NULL, NULL, ps_shows_the_title, a_title_that_is_too_long_is_cut_off)
