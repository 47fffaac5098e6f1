/* SPDX-License-Identifier: MIT */
/*
 * Each fault has a page in docs/faults, whose table of parameters says what the descriptor says.
 * Run from the top of the source tree, as tests/run does.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faults/fault.h"
#include "lib/owned.h"
#include "tests/support/suite.h"

#define FOLDER "docs/faults"

enum { PAGE_MAX = 64 * 1024 };

static char page[PAGE_MAX];

static const char *const sections[] = {
    "## Effect", "## In real outages", "## Parameters", "## Needs",
    "## End",    "## Neighbours",      "## Witness"};

static const char *read_page(const struct fault *fault)
{
    char path[128];

    snprintf(path, sizeof path, FOLDER "/%s.md", fault->name);
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "there is no %s", path);
    ssize_t length = read(fd, page, sizeof page - 1);
    ck_assert(length > 0 && (size_t) length < sizeof page - 1);
    page[length] = '\0';
    return page;
}

static void write_type(const struct param *param, struct buffer *row)
{
    buffer_puts(row, param_type_name(param->type));
    if (param->type == PARAM_CHOICE) {
        buffer_puts(row, ": ");
        for (const char *c = param->choices; *c != '\0'; c++)
            buffer_printf(row, "%s%.1s", *c == '|' ? ", " : "", *c == '|' ? "" : c);
    }
    if (param->maximum == INT64_MAX)
        buffer_printf(row, ", at least %lld", (long long) param->minimum);
    else if (param->minimum != 0 || param->maximum != 0)
        buffer_printf(row, ", %lld to %lld", (long long) param->minimum,
                      (long long) param->maximum);
}

/* The row of the page for one parameter. */
static void write_row(const struct param *param, struct buffer *row)
{
    buffer_printf(row, "| `%s` | ", param->name);
    write_type(param, row);
    buffer_printf(row, " | %s | %s |\n",
                  param->required           ? "required"
                  : param->fallback != NULL ? param->fallback
                                            : "none",
                  param->help);
}

START_TEST(the_table_says_what_the_descriptor_says)
{
    static const char head[] = "## Parameters\n\n| parameter | type | default | meaning |\n"
                               "|---|---|---|---|\n";

    for (const struct fault *const *fault = fault_list(); *fault != NULL; fault++) {
        OWNED_BUFFER struct buffer expected = BUFFER(PAGE_MAX);
        buffer_puts(&expected, head);
        for (const struct param *param = (*fault)->params; param->type != PARAM_END; param++)
            write_row(param, &expected);
        buffer_puts(&expected, "\n"); /* nor any row more */
        ck_assert_msg(strstr(read_page(*fault), buffer_text(&expected)) != NULL,
                      FOLDER "/%s.md lacks:\n%s", (*fault)->name, buffer_text(&expected));
    }
}
END_TEST

START_TEST(each_page_has_its_title_and_sections)
{
    for (const struct fault *const *fault = fault_list(); *fault != NULL; fault++) {
        const char *text = read_page(*fault), *at = text;
        char title[64];
        snprintf(title, sizeof title, "# %s\n", (*fault)->name);
        ck_assert_int_eq(strncmp(text, title, strlen(title)), 0);
        for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
            at = strstr(at, sections[i]);
            ck_assert_msg(at != NULL, "%s: no \"%s\" in its place", (*fault)->name, sections[i]);
        }
    }
}
END_TEST

START_TEST(no_page_is_of_a_fault_that_is_not_there)
{
    OWNED_DIR DIR *folder = opendir(FOLDER);

    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char *end = strstr(entry->d_name, ".md");
        if (end == NULL || strcmp(entry->d_name, "README.md") == 0)
            continue;
        *end = '\0';
        ck_assert_msg(fault_find(entry->d_name) != NULL, "no fault is called %s", entry->d_name);
    }
}
END_TEST

TEST_MAIN("fault pages", 20, NULL, NULL, the_table_says_what_the_descriptor_says,
          each_page_has_its_title_and_sections, no_page_is_of_a_fault_that_is_not_there)
