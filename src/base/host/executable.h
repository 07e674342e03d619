/* The file with the code of this program, and what a bundle holds beside it. */
#ifndef BY_BASE_HOST_EXECUTABLE_H
#define BY_BASE_HOST_EXECUTABLE_H

#include "banyan/executable.h"

/* Sets *out to a path by which the file with this program's code can be read, also after it was
 * replaced or removed, unless a loader was started with it. Free it with free(). */
by_status by__executable_code(char **out, by_error *error);

/* Sets *out to the path of a program that came in the same bundle, or to NULL if this program did
 * not come in one. Free it with free(). */
by_status by__executable_bundled(char **out, const char *name, by_error *error);

#endif
