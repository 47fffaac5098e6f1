/* SPDX-License-Identifier: MIT */
#include "lib/pg.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"

START_TEST(test_lsn_both_ways)
{
    static const struct {
        const char *text;
        uint64_t lsn;
    } cases[] = {
        {"0/3000148", UINT64_C(0x3000148)},
        {"16/B374D848", UINT64_C(0x16B374D848)},
        {"FFFFFFFF/FFFFFFFF", UINT64_MAX},
        {"0/0", 0},
    };
    char text[PG_LSN_TEXT_SIZE];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_uint_eq(pg_lsn_parse(cases[i].text), cases[i].lsn);
        pg_lsn_text(cases[i].lsn, text);
        ck_assert_str_eq(text, cases[i].text);
    }
    ck_assert_uint_eq(pg_lsn_parse("16/b374d848"), UINT64_C(0x16B374D848));
}
END_TEST

START_TEST(test_lsn_malformed_is_zero)
{
    static const char *const cases[] = {"",     "0",     "/",           "0/",
                                        "/1",   "1/2x",  " 1/2",        "1 /2",
                                        "-1/2", "1/2/3", "123456789/1", "1/123456789"};

    ck_assert_uint_eq(pg_lsn_parse(NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(pg_lsn_parse(cases[i]) == 0, "%s", cases[i]);
}
END_TEST

static void write_password(char path[], const char *text, mode_t mode)
{
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t) strlen(text));
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

static enum status read_password(const char *text, mode_t mode, char *password, size_t size,
                                 struct error *err)
{
    char path[] = "/tmp/ordeal-test-password-XXXXXX";

    write_password(path, text, mode);
    enum status status = pg_password(path, password, size, err);
    unlink(path);
    return status;
}

START_TEST(test_password_file)
{
    char password[16];
    struct error err;

    ck_assert_int_eq(read_password("secret\nmore\n", 0600, password, sizeof password, &err),
                     STATUS_OK);
    ck_assert_str_eq(password, "secret");
    ck_assert_int_eq(read_password("secret", 0400, password, sizeof password, &err), STATUS_OK);
    ck_assert_str_eq(password, "secret");
    ck_assert_int_eq(read_password("secret\n", 0640, password, sizeof password, &err),
                     STATUS_REFUSED);
    ck_assert_ptr_null(strstr(err.message, "secret"));
    ck_assert_int_eq(read_password("secret\n", 0604, password, sizeof password, &err),
                     STATUS_REFUSED);
    ck_assert_int_eq(read_password("\n", 0600, password, sizeof password, &err), STATUS_INVALID);
    ck_assert_int_eq(
        read_password("0123456789abcdef0123456789", 0600, password, sizeof password, &err),
        STATUS_INVALID);
    ck_assert_int_eq(pg_password("/nonexistent/password", password, sizeof password, &err),
                     STATUS_SYSTEM);
}
END_TEST

START_TEST(test_nobody_listens)
{
    struct pg_target target = {.host = "127.0.0.1", .port = 1, .user = "postgres"};
    PGconn *connection = NULL;
    struct error err;

    ck_assert_int_eq(pg_connect(&target, deadline_in_ms(2000), &connection, &err),
                     STATUS_UNREACHABLE);
    ck_assert_ptr_null(connection);
    ck_assert_ptr_nonnull(strstr(err.message, "127.0.0.1 port 1"));
    ck_assert_str_eq(err.detail, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pg");
    TCase *pure = tcase_create("pure");

    tcase_add_test(pure, test_lsn_both_ways);
    tcase_add_test(pure, test_lsn_malformed_is_zero);
    tcase_add_test(pure, test_password_file);
    tcase_add_test(pure, test_nobody_listens);
    suite_add_tcase(suite, pure);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
