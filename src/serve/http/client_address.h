/* Counts what each client's address has open: connections, and requests that came through a proxy.
 *
 * What a proxy says of the client (X-Forwarded-For) counts only if the operator lists the proxy:
 * anybody can send the header. Its last address is the one that the proxy has seen; addresses of
 * further listed proxies before it are skipped. An IPv6 client is counted by its /64 prefix, which
 * is what one subscriber has. */
#ifndef BY_SERVE_HTTP_CLIENT_ADDRESS_H
#define BY_SERVE_HTTP_CLIENT_ADDRESS_H

#include "serve/http/http_parse.h"
#include "serve/http/ip_network.h"

typedef struct by__http_addresses by__http_addresses;
typedef struct by__http_address_count by__http_address_count;

typedef enum by__http_address_room {
    BY__ADDRESS_ROOM,
    BY__ADDRESS_FULL, /* above the limit, but counted until the refusal has been sent */
    BY__ADDRESS_FLOOD /* above twice the limit, or memory is exhausted: not counted */
} by__http_address_room;

/* most: limit for each address, 0: none. proxies: networks, or "unix" for connections by a socket
 * in the file system. BY_ECONFIG: one of them is malformed. */
by_status by__http_addresses_open(by__http_addresses **out, size_t most,
                                  const by_string_list *proxies, by_error *error);
void by__http_addresses_close(by__http_addresses **addresses);
/* Returns true if a peer (NULL: a socket in the file system) is a listed proxy. */
bool by__http_addresses_trust(const by__http_addresses *addresses, const struct in6_addr *peer);
/* Reads the client for which a listed proxy has sent a request. Returns false if the proxy does not
 * say. */
bool by__http_addresses_forwarded(const by__http_addresses *addresses,
                                  const by__http_request *request, struct in6_addr *out);
/* Adds one to the count of an address. *out is to be passed to by__http_addresses_release, or
 * NULL. */
by__http_address_room by__http_addresses_acquire(by__http_addresses *addresses,
                                                 const struct in6_addr *address,
                                                 by__http_address_count **out);
/* Subtracts one, and sets *count to NULL. *count may be NULL. */
void by__http_addresses_release(by__http_addresses *addresses, by__http_address_count **count);

#endif
