/* How much each client's address has at a time: connections, and requests that came by a proxy.
 *
 * What a proxy says of the client (X-Forwarded-For) counts only where the operator lists the proxy:
 * anybody can send the header. Its last address is the one that the proxy has seen; addresses of
 * further listed proxies before it are passed over. An IPv6 client counts by its /64, which is what
 * one subscriber has. */
#ifndef BY_SERVE_CLIENT_ADDRESS_H
#define BY_SERVE_CLIENT_ADDRESS_H

#include "serve/http/http_parse.h"
#include "serve/http/ip_network.h"

typedef struct by__addresses by__addresses;
typedef struct by__address_count by__address_count;

typedef enum by__address_room {
    BY__ADDRESS_ROOM,
    BY__ADDRESS_FULL, /* above the limit; it is counted all the same, while it is told so */
    BY__ADDRESS_FLOOD /* above twice the limit, or memory is exhausted: not counted */
} by__address_room;

/* most: at a time for each address, 0: no limit. proxies: networks, or "unix" for what comes by a
 * socket in the file system. BY_ECONFIG: one is none. */
by_status by__addresses_open(by__addresses **out, size_t most, const by_string_list *proxies,
                             by_error *error);
void by__addresses_close(by__addresses **addresses);
/* Whether a peer (NULL: of a socket in the file system) is a listed proxy. */
bool by__addresses_trust(const by__addresses *addresses, const struct in6_addr *peer);
/* The client for which a listed proxy has sent a request. False: the proxy does not say. */
bool by__addresses_forwarded(const by__addresses *addresses, const by__http_request *request,
                             struct in6_addr *out);
/* Counts one more for an address. *out is what by__addresses_give takes back, or NULL. */
by__address_room by__addresses_take(by__addresses *addresses, const struct in6_addr *address,
                                    by__address_count **out);
/* Takes one back, and sets NULL. *count may be NULL. */
void by__addresses_give(by__addresses *addresses, by__address_count **count);

#endif
