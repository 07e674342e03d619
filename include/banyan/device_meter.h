/* What a GPU is doing, as its driver counts it: for logs and diagnosis. Opened where NVIDIA's
 * management library (NVML) is, which comes with the driver. */
#ifndef BANYAN_DEVICE_METER_H
#define BANYAN_DEVICE_METER_H

#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_device_meter by_device_meter;

/* Plain data; what the GPU does not tell is below 0, or of bytes 0. */
typedef struct by_device_usage {
    double busy;           /* share of the last moments in which work ran, in [0, 1] */
    uint64_t memory_used;  /* of all processes, in bytes */
    uint64_t memory_total; /* in bytes */
    double celsius;
    double watts;
    double most_watts; /* the limit in force */
} by_device_usage;

/* Opens the meter of a device, by a name for by_device_open. BY_EDEVICE: it has none. */
BY_API by_status by_device_meter_open(by_device_meter **out, const char *device, by_error *error);
BY_API by_status by_device_meter_read(by_device_usage *out, by_device_meter *meter,
                                      by_error *error);
/* NULL is accepted. */
BY_API void by_device_meter_close(by_device_meter **meter);

#ifdef __cplusplus
}
#endif
#endif
