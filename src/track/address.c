#include "track/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

by_status by__track_address_parse(by__track_address *out, const char *text, by_error *error)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    size_t n = colon == NULL ? 0 : (size_t)(colon - text);
    bool is_v6 = n > 2 && text[0] == '[' && text[n - 1] == ']';
    const char *digits = colon == NULL ? "" : colon + 1;
    size_t digit_count = strspn(digits, "0123456789");
    long port = digit_count > 0 && digit_count < 6 && digits[digit_count] == '\0'
                    ? strtol(digits, NULL, 10)
                    : -1;
    bool is_good = n > 0 && n < sizeof host && port >= 0 && port < 65536;
    memset(out, 0, sizeof *out);
    (void)snprintf(host, sizeof host, "%.*s", is_v6 ? (int)n - 2 : (int)n, is_v6 ? text + 1 : text);
    if (is_good && is_v6) {
        struct sockaddr_in6 *address = (struct sockaddr_in6 *)&out->bytes;
        address->sin6_family = AF_INET6;
        address->sin6_port = htons((uint16_t)port);
        out->length = sizeof *address;
        is_good = inet_pton(AF_INET6, host, &address->sin6_addr) == 1;
    } else if (is_good) {
        struct sockaddr_in *address = (struct sockaddr_in *)&out->bytes;
        address->sin_family = AF_INET;
        address->sin_port = htons((uint16_t)port);
        out->length = sizeof *address;
        is_good = inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
                            &address->sin_addr) == 1;
    }
    return is_good ? BY_OK
                   : by_error_set(error, BY_ECONFIG,
                                  "'%s' is not an address: write 127.0.0.1:9464 (this machine "
                                  "only), 0.0.0.0:9464 (every network) or [::1]:9464",
                                  text);
}
