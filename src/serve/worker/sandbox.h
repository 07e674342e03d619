/* What a worker may ask of the kernel once it is warm (seccomp): nothing that starts a program or a
 * process, reaches another machine, or writes to the file system.
 *
 * A worker computes on what strangers send; whoever finds a way to make it do more finds a process
 * that holds a model and one local socket. What is forbidden fails with EPERM and is told. */
#ifndef BY_SERVE_SANDBOX_H
#define BY_SERVE_SANDBOX_H

#include "serve/serve.h"

/* Closes the sandbox around all threads of this process, for good. network: sockets of the internet
 * family stay possible, for a broker on another machine. BY_ESTATE: the kernel cannot. */
by_status by__sandbox_enter(bool network, by_error *error);
/* The name of a forbidden call that was tried since the last time; NULL: none was. */
const char *by__sandbox_violation(void);

#endif
