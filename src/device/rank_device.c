#include "device/rank_device.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

by_status by__device_open_of_rank(by_device **out, const char *name, int threads, int local,
                                  by_error *error)
{
    char kind[BY_DEVICE_NAME];
    char numbered[BY_DEVICE_NAME + 12];
    char found[BY_DEVICE_NAME];
    int count = 0;
    BY_TRY(by_device_resolve(kind, name, error));
    if (strchr(name, ':') != NULL) {
        return by_device_open(out, name, threads, error);
    }
    do {
        (void)snprintf(numbered, sizeof numbered, "%s:%d", kind, ++count);
    } while (by_device_resolve(found, numbered, NULL) == BY_OK);
    (void)snprintf(numbered, sizeof numbered, "%s:%d", kind, local % count);
    return by_device_open(out, numbered, threads, error);
}
