/* Memory shared between processes of one host: shared regions, and copies from and to another
 * process's memory (cross-memory attach). */
#ifndef BY_COMM_PROCESS_MEMORY_H
#define BY_COMM_PROCESS_MEMORY_H

#include <sys/types.h>

#include "comm/comm.h"

/* Creates a zeroed region of `bytes`, in a memfd of this process; `token` distinguishes it from the
 * region of another process that reuses the pid. */
by_status by__comm_shared_create(size_t bytes, uint64_t token, void **out,
                                 by__comm_region_handle *handle, by_error *error);
/* Maps the region of a handle, while its creator has it. BY_EPEER: it is a different one. */
by_status by__comm_shared_attach(const by__comm_region_handle *handle, size_t bytes, void **out,
                                 by_error *error);
void by__comm_shared_release(void *data, size_t bytes);

/* Copies from the memory of a process or, if `to`, into it. BY_EPEER, with errno: the kernel
 * refused. */
by_status by__comm_process_copy(pid_t pid, void *here, uint64_t address, size_t bytes, bool to);

#endif
