/* The files that a gateway or broker keeps in its sandbox, gathered from its options. */
#ifndef BY_SERVE_BASE_SANDBOX_PATHS_H
#define BY_SERVE_BASE_SANDBOX_PATHS_H

#include "serve/base/sandbox.h"

#define BY__SANDBOX_PATHS 48

typedef struct by__serve_sandbox_paths {
    by__serve_landlock_path items[BY__SANDBOX_PATHS];
    size_t count;
    bool failed; /* memory was exhausted, or there were too many */
} by__serve_sandbox_paths;

/* Adds a file or directory, with a copy of its name; path NULL or "": nothing. */
void by__serve_sandbox_paths_add(by__serve_sandbox_paths *paths, const char *path, bool writes);
/* Adds the directory of a file, and that of the file that it is a link to: the file may be replaced
 * by another one of its name. */
void by__serve_sandbox_paths_add_file(by__serve_sandbox_paths *paths, const char *file,
                                      bool writes);
/* Adds what libraries read on every system; network: to look up names and check certificates,
 * too. */
void by__serve_sandbox_paths_add_system(by__serve_sandbox_paths *paths, bool network);
void by__serve_sandbox_paths_free(by__serve_sandbox_paths *paths);
/* by__serve_sandbox_prepare with these paths, which are freed. */
by_status by__serve_sandbox_paths_prepare(by__serve_sandbox *sandbox,
                                          by__serve_sandbox_paths *paths, int *version,
                                          by_error *error);

#endif
