/* late_device: the CPU's kernels behind the manners of an accelerator at its worst.
 *
 *   - Its memory cannot be read or written by the host (mprotect) but while submitted work runs.
 *   - Nothing runs when it is submitted. What a wait needs runs then, and nothing else; of what may
 *     run next, a seed chooses.
 *   - Whoever uses it wrongly is told: the first fault is kept, and every later wait fails with it.
 *
 * Faults are found on every run, not by luck: each piece of work has a vector clock (Fidge 1988;
 * Mattern 1989) and the ranges that it reads and writes, so two pieces that use the same memory
 * without an order between them are a fault whatever order they ran in. Pinned memory is hashed
 * when a copy from it is submitted and when it runs, and filled with 0xff when a copy to it is
 * submitted, so that reading it too early gives NaN.
 *
 * Handles that share its memory (by__device_share) run one at a time, under a lock.
 */
#ifndef BY_TESTS_LATE_DEVICE_H
#define BY_TESTS_LATE_DEVICE_H

#include <stdint.h>

#include "device/device.h"

typedef struct late_options {
    uint64_t seed;
    int threads;
    size_t alignment; /* of what programs are given; 0: the CPU's */
    uint64_t memory;  /* bytes that it has; 0: any number */
    bool plain;       /* it wants float weights as rows, not as panels */
    bool vague;       /* its errors do not name the node */
} late_options;

by_status late_device_open(by_device **out, uint64_t seed, int threads, by_error *error);
by_status late_device_open_as(by_device **out, const late_options *options, by_error *error);
/* The first fault, "" when there was none. */
const char *late_device_fault(const by_device *device);
/* Pieces of work that were submitted and have not run. */
size_t late_device_waiting(const by_device *device);

#endif
