/* Networks of IP addresses, as operators write them. */
#ifndef BY_SERVE_IP_NETWORK_H
#define BY_SERVE_IP_NETWORK_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "serve/serve.h"

/* Addresses with the same first bits. */
typedef struct by__network {
    struct in6_addr address; /* of IPv4 as ::ffff:A.B.C.D */
    unsigned bits;
} by__network;

/* "10.0.0.0/8", "fd00::/8", or one address. False: it is none. */
bool by__network_read(by__network *out, const char *text);
bool by__network_has(const by__network *network, const struct in6_addr *address);
/* The address of a socket as one of IPv6; false: it is of neither kind. */
bool by__network_address(struct in6_addr *out, const struct sockaddr *address);
/* Reads an address, of IPv4 as ::ffff:A.B.C.D. False: it is none. */
bool by__network_read_address(struct in6_addr *out, const char *text);

#endif
