/* The address of a Redis server, as a user gives it. */
#include <stdlib.h>
#include <string.h>

#include "serve/link/core/redis_address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__link_redis_address address;
    by_error error = {0};
    char *url = malloc(size + 1);
    if (url == NULL) {
        return 0;
    }
    memcpy(url, data, size);
    url[size] = '\0';
    if (by__link_redis_address_read(&address, url, &error) == BY_OK &&
        (address.host[0] == '\0' || address.port < 1 || address.queue < 1 ||
         address.attempts < 1)) {
        abort();
    }
    char password[BY_SERVE_PASSWORD_BYTES];
    size_t length = strlen(url);
    if (by_serve_extract_password(url, password) &&
        (strlen(url) >= length || by_serve_extract_password(url, password))) {
        abort();
    }
    free(url);
    return 0;
}
