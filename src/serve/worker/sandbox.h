/* Restricts the system calls of a worker once it is warm (seccomp): none that starts a program or a
 * process, connects to another machine, or writes to the file system.
 *
 * A worker computes on untrusted input; an attacker who takes it over gets a process that holds a
 * model and one local socket. Forbidden calls fail with EPERM and are reported. */
#ifndef BY_SERVE_SANDBOX_H
#define BY_SERVE_SANDBOX_H

#include "serve/serve.h"

/* Makes io_uring fail from now on as on a kernel that lacks it. A loop that has a ring cannot go on
 * in the sandbox, so this comes before the first event loop of the process. BY_ESTATE: the kernel
 * does not support it. */
by_status by__sandbox_prepare(by_error *error);
/* Enables the sandbox for all threads of this process, permanently. network: internet sockets stay
 * allowed, for a broker on another machine. BY_ESTATE: the kernel does not support it. */
by_status by__sandbox_enter(bool network, by_error *error);
/* The name of a forbidden call that was tried since the last query; NULL: none. */
const char *by__sandbox_violation(void);

#endif
