/* JSON as it comes from other programs. */
#ifndef BANYAN_JSON_H
#define BANYAN_JSON_H

#include <stddef.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* jansson's json_t and json_error_t. */
struct json_t;
struct json_error_t;

/* Does what json_loadb does, with its flags JSON_REJECT_DUPLICATES, JSON_DECODE_ANY,
 * JSON_DECODE_INT_AS_REAL and JSON_ALLOW_NUL, and also reads valid JSON that json_loadb refuses: a
 * number beyond int64 or double becomes an object that json_is_object alone takes for one, and
 * that has no member of any name; U+0000 without JSON_ALLOW_NUL, and half of a surrogate pair,
 * become U+FFFD; a byte-order mark in front is skipped. Returns a new reference, or NULL: *error
 * (may be NULL) says why. */
BY_API struct json_t *by_json_load(const char *text, size_t length, size_t flags,
                                   struct json_error_t *error);

#ifdef __cplusplus
}
#endif

#endif
