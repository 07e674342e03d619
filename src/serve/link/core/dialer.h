/* A process that opens the connections of a worker to its broker. A sandboxed worker has no sockets
 * of its own, because those of the machine (a container runtime's, a database's, the server's
 * control socket) do not know a worker from its user; but a broker that was restarted is connected
 * to again. The dialer knows one broker, and opens nothing else. What it connects is bound: the
 * broker takes nobody there but a worker of its model.
 *
 * The dialer does not read what the worker sends it, other than that it asks, and ends with the
 * worker. */
#ifndef BY_SERVE_LINK_CORE_DIALER_H
#define BY_SERVE_LINK_CORE_DIALER_H

#include <sys/socket.h>

#include "serve/base/serve.h"

typedef struct by__link_dialer by__link_dialer;

/* What a dialer found. */
typedef struct by__link_dialled {
    int code;                               /* 0, or an error of libuv */
    struct sockaddr_storage address;        /* of Redis' host; its port is not set */
    char password[BY_SERVE_PASSWORD_BYTES]; /* of Redis, as by__link_redis_address_login finds it */
    char why[256];                          /* the error, if it has a sentence of its own */
} by__link_dialled;

/* Starts the process, a fork of this one: to be called before there are other threads. broker: as
 * for by__link_connect, copied; model: the worker's. */
by_status by__link_dialer_open(by__link_dialer **out, const char *broker, const char *model,
                               by_error *error);
/* Asks, and waits for the answer. A broker's socket is connected at once, as *fd (else -1), which
 * the caller closes; for Redis, the host's address is looked up, which may take seconds. Any thread
 * may call it. BY_ESTATE: the process is gone. */
by_status by__link_dial(by__link_dialer *dialer, by__link_dialled *out, int *fd, by_error *error);
/* The process ends by itself. */
void by__link_dialer_close(by__link_dialer **dialer);

#endif
