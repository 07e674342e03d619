/* "HOST:PORT" with a numeric host or "localhost": 127.0.0.1:9464, [::1]:9464. */
#ifndef BY_TRACK_ADDRESS_H
#define BY_TRACK_ADDRESS_H

#include <sys/socket.h>

#include "base/base.h"

typedef struct by__track_address {
    struct sockaddr_storage bytes;
    socklen_t length;
} by__track_address;

/* Parses an address without any network look-up. BY_ECONFIG if it is invalid. */
by_status by__track_address_parse(by__track_address *out, const char *text, by_error *error);

#endif
