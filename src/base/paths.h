/* Paths, and unnamed temporary files (paths.c). */
#ifndef BY_BASE_PATHS_H
#define BY_BASE_PATHS_H

#include "base/base.h"

/* Returns true if s ends in `end` and is longer than it. */
bool by__ends_with(const char *s, const char *end);
/* Returns true for the name of a file of JSON lines: .jsonl or .ndjson. */
bool by__is_json_lines(const char *path);
/* Joins two parts of a path with one '/'. Freed with free(). */
by_status by__path_make(char **out, const char *a, const char *b, by_error *error);
/* Opens a regular file for reading, close-on-exec, and sets *size (NULL: not wanted); anything else
 * is BY_EIO, and never waits, as opening a FIFO would. Whatever reads a path of a user opens it so,
 * except for streams, which may be FIFOs. */
by_status by__open_regular(int *out, size_t *size, const char *path, by_error *error);
/* Returns the path of a file of the user's cache: $XDG_CACHE_HOME/banyan/NAME or
 * ~/.cache/banyan/NAME; BY_EIO if neither is known. Freed with free(). */
by_status by__cache_path(char **out, const char *name, by_error *error);
/* Returns the directory of temporary files: TMPDIR of the environment, else /tmp. */
const char *by__temporary_dir(void);
/* Opens a new unnamed file in a directory for reading and writing, close-on-exec. Its space is
 * freed when it is closed, even if this process is killed. `name` is the prefix of the name that
 * the file has for a moment before it is unlinked. */
by_status by__open_nameless(int *out, const char *directory, const char *name, by_error *error);

#endif
