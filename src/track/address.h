/* "HOST:PORT" with a numeric host or "localhost": 127.0.0.1:9464, [::1]:9464. */
#ifndef BY_TRACK_ADDRESS_H
#define BY_TRACK_ADDRESS_H

#include <sys/socket.h>

#include "base/base.h"

typedef struct by__address {
    struct sockaddr_storage bytes;
    socklen_t length;
} by__address;

/* Parses an address without any network look-up. BY_ECONFIG if it is invalid. */
by_status by__address_parse(by__address *out, const char *text, by_error *error);

#endif
