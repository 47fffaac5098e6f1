/* SPDX-License-Identifier: MIT */
#include "lib/units.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/error.h"

struct unit {
    const char *name;
    int64_t factor;
};

/* Largest first, so that the writers take the first that divides. */
static const struct unit durations[] = {
    {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}, {NULL, 0},
};

static const struct unit sizes[] = {
    {"TiB", INT64_C(1) << 40},
    {"GiB", INT64_C(1) << 30},
    {"MiB", INT64_C(1) << 20},
    {"KiB", INT64_C(1) << 10},
    {"B", 1},
    {NULL, 0},
};

/* A decimal number, taken apart so that it can be scaled without rounding. */
struct number {
    int64_t digits;  /* all digits as one integer */
    int64_t divisor; /* 10 to the number of digits after the point */
    const char *rest;
};

static bool push_digit(struct number *number, char digit, bool fraction)
{
    return !__builtin_mul_overflow(number->digits, 10, &number->digits) &&
           !__builtin_add_overflow(number->digits, digit - '0', &number->digits) &&
           !(fraction && __builtin_mul_overflow(number->divisor, 10, &number->divisor));
}

/* False for no digits, a point without digits on both sides, or more than 63 bits. */
static bool read_number(const char *text, struct number *ret_number)
{
    struct number number = {.divisor = 1};
    const char *at = text;

    if (!isdigit((unsigned char) *at))
        return false;
    for (; isdigit((unsigned char) *at); at++)
        if (!push_digit(&number, *at, false))
            return false;
    if (*at == '.') {
        at++;
        if (!isdigit((unsigned char) *at))
            return false;
        for (; isdigit((unsigned char) *at); at++)
            if (!push_digit(&number, *at, true))
                return false;
    }
    number.rest = at;
    *ret_number = number;
    return true;
}

static const struct unit *find_unit(const struct unit *units, const char *name)
{
    for (; units->name != NULL; units++)
        if (strcmp(units->name, name) == 0)
            return units;
    return NULL;
}

static enum status scale(const struct number *number, const struct unit *unit, const char *text,
                         int64_t *ret_value, struct error *err)
{
    int64_t product;

    if (__builtin_mul_overflow(number->digits, unit->factor, &product))
        return error_set(err, STATUS_INVALID, "%s is too large", text);
    if (product % number->divisor != 0)
        return error_set(err, STATUS_INVALID, "%s is finer than this value can be", text);
    *ret_value = product / number->divisor;
    return STATUS_OK;
}

static enum status read_scaled(const char *text, const struct unit *units, const char *what,
                               const char *examples, int64_t *ret_value, struct error *err)
{
    struct number number;

    if (!read_number(text, &number)) {
        error_set(err, STATUS_INVALID, "\"%s\" is not a %s", text, what);
        error_hint(err, "Write a number and a unit: %s.", examples);
        return STATUS_INVALID;
    }
    if (*number.rest == '\0' && number.digits == 0) {
        *ret_value = 0;
        return STATUS_OK;
    }
    const struct unit *unit = find_unit(units, number.rest);
    if (unit == NULL) {
        error_set(err, STATUS_INVALID, "\"%s\" is not a %s: %s%s", text, what,
                  *number.rest == '\0' ? "the unit is missing" : "unknown unit ", number.rest);
        error_hint(err, "Write a number and a unit: %s.", examples);
        return STATUS_INVALID;
    }
    return scale(&number, unit, text, ret_value, err);
}

enum status units_duration(const char *text, int64_t *ret_ms, struct error *err)
{
    return read_scaled(text, durations, "duration", "500ms, 30s, 5m, 2h", ret_ms, err);
}

enum status units_size(const char *text, int64_t *ret_bytes, struct error *err)
{
    return read_scaled(text, sizes, "size", "4096B, 512KiB, 64MiB, 1GiB", ret_bytes, err);
}

enum status units_rate(const char *text, double *ret_per_second, struct error *err)
{
    struct number number;
    double seconds = 0;

    if (read_number(text, &number)) {
        if (strcmp(number.rest, "/s") == 0)
            seconds = 1;
        else if (strcmp(number.rest, "/m") == 0)
            seconds = 60;
    }
    if (seconds == 0) {
        error_set(err, STATUS_INVALID, "\"%s\" is not a rate", text);
        error_hint(err, "Write events per second or minute: 100/s, 6/m.");
        return STATUS_INVALID;
    }
    *ret_per_second = (double) number.digits / (double) number.divisor / seconds;
    return STATUS_OK;
}

enum status units_percentage(const char *text, double *ret_percent, struct error *err)
{
    struct number number;

    if (!read_number(text, &number) || strcmp(number.rest, "%") != 0) {
        error_set(err, STATUS_INVALID, "\"%s\" is not a percentage", text);
        error_hint(err, "Write it as 80%%.");
        return STATUS_INVALID;
    }
    *ret_percent = (double) number.digits / (double) number.divisor;
    return STATUS_OK;
}

enum status units_integer(const char *text, int64_t *ret_value, struct error *err)
{
    struct number number;

    if (!read_number(text, &number) || number.divisor != 1 || *number.rest != '\0')
        return error_set(err, STATUS_INVALID, "\"%s\" is not a whole number", text);
    *ret_value = number.digits;
    return STATUS_OK;
}

/* Largest unit of which the value is a whole number, or a whole number of tenths above a second. */
static char *write_scaled(int64_t value, const struct unit *units, char *text, size_t size)
{
    const struct unit *unit = units;

    if (value == 0) {
        snprintf(text, size, "0");
        return text;
    }
    while (unit[1].name != NULL && value % unit->factor != 0)
        unit++;
    snprintf(text, size, "%" PRId64 "%s", value / unit->factor, unit->name);
    return text;
}

char *units_duration_text(int64_t ms, char *text, size_t size)
{
    if (ms <= 1000 || ms % 1000 == 0)
        return write_scaled(ms, durations, text, size);
    int digits = ms % 100 == 0 ? 1 : ms % 10 == 0 ? 2 : 3;
    int64_t part = ms % 1000 / (digits == 1 ? 100 : digits == 2 ? 10 : 1);
    snprintf(text, size, "%" PRId64 ".%0*" PRId64 "s", ms / 1000, digits, part);
    return text;
}

char *units_size_text(int64_t bytes, char *text, size_t size)
{
    return write_scaled(bytes, sizes, text, size);
}
