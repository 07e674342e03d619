/* Any bytes as a request to the port of the sink prometheus, and as an address. More bytes do not
 * change what a whole request asks for. */
#include <stdlib.h>
#include <string.h>

#include "track/address.h"
#include "track/prometheus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    by__track_scrape kind = BY__SCRAPE_PARTIAL;
    for (size_t n = 0; n <= size && n <= 4096; n++) {
        by__track_scrape now = by__track_scrape_parse(text, n);
        if (kind != BY__SCRAPE_PARTIAL && now != kind) {
            abort();
        }
        kind = now;
    }
    char *address = malloc(size + 1);
    by__track_address parsed;
    if (address != NULL) {
        memcpy(address, data, size);
        address[size] = '\0';
        if (by__track_address_parse(&parsed, address, NULL) == BY_OK && parsed.length == 0) {
            abort();
        }
    }
    free(address);
    return 0;
}
