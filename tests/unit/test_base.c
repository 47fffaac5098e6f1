/* SPDX-License-Identifier: MIT */
/* Errors, arenas, buffers, clocks, CRC-32C and JSON helpers. */
#include <errno.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/crc32c.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "tests/support/suite.h"

static size_t released_count;
static const int *released[2];

static void release_number(void *object)
{
    released[released_count++] = object;
}

START_TEST(arena_frees_what_it_adopted_last_first)
{
    static int first = 1, second = 2;
    struct arena *arena = arena_new();

    released_count = 0;
    arena_adopt(arena, &first, release_number);
    arena_adopt(arena, &second, release_number);
    ck_assert_uint_eq(released_count, 0);
    arena_free(arena);
    ck_assert_uint_eq(released_count, 2);
    ck_assert_ptr_eq(released[0], &second);
    ck_assert_ptr_eq(released[1], &first);
}
END_TEST

START_TEST(error_context_stands_in_front)
{
    struct error err;

    errno = ENOENT;
    ck_assert_int_eq(error_system(&err, "opening %s", "x"), STATUS_SYSTEM);
    ck_assert_int_eq(error_context(&err, "node %s", "n1"), STATUS_SYSTEM);
    ck_assert_str_eq(err.message, "node n1: opening x: No such file or directory");
    ck_assert_int_eq(err.errnum, ENOENT);
}
END_TEST

START_TEST(error_too_long_shows_that_it_was_cut)
{
    struct error err;
    char text[4096];

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    error_set(&err, STATUS_INVALID, "%s", text);
    ck_assert_str_eq(err.message + strlen(err.message) - 3, "...");
}
END_TEST

START_TEST(status_names_go_both_ways)
{
    for (int code = STATUS_OK; code <= STATUS_INTERNAL; code++)
        ck_assert_int_eq(status_from_name(status_name((enum status) code)), code);
    ck_assert_int_eq(status_from_name("no such"), STATUS_INTERNAL);
}
END_TEST

START_TEST(buffer_refuses_what_does_not_fit)
{
    OWNED_BUFFER struct buffer buffer = BUFFER(10);

    buffer_puts(&buffer, "12345");
    buffer_puts(&buffer, "678901");
    ck_assert(buffer.overflow);
    ck_assert_str_eq(buffer_text(&buffer), "12345");
    buffer_reset(&buffer);
    buffer_printf(&buffer, "%d", 1234567890);
    ck_assert(!buffer.overflow);
    buffer_consume(&buffer, 4);
    ck_assert_str_eq(buffer_text(&buffer), "567890");
}
END_TEST

START_TEST(arena_memory_is_zeroed_and_kept)
{
    OWNED_ARENA struct arena *arena = arena_new();
    char *first = arena_strdup(arena, "first");
    const unsigned char *large = arena_alloc(arena, 100000);

    for (size_t i = 0; i < 100000; i++)
        ck_assert_int_eq(large[i], 0);
    ck_assert_str_eq(arena_printf(arena, "%s %d", first, 2), "first 2");
    ck_assert_str_eq(first, "first");
}
END_TEST

START_TEST(crc32c_has_its_published_value)
{
    unsigned char zeros[32] = {0};

    ck_assert_uint_eq(crc32c("123456789", 9), 0xE3069283U);
    ck_assert_uint_eq(crc32c(zeros, sizeof zeros), 0x8A9136AAU); /* RFC 3720 B.4 */
    ck_assert_uint_eq(crc32c_by_table("123456789", 9), 0xE3069283U);
    ck_assert_uint_eq(crc32c_by_table(zeros, sizeof zeros), 0x8A9136AAU);
}
END_TEST

START_TEST(wall_text_is_iso_8601)
{
    char text[WALL_TEXT_SIZE];

    clock_wall_text(INT64_C(1796045599123000000), text);
    ck_assert_str_eq(text, "2026-11-30T13:33:19.123Z");
}
END_TEST

START_TEST(json_read_names_what_is_wrong)
{
    struct error err;
    const char *text;
    OWNED_JSON json_t *json = json_pack("{s:i}", "name", 1);

    ck_assert_int_eq(json_read(json, "params", &err, "{s:s}", "name", &text), STATUS_INVALID);
    ck_assert_int_eq(strncmp(err.message, "params: ", 8), 0);
}
END_TEST

START_TEST(errors_travel_as_json)
{
    struct error sent, received;

    error_set(&sent, STATUS_TIMEOUT, "node %s is silent", "n1");
    error_hint(&sent, "Look at it.");
    OWNED_JSON json_t *json = json_from_error(&sent);
    ck_assert_int_eq(json_to_error(json, &received), STATUS_TIMEOUT);
    ck_assert_str_eq(received.message, "node n1 is silent");
    ck_assert_str_eq(received.hint, "Look at it.");
}
END_TEST

TEST_MAIN("base", 20, NULL, NULL, error_context_stands_in_front,
          error_too_long_shows_that_it_was_cut, status_names_go_both_ways,
          buffer_refuses_what_does_not_fit, arena_memory_is_zeroed_and_kept,
          arena_frees_what_it_adopted_last_first, crc32c_has_its_published_value,
          wall_text_is_iso_8601, json_read_names_what_is_wrong, errors_travel_as_json)
