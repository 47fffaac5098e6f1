/* SPDX-License-Identifier: MIT */
/* Sync sets in all of PostgreSQL's forms, and the arithmetic of loss. */
#include <string.h>

#include "lib/owned.h"
#include "tests/support/suite.h"
#include "topologies/ha/quorum.h"

struct form {
    const char *setting;
    enum quorum_method method;
    size_t k, count;
    const char *names[4];
    bool wildcard;
};

static const struct form forms[] = {
    {NULL, QUORUM_NONE, 0, 0, {0}, false},
    {"", QUORUM_NONE, 0, 0, {0}, false},
    {"n2", QUORUM_FIRST, 1, 1, {"n2"}, false},
    {"n2, n3", QUORUM_FIRST, 1, 2, {"n2", "n3"}, false},
    {"2 (n2, n3)", QUORUM_FIRST, 2, 2, {"n2", "n3"}, false},
    {"FIRST 2 (n2, n3, n4)", QUORUM_FIRST, 2, 3, {"n2", "n3", "n4"}, false},
    {"first 1(n2,n3)", QUORUM_FIRST, 1, 2, {"n2", "n3"}, false},
    {"ANY 1 (n2, n3)", QUORUM_ANY, 1, 2, {"n2", "n3"}, false},
    {"any 02 ( n2\t,\n n3 )  ", QUORUM_ANY, 2, 2, {"n2", "n3"}, false},
    {"*", QUORUM_FIRST, 1, 1, {"*"}, true},
    {"ANY 2 (*)", QUORUM_ANY, 2, 1, {"*"}, true},
    {"\"*\"", QUORUM_FIRST, 1, 1, {"*"}, true},
    {"ANY 1 (\"a-b\", \"with \"\"quotes\"\"\")", QUORUM_ANY, 1, 2, {"a-b", "with \"quotes\""}, 0},
    {"\"any\", \"first\"", QUORUM_FIRST, 1, 2, {"any", "first"}, false},
    {"anyone, firstborn", QUORUM_FIRST, 1, 2, {"anyone", "firstborn"}, false},
    {"1, 2", QUORUM_FIRST, 1, 2, {"1", "2"}, false},
    {"3", QUORUM_FIRST, 1, 1, {"3"}, false},
    {"ANY 1 (1, n2)", QUORUM_ANY, 1, 2, {"1", "n2"}, false},
    {"_x$1, \xc3\xa9", QUORUM_FIRST, 1, 2, {"_x$1", "\xc3\xa9"}, false},
    {"ANY 1 (N2, n2)", QUORUM_ANY, 1, 2, {"N2", "n2"}, false},
};

START_TEST(every_form_is_read)
{
    OWNED_ARENA struct arena *arena = arena_new();

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct form *form = &forms[i];
        struct quorum_set set;
        struct error err = {0};
        ck_assert_msg(quorum_parse(arena, form->setting, &set, &err) == STATUS_OK, "%s: %s",
                      form->setting, err.message);
        ck_assert_int_eq(set.method, form->method);
        ck_assert_uint_eq(set.k, form->k);
        ck_assert_uint_eq(set.count, form->count);
        ck_assert_int_eq(set.wildcard, form->wildcard);
        for (size_t name = 0; name < form->count; name++)
            ck_assert_str_eq(set.names[name], form->names[name]);
    }
}
END_TEST

static const struct {
    const char *setting, *says;
} wrong[] = {
    {" ", "a name is expected at column 2"},
    {"n2,", "a name is expected at column 4"},
    {",n2", "a name is expected at column 1"},
    {"n2 n3", "text after the end at column 4"},
    {"n-2", "unexpected character at column 2"},
    {"ANY (n2)", "the number of standbys is expected at column 5"},
    {"ANY 1 n2", "\"(\" is expected at column 7"},
    {"ANY 1 (n2", "\",\" or \")\" is expected at column 10"},
    {"ANY 1 ()", "a name is expected at column 8"},
    {"ANY 1 (n2) x", "text after the end at column 12"},
    {"ANY 0 (n2)", "must be greater than zero at column 5"},
    {"0 (n2)", "must be greater than zero at column 1"},
    {"ANY 99999999999999999999 (n2)", "too large at column 5"},
    {"any, n2", "the number of standbys is expected at column 4"},
    {"\"n2", "unterminated quoted name at column 1"},
    {"ANY 1 (n2, any)", "a name is expected at column 12"},
    {"n2; n3", "unexpected character at column 3"},
};

