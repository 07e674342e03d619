/* staging: host copies of memory that the host cannot read, for what ranks exchange.
 *
 * A by__device_staging has pinned memory for copies. Code that would read and write a device's
 * memory stages it instead: on a device whose memory is the host's, a staged copy is the memory
 * itself and nothing is copied, so the same code serves both.
 *
 *   begin; stage what is read or written; wait; read and write the copies;
 *   unstage what was written; wait
 *
 * Copies run on the collective queue. Between programs the caller has waited for the compute queue
 * before; inside a program's collective, the operands are complete.
 *
 * A by__device_staged is a program with collectives on such a device: the host runs it command by
 * command, and when it reaches a collective, it waits for the collective queue, copies the operands
 * out, runs the CPU's kernel on the copies, and copies the results in. What the compute queue holds
 * goes on meanwhile. BY__EXCHANGE_GRADIENTS and BY__EXCHANGE_PARAMETER call back what stages memory
 * on its own; the operands of the former are not copied, and are the device's.
 */
#ifndef BY_DEVICE_STAGING_H
#define BY_DEVICE_STAGING_H

#include "device/device.h"

#define BY__STAGING_BLOCKS 24

typedef struct by__device_staging {
    by_device *device;
    by_pinned blocks[BY__STAGING_BLOCKS]; /* one, once the first use has shown how much it needs */
    size_t count;
    size_t used;    /* of the last block */
    size_t planned; /* bytes of the first block, set by the owner; 0: what is needed first */
    bool busy;      /* copies were submitted that nothing has waited for */
} by__device_staging;

/* Forgets all copies, for new ones. The first call sets the device. */
by_status by__device_staging_begin(by__device_staging *staging, by_device *device, by_error *error);
/* Host memory for so many bytes, 64-byte aligned. */
by_status by__device_staging_take(by__device_staging *staging, size_t bytes, void **out,
                                  by_error *error);
/* Host memory for a copy of `memory`, NULL if it is empty; with `reads` it has the values after
 * by__device_staging_wait. */
by_status by__device_stage(by__device_staging *staging, by_memory memory, bool reads, void **out,
                           by_error *error);
/* Copies `memory` to a place in what was taken or staged. */
by_status by__device_stage_into(by__device_staging *staging, void *to, by_memory memory,
                                by_error *error);
/* Copies a place in what was taken or staged to `memory`. */
by_status by__device_unstage(by__device_staging *staging, by_memory memory, const void *from,
                             by_error *error);
/* Waits until all copies are done. */
by_status by__device_staging_wait(by__device_staging *staging, by_error *error);
void by__device_staging_close(by__device_staging *staging);

/* ---- programs ---- */

typedef struct by__device_staged by__device_staged;

/* *out: NULL if the program needs none. */
by_status by__device_staged_open(by__device_staged **out, by_device *device,
                                 const by__device_command_list *list, by_error *error);
/* Bytes of the copies of the largest collective; 0 if the program needs none. */
size_t by__device_staged_bytes(const by_device *device, const by__device_command_list *list);
/* NULL is accepted. */
void by__device_staged_close(by__device_staged **staged);
/* by__device_recording_submit. With a hook, programs run call by call. */
by_status by__device_staged_submit(by__device_staged *staged, by__device_recording *recording,
                                   by__device_call_hook *hook, void *user, by_error *error);

/* The kernel of a collective, which reads and writes host memory; NULL for other ops.
 * (cpu/exchange.c) */
const by__device_kernel *by__cpu_exchange_kernel(by_op op);

#endif
