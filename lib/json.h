/* SPDX-License-Identifier: MIT */
/*
 * The few things that Ordeal adds to jansson: errors of our own kind and files written whole.
 */
#ifndef ORDEAL_LIB_JSON_H
#define ORDEAL_LIB_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

/*
 * json_unpack_ex() with our error: "what: ..." says which object is wrong. `format` is jansson's;
 * end an object with "!" to refuse unknown keys ("{s:s, s?I !}").
 */
MUST_CHECK enum status json_read(const json_t *json, const char *what, struct error *err,
                                 const char *format, ...);
MUST_CHECK enum status json_parse_text(const char *text, size_t length, json_t **ret_json,
                                       struct error *err);
MUST_CHECK enum status json_read_file(const char *path, json_t **ret_json, struct error *err);
/* Write a file whole (temporary name, fsync, rename, fsync of the folder), indented by two, keys
 * sorted. */
MUST_CHECK enum status json_write_file(const char *path, const json_t *json, struct error *err);
/* Values with a default for a missing or null member; a member of another type gives the default.
 */
const char *json_text(const json_t *object, const char *key, const char *fallback);
int64_t json_number(const json_t *object, const char *key, int64_t fallback);
bool json_flag(const json_t *object, const char *key, bool fallback);
/* {code, message, detail?, hint?} and back; used on the wire and in journals. */
json_t *json_from_error(const struct error *err);
enum status json_to_error(const json_t *json, struct error *err);

#endif
