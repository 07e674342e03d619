/* Numbers as people read them, and names as they may have meant them. */
#ifndef BANYAN_TEXT_H
#define BANYAN_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "1.5 GiB", "312.0 KiB", "17 B" into buffer, which is returned. */
BY_API const char *by_format_bytes(char buffer[32], uint64_t bytes);

/* Of `count` names the nearest to `name` (edit distance of Levenshtein, at most max(2, length of
 * `name` / 3)), for "did you mean"; NULL when none is. Names over 63 bytes are never near. */
BY_API const char *by_nearest_name(const char *name, const char *const *names, size_t count);

#ifdef __cplusplus
}
#endif

#endif
