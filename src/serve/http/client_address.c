#include "serve/http/client_address.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/base/id_table.h"

struct by__http_address_count {
    by__serve_id_entry entry; /* id: the address in hexadecimal digits */
    size_t count;
};

struct by__http_addresses {
    size_t most;
    by__http_network *proxies;
    size_t proxy_count;
    bool local; /* sockets in the file system belong to proxies */
    by__serve_id_table table;
};

by_status by__http_addresses_open(by__http_addresses **out, size_t most,
                                  const by_string_list *proxies, by_error *error)
{
    by__http_addresses *a = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&a, 1, sizeof *a, "addresses", error));
    a->most = most;
    by_status status =
        by__alloc((void **)&a->proxies, proxies->count + 1, sizeof *a->proxies, "addresses", error);
    for (size_t i = 0; i < proxies->count && status == BY_OK; i++) {
        if (strcmp(proxies->items[i], "unix") == 0) {
            a->local = true;
        } else if (by__http_network_read(&a->proxies[a->proxy_count], proxies->items[i])) {
            a->proxy_count++;
        } else {
            status = by_error_set(error, BY_ECONFIG,
                                  "gateway.proxies has %s, which is not a network: write it as "
                                  "10.0.0.0/8, as an address, or unix",
                                  proxies->items[i]);
        }
    }
    if (status != BY_OK) {
        by__http_addresses_close(&a);
    }
    *out = a;
    return status;
}

void by__http_addresses_close(by__http_addresses **addresses)
{
    by__http_addresses *a = *addresses;
    if (a == NULL) {
        return;
    }
    *addresses = NULL;
    by__serve_id_table_free(&a->table);
    free(a->proxies);
    free(a);
}

bool by__http_addresses_trust(const by__http_addresses *addresses, const struct in6_addr *peer)
{
    if (peer == NULL) {
        return addresses->local;
    }
    for (size_t i = 0; i < addresses->proxy_count; i++) {
        if (by__http_network_has(&addresses->proxies[i], peer)) {
            return true;
        }
    }
    return false;
}

/* Parses "1.2.3.4", "1.2.3.4:80", "::1", "[::1]", "[::1]:80", with spaces around. */
static bool read_hop(struct in6_addr *out, const char *text, size_t length)
{
    char name[INET6_ADDRSTRLEN];
    while (length > 0 && strchr(" \t", *text) != NULL) {
        text++;
        length--;
    }
    while (length > 0 && strchr(" \t", text[length - 1]) != NULL) {
        length--;
    }
    const char *colon = memchr(text, ':', length);
    bool bracket = length > 0 && *text == '[';
    if (bracket) {
        const char *end = memchr(text, ']', length);
        text++;
        length = end == NULL ? 0 : (size_t)(end - text);
    } else if (colon != NULL &&
               memchr(colon + 1, ':', (size_t)(text + length - colon) - 1) == NULL) {
        length = (size_t)(colon - text);
    }
    if (length == 0 || length >= sizeof name) {
        return false;
    }
    memcpy(name, text, length);
    name[length] = '\0';
    return by__http_network_read_address(out, name);
}

bool by__http_addresses_forwarded(const by__http_addresses *addresses,
                                  const by__http_request *request, struct in6_addr *out)
{
    bool found = false;
    /* Each proxy appends its peer, to the header or as another header. */
    for (size_t i = request->header_count; i > 0; i--) {
        const by__http_header *h = &request->headers[i - 1];
        if (strcasecmp(h->name, "x-forwarded-for") != 0) {
            continue;
        }
        for (size_t end = strlen(h->value), begin;; end = begin - 1) {
            struct in6_addr hop;
            begin = end;
            while (begin > 0 && h->value[begin - 1] != ',') {
                begin--;
            }
            if (!read_hop(&hop, h->value + begin, end - begin)) {
                return found;
            }
            *out = hop;
            found = true;
            if (!by__http_addresses_trust(addresses, &hop)) {
                return true;
            }
            if (begin == 0) {
                break;
            }
        }
    }
    return found;
}

by__http_address_room by__http_addresses_acquire(by__http_addresses *addresses,
                                                 const struct in6_addr *address,
                                                 by__http_address_count **out)
{
    by__http_addresses *a = addresses;
    /* All of ::ffff:A.B.C.D, else the /64 prefix. */
    bool four = IN6_IS_ADDR_V4MAPPED(address);
    size_t bytes = four ? sizeof *address : sizeof *address / 2;
    char id[2 * sizeof *address + 1];
    by_error ignored = {0};
    *out = NULL;
    if (a->most == 0) {
        return BY__ADDRESS_ROOM;
    }
    for (size_t i = 0; i < bytes; i++) {
        (void)snprintf(id + 2 * i, 3, "%02x", address->s6_addr[i]);
    }
    by__http_address_count *c = (by__http_address_count *)(void *)by__serve_id_find(&a->table, id);
    if (c == NULL) {
        if (by__alloc((void **)&c, 1, sizeof *c, "an address", &ignored) != BY_OK ||
            by__serve_id_add(&a->table, &c->entry, id, &ignored) != BY_OK) {
            free(c);
            return BY__ADDRESS_FLOOD;
        }
    }
    if (c->count >= 2 * a->most) {
        return BY__ADDRESS_FLOOD;
    }
    c->count++;
    *out = c;
    return c->count > a->most ? BY__ADDRESS_FULL : BY__ADDRESS_ROOM;
}

void by__http_addresses_release(by__http_addresses *addresses, by__http_address_count **count)
{
    by__http_address_count *c = *count;
    *count = NULL;
    if (c != NULL && --c->count == 0) {
        by__serve_id_remove(&addresses->table, &c->entry);
        free(c);
    }
}
