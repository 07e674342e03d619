#include "banyan/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

const char *by_status_name(by_status status)
{
    switch (status) {
    case BY_OK:
        return "ok";
    case BY_EARG:
        return "argument";
    case BY_ECONFIG:
        return "config";
    case BY_EIO:
        return "io";
    case BY_EFORMAT:
        return "format";
    case BY_EMEMORY:
        return "memory";
    case BY_EDEVICE:
        return "device";
    case BY_EPEER:
        return "peer";
    case BY_ESTATE:
        return "state";
    case BY_ESTOPPED:
        return "stopped";
    case BY_ECORRUPT:
        return "corrupt";
    case BY_EDIVERGED:
        return "diverged";
    }
    return "unknown";
}

by_status(by_error_set)(by_error *error, by_status status, const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        error->status = status;
        (void)vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
    }
    return status;
}

by_status(by_error_prefix)(by_error *error, by_status status, const char *format, ...)
{
    if (error != NULL) {
        char old[sizeof error->message];
        char prefix[sizeof error->message];
        va_list args;
        memcpy(old, error->message, sizeof old);
        va_start(args, format);
        (void)vsnprintf(prefix, sizeof prefix, format, args);
        va_end(args);
        error->status = status;
        /* Truncate a long prefix to half the buffer, so that part of the old message remains. */
        size_t used = strlen(prefix);
        if (used > sizeof old / 2) {
            used = sizeof old / 2;
        }
        (void)snprintf(error->message, sizeof error->message, "%.*s: %.*s", (int)used, prefix,
                       (int)(sizeof old - used - 3), old);
    }
    return status;
}
