#include "banyan/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/wire/url_hide.h"

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

/* Escapes control characters: parts of a message come from files, and it is one line. */
static void escape(char *message, size_t size)
{
    char old[sizeof((by_error *)NULL)->message];
    size_t length = 0;
    const unsigned char *p = (const unsigned char *)message;
    while (*p >= 0x20 && *p != 0x7f && !(p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)) {
        p++;
    }
    if (*p == '\0') {
        return;
    }
    memcpy(old, message, size);
    for (p = (const unsigned char *)old; *p != '\0' && length + 5 < size; p++) {
        bool wide = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0;
        p += wide;
        if (wide || *p < 0x20 || *p == 0x7f) {
            length += (size_t)snprintf(message + length, size - length, "\\x%02x", *p);
        } else {
            message[length++] = (char)*p;
        }
    }
    message[length] = '\0';
}

by_status(by_error_set)(by_error *error, by_status status, const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        error->status = status;
        (void)vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
        by__url_hide(error->message);
        escape(error->message, sizeof error->message);
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
        by__url_hide(prefix);
        error->status = status;
        /* Truncate a long prefix to half the buffer, so that part of the old message remains. */
        size_t used = strlen(prefix);
        if (used > sizeof old / 2) {
            used = sizeof old / 2;
        }
        (void)snprintf(error->message, sizeof error->message, "%.*s: %.*s", (int)used, prefix,
                       (int)(sizeof old - used - 3), old);
        escape(error->message, sizeof error->message);
    }
    return status;
}
