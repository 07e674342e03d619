/* A scratch file, and asynchronous transfers between it and memory that run concurrently with
 * computation (scratch.c).
 *
 * The file is unlinked as soon as it is open: however the process ends, nothing is left. Its space
 * is reserved at opening, so that a full disk is detected there. I/O bypasses the page cache
 * (O_DIRECT) if the file system can, so that no more memory than planned is used.
 *
 * A by__store_transfer moves one range. Started transfers are done by a few threads, in any order
 * and concurrently: the caller must ensure that no other one accesses the same bytes of the file or
 * of memory. The first error is kept: every later call returns it.
 *
 * The threads have all signals blocked: a write beyond the limit of file sizes is an error here,
 * and does not raise SIGXFSZ in the process. */
#ifndef BY_STORE_SCRATCH_H
#define BY_STORE_SCRATCH_H

#include "base/base.h"

/* Offsets, sizes and addresses of transfers must be multiples of it. */
#define BY__SCRATCH_ALIGNMENT 4096u

typedef struct by__store_scratch by__store_scratch;

typedef enum by__store_transfer_kind {
    BY__TRANSFER_READ,
    BY__TRANSFER_WRITE
} by__store_transfer_kind;

typedef struct by__store_transfer {
    by__store_transfer_kind kind;
    uint64_t offset; /* offset in the file */
    char *data;
    size_t bytes;
    /* Used by the scratch file between start and wait: */
    size_t given; /* bytes that were assigned to a thread */
    size_t left;  /* bytes that are not done */
    struct by__store_transfer *next;
} by__store_transfer;

/* Creates a file of `bytes` zeros in a directory, which is created if missing. BY_EIO: there is not
 * enough room; the message says how much there is. */
by_status by__store_scratch_open(by__store_scratch **out, const char *directory, uint64_t bytes,
                                 by_error *error);
/* Waits for started transfers. */
void by__store_scratch_close(by__store_scratch **scratch);

/* The transfer and its memory must not be touched until by__store_scratch_wait has returned. */
by_status by__store_scratch_start(by__store_scratch *scratch, by__store_transfer *transfer,
                                  by_error *error);
by_status by__store_scratch_wait(by__store_scratch *scratch, by__store_transfer *transfer,
                                 by_error *error);
/* Returns true if by__store_scratch_wait would return at once. */
bool by__store_scratch_is_done(by__store_scratch *scratch, const by__store_transfer *transfer);

/* Synchronous read of any range to any address, after all transfers that were started. */
by_status by__store_scratch_read(by__store_scratch *scratch, uint64_t offset, void *out,
                                 size_t bytes, by_error *error);
/* The same for writing; data NULL: zeros. */
by_status by__store_scratch_write(by__store_scratch *scratch, uint64_t offset, const void *data,
                                  size_t bytes, by_error *error);
/* Number of calls of by__store_scratch_write; when it changes, data read by earlier transfers may
 * be stale. */
uint64_t by__store_scratch_version(const by__store_scratch *scratch);
/* Memory used by an open scratch file. */
size_t by__store_scratch_memory(void);

#endif
