/* SPDX-License-Identifier: MIT */
#include "lib/pg.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "tests/support/postgres_fixture.h"

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

static struct postgres_fixture *fixture;

static void up(void)
{
    fixture = postgres_fixture_new(1);
}

static void down(void)
{
    postgres_fixture_free(fixture);
}

static PGconn *open_connection(void)
{
    return postgres_fixture_connect(fixture, 0);
}

START_TEST(test_session_settings)
{
    char text[64];
    struct error err = {0};
    postgres_fixture_query(fixture, 0, "ALTER ROLE ordeal_admin SET client_min_messages = error");
    OWNED_PG PGconn *connection = open_connection();
    int64_t deadline_ns = deadline_in_ms(5000);

    ck_assert_int_eq(
        pg_query_text(connection, "SHOW client_min_messages", deadline_ns, text, sizeof text, &err),
        STATUS_OK);
    ck_assert_str_eq(text, "warning");
    ck_assert_int_eq(
        pg_query_text(connection, "SHOW search_path", deadline_ns, text, sizeof text, &err),
        STATUS_OK);
    ck_assert_str_eq(text, "pg_catalog");
    ck_assert_int_eq(pg_query_text(connection,
                                   "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
                                   deadline_ns, text, sizeof text, &err),
                     STATUS_OK);
    ck_assert_str_eq(text, "TLSv1.3");
}
END_TEST

START_TEST(test_query_errors)
{
    OWNED_PG PGconn *connection = open_connection();
    char text[8];
    struct error err = {0};
    int64_t deadline_ns = deadline_in_ms(5000);

    ck_assert_int_eq(pg_query(connection, "SELECT * FROM nowhere", deadline_ns, NULL, &err),
                     STATUS_DATABASE);
    ck_assert_str_eq(err.detail, "42P01");
    ck_assert_int_eq(
        pg_query_text(connection, "SELECT 1 WHERE false", deadline_ns, text, sizeof text, &err),
        STATUS_NOT_FOUND);
    ck_assert_int_eq(
        pg_query_text(connection, "SELECT 'too long'", deadline_ns, text, sizeof text, &err),
        STATUS_INVALID);
    ck_assert_int_eq(pg_query_text(connection, "SELECT NULL", deadline_ns, text, sizeof text, &err),
                     STATUS_OK);
    ck_assert_str_eq(text, "");
    const char *values[] = {"20", "22"};
    OWNED_PG_RESULT PGresult *result = NULL;
    ck_assert_int_eq(pg_query_params(connection, "SELECT $1::int + $2::int", 2, values, deadline_ns,
                                     &result, &err),
                     STATUS_OK);
    ck_assert_str_eq(PQgetvalue(result, 0, 0), "42");
}
END_TEST

START_TEST(test_deadline_cancels_the_statement)
{
    OWNED_PG PGconn *connection = open_connection();
    struct error err = {0};
    int64_t began_ns = clock_boot_ns();

    ck_assert_int_eq(pg_query(connection, "SELECT pg_sleep(60)", deadline_in_ms(200), NULL, &err),
                     STATUS_TIMEOUT);
    ck_assert_int_lt(clock_boot_ns() - began_ns, 5 * NS_PER_SECOND);
    postgres_fixture_wait(fixture, 0,
                          "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query "
                          "LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()",
                          "0");
}
END_TEST

START_TEST(test_wrong_password_is_the_database_speaking)
{
    char path[] = "/tmp/ordeal-test-password-XXXXXX";
    struct pg_target target = postgres_fixture_target(fixture, 0, "ordeal_load", "ordeal");
    PGconn *connection = NULL;
    struct error err = {0};

    write_password(path, "wrong-secret\n", 0600);
    target.password_file = path;
    enum status status = pg_connect(&target, deadline_in_ms(5000), &connection, &err);
    unlink(path);
    ck_assert_int_eq(status, STATUS_DATABASE);
    ck_assert_str_eq(err.detail, "28P01");
    ck_assert_ptr_null(strstr(err.message, "wrong-secret"));
}
END_TEST

START_TEST(test_terminated_session_is_lost)
{
    OWNED_PG PGconn *connection = open_connection();
    struct error err = {0};
    enum status status = pg_query(connection, "SELECT pg_terminate_backend(pg_backend_pid())",
                                  deadline_in_ms(5000), NULL, &err);

    ck_assert_int_eq(status, STATUS_DATABASE);
    ck_assert_str_eq(err.detail, "57P01");
    ck_assert_int_eq(pg_query(connection, "SELECT 1", deadline_in_ms(5000), NULL, &err),
                     STATUS_UNREACHABLE);
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
    TCase *server = tcase_create("server");
    tcase_add_unchecked_fixture(server, up, down);
    tcase_set_timeout(server, 60);
    tcase_add_test(server, test_session_settings);
    tcase_add_test(server, test_query_errors);
    tcase_add_test(server, test_deadline_cancels_the_statement);
    tcase_add_test(server, test_wrong_password_is_the_database_speaking);
    tcase_add_test(server, test_terminated_session_is_lost);
    suite_add_tcase(suite, server);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
