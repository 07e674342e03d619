/* A few threads over one piece of work, started and joined within a call. */
#ifndef BY_DATA_PACK_WORKERS_H
#define BY_DATA_PACK_WORKERS_H

#include "base/base.h"

/* Cores that this process may use, at least 1. */
size_t by__workers_default(void);
/* Calls work(context, i, error) for i in [0, count) at the same time, i = 0 on the calling thread,
 * and returns when all have returned: with the error of the lowest i that failed. */
by_status by__workers_run(size_t count, by_status (*work)(void *context, size_t i, by_error *error),
                          void *context, by_error *error);

#endif
