/* A scratch file, and transfers between it and memory beside computation (scratch.c).
 *
 * The file has no name from its opening on: whatever ends the process, nothing is left. Its space
 * is reserved when it is opened, so that a full disk is met then. Data goes past the page cache
 * (O_DIRECT) where the file system can, so that memory is what was planned and no more.
 *
 * A by__transfer moves one range. Those that were started are done by some threads, in any order
 * and at the same time: who starts one knows that no other touches the same bytes of the file or
 * of memory. The first error stays: every later call returns it.
 *
 * The threads have all signals blocked: a write beyond the limit of file sizes is an error here,
 * and no SIGXFSZ for the process. */
#ifndef BY_STORE_SCRATCH_H
#define BY_STORE_SCRATCH_H

#include "base/base.h"

/* Offsets, sizes and addresses of transfers are multiples of it. */
#define BY__SCRATCH_ALIGNMENT 4096u

typedef struct by__scratch by__scratch;

typedef enum by__transfer_kind { BY__TRANSFER_READ, BY__TRANSFER_WRITE } by__transfer_kind;

typedef struct by__transfer {
    by__transfer_kind kind;
    uint64_t offset; /* in the file */
    char *data;
    size_t bytes;
    /* The scratch file's, between start and wait. */
    size_t given; /* bytes that a thread has taken */
    size_t left;  /* bytes that are not done */
    struct by__transfer *next;
} by__transfer;

/* Makes a file of `bytes` zeros in a directory, which is made if it is not there. BY_EIO: there is
 * no room; the message says how much the directory has. */
by_status by__scratch_open(by__scratch **out, const char *directory, uint64_t bytes,
                           by_error *error);
/* Transfers that were started are waited for. */
void by__scratch_close(by__scratch **scratch);

/* The transfer and its memory are the scratch file's until by__scratch_wait has returned. */
by_status by__scratch_start(by__scratch *scratch, by__transfer *transfer, by_error *error);
by_status by__scratch_wait(by__scratch *scratch, by__transfer *transfer, by_error *error);
/* Whether by__scratch_wait would return at once. */
bool by__scratch_is_done(by__scratch *scratch, const by__transfer *transfer);

/* Of any range and address; behind all transfers that were started, and done on return. */
by_status by__scratch_read(by__scratch *scratch, uint64_t offset, void *out, size_t bytes,
                           by_error *error);
/* data NULL: zeros. */
by_status by__scratch_write(by__scratch *scratch, uint64_t offset, const void *data, size_t bytes,
                            by_error *error);
/* How often by__scratch_write was called: what transfers have read before may be old. */
uint64_t by__scratch_version(const by__scratch *scratch);
/* Memory that an open scratch file takes. */
size_t by__scratch_memory(void);

#endif
