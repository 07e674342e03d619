/* A gateway in a thread of a test, without a broker, and a client that sends bytes. */
#ifndef BY_TESTS_GATEWAY_RUN_H
#define BY_TESTS_GATEWAY_RUN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "banyan/serve.h"

typedef struct gateway_run {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    by_gateway_options options;
    by_status status;
    by_error error;
    int port; /* 0: it does not listen yet */
    bool ended;
    char *log; /* its lines, each with LF; NULL: none yet */
    size_t log_length;
} gateway_run;

/* Starts it on a free port; `options` without listen, socket, log and ready. */
void gateway_begin(gateway_run *run, const by_gateway_options *options);
/* Ends it with SIGTERM; frees the log. */
void gateway_end(gateway_run *run);
/* Waits until the log holds a text, 20 s at most. */
bool gateway_logs(gateway_run *run, const char *text);
/* A connection to it. */
int gateway_connect(const gateway_run *run);
/* Sends all bytes that the other side takes; false: it has closed. */
bool gateway_send(int fd, const char *data, size_t length);
/* Reads until the other side closes or `size` - 1 bytes have come; ends with NUL. */
size_t gateway_read(int fd, char *out, size_t size);
/* The status of the answer to a request, which must end the connection ("Connection: close"); the
 * whole answer in `out`. */
int gateway_ask(const gateway_run *run, const char *request, size_t length, char *out, size_t size);

#endif
