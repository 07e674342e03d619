#include "serve/http/ip_network.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

/* In ::ffff:0:0/96 (RFC 4291, section 2.5.5.2). */
static struct in6_addr mapped(struct in_addr four)
{
    struct in6_addr out = {0};
    out.s6_addr[10] = out.s6_addr[11] = 0xff;
    memcpy(&out.s6_addr[12], &four, sizeof four);
    return out;
}

bool by__http_network_read_address(struct in6_addr *out, const char *text)
{
    struct in_addr four;
    if (inet_pton(AF_INET, text, &four) == 1) {
        *out = mapped(four);
        return true;
    }
    return inet_pton(AF_INET6, text, out) == 1;
}

bool by__http_network_address(struct in6_addr *out, const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        *out = mapped(((const struct sockaddr_in *)(const void *)address)->sin_addr);
        return true;
    }
    if (address->sa_family == AF_INET6) {
        *out = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        return true;
    }
    return false;
}

bool by__http_network_name(char out[INET6_ADDRSTRLEN], const struct sockaddr *address)
{
    const void *bytes = NULL;
    if (address->sa_family == AF_INET) {
        bytes = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    } else if (address->sa_family == AF_INET6) {
        bytes = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    }
    return bytes != NULL && inet_ntop(address->sa_family, bytes, out, INET6_ADDRSTRLEN) != NULL;
}

bool by__http_network_read(by__http_network *out, const char *text)
{
    char name[INET6_ADDRSTRLEN];
    size_t length = strcspn(text, "/");
    if (length >= sizeof name) {
        return false;
    }
    memcpy(name, text, length);
    name[length] = '\0';
    *out = (by__http_network){0};
    if (!by__http_network_read_address(&out->address, name)) {
        return false;
    }
    unsigned most = strchr(name, ':') == NULL ? 32 : 128;
    unsigned bits = most;
    if (text[length] == '/') {
        const char *digits = text + length + 1;
        size_t n = strlen(digits);
        if (n == 0 || n > 3 || strspn(digits, "0123456789") != n) {
            return false;
        }
        bits = (unsigned)strtoul(digits, NULL, 10);
    }
    out->bits = bits + 128 - most;
    return bits <= most;
}

bool by__http_network_has(const by__http_network *network, const struct in6_addr *address)
{
    unsigned whole = network->bits / 8;
    unsigned rest = network->bits % 8;
    const uint8_t *a = address->s6_addr;
    const uint8_t *b = network->address.s6_addr;
    return memcmp(a, b, whole) == 0 && (rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0);
}
