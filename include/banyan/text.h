/* Byte counts for people, and "did you mean" suggestions for names. */
#ifndef BANYAN_TEXT_H
#define BANYAN_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Formats a byte count in binary units: "1.5 GiB", "312.0 KiB", "17 B". Returns `buffer`. */
BY_API const char *by_format_bytes(char buffer[32], uint64_t bytes);

/* Returns the first of `count` names that is nearest to `name` by characters inserted, dropped,
 * changed or swapped; NULL if none is within 1 for up to 4 characters, 2 for up to 8, else a third
 * of them. Names over 63 bytes never match. */
BY_API const char *by_nearest_name(const char *name, const char *const *names, size_t count);

#ifdef __cplusplus
}
#endif

#endif
