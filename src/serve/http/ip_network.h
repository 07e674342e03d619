/* Networks of IP addresses, as operators write them. */
#ifndef BY_SERVE_HTTP_IP_NETWORK_H
#define BY_SERVE_HTTP_IP_NETWORK_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "serve/base/serve.h"

/* A set of addresses with a common prefix. */
typedef struct by__http_network {
    struct in6_addr address; /* IPv4 as ::ffff:A.B.C.D */
    unsigned bits;
} by__http_network;

/* Parses "10.0.0.0/8", "fd00::/8", or one address. Returns false if it is malformed. */
bool by__http_network_read(by__http_network *out, const char *text);
bool by__http_network_has(const by__http_network *network, const struct in6_addr *address);
/* Converts the address of a socket to IPv6. Returns false if it is neither IPv4 nor IPv6. */
bool by__http_network_address(struct in6_addr *out, const struct sockaddr *address);
/* Prints the address of a socket, without its port. Returns false if it is neither. */
bool by__http_network_name(char out[INET6_ADDRSTRLEN], const struct sockaddr *address);
/* Parses an address, IPv4 as ::ffff:A.B.C.D. Returns false if it is malformed. */
bool by__http_network_read_address(struct in6_addr *out, const char *text);

#endif
