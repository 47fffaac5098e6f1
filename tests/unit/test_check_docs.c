/* SPDX-License-Identifier: MIT */
/*
 * Every registered check has its section in docs/verdicts.md with all four parts, and its negative
 * control is there: the file that it names, with the words that it names.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/owned.h"
#include "orchestrator/checks/check.h"
#include "tests/support/suite.h"

enum { TEXT_MAX = 1 << 20 };

static size_t read_text(const char *path, char *text)
{
    OWNED_FILE FILE *file = fopen(path, "re");

    ck_assert_msg(file != NULL, "no file %s", path);
    size_t length = fread(text, 1, TEXT_MAX - 1, file);
    text[length] = '\0';
    return length;
}

/* The part of the page from its heading to the next one; ends the text there. */
static char *section_of(char *page, const char *check)
{
    char heading[80];

    snprintf(heading, sizeof heading, "\n## %s\n", check);
    char *begin = strstr(page, heading);
    if (begin == NULL)
        return NULL;
    char *end = strstr(begin + strlen(heading), "\n## ");
    if (end != NULL)
        *end = '\0';
    return begin;
}

START_TEST(every_check_has_its_section)
{
    static const char *const parts[] = {"**Means.**", "**Measured.**", "**Cannot see.**",
                                        "**Negative control.**"};
    static char page[TEXT_MAX];

    for (const struct check *const *list = check_list(); *list != NULL; list++) {
        read_text("docs/verdicts.md", page);
        char *section = section_of(page, (*list)->name);
        ck_assert_msg(section != NULL, "docs/verdicts.md has no section %s", (*list)->name);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
            ck_assert_msg(strstr(section, parts[i]) != NULL, "section %s lacks %s", (*list)->name,
                          parts[i]);
    }
}
END_TEST

START_TEST(every_negative_control_is_there)
{
    static char page[TEXT_MAX];
    static char source[TEXT_MAX];

    for (const struct check *const *list = check_list(); *list != NULL; list++) {
        const char *control = (*list)->negative_control;
        const char *words = strstr(control, ": ");
        char path[128];
        ck_assert_msg(words != NULL, "%s: \"%s\" names no words", (*list)->name, control);
        snprintf(path, sizeof path, "%.*s", (int) (words - control), control);
        read_text(path, source);
        ck_assert_msg(strstr(source, words + 2) != NULL, "%s: no \"%s\" in %s", (*list)->name,
                      words + 2, path);
        read_text("docs/verdicts.md", page);
        ck_assert_msg(strstr(section_of(page, (*list)->name), path) != NULL,
                      "section %s does not name %s", (*list)->name, path);
    }
}
END_TEST

/* A page without the section is told apart from one with it. */
START_TEST(a_missing_section_is_seen)
{
    char page[] = "# Verdicts\n\n## durability\n\n**Means.**\n\n## recovery\n\nnothing\n";

    ck_assert_ptr_null(section_of(page, "integrity"));
    char *section = section_of(page, "durability");
    ck_assert_ptr_nonnull(strstr(section, "**Means.**"));
    ck_assert_ptr_null(strstr(section, "recovery"));
}
END_TEST

TEST_MAIN("check docs", 20, NULL, NULL, every_check_has_its_section,
          every_negative_control_is_there, a_missing_section_is_seen)
