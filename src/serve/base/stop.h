/* Handles SIGTERM and SIGINT on a loop, and ignores SIGPIPE and SIGXFSZ. */
#ifndef BY_SERVE_BASE_STOP_H
#define BY_SERVE_BASE_STOP_H

#include "serve/base/serve.h"

typedef struct by__serve_stop by__serve_stop;

/* Calls `stop` for the first signal, and with `again` for each later one; and, if `child`, when
 * standard input ends, because the parent is then gone. SIGPIPE and SIGXFSZ (a file beyond its
 * limit) are ignored, so that the write fails instead. Closing restores the former handlers. */
by_status by__serve_stop_open(by__serve_stop **out, uv_loop_t *loop, bool child,
                              void (*stop)(void *user, bool again), void *user, by_error *error);
/* Closes it; the memory is freed in the next turns of the loop. */
void by__serve_stop_close(by__serve_stop **stop);

#endif
