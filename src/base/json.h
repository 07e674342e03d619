/* JSON from outside: read and written here, and held as jansson's values.
 *
 * All of RFC 8259 is read, also what jansson refuses or cannot hold, so that a field that nobody
 * reads never makes a document unreadable:
 *
 *   numbers beyond int64 or double   an object of a key that no text has; by__json_spelled knows it
 *   \u0000 in a string               U+0000 with JSON_ALLOW_NUL, else U+FFFD; U+FFFD in keys
 *   half of a surrogate pair         U+FFFD
 *   a byte-order mark in front       skipped
 *
 * Trailing text, invalid UTF-8, control characters in strings, more than BY__JSON_DEPTH levels and,
 * with JSON_REJECT_DUPLICATES, keys given twice are errors. What is written has each number as it
 * was spelled, or in the fewest digits that read back as the same value: 0.1 stays 0.1. */
#ifndef BY_BASE_JSON_H
#define BY_BASE_JSON_H

#include <jansson.h>

#include "banyan/json.h"
#include "base/base.h"

#define BY__JSON_DEPTH 2048u

/* A flag beside jansson's: real numbers keep their spelling, as by__json_spelled. */
#define BY__JSON_SPELLED ((size_t)1 << 24)

/* by_json_load (banyan/json.h) of the text of a file; BY_EFORMAT with its name and the line if it
 * is not JSON. */
by_status by__json_parse(json_t **out, const char *name, const char *text, size_t length,
                         size_t flags, by_error *error);
/* The same for a file of a directory, of at most `max` bytes; *out is NULL if there is none. */
by_status by__json_file(json_t **out, const char *directory, const char *name, size_t max,
                        size_t flags, by_error *error);
/* by_json_load (banyan/json.h) of a text that ends with a NUL; NULL: of none. */
json_t *by__json_read(const char *text, size_t flags, json_error_t *error);
/* Checks all of an object and makes only the value of its last member of this name (with
 * JSON_REJECT_DUPLICATES a second one is an error): *out is NULL if it has none. Returns false if
 * the text is not JSON, or not an object (*error is empty then). */
bool by__json_member(json_t **out, const char *text, size_t length, const char *name, size_t flags,
                     json_error_t *error);
/* The text of that value within the text, which is JSON. Returns false if there is none. */
bool by__json_member_text(const char **at, size_t *n, const char *text, size_t length,
                          const char *name);
/* The length of a JSON string at s with its quotes, its escapes unchecked; n if it has no end. */
size_t by__json_string_span(const char *s, size_t n);

/* The text of a number that a json_t cannot hold; NULL for any other value. */
const char *by__json_spelled(const json_t *value);
/* Whether a value is a number of any size, and its value: infinite if it is beyond double. */
bool by__json_is_number(const json_t *value);
double by__json_double(const json_t *value);
/* A text without U+0000; NULL for any other value. */
const char *by__json_string(const json_t *value);

/* json_dump and json_dumps with the flags JSON_COMPACT, JSON_INDENT, JSON_SORT_KEYS,
 * JSON_ENSURE_ASCII and JSON_REAL_PRECISION (0: the fewest digits); any value is written. The
 * second returns NULL when memory is exhausted. */
void by__json_write(by_string *out, const json_t *value, size_t flags);
char *by__json_dump(const json_t *value, size_t flags);
/* Adds a JSON text that is valid without the blanks outside its strings: numbers and escapes stay
 * as they are. */
void by__json_compact(by_string *out, const char *text, size_t length);

#endif
