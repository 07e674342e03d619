/* Counts what each client's address has open: connections, and requests that came through a proxy.
 *
 * What a proxy says of the client (X-Forwarded-For) counts only if the operator lists the proxy:
 * anybody can send the header. Its last address is the one that the proxy has seen; addresses of
 * further listed proxies before it are skipped. An IPv6 client is counted by its /64 prefix, which
 * is what one subscriber has. */
#ifndef BY_SERVE_CLIENT_ADDRESS_H
#define BY_SERVE_CLIENT_ADDRESS_H

#include "serve/http/http_parse.h"
#include "serve/http/ip_network.h"

typedef struct by__addresses by__addresses;
typedef struct by__address_count by__address_count;

typedef enum by__address_room {
    BY__ADDRESS_ROOM,
    BY__ADDRESS_FULL, /* above the limit, but counted until the refusal has been sent */
    BY__ADDRESS_FLOOD /* above twice the limit, or memory is exhausted: not counted */
} by__address_room;

/* most: limit for each address, 0: none. proxies: networks, or "unix" for connections by a socket
 * in the file system. BY_ECONFIG: one of them is malformed. */
by_status by__addresses_open(by__addresses **out, size_t most, const by_string_list *proxies,
                             by_error *error);
void by__addresses_close(by__addresses **addresses);
/* Returns true if a peer (NULL: a socket in the file system) is a listed proxy. */
bool by__addresses_trust(const by__addresses *addresses, const struct in6_addr *peer);
/* Reads the client for which a listed proxy has sent a request. Returns false if the proxy does not
 * say. */
bool by__addresses_forwarded(const by__addresses *addresses, const by__http_request *request,
                             struct in6_addr *out);
/* Adds one to the count of an address. *out is to be passed to by__addresses_give, or NULL. */
by__address_room by__addresses_take(by__addresses *addresses, const struct in6_addr *address,
                                    by__address_count **out);
/* Subtracts one, and sets *count to NULL. *count may be NULL. */
void by__addresses_give(by__addresses *addresses, by__address_count **count);

#endif
