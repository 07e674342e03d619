/* What a path that does not exist was probably meant to be. */
#ifndef BANYAN_PATH_HINT_H
#define BANYAN_PATH_HINT_H

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BY_PATH_HINT 600
/* Sets `buffer` to "; did you mean 'PATH'?" with the file or directory beside `path`, which does
 * not exist, whose name is nearest (by_nearest_name) or differs in its ending only; to "" if there
 * is none. Returns `buffer`. */
BY_API const char *by_path_hint(char buffer[BY_PATH_HINT], const char *path);

#ifdef __cplusplus
}
#endif

#endif
