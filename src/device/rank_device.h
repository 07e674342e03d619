/* rank_device: which device a rank of a job opens. */
#ifndef BY_DEVICE_RANK_DEVICE_H
#define BY_DEVICE_RANK_DEVICE_H

#include "banyan/device.h"

/* by_device_open for rank number `local` of those on this host: a name without a number means the
 * rank's own device, in turn where there are fewer devices than ranks. */
by_status by__device_open_of_rank(by_device **out, const char *name, int threads, int local,
                                  by_error *error);

#endif
