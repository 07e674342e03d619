/* Names of files by their endings, and files without a name (paths.c). */
#ifndef BY_BASE_PATHS_H
#define BY_BASE_PATHS_H

#include "base/base.h"

/* Whether s ends in `end` and has something in front of it. */
bool by__ends_with(const char *s, const char *end);
/* Where temporary files go: the environment's TMPDIR, else /tmp. */
const char *by__temporary_dir(void);
/* Opens a new file in a directory for reading and writing, close-on-exec. It has no name once this
 * returns: it is gone when it is closed, whatever happens to this process. `name` is the first part
 * of the name that it has before. */
by_status by__open_nameless(int *out, const char *directory, const char *name, by_error *error);

#endif
