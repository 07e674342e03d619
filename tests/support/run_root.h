/* A directory with a text to train on, and configs of runs in it. */
#ifndef BY_TESTS_RUN_ROOT_H
#define BY_TESTS_RUN_ROOT_H

#include "banyan/config.h"

/* Holds text.txt; the caller frees it with temporary_remove. */
char *run_root_make(void);
/* A resolved config whose run, text and cache are in `root`: the defaults, then three lists of
 * "section.key=value", each NULL at its end. */
by_config *run_root_config(const char *root, const char *const *common, const char *const *settings,
                           const char *const *more);

#endif
