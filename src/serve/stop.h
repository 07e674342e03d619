/* SIGTERM and SIGINT on a loop, and SIGPIPE and SIGXFSZ out of the way. */
#ifndef BY_SERVE_STOP_H
#define BY_SERVE_STOP_H

#include "serve/serve.h"

typedef struct by__stop by__stop;

/* Calls `stop` for the first signal, and with `again` for each later one, and when standard input
 * ends where it is `child`: its parent is gone then. What SIGPIPE and SIGXFSZ (a file beyond its
 * limit) would end is told by the write instead. Gives the signals their former meaning when it is
 * closed. */
by_status by__stop_open(by__stop **out, uv_loop_t *loop, bool child,
                        void (*stop)(void *user, bool again), void *user, by_error *error);
/* Freed by the loop's next turns. */
void by__stop_close(by__stop **stop);

#endif