START_TEST(what_postgresql_refuses_is_refused)
{
    OWNED_ARENA struct arena *arena = arena_new();

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct quorum_set set = {.k = 77};
        struct error err = {0};
        ck_assert_msg(quorum_parse(arena, wrong[i].setting, &set, &err) == STATUS_INVALID,
                      "'%s' was read", wrong[i].setting);
        ck_assert_msg(strstr(err.message, wrong[i].says) != NULL, "'%s': %s", wrong[i].setting,
                      err.message);
        ck_assert_uint_eq(set.k, 77);
    }
}
END_TEST

static const struct {
    const char *setting, *primary;
    size_t size, needed;
} sums[] = {
    {"ANY 1 (n2, n3)", "n1", 2, 2},
    {"ANY 2 (n2, n3)", "n1", 2, 1},
    {"ANY 2 (n2, n3, n4, n5)", "n1", 4, 3},
    {"ANY 1 (n2, n3, n4)", "n1", 3, 3},
    {"FIRST 1 (n2, n3)", "n1", 2, 2},
    {"FIRST 2 (n2, n3, n4)", "n1", 3, 2},
    {"n2", "n1", 1, 1},
    /* a primary does not acknowledge to itself */
    {"ANY 1 (n1, n2, n3)", "N1", 2, 2},
    /* the same name twice is one member */
    {"ANY 1 (n2, N2, n3)", "n1", 2, 2},
    /* more than there are: no commit was acknowledged, and one is asked all the same */
    {"ANY 3 (n2, n3)", "n1", 2, 1},
    {"", "n1", 0, QUORUM_IMPOSSIBLE},
    {"*", "n1", 1, QUORUM_IMPOSSIBLE},
    {"ANY 1 (n2, *)", "n1", 2, QUORUM_IMPOSSIBLE},
};

START_TEST(enough_members_are_asked_for)
{
    OWNED_ARENA struct arena *arena = arena_new();

    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        struct quorum_set set;
        ck_assert_int_eq(quorum_parse(arena, sums[i].setting, &set, NULL), STATUS_OK);
        ck_assert_msg(quorum_size(&set, sums[i].primary) == sums[i].size, "size of '%s'",
                      sums[i].setting);
        ck_assert_msg(quorum_needed(&set, sums[i].primary) == sums[i].needed, "needed of '%s'",
                      sums[i].setting);
    }
}
END_TEST

START_TEST(names_match_without_case)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct quorum_set set;

    ck_assert_int_eq(quorum_parse(arena, "ANY 1 (N2, n3, n2)", &set, NULL), STATUS_OK);
    ck_assert(quorum_names(&set, "n2"));
    ck_assert(quorum_names(&set, "N3"));
    ck_assert(!quorum_names(&set, "n1"));
    ck_assert_str_eq(quorum_repeated(&set), "n2");
    ck_assert_int_eq(quorum_parse(arena, "n2, n3", &set, NULL), STATUS_OK);
    ck_assert_ptr_null(quorum_repeated(&set));
    ck_assert_int_eq(quorum_parse(arena, "*", &set, NULL), STATUS_OK);
    ck_assert(quorum_names(&set, "anybody"));
    ck_assert_str_eq(quorum_method_name(set.method), "first");
}
END_TEST

TEST_MAIN("ha quorum", 10, NULL, NULL, every_form_is_read, what_postgresql_refuses_is_refused,
          enough_members_are_asked_for, names_match_without_case)
