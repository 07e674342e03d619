/* The file that this process runs.
 *
 * /proc/self/exe names it, except where a dynamic loader was started with the program as its
 * argument: then it names the loader. The programs of a bundle (scripts/bundle) are started so,
 * because they bring a C library of their own.
 */
#ifndef BANYAN_EXECUTABLE_H
#define BANYAN_EXECUTABLE_H

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets *out to the path with which this program can be executed again: its own or, in a bundle, the
 * path of what starts it there. Free it with free(). Returns BY_EIO where /proc cannot be read. */
BY_API by_status by_executable_path(char **out, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
