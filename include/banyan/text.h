/* Pieces of text, strings that grow, JSON strings, sizes and times as people write them, and "did
 * you mean" suggestions for names. */
#ifndef BANYAN_TEXT_H
#define BANYAN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A piece of text, borrowed; not NUL-terminated. */
typedef struct by_text {
    const char *data;
    size_t length; /* in bytes */
} by_text;

/* A growing, NUL-terminated string of any bytes; {0} is empty, with data NULL. A failed allocation
 * sets `failed` and turns later calls into no-ops, so that one check at the end is enough. `data`
 * is the caller's: freed with by_string_free, or taken and freed with free(). */
typedef struct by_string {
    char *data;
    size_t length; /* without the NUL */
    size_t capacity;
    bool failed;
} by_string;

/* Adds n bytes. */
BY_API void by_string_add(by_string *string, const void *bytes, size_t n);
/* Adds what printf prints. */
BY_API void by_string_format(by_string *string, const char *format, ...) BY_PRINTF(2, 3);
/* Adds n bytes as a quoted JSON string; what is not UTF-8 becomes U+FFFD, as in Python. */
BY_API void by_string_json(by_string *string, const char *bytes, size_t n);
/* BY_EMEMORY if an allocation failed. */
BY_API by_status by_string_check(const by_string *string, by_error *error);
BY_API void by_string_free(by_string *string);

/* Formats a byte count in binary units: "1.5 GiB", "312.0 KiB", "17 B". Returns `buffer`. */
BY_API const char *by_format_bytes(char buffer[32], uint64_t bytes);

/* Returns the first of `count` names that is nearest to `name` by characters inserted, dropped,
 * changed or swapped; NULL if none is within 1 for up to 4 characters, 2 for up to 8, else a third
 * of them. Names over 63 bytes never match. */
BY_API const char *by_nearest_name(const char *name, const char *const *names, size_t count);

/* Returns true if `name` is one of a list of names with '|' between them, "a|b|c". */
BY_API bool by_name_listed(const char *names, const char *name);

/* Parses a size: a whole number of bytes, or a number with B, KB, MB, GB, TB (powers of 1000), KiB,
 * MiB, GiB, TiB or K, M, G, T (powers of 1024), in upper or lower case. Returns false if the text
 * is none. Independent of the locale. */
BY_API bool by_parse_size(int64_t *bytes, const char *text);
/* Parses a time: seconds, or a number with ms, s, m (min), h or d. Likewise. */
BY_API bool by_parse_duration(double *seconds, const char *text);

#ifdef __cplusplus
}
#endif

#endif
